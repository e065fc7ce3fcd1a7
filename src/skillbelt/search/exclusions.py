"""Find what a skill says that it is not for: "Do NOT use for invoices"."""

from __future__ import annotations

import re
from functools import lru_cache

from skillbelt.search.words import ids

_EXCLUSION = re.compile(
    r"(?:\b(?:do\s+not|don['’]t|never|not)\b(?!\s+(?:just|only)\b)[^.;\n]{0,40}?"
    r"\b(?:for|if|on|to|when)\b|\binstead\s+of\b|\bskip\b[^.;\n]{0,10}\b(?:for|if|when)\b"
    r"|\bexclud\w+|\bout\s+of\s+scope\b)[^.;\n]*",
    re.IGNORECASE,
)


@lru_cache(maxsize=1024)
def excluded_words(name: str, description: str) -> frozenset[int]:
    """Return the words that the description has only where it says what the skill is not for."""
    excluded = _EXCLUSION.findall(description)
    if not excluded:
        return frozenset()
    told = ids(f"{name}\n{_EXCLUSION.sub(' ', description)}")
    return frozenset(ids("\n".join(excluded))).difference(told)
