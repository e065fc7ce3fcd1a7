"""Print capabilities: one on a line, with its kind, where it comes from, and its place."""

from __future__ import annotations

from collections.abc import Iterable

from skillbelt.cli.words import print_words
from skillbelt.scan.report import list_capabilities
from skillbelt.scan.values import Capability
from skillbelt.text import one_line

_KIND, _ORIGIN = 12, 10


def print_capabilities(capabilities: Iterable[Capability], mark: str = "") -> None:
    """Print capabilities, each behind the mark."""
    margin = " " * (len(mark) + _KIND + _ORIGIN + 2)
    for one in list_capabilities(capabilities):
        start = f"{mark}{one.kind:<{_KIND}} {one.origin:<{_ORIGIN}}"
        print_words(f"{start}{one_line(one.value)}{_place(one)}", margin)


def _place(one: Capability) -> str:
    if one.outcome:
        return f" ({one.origin}: {one.outcome})"
    place = f"{one.path}:{one.line}" if one.line else one.path
    return f" ({one_line(place)})" if place else ""
