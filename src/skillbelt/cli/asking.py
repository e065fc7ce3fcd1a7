"""Ask for permission at the terminal."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from unicodedata import east_asian_width

from skillbelt.cli.keyboard import Burst, Keyboard, Menu, MenuRow, NoLongerNeeded
from skillbelt.cli.output import show_progress
from skillbelt.cli.words import width
from skillbelt.permission.rules import OPAQUE, TYPES, Answer, AnswerKind, Request
from skillbelt.permission.waiting import Pending, WaitingRequests
from skillbelt.running.question_facts import Fact, covered, facts, shown
from skillbelt.text import exact, one_line

_ONCE = MenuRow("once", "once", ("y", "yes"))
_CONVERSATION = MenuRow("conversation", "for this conversation")
_ALWAYS = MenuRow("always", "always, as shown above")
_NO = MenuRow("no", "no")
_REJECT = MenuRow("reject", "no, and say why")
_KINDS: dict[str, AnswerKind] = {
    "once": "once",
    "conversation": "conversation",
    "always": "always",
}
_LEAST_ROOM = 16  # the least columns for a fact beside its label
_MAX_WHAT_CHARS = 2_000  # a longer command is cut until the user asks for all of it
_MAX_TRIES = 3
_MAX_SHOWINGS = 20
_PASTED = "Pasted text is not accepted as an answer. Type one letter.\n"
# One question at a time, for all threads.
_LOCK = threading.Lock()
# The requests allowed at this terminal, so that a question can say what is new.
_allowed: deque[Request] = deque(maxlen=100)


def ask(pending: Pending, desk: WaitingRequests, *, in_conversation: bool = False) -> Answer | None:
    """Ask at the terminal and return the answer; EOF means no.

    None when the request was settled elsewhere meanwhile. `in_conversation` says that more
    questions may follow in the same conversation.
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
                return _read_answer(keyboard, pending.request, in_conversation)
        except NoLongerNeeded:
            return None
        except EOFError:
            return Answer("reject", by="terminal")


def _read_answer(keyboard: Keyboard, request: Request, in_conversation: bool) -> Answer:
    """Ask until there is a clear answer; no clear answer after some tries means no."""
    describe = partial(describe_request, request, allowed=_allowed, columns=width(sys.stderr))
    text, hidden = describe()
    keyboard.say(f"{text}\n")
    choices = _choices(request, hidden, in_conversation)
    tries = showings = 0
    while tries < _MAX_TRIES and showings < _MAX_SHOWINGS:
        choice = _read_choice(keyboard, choices)
        if choice == "show":
            showings += 1
            keyboard.say(f"{describe(whole=True)[0]}\n")
        elif choice == "reject":
            return Answer("reject", _read_reason(keyboard), "terminal")
        elif choice == "no":
            break
        elif choice in _KINDS:
            _allowed.append(request)
            return Answer(_KINDS[choice], by="terminal")
        else:
            tries += 1
    return Answer("reject", by="terminal")


def describe_request(
    request: Request, *, whole: bool = False, allowed: Iterable[Request] = (), columns: int = 0
) -> tuple[str, int]:
    """Return the question, and how many of its facts are cut.

    A long fact continues on lines below if the terminal has that many `columns`. The question says
    what is new compared with the closest request that was `allowed` before.
    """
    unknown = "" if request.type in TYPES else " (a type that this version does not know)"
    details, hidden = _pick_facts(request, whole)
    if new := find_new(request, allowed):
        details.append(Fact("new", new))
    details.append(Fact("why", f"{_describe_requester(request)}{unknown}"))
    if always := covered(request, whole=whole):
        details.append(Fact("always", always))
    wide = max(len(fact.label) for fact in details)
    lines, before = ["Permission needed"], ""
    for label, value in details:
        head = f"  {'' if label == before else label:<{wide}}  "
        for part in _fold(value, columns - len(head) - 1) if columns else [value]:
            lines.append(f"{head}{part}".rstrip())
            head = " " * len(head)
        before = label
    return "\n".join(lines), hidden


def _pick_facts(request: Request, whole: bool) -> tuple[list[Fact], int]:
    """Return the facts, a command only once, and how many are cut."""
    what, *others = facts(request)
    repeated = {"command", exact(request.type)}
    others = [
        one for one in others if one.label not in repeated or not _is_in(one.value, what.value)
    ]
    if whole or len(what.value) <= _MAX_WHAT_CHARS:
        kept, hidden = (others, 0) if whole else shown(others)
        return [what, *kept], hidden
    kept, hidden = shown([what, *others])
    return list(kept), hidden


def _is_in(value: str, what: str) -> bool:
    return value.removeprefix(OPAQUE).strip() in what


def _fold(value: str, room: int) -> Iterator[str]:
    """Yield a text in parts of that many columns, at a space if one is near; nothing is dropped."""
    room = max(room, _LEAST_ROOM)
    while _columns(value) > room:
        cut = value[:room]
        while _columns(cut) > room:
            cut = cut[:-1]
        space = cut.rfind(" ")
        cut = cut[: space + 1] if space > room // 2 else cut
        yield cut
        value = value[len(cut) :]
    yield value


def _columns(text: str) -> int:
    """Return the width of the text on a terminal; a wide character takes two columns."""
    return len(text) + sum(east_asian_width(char) in "WF" for char in text)


def find_new(request: Request, allowed: Iterable[Request]) -> str:
    """Say what is new in a request compared with the closest one that was allowed before.

    Only requests of the same type for the same skill are compared; "" if there is none.
    """
    same = [one for one in allowed if (one.type, one.skill) == (request.type, request.skill)]
    if not same:
        return ""
    words = _list_words(request)
    # Of equally close ones, the latest.
    closest = max(reversed(same), key=lambda one: len(set(words) & set(_list_words(one))))
    known, parts = set(_list_words(closest)) | _other_facts(closest), []
    if request.hash != closest.hash:
        parts.append("the files of the skill changed")
    parts += [
        f"`{text}`" for text in [" ".join(word for word in words if word not in known)] if text
    ]
    parts += sorted(_other_facts(request) - known)
    return ", ".join(parts) or "nothing, you allowed the same before"


def _list_words(request: Request) -> list[str]:
    return [exact(word) for text in request.patterns for word in text.split()]


def _other_facts(request: Request) -> set[str]:
    """Return the facts other than the patterns themselves."""
    apart = {"what", "content", "session", "command", request.type}
    return {f"{label} {value}" for label, value in facts(request) if label not in apart}


def _describe_requester(request: Request) -> str:
    who = f"the agent {one_line(request.agent)}" if request.agent else "a model"
    asked = "you asked for it" if request.initiator == "user" else f"{who} asked for it"
    origin = "" if request.trusted else ", and its origin is not trusted"
    return f"{asked}, and no rule allows it{origin}"


def _choices(request: Request, hidden: int, in_conversation: bool) -> list[MenuRow]:
    choices = [_ONCE]
    if request.always:
        choices += [_CONVERSATION, _ALWAYS] if in_conversation and request.session else [_ALWAYS]
    choices += [_NO, _REJECT]
    return [*choices, MenuRow("show", f"show all of it ({hidden} cut)")] if hidden else choices


def _read_choice(keyboard: Keyboard, choices: list[MenuRow]) -> str:
    """Read one word of the menu; Enter alone means no, "" is none of them."""
    try:
        return keyboard.choose("Your answer (Enter for no)? ", Menu(choices, _NO.word))
    except Burst:
        keyboard.say(_PASTED)
        return ""


def _read_reason(keyboard: Keyboard) -> str:
    try:
        return keyboard.line("The reason, for the requester (Enter for none)? ", words=True).strip()
    except EOFError:
        return ""
