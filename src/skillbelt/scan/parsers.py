"""Parse shell and JavaScript with the extra `scan`, if it is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

EXTRA = "tree_sitter"
WITHOUT = "shell and JavaScript were read by words alone: install skillbelt[scan] for a real parser"


def has_parsers() -> bool:
    """Whether the extra is installed."""
    return find_spec(EXTRA) is not None


def parse_or_none(text: bytes, language: str) -> Node | None:
    """Return the root of the syntax tree; None without the extra."""
    if not has_parsers():
        return None
    from skillbelt.scan.grammars import parse_tree  # extra: scan

    return parse_tree(text, language)
