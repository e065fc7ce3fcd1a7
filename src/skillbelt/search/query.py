"""A parsed search request: each word once, weighted by how rare it is."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise
from math import sqrt

from skillbelt.records import NamedTuple
from skillbelt.search.idf import UNSEEN, UNSEEN_DESCRIBED, rarity
from skillbelt.search.words import ids, numbers, runs

# Ten pages; the rest of a longer request is ignored.
MAX_QUERY_CHARS = 40_000
# Different words of a request; the rest is ignored.
MAX_QUERY_WORDS = 1_000

_FENCED = re.compile(r"(?:```|~~~).*?(?:```|~~~|\Z)", re.DOTALL)
# A file name's ending; method calls and host names do not count.
_KIND = re.compile(r"(?<!\.)\.([A-Za-z][A-Za-z0-9]{1,4})(?![A-Za-z0-9_(]|\.\w)")
_NO_KINDS = frozenset(("ai", "com", "dev", "io", "net", "org"))
# Endings of source code and plain text, which most requests name and few skills are about.
_PLAIN_KINDS = frozenset(
    (
        "bash", "c", "cfg", "cpp", "cs", "css", "csv", "env", "go", "h", "htm", "html", "ini",
        "java", "js", "json", "jsonl", "jsx", "lock", "log", "md", "mdx", "out", "php", "ps1",
        "py", "rb", "rs", "rst", "sh", "sql", "toml", "ts", "tsv", "tsx", "txt", "xml", "yaml",
        "yml",
    )
)  # fmt: skip
# Matches names that are ruled out: "why is it not pdf-merge", "without the docx skill".
_EXCLUDING = re.compile(
    r"(?:\bnot\b(?!\s+(?:only|just)\b)|n['’]t\b|\bwithout\b|\binstead\s+of\b|\brather\s+than\b)"
    r"(?:\s+(?:an?|any|need|the|use|using|want|you))*"
    r"((?:\s+[\w.+-]{1,64}){1,3})",
    re.IGNORECASE,
)
# The same with the name before the "not": "why is pdf-merge not used here".
_WHY_NOT = re.compile(
    r"\bwhy\s+(?:did|does|is|was)\s+(?:the\s+)?([\w.+-]{1,64})\s+"
    r"(?:skill\s+not|not\s+(?:being\s+)?(?:called|chosen|invoked|loaded|selected|triggered|used?))\b",
    re.IGNORECASE,
)
_MOST_EXCLUDED = 16
_FENCED_SHARE = 0.5  # code blocks mostly show the form of the answer
# Common words add nothing to a long request, and cost most of the time.
_COMMON = 0.5
_FEW_WORDS = 12
_MOST_SOUGHT = 64  # words that choose the candidates, the rarest
_BRIEF = 15.0  # words; a longer request has something of every long description
_EARLY = 20.0  # words after which one counts half: a request begins with what it is about


class Word(NamedTuple):
    """The rarity of a word of a request, its weight, that in a description and as a beginning.

    `early` is a share of all words' weights, of which the first ones have most.
    """

    rarity: float
    weight: float
    described: float
    early: float = 0.0


class Query(NamedTuple):
    """The words of a request by their numbers, in order, and sums over them."""

    text: str
    words: dict[int, Word]
    spelt: dict[int, str]
    total: float
    by_number: tuple[int, ...]  # the words in the order of their numbers
    pairs: frozenset[tuple[int, int]] = frozenset()  # words that follow each other
    kinds: frozenset[int] = frozenset()  # of the documents that the request names
    excluded: frozenset[frozenset[int]] = frozenset()  # the words of each name that it rules out

    def sought(self) -> list[int]:
        """Return the words that select candidates: kinds of files, then the rarest."""
        words, kinds = self.words, self.kinds
        return sorted(words, key=lambda term: (term not in kinds, -words[term].rarity))[
            :_MOST_SOUGHT
        ]

    @property
    def scale(self) -> float:
        """Return the norm for sums over the words."""
        return self.total / sqrt(max(len(self.words), 1)) + 1e-9

    @property
    def brevity(self) -> float:
        """Return 1 for a request of a sentence, less the longer it is."""
        return min((_BRIEF / max(len(self.words), 1)) ** 2, 1.0)


def query(text: str) -> Query:
    """Parse a request; never fails, and uses no more of it than the bounds allow."""
    text = text[:MAX_QUERY_CHARS]
    kept = _EXCLUDING.sub(_drop_name, _WHY_NOT.sub(" not ", text))
    spelt, order = _spelt(kept, MAX_QUERY_WORDS)
    if not spelt:
        spelt, order = _spelt(text, MAX_QUERY_WORDS)
    prose = set(ids(_FENCED.sub(" ", text))) if "```" in text or "~~~" in text else spelt.keys()
    found = _weighed(order, prose)
    if len(found) > _FEW_WORDS:
        found = {term: word for term, word in found.items() if word.rarity >= _COMMON} or found
    begun = sum(word.early for word in found.values()) + 1e-9
    found = {term: word._replace(early=word.early / begun) for term, word in found.items()}
    return Query(
        text=text,
        words=found,
        spelt=spelt,
        total=sum(word.weight for word in found.values()),
        by_number=tuple(sorted(found)),
        pairs=frozenset(pairwise(filter(found.__contains__, order))),
        kinds=_kinds(text),
        excluded=_excluded(text),
    )


def _weighed(order: Sequence[int], prose: Collection[int]) -> dict[int, Word]:
    """Return each word of a request by its number, in order."""
    known = rarity()
    found: dict[int, Word] = {}
    for place, term in enumerate(order):
        if term in found:
            continue
        share = 1.0 if term in prose else _FENCED_SHARE
        rare = known.anywhere.get(term, UNSEEN)
        told = known.described.get(term, UNSEEN_DESCRIBED)
        early = rare * share / (1.0 + place / _EARLY)
        found[term] = Word(rare, rare * share, told * share, early)
    return found


def _kinds(text: str) -> frozenset[int]:
    """Return the kinds of documents that a text names: `.xlsx` in `out/sales.xlsx`."""
    kinds = {kind.lower() for kind in _KIND.findall(text)} - _NO_KINDS - _PLAIN_KINDS
    return frozenset(ids(" ".join(kinds)))


def _drop_name(match: re.Match[str]) -> str:
    """Return the text after a "not" without its first word, which counts for no skill."""
    return match[0].replace(match[1].split()[0], " ", 1)


def _excluded(text: str) -> frozenset[frozenset[int]]:
    """Return the words of every name that may stand behind a "not"."""
    found: set[frozenset[int]] = set()
    for match, _ in zip(_EXCLUDING.finditer(text), range(_MOST_EXCLUDED), strict=False):
        words = match[1].split()
        ends = range(1, len(words) + 1)
        found.update(frozenset(ids(" ".join(words[:end]))) for end in ends)
    found.update(frozenset(ids(name)) for name in _WHY_NOT.findall(text)[:_MOST_EXCLUDED])
    return frozenset(found)


def _spelt(text: str, most: int) -> tuple[dict[int, str], list[int]]:
    """Return the first spelling of each word of a text, and the words in order."""
    found: dict[int, str] = {}
    order: list[int] = []
    for run in runs(text):
        terms = numbers(run)
        order += terms
        for term in terms:
            found.setdefault(term, run)
        if len(found) >= most:
            break
    return found, order
