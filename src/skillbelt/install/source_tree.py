"""The files of a source, on disk or in git objects, and the copy of one skill out of them.

Every skill that is installed passes through `export_skill`: plain files and links that stay inside,
names that clash on no file system, and the bounds of an archive.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, Protocol
from unicodedata import category

from skillbelt.discovery.sources.bounds import MAX_ARCHIVE_FILES, PullBudget, Refusal
from skillbelt.discovery.sources.failure import SourceFailure
from skillbelt.errors import PathEscape
from skillbelt.files.contain import (
    READ_FILE,
    NameTable,
    check_relative,
    make_folders,
    open_beneath,
    open_folder,
    windows_fault,
)
from skillbelt.records import NamedTuple
from skillbelt.text import Lazy

ItemKind = Literal["file", "folder", "link", "submodule", "special"]
# Generated folders: neither installed nor part of any hash.
SKIPPED_FOLDERS = frozenset(("node_modules", ".venv"))
# Present in a checkout on disk; no honest tool commits them.
_HISTORIES = frozenset((".git", ".hg", ".svn"))
MAX_TREE_ITEMS = 1_000_000
_SHORT_HISTORY = Lazy(r"(?:git|hg|svn)~[0-9]+")
_CHUNK = 64 * 2**10
_MAX_LINK_BYTES = 1024


class TreeItem(NamedTuple):
    """One entry of a folder in a source."""

    name: str
    kind: ItemKind
    executable: bool = False


class SourceTree(Protocol):
    """The files of a source. Paths are relative to its top, with `/`; "" is the top."""

    def items(self, folder: str) -> Sequence[TreeItem]:
        """Return what is in a folder, in the order of bytes; nothing if there is no such folder."""
        ...

    def is_file(self, path: str) -> bool:
        """Whether there is a plain file."""
        ...

    def list_all(self) -> None:
        """Read what is in all folders, where that is faster at once."""
        ...

    def rest(self) -> None:
        """Stop the processes that read the source; reading again restarts them."""
        ...

    def prepare(self, paths: Iterable[str]) -> None:
        """Fetch these files for reading, all at once where that is faster."""
        ...

    def ready(self, path: str) -> bytes | None:
        """Return a file that was prepared and kept; None for one that must be read."""
        ...

    def contents(self, paths: Sequence[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield the bytes of each file, those of a link being its target.

        The chunks of one must be consumed before the next.
        """
        ...


def read_file(tree: SourceTree, path: str, most: int) -> bytes:
    """Return the bytes of a file; raise Refusal for more than `most`."""
    ready = tree.ready(path)
    if ready is not None and len(ready) <= most:
        return ready
    data = bytearray()
    for _, chunks in tree.contents([path]):
        for chunk in chunks:
            data += chunk
            if len(data) > most:
                raise Refusal(f"{path!r} has more than {most} bytes")
    return bytes(data)


def join(*parts: str) -> str:
    """Join parts of a path in a source; "" and "." add nothing."""
    joined = posixpath.normpath("/".join(part for part in parts if part))
    return "" if joined == "." else joined.lstrip("/")


def export_skill(
    tree: SourceTree, folder: str, target: str, *, source: str, budget: PullBudget
) -> None:
    """Copy a folder of the source into the empty folder `target`.

    Raises SourceFailure with the name of the file that is not safe to install, or of the bound.
    """
    handle = open_folder(target)
    try:
        _copy(tree, folder, handle, budget)
    except (PathEscape, Refusal) as error:
        where = f"{folder}: " if folder else ""
        reason = f"{where}{error}"
        remedy = "nothing of it was installed; ask its author for plain files inside the skill"
        raise SourceFailure(source, reason, code="source-refused", remedy=remedy) from error
    finally:
        os.close(handle)


def _copy(tree: SourceTree, folder: str, handle: int, budget: PullBudget) -> None:
    names = PortableNames()
    files: dict[str, TreeItem] = {}
    links: dict[str, TreeItem] = {}
    for path, item in walk(tree, folder):
        if item.kind == "folder":
            names.add(path, is_folder=True)
        elif item.kind in ("file", "link"):
            names.add(path)
            (files if item.kind == "file" else links)[path] = item
        else:
            what = "a submodule" if item.kind == "submodule" else "not a regular file"
            raise Refusal(f"{path!r} is {what}")
        if len(names) > MAX_ARCHIVE_FILES:
            raise Refusal(f"more than {MAX_ARCHIVE_FILES} files and folders")
    places = {join(folder, path): path for path in files}
    for place, chunks in tree.contents(list(places)):
        path = places[place]
        with budget.file(handle, path, executable=files[path].executable) as write:
            for chunk in chunks:
                write(chunk)
    for path in links:
        target = read_file(tree, join(folder, path), _MAX_LINK_BYTES)
        _make_link(handle, path, target, files=files, links=links)


class PortableNames:
    """The names in a skill: every system can have all of them, and reads none as something else."""

    def __init__(self) -> None:
        self._table = NameTable("skill")

    def __len__(self) -> int:
        return len(self._table)

    def add(self, path: str, *, is_folder: bool = False) -> None:
        """Add the path of a file; raise PathEscape or Refusal for one that is not portable."""
        check_relative(path, "skill")
        for name in path.split("/"):
            if is_history(name):
                raise Refusal(f"{path!r} is the name of a history")
            if fault := windows_fault(name):
                raise Refusal(f"the name {path!r} {fault}, so Windows cannot have it")
        if is_folder:
            self._table.add_folder(path)
        else:
            self._table.add_file(path)


def is_history(name: str) -> bool:
    """Whether some file system reads the name as `.git`, `.hg` or `.svn`.

    Windows drops dots and blanks at the end and has short names, macOS ignores some characters.
    """
    shown = "".join(char for char in name if category(char) != "Cf").casefold()
    return shown.rstrip(". ") in _HISTORIES or bool(_SHORT_HISTORY.fullmatch(shown.rstrip(". ")))


def _make_link(
    handle: int, path: str, target: bytes, *, files: dict[str, TreeItem], links: dict[str, TreeItem]
) -> None:
    """Make a relative link to a file or folder of the same skill; PathEscape for any other."""
    text = target.decode("utf-8", "replace")
    leads = posixpath.normpath(posixpath.join(posixpath.dirname(path), text))
    known = leads in files or any(name.startswith(f"{leads}/") for name in files)
    if text.startswith("/") or leads.startswith("..") or "\0" in text or not known:
        reason = f"is a link that leads out of the skill or to nothing: {text[:100]!r}"
        raise PathEscape(path, "skill", reason)
    if not links.keys().isdisjoint(_list_steps(posixpath.dirname(path), text)):
        raise PathEscape(path, "skill", "is a link through another link")
    parent, _, name = path.rpartition("/")
    here = make_folders(handle, parent) if parent else os.dup(handle)
    try:
        os.symlink(text, name, dir_fd=here)
    finally:
        os.close(here)


def _list_steps(folder: str, target: str) -> Iterator[str]:
    """Yield every path that the kernel comes to on its way along a link, as the names say it."""
    here = folder.split("/") if folder else []
    for name in target.split("/"):
        if name == "..":
            del here[-1:]
        elif name not in ("", "."):
            here.append(name)
        yield "/".join(here)


def walk(tree: SourceTree, folder: str) -> Iterator[tuple[str, TreeItem]]:
    """Yield everything below a folder, by its path relative to it, but not what is skipped."""
    waiting = [""]
    count = 0
    while waiting:
        here = waiting.pop()
        for item in tree.items(join(folder, here)):
            count += 1
            if count > MAX_TREE_ITEMS:
                raise Refusal(f"more than {MAX_TREE_ITEMS} files and folders")
            path = f"{here}/{item.name}" if here else item.name
            if item.name in SKIPPED_FOLDERS and item.kind == "folder":
                continue
            yield path, item
            if item.kind == "folder":
                waiting.append(path)


class FolderTree:
    """A source in a folder on disk. Nothing outside the folder is opened."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.realpath(folder)

    def items(self, folder: str) -> Sequence[TreeItem]:
        """Return what is in a folder, in the order of bytes; nothing is reached by a link."""
        place = os.path.join(self.folder, folder) if folder else self.folder
        try:
            if os.path.realpath(place) != place:  # a link on the way may lead anywhere
                return ()
            with os.scandir(place) as found:
                items = [_describe(entry) for entry in found if entry.name not in _HISTORIES]
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return ()
        return sorted(items, key=lambda item: os.fsencode(item.name))

    def is_file(self, path: str) -> bool:
        """Whether there is a plain file that no link leads to."""
        parent, _, name = path.rpartition("/")
        return any(one.name == name and one.kind == "file" for one in self.items(parent))

    def list_all(self) -> None:
        """Do nothing: folders on disk are read one by one."""

    def rest(self) -> None:
        """Do nothing: nothing runs."""

    def prepare(self, paths: Iterable[str]) -> None:
        """Do nothing: files on disk are read one by one."""

    def ready(self, path: str) -> bytes | None:
        """Return nothing: no file is kept."""

    def contents(self, paths: Sequence[str]) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield the bytes of each file; raises Refusal if it is no longer a regular file."""
        handle = open_folder(self.folder)
        try:
            for path in paths:
                yield path, _read_chunks(handle, path)
        finally:
            os.close(handle)


def _describe(entry: os.DirEntry[str]) -> TreeItem:
    status = entry.stat(follow_symlinks=False)
    kinds: dict[int, ItemKind] = {
        stat.S_IFREG: "file",
        stat.S_IFDIR: "folder",
        stat.S_IFLNK: "link",
    }
    kind = kinds.get(stat.S_IFMT(status.st_mode), "special")
    return TreeItem(entry.name, kind, bool(status.st_mode & 0o111) and kind == "file")


def _read_chunks(handle: int, path: str) -> Iterator[bytes]:
    if stat.S_ISLNK(os.stat(path, dir_fd=handle, follow_symlinks=False).st_mode):
        yield os.fsencode(os.readlink(path, dir_fd=handle))
        return
    with os.fdopen(open_beneath(handle, path, READ_FILE), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Refusal(f"{path!r} is not a regular file")
        while chunk := file.read(_CHUNK):
            yield chunk
