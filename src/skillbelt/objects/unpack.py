"""Write a tree of an object store to a folder; every byte is hashed before it counts."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from skillbelt.errors import ObjectDamaged, ObjectError, ObjectMissing, ObjectsAway
from skillbelt.files.contain import NEW_FILE, READ_FOLDER, open_beneath
from skillbelt.objects.blobs import PIECE_BYTES, Blobs, digits_of
from skillbelt.objects.pack import SMALL_BYTES
from skillbelt.objects.tree import StoredEntry, StoredTree, TreeKind, TreeLimits, decode_tree

Give = Callable[[int], None]

_AT_ONCE = 4
_GAP_BYTES = 64 * 2**10  # reading over a gap this long costs less than another request


def read_tree(blobs: Blobs, digest: str, kind: TreeKind, limits: TreeLimits) -> StoredTree:
    """Return the tree of that digest; another tree under that name is refused.

    The newest copy that is valid is used.
    """
    digits = digits_of(digest)
    failed: ObjectError = ObjectMissing(digest, f"{blobs.prefix}trees")
    for copy in blobs.copies("trees", digits):
        try:
            data = blobs.read(copy.path, limits.list_bytes)
            if data is None:
                continue
            tree = decode_tree(data, limits)
            found = tree.digest()
            if tree.kind == kind and found == digest:
                return tree
            reason = f"it lists a tree that has {found}"
        except ObjectsAway:
            raise
        except ObjectError as error:
            reason = str(error)
        failed = ObjectDamaged(digest, f"{blobs.prefix}{copy.path}", reason)
    raise failed


def unpack_tree(blobs: Blobs, tree: StoredTree, target: int, give: Give | None = None) -> None:
    """Write a checked tree below an empty folder; `give` is called with each handle at its end.

    On an error the folder is incomplete: the caller removes it.
    """
    writing = _Writing(blobs, tree, target, give)
    with _writing_errors():
        writing.make_folders()
        with ThreadPoolExecutor(_AT_ONCE, "skillbelt-objects") as pool:
            for done in [pool.submit(writing.blob, *one) for one in writing.by_blob()]:
                done.result()
        writing.finish()


class _Writing:
    def __init__(self, blobs: Blobs, tree: StoredTree, target: int, give: Give | None) -> None:
        self.blobs, self.tree, self.target, self.give = blobs, tree, target, give
        self.failed = False

    def make_folders(self) -> None:
        for entry in self.of("folder"):
            with self.parent(entry.path) as (parent, name):
                os.mkdir(name, 0o700, dir_fd=parent)
        for entry in self.of("file"):
            if not entry.size:
                self.write(entry, ())

    def by_blob(self) -> list[tuple[str, list[StoredEntry]]]:
        found: dict[int, list[StoredEntry]] = defaultdict(list)
        for entry in self.of("file"):
            if entry.size:
                found[entry.blob].append(entry)
        return [
            (self.tree.blobs[number], sorted(entries, key=lambda one: one.offset))
            for number, entries in found.items()
        ]

    def blob(self, blob: str, entries: list[StoredEntry]) -> None:
        """Write the files of one blob."""
        try:
            for group in _group(entries):
                if self.failed:
                    return
                if len(group) == 1 and group[0].size >= SMALL_BYTES:
                    [entry] = group
                    self.write(entry, self.blobs.pieces(blob, entry.offset, entry.size))
                    continue
                start, end = _range(group)
                data = memoryview(b"".join(self.blobs.pieces(blob, start, end - start)))
                for entry in group:
                    at = entry.offset - start
                    self.write(entry, (data[at : at + entry.size],))
        except BaseException:
            self.failed = True
            raise

    def write(self, entry: StoredEntry, pieces: Iterable[bytes | memoryview]) -> None:
        with self.parent(entry.path) as (parent, name):
            handle = os.open(name, NEW_FILE, 0o600, dir_fd=parent)
        try:
            hashed = hashlib.sha256()
            for piece in pieces:
                hashed.update(piece)
                view = memoryview(piece)
                while view:
                    view = view[os.write(handle, view) :]
            if hashed.hexdigest() != entry.sha256:
                blob = self.tree.blobs[entry.blob] if entry.size else f"{entry.sha256}/"
                reason = f"its bytes for {entry.path[:200]!r} do not have the digest in its list"
                raise self.blobs.damaged(blob, reason)
            self.end(handle, entry)
        finally:
            os.close(handle)

    def finish(self) -> None:
        """Create the links, after all files are written; close the folders."""
        for entry in self.of("link"):
            with self.parent(entry.path) as (parent, name):
                os.symlink(entry.target, name, dir_fd=parent)
        for entry in reversed(self.of("folder")):
            with self.parent(entry.path) as (parent, name):
                handle = os.open(name, READ_FOLDER, dir_fd=parent)
            try:
                self.end(handle, entry)
            finally:
                os.close(handle)

    def end(self, handle: int, entry: StoredEntry) -> None:
        if self.give is not None:
            self.give(handle)
        os.fchmod(handle, entry.mode)
        if entry.changed_ns:
            os.utime(handle, ns=(entry.changed_ns, entry.changed_ns))

    def of(self, kind: str) -> list[StoredEntry]:
        """Return the entries of a kind, each folder before its entries."""
        return sorted(entry for entry in self.tree.entries if entry.kind == kind)

    @contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        folder, _, name = path.rpartition("/")
        handle = open_beneath(self.target, folder or ".", READ_FOLDER)
        try:
            yield handle, name
        finally:
            os.close(handle)


def _group(entries: list[StoredEntry]) -> Iterator[list[StoredEntry]]:
    """Yield groups of files for one request each: near each other, and together within bounds."""
    group: list[StoredEntry] = []
    start = end = 0
    for entry in entries:
        further = max(end, entry.offset + entry.size)
        if group and (entry.offset > end + _GAP_BYTES or further - start > 2 * PIECE_BYTES):
            yield group
            group = []
        if not group:
            start, further = entry.offset, entry.offset + entry.size
        group.append(entry)
        end = further
    if group:
        yield group


def _range(group: list[StoredEntry]) -> tuple[int, int]:
    return group[0].offset, max(one.offset + one.size for one in group)


@contextmanager
def _writing_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise ObjectError(f"a tree of the object store cannot be written: {reason}") from error
