"""The search index on disk: one SQLite file for all projects and processes.

It is a cache like the catalogue's index: a damaged, foreign or locked file is rebuilt or bypassed,
and no skill is lost. Documents are stored whole. The postings, which list the best documents of
each word, are built from the documents in generations, so that a reader never sees a partial one.
See docs/how-to/search.md.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import threading
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from skillbelt.files.private import create_file, make_folder
from skillbelt.records import NamedTuple
from skillbelt.search.document import Document
from skillbelt.search.lexical import Candidate
from skillbelt.search.statistics import Facts, facts, impacts
from skillbelt.search.words import NUMBERS

# Increase when the meaning of stored documents changes; other files are rebuilt.
FORMAT = 5
_BUSY_SECONDS = 5.0
# Documents stored for one word, the best ones, and how many of them a request of many words
# reads. Fewer give better results: a long request shares some words with every skill.
MOST_POSTINGS = 1024
_MOST_GATHERED = 4 * MOST_POSTINGS  # of one word while postings are made; then the best are kept
_PASSES = 8  # in which postings are made; each takes a share of the words, so of the memory
_CHUNK = 500  # ids in one statement
_COUNT = 3  # bytes that say how many words a document has
_PAGE_BYTES = 16 * 2**10  # documents and lists fill larger pages better
# SQLite's codes of temporary conditions: PERM, BUSY, LOCKED, READONLY, IOERR, FULL, CANTOPEN.
# Creating the file again would not help.
_TEMPORARY = frozenset((3, 5, 6, 8, 10, 13, 14))
T = TypeVar("T")

# `doc_root` covers the query of `stored`, so listing documents does not read them.
_SCHEMA = f"""
CREATE TABLE doc (
    id INTEGER PRIMARY KEY AUTOINCREMENT, root INTEGER, path UNIQUE, stamp TEXT,
    described INTEGER, length INTEGER, named REAL, text REAL, told REAL,
    words BLOB);
CREATE INDEX doc_root ON doc (root, path, stamp);
CREATE TABLE root (
    id INTEGER PRIMARY KEY, path UNIQUE, changes INTEGER DEFAULT 0,
    generation INTEGER DEFAULT 0, docs BLOB DEFAULT x'');
CREATE TABLE generation (id INTEGER PRIMARY KEY AUTOINCREMENT, root INTEGER);
CREATE TABLE posting (id INTEGER PRIMARY KEY, data BLOB);
CREATE TABLE lease (id INTEGER PRIMARY KEY, holder TEXT, until REAL);
PRAGMA user_version = {FORMAT};
"""
_COLUMNS = "id, words, described, length, named, text, told"


class Stored(NamedTuple):
    """A stored document: its id, and the stamp of the file it was made from."""

    id: int
    stamp: str


class IndexedFolder(NamedTuple):
    """One folder: the generation of its postings, and the ids of the documents in them.

    `changes` counts what was done to it. Ids only grow, so every document of a higher id than the
    last one in `docs` is not in the postings yet.
    """

    id: int
    changes: int = 0
    generation: int = 0
    docs: array[int] = array("I")

    @property
    def last(self) -> int:
        """Return the highest id in the postings."""
        return self.docs[-1] if self.docs else 0


class Posting(NamedTuple):
    """The best documents of a word: places in the list of the root's documents, and impacts."""

    term: int
    places: array[int]
    impacts: bytes


class Fresh(NamedTuple):
    """A document to be stored."""

    path: str
    stamp: str
    made: Document


class SearchIndex:
    """The stored index. Thread-safe; one thread uses it at a time."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.trouble = ""
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._opened = 0

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    # Queries

    def version(self) -> tuple[object, ...]:
        """Return a value that changes when another process changes the file."""
        found = self._do(lambda db: db.execute("PRAGMA data_version").fetchone())
        return () if found is None else (self._opened, *found)

    def root(self, path: str) -> IndexedFolder:
        """Return the folder's record; add one if there is none."""

        def work(db: sqlite3.Connection) -> IndexedFolder:
            asked = "SELECT id, changes, generation, docs FROM root WHERE path = ?"
            row = db.execute(asked, (_key(path),)).fetchone()
            if row is None:
                db.execute("INSERT OR IGNORE INTO root (path) VALUES (?)", (_key(path),))
                row = db.execute(asked, (_key(path),)).fetchone()
            id, changes, generation, docs = row
            return IndexedFolder(id, changes, generation, array("I", docs))

        return self._do(work) or IndexedFolder(0)

    def stored(self, root: IndexedFolder) -> dict[str, Stored]:
        """Return every document of a folder by its path."""
        asked = "SELECT path, id, stamp FROM doc WHERE root = ?"
        rows = self._do(lambda db: db.execute(asked, (root.id,)).fetchall()) or []
        return {_path(key): Stored(id, stamp) for key, id, stamp in rows}

    def candidates(self, ids: Sequence[int]) -> list[Candidate]:
        """Return the documents of these ids that exist."""

        def work(db: sqlite3.Connection) -> list[Candidate]:
            found: list[Candidate] = []
            for start in range(0, len(ids), _CHUNK):
                some = ids[start : start + _CHUNK]
                marks = _marks(some)
                found += map(
                    _candidate,
                    db.execute(f"SELECT {_COLUMNS} FROM doc WHERE id IN ({marks})", some),
                )
            return found

        return self._do(work) or []

    def postings(self, root: IndexedFolder, terms: Sequence[int]) -> list[Posting]:
        """Return the postings of those words that the folder has."""
        first = root.generation * NUMBERS
        keys = [first + term for term in terms]

        def work(db: sqlite3.Connection) -> list[Posting]:
            found: list[Posting] = []
            for start in range(0, len(keys), _CHUNK):
                some = keys[start : start + _CHUNK]
                asked = f"SELECT id, data FROM posting WHERE id IN ({_marks(some)})"
                rows = db.execute(asked, some)
                found += [_posting(id - first, data, len(root.docs)) for id, data in rows]
            return found

        return self._do(work) or []

    # Updates

    def save(self, root: IndexedFolder, fresh: Iterable[Fresh], gone: Iterable[str] = ()) -> bool:
        """Store documents and delete others in one transaction; return whether that worked."""
        rows = [_row(root, one) for one in fresh]
        keys = [(_key(path),) for path in gone]

        def work(db: sqlite3.Connection) -> bool:
            with _transaction(db):
                db.executemany("DELETE FROM doc WHERE path = ?", keys)
                db.executemany("DELETE FROM doc WHERE path = ?", [(row[1],) for row in rows])
                db.executemany(
                    f"INSERT INTO doc (root, path, stamp, described, length, named, text, told, "
                    f"words) VALUES ({','.join('?' * 9)})",
                    rows,
                )
                _count(db, root.id)
            return True

        return bool(self._do(work))

    def merge(self, root: IndexedFolder, alive: Callable[[], bool] = lambda: True) -> bool:
        """Rebuild the postings of a folder from its documents; False if they cannot be stored.

        Stops early without a change when `alive` returns False or a later rebuild began.
        """
        begun = self._do(lambda db: _begin(db, root))
        if begun is None:
            return False
        generation, docs = begun
        for share in range(_PASSES):
            made = partial(_merge_share, generation=generation, docs=docs, share=share)
            if not alive():
                return True
            latest = self._do(made)
            if not latest:
                return latest is not None
        return self._do(lambda db: _switch(db, root.id, generation, docs)) is not None

    def lease(self, holder: str, now: float, until: float) -> bool:
        """Take the lease to build until then; False if another process holds it."""

        def work(db: sqlite3.Connection) -> bool:
            with _transaction(db):
                row = db.execute("SELECT holder, until FROM lease WHERE id = 1").fetchone()
                if row is not None and row[0] != holder and row[1] > now and not _ended(row[0]):
                    return False
                db.execute("INSERT OR REPLACE INTO lease VALUES (1, ?, ?)", (holder, until))
            return True

        return bool(self._do(work))

    # The file

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Return the result of the work; None when the file cannot be used (`trouble` says why).

        A file that is damaged or foreign is removed and the work done on a new one.
        """
        with self._lock:
            for attempt in (1, 2):
                try:
                    done = work(self._open())
                    self.trouble = ""
                    return done
                except (sqlite3.Error, OSError, zlib.error, ValueError, TypeError) as error:
                    self.close()
                    self.trouble = f"{self.path}: {error}"
                    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                    if attempt == 2 or code in _TEMPORARY or isinstance(error, OSError):
                        return None
                    self._remove()
            return None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            if self.path:
                make_folder(os.path.dirname(self.path))
                create_file(self.path)
            db = sqlite3.connect(
                self.path or ":memory:",
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            self._connection = db
            self._opened += 1
            db.execute("PRAGMA synchronous = OFF")
            db.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            found = db.execute("PRAGMA user_version").fetchone()[0]
            tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if found != FORMAT:
                if tables:
                    raise sqlite3.DatabaseError("it was made by another version")
                db.executescript(_SCHEMA)
        return self._connection

    def _remove(self) -> None:
        for suffix in ("", "-journal") if self.path else ():
            with contextlib.suppress(OSError):
                os.unlink(self.path + suffix)


def holder(part: object) -> str:
    """Return a name for the holder of a lease, for one part of this process."""
    return f"{os.uname().nodename}:{os.getpid()}:{part}"


def _ended(holder: str) -> bool:
    """Whether the holder was a process of this machine that has ended."""
    host, _, rest = holder.partition(":")
    pid = rest.partition(":")[0]
    if host != os.uname().nodename or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # it belongs to another user, or is not a process
    return False


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _candidate(row: tuple[int, bytes, int, int, float, float, float]) -> Candidate:
    id, words, described, length, named, text, told = row
    terms, codes = unpacked(words)
    return Candidate(
        id=id,
        terms=terms,
        codes=codes,
        described=described,
        length=length,
        facts=Facts(named, text, told),
    )


def _row(root: IndexedFolder, fresh: Fresh) -> tuple[object, ...]:
    made = fresh.made
    words = packed(made.terms, made.codes)
    key = _key(fresh.path)
    return (root.id, key, fresh.stamp, made.described, made.length, *facts(made), words)


def packed(terms: array[int], codes: bytes) -> bytes:
    """Pack words and their bytes.

    The lower two bytes of the numbers look random and do not compress. The high bytes are sorted
    and the codes repetitive, so only these are compressed.
    """
    data = _little(terms).tobytes()
    count = len(terms).to_bytes(_COUNT, "little")
    return count + data[0::4] + data[1::4] + zlib.compress(data[2::4] + codes, 6)


def unpacked(data: bytes) -> tuple[array[int], bytes]:
    """Unpack words and their bytes."""
    count = int.from_bytes(data[:_COUNT], "little")
    rest = zlib.decompress(data[_COUNT + 2 * count :])
    numbers = bytearray(4 * count)
    numbers[0::4] = data[_COUNT : _COUNT + count]
    numbers[1::4] = data[_COUNT + count : _COUNT + 2 * count]
    numbers[2::4] = rest[:count]
    terms = array("I")
    terms.frombytes(numbers)
    return _little(terms), rest[count:]


def _little(numbers: array[int]) -> array[int]:
    """Return the numbers in little-endian order on every machine."""
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers


def _key(path: str) -> str | bytes:
    """Return a path for SQLite: as bytes, if it contains a lone surrogate."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return path.encode("utf-8", "surrogatepass")
    return path


def _path(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode("utf-8", "surrogatepass")


def _count(db: sqlite3.Connection, root: int) -> None:
    """Mark the folder as changed, for other processes."""
    db.execute("UPDATE root SET changes = changes + 1 WHERE id = ?", (root,))


def _begin(db: sqlite3.Connection, root: IndexedFolder) -> tuple[int, array[int]]:
    """Return the next generation and its documents."""
    with _transaction(db):
        made = db.execute("INSERT INTO generation (root) VALUES (?)", (root.id,)).lastrowid
        rows = db.execute("SELECT id FROM doc WHERE root = ? ORDER BY id", (root.id,))
        return made or 0, array("I", [row[0] for row in rows])


def _merge_share(db: sqlite3.Connection, generation: int, docs: array[int], share: int) -> bool:
    """Store the postings of one share of the words; False if another process was faster."""
    low, high = NUMBERS * share // _PASSES, NUMBERS * (share + 1) // _PASSES
    said: dict[int, list[int]] = {}
    for place, made in _documents(db, docs):
        first, end = bisect_left(made.terms, low), bisect_left(made.terms, high)
        for term, impact in zip(made.terms[first:end], impacts(made)[first:end], strict=True):
            found = said.get(term)
            if found is None:
                said[term] = [impact << 32 | place]
                continue
            found.append(impact << 32 | place)
            if len(found) >= _MOST_GATHERED:
                _keep_best(found)
    start, kind = generation * NUMBERS, _kind(len(docs))
    rows = [(start + term, _best(said[term], kind)) for term in sorted(said)]
    with _transaction(db):
        if not _is_latest(db, generation):
            return False
        db.executemany("INSERT OR REPLACE INTO posting VALUES (?, ?)", rows)
    return True


def _is_latest(db: sqlite3.Connection, generation: int) -> bool:
    """Whether no other process rebuilt the postings meanwhile, which deletes these."""
    asked = "SELECT 1 FROM generation WHERE id = ?"
    return db.execute(asked, (generation,)).fetchone() is not None


def _documents(db: sqlite3.Connection, docs: array[int]) -> Iterator[tuple[int, Document]]:
    """Yield each document that still exists, with its place."""
    for start in range(0, len(docs), _CHUNK):
        some = docs[start : start + _CHUNK].tolist()
        places = {id: start + place for place, id in enumerate(some)}
        asked = f"SELECT id, words, described, length FROM doc WHERE id IN ({_marks(some)})"
        for id, words, described, length in db.execute(asked, some):
            yield places[id], Document(*unpacked(words), described, length)


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))


def _kind(count: int) -> str:
    """Return the smallest array type that holds every place."""
    return "H" if count <= 0x10000 else "I"


def _best(said: list[int], kind: str) -> bytes:
    """Return the best documents of a word, best first, followed by their impacts."""
    _keep_best(said)
    return array(kind, [one & 0xFFFFFFFF for one in said]).tobytes() + bytes(
        [one >> 32 for one in said]
    )


def _keep_best(said: list[int]) -> None:
    said.sort(reverse=True)
    del said[MOST_POSTINGS:]


def _posting(term: int, data: bytes, count: int) -> Posting:
    places = array(_kind(count))
    number = len(data) // (places.itemsize + 1)
    places.frombytes(data[: places.itemsize * number])
    return Posting(term, places, data[places.itemsize * number :])


def _switch(db: sqlite3.Connection, root: int, generation: int, docs: array[int]) -> bool:
    """Activate these postings and delete the ones before."""
    with _transaction(db):
        if not _is_latest(db, generation):
            return False
        asked = "UPDATE root SET generation = ?, docs = ? WHERE id = ?"
        db.execute(asked, (generation, docs.tobytes(), root))
        old = db.execute("SELECT id FROM generation WHERE root = ? AND id < ?", (root, generation))
        for (one,) in old.fetchall():
            between = (one * NUMBERS, (one + 1) * NUMBERS - 1)
            db.execute("DELETE FROM posting WHERE id BETWEEN ? AND ?", between)
        db.execute("DELETE FROM generation WHERE root = ? AND id < ?", (root, generation))
        _count(db, root)
    return True
