"""The index kept true to the catalogue: a few changes at once, many in the background."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

from skillbelt.search.document import document
from skillbelt.search.read import parts_of
from skillbelt.search.store import Fresh, Root, SearchIndex, Stored
from skillbelt.search.words import forget
from skillbelt.settings import Settings
from skillbelt.skill import Skill

# A folder of no more skills needs no postings: it is gone through whole, which misses nothing.
WHOLE = 300
_AT_ONCE = 48  # skills that are read while somebody waits for an answer
_BATCH = 128
_SHOWN = 2_048  # skills after which what was indexed so far can be found
_MOST_UNMERGED = 256
_LEASE_SECONDS = 20.0
_POLL_SECONDS = 0.2
# What a catalogue holds: the skills of each folder.
Groups = Mapping[str, Sequence[Skill]]
Progress = Callable[[str], None]


class Kept(NamedTuple):
    """What the index has of one folder."""

    root: Root
    docs: Mapping[str, Stored]


class Upkeep:
    """Brings the index to what a catalogue holds. Any thread may ask.

    `kept` is what can be found by now; it is never changed, only replaced.
    """

    def __init__(self, settings: Settings, progress: Progress | None = None) -> None:
        path = os.path.join(settings.cache_dir, "search.sqlite3") if settings.use_index else ""
        self.index = SearchIndex(path)
        self.kept: Mapping[str, Kept] = {}
        self._settings, self._progress = settings, progress
        self._lock = threading.Lock()
        self._groups: Groups = {}
        self._done: Groups = {}
        self._version: tuple[object, ...] = ()
        self._worker: threading.Thread | None = None
        self._closed = False

    def close(self) -> None:
        """Stop what is made in the background and let go of the file."""
        self._closed = True
        if self._worker is not None:
            self._worker.join()
        self.index.close()

    def sync(self, groups: Groups, wait_seconds: float | None = None) -> bool:
        """Bring the index to these skills; whether it is there already.

        A few changes are made at once. More are made in the background; None waits for the end.
        """
        until = None if wait_seconds is None else time.monotonic() + wait_seconds
        while self._done is not groups and not self._closed:
            worker = self._begun(groups)
            if worker is not None:
                worker.join(None if until is None else max(until - time.monotonic(), 0.0))
                if worker.is_alive():
                    return False
        return True

    def follow(self) -> bool:
        """Take in what other processes did to the file; whether they did anything."""
        if self._version == self.index.version() or self._building():
            return False
        groups, self._done = self._done, {}
        self.sync(groups)
        return True

    def _building(self) -> bool:
        return self._worker is not None and self._worker.is_alive()

    def _begun(self, groups: Groups) -> threading.Thread | None:
        """The thread to wait for; None when all was done at once."""
        with self._lock:
            if self._building():
                return self._worker
            self._load(groups)
            if sum(len(self._stale(path, skills)) for path, skills in groups.items()) <= _AT_ONCE:
                self._bring(groups, "")
                return None
            self._worker = threading.Thread(
                target=self._build, args=(groups,), name="skillbelt-search", daemon=True
            )
            self._worker.start()
            return self._worker

    def _build(self, groups: Groups) -> None:
        """Wait until no other process builds, then do what is still to be done."""
        holder = f"{os.getpid()}-{id(self)}"
        while not self._lease(holder):
            if self._closed:
                return
            if self.index.trouble:
                break
            time.sleep(_POLL_SECONDS)
        self._load(groups, anew=True)
        self._bring(groups, holder)
        self.index.lease(holder, time.time(), 0.0)
        forget()  # a build leaves many words behind that nobody will ask for

    def _lease(self, holder: str) -> bool:
        now = time.time()
        return self.index.lease(holder, now, now + _LEASE_SECONDS)

    def _bring(self, groups: Groups, holder: str) -> None:
        """Index what changed; without the file, if it can not be written."""
        if not self._write(groups, holder) and not self._closed:
            self.index.close()
            self.index = SearchIndex("")
            self._load(groups, anew=True)
            self._write(groups, "")
        if not self._closed:
            self._done = groups

    def _load(self, groups: Groups, *, anew: bool = False) -> None:
        """Read what the index holds, when it is not known or another process changed it."""
        version = self.index.version()
        known = {} if anew or version != self._version else dict(self.kept)
        for path in groups.keys() - known.keys():
            known[path] = self._read(path)
        self._version = version
        self.kept = {path: known[path] for path in groups}

    def _read(self, path: str) -> Kept:
        root = self.index.root(path)
        return Kept(root, self.index.stored(root))

    def _stale(self, path: str, skills: Sequence[Skill]) -> list[Skill]:
        docs = self.kept[path].docs
        return [s for s in skills if (k := docs.get(s.location)) is None or k.stamp != stamp(s)]

    def _gone(self, path: str, skills: Sequence[Skill]) -> list[str]:
        """What is stored and lies there no more; what other settings leave out stays."""
        missing = self.kept[path].docs.keys() - {skill.location for skill in skills}
        return [location for location in missing if not os.path.exists(location)]

    def _write(self, groups: Groups, holder: str) -> bool:
        """Whether all could be stored."""
        stale = {path: self._stale(path, skills) for path, skills in groups.items()}
        left = sum(map(len, stale.values()))
        for path, skills in stale.items():
            gone = self._gone(path, groups[path])
            if gone and not self.index.save(self.kept[path].root, (), gone):
                return False
            for start in range(0, len(skills), _BATCH):
                some = skills[start : start + _BATCH]
                if self._closed or not self._save(path, some, holder):
                    return False
                left -= len(some)
                self._tell(path, start, left)
            if skills or gone:
                self._put(path)
            self._merge(path)
        return True

    def _save(self, path: str, skills: Sequence[Skill], holder: str) -> bool:
        if holder:
            self._lease(holder)
        return self.index.save(self.kept[path].root, map(self._fresh, skills))

    def _tell(self, path: str, start: int, left: int) -> None:
        if self._progress is not None and left > _AT_ONCE:
            self._progress(f"indexing for search: {left} skills to go")
        if (start + _BATCH) % _SHOWN == 0:
            self._put(path)

    def _put(self, path: str) -> None:
        self.kept = {**self.kept, path: self._read(path)}

    def _fresh(self, skill: Skill) -> Fresh:
        made = document(parts_of(skill, self._settings.limits))
        return Fresh(skill.location, stamp(skill), made)

    def _merge(self, path: str) -> None:
        """Make postings when too many documents are without."""
        root, docs = self.kept[path]
        waiting = len({one.id for one in docs.values()}.difference(root.docs))
        if len(docs) > WHOLE and waiting > _MOST_UNMERGED:
            self.index.merge(root, lambda: not self._closed)
            self._put(path)


def stamp(skill: Skill) -> str:
    """What tells that a skill's file is as it was when it was indexed."""
    said = f"{skill.name}\0{skill.title}\0{skill.description}\0{skill.when_to_use}"
    return f"{skill.mtime_ns}-{skill.body_offset}-{crc32(said.encode('utf-8', 'replace')):x}"
