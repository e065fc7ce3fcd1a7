"""Split text of any script into words that can be compared.

Words of Latin script are stemmed as English; `DataFrame` is found by its parts too. Scripts
written without blanks are cut into overlapping pairs, which finds every word of two characters and
more without a dictionary.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from itertools import pairwise
from zlib import crc32

from skillbelt.search.stem import stem

_RUN = re.compile(r"[^\W_]+")
_PART = re.compile(r"[A-Z]{2,}s?(?![a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
# Scripts without blanks between words: Thai to Khmer, kana, Han, Hangul.
_PACKED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\uac00-\ud7af\U00020000-\U0003ffff"
)
_SCRIPTS = re.compile(rf"[{_PACKED}]+|[^{_PACKED}]+")
_IS_PACKED = re.compile(rf"[{_PACKED}]")
_SIGNS = {"c++": " cpp ", "c#": " csharp ", "f#": " fsharp "}
_HAS_SIGN = re.compile(r"\b(?:c\+\+|[cf]#)", re.IGNORECASE)
_LONGEST_CHARS = 40  # of one word; longer ones are hashes, keys or encoded pictures
_LONGEST_NUMBER = 4
NUMBERS = 1 << 24
_MOST_KNOWN = 150_000  # words whose analysis is kept


def words(text: str) -> list[str]:
    """Return the words of a text in order, each as its stem."""
    found: list[str] = []
    known = _known
    for run in _RUN.findall(_spelt(text)):
        found += known[run]
    return found


def ids(text: str) -> list[int]:
    """Return the words as numbers that are the same on every machine, for indexes."""
    found: list[int] = []
    known = _numbered
    for run in _RUN.findall(_spelt(text)):
        found += known[run]
    return found


def runs(text: str) -> list[str]:
    """Return the words of a text as they are spelt in it."""
    return _RUN.findall(_spelt(text))


def numbers(run: str) -> tuple[int, ...]:
    """Return the words in one of the `runs` of a text as numbers."""
    return _numbered[run]


def number(word: str) -> int:
    """Return the number of a stem; rarely two stems share one."""
    return crc32(word.encode("utf-8", "surrogatepass")) & NUMBERS - 1


def _spelt(text: str) -> str:
    if "+" not in text and "#" not in text:
        return text
    if not _HAS_SIGN.search(text):
        return text
    return _HAS_SIGN.sub(lambda found: _SIGNS[found[0].lower()], text)


class _Known(dict[str, tuple[str, ...]]):
    """Return the words in a run of letters and digits; cached."""

    def __missing__(self, run: str) -> tuple[str, ...]:
        made = tuple(_analyse(run))
        if len(run) <= _LONGEST_CHARS:
            if len(self) >= _MOST_KNOWN:
                self.clear()
            self[run] = made
        return made


class _Numbered(dict[str, tuple[int, ...]]):
    def __missing__(self, run: str) -> tuple[int, ...]:
        made = tuple(map(number, _analyse(run)))
        if len(run) <= _LONGEST_CHARS:
            if len(self) >= _MOST_KNOWN:
                self.clear()
            self[run] = made
        return made


_known = _Known()
_numbered = _Numbered()


def forget() -> None:
    """Clear the cache."""
    _known.clear()
    _numbered.clear()


def _analyse(run: str) -> Iterable[str]:
    if run.isascii():
        return _latin(run)
    found: list[str] = []
    for piece in _SCRIPTS.findall(unicodedata.normalize("NFKC", run)):
        if _IS_PACKED.match(piece):
            found += [piece] if len(piece) == 1 else map("".join, pairwise(piece))
        else:
            found += _latin(_plain(piece))
    return found


def _plain(word: str) -> str:
    """Remove accents, which many writers leave out."""
    return "".join(c for c in unicodedata.normalize("NFKD", word) if not unicodedata.combining(c))


def _latin(run: str) -> Iterable[str]:
    if len(run) > _LONGEST_CHARS:
        return
    if run.isdigit():
        if len(run) <= _LONGEST_NUMBER:
            yield run
        return
    word = run.casefold()
    yield stem(word) if word.isascii() and word.isalpha() else word
    if run == word and run.isalpha():
        return
    parts = _PART.findall(run) if run.isascii() else []
    if len(parts) > 1:
        yield from (stem(part.lower()) for part in parts if len(part) > 2 and part.isalpha())
