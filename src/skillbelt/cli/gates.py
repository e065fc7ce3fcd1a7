"""Open the gate of a command. What asks at the terminal is imported for a question alone."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from skillbelt.cli.output import has_terminal
from skillbelt.late import Late
from skillbelt.permission.gate import Gate, allow_unread
from skillbelt.settings import Settings
from skillbelt.store import open_store

if TYPE_CHECKING:
    from skillbelt.cli import asking, keyboard
else:  # cost: 8 ms, only for a question
    asking, keyboard = Late("skillbelt.cli.asking"), Late("skillbelt.cli.keyboard")


def can_ask() -> bool:
    """Whether a person can be asked."""
    return has_terminal() and keyboard.can_ask()


def open_gate(settings: Settings, args: argparse.Namespace) -> Gate:
    """Open the gate of a command: --yes allows each request once, a terminal asks."""
    if getattr(args, "yes", False):
        return Gate(settings, lambda: open_store(settings), ask=allow_unread)
    if not can_ask():
        return Gate(settings, lambda: open_store(settings))
    gate = Gate(settings, lambda: open_store(settings), ask=lambda one: asking.ask(one, gate.desk))
    return gate
