"""Read the files of a skill for a model: bounded, contained, with errors that say what to do."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

from skillbelt.errors import FileTypeRefused, FileUnreadable, PathEscape
from skillbelt.files.contain import name_fault
from skillbelt.files.manifest import too_large
from skillbelt.format.skill import Skill

_MAX_COMPARED = 1_000


def read_file(skill: Skill, path: str, most: int) -> bytes:
    """Return all bytes of a regular file of the skill, if it has at most `most`.

    Raises PathEscape when the path leads out, FileTooLarge, FileTypeRefused or FileUnreadable.
    """
    try:
        with skill.files.open(path, most) as file:
            # One byte more than is allowed shows that the file grew since.
            data = file.read(most + 1)
            executable = _is_executable(file)
    except PathEscape as escape:
        raise PathEscape(path, skill.dir, "leads out of the skill's folder") from escape
    except OSError as error:
        raise FileUnreadable(path, _explain(skill, path, error)) from error
    if len(data) > most:
        raise too_large(path, len(data), most)
    if executable and data.startswith(b"#!"):
        raise FileTypeRefused(path, "is an executable script")
    return data


def nameable(path: str) -> bool:
    """Whether a file of that name could be asked for."""
    return not name_fault(path.removeprefix("./"))


def walk(skill: Skill) -> Iterator[str]:
    """Yield the paths of the skill's files that can be asked for, the nearest folders first."""
    for entry in skill.files.entries():
        if entry.kind == "file" and nameable(entry.path):
            yield entry.path


def _is_executable(file: BinaryIO) -> bool:
    try:
        return bool(os.fstat(file.fileno()).st_mode & 0o111)
    except io.UnsupportedOperation:  # listed by a server, which knows no modes
        return False


def _explain(skill: Skill, path: str, error: OSError) -> str:
    reason = f"cannot be read: {(error.strerror or str(error)).lower()}"
    if not isinstance(error, FileNotFoundError):
        return reason
    from difflib import get_close_matches  # cost: 3 ms, only for a file that is missing

    known = get_close_matches(path, list(islice(walk(skill), _MAX_COMPARED)), n=3, cutoff=0.4)
    return f"{reason}; closest: {', '.join(known)}" if known else reason
