"""Print lines of words: wrapped between words on a terminal, unchanged in a pipe."""

import os
import re
import sys
from typing import TextIO
from unicodedata import east_asian_width

from skillbelt.text import Lazy

_COLOUR = Lazy(r"\x1b\[[0-9;]*m")
_BOLD, _RED, _CYAN, _PLAIN = "\x1b[1m", "\x1b[1;31m", "\x1b[36m", "\x1b[0m"
# The titles of a help page, and the commands and options below them.
_TITLE = Lazy(r"^(usage:|\w[\w ,]*:$)", re.MULTILINE)
_ENTRY = Lazy(r"^(  (?:-[^ ,]+(?:, -[^ ,]+)*|[\w|.@\[\]]+))(?= |$)", re.MULTILINE)


def width(stream: TextIO) -> int:
    """Return the width of the terminal behind a stream; 80 if there is none."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def has_colours(stream: TextIO) -> bool:
    """Whether the stream is a terminal that shows colours."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


def print_words(text: str, margin: str = "", file: TextIO | None = None) -> None:
    """Print lines; on a terminal each is wrapped between words, with a margin below the first."""
    stream = file or sys.stdout
    if not stream.isatty():
        print(text, file=stream)
        return
    for line in text.split("\n"):
        _print_line(line, margin, stream)


def _print_line(text: str, margin: str, stream: TextIO) -> None:
    room = width(stream)
    start = len(text) - len(text.lstrip(" "))
    line = text[:start]
    empty = True
    for word in text[start:].split(" "):
        if not empty and _shown_width(line) + 1 + _shown_width(word) > room:
            print(line, file=stream)
            line, empty = margin, True
        line += word if empty else f" {word}"
        empty = False
    print(line, file=stream)


def _shown_width(text: str) -> int:
    plain = _COLOUR.sub("", text)
    return len(plain) + sum(east_asian_width(char) in "WF" for char in plain if char > "\x7f")


def print_failure(message: str, remedy: str = "") -> None:
    """Print why a command failed, and the remedy below it if the message names no command."""
    name = f"{_RED}skillbelt:{_PLAIN}" if has_colours(sys.stderr) else "skillbelt:"
    print_words(f"{name} {message}", "  ", sys.stderr)
    has_advice = any(one in message for one in (remedy, "`skillbelt ", "; closest: "))
    if remedy and not has_advice:
        print_words(f"    {remedy}", "    ", sys.stderr)


def paint_help(text: str) -> str:
    """Return a help page with its titles, commands and options in colour."""
    return _ENTRY.sub(rf"{_CYAN}\1{_PLAIN}", _TITLE.sub(rf"{_BOLD}\1{_PLAIN}", text))
