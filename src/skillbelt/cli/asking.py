"""How the command line asks a person for permission."""

from __future__ import annotations

import argparse
import sys
import threading

from skillbelt.cli.output import show_progress
from skillbelt.desk import Desk, Pending
from skillbelt.gate import Gate
from skillbelt.permission import TYPES, Answer, Request
from skillbelt.settings import Settings
from skillbelt.store import open_store
from skillbelt.text import one_line, shorten

_ANSWERS = {"o": "once", "once": "once", "y": "once", "yes": "once", "a": "always",
            "always": "always", "r": "reject", "reject": "reject", "n": "reject",
            "no": "reject"}  # fmt: skip
_SHOWN = 300  # characters of what a skill or a model says
_TRIES = 3
# One question at a time, however many threads want something.
_LOCK = threading.Lock()


def open_gate(settings: Settings, args: argparse.Namespace) -> Gate:
    """The gate of a command: with `--yes` it says yes once, on a terminal it asks."""
    if getattr(args, "yes", False):
        return Gate(settings, lambda: open_store(settings), ask=_yes)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return Gate(settings, lambda: open_store(settings))
    gate = Gate(settings, lambda: open_store(settings), ask=lambda one: ask(one, gate.desk))
    return gate


def _yes(_pending: Pending) -> Answer:
    return Answer("once", by="--yes")


def ask(pending: Pending, desk: Desk) -> Answer | None:
    """What the person at the terminal says; whoever ends the input says no.

    None when the request was settled while another one was asked for.
    """
    with _LOCK:
        if pending.id not in {waiting.id for waiting in desk.pending()}:
            return None
        if sys.stderr.isatty():
            show_progress("")
        print(question(pending.request), file=sys.stderr)
        for _ in range(_TRIES):
            kind = _read(bool(pending.request.always))
            if kind == "end":
                print(file=sys.stderr)
                break
            if kind == "reject":
                return Answer("reject", _message(), "terminal")
            if kind in ("once", "always"):
                return Answer("once" if kind == "once" else "always", by="terminal")
        return Answer("reject", by="terminal")


def question(request: Request) -> str:
    """What a person has to know: what wants to happen, why it is asked, what "always" covers."""
    kind = TYPES.get(request.type, "something this version does not know")
    what = request.summary or f"{request.type}: {', '.join(request.patterns)}"
    lines = [
        "Permission needed",
        f"  what     {_shown(what)}",
        *(f"  {request.type:<8} {_shown(text)}" for text in request.patterns if text not in what),
        f"  why      {_why(request)} ({kind})",
    ]
    if request.always:
        texts = ", ".join(map(_shown, request.always))
        lines.append(f"  always   would cover {request.type} {texts}{_bound(request)}")
    return "\n".join(lines)


def _why(request: Request) -> str:
    who = f"the agent {one_line(request.agent)}" if request.agent else "a model"
    asked = "you asked for it" if request.initiator == "user" else f"{who} asked for it"
    origin = "" if request.trusted else ", and its origin is not trusted"
    return f"{asked}, no rule allows it{origin}"


def _bound(request: Request) -> str:
    if not request.skill:
        return " in this project"
    return f" of {one_line(request.skill)} in this project, until the skill changes"


def _shown(text: str) -> str:
    return shorten(one_line(text), _SHOWN)


def _read(can_be_remembered: bool) -> str:
    choices = "[o]nce, [a]lways or [r]eject? " if can_be_remembered else "[o]nce or [r]eject? "
    print(choices, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        return "end"
    kind = _ANSWERS.get(line.strip().lower(), "")
    return "" if kind == "always" and not can_be_remembered else kind


def _message() -> str:
    print(
        "Why, in a word for whoever asked (Enter for none)? ", end="", file=sys.stderr, flush=True
    )
    return sys.stdin.readline().strip()
