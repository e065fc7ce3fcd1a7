"""The versions of a skill that were approved, to show what changed since then.

The store keeps the texts of the last versions of each skill of a project, up to a size limit.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

from skillbelt.console.abilities import GainedAbility, list_abilities
from skillbelt.errors import SkillbeltError
from skillbelt.events import NewEvent
from skillbelt.format.skill import Skill
from skillbelt.runtime.runtime import Runtime
from skillbelt.store.protocol import SessionKey, Store
from skillbelt.untrusted_json import BadJson, read_json

APP = "skillbelt:approved"
# The text kept of one file, and of one skill; of larger files only the digest is kept.
MAX_FILE_BYTES = 64 * 2**10
MAX_SKILL_BYTES = 512 * 2**10
MAX_FILES = 500
# Versions kept of one skill; when there are more, the older half is deleted.
MAX_VERSIONS = 10
MAX_DIFF_LINES = 400
# Lines of both texts together: the time to compare them is quadratic.
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
    """An approved version of a skill: who approved it, when, and the contents of its files."""

    hash: str
    time: float
    by: str
    files: Mapping[str, tuple[str, str | None]]  # the digest, and the text if it was kept
    abilities: tuple[GainedAbility, ...] | None = None  # None if they were not kept

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> ApprovedVersion | None:
        """Parse a stored version; None if it is invalid."""
        try:
            files = {str(path): (str(one[0]), one[1]) for path, one in found["files"].items()}
            can = found.get("abilities")
            return cls(
                hash=str(found["hash"]),
                time=float(found["time"]),
                by=str(found["by"]),
                files=files,
                abilities=None
                if can is None
                else tuple(GainedAbility(str(kind), str(value)) for kind, value in can),
            )
        except (AttributeError, KeyError, TypeError, ValueError, IndexError):
            return None


def remember_approved(belt: Runtime, project: str, skill: Skill, hash: str, by: str) -> None:
    """Store this version of a skill as the one approved last."""
    store, place = belt.store, _record_key(project, skill.name)
    version = {
        "hash": hash,
        "time": store.now(),
        "by": by,
        "files": read_files(skill),
        "abilities": list_abilities(belt, skill),
    }
    last = find_approved(store, project, skill.name)
    events: list[NewEvent] = []
    if last is None or last.hash != hash:
        kept = [one for one in store.events(place) if one.type == _ENTRY]
        if len(kept) >= MAX_VERSIONS:
            store.delete(place)
            events = [NewEvent(_ENTRY, data=one.data) for one in kept[-MAX_VERSIONS // 2 :]]
        events.append(NewEvent(_ENTRY, data=version))
    store.append(place, events, {_ENTRY: json.dumps(version)})


def find_approved(store: Store, project: str, name: str) -> ApprovedVersion | None:
    """Return the version approved last; None if none is stored."""
    text = store.state(_record_key(project, name)).get(_ENTRY)
    if text is None:
        return None
    try:
        return ApprovedVersion.read(read_json(text))
    except BadJson:
        return None


def list_approved(store: Store, project: str, name: str) -> list[ApprovedVersion]:
    """Return the approved versions, newest first."""
    events = store.events(_record_key(project, name))
    found = [ApprovedVersion.read(one.data) for one in events if one.type == _ENTRY]
    return [one for one in reversed(found) if one is not None]


def read_files(skill: Skill) -> dict[str, tuple[str, str | None]]:
    """Return the digest of each file of a skill, and its text if that is short."""
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
    """Return the added, removed and changed files, by path."""
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
    # Not `splitlines`, which also splits at characters that the page must show. Windows line ends
    # are normalized, unless nothing else changed.
    ends = before.replace("\r\n", "\n"), after.replace("\r\n", "\n")
    if ends[0] == ends[1]:
        return (DiffLine("place", "only the ends of lines changed"),)
    old, new = map(_split_lines, ends)
    if most <= 0 or len(old) + len(new) > MAX_COMPARED_LINES:
        return (DiffLine("place", "too many lines to compare; open the file"),)
    kinds = {"+": "add", "-": "cut", "@": "place"}
    # The first two lines name the files.
    found = islice(difflib.unified_diff(old, new, lineterm="", n=2), 2, None)
    lines = [DiffLine(kinds.get(line[:1], "same"), line) for line in found]
    if not lines:
        return (DiffLine("place", "only the end of the last line changed"),)
    if before.count("\r\n") != after.count("\r\n"):
        lines.append(DiffLine("place", "the ends of lines changed too"))
    if len(lines) > most:
        return (*lines[:most], DiffLine("place", f"{len(lines) - most} more lines"))
    return tuple(lines)


def _split_lines(text: str) -> list[str]:
    """Return the lines of a text, without an empty last line."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _record_key(project: str, name: str) -> SessionKey:
    return SessionKey(APP, project, name)
