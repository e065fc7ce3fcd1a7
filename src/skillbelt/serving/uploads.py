"""The upload quota of each user, counted in the store, so that all servers share one bound.

An upload is counted before it is stored. The server that counts it holds a lease, so that of
several uploads at once as many pass as fit. Entries of artifacts that were deleted in another way
are detected when there is no room.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import BinaryIO, NamedTuple

from skillbelt.artifacts.protocol import Artifact, ArtifactStore
from skillbelt.errors import ArtifactError, LeaseLost
from skillbelt.serving.answers import HttpRefusal
from skillbelt.store import SessionKey, Store
from skillbelt.store.protocol import lease_topic
from skillbelt.untrusted_json import BadJson, read_json
from skillbelt.values import Limits

UPLOADS = "skillbelt:uploads"
# The most uploads of one user that are counted.
MAX_UPLOADS = 10_000
_KEEPING_SECONDS = 3600.0
# The lease on the book, in case the server of an upload dies, and how long others wait for it.
_LEASE_SECONDS, _PATIENCE_SECONDS, _LOOK_SECONDS = 5.0, 30.0, 0.5
_CROWDED = "too many uploads at once; try again later"
_OVER, _SUMS = "over_quota", "sums"
_SHARED = "user:"  # artifacts of all sessions of the user


class _Upload(NamedTuple):
    """An entry; `version` is -1 until the artifact is stored."""

    session: str
    name: str
    size: int
    time: float
    version: int = -1


class _Sums(NamedTuple):
    """The number of uploads of a user, and their bytes: at least the sum of the entries."""

    uploads: int = 0
    bytes: int = 0


class UploadBook:
    """The uploads of one user of an app. `kept` is the artifact store.

    The sums are stored beside the entries, so that an upload does not read all entries. They are
    raised before an entry is added, and recounted when there is no room.
    """

    def __init__(self, store: Store, key: SessionKey, kept: ArtifactStore, limits: Limits) -> None:
        self._store, self._key, self._kept, self._limits = store, key, kept, limits
        self._place = SessionKey(UPLOADS, json.dumps([key.app, key.user]), "")
        self._sums = self._place._replace(session=_SUMS)

    def save(self, name: str, file: BinaryIO, mime: str) -> Artifact:
        """Store an upload as an artifact; HttpRefusal when it does not fit."""
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        session = "" if name.startswith(_SHARED) else self._key.session
        id, entry = os.urandom(8).hex(), _Upload(session, name, size, self._store.now())
        try:
            self._enter(id, entry)
        except HttpRefusal as error:
            if error.kind != _OVER:
                raise
            self._drop(self._is_gone)
            self._enter(id, entry)
        try:
            kept = self._kept.save(self._key, name, file, mime)
        except BaseException:
            self._delete([id])
            raise
        self._store.append(self._place, [], {id: json.dumps(entry._replace(version=kept.version))})
        return kept

    def forget(self, name: str) -> None:
        """Stop counting the versions of an artifact."""
        session = "" if name.startswith(_SHARED) else self._key.session
        self._drop(lambda one: one.name == name and one.session == session)

    def forget_session(self) -> None:
        """Stop counting the uploads of the session."""
        self._drop(lambda one: one.session == self._key.session)

    def check_room(self, size: int) -> int:
        """Return how many bytes there is room for; HttpRefusal when `size` are too many."""
        try:
            return self._find_room(size)
        except HttpRefusal:
            self._drop(self._is_gone)
        return self._find_room(size)

    def _enter(self, id: str, entry: _Upload) -> None:
        with self._lock() as number:
            self._find_room(entry.size)
            found = self._read_sums()
            self._write_sums(_Sums(found.uploads + 1, found.bytes + entry.size), number)
            self._store.append(self._place, [], {id: json.dumps(entry)})

    def _find_room(self, size: int) -> int:
        used, bound = self._read_sums(), self._limits.max_upload_bytes
        if used.uploads >= MAX_UPLOADS:
            said = f"all {MAX_UPLOADS} uploads that a user may have are used; delete artifacts"
            raise HttpRefusal(_OVER, said)
        if used.bytes + size > bound:
            said = f"{size} bytes do not fit: {used.bytes} of {bound} are used (max_upload_bytes)"
            said += "; delete artifacts, or have the setting of the server raised"
            raise HttpRefusal(_OVER, said)
        return bound - used.bytes

    def _is_gone(self, one: _Upload) -> bool:
        if one.version < 0:  # it is being stored, unless the server ended before
            return one.time < self._store.now() - _KEEPING_SECONDS
        key = self._key._replace(session=one.session or self._key.session)
        try:
            self._kept.find(key, one.name, one.version)
        except ArtifactError:
            return True
        return False

    def _drop(self, chosen: Callable[[_Upload], bool]) -> None:
        """Delete the chosen entries, and recount the others."""
        self._delete([id for id, one in self._read().items() if chosen(one)])

    def _delete(self, ids: Sequence[str]) -> None:
        with self._lock() as number:
            if ids:
                self._store.append(self._place, [], dict.fromkeys(ids))
            self._write_sums(self._count(), number)

    def _count(self) -> _Sums:
        found = self._read().values()
        return _Sums(len(found), sum(one.size for one in found))

    @contextmanager
    def _lock(self) -> Iterator[str]:
        """Lock the book against other servers for the block; yield the number of the lease."""
        number, until = os.urandom(16).hex(), time.monotonic() + _PATIENCE_SECONDS
        with closing(self._store.watch(lease_topic(self._sums))) as watch:
            while (
                self._store.take_lease(self._sums, number, "an upload", _LEASE_SECONDS).number
                != number
            ):
                if time.monotonic() > until:
                    raise HttpRefusal("busy", _CROWDED)
                watch.wait(_LOOK_SECONDS)
        try:
            yield number
        finally:
            self._store.release_lease(self._sums, number)

    def _read(self) -> dict[str, _Upload]:
        found = {}
        for id, text in self._store.state(self._place).items():
            with suppress(BadJson, TypeError, ValueError):
                found[id] = _Upload(*read_json(text))
        return found

    def _read_sums(self) -> _Sums:
        with suppress(KeyError, BadJson, TypeError, ValueError):
            return _Sums(*map(int, read_json(self._store.state(self._sums)[_SUMS])))
        return self._count()

    def _write_sums(self, sums: _Sums, number: str) -> None:
        try:
            self._store.append(self._sums, [], {_SUMS: json.dumps(sums)}, lease=number)
        except LeaseLost:
            raise HttpRefusal("busy", _CROWDED) from None
