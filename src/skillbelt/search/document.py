"""The indexed form of a skill: which words it has, where, and how often.

A word's place and count go into one byte: how often in the text (four bits, coarser the more
often), how often in the description (two), whether in the name and in a heading (one each).
"""

from __future__ import annotations

import re
from array import array
from collections import Counter

from skillbelt.records import NamedTuple
from skillbelt.search.words import ids

DESCRIBED, NAMED, HEADED = 4, 6, 7  # bit offsets of the other fields; the text's count is at 0
TEXT = 0x0F
# The four bits hold a level; this is the lowest count of each level.
LEVELS = (0, 1, 2, 3, 4, 5, 6, 7, 9, 13, 17, 25, 33, 49, 65, 129)
_MOST_COUNTED = 255
_LEVEL_OF = bytes(max(n for n, least in enumerate(LEVELS) if least <= tf) for tf in range(256))
_MOST_DESCRIBED = 3
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.*)$", re.MULTILINE)
# Quantifiers are possessive so that a hostile text costs time in proportion to its length.
_FENCED = re.compile(
    r"^ {0,3}(`{3,}+|~{3,}+)[^\n]*+\n.*?(?:^ {0,3}\1|\Z)", re.MULTILINE | re.DOTALL
)
_TAGS = re.compile(
    r"^[ \t]*(?:tags|keywords|triggers|aliases|category)[ \t]*:(.*(?:\n[ \t]+.*|\n- .*)*)",
    re.MULTILINE | re.IGNORECASE,
)


class Parts(NamedTuple):
    """The texts of a skill by part. `files`: file names and descriptions in scripts."""

    name: str
    description: str
    head: str
    body: str
    files: str = ""


class Document(NamedTuple):
    """The words of a skill, sorted by number, a byte for each, and the lengths of its texts."""

    terms: array[int]
    codes: bytes
    described: int
    length: int


def document(parts: Parts) -> Document:
    """Return the indexed form of a skill."""
    tags = " ".join(_TAGS.findall(parts.head))
    described = ids(f"{parts.description}\n{tags}")
    text = ids(f"{parts.body}\n{parts.files}")
    codes = {term: _LEVEL_OF[min(n, _MOST_COUNTED)] for term, n in Counter(text).items()}
    for term, n in Counter(described).items():
        codes[term] = codes.get(term, 0) | min(n, _MOST_DESCRIBED) << DESCRIBED
    for term in ids(parts.name):
        codes[term] = codes.get(term, 0) | 1 << NAMED
    for term in ids(" ".join(headings(parts.body))):
        codes[term] = codes.get(term, 0) | 1 << HEADED
    terms = sorted(codes)
    return Document(
        array("I", terms), bytes(map(codes.__getitem__, terms)), len(described), len(text)
    )


def headings(body: str) -> list[str]:
    """Return the headings of a text, approximately; fenced blocks are left out."""
    return _HEADING.findall(_FENCED.sub("", body) if "```" in body or "~~~" in body else body)
