"""Write diagnostics as commands of a GitHub workflow, which shows them beside the lines."""

from __future__ import annotations

from skillbelt.text import one_line
from skillbelt.values import Diagnostic

_LEVELS = {"error": "error", "warning": "warning", "info": "notice"}


def annotation(found: Diagnostic, path: str) -> str:
    """Return one command, in which no text of a skill can end the command or begin another."""
    place = f"file={_escape_property(path)},line={found.line or 1}"
    text = f"{found.message}. To fix: {found.remedy}" if found.remedy else found.message
    title = _escape_property(f"skillbelt {found.code}")
    return f"::{_LEVELS[found.severity]} {place},title={title}::{_escape(text)}"


def _escape(text: str) -> str:
    return one_line(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
