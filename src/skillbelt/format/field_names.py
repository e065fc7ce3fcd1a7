"""Frontmatter fields by name: which the format has, which clients add, which are misspelled."""

from __future__ import annotations

import re
from collections.abc import Container

SPECIFIED = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
# What clients add and this runtime understands; the specification knows none of them.
EXTENSIONS = (
    "when_to_use",
    "argument-hint",
    "arguments",
    "disable-model-invocation",
    "user-invocable",
    "disallowed-tools",
    "model",
    "effort",
    "context",
    "agent",
    "background",
    "hooks",
    "paths",
    "shell",
    "version",
)
KNOWN = (*SPECIFIED, *EXTENSIONS)
_VARIANTS = {"user-invokable": "user-invocable", "licence": "license"}
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_LEAST_CHARS = 4  # shorter words are close to too many others
_LIKENESS = 0.85


def _plain(key: str) -> str:
    """The key without the ways in which spelling varies: humps, case, `_` and blanks."""
    return re.sub(r"[\s_-]+", "-", _HUMP.sub("-", key.strip())).lower()


_BY_PLAIN = {_plain(key): key for key in KNOWN} | _VARIANTS


def respelled(key: str, present: Container[str]) -> str:
    """The known field that the key spells in another way; empty when none, or it stands there."""
    known = _BY_PLAIN.get(_plain(key), "")
    return known if known != key and known not in present else ""


def resembled(key: str, present: Container[str]) -> str:
    """The known field the key is a likely slip of; empty when none, or it stands there."""
    from difflib import get_close_matches

    plain = _plain(key)
    near = get_close_matches(plain, _BY_PLAIN, n=1, cutoff=_LIKENESS)
    if not near or len(plain) < _LEAST_CHARS or abs(len(plain) - len(near[0])) > 2:
        return ""
    known = _BY_PLAIN[near[0]]
    return known if known != key and known not in present else ""
