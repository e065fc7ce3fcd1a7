"""Measure one turn with few and with very many skills: `python -m benchmarks.turns`.

A turn is a request with a new user message, a call that loads a skill, the request after it, and
the tools. It loads the same short skill in every tree, so that what grows with the catalogue does
not hide behind what a long text costs. Exit code 1 when the bar is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks import documents
from benchmarks.tree import ensure
from skillbelt.conversation.messages import Message
from skillbelt.discovery import catalog as catalogs
from skillbelt.runtime.runtime import Runtime, RuntimeSession

COUNTS = (10, 1_000, 100_000)
BAR = 1.5
TURNS, RESCANNED_TURNS = 101, 5
NEVER = 1e9  # seconds between scans; the bar is about what is discovered already


class Row(NamedTuple):
    """The median turn of a conversation; `rescanned` is one that scans every root first."""

    skills: int
    first: float
    turn: float
    rescanned: float


def measured(count: int, turns: int = TURNS, rescanned: int = RESCANNED_TURNS) -> Row:
    """The processor seconds of turns with a tree of `count` skills."""
    root = ensure("bare", count)
    with tempfile.TemporaryDirectory() as folder:
        started = time.process_time()
        session = _session(root, folder, NEVER)
        session.request(_history(0))
        first = time.process_time() - started
        skill = _skill(session, min(COUNTS[0], count))
        turn = _median(session, skill, turns)
        again = _session(root, folder, 0)
        again.request(_history(0))
        return Row(count, first, turn, _median(again, skill, rescanned))


def _session(root: str, folder: str, rescan_seconds: float) -> RuntimeSession:
    catalogs.MAX_SCAN_SHARE = 1e9  # so that a turn that should scan does
    catalogs.MAX_SCAN_SHARE = 1e9  # so that a turn that should scan does
    runtime = Runtime(
        folder,
        paths=[root],
        rescan_seconds=rescan_seconds,
        cache_dir=f"{folder}/cache",
        state_dir=f"{folder}/state",
    )
    return runtime.session("bench", f"every {rescan_seconds:.0f} s")


def _skill(session: RuntimeSession, count: int) -> str:
    """The shortest of the skills that every tree has."""
    made = sorted((documents.document(number) for number in range(count)), key=_length)
    return next(one.name for one in made if one.name in session.skills())


def _length(document: documents.Document) -> int:
    return len(document.data)


def _median(session: RuntimeSession, skill: str, turns: int) -> float:
    gc.collect()
    return statistics.median(_turn(session, skill, number) for number in range(1, turns + 1))


def _turn(session: RuntimeSession, skill: str, number: int) -> float:
    """The processor seconds of one turn; its history is that of the turn alone."""
    history, call = _history(number), f"call-{number}"
    asked = {"id": call, "name": "skill_load", "arguments": {"skill": skill}}
    started = time.process_time()
    session.request(history)
    result = session.call_sync("skill_load", {"skill": skill}, call)
    history += (
        {"role": "assistant", "content": "", "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": call, "content": result.text},
    )
    sent = session.request(history)
    session.tools(format="openai")
    taken = time.process_time() - started
    assert f"[Loaded] {skill}" in sent[-1]["content"], result.text
    return taken


def _history(number: int) -> list[Message]:
    user = {"role": "user", "content": f"Please look at part {number}."}
    return [{"role": "system", "content": "You help."}, user]


def ratio(rows: Sequence[Row]) -> float:
    """The dearest turn over the one with the fewest skills."""
    return max(row.turn for row in rows) / rows[0].turn


def table(rows: Sequence[Row]) -> str:
    lines = [f"{'skills':>8}  {'first request':>13}  {'a turn':>9}  {'a turn that scans':>17}"]
    lines += [
        f"{row.skills:>8,}  {row.first:>11.2f} s  {row.turn * 1e3:>6.2f} ms  "
        f"{row.rescanned * 1e3:>14.1f} ms"
        for row in rows
    ]
    found = ratio(rows)
    verdict = "ok" if found <= BAR else "MISSED"
    lines += [
        "",
        "median processor time; turns that scan do so every time here, not only now and then",
        f"the dearest turn: {found:.2f} x that of {rows[0].skills} skills, "
        f"at most {BAR} ({verdict})",
    ]
    return "\n".join(lines)


def as_json(rows: Sequence[Row]) -> str:
    return json.dumps(
        {"rows": [row._asdict() for row in rows], "ratio": round(ratio(rows), 3)}, indent=2
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.turns", description=__doc__)
    parser.add_argument("counts", nargs="*", type=int, default=COUNTS, help="skills in each tree")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--json", action="store_true", help="every figure, for programs")
    options = parser.parse_args(argv)
    rows = [measured(count, options.turns) for count in options.counts]
    print(as_json(rows) if options.json else table(rows))
    return 0 if ratio(rows) <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
