"""Stem English words by Porter's rules, so that `parsing` finds `parser`.

Stems are only compared with each other; a stem need not be a word.
"""

from __future__ import annotations

import re

_LEAST_CHARS = 4  # a shorter word is not stemmed, except a plural
_LONGEST_CHARS = 24  # longer words are not inflected
# Porter's measure counts vowels followed by consonants: an ending goes only if enough is left.
_MEASURE = re.compile(r"[aeiouy]+[^aeiouy]+")
_VOWEL = re.compile(r"[aeiouy]")
_DOUBLE = re.compile(r"([^aeioulsz])\1$")
_SHORT = re.compile(r"^[^aeiou]*[aeiouy][^aeiouwxy]$")
# The longest ending that fits is replaced when what is left has at least the measure.
_LONG = (
    ("ization", "ize"), ("ational", "ate"), ("fulness", "ful"), ("ousness", "ous"),
    ("iveness", "ive"), ("tional", "tion"), ("biliti", "ble"), ("entli", "ent"),
    ("ousli", "ous"), ("alism", "al"), ("aliti", "al"), ("iviti", "ive"), ("ation", "ate"),
    ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("ator", "ate"), ("alli", "al"),
    ("bli", "ble"), ("logi", "log"), ("eli", "e"),
)  # fmt: skip
_MIDDLE = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"),
    ("ness", ""), ("ful", ""),
)  # fmt: skip
_LAST = (
    "ement", "ance", "ence", "able", "ible", "ment", "ant", "ent", "ism", "ate", "iti", "ous",
    "ive", "ize", "ion", "al", "er", "ic", "ou",
)  # fmt: skip


def stem(word: str) -> str:
    """Return the stem of a lower-case ASCII word."""
    if not _LEAST_CHARS <= len(word) <= _LONGEST_CHARS:
        return word[:-1] if len(word) == 3 and word[-1] == "s" and word[-2] not in "sui" else word
    word = _without_tense(_without_plural(word))
    if word[-1] == "y" and _VOWEL.search(word, 0, len(word) - 1):
        word = word[:-1] + "i"
    word = _replaced(_replaced(word, _LONG), _MIDDLE)
    return _without_e(_without_last(word))


def _measure(word: str) -> int:
    return len(_MEASURE.findall(word))


def _without_plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word[-1] == "s" and word[-2] not in "su" else word


def _without_tense(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for ending in ("ed", "ing"):
        left = word[: -len(ending)]
        if word.endswith(ending) and _VOWEL.search(left):
            return _mended(left)
    return word


def _mended(left: str) -> str:
    if left.endswith(("at", "bl", "iz")) or (_measure(left) == 1 and _SHORT.match(left)):
        return left + "e"
    return left[:-1] if _DOUBLE.search(left) else left


def _replaced(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    for ending, other in rules:
        if word.endswith(ending):
            left = word[: -len(ending)]
            return left + other if _measure(left) > 0 else word
    return word


def _without_last(word: str) -> str:
    for ending in _LAST:
        if word.endswith(ending):
            left = word[: -len(ending)]
            fits = _measure(left) > 1 and (ending != "ion" or left.endswith(("s", "t")))
            return left if fits else word
    return word


def _without_e(word: str) -> str:
    if word[-1] == "e":
        left = word[:-1]
        if _measure(left) > 1 or (_measure(left) == 1 and not _SHORT.match(left)):
            word = left
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word
