"""Render templates: every text is escaped, and invisible characters are shown as marks."""

from __future__ import annotations

import os
import re
import time
from datetime import UTC, datetime
from functools import cache
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from skillbelt.text import ago, describe_seconds, hidden, local_time, one_line, shorten

HERE = os.path.dirname(__file__)


@cache
def templates() -> Environment:
    """Return the templates, with the filters that they use."""
    made = Environment(
        loader=FileSystemLoader(os.path.join(HERE, "templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        ago=show_age,
        when=local_time,
        clock=show_clock,
        size=show_size,
        took=show_duration,
        count=show_count,
        plain=show_plain,
        line=show_line,
        short=shorten,
        urlencode=show_address,
        place=show_path,
        figure=show_figure,
    )
    return made


def show_plain(text: object) -> Markup:
    """Return a text of several lines, with marks for characters that hide or reorder others."""
    said = str(text).replace("\r\n", "\n")
    found = {char for char in hidden(said) if char != "\n"}
    escaped = str(escape(said))
    for char in found:
        escaped = escaped.replace(char, _name_char(char))
    return Markup(escaped.replace("\r", _name_char("\r")))


def show_line(text: object) -> Markup:
    """Return a text on one line, with marks for invisible characters."""
    return show_plain(one_line(str(text)) if "\n" in str(text) else str(text))


def _name_char(char: str) -> str:
    return f'<span class="odd" title="a character that is not visible">U+{ord(char):04X}</span>'


def show_address(text: object) -> str:
    """Return a text as part of a URL; invalid bytes are replaced."""
    return quote(str(text), safe="/", errors="replace")


def show_age(then: float) -> str:
    """Return the age of a time, such as "5 min ago"."""
    return ago(then, time.time())


def show_clock(then: float) -> str:
    """Return a time for the `datetime` attribute."""
    try:
        return datetime.fromtimestamp(then, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return ""


def show_path(path: object, home: str) -> Markup:
    """Return a path on one line; the home of the user is `~`."""
    text, inside = str(path), home.rstrip("/") + "/"
    return show_line(f"~/{text.removeprefix(inside)}" if text.startswith(inside) else text)


def show_figure(number: int) -> str:
    """Return a number with separators."""
    return f"{number:,}"


def show_size(size: float) -> str:
    """Return a number of bytes as people read it."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError


def show_duration(milliseconds: float) -> str:
    """Return a duration as people read it."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    return describe_seconds(milliseconds / 1000)


def show_count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    shown = show_figure(number)
    return f"{shown} {noun}" if number == 1 else f"{shown} {noun}s"


def slug(text: str) -> str:
    """Return a text as an id of an element."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
