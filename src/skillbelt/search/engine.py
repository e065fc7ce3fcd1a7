"""Search: find candidates among the visible skills, rank them, fold near copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest

from skillbelt.format.skill import Skill, Skills
from skillbelt.records import NamedTuple
from skillbelt.search.confidence import Certainty, any_fits, confidence, strength_of
from skillbelt.search.exclusions import excluded_words
from skillbelt.search.indexer import WHOLE, Groups, Kept, Progress, Upkeep
from skillbelt.search.lexical import UNRELATED, compare, is_excluded
from skillbelt.search.near_copies import fold
from skillbelt.search.phrases import raise_phrases
from skillbelt.search.protocol import Ranked, Ranker, Result
from skillbelt.search.query import Query, query
from skillbelt.search.related import relate
from skillbelt.search.snippet import Reason, snippet
from skillbelt.search.store import MOST_POSTINGS, IndexedFolder
from skillbelt.search.text import split, text_of
from skillbelt.search.trees import refine
from skillbelt.settings import Settings

# More than a person or a model reads.
MAX_SEARCH_RESULTS = 1_000

_CANDIDATES = 80
_READ_POSTINGS = 16_000  # in all for one request, shared by its words
_LEAST_DEPTH = 128  # of one word's postings
_SAMPLE = 16  # every so many totals one is sampled to estimate a lower bound
_SHARPNESS = 1.3  # how much rare words dominate the choice of candidates
_KIND = 2.0  # factor for a word that is a kind of file in the request
_RIVALS = 4  # best results that the confidence of each is compared with
_FOLDED = 3  # candidates compared for near copies, per wanted result
_MOST_NEW = 2_048  # latest documents without postings that are scored one by one


class _VisibleFolder(NamedTuple):
    """One folder for one view: how it is searched, and which of its documents are visible."""

    root: IndexedFolder
    whole: bool
    ids: Sequence[int]  # all, or those without postings
    allowed: bytes = b""  # a byte for each place in the postings, empty when all are visible


class _VisibleSkills(NamedTuple):
    """The visible skills, by the ids of their documents."""

    by_id: Mapping[int, Skill]
    shelves: Sequence[_VisibleFolder]


class _Found(NamedTuple):
    """A skill that was found, and the features of its confidence."""

    best: Ranked
    copies: Sequence[Ranked]
    reason: Reason
    figures: Certainty
    ruled_out: bool


class Searcher:
    """Finds skills by their whole text. Thread-safe.

    `rankers` score the best candidates again. The index is built in the background; a search waits
    for it unless it is called not to.
    """

    def __init__(
        self, settings: Settings, rankers: Iterable[Ranker] = (), progress: Progress | None = None
    ) -> None:
        self.rankers = tuple(rankers)
        self._settings = settings
        self._upkeep = Upkeep(settings, progress)

    def close(self) -> None:
        """Stop the build in the background and close the file."""
        self._upkeep.close()

    def sync(self, groups: Groups, wait_seconds: float | None = None) -> bool:
        """Update the index to the skills of each folder; return whether it is up to date."""
        return self._upkeep.sync(groups, wait_seconds)

    def search(self, text: str, skills: Mapping[str, Skill], limit: int = 10) -> list[Result]:
        """Return the best of these skills for the text, best first; others have no effect."""
        limit = min(max(limit, 0), MAX_SEARCH_RESULTS)
        asked, found = query(text), list[Result]()
        for one in self._find(asked, skills, limit):
            sure = confidence(one.figures, ruled_out=one.ruled_out)
            fits = any_fits(found[0].confidence if found else sure, len(asked.words))
            strength = strength_of(sure, one.figures) if fits else "noise"
            made = _result(one.reason, one.best, one.copies)
            found.append(made._replace(confidence=sure, strength=strength))
        return found

    def figures(
        self, text: str, skills: Mapping[str, Skill], limit: int
    ) -> list[tuple[Certainty, Skill]]:
        """Return the features of each result's confidence, to fit its coefficients."""
        found = self._find(query(text), skills, limit)
        return [(one.figures, one.best.skill) for one in found]

    def _find(self, asked: Query, skills: Mapping[str, Skill], limit: int) -> list[_Found]:
        if not asked.words or not limit:
            return []
        self._upkeep.follow()
        ranked = self._rank(asked, self._view(skills), limit)
        if self._upkeep.follow():  # the file was damaged or rebuilt meanwhile
            ranked = self._rank(asked, self._view(skills), limit)
        # Also the next ones: the confidence of the best result depends on them.
        most = max(limit, _RIVALS)
        groups = fold(ranked[: most * _FOLDED], most)
        ruled_out = bool(asked.excluded) and any(
            is_excluded(asked, one.candidate) for one in ranked
        )
        rivals = [_without_gain(group[0]) for group in groups[:_RIVALS]]
        found = []
        for place, (one, copies) in enumerate(groups[:limit]):
            reason = Reason(asked, one.candidate)
            found.append(
                _Found(
                    best=one,
                    copies=copies,
                    reason=reason,
                    figures=reason.figures(
                        _without_gain(one)
                        - max((*rivals[:place], *rivals[place + 1 :]), default=UNRELATED),
                        _excluded_words(one.skill),
                    ),
                    ruled_out=ruled_out,
                )
            )
        return found

    def _view(self, skills: Mapping[str, Skill]) -> _VisibleSkills:
        kept = self._upkeep.kept
        if not isinstance(skills, Skills):
            return _make_view(skills, kept)
        return skills.derive("search", lambda: _make_view(skills, kept), basis=kept)

    def candidates(self, text: str, skills: Mapping[str, Skill]) -> tuple[Query, list[Ranked]]:
        """Return a request and its candidates as the words rank them, to fit the trees."""
        asked = query(text)
        return asked, self._compare(asked, self._view(skills), 0) if asked.words else []

    def _rank(self, asked: Query, view: _VisibleSkills, limit: int) -> list[Ranked]:
        ranked = relate(asked, refine(asked, self._compare(asked, view, limit)))
        ranked = raise_phrases(asked, ranked)
        for ranker in self.rankers:
            ranked = _rerank(ranker, asked, ranked)
        return ranked

    def _compare(self, asked: Query, view: _VisibleSkills, limit: int) -> list[Ranked]:
        ids: list[int] = []
        for shelf in view.shelves:
            ids += shelf.ids
            if not shelf.whole:
                ids += self._choose(asked, shelf, max(_CANDIDATES, 2 * limit))
        found = self._upkeep.index.candidates(list(dict.fromkeys(ids)))
        by_id = view.by_id
        ranked: list[Ranked] = []
        for one in found:
            skill = by_id.get(one.id)
            if skill is not None:
                score, sums = compare(asked, one, skill.name)
                if score > 0.0:
                    ranked.append(Ranked(score, one, skill, sums=sums))
        ranked.sort(key=lambda one: (-one.score, one.skill.name))
        return ranked

    def _choose(self, asked: Query, shelf: _VisibleFolder, most: int) -> list[int]:
        """Return the documents that the postings rank best for the words of the request."""
        sought = asked.sought()
        depth = min(max(_READ_POSTINGS // len(sought), _LEAST_DEPTH), MOST_POSTINGS)
        docs = shelf.root.docs
        totals = [0.0] * len(docs)
        for term, places, impacts in self._upkeep.index.postings(shelf.root, sought):
            word = asked.words[term]
            weight = word.weight * word.rarity ** (_SHARPNESS - 1.0)
            if term in asked.kinds:
                weight *= _KIND
            for place, impact in zip(places[:depth], impacts, strict=False):
                totals[place] += weight * impact
        return [docs[place] for place in _highest(totals, shelf.allowed, most)]


def _without_gain(one: Ranked) -> float:
    """Return the score by the words alone.

    What the trees add grows with the distance to the other candidates. In a small catalogue a skill
    that fits badly is far ahead of those that do not fit at all.
    """
    return one.score - one.gained


def _excluded_words(skill: Skill) -> frozenset[int]:
    return excluded_words(
        f"{skill.name} {skill.title}", f"{skill.description}\n{skill.when_to_use}"
    )


def _result(reason: Reason, best: Ranked, copies: Sequence[Ranked]) -> Result:
    field, skill = reason.field(), best.skill
    told = field in ("name", "description") and skill.description
    text = skill.description if told else split(text_of(skill), skill.body_offset)[1]
    variants = dict.fromkeys((*skill.shadows, *(copy.skill.location for copy in copies)))
    return Result(
        skill=skill,
        score=best.score,
        field=field,
        snippet=snippet(text, reason.words()),
        variants=tuple(variants),
    )


def _make_view(skills: Mapping[str, Skill], kept: Mapping[str, Kept]) -> _VisibleSkills:
    wanted = {skill.location: skill for skill in skills.values()}
    by_id: dict[int, Skill] = {}
    shelves: list[_VisibleFolder] = []
    for root, docs in kept.values():
        here = {one.id: wanted[at] for at, one in docs.items() if at in wanted}
        if here:
            shelves.append(_shelf(root, here))
            by_id.update(here)
    return _VisibleSkills(by_id, shelves)


def _shelf(root: IndexedFolder, here: Mapping[int, Skill]) -> _VisibleFolder:
    if len(here) <= WHOLE:
        return _VisibleFolder(root, True, list(here))
    new = sorted(filter(root.last.__lt__, here))[-_MOST_NEW:]
    allowed = bytes(map(here.__contains__, root.docs))
    return _VisibleFolder(root, False, new, b"" if all(allowed) else allowed)


def _highest(totals: list[float], allowed: bytes, most: int) -> list[int]:
    """Return the places of the highest totals; a bound from a sample limits what is sorted."""
    sample = sorted(totals[::_SAMPLE], reverse=True)
    cut = sample[min(2 * most // _SAMPLE + 2, len(sample) - 1)] if sample else 0.0
    found: list[int] = []
    for least in (cut, 0.0):
        found = [place for place, total in enumerate(totals) if total > least]
        if allowed:
            found = [place for place in found if allowed[place]]
        if len(found) >= most:
            break
    return nlargest(most, found, key=totals.__getitem__)


def _rerank(ranker: Ranker, asked: Query, ranked: list[Ranked]) -> list[Ranked]:
    head, tail = ranked[: ranker.most], ranked[ranker.most :]
    if not head:
        return ranked
    given = ranker.scores(asked, head)
    head = [
        one._replace(score=one.score + ranker.weight * more)
        for one, more in zip(head, given, strict=True)
    ]
    head.sort(key=lambda one: (-one.score, one.skill.name))
    return head + tail
