"""The writable part of a workspace as data: to send it to another machine and back.

A folder is sent as facts about its entries (kind, mode, hash or target) and as contents by hash.
Only differences are sent. Everything here may be hostile: entries are opened one name below a
handle, no link is followed, and received data is hashed again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

from skillbelt.errors import PathEscape, RunRefused
from skillbelt.files.contain import NEW_FILE, READ_FILE, READ_FOLDER
from skillbelt.files.remove import remove_tree
from skillbelt.running.workspace import OUT, WORK, WRITABLE, Workspace

# The largest file that is sent; a larger one belongs in artifacts, or in an object store.
MAX_CARRIED_BYTES = 256 * 2**20
# The size of a batch: both machines hold one in memory.
BATCH_BYTES = 64 * 2**20
MAX_CARRIED_DEPTH = 64
_CHUNK = 2**20
_FRESH_NS = 100_000_000  # two changes this close to each other may have the same time
_MAX_KNOWN = 200_000
_KINDS = ("file", "link", "folder", "pipe")


class EntryFact(NamedTuple):
    """One entry: `content` is the hash of a file, or the target of a link."""

    kind: str
    mode: int = 0
    size: int = 0
    content: str = ""


Facts = Mapping[str, EntryFact]


class Carried(NamedTuple):
    """The differences: entries that are new or changed, those that are gone, contents by hash."""

    changed: dict[str, EntryFact]
    removed: tuple[str, ...]
    contents: dict[str, bytes]
    left: tuple[str, ...] = ()  # files that are too large to be sent
    later: tuple[str, ...] = ()  # files that are sent with the next batch


class Mirror:
    """The part of a workspace that runs may write; remembers the hashes of unchanged files."""

    def __init__(self, max_files: int) -> None:
        self._max_files = max_files
        self._known: dict[tuple[int, ...], str] = {}

    def look(self, workspace: Workspace, run: str) -> dict[str, EntryFact]:
        """Return the entries of `work`, of `out` and of the folder of one run."""
        found: dict[str, EntryFact] = {}
        for top in (WORK, OUT, run):
            try:
                handle = _open_parent(workspace.handle, f"{top}/x")
            except OSError:
                continue
            try:
                self._add(handle, top, found)
            finally:
                os.close(handle)
        return found

    def _add(self, folder: int, path: str, found: dict[str, EntryFact]) -> None:
        """Add the entries below an open folder."""
        if path.count("/") > MAX_CARRIED_DEPTH:
            return
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
        for entry in entries:
            if len(found) > self._max_files:
                raise RunRefused(
                    f"the workspace has more than {self._max_files} files (max_workspace_files)"
                )
            inner = f"{path}/{entry.name}"
            with suppress(OSError):  # gone or closed meanwhile
                fact = self._fact(folder, entry.name)
                if fact is None:
                    continue
                found[inner] = fact
                if fact.kind == "folder":
                    handle = os.open(entry.name, READ_FOLDER, dir_fd=folder)
                    try:
                        self._add(handle, inner, found)
                    finally:
                        os.close(handle)

    def _fact(self, folder: int, name: str) -> EntryFact | None:
        """Return the fact of an entry; None for a socket or a device."""
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        mode = stat.S_IMODE(info.st_mode) & 0o777
        if stat.S_ISDIR(info.st_mode):
            return EntryFact("folder", mode)
        if stat.S_ISLNK(info.st_mode):
            return EntryFact("link", content=os.readlink(name, dir_fd=folder))
        if stat.S_ISFIFO(info.st_mode):
            return EntryFact("pipe", mode)
        if not stat.S_ISREG(info.st_mode):
            return None
        stamp = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
        known = self._known.get(stamp)
        if known is None:
            known = _hash_file(folder, name)
            if time.time_ns() - info.st_ctime_ns > _FRESH_NS:
                if len(self._known) > _MAX_KNOWN:
                    self._known.clear()
                self._known[stamp] = known
        return EntryFact("file", mode, info.st_size, known)


def differing(before: Facts, now: Facts) -> tuple[dict[str, EntryFact], tuple[str, ...]]:
    """Return the entries that are new or changed, and those that are gone."""
    changed = {path: fact for path, fact in now.items() if before.get(path) != fact}
    return changed, tuple(path for path in before if path not in now)


def carry(
    workspace: Workspace,
    changed: Mapping[str, EntryFact],
    removed: Iterable[str] = (),
    batch_bytes: int = MAX_CARRIED_BYTES,
) -> Carried:
    """Read the changed files, up to a batch: at least one file, if there is any.

    Files that are too large are left where they are, and named.
    """
    contents: dict[str, bytes] = {}
    left, later = list[str](), list[str]()
    kept, room = dict(changed), batch_bytes
    for path, fact in changed.items():
        if fact.kind != "file" or fact.content in contents:
            continue
        if fact.size > MAX_CARRIED_BYTES or (contents and fact.size > room):
            (left if fact.size > MAX_CARRIED_BYTES else later).append(path)
            del kept[path]
            continue
        data = _read(workspace, path, fact.size)
        if data is None:
            del kept[path]
            continue
        room -= len(data)
        sha256 = _hash(data)
        kept[path] = fact._replace(content=sha256, size=len(data))
        contents[sha256] = data
    gone = tuple(removed)
    return Carried(kept, gone, contents, left=tuple(left), later=tuple(later))


def put(workspace: Workspace, carried: Carried) -> None:
    """Make the same changes in the workspace; RunRefused for an entry that must not be sent."""
    for path, fact in carried.changed.items():
        _check(path, fact, carried.contents)
    for path in carried.removed:
        _check_path(path)
    for path in sorted(carried.removed, reverse=True):  # the entries of a folder come before it
        with suppress(OSError, PathEscape), _parent(workspace, path) as (parent, name):
            _remove(workspace, parent, name, path)
    for path, fact in sorted(carried.changed.items()):
        with _parent(workspace, path, make=True) as (parent, name):
            _put_entry(workspace, (parent, name, path), fact, carried.contents)
    for path, fact in sorted(carried.changed.items(), reverse=True):
        if fact.kind == "folder":
            with suppress(OSError), _parent(workspace, path) as (parent, name):
                _set_mode(parent, name, fact.mode)


def _check(path: str, fact: EntryFact, contents: Mapping[str, bytes]) -> None:
    _check_path(path)
    if fact.kind not in _KINDS or not 0 <= fact.mode <= 0o777:
        raise RunRefused(f"{path!r} cannot be brought here: it is not a file, link, folder or pipe")
    if fact.kind == "file":
        data = contents.get(fact.content)
        if data is None or _hash(data) != fact.content:
            raise RunRefused(f"{path!r} is not what it was said to be: its hash differs")
    if fact.kind == "link" and (not fact.content or "\0" in fact.content):
        raise RunRefused(f"{path!r} is a link that leads nowhere")


def _check_path(path: str) -> None:
    parts = path.split("/")
    odd = any(part in ("", ".", "..") or "\0" in part for part in parts)
    if odd or len(parts) < 2 or parts[0] not in WRITABLE or len(parts) > MAX_CARRIED_DEPTH + 3:
        raise PathEscape(path[:200], "the workspace", f"is not below {', '.join(WRITABLE)}")


def _open_parent(root: int, path: str, *, make: bool = False, workspace: object = None) -> int:
    """Open the folder that holds the path, each part by itself, following no link."""
    here = os.dup(root)
    try:
        for name in path.split("/")[:-1]:
            if make and isinstance(workspace, Workspace):
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=here)
            deeper = os.open(name, READ_FOLDER, dir_fd=here)
            os.close(here)
            here = deeper
            if make and isinstance(workspace, Workspace):
                workspace.give(here)
    except BaseException:
        os.close(here)
        raise
    return here


@contextmanager
def _parent(workspace: Workspace, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    handle = _open_parent(workspace.handle, path, make=make, workspace=workspace)
    try:
        yield handle, path.rpartition("/")[2]
    finally:
        os.close(handle)


def _put_entry(
    workspace: Workspace, at: tuple[int, str, str], fact: EntryFact, contents: Mapping[str, bytes]
) -> None:
    parent, name, path = at
    if fact.kind == "folder":
        with suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=parent)
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
        handle = os.open(name, READ_FOLDER, dir_fd=parent)
        try:
            workspace.give(handle)
        finally:
            os.close(handle)
        return
    new = f".new-{os.urandom(8).hex()}"
    if fact.kind in ("link", "pipe"):
        if fact.kind == "link":
            os.symlink(fact.content, new, dir_fd=parent)
        else:  # the collection of outputs warns of it, as on the machine that created it
            os.mkfifo(new, 0o600, dir_fd=parent)
        if workspace.owner is not None:
            os.chown(new, *workspace.owner, dir_fd=parent, follow_symlinks=False)
    else:
        with open(os.open(new, NEW_FILE, 0o600, dir_fd=parent), "wb") as file:
            file.write(contents[fact.content])
            file.flush()
            workspace.give(file.fileno())
            os.fchmod(file.fileno(), fact.mode)
    try:
        os.rename(new, name, src_dir_fd=parent, dst_dir_fd=parent)
    except IsADirectoryError:
        _remove(workspace, parent, name, path)
        os.rename(new, name, src_dir_fd=parent, dst_dir_fd=parent)


def _remove(workspace: Workspace, parent: int, name: str, path: str) -> None:
    info = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISDIR(info.st_mode):
        # By its path: every folder above it was just opened without a link.
        remove_tree(os.path.join(workspace.path, path))
    else:
        os.unlink(name, dir_fd=parent)


def _set_mode(parent: int, name: str, mode: int) -> None:
    handle = os.open(name, READ_FOLDER, dir_fd=parent)
    try:
        os.fchmod(handle, mode)
    finally:
        os.close(handle)


def _read(workspace: Workspace, path: str, size: int) -> bytes | None:
    """Return the content, at most a little more than its former size; None when it is gone."""
    with suppress(OSError), _parent(workspace, path) as (parent, name):
        handle = os.open(name, READ_FILE, dir_fd=parent)
        with open(handle, "rb", buffering=0) as file:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                return file.read(size + 1) or b""
    return None


def _hash_file(folder: int, name: str) -> str:
    digest = hashlib.sha256()
    with open(os.open(name, READ_FILE, dir_fd=folder), "rb", buffering=0) as file:
        while data := file.read(_CHUNK):
            digest.update(data)
    return digest.hexdigest()


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
