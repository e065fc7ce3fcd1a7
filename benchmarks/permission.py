"""Measure a decision, and a listing with rules: `python -m benchmarks.permission`.

Every figure stands beside its floor, measured in the same run in turn with it: a decision beside
one look-up in a dict, a listing under rules beside the same listing without. Exit code 1 when a
bar is missed.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.tree import ensure
from skillbelt.discovery import catalog as catalogs
from skillbelt.discovery.catalog import Catalog
from skillbelt.format.skill import Skill
from skillbelt.permission.rules import DEFAULT_RULES, TYPES, Action, Request, Rule, RuleSet

RULES, SKILLS, REQUESTS = 1_000, 10_000, 2_000
ROUNDS, PASSES, LISTINGS = 21, 5, 9
DECISION_BAR, LISTING_BAR = 100.0, 2.0
ACTIONS: tuple[Action, ...] = ("allow", "ask", "deny")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Row(NamedTuple):
    """Something measured, in seconds, beside its floor; without a bar it is only told."""

    name: str
    taken: float
    floor: float
    bar: float | None = None

    @property
    def ratio(self) -> float:
        return self.taken / self.floor

    @property
    def passed(self) -> bool:
        return self.bar is None or self.ratio <= self.bar


def name(made: random.Random) -> str:
    """A name as skills have them: one to four words."""
    words = ["".join(made.choices(LETTERS, k=made.randint(3, 8))) for _ in range(4)]
    return "-".join(words[: made.randint(1, 4)])


def pattern(made: random.Random, kind: str) -> str:
    """A pattern of a kind: a literal, one with a wildcard at an end, or any other."""
    text = name(made)
    part = made.randint(2, min(6, len(text)))
    if kind == "literal":
        return text
    if kind == "end":
        return made.choice((f"{text[:part]}*", f"*{text[-part:]}"))
    middle = made.randint(1, len(text) - 2)
    ways = (f"{text[:middle]}*{text[-1:]}", f"*{text[middle:][:5]}*", f"?{text[1:part]}*")
    return made.choice(ways)


def rules(count: int = RULES, kinds: Sequence[str] | None = None) -> list[Rule]:
    """Rules after the built-in ones: 70 % literal, 25 % with a wildcard at an end, 5 % others."""
    made = random.Random(count)
    share = kinds or ["literal"] * 70 + ["end"] * 25 + ["other"] * 5
    types = [*TYPES, "*"]
    mixed = [
        Rule(made.choice(types), pattern(made, share[-1 - n % len(share)]), made.choice(ACTIONS))
        for n in range(count - len(DEFAULT_RULES))
    ]
    made.shuffle(mixed)
    return [*DEFAULT_RULES, *mixed]


def requests(count: int = REQUESTS) -> list[Request]:
    """Requests of all types for names that hardly any rule names."""
    made = random.Random(-count)
    return [Request(made.choice(list(TYPES)), (name(made),)) for _ in range(count)]


def decision(label: str, given: list[Rule], bar: float | None = None, rounds: int = ROUNDS) -> Row:
    """The median of what one decision takes, beside one look-up of the same texts in a dict."""
    stack, asked = RuleSet(given), requests()
    texts = [request.patterns[0] for request in asked]
    table = dict.fromkeys(texts, True)

    def look_up() -> None:
        for _ in range(PASSES):
            for text in texts:
                table[text]

    def decide() -> None:
        for _ in range(PASSES):
            for request in asked:
                stack.decide(request)

    taken, floor = in_turn(decide, look_up, rounds)
    count = PASSES * len(asked)
    return Row(label, taken / count, floor / count, bar)


def listing(count: int = SKILLS, rounds: int = LISTINGS) -> Row:
    """The median of what a listing under rules takes, beside one without; the index is warm."""
    root = ensure("bare", count)
    stack = RuleSet(rules())

    def permit(agent: str | None, skill: Skill) -> bool:
        request = Request("skill", (skill.name,), agent=agent or "", trusted=skill.trusted)
        return stack.decide(request)[0] != "deny"

    catalogs.MAX_SCAN_SHARE = 1e9  # so that every listing scans
    with tempfile.TemporaryDirectory() as folder:
        filtered, plain = (
            Catalog(
                folder,
                permit=one,
                paths=[root],
                project_roots=False,
                user_roots=False,
                cache_dir=f"{folder}/cache",
            )
            for one in (permit, None)
        )
        assert 0 < len(filtered.available()) <= len(plain.available())
        taken, floor = in_turn(filtered.available, plain.available, rounds)
    return Row(f"a listing of {count:,} skills", taken, floor, LISTING_BAR)


def in_turn(
    call: Callable[[], object], floor: Callable[[], object], rounds: int
) -> tuple[float, float]:
    """The median processor seconds of both; one of each goes before and does not count."""
    pairs = [(timed(call), timed(floor)) for _ in range(rounds + 1)][1:]
    taken, below = zip(*pairs, strict=True)
    return statistics.median(taken), statistics.median(below)


def timed(call: Callable[[], object]) -> float:
    gc.collect()
    started = time.process_time()
    call()
    return time.process_time() - started


def measured(count: int = SKILLS) -> list[Row]:
    return [
        decision(f"a decision over {RULES:,} rules", rules(), DECISION_BAR),
        decision("... that are general wildcards all", rules(kinds=["other"])),
        listing(count),
    ]


def table(rows: Sequence[Row]) -> str:
    lines = [f"{'':<36}  {'takes':>10}  {'floor':>10}  {'ratio':>7}  {'bar':>5}"]
    for row in rows:
        verdict = "" if row.bar is None else f"{row.bar:>5g}  {'ok' if row.passed else 'MISSED'}"
        lines.append(
            f"{row.name:<36}  {seconds(row.taken):>10}  {seconds(row.floor):>10}  "
            f"{row.ratio:>7.2f}  {verdict}".rstrip()
        )
    told = "median processor time; the floor is a look-up in a dict, and a listing without rules"
    return "\n".join([*lines, "", told])


def seconds(value: float) -> str:
    return f"{value * 1e9:.0f} ns" if value < 1e-4 else f"{value * 1e3:.1f} ms"


def as_json(rows: Sequence[Row]) -> str:
    told = [{**row._asdict(), "ratio": round(row.ratio, 3), "passed": row.passed} for row in rows]
    return json.dumps({"rows": told}, indent=2)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.permission", description=__doc__)
    parser.add_argument("--skills", type=int, default=SKILLS, help="in the listing")
    parser.add_argument("--json", action="store_true", help="every figure, for programs")
    options = parser.parse_args(argv)
    rows = measured(options.skills)
    print(as_json(rows) if options.json else table(rows))
    return 0 if all(row.passed for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
