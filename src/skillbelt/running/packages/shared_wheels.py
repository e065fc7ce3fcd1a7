"""Wheels in the object store of a deployment, so that each is fetched from the index once.

    packages/wheels/<2 digits>/<62 digits>/<file name>    by the SHA-256 that a lock names

An environment is built from a lock, and a lock names the hashes of its wheels: they vouch for what
comes from here. A built environment has no such hash, so it is not shared. Everything that fails
here is left to the index.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Iterable
from typing import BinaryIO, cast

from skillbelt.errors import ObjectError, log_warning
from skillbelt.objects.blobs import CHUNK, PIECE_BYTES, Blobs
from skillbelt.objects.remote import open_once
from skillbelt.running.packages.index_pages import IndexFile

PACKAGES, WHEELS = "packages", "wheels"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+!-]{0,200}\.whl")
_IN_MEMORY = 8 * CHUNK


class SharedWheels:
    """The wheels that machines share. Thread-safe."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    @classmethod
    def from_url(cls, url: str) -> SharedWheels:
        """Return the wheels in the object store at a URL."""
        return cls(Blobs(open_once(url), PACKAGES))

    def find(self, hashes: Iterable[str]) -> list[IndexFile]:
        """Return the files that are kept under these hashes; none when the store is away."""
        found = []
        try:
            for hash in hashes:
                digits = hash.removeprefix("sha256:")
                for one in self._blobs.walk(_folder(digits)):
                    name = one.path.rpartition("/")[2]
                    if _NAME.fullmatch(name):
                        found.append(IndexFile(name=name, url="", sha256=digits))
        except ObjectError as error:
            log_warning(f"wheels are fetched from the index: {error}")
            return []
        return found

    def open(self, file: IndexFile, most: int) -> BinaryIO | None:
        """Return a file with the wheel, verified; None if it is gone or not what it should be."""
        path = f"{_folder(file.sha256)}/{file.name}"
        kept = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - given to the caller
        try:
            hashed, at, size = hashlib.sha256(), 0, self._blobs.size_of(path, most)
            while at < size:
                piece = self._blobs.read_range(path, at, min(PIECE_BYTES, size - at))
                hashed.update(piece)
                at += kept.write(piece)
            if hashed.hexdigest() == file.sha256:
                kept.seek(0)
                return cast(BinaryIO, kept)
            log_warning(f"the object store: {path} has another hash, and is not used")
        except (ObjectError, FileNotFoundError) as error:
            log_warning(f"{file.name} is fetched from the index: {error}")
        kept.close()
        return None

    def add(self, file: IndexFile, digits: str, data: BinaryIO) -> None:
        """Keep a wheel that has these digits. That is a favour to others: a failure is no error."""
        if not _NAME.fullmatch(file.name):
            return
        try:
            self._blobs.write(f"{_folder(digits)}/{file.name}", data)
        except ObjectError as error:
            log_warning(f"{file.name} is not shared: {error}")


def _folder(digits: str) -> str:
    return f"{WHEELS}/{digits[:2]}/{digits[2:]}"
