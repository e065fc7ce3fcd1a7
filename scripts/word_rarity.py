"""Counts how telling words are over folders of skills, for src/skillbelt/search/rarity.bin.

Run once over a large collection that no measure of search is taken on: `word_rarity.py FOLDER...
-o FILE`. Only numbers are written: of each word its number and two bytes.
"""

from __future__ import annotations

import argparse
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from math import log
from pathlib import Path

from skillbelt.format.skill import Skill
from skillbelt.search.document import DESCRIBED, Document, document
from skillbelt.search.idf import STEP
from skillbelt.search.text import parts_of

LEAST = 12  # skills that must have a word before it is worth its bytes


def documents(folders: Iterable[str]) -> Iterator[Document]:
    """Every skill below the folders, as it is indexed."""
    for folder in folders:
        for path in sorted(Path(folder).rglob("SKILL.md")):
            yield document(parts_of(Skill.from_file(path)))


def rarities(made: Iterable[Document], least: int = LEAST) -> bytes:
    """The numbers of the words that enough skills have, then how rare each is, in two bytes."""
    anywhere: Counter[int] = Counter()
    described: Counter[int] = Counter()
    total = 0
    for one in made:
        total += 1
        anywhere.update(one.terms)
        pairs = zip(one.terms, one.codes, strict=True)
        described.update(term for term, code in pairs if code >> DESCRIBED & 3)
    kept = sorted(term for term, count in anywhere.items() if count >= least)
    numbers = array("I", kept)
    if sys.byteorder == "big":
        numbers.byteswap()
    counts = [*(anywhere[term] for term in kept), *(described[term] for term in kept)]
    return numbers.tobytes() + bytes(_step(count, total) for count in counts)


def _step(count: int, total: int) -> int:
    """Return the rarity of a word that `count` of the skills have, on a logarithmic scale."""
    return min(255, max(1, round(STEP * log(1 + (total - count + 0.5) / (count + 0.5)))))


def main() -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("-o", "--output", required=True, metavar="FILE")
    args = parser.parse_args()
    Path(args.output).write_bytes(rarities(documents(args.folders)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
