"""Compare two JSON documents by meaning and list what differs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

MISSING = object()
SIGNS = {"add": "+", "remove": "-", "change": "~"}


class Difference(NamedTuple):
    """One value that differs."""

    op: str
    steps: tuple[str, ...]
    old: object
    new: object

    @property
    def pointer(self) -> str:
        return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in self.steps)

    def facts(self) -> dict[str, object]:
        values = {"old": self.old, "new": self.new}
        kept = {name: value for name, value in values.items() if value is not MISSING}
        return {"op": self.op, "pointer": self.pointer, **kept}

    def __str__(self) -> str:
        values = [short(value) for value in (self.old, self.new) if value is not MISSING]
        return f"{SIGNS[self.op]} {self.pointer or '/'} {' -> '.join(values)}"


def short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else text[:119] + "…"


def compare(
    old: object, new: object, key: str = "", steps: tuple[str, ...] = ()
) -> Iterator[Difference]:
    """Every difference between two documents, in the order of the pointers' keys."""
    left, right = children(old, key), children(new, key)
    if left is None or right is None or isinstance(old, dict) != isinstance(new, dict):
        if not same(old, new):
            yield Difference("change", steps, old, new)
        return
    for name in dict.fromkeys((*left, *right)):
        below = (*steps, name)
        if name not in left:
            yield Difference("add", below, MISSING, right[name])
        elif name not in right:
            yield Difference("remove", below, left[name], MISSING)
        else:
            yield from compare(left[name], right[name], key, below)


def same(old: object, new: object) -> bool:
    """Equal, and not a truth value against a number: in JSON `true` is not `1`."""
    return old == new and isinstance(old, bool) == isinstance(new, bool)


def children(value: object, key: str) -> dict[str, object] | None:
    """The members of an object or a list by name; None for a plain value."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, list):
        return None
    if key and value and all(isinstance(item, dict) and key in item for item in value):
        named = {f"{key}={plain(item[key])}": item for item in value}
        if len(named) == len(value):
            return named
    return {str(position): item for position, item in enumerate(value)}


def plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def load(path: str) -> object:
    if path == "-":
        return json.load(sys.stdin)
    with open(path, encoding="utf-8-sig") as file:
        return json.load(file)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--key", default="", help="compare list elements by this member")
    parser.add_argument("--ignore", action="append", default=[], help="a pointer; * is one step")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    try:
        found = list(compare(load(options.old), load(options.new), options.key))
    except (OSError, ValueError, RecursionError) as error:
        print(f"cannot compare: {error}", file=sys.stderr)
        return 2
    found = [item for item in found if not any(hides(rule, item) for rule in options.ignore)]
    found.sort(key=lambda item: item.pointer)
    if options.json:
        facts = [item.facts() for item in found]
        print(json.dumps({"same": not found, "differences": facts}, ensure_ascii=False))
    else:
        print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


def hides(rule: str, item: Difference) -> bool:
    """Whether the rule names the value or something it lies in."""
    wanted, steps = rule.strip("/").split("/"), item.pointer.strip("/").split("/")
    return len(wanted) <= len(steps) and all(map(fnmatchcase, steps, wanted))


if __name__ == "__main__":
    sys.exit(main())
