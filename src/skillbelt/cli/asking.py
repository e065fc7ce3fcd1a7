"""Ask for permission at the terminal."""

from __future__ import annotations

import argparse
import sys
import threading
from typing import Literal

from skillbelt.cli.keyboard import Burst, Keyboard, NoLongerNeeded, can_ask
from skillbelt.cli.output import show_progress
from skillbelt.permission.gate import Gate
from skillbelt.permission.rules import TYPES, Answer, Request
from skillbelt.permission.waiting import Pending, WaitingRequests
from skillbelt.running.facts import Fact, covered, facts, shown
from skillbelt.settings import Settings
from skillbelt.store import open_store
from skillbelt.text import one_line

_Choice = Literal["once", "always", "reject", "enter", "show", "none"]
_ANSWERS: dict[str, _Choice] = {
    "o": "once", "once": "once", "y": "once", "yes": "once", "a": "always", "always": "always",
    "r": "reject", "reject": "reject", "n": "reject", "no": "reject", "s": "show", "show": "show",
}  # fmt: skip
_MAX_TRIES = 3
_MAX_SHOWINGS = 20
_PASTED = "Pasted text is not accepted as an answer. Type one letter.\n"
# One question at a time, for all threads.
_LOCK = threading.Lock()


def open_gate(settings: Settings, args: argparse.Namespace) -> Gate:
    """Open the gate of a command: --yes allows each request once, a terminal asks."""
    if getattr(args, "yes", False):
        return Gate(settings, lambda: open_store(settings), ask=_yes)
    if not can_ask():
        return Gate(settings, lambda: open_store(settings))
    gate = Gate(settings, lambda: open_store(settings), ask=lambda one: ask(one, gate.desk))
    return gate


def _yes(_pending: Pending) -> Answer:
    return Answer("once", by="--yes")


def ask(pending: Pending, desk: WaitingRequests) -> Answer | None:
    """Ask at the terminal and return the answer; EOF means no.

    None when the request was settled elsewhere meanwhile.
    """

    def settled() -> bool:
        return pending.id not in {waiting.id for waiting in desk.pending()}

    with _LOCK:
        if settled():
            return None
        if sys.stderr.isatty():
            show_progress("")
        try:
            with Keyboard(settled) as keyboard:
                return _read_answer(keyboard, pending.request)
        except NoLongerNeeded:
            return None
        except EOFError:
            return Answer("reject", by="terminal")


def _read_answer(keyboard: Keyboard, request: Request) -> Answer:
    """Ask until there is a clear answer; no clear answer after some tries means no."""
    text, hidden = describe_request(request)
    keyboard.say(f"{text}\n")
    tries = showings = 0
    while tries < _MAX_TRIES and showings < _MAX_SHOWINGS:
        choice = _read_choice(keyboard, bool(request.always), hidden)
        if choice == "show":
            showings += 1
            keyboard.say(f"{describe_request(request, whole=True)[0]}\n")
        elif choice == "reject":
            return Answer("reject", _read_reason(keyboard), "terminal")
        elif choice == "enter":
            break
        elif choice in ("once", "always"):
            return Answer(choice, by="terminal")
        else:
            tries += 1
    return Answer("reject", by="terminal")


def describe_request(request: Request, *, whole: bool = False) -> tuple[str, int]:
    """Return the question, and how many of its facts are cut."""
    kind = TYPES.get(request.type, "unknown to this version")
    details, hidden = (facts(request), 0) if whole else shown(facts(request))
    details.append(Fact("why", f"{_why(request)} ({kind})"))
    if always := covered(request, whole=whole):
        details.append(Fact("always", always))
    wide = max(len(fact.label) for fact in details)
    lines, before = ["Permission needed"], ""
    for label, value in details:
        lines.append(f"  {'' if label == before else label:<{wide}}  {value}".rstrip())
        before = label
    return "\n".join(lines), hidden


def _why(request: Request) -> str:
    who = f"the agent {one_line(request.agent)}" if request.agent else "a model"
    asked = "you asked for it" if request.initiator == "user" else f"{who} asked for it"
    origin = "" if request.trusted else ", and its origin is not trusted"
    return f"{asked}, no rule allows it{origin}"


def _read_choice(keyboard: Keyboard, can_be_remembered: bool, hidden: int) -> _Choice:
    """Read one choice; Enter alone means no."""
    more = f"[s]how all ({hidden} cut), " if hidden else ""
    choices = "[o]nce, [a]lways" if can_be_remembered else "[o]nce"
    try:
        typed = keyboard.line(f"{more}{choices} or [r]eject (Enter)? ").strip().lower()
    except Burst:
        keyboard.say(_PASTED)
        return "none"
    choice = _ANSWERS.get(typed, "none") if typed else "enter"
    return "none" if choice == "always" and not can_be_remembered else choice


def _read_reason(keyboard: Keyboard) -> str:
    try:
        return keyboard.line(
            "The reason, for the one who asked (Enter for none)? ", words=True
        ).strip()
    except EOFError:
        return ""
