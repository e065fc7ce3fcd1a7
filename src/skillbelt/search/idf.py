"""Rarity of words among skills (inverse document frequency).

The figures were counted once over a large collection and ship with the product: a catalogue of
three skills ranks as well as one of thirty thousand, a skill has the same weight in every
catalogue, and the order of results reveals nothing about hidden skills.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from skillbelt.records import NamedTuple

STEP = 20.0  # the file holds natural logarithms in twentieths
UNSEEN = 9.0  # of a word that occurred less than a dozen times in the collection
UNSEEN_DESCRIBED = 10.9
_BYTES = 6  # of each word: its number, and how rare it is in a text and in a description


class Rarity(NamedTuple):
    """By a word's number: how rare it is in whole skills, and in descriptions."""

    anywhere: Mapping[int, float]
    described: Mapping[int, float]


@cache
def rarity() -> Rarity:
    """Return the figures that ship with the package."""
    data = files("skillbelt.search").joinpath("rarity.bin").read_bytes()
    count = len(data) // _BYTES
    numbers = array("I", data[: 4 * count])
    if sys.byteorder == "big":
        numbers.byteswap()
    scale = [step / STEP for step in range(256)]
    anywhere = map(scale.__getitem__, data[4 * count : 5 * count])
    described = map(scale.__getitem__, data[5 * count :])
    return Rarity(
        dict(zip(numbers, anywhere, strict=True)), dict(zip(numbers, described, strict=True))
    )
