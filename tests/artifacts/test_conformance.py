"""The suite must notice a store that breaks a promise: each store here breaks one."""

from __future__ import annotations

import inspect
import io
import time
from typing import BinaryIO

import pytest

from skillbelt.artifacts import Artifact
from skillbelt.artifacts.conformance import ArtifactStoreConformance
from skillbelt.artifacts.memory import MemoryArtifacts
from skillbelt.artifacts.protocol import DEFAULT_MIME, missing
from skillbelt.errors import ArtifactError
from skillbelt.store import SessionKey

Data = bytes | BinaryIO
Mime = str


class FromOne(MemoryArtifacts):
    """Counts from 1."""

    def save(self, key: SessionKey, name: str, data: Data, mime: Mime = DEFAULT_MIME) -> Artifact:
        saved = super().save(key, name, data, mime)
        return saved._replace(version=saved.version + 1)


class Reusing(MemoryArtifacts):
    """Counts from 0 again after a delete."""

    def delete(self, key: SessionKey, name: str) -> bool:
        gone = super().delete(key, name)
        self._next.clear()
        return gone


class Overwriting(MemoryArtifacts):
    """Has one version only."""

    def save(self, key: SessionKey, name: str, data: Data, mime: Mime = DEFAULT_MIME) -> Artifact:
        super().delete(key, name)
        self._next.clear()
        return super().save(key, name, data, mime)


class AsText(MemoryArtifacts):
    """Takes everything for text."""

    def open(self, key: SessionKey, name: str, version: int | None = None) -> BinaryIO:
        data = super().open(key, name, version).read()
        return io.BytesIO(data.decode("utf-8", "replace").replace("\r\n", "\n").encode())


class Folding(MemoryArtifacts):
    """Names that differ in case are one."""

    def save(self, key: SessionKey, name: str, data: Data, mime: Mime = DEFAULT_MIME) -> Artifact:
        return super().save(key, name.lower(), data, mime)

    def find(self, key: SessionKey, name: str, version: int | None = None) -> Artifact:
        return super().find(key, name.lower(), version)


class ByText(MemoryArtifacts):
    """Compares numbers as text."""

    def versions(self, key: SessionKey, name: str) -> list[Artifact]:
        return sorted(super().versions(key, name), key=lambda one: str(one.version))

    def latest(self, key: SessionKey) -> list[Artifact]:
        return [self.versions(key, one.name)[-1] for one in super().latest(key)]


class OneUser(MemoryArtifacts):
    """All sessions share everything."""

    def save(self, key: SessionKey, name: str, data: Data, mime: Mime = DEFAULT_MIME) -> Artifact:
        return super().save(SessionKey("", "", ""), name, data, mime)

    def find(self, key: SessionKey, name: str, version: int | None = None) -> Artifact:
        return super().find(SessionKey("", "", ""), name, version)

    def open(self, key: SessionKey, name: str, version: int | None = None) -> BinaryIO:
        return super().open(SessionKey("", "", ""), name, version)


class NoSharing(MemoryArtifacts):
    """Knows no names of the user."""

    def save(self, key: SessionKey, name: str, data: Data, mime: Mime = DEFAULT_MIME) -> Artifact:
        own = name.replace("user:", "user;")
        return super().save(key, own, data, mime)._replace(name=name)


class Joined(MemoryArtifacts):
    """The parts of a key run together."""

    def save(self, key: SessionKey, name: str, data: Data, mime: Mime = DEFAULT_MIME) -> Artifact:
        return super().save(SessionKey("", "", "/".join(key)), name, data, mime)

    def find(self, key: SessionKey, name: str, version: int | None = None) -> Artifact:
        return super().find(SessionKey("", "", "/".join(key)), name, version)

    def open(self, key: SessionKey, name: str, version: int | None = None) -> BinaryIO:
        return super().open(SessionKey("", "", "/".join(key)), name, version)


class Whole(MemoryArtifacts):
    """Reads a file at once."""

    def save(self, key: SessionKey, name: str, data: Data, mime: Mime = DEFAULT_MIME) -> Artifact:
        return super().save(key, name, data if isinstance(data, bytes) else data.read(), mime)


class FromTheStart(MemoryArtifacts):
    """Rewinds a file."""

    def save(self, key: SessionKey, name: str, data: Data, mime: Mime = DEFAULT_MIME) -> Artifact:
        if isinstance(data, io.BytesIO):
            data.seek(0)
        return super().save(key, name, data, mime)


class Partial(MemoryArtifacts):
    """Keeps what came before a file failed."""

    def save(self, key: SessionKey, name: str, data: Data, mime: Mime = DEFAULT_MIME) -> Artifact:
        try:
            return super().save(key, name, data, mime)
        except ArtifactError:
            super().save(key, name, b"a part", mime)
            raise


class Newest(MemoryArtifacts):
    """A file that is open shows what was saved last."""

    def open(self, key: SessionKey, name: str, version: int | None = None) -> BinaryIO:
        class Late(io.BytesIO):
            def read(late, size: int | None = -1, /) -> bytes:
                return MemoryArtifacts.open(self, key, name).read(-1 if size is None else size)

        MemoryArtifacts.find(self, key, name, version)
        return Late()


class Undying(MemoryArtifacts):
    """Deletes nothing."""

    def delete(self, key: SessionKey, name: str) -> bool:
        return bool(self.versions(key, name))


class Greedy(MemoryArtifacts):
    """Deletes bytes that another name shares."""

    def delete(self, key: SessionKey, name: str) -> bool:
        hashes = {one.sha256 for one in self.versions(key, name)}
        gone = super().delete(key, name)
        for sha256 in hashes & self._blobs.keys():
            self._blobs[sha256] = b""
        return gone


class Unsorted(MemoryArtifacts):
    """Lists in another order."""

    def latest(self, key: SessionKey) -> list[Artifact]:
        return super().latest(key)[::-1]


class Racing(MemoryArtifacts):
    """Looks for a number first and takes it later."""

    def save(self, key: SessionKey, name: str, data: Data, mime: Mime = DEFAULT_MIME) -> Artifact:
        number = len(self.versions(key, name))
        time.sleep(0.002)
        return super().save(key, name, data, mime)._replace(version=number)


class Lenient(MemoryArtifacts):
    """Takes a name or a type that cannot be shown."""

    def save(self, key: SessionKey, name: str, data: Data, mime: Mime = DEFAULT_MIME) -> Artifact:
        try:
            return super().save(key, name, data, mime)
        except ArtifactError:
            return super().save(key, "other", data)


class Quiet(MemoryArtifacts):
    """Gives another version when the wanted one is not there."""

    def find(self, key: SessionKey, name: str, version: int | None = None) -> Artifact:
        try:
            return super().find(key, name, version)
        except ArtifactError:
            return super().find(key, name)


class Timeless(MemoryArtifacts):
    """Knows neither time nor type."""

    def save(self, key: SessionKey, name: str, data: Data, mime: Mime = DEFAULT_MIME) -> Artifact:
        return super().save(key, name, data)._replace(time=0.0)


class Forgetful(MemoryArtifacts):
    """Finds nothing by a number."""

    def find(self, key: SessionKey, name: str, version: int | None = None) -> Artifact:
        if version is not None:
            raise missing(name, version)
        return super().find(key, name)


class Asking(MemoryArtifacts):
    """Makes an artifact when asked about one."""

    def versions(self, key: SessionKey, name: str) -> list[Artifact]:
        found = super().versions(key, name)
        if not found:
            self.save(key, name, b"")
        return found


BROKEN = [store for store in MemoryArtifacts.__subclasses__() if store.__module__ == __name__]
SUITE = [
    test for name, test in inspect.getmembers(ArtifactStoreConformance) if name.startswith("test_")
]


def failures(make: type[MemoryArtifacts]) -> list[str]:
    failed = []
    for test in SUITE:
        try:
            test(ArtifactStoreConformance(), make())
        except (AssertionError, ArtifactError, OSError, ValueError, LookupError):
            failed.append(test.__name__)
    return failed


@pytest.mark.parametrize("broken", BROKEN, ids=lambda store: store.__name__)
def test_the_suite_notices(broken: type[MemoryArtifacts]) -> None:
    assert failures(broken) != []


def test_the_suite_passes_a_store_that_keeps_every_promise() -> None:
    assert failures(MemoryArtifacts) == []


@pytest.mark.long
def test_every_test_of_the_suite_can_fail() -> None:
    noticed = {name for broken in BROKEN for name in failures(broken)}
    assert {test.__name__ for test in SUITE} - noticed == set()
