"""Texts that a regular expression takes longest over: made from its own parts, repeated."""

from __future__ import annotations

import importlib
import random
import re
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

_PARSER: Any = importlib.import_module("re._parser")
_FLAGS = re.IGNORECASE | re.DOTALL | re.MULTILINE | re.VERBOSE
# What stands for each class of characters; the names are those of the parser.
_OF_A_CLASS = {
    "CATEGORY_DIGIT": "0",
    "CATEGORY_SPACE": " ",
    "CATEGORY_WORD": "a",
    "CATEGORY_NOT_DIGIT": "a",
    "CATEGORY_NOT_SPACE": "a",
    "CATEGORY_NOT_WORD": " ",
}
_OTHERS = " a0_.-/\n\t\"'<>=:;,()[]{}|$&@#*`~\\!?+%é"
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_MAX_UNIT, _SAMPLES, _CUTS, _PUMPS = 1_200, 6, 4, 4
# Repeats of more than this are tried with a text as long as there is.
_LONG_REPEAT = 100


class WorstText(NamedTuple):
    """A beginning, and what is repeated after it."""

    begin: str
    unit: str

    def write(self, length: int) -> str:
        """Return a text of that length."""
        return (self.begin + self.unit * (length // len(self.unit) + 1))[:length]


class _Sample:
    """A text that a parsed pattern matches, about: assertions are passed over.

    With a `filler`, it stands for any character of which the pattern does not care.
    """

    def __init__(self, chance: random.Random, most: int, filler: str = "") -> None:
        self._chance, self._most, self._filler = chance, most, filler
        self.text = ""
        self.cuts: list[int] = []  # where one part of the pattern ends
        self.pumps: list[WorstText] = []  # what can be repeated without end
        self._groups: dict[int, str] = {}

    def write(self, parts: Any) -> None:
        """Add a text for each part."""
        for name, value in parts:
            self._write_one(str(name), value)
            self.cuts.append(len(self.text))

    def _write_one(self, name: str, value: Any) -> None:
        start = len(self.text)
        if name == "LITERAL":
            self.text += chr(value)
        elif name == "NOT_LITERAL":
            other = self._filler or "a"
            self.text += other if value != ord(other) else "b"
        elif name == "ANY":
            self.text += self._filler or self._chance.choice("a ")
        elif name == "IN":
            self.text += self._choose_character([(str(kind), one) for kind, one in value])
        elif name == "BRANCH":
            self.write(self._chance.choice(value[1]))
        elif name == "SUBPATTERN":
            self.write(value[3])
            self._groups[value[0]] = self.text[start:]
        elif name == "ATOMIC_GROUP":
            self.write(value)
        elif name == "GROUPREF":
            self.text += self._groups.get(value, "")
        elif name in _REPEATS:
            self._repeat(*value)

    def _repeat(self, least: int, most: int, body: Any) -> None:
        if most > _LONG_REPEAT:
            once = _Sample(self._chance, 1, self._filler)
            once.write(body)
            if once.text:
                self.pumps.append(WorstText(self.text[-_MAX_UNIT:], once.text))
        wanted = self._chance.choice((least, least + 1, self._most))
        if self._filler and _is_filled(body, self._filler):  # or two words would become one
            wanted = max(wanted, 1)
        for _ in range(max(least, min(int(most), wanted))):
            self.write(body)

    def _choose_character(self, items: list[tuple[str, Any]]) -> str:
        named = [one for one in items if one[0] != "NEGATE"]
        if len(named) < len(items):
            left = [one for one in _OTHERS if not any(_holds(item, one) for item in named)]
            if self._filler in left:
                return self._filler
            return self._chance.choice(left or ["\u4e00"])
        kind, value = self._chance.choice(named)
        if kind == "CATEGORY":
            return _OF_A_CLASS[str(value)]
        return chr(value if kind == "LITERAL" else value[self._chance.randint(0, 1)])


def _is_filled(body: Any, filler: str) -> bool:
    """Whether a part of a pattern is one character that may be the filler."""
    name, value = str(body[0][0]), body[0][1]
    if len(body) > 1 or name not in ("ANY", "LITERAL", "NOT_LITERAL", "IN"):
        return False
    if name == "IN":
        kinds = [(str(kind), one) for kind, one in value]
        held = any(_holds(one, filler) for one in kinds if one[0] != "NEGATE")
        return held != ("NEGATE" in dict(kinds))
    return name == "ANY" or (value == ord(filler)) == (name == "LITERAL")


def _holds(item: tuple[str, Any], one: str) -> bool:
    """Whether a part of a class has the character."""
    kind, value = item
    if kind == "LITERAL":
        return bool(ord(one) == value)
    if kind == "RANGE":
        return bool(value[0] <= ord(one) <= value[1])
    form = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[str(value).rpartition("_")[2]]
    return bool(re.match(form, one)) != ("_NOT_" in str(value))


def matching_texts(form: re.Pattern[str], count: int) -> Iterator[str]:
    """Yield texts that match a pattern, of words with blanks between them."""
    parsed = _parse(form.pattern, form.flags)
    chance = random.Random(form.pattern)
    for number in range(count):
        sample = _Sample(chance, number % 4, " ")
        sample.write(parsed)
        if form.search(sample.text):
            yield sample.text


def _parse(source: str, flags: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _PARSER.parse(source, flags & _FLAGS)


def worst_texts(form: re.Pattern[Any]) -> Iterator[WorstText]:
    """Yield texts that match a pattern again and again, in part or as a whole."""
    source = form.pattern.decode("latin-1") if isinstance(form.pattern, bytes) else form.pattern
    parsed = _parse(source, form.flags)
    chance = random.Random(source.encode("utf-8", "surrogatepass"))
    for number in range(_SAMPLES):
        sample = _Sample(chance, (1, 3, 40)[number % 3])
        sample.write(parsed)
        cuts = sorted(set(sample.cuts) - {0})
        for cut in (len(sample.text), *chance.sample(cuts, min(len(cuts), _CUTS))):
            if unit := sample.text[:cut][:_MAX_UNIT]:
                yield WorstText("", unit)
        yield from chance.sample(sample.pumps, min(len(sample.pumps), _PUMPS))
