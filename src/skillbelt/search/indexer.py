"""Keep the index up to date with the catalogue: few changes at once, many in the background."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from zlib import crc32

from skillbelt.format.frontmatter import MAX_CHECKED_BYTES
from skillbelt.format.skill import Skill
from skillbelt.records import NamedTuple
from skillbelt.search.document import document
from skillbelt.search.store import FORMAT, Fresh, IndexedFolder, SearchIndex, Stored, holder
from skillbelt.search.text import MAX_INDEXED_FILES, MAX_INDEXED_SCRIPTS, parts_of
from skillbelt.search.words import forget
from skillbelt.settings import Settings

# A folder with at most this many skills needs no postings: every document is scored.
WHOLE = 300
_AT_ONCE = 48  # skills that are indexed before a search is answered
_BATCH = 128
_SHOWN = 2_048  # skills after which the indexed part becomes searchable
_MOST_UNMERGED = 256
_LEASE_SECONDS = 20.0
_POLL_SECONDS = 0.2
# The skills of each folder of a catalogue.
Groups = Mapping[str, Sequence[Skill]]
Progress = Callable[[str], None]


class Kept(NamedTuple):
    """The indexed state of one folder."""

    root: IndexedFolder
    docs: Mapping[str, Stored]


class Upkeep:
    """Updates the index to the content of a catalogue. Thread-safe.

    `kept` is the searchable part; it is never changed, only replaced.
    """

    def __init__(self, settings: Settings, progress: Progress | None = None) -> None:
        self.index = SearchIndex(_file(settings) if settings.use_index else "")
        self.kept: Mapping[str, Kept] = {}
        self._settings, self._progress = settings, progress
        self._lock = threading.RLock()
        self._done: Groups = {}
        self._version: tuple[object, ...] = ()
        self._worker: threading.Thread | None = None
        self._merger: threading.Thread | None = None
        self._closed = False

    def close(self) -> None:
        """Stop the work in the background and close the file."""
        self._closed = True
        self.wait()
        self.index.close()

    def wait(self) -> None:
        """Wait until the work in the background is done."""
        for thread in (self._worker, self._merger):
            if thread is not None:
                thread.join()

    def sync(self, groups: Groups, wait_seconds: float | None = None) -> bool:
        """Update the index to these skills; return whether it is up to date already.

        A few changes are made at once. More are made in the background; None waits for the end.
        """
        until = None if wait_seconds is None else time.monotonic() + wait_seconds
        while self._done is not groups and not self._closed:
            worker = self._start_update(groups)
            if worker is not None:
                worker.join(None if until is None else max(until - time.monotonic(), 0.0))
                if worker.is_alive():
                    return False
        return True

    def follow(self) -> bool:
        """Read what other processes changed of these skills; return whether they did."""
        if self._building() or self._version == self.index.version():
            return False
        before, groups = self.kept, self._done
        self._load(groups)
        if self.kept is before:
            return False
        self._done = {}
        self.sync(groups)
        return True

    def _building(self) -> bool:
        return self._worker is not None and self._worker.is_alive()

    def _start_update(self, groups: Groups) -> threading.Thread | None:
        """Return the thread to wait for; None when everything was done at once."""
        with self._lock:
            if self._building():
                return self._worker
            self._load(groups)
            stale = self._stale(groups)
            if sum(map(len, stale.values())) <= _AT_ONCE:
                self._update(groups, stale, None)
                self._merge_soon()
                return None
            self._worker = _start(self._build, groups)
            return self._worker

    def _build(self, groups: Groups) -> None:
        """Wait until no other process builds, then do what is left."""
        mine = holder(id(self))
        while not self._lease(mine):
            if self._closed:
                return
            if self.index.trouble:
                break
            time.sleep(_POLL_SECONDS)
        self._load(groups)
        self._update(groups, self._stale(groups), mine)
        self.index.lease(mine, time.time(), 0.0)
        forget()  # a build caches many words that no search uses

    def _lease(self, holder: str) -> bool:
        now = time.time()
        return self.index.lease(holder, now, now + _LEASE_SECONDS)

    def _update(self, groups: Groups, stale: Groups, holder: str | None) -> None:
        """Index what changed; in memory, if the file cannot be written."""
        if not self._write(groups, stale, holder) and not self._closed:
            self.index.close()
            self.index, self._version = SearchIndex(""), ()
            self._load(groups)
            self._write(groups, self._stale(groups), "")
        if not self._closed:
            self._done = groups

    def _load(self, groups: Groups) -> None:
        """Read each folder of the index that is unknown or was changed by other processes."""
        with self._lock:
            version = self.index.version()
            known = self.kept if version[:1] == self._version[:1] else {}
            if version != self._version:
                known = {path: one for path, one in known.items() if self._is_as_read(path, one)}
            if known.keys() != groups.keys() or len(known) < len(self.kept):
                self.kept = {path: known.get(path) or self._read(path) for path in groups}
            self._version = version

    def _is_as_read(self, path: str, known: Kept) -> bool:
        return self.index.root(path)[:2] == known.root[:2]

    def _read(self, path: str) -> Kept:
        root = self.index.root(path)
        return Kept(root, self.index.stored(root))

    def _stale(self, groups: Groups) -> Groups:
        """Return the skills of each folder whose index entry is missing or outdated."""
        found: dict[str, list[Skill]] = {}
        for path, skills in groups.items():
            get = self.kept[path].docs.get
            found[path] = [
                one for one in skills if (k := get(one.location)) is None or k.stamp != stamp(one)
            ]
        return found

    def _list_gone(self, path: str, skills: Sequence[Skill]) -> list[str]:
        """Return stored documents whose files are gone; those left out by other settings stay."""
        missing = self.kept[path].docs.keys() - {skill.location for skill in skills}
        return [location for location in missing if not os.path.exists(location)]

    def _write(self, groups: Groups, stale: Groups, holder: str | None) -> bool:
        """Return whether everything could be stored; without a lease postings come later."""
        left = sum(map(len, stale.values()))
        for path, skills in stale.items():
            gone = self._list_gone(path, groups[path])
            if gone and not self.index.save(self.kept[path].root, (), gone):
                return False
            for start in range(0, len(skills), _BATCH):
                some = skills[start : start + _BATCH]
                if self._closed or not self._save(path, some, holder):
                    return False
                left -= len(some)
                self._report(path, start, left)
            if skills or gone:
                self._reload(path)
            if holder is not None and not self._merge(path, holder):
                return False
        return True

    def _save(self, path: str, skills: Sequence[Skill], holder: str | None) -> bool:
        if holder:
            self._lease(holder)
        return self.index.save(self.kept[path].root, map(self._fresh, skills))

    def _report(self, path: str, start: int, left: int) -> None:
        if self._progress is not None and left > _AT_ONCE:
            self._progress(f"indexing for search: {left} skills to go")
        if start + _BATCH == _SHOWN:
            self._reload(path)

    def _reload(self, path: str) -> None:
        with self._lock:
            self.kept = {**self.kept, path: self._read(path)}

    def _fresh(self, skill: Skill) -> Fresh:
        made = document(parts_of(skill))
        return Fresh(skill.location, stamp(skill), made)

    # The postings

    def _needs_merge(self, path: str) -> bool:
        """Whether too many documents of a folder are without postings."""
        root, docs = self.kept[path]
        waiting = sum(map(root.last.__lt__, (one.id for one in docs.values())))
        return len(docs) > WHOLE and waiting > _MOST_UNMERGED

    def _merge(self, path: str, holder: str) -> bool:
        """Build postings when too many documents have none; return whether they could be stored.

        Uses a connection of its own, so that searches do not wait meanwhile.
        """
        if not self._needs_merge(path):
            return True
        index = SearchIndex(self.index.path) if self.index.path else self.index
        try:
            done = index.merge(self.kept[path].root, lambda: self._may_go_on(holder))
        finally:
            if index is not self.index:
                index.close()
        self._reload(path)
        return done

    def _may_go_on(self, holder: str) -> bool:
        return not self._closed and (not holder or self._lease(holder))

    def _merge_soon(self) -> None:
        """Build postings in the background, unless another build is running."""
        busy = self._merger is not None and self._merger.is_alive()
        if not busy and any(map(self._needs_merge, self.kept)):
            self._merger = _start(self._merge_all)

    def _merge_all(self) -> None:
        mine = holder(f"{id(self)}-merge")
        if self._lease(mine):
            for path in self.kept:
                self._merge(path, mine)
            self.index.lease(mine, time.time(), 0.0)


def _start(work: Callable[..., None], *given: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=given, name="skillbelt-search", daemon=True)
    thread.start()
    return thread


def _file(settings: Settings) -> str:
    """Return the path of the index; other rules for reading use another file."""
    # The bounds that change what is read of a skill: texts indexed under others do not count.
    rules = (FORMAT, MAX_CHECKED_BYTES, MAX_INDEXED_FILES, MAX_INDEXED_SCRIPTS)
    return os.path.join(settings.cache_dir, f"search-{'-'.join(map(str, rules))}.sqlite3")


def stamp(skill: Skill) -> str:
    """Return a text that changes when the skill must be indexed again."""
    said = f"{skill.name}\0{skill.title}\0{skill.description}\0{skill.when_to_use}"
    changed = f"{skill.mtime_ns}-{skill.ctime_ns}"
    return f"{changed}-{skill.body_offset}-{crc32(said.encode('utf-8', 'replace')):x}"
