"""Insert one entry into the Unreleased section of a changelog."""

from __future__ import annotations

import argparse
import re
import sys

KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")
TITLE = "# Changelog"
UNRELEASED = re.compile(r"##\s+\[?unreleased\]?", re.IGNORECASE)


def insert(text: str, kind: str, sentence: str) -> str:
    """The changelog with the entry in it; the same text when it was there already."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines() or [TITLE]
    start, end = section(lines)
    entry = f"- {sentence}"
    if entry in lines[start:end]:
        return text
    at, before = place(lines, start, end, kind)
    after = [""] if at < len(lines) and lines[at].strip() else []
    lines[at:at] = [*before, entry, *after]
    return newline.join(lines) + newline


def section(lines: list[str]) -> tuple[int, int]:
    """Where the Unreleased section's heading is and where the section ends; made when missing."""
    for number, line in enumerate(lines):
        if UNRELEASED.match(line):
            rest = range(number + 1, len(lines))
            return number, next((n for n in rest if lines[n].startswith("## ")), len(lines))
    first = next((n for n, line in enumerate(lines) if line.startswith("## ")), len(lines))
    while first > 0 and not lines[first - 1].strip():
        first -= 1
    lines[first:first] = ["", "## [Unreleased]"]
    return first + 1, first + 2


def place(lines: list[str], start: int, end: int, kind: str) -> tuple[int, list[str]]:
    """The line to insert at, and the lines that go before the entry there."""
    headings = [n for n in range(start + 1, end) if lines[n].startswith("### ")]
    ranks = {n: rank(lines[n]) for n in headings}
    later = next((n for n in headings if ranks[n] > KINDS.index(kind)), end)
    own = next((n for n in headings if ranks[n] == KINDS.index(kind)), None)
    if own is None:
        return last_text(lines, start, later), ["", f"### {kind.capitalize()}", ""]
    at = last_text(lines, own, next((n for n in headings if n > own), end))
    return at, [""] if at == own + 1 else []


def rank(heading: str) -> int:
    """The customary place of a `### Kind` heading; an unknown one comes first."""
    kind = heading[4:].strip().lower()
    return KINDS.index(kind) if kind in KINDS else -1


def last_text(lines: list[str], start: int, end: int) -> int:
    """The line after the last text between two lines."""
    while end > start + 1 and not lines[end - 1].strip():
        end -= 1
    return end


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("sentence", help="what the user sees now, as one sentence")
    parser.add_argument("--file", default="CHANGELOG.md", help="the changelog")
    parser.add_argument("--dry-run", action="store_true", help="print it instead of writing it")
    options = parser.parse_args()
    try:
        text = read(options.file)
        new = insert(text, options.kind, " ".join(options.sentence.split()))
        if options.dry_run:
            sys.stdout.write(new)
        elif new != text:
            with open(options.file, "w", encoding="utf-8", newline="") as file:
                file.write(new)
    except (OSError, UnicodeDecodeError) as error:
        print(f"{options.file}: {error}", file=sys.stderr)
        return 2
    if new == text:
        print("the entry is there already", file=sys.stderr)
    return int(new == text)


def read(path: str) -> str:
    """The changelog's text with its line endings, or nothing when there is no such file."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return ""


if __name__ == "__main__":
    sys.exit(main())
