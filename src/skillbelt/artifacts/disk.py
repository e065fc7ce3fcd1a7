"""Artifacts in a folder that all processes of a user share.

A version claims its number by creating the link `<number>.data`, then the record `<number>.json`
beside it, which makes it visible. The data is one more hard link to the blob of its hash, so a blob
with no other links is unused: no locks are needed, and a process that dies halfway leaves nothing
visible.
"""

import errno
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import BinaryIO

from skillbelt.artifacts.protocol import (
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
from skillbelt.files.contain import FOLLOW_FOLDER, NEW_FILE, READ_FILE
from skillbelt.files.private import make_folder
from skillbelt.store.protocol import SessionKey

# After this long, an unfinished file was left by a process that died.
_STALE_SECONDS = 24 * 3600.0


class DiskArtifacts:
    """Artifacts below a folder, which is created by the first save, for its user alone."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = os.path.abspath(folder)
        self._swept = False

    def save(
        self, key: SessionKey, name: str, data: bytes | BinaryIO, mime: str = DEFAULT_MIME
    ) -> Artifact:
        """Store the bytes, or the rest of the file, as the next version: all or nothing."""
        check_name(name)
        check_mime(mime)
        with _convert_errors(f"artifact {name!r} cannot be kept"):
            self._prepare()
            with self._part() as part:
                sha256, size = _write(part, chunks(data))
                with self._share_blob(part, sha256) as blob:
                    known = Artifact(
                        name=name, version=0, size=size, sha256=sha256, mime=mime, time=time.time()
                    )
                    return self._record_version(self._folder_of(key, name), blob, known)

    def find(self, key: SessionKey, name: str, version: int | None = None) -> Artifact:
        """Return the entry of a version; of the newest when none is given."""
        folder = self._folder_of(key, check_name(name))
        with _convert_errors(f"artifact {name!r} cannot be read"):
            numbers = _newest_first(folder) if version is None else [version]
            for found in _records(folder, numbers, damaged=refuse_damaged):
                return found
        raise missing(name, version)

    def open(self, key: SessionKey, name: str, version: int | None = None) -> BinaryIO:
        """Open the bytes of a version for reading. The caller closes the file."""
        found = self.find(key, name, version)
        with _convert_errors(f"artifact {name!r} cannot be read"), suppress(FileNotFoundError):
            path = f"{self._folder_of(key, name)}/{found.version}.data"
            handle = os.open(path, READ_FILE)
            # An empty file reserves a number that was deleted a moment ago.
            if os.fstat(handle).st_size == found.size:
                return os.fdopen(handle, "rb")
            os.close(handle)
        raise missing(name, found.version)

    def latest(self, key: SessionKey) -> list[Artifact]:
        """Return the newest version of each artifact the session sees, in order of their names."""
        newest: list[Artifact] = []
        with _convert_errors("the artifacts cannot be listed"):
            for folder in self._folders(key):
                newest += islice(_records(folder, _newest_first(folder)), 1)
        return sorted(newest)

    def damaged(self, key: SessionKey) -> list[str]:
        """Return the files of the session's records that cannot be read."""
        paths: list[str] = []
        with _convert_errors("the artifacts cannot be listed"):
            for folder in self._folders(key):
                numbers = _numbers(folder, ".json")
                list(_records(folder, numbers, damaged=lambda path, _: paths.append(path)))
        return sorted(paths)

    def versions(self, key: SessionKey, name: str) -> list[Artifact]:
        """Return all existing versions, oldest first; none for a name that does not exist."""
        folder = self._folder_of(key, check_name(name))
        with _convert_errors(f"artifact {name!r} cannot be read"):
            return list(_records(folder, _numbers(folder, ".json"), damaged=refuse_damaged))

    def delete(self, key: SessionKey, name: str) -> bool:
        """Delete every version of it; return whether there was one."""
        folder = self._folder_of(key, check_name(name))
        with _convert_errors(f"artifact {name!r} cannot be deleted"):
            numbers = _numbers(folder, ".json")
            gone = list(_records(folder, numbers))
            # Not before: the last number must be no lower than any that is removed.
            claims = _numbers(folder, ".data")
            hashes = {found.version: found.sha256 for found in gone}
            hashes |= _list_abandoned(folder, claims[:-1])
            lost = _hashes(folder, (number for number in numbers if number not in hashes))
            hashes |= lost
            for number, sha256 in hashes.items():
                self._forget(folder, number, last=number == claims[-1])
                _drop(self._blob(sha256))
        return bool(gone or lost)

    def _prepare(self) -> None:
        make_folder(os.path.dirname(self.folder))
        make_folder(self.folder)
        for name in ("new", "kept", "blobs"):
            _make_folder(f"{self.folder}/{name}")
        if not self._swept:
            self._swept = True
            self._sweep()

    def _sweep(self) -> None:
        """Remove the unfinished files of processes that died."""
        folder = f"{self.folder}/new"
        for name in os.listdir(folder):
            if _is_stale(f"{folder}/{name}"):
                _unlink(f"{folder}/{name}")
                _drop(self._blob(name.rpartition("-")[2]))

    @contextmanager
    def _part(self) -> Iterator[str]:
        """Yield a path for a temporary file; remove the file at the end if it still exists."""
        path = f"{self.folder}/new/{os.urandom(16).hex()}"
        try:
            yield path
        finally:
            _unlink(path)

    @contextmanager
    def _share_blob(self, part: str, sha256: str) -> Iterator[tuple[str, str]]:
        """Yield the blob of these bytes, and our own link to it that no other process removes."""
        # The name tells `_sweep` which blob may be left without a user.
        own, blob = f"{part}-{sha256}", self._blob(sha256)
        try:
            os.rename(part, own)
            _make_folder(os.path.dirname(blob))
            with suppress(FileExistsError):
                os.link(own, blob)
            yield blob, own
        finally:
            _unlink(own)

    def _record_version(self, folder: str, sources: tuple[str, str], known: Artifact) -> Artifact:
        """Claim a number and write the record; return the artifact."""
        for path in (os.path.dirname(folder), folder):
            _make_folder(path)
        artifact = known._replace(version=_claim(folder, *sources))
        try:
            with self._part() as part:
                _write(part, iter((encoded(artifact),)))
                os.rename(part, f"{folder}/{artifact.version}.json")
            _sync_folder(folder)
        except BaseException:
            with suppress(OSError):
                self._forget(folder, artifact.version, last=True)
            raise
        return artifact

    def _forget(self, folder: str, number: int, *, last: bool) -> None:
        """Remove a version. An empty file keeps the last number, so that it is not used again."""
        _unlink(f"{folder}/{number}.json")
        if not last:
            _unlink(f"{folder}/{number}.data")
            return
        with self._part() as part:
            os.close(os.open(part, NEW_FILE, 0o600))
            os.rename(part, f"{folder}/{number}.data")

    def _folder_of(self, key: SessionKey, name: str) -> str:
        return f"{self.folder}/kept/{digest(*owner(key, name))}/{digest(name)}"

    def _folders(self, key: SessionKey) -> Iterator[str]:
        for whose in owners(key):
            folder = f"{self.folder}/kept/{digest(*whose)}"
            with suppress(FileNotFoundError):
                yield from [f"{folder}/{name}" for name in os.listdir(folder)]

    def _blob(self, sha256: str) -> str:
        return f"{self.folder}/blobs/{sha256[:2]}/{sha256}"


@contextmanager
def _convert_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArtifactError(f"{what}: {error.strerror or error}") from error


def _write(path: str, data: Iterator[bytes]) -> tuple[str, int]:
    """Write the data to disk; return its hash and size."""
    hashed, size = hashlib.sha256(), 0
    with open(os.open(path, NEW_FILE, 0o600), "wb", buffering=0) as file:
        for chunk in data:
            hashed.update(chunk)
            size += len(chunk)
            _write_all(file.fileno(), chunk)
        os.fsync(file.fileno())
    return hashed.hexdigest(), size


def _write_all(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def _claim(folder: str, blob: str, own: str) -> int:
    """Claim a version number that was never used before, and link the data to it."""
    number = _numbers(folder, ".data")[-1:] or [-1]
    version, source = number[0] + 1, blob
    while True:
        try:
            os.link(source, f"{folder}/{version}.data")
        except FileExistsError:
            version += 1
        except OSError as error:
            # The blob was just removed, or has as many links as the disk allows.
            if source == own or error.errno not in (errno.ENOENT, errno.EMLINK):
                raise
            source = own
        else:
            return version


def _numbers(folder: str, ending: str) -> list[int]:
    """Return the numbers with a file of that kind, in order."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [name.removesuffix(ending) for name in names if name.endswith(ending)]
    return sorted(int(number) for number in found if number.isdigit())


def _newest_first(folder: str) -> list[int]:
    return _numbers(folder, ".json")[::-1]


def _records(
    folder: str,
    numbers: Iterable[int],
    *,
    damaged: Callable[[str, ArtifactError], object] = log_damaged,
) -> Iterator[Artifact]:
    """Yield the records of these numbers that exist; one may disappear at any time.

    A damaged record is left out, after `damaged` was called with its path.
    """
    for number in filter(is_version, numbers):
        path = f"{folder}/{number}.json"
        try:
            with open(path, "rb") as file:
                found = decoded(file.read())
        except FileNotFoundError:
            continue
        except ArtifactError as error:
            damaged(path, error)
        else:
            yield found


def _list_abandoned(folder: str, claims: list[int]) -> dict[int, str]:
    """Return the numbers without a record whose writer has died, with the data's hash."""
    without = set(claims) - set(_numbers(folder, ".json"))
    return _hashes(folder, (number for number in without if _is_stale(f"{folder}/{number}.data")))


def _hashes(folder: str, numbers: Iterable[int]) -> dict[int, str]:
    """Return the hash of the data of each number that has data."""
    found = {}
    for number in numbers:
        with suppress(FileNotFoundError), open(f"{folder}/{number}.data", "rb") as file:
            found[number] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _is_stale(path: str) -> bool:
    try:
        # Not the modification time: the data may be far older than the link.
        return os.stat(path).st_ctime < time.time() - _STALE_SECONDS
    except FileNotFoundError:
        return False


def _drop(blob: str) -> None:
    """Remove the blob when no version links to it.

    A version that links to it now keeps the data.
    """
    with suppress(FileNotFoundError):
        if os.stat(blob).st_nlink == 1:
            os.unlink(blob)


def _make_folder(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    _sync_folder(os.path.dirname(path))


def _sync_folder(path: str) -> None:
    handle = os.open(path, FOLLOW_FOLDER)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unlink(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)
