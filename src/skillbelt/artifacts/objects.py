"""Artifacts in an object store: S3 and compatible ones, through obstore.

A number is claimed by a put that fails if the object exists. Below each name there are
`versions/<number>`, the records, of which an empty one is a deletion mark, and
`data/<epoch>/<hash>`, the bytes. The epoch is the number after the last deletion mark.

Saving and deleting need no lock. A saver checks for new marks after it claimed its number, and
starts again when there is one. A deleter checks for new records after it wrote its mark, and then
removes only bytes of epochs up to that mark which no record needs. So one of the two always sees
the other.
"""

from __future__ import annotations

import hashlib
import io
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

from skillbelt.artifacts.protocol import (
    CHUNK,
    DEFAULT_MIME,
    Artifact,
    check_mime,
    check_name,
    chunks,
    decoded,
    digest,
    encoded,
    is_version,
    log_damaged,
    missing,
    owner,
    owners,
    refuse_damaged,
)
from skillbelt.errors import ArtifactError
from skillbelt.metrics import count
from skillbelt.objects.remote import load_obstore
from skillbelt.store.protocol import SessionKey

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_IN_MEMORY = 8 * CHUNK  # larger uploads are buffered in a file
_READ_AHEAD = 4 * CHUNK
_PARTS_AT_ONCE = 4  # each is 5 MiB in memory
_DIGITS = 19  # so that names sort like numbers


class _Claim(NamedTuple):
    """A version number that was used. `live` is false for a deletion mark."""

    number: int
    path: str
    live: bool


class ObjectArtifacts:
    """Artifacts in an obstore store. Equal versions of one name share their bytes."""

    def __init__(self, store: ObjectStore, prefix: str = "") -> None:
        _obstore()
        self._store = store
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    @classmethod
    def from_url(cls, url: str, **config: Any) -> ObjectArtifacts:
        """Open the store at `s3://bucket/prefix` or the like; `config` is passed to obstore."""
        obstore = _obstore()
        with _convert_errors(f"{url} cannot be used for artifacts"):
            return cls(obstore.store.from_url(url, **config))

    def save(
        self, key: SessionKey, name: str, data: bytes | BinaryIO, mime: str = DEFAULT_MIME
    ) -> Artifact:
        """Store the bytes, or the rest of the file, as the next version: all or nothing."""
        folder = self._prefix_of(key, check_name(name))
        check_mime(mime)
        with (
            _convert_errors(f"artifact {name!r} cannot be kept"),
            tempfile.SpooledTemporaryFile(_IN_MEMORY) as file,
        ):
            hashed, size = hashlib.sha256(), 0
            for chunk in chunks(data):
                hashed.update(chunk)
                size += file.write(chunk)
            known = Artifact(
                name=name,
                version=0,
                size=size,
                sha256=hashed.hexdigest(),
                mime=mime,
                time=time.time(),
            )
            return self._save(folder, known, cast(BinaryIO, file))

    def find(self, key: SessionKey, name: str, version: int | None = None) -> Artifact:
        """Return the entry of a version; of the newest when none is given."""
        return self._find(key, name, version)[1]

    def open(self, key: SessionKey, name: str, version: int | None = None) -> BinaryIO:
        """Open the bytes of a version for reading. The caller closes the file."""
        epoch, found = self._find(key, name, version)
        blob = _Blob(self._store, _data(self._prefix_of(key, name), epoch, found.sha256), found)
        return io.BufferedReader(blob, _READ_AHEAD)

    def latest(self, key: SessionKey) -> list[Artifact]:
        """Return the newest version of each artifact the session sees, in order of their names."""
        newest: list[Artifact] = []
        with _convert_errors("the artifacts cannot be listed"):
            for folder in self._folders(key):
                for _, found in self._records(reversed(self._claims(folder))):
                    newest.append(found)
                    break
        return sorted(newest)

    def damaged(self, key: SessionKey) -> list[str]:
        """Return the session's records that cannot be read."""
        paths: list[str] = []
        with _convert_errors("the artifacts cannot be listed"):
            for folder in self._folders(key):
                claims = self._claims(folder)
                list(self._records(claims, damaged=lambda path, _: paths.append(path)))
        return sorted(paths)

    def versions(self, key: SessionKey, name: str) -> list[Artifact]:
        """Return all existing versions, oldest first; none for a name that does not exist."""
        folder = self._prefix_of(key, check_name(name))
        with _convert_errors(f"artifact {name!r} cannot be read"):
            claims = self._claims(folder)
            return [found for _, found in self._records(claims, damaged=refuse_damaged)]

    def delete(self, key: SessionKey, name: str) -> bool:
        """Delete every version of it; return whether there was one."""
        folder = self._prefix_of(key, check_name(name))
        with _convert_errors(f"artifact {name!r} cannot be deleted"):
            claims = self._claims(folder)
            if not claims:
                return False
            *others, last = claims
            self._store.put(last.path, b"")
            self._remove(claim.path for claim in others)
            left = self._records(self._claims(folder))
            needed = {_data(folder, epoch, found.sha256) for epoch, found in left}
            blobs = [path for path, _ in self._list(f"{folder}/data")]
            passed = (path for path in blobs if int(path.split("/")[-2]) <= last.number)
            self._remove(path for path in passed if path not in needed)
        return any(claim.live for claim in claims)

    def _save(self, folder: str, known: Artifact, file: BinaryIO) -> Artifact:
        while True:
            claims = self._claims(folder)
            epoch = _epoch(claims)
            blob = _data(folder, epoch, known.sha256)
            if self._size(blob) != known.size:
                file.seek(0)
                self._store.put(blob, file, max_concurrency=_PARTS_AT_ONCE)
            first = claims[-1].number + 1 if claims else 0
            artifact = self._claim(folder, epoch, known._replace(version=first))
            if _epoch(self._claims(folder)) == epoch:
                return artifact
            self._store.put(_record(folder, artifact.version), b"")

    def _claim(self, folder: str, epoch: int, wanted: Artifact) -> Artifact:
        """Return the artifact with the first free version number, starting at the wanted one."""
        taken = _obstore().exceptions.AlreadyExistsError
        while True:
            record = b"%d\n" % epoch + encoded(wanted)
            try:
                self._store.put(_record(folder, wanted.version), record, mode="create")
            except taken:
                wanted = wanted._replace(version=wanted.version + 1)
            else:
                return wanted

    def _find(self, key: SessionKey, name: str, version: int | None) -> tuple[int, Artifact]:
        """Return the version, and the epoch of its bytes."""
        folder = self._prefix_of(key, check_name(name))
        with _convert_errors(f"artifact {name!r} cannot be read"):
            if version is None:
                wanted = self._claims(folder)[::-1]
            else:
                numbers = filter(is_version, [version])
                wanted = [_Claim(number, _record(folder, number), True) for number in numbers]
            for found in self._records(wanted, damaged=refuse_damaged):
                return found
        raise missing(name, version)

    def _records(
        self,
        claims: Iterable[_Claim],
        *,
        damaged: Callable[[str, ArtifactError], object] = log_damaged,
    ) -> Iterator[tuple[int, Artifact]]:
        """Yield the records that exist, each with the epoch of its bytes.

        A damaged record is left out, after `damaged` was called with its path.
        """
        for claim in claims:
            if claim.live:
                with suppress(FileNotFoundError):
                    epoch, _, record = bytes(self._store.get(claim.path).bytes()).partition(b"\n")
                    if not record:
                        continue
                    try:
                        found = decoded(record)
                    except ArtifactError as error:
                        damaged(claim.path, error)
                    else:
                        yield int(epoch), found

    def _claims(self, folder: str) -> list[_Claim]:
        """Return every version number that was used and is still known, in order."""
        listed = self._list(f"{folder}/versions")
        return sorted(_Claim(int(path[-_DIGITS:]), path, size > 0) for path, size in listed)

    def _folders(self, key: SessionKey) -> Iterator[str]:
        for whose in owners(key):
            scope = f"{self._prefix}{digest(*whose)}"
            yield from self._store.list_with_delimiter(scope)["common_prefixes"]

    def _list(self, prefix: str) -> Iterator[tuple[str, int]]:
        for page in self._store.list(prefix, chunk_size=1000):
            yield from ((one["path"], one["size"]) for one in page)

    def _size(self, path: str) -> int | None:
        try:
            return self._store.head(path)["size"]
        except FileNotFoundError:
            return None

    def _remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError):
                self._store.delete(path)

    def _prefix_of(self, key: SessionKey, name: str) -> str:
        return f"{self._prefix}{digest(*owner(key, name))}/{digest(name)}"


class _Blob(io.RawIOBase):
    """The bytes of an artifact, fetched as they are read."""

    def __init__(self, store: ObjectStore, path: str, artifact: Artifact) -> None:
        super().__init__()
        self._store, self._path, self._artifact = store, path, artifact
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        length = min(len(buffer), self._artifact.size - self._at)
        if length <= 0:
            return 0
        with _convert_errors(f"artifact {self._artifact.name!r} cannot be read"):
            data = self._store.get_range(self._path, start=self._at, length=length)
        buffer[: len(data)] = memoryview(data)
        self._at += len(data)
        return len(data)


def _epoch(claims: list[_Claim]) -> int:
    return max((claim.number + 1 for claim in claims if not claim.live), default=0)


def _record(folder: str, number: int) -> str:
    return f"{folder}/versions/{number:0{_DIGITS}}"


def _data(folder: str, epoch: int, sha256: str) -> str:
    return f"{folder}/data/{epoch}/{sha256}"


def _obstore() -> Any:
    return load_obstore("keeping artifacts in an object store")


@contextmanager
def _convert_errors(what: str) -> Iterator[None]:
    failed = _obstore().exceptions.BaseError
    try:
        yield
    except (failed, OSError, ValueError) as error:
        count("object_store_errors", operation="artifacts")
        reason = str(error).strip().partition("\n")[0]
        raise ArtifactError(f"{what}: {reason}") from error
