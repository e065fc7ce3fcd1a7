"""Copy files and trees within limits, and put what was made in the place of what was there."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from typing import NoReturn

from skillbelt.errors import PathEscape, RunRefused
from skillbelt.files.contain import (
    MAX_PATH_PARTS,
    NEW_FILE,
    READ_FILE,
    READ_FOLDER,
    load_ctypes,
    open_beneath,
)
from skillbelt.files.manifest import content_hash, fact_of
from skillbelt.files.tree import SkillTree, TreeEntry, relative_target

_CHUNK = 2**20
_RENAME_EXCHANGE = 2
_KINDS = {
    stat.S_IFIFO: "is a named pipe",
    stat.S_IFSOCK: "is a socket",
    stat.S_IFCHR: "is a device",
    stat.S_IFBLK: "is a device",
    stat.S_IFLNK: "became a link while it was copied",
}


def has_entry(folder: int, name: str) -> bool:
    """Whether the folder has an entry of that name."""
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def handles() -> Iterator[Callable[[int], int]]:
    """Yield a function that closes a handle at the end of the block."""
    kept: list[int] = []

    def keep(handle: int) -> int:
        kept.append(handle)
        return handle

    try:
        yield keep
    finally:
        for handle in kept:
            os.close(handle)


def swap(source: int, name: str, target: int, to: str) -> None:
    """Move `name` to `to` atomically; an existing `to` becomes `name`."""
    if not has_entry(target, to):
        os.rename(name, to, src_dir_fd=source, dst_dir_fd=target)
        return
    exchange = _exchange()
    sys.audit("os.rename", name, to, source, target)  # `os.rename` raises this, renameat2 does not
    if exchange is not None and exchange(source, name, target, to):
        return
    try:
        # Fallback without renameat2, and when the target is gone.
        old = f"old-{os.urandom(8).hex()}"
        os.rename(to, old, src_dir_fd=target, dst_dir_fd=source)
    except FileNotFoundError:
        old = ""
    os.rename(name, to, src_dir_fd=source, dst_dir_fd=target)
    if old:
        os.rename(old, name, src_dir_fd=source, dst_dir_fd=source)


@lru_cache(maxsize=1)
def _exchange() -> Callable[[int, str, int, str], bool] | None:
    """Return renameat2 as a function that returns whether it succeeded; None without it."""
    ctypes = load_ctypes()
    if ctypes is None:
        return None
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):
        return None

    def exchange(source: int, name: str, target: int, to: str) -> bool:
        paths = [ctypes.c_char_p(os.fsencode(path)) for path in (name, to)]
        failed = call(source, paths[0], target, paths[1], ctypes.c_uint(_RENAME_EXCHANGE))
        return not failed

    return exchange


class TreeCopy:
    """Copies files and trees within limits, and records what it copied.

    `root` is the path of the tree, for absolute links into it. `runner` is the user whose hard
    links are copied; a link to another user's file could expose a secret. `give` is called with a
    handle of each new file and folder. Without it, files get 0444 or 0555 and folders 0555; with
    it, 0644 or 0755 and 0755.
    """

    def __init__(
        self,
        what: str,
        most_bytes: int,
        most_entries: int,
        root: str = "",
        runner: int | None = None,
        give: Callable[[int], None] | None = None,
    ) -> None:
        self.what, self.root, self.runner, self.give = what, root, runner, give
        self.most_bytes, self.most_entries = most_bytes, most_entries
        self.bytes = self.entries = 0
        self._rows: list[tuple[str, str, str]] = []
        self._facts: list[str] = []

    def rows(self) -> tuple[tuple[str, str, str], ...]:
        """Return the path, the kind and the hash or target of every copied entry, sorted."""
        return tuple(sorted(self._rows))

    def hash(self) -> str:
        """Return the hash that `LocalFiles.digest` gives for the copied files."""
        files = [
            (path, sha) for path, kind, sha in sorted(self._rows) if kind in ("file", "program")
        ]
        return content_hash(files, sorted(self._facts))

    def content(self, name: str) -> str:
        """Return an id of a copy of that name, which depends on all of its content."""
        whole = repr((name, sorted(self._rows)))
        return hashlib.sha256(whole.encode("utf-8", "surrogateescape")).hexdigest()[:32]

    def fill(
        self,
        source: int,
        target: int,
        *,
        omitted: Container[str] = (),
    ) -> None:
        """Copy the entries of a folder; RunRefused for links out of it and special files.

        Names in `omitted` are skipped at the top level.
        """
        for entry in self._entries(source):
            if entry.name not in omitted:
                self._entry(source, target, entry, entry.name)

    def fill_from(self, tree: SkillTree, target: int, *, shadowed: Container[str]) -> None:
        """Copy a skill's files; RunRefused for each problem that the walk of the folder finds.

        An entry with a shadowed name at the top is hashed and not written: the workspace has its
        own there.
        """
        folders: list[str] = []
        for entry in tree.entries():
            hidden = entry.path.partition("/")[0] in shadowed
            if entry.problem and not (hidden and entry.kind == "link"):
                self.refuse(entry.path, entry.reason)
            with self.reading(entry.path), handles() as keep:
                parent, _, name = entry.path.rpartition("/")
                to = None if hidden else keep(open_beneath(target, parent or ".", READ_FOLDER))
                if entry.kind == "folder":
                    self._rows.append((entry.path, "folder", ""))
                    if to is not None:
                        os.mkdir(name, 0o700, dir_fd=to)
                        folders.append(entry.path)
                elif entry.kind == "link":
                    self._skill_link(tree, to, entry)
                else:
                    handle = keep(tree.open(entry))
                    new = None if to is None else keep(os.open(name, NEW_FILE, 0o600, dir_fd=to))
                    self.file(handle, new, entry.path)
        # The deepest first, since a folder without write permission takes no entries.
        for path in reversed(folders):
            with handles() as keep:
                self.finish(keep(open_beneath(target, path, READ_FOLDER)))

    def _skill_link(self, tree: SkillTree, target: int | None, entry: TreeEntry) -> None:
        self._facts.append(fact_of(entry, tree.folder))
        if target is not None:
            to = relative_target(tree.folder, entry.path, entry.target)
            os.symlink(to, os.path.basename(entry.path), dir_fd=target)
            self._rows.append((entry.path, "link", to))

    def file(self, source: int, target: int | None, path: str = "") -> None:
        """Copy from a handle of a regular file to another; both stay open."""
        info = os.fstat(source)
        if not stat.S_ISREG(info.st_mode):
            self.refuse(path, _KINDS.get(stat.S_IFMT(info.st_mode), "is not a regular file"))
        if self.runner is not None and info.st_nlink > 1 and info.st_uid != self.runner:
            self.refuse(path, "is a hard link to the file of another user")
        size = min(info.st_size + 1, _CHUNK)
        self.stream(lambda: os.read(source, size), target, path, bool(info.st_mode & 0o111))

    def stream(
        self,
        read: Callable[[], bytes],
        target: int | None,
        path: str = "",
        program: bool = False,
    ) -> None:
        """Copy the chunks that `read` returns to a new file."""
        digest = hashlib.sha256()
        while chunk := read():
            self._count_bytes(len(chunk))
            digest.update(chunk)
            _write(target, chunk)
        self._rows.append((path, "program" if program else "file", digest.hexdigest()))
        if program:
            self._facts.append(fact_of(TreeEntry(path, "file", mode=0o111)))
        if target is not None:
            self.finish(target, program)

    @contextmanager
    def reading(self, path: str) -> Iterator[None]:
        """Turn an error while copying into a RunRefused that names the path."""
        try:
            yield
        except PathEscape as error:
            raise RunRefused(f"{self.what}: {error}") from error
        except OSError as error:
            changed = error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENOENT)
            why = "changed while it was copied" if changed else f"cannot be copied: {error}"
            raise RunRefused(f"{self.what}: {path!r} {why}") from error

    def refuse(self, path: str, why: str) -> NoReturn:
        """Raise RunRefused about a path."""
        raise RunRefused(f"{self.what}: {path!r} {why}" if path else f"{self.what} {why}")

    def _entry(self, source: int, target: int, entry: os.DirEntry[str], path: str) -> None:
        with self.reading(path):
            if entry.is_symlink():
                self._link(source, target, entry.name, path)
            elif not entry.is_dir(follow_symlinks=False):
                self._copy_file(source, target, entry, path)
            else:
                self._folder(source, target, entry.name, path)

    def _entries(self, folder: int) -> list[os.DirEntry[str]]:
        with os.scandir(folder) as listing:
            found = list(islice(listing, self.most_entries - self.entries + 1))
        self.entries += len(found)
        if self.entries > self.most_entries:
            self.refuse("", f"has more than {self.most_entries:,} files and folders")
        return found

    def _folder(self, source: int, target: int, name: str, path: str) -> None:
        if path.count("/") >= MAX_PATH_PARTS:
            self.refuse(path, f"is nested deeper than {MAX_PATH_PARTS} folders")
        with handles() as keep:
            deeper = keep(os.open(name, READ_FOLDER, dir_fd=source))
            os.mkdir(name, 0o700, dir_fd=target)
            to = keep(os.open(name, READ_FOLDER, dir_fd=target))
            self._rows.append((path, "folder", ""))
            for entry in self._entries(deeper):
                self._entry(deeper, to, entry, f"{path}/{entry.name}")
            self.finish(to)

    def _copy_file(self, source: int, target: int, entry: os.DirEntry[str], path: str) -> None:
        kind = stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
        if kind != stat.S_IFREG:  # not even opened: a device may act on it
            self.refuse(path, _KINDS.get(kind, "is not a regular file"))
        with handles() as keep:
            handle = keep(os.open(entry.name, READ_FILE, dir_fd=source))
            to = keep(os.open(entry.name, NEW_FILE, 0o600, dir_fd=target))
            self.file(handle, to, path)

    def _link(self, source: int, target: int, name: str, path: str) -> None:
        """Copy a link that stays in the tree, even when its target does not exist."""
        said = os.readlink(name, dir_fd=source)
        to = relative_target(self.root, path, said)
        if not to:
            self.refuse(path, f"is a link that leads out of the folder, to {said[:200]!r}")
        os.symlink(to, name, dir_fd=target)
        self._rows.append((path, "link", to))

    def finish(self, handle: int, program: bool = True) -> None:
        """Set the final mode and owner of a file or folder."""
        if self.give is None:
            os.fchmod(handle, 0o555 if program else 0o444)
        else:
            os.fchmod(handle, 0o755 if program else 0o644)
            self.give(handle)

    def _count_bytes(self, count: int) -> None:
        self.bytes += count
        if self.bytes > self.most_bytes:
            self.refuse("", f"has more than {self.most_bytes:,} bytes")


def _write(handle: int | None, data: bytes) -> None:
    view = memoryview(data)
    while handle is not None and view:
        view = view[os.write(handle, view) :]
