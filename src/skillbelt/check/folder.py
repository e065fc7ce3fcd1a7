"""The rules about a skill's folder: what lies in it and whether it can be used.

Nothing outside the folder is opened, links are looked at but not followed, and nothing that could
block (a pipe, a device) is ever opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from skillbelt.check.rules import finding
from skillbelt.errors import PathEscape
from skillbelt.files.contain import inside, open_file, read_handle
from skillbelt.files.manifest import MAX_ENTRY_DEPTH, MAX_MANIFEST_FILES
from skillbelt.values import SKILL_FILE, Diagnostic, Limits

SKIPPED_FOLDERS = frozenset({".git", ".hg", ".svn", ".venv", "node_modules", "__pycache__"})
# What every host must take that gets skills over MCP.
_TAKEN_FILES = 512
_TAKEN_BYTES = 16 * 2**20
_SHELL_SUFFIXES = ("", ".sh", ".bash", ".zsh")
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


class Unusable(Exception):
    """The path can not be read as a regular file; the text says why, the code is the rule's."""

    def __init__(self, code: str, reason: str) -> None:
        self.code = code
        super().__init__(reason)


class Content(NamedTuple):
    """The first bytes of a file, and how many it has in all."""

    data: bytes
    size: int


def read(path: str, limit: int, fence: str = "") -> Content:
    """At most `limit` bytes of a regular file; raises Unusable for all else and never blocks.

    Nothing is read that lies outside the fence, if there is one.
    """
    try:
        _regular(os.stat(path))
        handle = open_file(path, fence)
        size = os.fstat(handle).st_size
        return Content(read_handle(handle, limit), size)
    except PathEscape as escape:
        raise Unusable("link-outside", f"it {escape.reason} ({fence})") from None
    except (OSError, ValueError) as error:
        raise _unusable(path, error) from None


def _regular(info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        kind = _KINDS.get(stat.S_IFMT(info.st_mode), "no regular file")
        raise Unusable("not-a-file", f"it is {kind}")


def _unusable(path: str, error: OSError | ValueError) -> Unusable:
    if isinstance(error, OSError) and os.path.islink(path) and not os.path.exists(path):
        return Unusable("broken-link", "it is a link that leads nowhere")
    return Unusable("unreadable", str(getattr(error, "strerror", "") or error).lower())


def check_entries(folder: str, limits: Limits) -> Iterator[Diagnostic]:
    """What is wrong with the files of a skill, its own SKILL.md left out; sorted by path."""
    seen = files = size = 0
    for entry, relative in _walk(folder, "", 0, limits):
        if isinstance(entry, Diagnostic):
            yield entry
            continue
        seen += 1
        if seen > MAX_MANIFEST_FILES:
            yield finding(
                "folder-cut",
                folder,
                None,
                f"only {MAX_MANIFEST_FILES:,} entries were checked",
            )
            break
        if relative != SKILL_FILE or entry.is_symlink():
            yield from _check_entry(entry, folder, relative, limits)
        own = _size(entry)
        files, size = files + (own is not None), size + (own or 0)
    if files > _TAKEN_FILES or size > _TAKEN_BYTES:
        message = f"the skill has {files:,} files with {size:,} bytes"
        yield finding("folder-large", folder, None, message)


def _size(entry: os.DirEntry[str]) -> int | None:
    """How many bytes the entry has, if it is a file of the skill."""
    try:
        regular = entry.is_file(follow_symlinks=False)
        return entry.stat(follow_symlinks=False).st_size if regular else None
    except OSError:
        return None


def _walk(
    folder: str, below: str, depth: int, limits: Limits
) -> Iterator[tuple[os.DirEntry[str] | Diagnostic, str]]:
    path = os.path.join(folder, below)
    try:
        with os.scandir(path) as found:
            entries = sorted(islice(found, MAX_MANIFEST_FILES + 1), key=lambda entry: entry.name)
    except OSError as error:
        message = f"the folder can not be read: {error.strerror}"
        yield finding("entry-unusable", path, None, message), below
        return
    for entry in entries:
        relative = f"{below}/{entry.name}" if below else entry.name
        yield entry, relative
        if entry.name in SKIPPED_FOLDERS or not entry.is_dir(follow_symlinks=False):
            continue
        if depth == MAX_ENTRY_DEPTH:
            message = f"folders below {depth} levels were not checked"
            yield finding("folder-cut", entry.path, None, message), relative
        else:
            yield from _walk(folder, relative, depth + 1, limits)


def _check_entry(
    entry: os.DirEntry[str], folder: str, relative: str, limits: Limits
) -> Iterator[Diagnostic]:
    if entry.is_symlink():
        yield from _check_link(entry, folder)
        return
    try:
        info = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(info.st_mode):
            return
        _regular(info)
    except (OSError, Unusable) as error:
        yield finding("entry-unusable", entry.path, None, f"{relative} can not be read: {error}")
        return
    yield from _check_file(folder, relative, info, limits)


def _check_link(entry: os.DirEntry[str], folder: str) -> Iterator[Diagnostic]:
    if not os.path.exists(entry.path):
        yield finding("broken-link", entry.path, None, f"the link {entry.name!r} leads nowhere")
    elif not inside(entry.path, folder):
        message = f"the link {entry.name!r} leads out of the skill"
        yield finding("link-outside", entry.path, None, message)


def _check_file(
    folder: str, relative: str, info: os.stat_result, limits: Limits
) -> Iterator[Diagnostic]:
    path = os.path.join(folder, relative)
    if os.path.basename(relative) == SKILL_FILE:
        yield finding("nested-skill", path, None, f"{relative} lies inside a skill")
    if not os.access(path, os.R_OK):
        yield finding("entry-unusable", path, None, f"{relative} may not be read")
        return
    # A module is run, never read.
    if info.st_size > limits.max_resource_file_bytes and not relative.endswith(".wasm"):
        yield finding("entry-large", path, None, f"{relative} has {info.st_size:,} bytes")
    if relative.startswith("scripts/") and info.st_size:
        yield from _check_script(folder, relative, info.st_mode)


def _check_script(folder: str, relative: str, mode: int) -> Iterator[Diagnostic]:
    """A script must say what runs it, and may be run by its path once it does."""
    path = os.path.join(folder, relative)
    try:
        head = read(path, 256, folder).data
    except Unusable as error:
        yield finding("entry-unusable", path, None, f"{relative} can not be read: {error}")
        return
    executable = bool(mode & 0o111) and os.name != "nt"
    if head.startswith(b"#!"):
        if not executable and os.name != "nt":
            message = f"{relative} has a `#!` line but is not executable"
            yield finding("script-mode", path, 1, message)
    elif b"\0" not in head and (executable or os.path.splitext(relative)[1] in _SHELL_SUFFIXES):
        yield finding("script-shebang", path, 1, f"{relative} has no `#!` line")
