"""Search itself: keep the index true to the catalogue, find candidates, rank and fold them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import compress
from typing import NamedTuple
from zlib import crc32

from skillbelt.search.document import document
from skillbelt.search.fold import fold
from skillbelt.search.lexical import score
from skillbelt.search.protocol import Ranked, Ranker, Result
from skillbelt.search.query import Query, query
from skillbelt.search.read import parts_of, text_of
from skillbelt.search.snippet import Reason, snippet
from skillbelt.search.store import MOST_POSTINGS, Fresh, Root, SearchIndex, Stored
from skillbelt.settings import Settings
from skillbelt.skill import Skill

MAX_LIMIT = 1_000
# A folder of no more skills is gone through whole: that is as quick, and misses nothing.
_WHOLE = 300
_CANDIDATES = 140
_READ_POSTINGS = 16_000  # in all for one request, shared by its words
_LEAST_DEPTH = 128  # of one word's postings
_SAMPLE = 16  # one of so many totals is looked at to guess which are high
_SHARPNESS = 1.3  # rare words choose the candidates
_AT_ONCE = 48  # skills that are read while somebody waits for an answer
_BATCH = 128
_MOST_UNMERGED = 256
_FOLDED = 3  # times as many as asked for are looked at for near copies
_LEASE_SECONDS = 20.0
_POLL_SECONDS = 0.2
# What a catalogue holds: the skills of each folder.
Groups = Mapping[str, Sequence[Skill]]
Progress = Callable[[str], None]


class _Shelf(NamedTuple):
    """One folder for one view: how it is asked, and which of its documents may be found."""

    root: Root
    whole: bool
    ids: Sequence[int]  # all, or those the postings do not know yet
    allowed: bytes = b""  # a byte for each place in the postings, empty when all may be found


class _View(NamedTuple):
    """The skills that may be found, by the ids of their documents."""

    skills: Mapping[str, Skill]
    version: tuple[object, ...]
    by_id: Mapping[int, Skill]
    shelves: Sequence[_Shelf]


class Searcher:
    """Finds skills by their whole text. Any thread may ask.

    `rankers` look again at the best candidates. The index is made in the background; whoever asks
    waits for it unless told not to.
    """

    def __init__(
        self, settings: Settings, rankers: Iterable[Ranker] = (), progress: Progress | None = None
    ) -> None:
        self._settings, self._progress = settings, progress
        self.rankers = tuple(rankers)
        folder = os.path.join(settings.cache_dir, "search.sqlite3")
        self._index = SearchIndex(folder if settings.use_index else "")
        self._lock = threading.Lock()
        self._groups: Groups = {}
        self._known: dict[str, dict[str, Stored]] = {}
        self._roots: dict[str, Root] = {}
        self._version: tuple[object, ...] = ()
        self._count = 0
        self._views: dict[int, _View] = {}
        self._worker: threading.Thread | None = None
        self._closed = False

    def close(self) -> None:
        """Stop what is built in the background and let go of the file."""
        self._closed = True
        if self._worker is not None:
            self._worker.join()
        self._index.close()

    # What is indexed

    def sync(self, groups: Groups, wait_seconds: float | None = None) -> bool:
        """Bring the index to what the catalogue holds; whether it is there already.

        A few changes are made at once. More are made in the background; None waits for the end.
        """
        with self._lock:
            self._load(groups)
            stale = {path: self._stale(path, skills) for path, skills in groups.items()}
            count = sum(map(len, stale.values()))
            gone = {path: self._gone(path, skills) for path, skills in groups.items()}
            if count <= _AT_ONCE and not self._building():
                self._write(stale, gone)
                return True
            if not self._building():
                self._start(stale, gone)
            worker = self._worker
        if worker is not None:
            worker.join(wait_seconds)
            return not worker.is_alive()
        return True

    def _building(self) -> bool:
        return self._worker is not None and self._worker.is_alive()

    def _load(self, groups: Groups) -> None:
        """Read what the index holds, when it is not known or another process changed it."""
        version = self._index.version()
        if not version and self._index.path:  # it can not be used: do without a file
            self._index = SearchIndex("")
            version = self._index.version()
        if version != self._version:
            self._known.clear()
            self._roots.clear()
        for path in groups.keys() - self._known.keys():
            root = self._index.root(path)
            self._roots[path], self._known[path] = root, self._index.stored(root)
        self._version, self._groups = version, groups

    def _stale(self, path: str, skills: Sequence[Skill]) -> list[Skill]:
        known = self._known[path]
        return [s for s in skills if (k := known.get(s.location)) is None or k.stamp != stamp(s)]

    def _gone(self, path: str, skills: Sequence[Skill]) -> list[str]:
        """What is stored and lies there no more; what other settings leave out stays."""
        missing = self._known[path].keys() - {skill.location for skill in skills}
        return [location for location in missing if not os.path.exists(location)]

    def _start(self, stale: Mapping[str, list[Skill]], gone: Mapping[str, list[str]]) -> None:
        self._worker = threading.Thread(
            target=self._build, args=(stale, gone), name="skillbelt-search", daemon=True
        )
        self._worker.start()

    def _build(self, stale: Mapping[str, list[Skill]], gone: Mapping[str, list[str]]) -> None:
        holder = f"{os.getpid()}-{id(self)}"
        while not self._index.lease(holder, time.time(), time.time() + _LEASE_SECONDS):
            if self._closed or self._index.trouble:
                return
            time.sleep(_POLL_SECONDS)
        with self._lock:
            self._version = ()
            self._load(self._groups)
            stale = {path: self._stale(path, self._groups[path]) for path in self._groups}
        self._write(stale, gone, holder)
        self._index.lease(holder, time.time(), 0.0)

    def _write(
        self, stale: Mapping[str, list[Skill]], gone: Mapping[str, list[str]], holder: str = ""
    ) -> None:
        total, done = sum(map(len, stale.values())), 0
        for path, skills in stale.items():
            for start in range(0, len(skills), _BATCH):
                if self._closed:
                    return
                some = skills[start : start + _BATCH]
                self._index.save(self._roots[path], map(self._fresh, some))
                done += len(some)
                if holder:
                    self._index.lease(holder, time.time(), time.time() + _LEASE_SECONDS)
                if self._progress is not None and total > _AT_ONCE:
                    self._progress(f"indexing {done} of {total} skills")
            if gone[path]:
                self._index.save(self._roots[path], (), gone[path])
            if skills or gone[path]:
                self._known[path] = self._index.stored(self._roots[path])
                self._count += 1
            self._merge(path)

    def _fresh(self, skill: Skill) -> Fresh:
        made = document(parts_of(skill, self._settings.limits))
        return Fresh(skill.location, stamp(skill), made)

    def _merge(self, path: str) -> None:
        root, known = self._roots[path], self._known[path]
        waiting = len({one.id for one in known.values()}.difference(root.docs))
        if len(known) > _WHOLE and waiting > _MOST_UNMERGED:
            self._index.merge(root, lambda: not self._closed)
            self._roots[path] = self._index.root(path)
            self._count += 1

    # What is found

    def search(self, text: str, skills: Mapping[str, Skill], limit: int = 10) -> list[Result]:
        """The best of the skills for the text, best first; no other skill has any part in it."""
        limit = min(max(limit, 0), MAX_LIMIT)
        asked = query(text)
        if not asked.words or not limit:
            return []
        view = self._view(skills)
        ranked = self._ranked(asked, view, limit)
        groups = fold(ranked[: limit * _FOLDED], limit)
        return [self._result(asked, best, copies) for best, copies in groups]

    def _view(self, skills: Mapping[str, Skill]) -> _View:
        with self._lock:
            version = (*self._version, self._count, self._building())
            view = self._views.get(id(skills))
            if view is None or view.skills is not skills or view.version != version:
                view = self._made_view(skills, version)
                if len(self._views) >= 8:
                    self._views.clear()
                self._views[id(skills)] = view
            return view

    def _made_view(self, skills: Mapping[str, Skill], version: tuple[object, ...]) -> _View:
        wanted = {skill.location: skill for skill in skills.values()}
        by_id: dict[int, Skill] = {}
        shelves: list[_Shelf] = []
        for path, known in self._known.items():
            if self._building():
                known = self._index.stored(self._roots[path])
            here = {one.id: wanted[at] for at, one in known.items() if at in wanted}
            if here:
                shelves.append(_shelf(self._roots[path], here))
                by_id.update(here)
        return _View(skills, version, by_id, shelves)

    def _ranked(self, asked: Query, view: _View, limit: int) -> list[Ranked]:
        ids: list[int] = []
        for shelf in view.shelves:
            ids += shelf.ids
            if not shelf.whole:
                ids += self._chosen(asked, shelf, max(_CANDIDATES, 2 * limit))
        found = self._index.candidates(list(dict.fromkeys(ids)))
        ranked = [Ranked(score(asked, one), one, view.by_id[one.id]) for one in found]
        ranked = [one for one in ranked if one.score > 0.0]
        ranked.sort(key=lambda one: (-one.score, one.skill.name))
        for ranker in self.rankers:
            ranked = _again(ranker, asked, ranked)
        return ranked

    def _chosen(self, asked: Query, shelf: _Shelf, most: int) -> list[int]:
        """The documents that say the words of the request best, as the postings tell."""
        sought = asked.sought()
        depth = min(max(_READ_POSTINGS // len(sought), _LEAST_DEPTH), MOST_POSTINGS)
        totals = [0.0] * len(shelf.root.docs)
        for term, places, impacts in self._index.postings(shelf.root, sought):
            word = asked.words[term]
            weight = word.weight * word.rarity ** (_SHARPNESS - 1.0)
            for place, impact in zip(places[:depth], impacts, strict=False):
                totals[place] += weight * impact
        docs = shelf.root.docs
        return [docs[place] for place in _highest(totals, shelf.allowed, most)]

    def _result(self, asked: Query, best: Ranked, copies: Sequence[Ranked]) -> Result:
        reason, skill = Reason(asked, best.candidate), best.skill
        field = reason.field()
        told = field in ("name", "description") and skill.description
        text = skill.description if told else _body(skill, self._settings)
        variants = dict.fromkeys((*skill.shadows, *(copy.skill.location for copy in copies)))
        return Result(skill, best.score, field, snippet(text, reason.words()), tuple(variants))


def _shelf(root: Root, here: Mapping[int, Skill]) -> _Shelf:
    if len(here) <= _WHOLE:
        return _Shelf(root, True, list(here))
    allowed = bytes(map(here.__contains__, root.docs))
    new = here.keys() - set(root.docs)
    return _Shelf(root, False, sorted(new), b"" if all(allowed) else allowed)


def _highest(totals: list[float], allowed: bytes, most: int) -> list[int]:
    """The places of the highest totals. A sample tells what is surely too low to sort."""
    sample = sorted(totals[::_SAMPLE], reverse=True)
    cut = sample[min(2 * most // _SAMPLE + 2, len(sample) - 1)] if sample else 0.0
    for least in (cut, 0.0):
        found = _above(totals, least)
        if allowed:
            found = [place for place in found if allowed[place]]
        if len(found) >= most:
            break
    return nlargest(most, found, key=totals.__getitem__)


def _above(totals: list[float], cut: float) -> list[int]:
    return list(compress(range(len(totals)), map(cut.__lt__, totals)))


def stamp(skill: Skill) -> str:
    """What tells that a skill's file is as it was when it was indexed."""
    said = f"{skill.name}\0{skill.title}\0{skill.description}\0{skill.when_to_use}"
    return f"{skill.mtime_ns}-{skill.body_offset}-{crc32(said.encode('utf-8', 'replace')):x}"


def _body(skill: Skill, settings: Settings) -> str:
    text = text_of(skill, settings.limits)
    return text[skill.body_offset :] if text.isascii() else text


def _again(ranker: Ranker, asked: Query, ranked: list[Ranked]) -> list[Ranked]:
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
