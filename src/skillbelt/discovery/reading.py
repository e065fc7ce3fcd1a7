"""The files of one skill: read one, go through all. Nothing outside its folder is ever opened.

Everything is opened relative to a handle of the folder, so that no name and no link, whenever it
was put there, leads anywhere else.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import islice

from skillbelt.errors import FileTooLarge, FileTypeRefused, FileUnreadable, PathEscape
from skillbelt.files import contain
from skillbelt.files.contain import (
    FOLLOW_FILE,
    READ_FOLDER,
    check_relative,
    open_beneath,
    read_handle,
)
from skillbelt.files.manifest import MAX_ENTRY_DEPTH, MAX_MANIFEST_FILES, SKIPPED
from skillbelt.format.skill import Skill
from skillbelt.values import Limits

_LIMITS = Limits()
# A pipe that lies there is not waited for, a terminal not taken.


def read_file(skill: Skill, path: str, most: int) -> bytes:
    """All bytes of a regular file below the skill's folder, if it has at most so many.

    Raises PathEscape when the path leads out, FileTooLarge, FileTypeRefused or FileUnreadable.
    """
    if skill.origin.kind == "mcp":
        from skillbelt.discovery.listed_files import read

        return read(skill, path, most)
    try:
        return _checked(open_file(skill, path), path, most)
    except PathEscape as escape:
        raise PathEscape(path, skill.dir, "leads out of the skill's folder") from escape
    except OSError as error:
        raise FileUnreadable(path, _why(skill, path, error)) from error


def open_file(skill: Skill, path: str) -> int:
    """A handle of a file below the skill's folder; PathEscape when the path leads out.

    The SKILL.md itself is opened as discovery opens it: it may be a link, as far as the fence goes.
    """
    if path == os.path.basename(skill.location) and os.path.isabs(skill.location):
        return contain.open_file(skill.location, skill.fence)
    folder = _folder(skill)
    try:
        return open_beneath(folder, path, FOLLOW_FILE)
    finally:
        os.close(folder)


def too_large(path: str, size: int, most: int) -> FileTooLarge:
    """The error for a file of more bytes than the limit."""
    reason = f"has {size:,} bytes; the limit is {most:,}: split it into files below reference/"
    return FileTooLarge(path, reason)


def nameable(path: str) -> bool:
    """Whether a file of that name could be asked for."""
    try:
        check_relative(path)
    except PathEscape:
        return False
    return True


def walk(skill: Skill, limits: Limits = _LIMITS) -> Iterator[str]:
    """The regular files below the folder, through no link: folder by folder, each by name."""
    try:
        root = _folder(skill)
    except (OSError, FileUnreadable, PathEscape):
        return
    pending, left = [""], MAX_MANIFEST_FILES
    try:
        while pending and left > 0:
            below = pending.pop(0)
            entries = _entries(root, below, left)
            left -= len(entries)
            for name, folder in entries:
                path = f"{below}{name}"
                if folder and name not in SKIPPED and path.count("/") < MAX_ENTRY_DEPTH:
                    pending.append(f"{path}/")
                elif not folder and nameable(path):
                    yield path
    finally:
        os.close(root)


def _folder(skill: Skill) -> int:
    if not os.path.isabs(skill.location):
        raise FileUnreadable(skill.location, "the skill was made from text and has no files")
    return contain.open_dir(skill.dir, skill.fence)


def _checked(handle: int, path: str, most: int) -> bytes:
    info = os.fstat(handle)
    regular = stat.S_ISREG(info.st_mode)
    # One byte more than is allowed shows that the file grew since.
    data = read_handle(handle, most + 1 if regular and info.st_size <= most else 0)
    if not regular:
        raise FileTypeRefused(path, "is not a regular file")
    if info.st_size > most or len(data) > most:
        raise too_large(path, max(info.st_size, len(data)), most)
    if info.st_mode & 0o111 and data.startswith(b"#!"):
        raise FileTypeRefused(path, "is an executable script")
    return data


def _why(skill: Skill, path: str, error: OSError) -> str:
    reason = f"can not be read: {(error.strerror or str(error)).lower()}"
    if not isinstance(error, FileNotFoundError):
        return reason
    from difflib import get_close_matches

    known = get_close_matches(path, list(islice(walk(skill), 1_000)), n=3, cutoff=0.4)
    return f"{reason}; closest: {', '.join(known)}" if known else reason


def _entries(root: int, below: str, most: int) -> list[tuple[str, bool]]:
    """Names in a folder below the root, and whether each is a folder itself; links left out."""
    try:
        handle = open_beneath(root, below.rstrip("/") or ".", READ_FOLDER)
    except (OSError, PathEscape):
        return []
    try:
        with os.scandir(handle) as listing:
            found = [(one.name, one.is_dir(follow_symlinks=False)) for one in _plain(listing, most)]
    except OSError:
        return []
    finally:
        os.close(handle)
    return sorted(found)


def _plain(listing: Iterator[os.DirEntry[str]], most: int) -> Iterator[os.DirEntry[str]]:
    for entry in islice(listing, most):
        if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
            yield entry
