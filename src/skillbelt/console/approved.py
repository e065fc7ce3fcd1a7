"""What a skill looked like when it was last approved, to show what is new since then.

The texts are in the store, one entry for each skill of a project, bounded in size.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from skillbelt.errors import SkillbeltError
from skillbelt.format.skill import Skill
from skillbelt.store.protocol import SessionKey, Store
from skillbelt.untrusted_json import BadJson, read_json

APP = "skillbelt:approved"
# The text kept of one file, and of a skill together; of all other files only their digests.
MAX_FILE_BYTES = 64 * 2**10
MAX_SKILL_BYTES = 512 * 2**10
MAX_FILES = 500
MAX_DIFF_LINES = 400
# The lines of both texts together: the time to compare grows with their square.
MAX_COMPARED_LINES = 2_000
_ENTRY = "version"


class DiffLine(NamedTuple):
    """A line of a difference; `kind` is `add`, `cut`, `same` or `place`."""

    kind: str
    text: str


class ApprovedChange(NamedTuple):
    """A file that was added, removed or changed, with its difference where that is text."""

    path: str
    kind: str
    lines: tuple[DiffLine, ...] = ()


class ApprovedVersion(NamedTuple):
    """A version of a skill that was approved: by whom, when, and what was in its files."""

    hash: str
    time: float
    by: str
    files: Mapping[str, tuple[str, str | None]]  # the digest, and the text if it was kept


def remember_approved(store: Store, project: str, skill: Skill, hash: str, by: str) -> None:
    """Keep this version of a skill as the one that was approved last."""
    version = {"hash": hash, "time": store.now(), "by": by, "files": read_files(skill)}
    store.append(_place(project, skill.name), [], {_ENTRY: json.dumps(version)})


def find_approved(store: Store, project: str, name: str) -> ApprovedVersion | None:
    """Return the version that was approved last; None if none is known."""
    text = store.state(_place(project, name)).get(_ENTRY)
    if text is None:
        return None
    try:
        found = read_json(text)
        files = {str(path): (str(one[0]), one[1]) for path, one in found["files"].items()}
        return ApprovedVersion(
            hash=str(found["hash"]), time=float(found["time"]), by=str(found["by"]), files=files
        )
    except (BadJson, KeyError, TypeError, ValueError, IndexError):
        return None


def read_files(skill: Skill) -> dict[str, tuple[str, str | None]]:
    """Return the digest of each file of a skill, and its text where that is short."""
    found: dict[str, tuple[str, str | None]] = {}
    left = MAX_SKILL_BYTES
    for number, entry in enumerate(skill.files.manifest().files):
        data = _read_start(skill, entry.path) if number < MAX_FILES else None
        text = None
        if data is not None and len(data) <= min(MAX_FILE_BYTES, left) and b"\0" not in data:
            text = data.decode("utf-8", "replace")
            left -= len(data)
        found[entry.path] = (entry.sha256, text)
    return found


def _read_start(skill: Skill, path: str) -> bytes | None:
    """Return the first bytes of a file; None if it cannot be read."""
    try:
        with skill.files.open(path) as file:
            return file.read(MAX_FILE_BYTES + 1)
    except (OSError, SkillbeltError):
        return None


def compare_files(
    before: Mapping[str, tuple[str, str | None]], after: Mapping[str, tuple[str, str | None]]
) -> list[ApprovedChange]:
    """Return what was added, removed and changed, by path."""
    changes = []
    left = MAX_DIFF_LINES
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old is not None and new is not None and old[0] == new[0]:
            continue
        kind = "added" if old is None else "removed" if new is None else "changed"
        lines = _diff(old[1] if old else "", new[1] if new else "", left)
        left -= len(lines)
        changes.append(ApprovedChange(path, kind, lines))
    return changes


def _diff(before: str | None, after: str | None, most: int) -> tuple[DiffLine, ...]:
    if before is None or after is None:
        return ()
    # Not `splitlines`: it splits at characters that must be seen in a line.
    old, new = before.split("\n"), after.split("\n")
    if most <= 0 or len(old) + len(new) > MAX_COMPARED_LINES:
        return (DiffLine("place", "too many lines to compare; open the file"),)
    kinds = {"+": "add", "-": "cut", "@": "place"}
    # The first two lines name the files.
    found = islice(difflib.unified_diff(old, new, lineterm="", n=2), 2, None)
    lines = [DiffLine(kinds.get(line[:1], "same"), line) for line in found]
    if len(lines) > most:
        return (*lines[:most], DiffLine("place", f"{len(lines) - most} more lines"))
    return tuple(lines)


def _place(project: str, name: str) -> SessionKey:
    return SessionKey(APP, project, name)
