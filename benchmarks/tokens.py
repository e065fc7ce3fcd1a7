"""Measure what progressive loading saves: `python -m benchmarks.tokens [FOLDER]`.

Scripted conversations with skills loaded when they are needed, against the same ones with every
skill in the system message from the start. Loading takes requests of its own, and its tools stand
in every request; both are counted, so a handful of short skills is cheaper sent whole.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks import tree
from benchmarks.conversation import Belt, Request, Step, What, cost, injected, progressive, read

SKILLS = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples", "skills"
)


def _turns(*turns: tuple[int, tuple[What, ...]]) -> tuple[Step, ...]:
    return tuple(Step(what, skill) for skill, whats in turns for what in whats)


SCRIPTS: dict[str, tuple[Step, ...]] = {
    "no skill is needed": _turns((0, ("user", "work", "work"))),
    "one skill": _turns((0, ("user", "load", "work", "work"))),
    "one skill, one document": _turns((0, ("user", "load", "list", "docs", "work", "work"))),
    "three turns, three skills": _turns(
        *((number, ("user", "load", "list", "docs", "work", "work")) for number in range(3))
    ),
    "ten turns, one skill": _turns(
        (0, ("user", "load", "list", "docs", "work")), *((0, ("user", "work")) for _ in range(9))
    ),
}


class Side(NamedTuple):
    """All requests of a conversation one way."""

    requests: int
    tokens: int
    largest: int


class Row(NamedTuple):
    """A conversation both ways, with or without documents."""

    script: str
    documents: bool
    progressive: Side
    full: Side

    @property
    def saved(self) -> float:
        return 1 - self.progressive.tokens / self.full.tokens

    @property
    def label(self) -> str:
        return f"{self.script}, {'with documents' if self.documents else 'bodies only'}"


def compared(name: str, belt: Belt, documents: bool) -> Row:
    """The conversation both ways; without documents, nobody asks for one."""
    script = [step for step in SCRIPTS[name] if documents or step.what not in ("list", "docs")]
    return Row(
        name,
        documents,
        _side(progressive(script, belt), belt.definitions),
        _side(injected(script, belt, documents=documents)),
    )


def _side(requests: Sequence[Request], definitions: str = "") -> Side:
    costs = [cost([request], definitions) for request in requests]
    return Side(len(costs), sum(costs), max(costs))


def rows(belt: Belt) -> list[Row]:
    """Every conversation that differs from the others, bodies only and with documents."""
    plain = [name for name in SCRIPTS if name != "one skill, one document"]
    told = [name for name in SCRIPTS if name != "one skill"]
    return [compared(name, belt, False) for name in plain] + [
        compared(name, belt, True) for name in told
    ]


def table(belt: Belt, found: Sequence[Row]) -> str:
    head = (
        "conversation",
        "requests",
        "tokens",
        "largest",
        "full: requests",
        "tokens",
        "largest",
        "saved",
    )
    lines = [
        (
            row.label,
            str(row.progressive.requests),
            f"{row.progressive.tokens:,}",
            f"{row.progressive.largest:,}",
            str(row.full.requests),
            f"{row.full.tokens:,}",
            f"{row.full.largest:,}",
            f"{row.saved:.1%}",
        )
        for row in found
    ]
    widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
    shown = [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in (head, *lines)
    ]
    docs = sum(len(material.docs) for material in belt.materials)
    return "\n".join([f"{len(belt.materials)} skills, {docs} documents", "", *shown])


def as_json(belt: Belt, found: Sequence[Row]) -> str:
    figures = [
        {
            "conversation": row.script,
            "documents": row.documents,
            "progressive": row.progressive._asdict(),
            "full": row.full._asdict(),
            "saved": round(row.saved, 4),
        }
        for row in found
    ]
    return json.dumps({"skills": len(belt.materials), "rows": figures}, indent=2)


def plot(found: Sequence[Row], path: str) -> None:
    """Bars of both ways for every conversation, as SVG; as PNG where matplotlib is installed."""
    if path.endswith(".svg"):
        with open(path, "w", encoding="utf-8") as file:
            file.write(svg(found))
    else:
        _with_matplotlib(found, path)


def svg(found: Sequence[Row]) -> str:
    width, left, most = 900, 340, max(max(row.full.tokens, row.progressive.tokens) for row in found)
    parts = [_text(left, 20, "prompt tokens of all requests: progressive (dark), full (light)")]
    for number, row in enumerate(found):
        top = 36 + 44 * number
        parts.append(_text(8, top + 20, row.label))
        for line, (side, colour) in enumerate(((row.progressive, "#1f5f8b"), (row.full, "#bcd"))):
            length = max(1, (width - left - 110) * side.tokens // most)
            y = top + 16 * line
            parts.append(f'<rect x="{left}" y="{y}" width="{length}" height="14" fill="{colour}"/>')
            parts.append(_text(left + length + 6, y + 12, f"{side.tokens:,}"))
    height = 44 + 44 * len(found)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="white"/>'
        "\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _text(x: int, y: int, words: str) -> str:
    return f'<text x="{x}" y="{y}">{words}</text>'


def _with_matplotlib(found: Sequence[Row], path: str) -> None:
    from importlib import import_module

    try:
        pyplot = import_module("matplotlib.pyplot")
    except ImportError:
        raise SystemExit(f"{path}: only .svg can be written without matplotlib") from None
    figure, axes = pyplot.subplots(figsize=(10, 0.6 * len(found) + 1))
    places = range(len(found))
    axes.barh([y - 0.2 for y in places], [r.progressive.tokens for r in found], 0.4)
    axes.barh([y + 0.2 for y in places], [r.full.tokens for r in found], 0.4)
    axes.set_yticks(list(places), [row.label for row in found])
    axes.invert_yaxis()
    axes.legend(["progressive", "full"])
    axes.set_xlabel("prompt tokens of all requests")
    figure.savefig(path, bbox_inches="tight")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tokens", description=__doc__)
    parser.add_argument("folder", nargs="?", default=SKILLS, help="skills; the examples if none")
    parser.add_argument("--made", type=int, metavar="N", help="N made-up skills of real sizes")
    parser.add_argument("--json", action="store_true", help="every figure, for programs")
    parser.add_argument("--plot", metavar="FILE", help="bars, as .svg or (with matplotlib) .png")
    options = parser.parse_args(argv)
    belt = read(tree.ensure("full", options.made) if options.made else options.folder)
    if not belt.materials:
        print(f"no skills in {options.folder}", file=sys.stderr)
        return 2
    found = rows(belt)
    if options.plot:
        plot(found, options.plot)
    print(as_json(belt, found) if options.json else table(belt, found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
