"""Print lines of words: wrapped between words on a terminal, unchanged in a pipe."""

from __future__ import annotations

import os
import re
import sys
from _thread import allocate_lock, start_new_thread
from time import monotonic, sleep
from typing import TextIO
from unicodedata import east_asian_width

from skillbelt.text import Lazy, shorten

_SAY_SECONDS = 2  # a progress line that is shown for longer says for how long
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


def height(stream: TextIO) -> int:
    """Return how many lines the terminal behind a stream has; 24 if there is none."""
    try:
        return os.get_terminal_size(stream.fileno()).lines or 24
    except (OSError, ValueError):
        return 24


def has_colours(stream: TextIO) -> bool:
    """Whether the stream is a terminal that shows colours."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


class ProgressLine:
    """The line of progress at the end of the terminal: its text, and since when it is shown."""

    text = ""
    since = 0.0
    lock = allocate_lock()
    ticking = False


def show_line(text: str) -> None:
    """Show a line of progress in place of the one before; an empty text clears it.

    After some seconds it says how many have passed, so that a person sees that something goes on.
    """
    with ProgressLine.lock:
        ProgressLine.text, ProgressLine.since = text, monotonic()
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        if text and not ProgressLine.ticking:
            ProgressLine.ticking = True
            start_new_thread(_tick, ())  # ends with the process


def clear_line() -> bool:
    """Clear the line of progress; return whether there was one."""
    shown = bool(ProgressLine.text)
    if shown:
        show_line("")
    return shown


def _tick() -> None:
    while True:
        sleep(1)
        with ProgressLine.lock:
            passed = int(monotonic() - ProgressLine.since)
            if ProgressLine.text and passed >= _SAY_SECONDS:
                room = min(78, width(sys.stderr) - 1)
                line = f"\r\x1b[K{shorten(ProgressLine.text, room - 8)} ({passed} s)"
                # Not by the stream: a thread that holds its lock when the process ends is fatal.
                os.write(sys.stderr.fileno(), line.encode(errors="backslashreplace"))


def print_words(text: str, margin: str = "", file: TextIO | None = None) -> None:
    """Print lines; on a terminal each is wrapped between words, with a margin below the first."""
    stream = file or sys.stdout
    if not stream.isatty():
        print(text, file=stream)
        return
    clear_line()
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
