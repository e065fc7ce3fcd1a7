"""Parse shell and JavaScript with the extra `scan`, if it is installed."""

from __future__ import annotations

import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

    from skillbelt.scan.ledger import Ledger

EXTRA = "tree_sitter"
WITHOUT = "shell and JavaScript were read by words alone: install skillbelt[scan] for a real parser"


def has_parsers() -> bool:
    """Whether the extra is installed."""
    return find_spec(EXTRA) is not None


def parse_or_none(text: bytes, language: str, line: int, ledger: Ledger) -> Node | None:
    """Return the root of the syntax tree; None without the extra, and if it takes too long.

    What takes too long is a finding.
    """
    if not has_parsers():
        return None
    from skillbelt.scan.grammars import parse_tree  # extra: scan

    root, start = None, time.monotonic()
    if ledger.parse_seconds > 0:
        root = parse_tree(text, language)
        ledger.parse_seconds -= time.monotonic() - start
    if root is None:
        ledger.is_late = True
        ledger.find("unseen-part", line, "a parser takes too long for it")
    return root
