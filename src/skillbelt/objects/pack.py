"""Put a folder into an object store: only what is not there yet."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, NoReturn

from skillbelt.errors import ObjectError, PathEscape
from skillbelt.files.tree import RUN_FOLDERS, SkillTree, TreeEntry, relative_target
from skillbelt.objects.blobs import CHUNK, Blobs
from skillbelt.objects.tree import (
    StoredEntry,
    StoredTree,
    TreeKind,
    TreeLimits,
    check_tree,
    mode_of,
)

# Files below this size are combined into packs of about PACK_BYTES.
SMALL_BYTES = 256 * 2**10
PACK_BYTES = 8 * 2**20
_AT_ONCE = 4  # uploads; each holds a pack or some chunks of a file in memory

# Returns the entry of an earlier tree if it still holds; None if the file must be read.
Reuse = Callable[[TreeEntry], StoredEntry | None]


class PackRules(NamedTuple):
    """The way a folder is packed.

    `what` names the folder in errors. `runner` is the user whose hard links are accepted: a link to
    another user's file could expose a secret. `earlier` is a tree of the same space whose blobs are
    known to exist, `reuse` decides which of its entries still hold.
    """

    what: str
    kind: TreeKind = "exact"
    limits: TreeLimits = TreeLimits()
    runner: int | None = None
    earlier: StoredTree | None = None
    reuse: Reuse | None = None
    facts: Mapping[str, Any] = {}


class Packed(NamedTuple):
    """A tree that is in the store, and how many bytes had to be sent.

    `left_out` are pipes, sockets and devices, which are useless on another machine.
    """

    tree: StoredTree
    sent: int
    left_out: tuple[str, ...]


def pack_tree(blobs: Blobs, source: SkillTree, rules: PackRules) -> Packed:
    """Put the files of a folder and the list of them.

    ObjectError for a file that cannot be packed.
    """
    try:
        with ThreadPoolExecutor(_AT_ONCE, "skillbelt-objects") as pool:
            job = _Packing(blobs, source, rules, pool)
            tree = job.run()
    except OSError as error:
        raise ObjectError(f"{rules.what} cannot be packed: {error.strerror or error}") from error
    check_tree(tree, rules.limits)
    return Packed(tree, job.sent, tuple(job.left_out))


def put_list(blobs: Blobs, tree: StoredTree) -> str:
    """Put the list of a tree whose blobs exist; return its digest.

    Always writes another copy of the list: the blobs of an older copy may be about to be removed.
    """
    digest = tree.digest()
    digits = digest.removeprefix("sha256:")
    copy = os.urandom(8).hex()
    blobs.write(f"trees/{digits[:2]}/{digits[2:]}/{copy}", tree.encoded())
    return digest


class _Packing:
    def __init__(
        self, blobs: Blobs, source: SkillTree, rules: PackRules, pool: ThreadPoolExecutor
    ) -> None:
        self.blobs, self.source, self.rules, self.pool = blobs, source, rules, pool
        # The numbers of blobs, by digits, or by copy for those of an earlier tree.
        self.numbers: dict[str, int] = {}
        self.copies: dict[str, str] = {}  # copies that were put, by digits
        self.places: dict[str, tuple[str, int]] = {}  # blob and offset, by SHA-256 of a file
        self.pack = bytearray()
        self.waiting: list[StoredEntry] = []  # entries of the pack that is not sent yet
        self.packed: dict[str, int] = {}  # offsets in that pack, by SHA-256
        self.entries: list[StoredEntry] = []
        self.pending: list[tuple[str, int, Future[tuple[str, bool]]]] = []
        self.left_out: list[str] = []
        self.bytes = self.sent = 0
        if rules.earlier is not None:
            for entry in rules.earlier.entries:
                if entry.kind == "file" and entry.size:
                    self.places[entry.sha256] = rules.earlier.blobs[entry.blob], entry.offset

    def run(self) -> StoredTree:
        found = [entry for entry in self.source.entries() if self.check(entry)]
        # The apparent size, not the blocks: a sparse file would be read with its zeros.
        self.count(sum(entry.size for entry in found))
        self.bytes = 0
        for entry in found:
            self.take(entry)
        self.flush()
        while self.pending:
            self.settle()
        blobs = tuple(self.copies.get(one, one) for one in self.numbers)
        return StoredTree(self.rules.kind, blobs, tuple(self.entries), self.rules.facts)

    def check(self, entry: TreeEntry) -> bool:
        """Whether the entry belongs to the tree; ObjectError for one that is not allowed."""
        if entry.path in self.source.rules.only and entry.kind != "folder":
            self.refuse(entry.path, "is not a folder")
        if self.rules.kind == "exact" and entry.problem == "not-a-file":
            self.left_out.append(entry.path)
            return False
        shadowed = entry.kind == "link" and entry.path.partition("/")[0] in RUN_FOLDERS
        if entry.problem and not (shadowed and entry.problem == "link-outside"):
            self.refuse(entry.path, entry.reason)
        return True

    def take(self, entry: TreeEntry) -> None:
        kind = self.rules.kind
        if entry.kind == "folder":
            mode = mode_of(kind, entry.mode) if kind == "exact" else 0o755
            self.entries.append(StoredEntry(entry.path, "folder", mode=mode))
        elif entry.kind == "link":
            target = entry.target
            if kind == "skill":
                target = relative_target(self.source.folder, entry.path, target) or target
            self.entries.append(StoredEntry(entry.path, "link", target=target))
        else:
            self.file(entry)

    def file(self, entry: TreeEntry) -> None:
        before = self.rules.reuse(entry) if self.rules.reuse else None
        changed = entry.stamp[-6] if self.rules.kind == "exact" else 0
        made = StoredEntry(
            entry.path,
            "file",
            mode=mode_of(self.rules.kind, entry.mode),
            changed_ns=max(changed, 0),
        )
        if before is not None:
            self.count(before.size)
            self.place(made._replace(size=before.size, sha256=before.sha256))
            return
        data = self.read(entry)
        if isinstance(data, bytes):
            digits = hashlib.sha256(data).hexdigest()
            made = made._replace(size=len(data), sha256=digits)
            if data and digits not in self.places:
                self.add_to_pack(made, data)
                return
        else:
            size, digits = data
            made = made._replace(size=size, sha256=digits)
            if digits not in self.places:
                self.places[digits] = digits, 0
                self.send(digits, size, lambda: self.again(entry, size, digits))
        self.place(made)

    def place(self, entry: StoredEntry) -> None:
        """Add a file whose bytes are stored."""
        if entry.size:
            digits, offset = self.places[entry.sha256]
            number = self.numbers.setdefault(digits, len(self.numbers))
            entry = entry._replace(blob=number, offset=offset)
        self.entries.append(entry)

    def read(self, entry: TreeEntry) -> bytes | tuple[int, str]:
        """Return the content of a small file; for a larger one its size and SHA-256."""
        with open(self.open(entry), "rb", 0) as file:
            head = file.read(SMALL_BYTES) or b""
            while len(head) < SMALL_BYTES and (more := file.read(SMALL_BYTES - len(head))):
                head += more
            self.count(len(head))
            if len(head) < SMALL_BYTES:
                return head
            hashed, size = hashlib.sha256(head), len(head)
            while chunk := file.read(CHUNK):
                self.count(len(chunk))
                hashed.update(chunk)
                size += len(chunk)
        return size, hashed.hexdigest()

    def again(self, entry: TreeEntry, size: int, digits: str) -> Iterator[bytes]:
        """Yield the file once more; raise at the end if it changed."""
        hashed, left = hashlib.sha256(), size
        with open(self.open(entry), "rb", 0) as file:
            while left and (chunk := file.read(min(left, CHUNK))):
                hashed.update(chunk)
                left -= len(chunk)
                yield chunk
        if left or hashed.hexdigest() != digits:
            self.refuse(entry.path, "changed while it was packed")

    def open(self, entry: TreeEntry) -> int:
        try:
            handle = self.source.open(entry)
        except (OSError, PathEscape) as error:
            reason = getattr(error, "strerror", "") or error
            self.refuse(entry.path, f"cannot be read: {reason}")
        try:
            info = os.fstat(handle)
            if not stat.S_ISREG(info.st_mode):
                self.refuse(entry.path, "changed while it was packed")
            runner = self.rules.runner
            if runner is not None and info.st_nlink > 1 and info.st_uid != runner:
                self.refuse(entry.path, "is a hard link to the file of another user")
        except BaseException:
            os.close(handle)
            raise
        return handle

    def add_to_pack(self, entry: StoredEntry, data: bytes) -> None:
        offset = self.packed.get(entry.sha256)
        if offset is None:
            offset = self.packed[entry.sha256] = len(self.pack)
            self.pack += data
        self.waiting.append(entry._replace(offset=offset))
        if len(self.pack) >= PACK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send the pack."""
        data, waiting = bytes(self.pack), self.waiting
        self.pack, self.waiting, self.packed = bytearray(), [], {}
        if data:
            digits = hashlib.sha256(data).hexdigest()
            for entry in waiting:
                self.places[entry.sha256] = digits, entry.offset
                self.place(entry)
            self.send(digits, len(data), lambda: data)

    def send(self, digits: str, size: int, read: Callable[[], Any]) -> None:
        while len(self.pending) >= 2 * _AT_ONCE:
            self.settle()
        put = self.pool.submit(self.blobs.put_blob, digits, size, read)
        self.pending.append((digits, size, put))

    def settle(self) -> None:
        digits, size, put = self.pending.pop(0)
        self.copies[digits], sent = put.result()
        self.sent += size * sent

    def count(self, size: int) -> None:
        self.bytes += size
        most = self.rules.limits.max_bytes
        if self.bytes > most:
            self.refuse("", f"has {self.bytes:,} bytes or more; the limit is {most:,}")

    def refuse(self, path: str, why: str) -> NoReturn:
        what = self.rules.what
        raise ObjectError(f"{what}: {path!r} {why}" if path else f"{what} {why}")
