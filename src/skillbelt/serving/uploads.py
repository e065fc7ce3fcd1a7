"""What each user has uploaded, counted in the store, so that all servers keep one bound.

An upload is entered before it is kept. Who enters one has a lease, so that of several at once as
many pass as fit. Entries of artifacts that are gone by another way are found when there is no room.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
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
# So many of a user are counted; their entries are read for each upload.
MAX_UPLOADS = 10_000
_KEEPING_SECONDS = 3600.0
# How long the book stays taken after the server of an upload died, and how long others wait.
_LEASE_SECONDS, _PATIENCE_SECONDS, _LOOK_SECONDS = 5.0, 30.0, 0.5
_CROWDED = "too many uploads at once; try again later"
_SHARED = "user:"  # artifacts that belong to no one session


class _Upload(NamedTuple):
    """An entry; `version` is -1 until the artifact is kept."""

    session: str
    name: str
    size: int
    time: float
    version: int = -1


class UploadBook:
    """The uploads of one user of an app. `kept` is where the artifacts are."""

    def __init__(self, store: Store, key: SessionKey, kept: ArtifactStore, limits: Limits) -> None:
        self._store, self._key, self._kept, self._limits = store, key, kept, limits
        self._place = SessionKey(UPLOADS, json.dumps([key.app, key.user]), "")

    def save(self, name: str, file: BinaryIO, mime: str) -> Artifact:
        """Keep an upload as an artifact; HttpRefusal when it does not fit."""
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        session = "" if name.startswith(_SHARED) else self._key.session
        id, entry = os.urandom(8).hex(), _Upload(session, name, size, self._store.now())
        self.check_room(size)
        self._enter(id, entry)
        try:
            kept = self._kept.save(self._key, name, file, mime)
        except BaseException:
            self._store.append(self._place, [], {id: None})
            raise
        self._store.append(self._place, [], {id: json.dumps(entry._replace(version=kept.version))})
        return kept

    def forget(self, name: str) -> None:
        """Count the versions of an artifact no more."""
        session = "" if name.startswith(_SHARED) else self._key.session
        self._drop(lambda one: one.name == name and one.session == session)

    def forget_session(self) -> None:
        """Count nothing of the session any more."""
        self._drop(lambda one: one.session == self._key.session)

    def check_room(self, size: int) -> int:
        """Return how many bytes there is room for; HttpRefusal when `size` are too many."""
        try:
            return self._find_room(size)
        except HttpRefusal:
            if not self._drop(self._is_gone):
                raise
        return self._find_room(size)

    def _enter(self, id: str, entry: _Upload) -> None:
        with self._alone() as number:
            self._find_room(entry.size)
            try:
                self._store.append(self._place, [], {id: json.dumps(entry)}, lease=number)
            except LeaseLost:
                raise HttpRefusal("busy", _CROWDED) from None

    @contextmanager
    def _alone(self) -> Iterator[str]:
        """Have the book for a block, before all other servers; yield the number of the lease."""
        number, until = os.urandom(16).hex(), time.monotonic() + _PATIENCE_SECONDS
        with closing(self._store.watch(lease_topic(self._place))) as watch:
            while (
                self._store.take_lease(self._place, number, "an upload", _LEASE_SECONDS).number
                != number
            ):
                if time.monotonic() > until:
                    raise HttpRefusal("busy", _CROWDED)
                watch.wait(_LOOK_SECONDS)
        try:
            yield number
        finally:
            self._store.release_lease(self._place, number)

    def _find_room(self, size: int) -> int:
        found = self._read().values()
        used, bound = sum(one.size for one in found), self._limits.max_upload_bytes
        if len(found) >= MAX_UPLOADS:
            said = f"all {MAX_UPLOADS} uploads that a user may have are used; delete artifacts"
            raise HttpRefusal("over_quota", said)
        if used + size > bound:
            said = f"{size} bytes do not fit: {used} of {bound} are used (max_upload_bytes)"
            said += "; delete artifacts, or have the setting of the server raised"
            raise HttpRefusal("over_quota", said)
        return bound - used

    def _is_gone(self, one: _Upload) -> bool:
        if one.version < 0:  # it is being kept, unless the server ended before it was
            return one.time < self._store.now() - _KEEPING_SECONDS
        key = self._key._replace(session=one.session or self._key.session)
        try:
            self._kept.find(key, one.name, one.version)
        except ArtifactError:
            return True
        return False

    def _drop(self, chosen: Callable[[_Upload], bool]) -> bool:
        """Delete the chosen entries; return whether there were any."""
        gone = {id: None for id, one in self._read().items() if chosen(one)}
        if gone:
            self._store.append(self._place, [], gone)
        return bool(gone)

    def _read(self) -> dict[str, _Upload]:
        found = {}
        for id, text in self._store.state(self._place).items():
            with suppress(BadJson, TypeError, ValueError):
                found[id] = _Upload(*read_json(text))
        return found
