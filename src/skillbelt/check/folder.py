"""The rules about a skill's folder: which of its entries can be used.

Takes the entries from the one walk of the folder (`files/tree.py`). Links are not followed, and
nothing that could block (a pipe, a device) is opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress

from skillbelt.check.danger import MAX_SEARCHED_BYTES, check_content
from skillbelt.check.rules import finding
from skillbelt.errors import PathEscape
from skillbelt.files.contain import below, name_fault, open_file, read_handle, windows_fault
from skillbelt.files.manifest import LocalFiles
from skillbelt.files.tree import (
    MAX_MANIFEST_FILES,
    RUN_FOLDERS,
    TreeEntry,
    is_left_out,
    relative_target,
)
from skillbelt.format.bounds import MAX_RESOURCE_FILE_BYTES
from skillbelt.records import NamedTuple
from skillbelt.values import SKILL_FILE, Diagnostic

# Every host that gets skills over MCP must accept this much.
_ACCEPTED_FILES = 512
_ACCEPTED_BYTES = 16 * 2**20
# How many of a skill's files are searched for secrets, the nearest first.
_MAX_SEARCHED_IN_ALL = 16 * 2**20
_SHELL_SUFFIXES = ("", ".sh", ".bash", ".zsh")
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


class UnusableFile(Exception):
    """The path cannot be read as a regular file; the text says why, the code is the rule's."""

    def __init__(self, code: str, reason: str) -> None:
        self.code = code
        super().__init__(reason)


class Content(NamedTuple):
    """The first bytes of a file, and how many it has in all."""

    data: bytes
    size: int


def read(path: str, limit: int, fence: str = "") -> Content:
    """Read at most `limit` bytes of a regular file inside the fence, without ever blocking.

    Raises UnusableFile for anything else.
    """
    try:
        _regular(os.stat(path))
        handle = open_file(path, fence)
        size = os.fstat(handle).st_size
        return Content(read_handle(handle, limit), size)
    except PathEscape as escape:
        raise UnusableFile("link-outside", f"it {escape.reason} ({fence})") from None
    except (OSError, ValueError) as error:
        raise _unusable(path, error) from None


def _regular(info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        kind = _KINDS.get(stat.S_IFMT(info.st_mode), "not a regular file")
        raise UnusableFile("not-a-file", f"it is {kind}")


def _unusable(path: str, error: OSError | ValueError) -> UnusableFile:
    if isinstance(error, OSError) and os.path.islink(path) and not os.path.exists(path):
        return UnusableFile("broken-link", "it is a link that leads nowhere")
    return UnusableFile("unreadable", str(getattr(error, "strerror", "") or error).lower())


def check_entries(folder: str) -> Iterator[Diagnostic]:
    """Yield the problems of a skill's files, except its own SKILL.md; sorted by path."""
    entries = sorted(LocalFiles(folder).entries())
    cut: list[Diagnostic] = []
    searched = 0
    for entry in entries:
        if entry.problem == "too-many":
            message = f"only {MAX_MANIFEST_FILES:,} entries were checked"
            cut.append(finding("folder-cut", folder, None, message))
        elif entry.path != SKILL_FILE or entry.target:
            yield from _check_entry(entry, folder)
            if entry.kind == "file" and not (entry.target or entry.problem):
                searched += min(entry.size, MAX_SEARCHED_BYTES)
                if searched <= _MAX_SEARCHED_IN_ALL:
                    yield from _search_file(folder, entry.path)
    yield from cut
    for name in RUN_FOLDERS:
        path = os.path.join(folder, name)
        if os.path.lexists(path):
            message = f"{name!r} is hidden in a run: the workspace has its own there"
            yield finding("entry-hidden", path, None, message)
    sizes = [entry.size for entry in entries if entry.kind == "file" and not entry.target]
    if len(sizes) > _ACCEPTED_FILES or sum(sizes) > _ACCEPTED_BYTES:
        message = f"the skill has {len(sizes):,} files with {sum(sizes):,} bytes"
        yield finding("folder-large", folder, None, message)


def _check_entry(entry: TreeEntry, folder: str) -> Iterator[Diagnostic]:
    path = os.path.join(folder, entry.path)
    if entry.target:
        yield from _check_link(entry, folder)
    elif entry.problem == "too-deep":
        message = f"{entry.path} {entry.reason}; what is below was not checked"
        yield finding("folder-cut", path, None, message)
    elif entry.problem:
        yield finding("entry-unusable", path, None, f"{entry.path or 'the folder'} {entry.reason}")
    elif entry.kind == "file":
        fault = name_fault(entry.path)
        if fault:
            message = f"the name {entry.path!r} {fault}, so no model can ask for the file"
            yield finding("entry-unusable", path, None, message)
        elif fault := windows_fault(os.path.basename(entry.path)):
            message = f"the name {entry.path!r} {fault}, so the skill cannot be installed"
            yield finding("entry-unusable", path, None, message)
        yield from _check_file(folder, entry)


def _check_link(entry: TreeEntry, folder: str) -> Iterator[Diagnostic]:
    path, name = os.path.join(folder, entry.path), os.path.basename(entry.path)
    if not os.path.exists(path):
        yield finding("broken-link", path, None, f"the link {name!r} leads nowhere")
    elif not relative_target(folder, entry.path, entry.target):
        message = f"the link {name!r} leads out of the skill"
        yield finding("link-outside", path, None, message)
    elif is_left_out(below(os.path.realpath(path), os.path.realpath(folder))):
        message = f"the link {name!r} leads to something that is not part of the skill"
        yield finding("link-outside", path, None, message)


def _check_file(folder: str, entry: TreeEntry) -> Iterator[Diagnostic]:
    relative = entry.path
    path = os.path.join(folder, relative)
    if os.path.basename(relative) == SKILL_FILE:
        yield finding("nested-skill", path, None, f"{relative} is inside a skill")
    if not os.access(path, os.R_OK):
        yield finding("entry-unusable", path, None, f"{relative} cannot be read: permission denied")
        return
    # A module is run, never read.
    if entry.size > MAX_RESOURCE_FILE_BYTES and not relative.endswith(".wasm"):
        yield finding("entry-large", path, None, f"{relative} has {entry.size:,} bytes")
    if relative.startswith("scripts/") and entry.size:
        yield from _check_script(folder, relative, entry.mode)


def _search_file(folder: str, relative: str) -> Iterator[Diagnostic]:
    path = os.path.join(folder, relative)
    with suppress(UnusableFile):
        yield from check_content(read(path, MAX_SEARCHED_BYTES, folder).data, path)


def _check_script(folder: str, relative: str, mode: int) -> Iterator[Diagnostic]:
    """Check that a script names its interpreter, and is executable if it does."""
    path = os.path.join(folder, relative)
    try:
        head = read(path, 256, folder).data
    except UnusableFile as error:
        yield finding("entry-unusable", path, None, f"{relative} cannot be read: {error}")
        return
    executable = bool(mode & 0o111) and os.name != "nt"
    if head.startswith(b"#!"):
        if not executable and os.name != "nt":
            message = f"{relative} has a `#!` line but is not executable"
            yield finding("script-mode", path, 1, message)
    elif b"\0" not in head and (executable or os.path.splitext(relative)[1] in _SHELL_SUFFIXES):
        yield finding("script-shebang", path, 1, f"{relative} has no `#!` line")
