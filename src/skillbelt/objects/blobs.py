"""Bytes by their digest, below one prefix of an object store.

    <prefix>/blobs/<2 digits>/<62 digits>/<copy>   the bytes of that SHA-256
    <prefix>/trees/<2 digits>/<62 digits>/<copy>   the list of a tree of that digest; see `tree`
    <prefix>/names/...                             names, which change what they refer to

A copy has a random name and is written once. A writer relies on a copy only while it is young, and
otherwise writes another one. So `collect` can remove an old copy that nothing refers to: no writer
will refer to it later.

Nothing in the store is trusted: another machine may have written it. Each reader hashes what it
reads before it passes it on.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, BinaryIO, Literal, cast

from skillbelt.errors import ObjectDamaged, ObjectError, ObjectMissing, ObjectsAway
from skillbelt.metrics import count
from skillbelt.objects.remote import convert_errors, load_obstore
from skillbelt.records import NamedTuple
from skillbelt.store.protocol import hash_texts

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from skillbelt.store.protocol import SessionKey

CHUNK = 2**20
# One request for each range of this many bytes: a retry begins at its range, not at the start.
PIECE_BYTES = 8 * 2**20
# A writer writes another copy of an object that is older than half of this. So `collect` may remove
# objects that are older than all of it, without knowing which ones a writer is about to need.
GRACE_SECONDS = 24 * 3600.0
MAX_FILE_BYTES = 16 * 2**30
# Skills that no machine has put for this long are removed.
SKILL_SECONDS = 30 * 24 * 3600.0
TENANTS = "tenants"
_IN_MEMORY = 8 * CHUNK  # larger objects are buffered in a file
_PARTS_AT_ONCE = 4
# The data to put: bytes, a file, or chunks. Chunks that end with an exception put nothing.
Content = bytes | BinaryIO | Iterator[bytes]
_COPY = re.compile(r"/[0-9a-f]{16}\Z")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


class ListedObject(NamedTuple):
    """An object in the store: its path below the prefix, its size, and its age in seconds."""

    path: str
    size: int
    age: float


def digits_of(digest: str) -> str:
    """Return the 64 digits of `sha256:...`; ObjectError for anything else."""
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise ObjectError(f"{digest[:100]!r} is not a digest: write `sha256:` and 64 digits")
    return match[1]


class Blobs:
    """The objects below a prefix. Thread-safe."""

    def __init__(self, store: ObjectStore, prefix: str = "") -> None:
        self._store = store
        self.prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""

    # Bytes by digest

    def put_file(self, data: bytes | BinaryIO | str) -> str:
        """Store the bytes, the rest of a file, or the file at a path; return the digest."""
        if isinstance(data, str):
            with open(data, "rb") as file:
                return self.put_file(file)
        if isinstance(data, bytes):
            digits = hashlib.sha256(data).hexdigest()
            self.put_blob(digits, len(data), lambda: data)
            return f"sha256:{digits}"
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as kept:
            hashed, size = hashlib.sha256(), 0
            while chunk := data.read(CHUNK):
                hashed.update(chunk)
                size += kept.write(chunk)
            kept.seek(0)
            self.put_blob(hashed.hexdigest(), size, lambda: cast(BinaryIO, kept))
        return f"sha256:{hashed.hexdigest()}"

    def put_blob(self, digits: str, size: int, read: Callable[[], Content]) -> tuple[str, bool]:
        """Store the data that `read` returns, whose SHA-256 is `digits`.

        Return the copy, and if it was sent.
        """
        for found in self.copies("blobs", digits):
            if found.size == size and found.age < GRACE_SECONDS / 2:
                return f"{digits}/{found.path.rpartition('/')[2]}", False
        blob = f"{digits}/{os.urandom(8).hex()}"
        self.write(blob_path(blob), read())
        count("object_store_bytes", size, direction="sent")
        return blob, True

    def copies(self, kind: Literal["blobs", "trees"], digits: str) -> list[ListedObject]:
        """Return the copies under a digest, the newest first."""
        found = self.walk(f"{kind}/{digits[:2]}/{digits[2:]}")
        return sorted((one for one in found if _COPY.search(one.path)), key=lambda one: one.age)

    def has_file(self, digest: str) -> bool:
        """Whether a copy exists under that digest; `open_file` checks that it is complete."""
        return bool(self.copies("blobs", digits_of(digest)))

    def open_file(self, digest: str, most: int = MAX_FILE_BYTES) -> BinaryIO:
        """Return a file with the bytes of that digest, verified; the caller closes it.

        Raises ObjectMissing, ObjectDamaged if no copy is good, ObjectsAway, and ObjectError beyond
        `most` bytes.
        """
        digits = digits_of(digest)
        found = self.copies("blobs", digits)
        failed: ObjectError = ObjectMissing(digest, f"{self.prefix}blobs")
        for copy in found:
            blob = f"{digits}/{copy.path.rpartition('/')[2]}"
            try:
                if copy.size > most:
                    raise ObjectError(
                        f"{digest} has {copy.size:,} bytes in the object store; "
                        f"at most {most:,} are taken"
                    )
                return self._open(blob, copy.size)
            except (ObjectDamaged, ObjectMissing) as error:
                failed = error
        raise failed

    def _open(self, blob: str, size: int) -> BinaryIO:
        kept = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - given to the caller
        try:
            hashed = hashlib.sha256()
            for piece in self.pieces(blob, 0, size):
                hashed.update(piece)
                kept.write(piece)
            if hashed.hexdigest() != blob[:64]:
                raise self.damaged(blob, f"its bytes have sha256:{hashed.hexdigest()}")
            kept.seek(0)
        except BaseException:
            kept.close()
            raise
        return cast(BinaryIO, kept)

    def pieces(self, blob: str, start: int, length: int) -> Iterator[bytes]:
        """Yield a range of a copy, not verified; ObjectDamaged when the copy is shorter."""
        path = blob_path(blob)
        while length > 0:
            wanted = min(length, PIECE_BYTES)
            try:
                data = self.read_range(path, start, wanted)
            except FileNotFoundError as error:
                raise ObjectMissing(f"sha256:{blob[:64]}", self._display(path)) from error
            except ObjectsAway:
                # Stores report a range beyond the end in various ways.
                found = self.stat(path)
                if found is None or found.size >= start + wanted:
                    raise
                data = b""
            count("object_store_bytes", len(data), direction="received")
            if len(data) != wanted:
                raise self.damaged(blob, "it is shorter than it should be")
            yield data
            start, length = start + wanted, length - wanted

    def damaged(self, blob: str, reason: str) -> ObjectDamaged:
        """Return the error for a copy whose content differs from its name."""
        return ObjectDamaged(f"sha256:{blob[:64]}", self._display(blob_path(blob)), reason)

    # Objects by path

    def stat(self, path: str) -> ListedObject | None:
        """Return the entry of an object; None if there is none."""
        try:
            with self._convert_errors("cannot be looked at", path):
                found = self._store.head(self.prefix + path)
        except FileNotFoundError:
            return None
        age = time.time() - found["last_modified"].timestamp()
        return ListedObject(path, found["size"], age)

    def write(self, path: str, data: Content) -> None:
        """Put an object, all or nothing, and replace the existing one."""
        with self._convert_errors("cannot be written", path):
            self._store.put(self.prefix + path, data, max_concurrency=_PARTS_AT_ONCE)

    def create(self, path: str, data: bytes) -> bool:
        """Put an object if the path is free; return whether it was."""
        taken = load_obstore("keeping objects in an object store").exceptions.AlreadyExistsError
        with self._convert_errors("cannot be written", path):
            try:
                self._store.put(self.prefix + path, data, mode="create")
            except taken:
                return False
        return True

    def read(self, path: str, most: int) -> bytes | None:
        """Return an object of at most `most` bytes; None if there is none, else ObjectError."""
        try:
            size = self.size_of(path, most)
            return self.read_range(path, 0, size) if size else b""
        except FileNotFoundError:
            return None

    def size_of(self, path: str, most: int) -> int:
        """Return the bytes of an object; FileNotFoundError, or ObjectError beyond `most`."""
        found = self.stat(path)
        if found is None:
            raise FileNotFoundError(self._display(path))
        if found.size > most:
            raise ObjectError(
                f"{self._display(path)} has {found.size:,} bytes; at most {most:,} are read"
            )
        return found.size

    def read_range(self, path: str, start: int, length: int) -> bytes:
        """Return a part of an object; FileNotFoundError if there is none."""
        with self._convert_errors("cannot be read", path):
            return bytes(self._store.get_range(self.prefix + path, start=start, length=length))

    def walk(self, folder: str) -> Iterator[ListedObject]:
        """Yield the objects below a folder, in no order."""
        now = time.time()
        with self._convert_errors("cannot be listed", folder):
            for page in self._store.list(self.prefix + folder, chunk_size=1000):
                for one in page:
                    path = one["path"].removeprefix(self.prefix)
                    yield ListedObject(path, one["size"], now - one["last_modified"].timestamp())

    def folders(self, folder: str) -> list[str]:
        """Return the folders in a folder, as paths below the prefix."""
        with self._convert_errors("cannot be listed", folder):
            found = self._store.list_with_delimiter(self.prefix + folder)["common_prefixes"]
        return sorted(path.removeprefix(self.prefix) for path in found)

    def delete(self, path: str) -> None:
        """Remove an object, if there is one."""
        with suppress(FileNotFoundError), self._convert_errors("cannot be removed", path):
            self._store.delete(self.prefix + path)

    def _convert_errors(self, failed: str, path: str) -> AbstractContextManager[None]:
        return convert_errors(f"the object store: {self._display(path)} {failed}")

    def _display(self, path: str) -> str:
        return os.path.join(self.prefix, path)


def tenant_prefix(key: SessionKey) -> str:
    """Return the prefix of the tenant: the key's `app` and `user`."""
    return f"{TENANTS}/{hash_texts(key.app, key.user)}"


def text_space(store: ObjectStore, key: SessionKey) -> Blobs:
    """Return the space for the long texts of a conversation, by their SHA-256."""
    return Blobs(store, f"{tenant_prefix(key)}/texts/{hash_texts(*key)}")


def blob_path(blob: str) -> str:
    """Return the path of a copy: `<digits>/<copy>`."""
    return f"blobs/{blob[:2]}/{blob[2:]}"
