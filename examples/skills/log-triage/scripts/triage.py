"""Group log lines by what they say and list the groups, worst first."""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import IO

LEVELS = ("debug", "info", "warning", "error", "fatal")
NAMES = {
    "trace": "debug",
    "debug": "debug",
    "info": "info",
    "notice": "info",
    "warn": "warning",
    "warning": "warning",
    "error": "error",
    "err": "error",
    "severe": "error",
    "traceback": "error",
    "fatal": "fatal",
    "critical": "fatal",
    "panic": "fatal",
}
LEVEL = re.compile(
    rf"(?<![\w-])({'|'.join(NAMES)})(?![\w-])|\b\w+(Error|Exception)\b", re.IGNORECASE
)
TIME = re.compile(
    r"\d{4}[-/]\d{2}[-/]\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d+)?(?:Z|[+-]\d{2}:?\d{2})?"
    r"|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d \d{2}:\d{2}:\d{2}"
    r"|\b\d{2}:\d{2}:\d{2}(?:[.,]\d+)?\b"
)
RULES = (
    (TIME, "<time>"),
    (re.compile(r"\"[^\"]{0,200}\"|(?<!\w)'[^']{0,200}'"), "<str>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.I), "<id>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "<ip>"),
    (re.compile(r"(?<![\w<])/(?:[\w.@+-]+/)*[\w.@+-]+"), "<path>"),
    (re.compile(r"\b(?:0x[0-9a-f]+|(?=[0-9a-f]*\d)[0-9a-f]{8,})\b", re.I), "<id>"),
    (re.compile(r"\d+(?:\.\d+)?"), "<n>"),
)
MAX_LINE = 2_000
MAX_GROUPS = 50_000


class Group:
    """The lines that say the same."""

    def __init__(self, level: str, message: str, line: int, time: str) -> None:
        self.level, self.message, self.line = level, message, line
        self.count, self.first, self.last = 0, time, time

    def add(self, time: str) -> None:
        self.count += 1
        self.first = self.first or time
        self.last = time or self.last

    def facts(self) -> dict[str, str | int]:
        return {
            "level": self.level,
            "count": self.count,
            "first": self.first,
            "last": self.last,
            "line": self.line,
            "message": self.message,
        }


def level_of(line: str, previous: str) -> str:
    match = LEVEL.search(line)
    if match:
        return NAMES.get(match[0].lower(), "error")
    return previous if line[:1].isspace() else "info"


def normalise(line: str) -> str:
    """The line without what differs between two lines that say the same."""
    for pattern, word in RULES:
        line = pattern.sub(word, line)
    return " ".join(line.split())[:200]


def group(lines: Iterable[str]) -> list[Group]:
    """All groups, worst level first, then the oldest."""
    groups: dict[tuple[str, str], Group] = {}
    level = "info"
    for number, line in enumerate(lines, 1):
        line = line[:MAX_LINE].rstrip()
        if not line:
            continue
        level = level_of(line, level)
        time = TIME.search(line)
        key = (level, normalise(line))
        if key not in groups and len(groups) >= MAX_GROUPS:
            key = (level, "(other lines)")
        found = groups.setdefault(key, Group(*key, number, time[0] if time else ""))
        found.add(time[0] if time else "")
    return sorted(groups.values(), key=lambda g: (-LEVELS.index(g.level), g.line))


def read(paths: list[str]) -> Iterator[str]:
    for path in paths:
        if path == "-":
            yield from sys.stdin
            continue
        with opened(path) as file:
            yield from file


def opened(path: str) -> IO[str]:
    if path.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return open(path, encoding="utf-8", errors="replace")


def table(groups: list[Group], limit: int) -> str:
    head = ("level", "count", "first", "last", "line", "message")
    rows = [head, ("---",) * len(head), *(tuple(g.facts().values()) for g in groups[:limit])]
    rest = len(groups) - limit
    more = [f"\n{rest} more groups; raise --limit or --level."] if rest > 0 else []
    return "\n".join([*map(row, rows), *more])


def row(cells: Iterable[str | int]) -> str:
    texts = (str(cell).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(texts)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", help="log files; - is standard input")
    parser.add_argument("--limit", type=int, default=20, help="groups to show")
    parser.add_argument("--level", choices=LEVELS, default="debug", help="leave out milder levels")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    try:
        groups = group(read(options.files))
    except (OSError, EOFError) as error:
        print(error, file=sys.stderr)
        return 2
    least = LEVELS.index(options.level)
    groups = [g for g in groups if LEVELS.index(g.level) >= least]
    if options.json:
        print(json.dumps({"groups": [g.facts() for g in groups[: options.limit]]}, indent=2))
    elif groups:
        print(table(groups, options.limit))
    return 0 if groups else 1


if __name__ == "__main__":
    sys.exit(main())
