"""Measure the shared prefix of requests: `python -m benchmarks.prefix`. No model is needed.

A provider's prompt cache keeps what a request begins with. The exact common prefix of consecutive
requests is therefore what can be served from it. Exit code 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from benchmarks.conversation import KEY, Belt, Request, Step, progressive, read, serialised
from skillbelt.conversation.messages import Material, Message, Placement, materialize
from skillbelt.conversation.state import LoadMode, Session
from skillbelt.conversation.vendors.shapes import MESSAGE_FORMATS, MessageFormat
from skillbelt.store.memory import MemoryStore

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples")
PLACEMENTS: tuple[Placement, ...] = ("tool", "system")
MODES: tuple[LoadMode, ...] = ("turn", "session", "once")
# A text that is shown for one request only can not be in the next one, so `once` has no such bar.
STEADY_MODES: tuple[LoadMode, ...] = ("turn", "session")
TIME_BAR = 3.0
SKILLS, TURNS, MESSAGES, ROUNDS, REPEATS = 20, 10, 500, 5, 100
# All of one length, 900 characters: with the same median and some that are far longer, joining
# would take longer and materialising would not.
_ASKED = "Please look at the next part of it, and tell me what you find there.\n" * 13
_NEXT = "Nothing there. I look at the next file now. " * 20
_OUTPUT = "src/module.py:12: checked, nothing to report\n" * 20

SCRIPT = (
    Step("user"), Step("load", 0), Step("list", 0), Step("docs", 0), Step("work"), Step("load", 1),
    Step("work"),
    Step("user"), Step("work"), Step("load", 2), Step("load", 2), Step("docs", 2), Step("work"),
    Step("user"), Step("load", 0), Step("work"),
)  # fmt: skip


class Pair(NamedTuple):
    """Two consecutive requests: how long the first is, and how much of it begins the second."""

    before: int
    after: int
    shared: int
    same_turn: bool

    @property
    def share(self) -> float:
        return self.shared / self.before


class Row(NamedTuple):
    """One placement and mode over the whole script, in the format of a vendor or as messages."""

    placement: Placement
    mode: LoadMode
    requests: int
    system_texts: int
    pairs: tuple[Pair, ...]
    format: MessageFormat | None = None

    def least(self, same_turn: bool) -> float:
        """The smallest share of an earlier request that begins the next one."""
        return min(pair.share for pair in self.pairs if pair.same_turn == same_turn)

    @property
    def reused(self) -> float:
        """The share of everything sent after the first request that had been sent just before."""
        return sum(pair.shared for pair in self.pairs) / sum(pair.after for pair in self.pairs)

    @property
    def passed(self) -> bool:
        if self.placement != "tool":
            return True
        steady = self.mode not in STEADY_MODES or self.least(same_turn=True) == 1.0
        return self.system_texts == 1 and steady


def measured(
    belt: Belt, placement: Placement, mode: LoadMode, format: MessageFormat | None = None
) -> Row:
    requests = progressive(SCRIPT, belt, placement=placement, mode=mode, format=format)
    systems = {serialised(request.messages[:1]) for request in requests}
    pairs = tuple(_pair(one, two) for one, two in pairwise(requests))
    return Row(
        placement=placement,
        mode=mode,
        requests=len(requests),
        system_texts=len(systems),
        pairs=pairs,
        format=format,
    )


def measured_all(belt: Belt) -> list[Row]:
    """All placements and modes as messages, then what vendors get where text stays in answers."""
    rows = [measured(belt, placement, mode) for placement in PLACEMENTS for mode in MODES]
    vendors = [(format, mode) for format in MESSAGE_FORMATS for mode in STEADY_MODES]
    return [*rows, *(measured(belt, "tool", mode, format) for format, mode in vendors)]


def _pair(one: Request, two: Request) -> Pair:
    before, after = one.text, two.text
    return Pair(len(before), len(after), common(before, after), one.turn == two.turn)


def common(one: str, two: str) -> int:
    """Return the length of the common prefix of two texts."""
    if two.startswith(one):
        return len(one)
    different = (
        index for index, pair in enumerate(zip(one, two, strict=False)) if len({*pair}) > 1
    )
    return next(different, min(len(one), len(two)))


def time_ratio(rounds: int = ROUNDS, repeats: int = REPEATS, *, anew: bool = False) -> float:
    """The time to materialise a long request over that of joining its strings; the median.

    With `anew`, no request had these skills before, so that their texts are to be made too.
    """
    messages, loaded, landed = long_request()

    def made() -> list[Message]:
        skills = [Material(*one) for one in loaded] if anew else loaded
        return materialize(messages, skills, overview="Skills: many", landed=landed)

    # Everything the request holds, bodies and documents too, picked out beforehand.
    strings = [message["content"] for message in made()]

    def joined() -> str:
        return "".join(strings)

    return statistics.median(_time(made, repeats) / _time(joined, repeats) for _ in range(rounds))


def _time(call: Callable[[], object], repeats: int) -> float:
    """The processor time of one call, in the least disturbed of five batches."""
    timer = timeit.Timer(call, timer=time.process_time)  # collects no garbage meanwhile
    return min(timer.repeat(5, repeats))


def long_request() -> tuple[list[Message], list[Material], dict[str, str]]:
    """Ten turns in 500 messages, 20 skills of 5 KiB with two documents each loaded in them."""
    skills = [
        Material(
            f"skill-{number:02}",
            "Do this, then that. " * 256,
            (("notes.md", "Note. " * 200), ("references/columns.md", "Column. " * 150)),
        )
        for number in range(SKILLS)
    ]
    session = Session(MemoryStore(), KEY, mode="session")
    for turn in range(TURNS):
        session.start_run()
        session.record({"role": "user", "content": _ASKED})
        _call(session, skills[2 * turn].name)
        _call(session, skills[2 * turn + 1].name)
        for _ in range(MESSAGES // TURNS // 2 - 3):
            _call(session)
        if turn < TURNS - 1:  # the last turn still goes on
            session.record({"role": "assistant", "content": _NEXT})
    history: list[Message] = [{"role": "system", "content": "You help. " * 90}]
    return [*history, *session.messages()], skills, session.landed()


def _call(session: Session, skill: str = "") -> None:
    call = f"c{len(session.events())}"
    tool, told = ("skill_load", f"loaded: {skill}") if skill else ("shell", _OUTPUT)
    if skill:
        session.load(skill, ["notes.md", "references/columns.md"], call_id=call)
    calls = [{"id": call, "name": tool, "arguments": {"skill": skill}}]
    session.record({"role": "assistant", "content": _NEXT, "tool_calls": calls})
    session.record({"role": "tool", "tool_call_id": call, "content": told})


def table(rows: Sequence[Row], ratio: float, anew: float) -> str:
    figures = ("requests", "system texts", "in a turn", "next turn", "reused", "")
    head = ("format", "placement", "mode", *figures)
    lines = [
        (
            row.format or "messages",
            row.placement,
            row.mode,
            str(row.requests),
            str(row.system_texts),
            f"{row.least(True):.1%}",
            f"{row.least(False):.1%}",
            f"{row.reused:.1%}",
            "ok" if row.passed else "MISSED",
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    shown = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in (head, *lines)
    ]
    verdict = "ok" if ratio <= TIME_BAR else "MISSED"
    return "\n".join(
        [
            *shown,
            "",
            "in a turn, next turn: the least share of a request that begins the next one",
            "reused: the share of all characters after the first request that were just sent",
            f"time of {SKILLS} skills and {MESSAGES} messages: {ratio:.2f} x joining the same "
            f"strings, at most {TIME_BAR} ({verdict}); {anew:.2f} x with skills not seen before",
        ]
    )


def as_json(rows: Sequence[Row], ratio: float, anew: float) -> str:
    figures = [
        {
            "format": row.format or "messages",
            "placement": row.placement,
            "mode": row.mode,
            "requests": row.requests,
            "system_texts": row.system_texts,
            "least_share_in_turn": row.least(True),
            "least_share_next_turn": row.least(False),
            "reused": row.reused,
            "passed": row.passed,
            "pairs": [pair._asdict() for pair in row.pairs],
        }
        for row in rows
    ]
    times = {"time_ratio": round(ratio, 3), "time_ratio_anew": round(anew, 3)}
    return json.dumps({"rows": figures, **times}, indent=2)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prefix", description=__doc__)
    parser.add_argument("folder", nargs="?", default=os.path.join(FOLDER, "skills"))
    parser.add_argument("--json", action="store_true", help="every figure, for programs")
    options = parser.parse_args(argv)
    belt = read(options.folder)
    if not belt.materials:
        print(f"no skills in {options.folder}", file=sys.stderr)
        return 2
    rows = measured_all(belt)
    ratio, anew = time_ratio(), time_ratio(anew=True)
    print(as_json(rows, ratio, anew) if options.json else table(rows, ratio, anew))
    return 0 if ratio <= TIME_BAR and all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
