"""Files of packages in the object store of a deployment: each is fetched from the index once.

    packages/wheels/<2 digits>/<62 digits>/<file name>    by the SHA-256 that a lock names
    packages/archives/<2 digits>/<other digits>/archive   sources and npm's archives, the same way

An environment is built from a lock, and a lock names the hashes of its files, which verify the
files from here. Nothing verifies a built environment, or the result of building a source, so
neither is shared. On any failure here, the index is used.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import BinaryIO, cast

from skillbelt.errors import ObjectError, log_warning
from skillbelt.objects.blobs import CHUNK, PIECE_BYTES, Blobs
from skillbelt.objects.remote import open_once
from skillbelt.running.packages.fetched import BodyChunks, Fetched, NotFetched
from skillbelt.running.packages.index_pages import IndexFile

PACKAGES, WHEELS, ARCHIVES = "packages", "wheels", "archives"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+!-]{0,200}\.whl")
_HASH = re.compile(r"(sha256):([0-9a-f]{64})|(sha512):([0-9a-f]{128})")
_IN_MEMORY = 8 * CHUNK


class SharedFiles:
    """The files of packages that machines share. Thread-safe."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._lock, self._taken = threading.Lock(), 0

    @classmethod
    def from_url(cls, url: str) -> SharedFiles:
        """Return the files in the object store at a URL."""
        return cls(Blobs(open_once(url), PACKAGES))

    # Wheels

    def find(self, hashes: Iterable[str]) -> list[IndexFile]:
        """Return the stored wheels with these hashes; none when the store is away."""
        found = []
        try:
            for hash in hashes:
                digits = hash.removeprefix("sha256:")
                for one in self._blobs.walk(_folder(WHEELS, digits)):
                    name = one.path.rpartition("/")[2]
                    if _NAME.fullmatch(name):
                        found.append(IndexFile(name=name, url="", sha256=digits))
        except ObjectError as error:
            log_warning(f"wheels are fetched from the index: {error}")
            return []
        return found

    def open(self, file: IndexFile, most: int) -> BinaryIO | None:
        """Return a file with the wheel, verified; None if it is missing or has another hash."""
        path = f"{_folder(WHEELS, file.sha256)}/{file.name}"
        return self._open(path, f"sha256:{file.sha256}", file.name, most)

    def add(self, file: IndexFile, digits: str, data: BinaryIO) -> None:
        """Store a wheel with this SHA-256 for other machines; a failure is not an error."""
        if _NAME.fullmatch(file.name):
            self._add(f"{_folder(WHEELS, digits)}/{file.name}", file.name, data)

    # Sources, and npm's archives

    def pass_on(self, hash: str, what: str, most: int, fetch: Callable[[], Fetched]) -> Fetched:
        """Return the archive of a hash, verified; else the result of `fetch`, which is then stored.

        An archive with another hash is not stored: the installer refuses it. Raises NotFetched,
        also when all fetched archives have more than `most` bytes: they are buffered on the disk of
        this machine.
        """
        match = _HASH.fullmatch(hash)
        if match is None:  # a kind of hash that is not used as a key
            return fetch()
        path = f"{_folder(ARCHIVES, match[2] or match[4])}/archive"
        kept = self._open(path, hash, what, most)
        if kept is not None:
            return _to_fetched(kept)
        fetched = fetch()
        copy = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - given to the caller
        try:
            hashed = hashlib.new(hash.partition(":")[0])
            with closing(fetched.pieces):
                for piece in fetched.pieces:
                    hashed.update(piece)
                    copy.write(piece)
                    self._count(len(piece), most)
            if f"{hash.partition(':')[0]}:{hashed.hexdigest()}" == hash:
                copy.seek(0)
                self._add(path, what, cast(BinaryIO, copy))
        except BaseException:
            copy.close()
            raise
        return _to_fetched(cast(BinaryIO, copy))

    def _count(self, size: int, most: int) -> None:
        with self._lock:
            self._taken += size
        if self._taken > most:
            raise NotFetched(502, f"the archives have more than {most} bytes (max_packages_bytes)")

    # Both

    def _open(self, path: str, hash: str, what: str, most: int) -> BinaryIO | None:
        kept = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - given to the caller
        algorithm, _, digits = hash.partition(":")
        try:
            hashed, at, size = hashlib.new(algorithm), 0, self._blobs.size_of(path, most)
            while at < size:
                piece = self._blobs.read_range(path, at, min(PIECE_BYTES, size - at))
                hashed.update(piece)
                at += kept.write(piece)
            if hashed.hexdigest() == digits:
                kept.seek(0)
                return cast(BinaryIO, kept)
            log_warning(f"the object store: {path} has another hash, and is not used")
        except FileNotFoundError:
            pass
        except ObjectError as error:
            log_warning(f"{what} is fetched from the index: {error}")
        kept.close()
        return None

    def _add(self, path: str, what: str, data: BinaryIO) -> None:
        try:
            self._blobs.write(path, data)
        except ObjectError as error:
            log_warning(f"{what} is not shared: {error}")


def _folder(kind: str, digits: str) -> str:
    return f"{kind}/{digits[:2]}/{digits[2:]}"


def _to_fetched(file: BinaryIO) -> Fetched:
    size = file.seek(0, 2)
    file.seek(0)
    return Fetched("", "application/octet-stream", size, BodyChunks(file))
