"""How the command line asks a person for permission."""

from __future__ import annotations

import argparse
import sys
import threading
from typing import Literal

from skillbelt.cli.keyboard import Burst, Gone, Keyboard, somebody_is_there
from skillbelt.cli.output import show_progress
from skillbelt.permission.gate import Gate
from skillbelt.permission.rules import TYPES, Answer, Request
from skillbelt.permission.waiting import Desk, Pending
from skillbelt.running.facts import Fact, covered, facts, shown
from skillbelt.settings import Settings
from skillbelt.store import open_store
from skillbelt.text import one_line

_Choice = Literal["once", "always", "reject", "enter", "show", "none"]
_ANSWERS: dict[str, _Choice] = {
    "o": "once", "once": "once", "y": "once", "yes": "once", "a": "always", "always": "always",
    "r": "reject", "reject": "reject", "n": "reject", "no": "reject", "s": "show", "show": "show",
}  # fmt: skip
_TRIES = 3
_SHOWINGS = 20
_AT_ONCE = "What comes all at once, as a paste does, is no answer. Type one letter.\n"
# One question at a time, however many threads want something.
_LOCK = threading.Lock()


def open_gate(settings: Settings, args: argparse.Namespace) -> Gate:
    """The gate of a command: with `--yes` it says yes once, on a terminal it asks."""
    if getattr(args, "yes", False):
        return Gate(settings, lambda: open_store(settings), ask=_yes)
    if not somebody_is_there():
        return Gate(settings, lambda: open_store(settings))
    gate = Gate(settings, lambda: open_store(settings), ask=lambda one: ask(one, gate.desk))
    return gate


def _yes(_pending: Pending) -> Answer:
    return Answer("once", by="--yes")


def ask(pending: Pending, desk: Desk) -> Answer | None:
    """What the person at the terminal says; whoever ends the input says no.

    None when the request was settled while another one was asked for, or before the answer.
    """

    def gone() -> bool:
        return pending.id not in {waiting.id for waiting in desk.pending()}

    with _LOCK:
        if gone():
            return None
        if sys.stderr.isatty():
            show_progress("")
        try:
            with Keyboard(gone) as keyboard:
                return _answer(keyboard, pending.request)
        except Gone:
            return None
        except EOFError:
            return Answer("reject", by="terminal")


def _answer(keyboard: Keyboard, request: Request) -> Answer:
    """What is said in so many tries; nothing that is clear is a no."""
    text, hidden = question(request)
    keyboard.say(f"{text}\n")
    tries = showings = 0
    while tries < _TRIES and showings < _SHOWINGS:
        choice = _choice(keyboard, bool(request.always), hidden)
        if choice == "show":
            showings += 1
            keyboard.say(f"{question(request, whole=True)[0]}\n")
        elif choice == "reject":
            return Answer("reject", _message(keyboard), "terminal")
        elif choice == "enter":
            break
        elif choice in ("once", "always"):
            return Answer(choice, by="terminal")
        else:
            tries += 1
    return Answer("reject", by="terminal")


def question(request: Request, *, whole: bool = False) -> tuple[str, int]:
    """What a person has to know, and how much of it is not shown whole."""
    kind = TYPES.get(request.type, "something this version does not know")
    told, hidden = (facts(request), 0) if whole else shown(facts(request))
    told.append(Fact("why", f"{_why(request)} ({kind})"))
    if always := covered(request, whole=whole):
        told.append(Fact("always", always))
    wide = max(len(fact.label) for fact in told)
    lines, before = ["Permission needed"], ""
    for label, value in told:
        lines.append(f"  {'' if label == before else label:<{wide}}  {value}".rstrip())
        before = label
    return "\n".join(lines), hidden


def _why(request: Request) -> str:
    who = f"the agent {one_line(request.agent)}" if request.agent else "a model"
    asked = "you asked for it" if request.initiator == "user" else f"{who} asked for it"
    origin = "" if request.trusted else ", and its origin is not trusted"
    return f"{asked}, no rule allows it{origin}"


def _choice(keyboard: Keyboard, can_be_remembered: bool, hidden: int) -> _Choice:
    """The choice that was typed; Enter alone is a no."""
    more = f"[s]how all ({hidden} cut), " if hidden else ""
    choices = "[o]nce, [a]lways" if can_be_remembered else "[o]nce"
    try:
        typed = keyboard.line(f"{more}{choices} or [r]eject (Enter)? ").strip().lower()
    except Burst:
        keyboard.say(_AT_ONCE)
        return "none"
    choice = _ANSWERS.get(typed, "none") if typed else "enter"
    return "none" if choice == "always" and not can_be_remembered else choice


def _message(keyboard: Keyboard) -> str:
    try:
        return keyboard.line(
            "Why, in a word for whoever asked (Enter for none)? ", words=True
        ).strip()
    except EOFError:
        return ""
