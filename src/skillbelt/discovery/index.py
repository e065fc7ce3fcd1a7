"""The persistent index: the parsed head of each SKILL.md, so that it is not read again.

One SQLite file for all projects and processes. It is a cache: one that is corrupt, foreign, locked
or not writable costs time, never a skill. See design/index.md.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from skillbelt.files.private import create_file, make_folder
from skillbelt.records import NamedTuple

# Increase when a change of the parser or of Entry makes stored entries wrong.
FORMAT = 5
_BUSY_SECONDS = 1.0
# How long to work without the index after a timeout; else each root would wait as long again.
_REST_SECONDS = 5.0
T = TypeVar("T")


class Entry(NamedTuple):
    """The content of one SKILL.md's head, and the stamp that shows whether it changed."""

    path: str
    size: int
    mtime_ns: int
    inode: int
    ctime_ns: int
    policy_ns: int
    name: str
    title: str
    description: str
    when_to_use: str
    flags: int
    body_offset: int
    diagnostics: str


# An entry as it is stored. The garbage collector does not track plain tuples of plain values, and
# there may be a hundred thousand; `Entry._make` makes an Entry of one.
Row = tuple[Any, ...]


class Index(Protocol):
    """Storage of entries between two scans. `trouble` says why it could not be used."""

    trouble: str

    def load(self, root: str) -> dict[str, Row]:
        """Return every entry below a folder, by path."""

    def save(self, entries: Iterable[Entry], gone: Iterable[str]) -> None:
        """Store these entries and delete those paths."""

    def close(self) -> None:
        """Close open files; the next call opens them again."""


class MemoryIndex:
    """An index that lives as long as its catalogue."""

    def __init__(self) -> None:
        self.trouble = ""
        self._entries: dict[str, Entry] = {}

    def load(self, root: str) -> dict[str, Row]:
        """Return every entry below a folder, by path."""
        below = root.rstrip("/") + "/"
        return {path: entry for path, entry in self._entries.items() if path.startswith(below)}

    def save(self, entries: Iterable[Entry], gone: Iterable[str]) -> None:
        """Store these entries and delete those paths."""
        self._entries.update((entry.path, entry) for entry in entries)
        for path in gone:
            self._entries.pop(path, None)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class SqliteIndex:
    """An index in a file, shared by every process of the user.

    `fingerprint` identifies the parser's limits; entries made with others are in another file.
    """

    def __init__(self, path: str, fingerprint: str = "") -> None:
        stem, ending = os.path.splitext(path)
        self.path = f"{stem}-{FORMAT}{fingerprint and '-'}{fingerprint}{ending}"
        self._connection: sqlite3.Connection | None = None
        self.trouble = ""
        self._rests_until = 0.0

    def load(self, root: str) -> dict[str, Row]:
        """Return every entry below a folder, by path; nothing when the file cannot be used."""
        below = root.rstrip("/")
        if not _encodes(below):
            return {}
        query = f"SELECT {_COLUMNS} FROM entry WHERE path >= ? AND path < ?"
        rows = self._attempt(
            # "0" is the character after "/", so this is every path that starts with the folder.
            lambda db: {row[0]: row for row in db.execute(query, (f"{below}/", f"{below}0"))}
        )
        return rows or {}

    def save(self, entries: Iterable[Entry], gone: Iterable[str]) -> None:
        """Store these entries and delete those paths, all or nothing."""
        # A file name that is not UTF-8 cannot be a key; such a skill is read each time.
        rows = [entry for entry in entries if _encodes(entry.path)]
        paths = [(path,) for path in gone if _encodes(path)]
        if rows or paths:
            self._attempt(lambda db: _write(db, rows, paths))

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        self.close()

    def _attempt(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """Do the work; recreate a broken file and retry once, skip a busy one."""
        if time.monotonic() < self._rests_until:
            return None
        for _ in range(2):
            try:
                done = work(self._open())
                self.trouble = ""
                return done
            except sqlite3.Error as error:
                self.close()
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                self.trouble = f"{self.path}: {error}"
                if code in _PASSING:
                    self._rests_until = time.monotonic() + _REST_SECONDS
                    return None
                self._remove()
            except (OSError, UnicodeError) as error:
                self.close()
                self.trouble = f"{self.path}: {error}"
                return None
        return None

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            make_folder(os.path.dirname(self.path))
            create_file(self.path)
            # One thread at a time uses it, but not always the same one (see scan.py).
            db = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._connection = db
            # A process that is killed leaves a journal that SQLite replays; only a crash of the
            # machine could corrupt the file, and then it is created again.
            db.execute("PRAGMA synchronous = OFF")
            db.execute(_SCHEMA)
        return self._connection

    def _remove(self) -> None:
        for suffix in ("", "-journal"):
            with contextlib.suppress(OSError):
                os.unlink(self.path + suffix)


_COLUMNS = ", ".join(Entry._fields)
_SCHEMA = f"CREATE TABLE IF NOT EXISTS entry ({_COLUMNS}, PRIMARY KEY (path))"
_INSERT = f"INSERT OR REPLACE INTO entry VALUES ({', '.join('?' * len(Entry._fields))})"
# SQLite's codes for problems caused by another process or the disk: PERM, BUSY, LOCKED, READONLY,
# IOERR, FULL, CANTOPEN. Creating the file again would not help.
_PASSING = frozenset((3, 5, 6, 8, 10, 13, 14))


def _encodes(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _write(db: sqlite3.Connection, rows: list[Entry], gone: list[tuple[str]]) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        db.executemany(_INSERT, rows)
        db.executemany("DELETE FROM entry WHERE path = ?", gone)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
