"""The skills that other hosts can use: entries with complete manifests, addresses and files.

Only a skill that follows the format exactly is published, as `check --strict` sees it: other hosts
compare every field, and one of them may drop all skills of a server for one that it cannot read.
The others are still available through tools and prompts; `unpublished` says what is wrong. An
address is `skill://place/path`. A place is one or two segments: the skill's id, then its name as
written where that differs.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from skillbelt.check.check import check_bytes
from skillbelt.check.folder import UnusableFile, read
from skillbelt.check.rules import finding
from skillbelt.errors import LoadError, PathEscape, RequiredSkillUnusable
from skillbelt.files.manifest import SkillFiles, is_complete
from skillbelt.format.fields import SPECIFIED
from skillbelt.format.frontmatter import MAX_CHECKED_BYTES, key_lines, written
from skillbelt.format.skill import Skill
from skillbelt.text import one_line
from skillbelt.values import SKILL_FILE, Diagnostic, FileEntry

if TYPE_CHECKING:
    from skillbelt.runtime.runtime import Runtime


logger = logging.getLogger(__name__)
SCHEME = "skill://"
FOLDER = "inode/directory"
_MAX_URI_CHARS = 4_096
NOT_PUBLISHED = "mcp-not-published"
_MAX_LOGGED = 20
_QUOTE = "put the value in quotes"
_PARTLY = "not every file of it can be read and hashed"
_CHANGED = "it changed while it was read"
# The last segment of the address is the name as written, and not that of the folder here.
_OF_THE_FOLDER = "name-folder"


def uri_of(place: str, path: str = "") -> str:
    """Return the address of a file or folder of a skill; without a path that of its folder."""
    whole = f"{place}/{path}" if path else place
    return SCHEME + quote(os.fsencode(whole), safe="/-._~")


def split_uri(uri: str) -> list[str] | None:
    """Split an address into parts, each unescaped once; None for any other kind of address.

    No part is empty, `.` or `..`, or contains a slash, so that joining them cannot leave the
    folder.
    """
    if not uri.startswith(SCHEME) or len(uri) > _MAX_URI_CHARS:
        return None
    if any(mark in uri for mark in "?#\\"):
        return None
    parts = [os.fsdecode(unquote_to_bytes(part)) for part in uri[len(SCHEME) :].split("/")]
    if any(part in ("", ".", "..") or "/" in part or "\0" in part for part in parts):
        return None
    return parts


class Published(NamedTuple):
    """A skill for other hosts: its frontmatter as written, and all of its files and folders."""

    skill: Skill
    place: str
    frontmatter: Mapping[str, object]
    files: Mapping[str, FileEntry]
    folders: frozenset[str]

    @property
    def uri(self) -> str:
        """The address of its SKILL.md."""
        return uri_of(self.place, SKILL_FILE)

    def entry(self) -> dict[str, object]:
        """Return its entry in `skills/list` and `skills/get`."""
        return {
            "uri": self.uri,
            "frontmatter": dict(self.frontmatter),
            "resources": [
                {
                    "uri": uri_of(self.place, file.path),
                    "digest": f"sha256:{file.sha256}",
                    "size": file.size,
                }
                for file in self.files.values()
            ],
        }

    def children(self, folder: str) -> dict[str, FileEntry | None] | None:
        """Return the entries of a folder by name, None for subfolders; None: no such folder."""
        if folder and folder not in self.folders:
            return None
        below = f"{folder}/" if folder else ""
        found = {**dict.fromkeys(self.folders), **self.files}
        inside = {
            path[len(below) :]: file for path, file in found.items() if path.startswith(below)
        }
        return {name: inside[name] for name in sorted(inside) if "/" not in name}


class SkillLocation(NamedTuple):
    """A published skill and a path in it, "" for its folder."""

    published: Published
    path: str


class PublishedSkills:
    """The skills of a runtime as currently published. Thread-safe."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._logged = 0
        self._known: dict[str, tuple[str, frozenset[str], Skill, Published | Diagnostic]] = {}

    def names(self) -> list[str]:
        """Return the sorted ids of the skills a model may see; some may not be publishable."""
        self._runtime.look()
        names = sorted(self._runtime.available())
        for gone in self._known.keys() - set(names):
            self._known.pop(gone, None)
        return names

    def find_skill(self, name: str) -> Published | None:
        """Return the skill of that id, if a model may see it and it can be published."""
        found = self._find(name)
        return found if isinstance(found, Published) else None

    def _find(self, name: str) -> Published | Diagnostic | None:
        skill = self._runtime.available().get(name)
        if skill is None or skill.origin.kind == "mcp" or not os.path.isabs(skill.location):
            return None
        files = skill.files
        # The digest covers no empty folders.
        digest, folders = files.digest(), _folders(files)
        known = self._known.get(name)
        if known is None or known[:3] != (digest, folders, skill):
            made = self._publish(skill, files) if is_complete(digest) else _refuse(skill, _PARTLY)
            self._known[name] = known = (digest, folders, skill, made)
            if isinstance(made, Diagnostic):
                self._log_unpublished(made)
        return known[3]

    def _log_unpublished(self, refused: Diagnostic) -> None:
        """Log why a skill is not published: its author looks for it in a client."""
        self._logged += 1
        if self._logged <= _MAX_LOGGED:
            logger.warning("%s", one_line(str(refused._replace(severity="warning"))))
        elif self._logged == _MAX_LOGGED + 1:
            logger.warning("more skills are not published; `skillbelt doctor --verbose` names them")

    def find(self, uri: str) -> SkillLocation | None:
        """Resolve an address; None if there is no such skill, or not for this client."""
        return _resolve(uri, self.find_skill)

    def digests(self, uris: Collection[str]) -> dict[str, str]:
        """Return the SHA-256 of the file at each address, "" where there is none.

        Each skill is read once, even for many of its files.
        """
        find_skill = cache(self.find_skill)
        try:
            return {uri: _digest(_resolve(uri, find_skill)) for uri in uris}
        # Each request reports it, and until then nothing is published.
        except RequiredSkillUnusable:
            return dict.fromkeys(uris, "")

    def _publish(self, skill: Skill, listed: SkillFiles) -> Published | Diagnostic:
        data = _check(skill)
        if isinstance(data, Diagnostic):
            return data
        fields = written(data) or {}
        files = {file.path: file for file in listed.manifest().files}
        name = str(fields.get("name", ""))
        if not name or SKILL_FILE not in files:
            return _refuse(skill, _CHANGED)
        place = skill.name if skill.name == name else f"{skill.name}/{name}"
        return Published(
            skill=skill, place=place, frontmatter=fields, files=files, folders=_folders(listed)
        )


def unpublished(skills: Iterable[Skill]) -> list[Diagnostic]:
    """Return why some of these skills are not resources for MCP clients."""
    local = (one for one in skills if one.origin.kind != "mcp" and os.path.isabs(one.location))
    checked = (_check(skill) for skill in local if not skill.hidden)
    return [found for found in checked if isinstance(found, Diagnostic)]


def _check(skill: Skill) -> bytes | Diagnostic:
    """Return the SKILL.md if it follows the format exactly, else what is wrong with it."""
    try:
        data = read(skill.location, MAX_CHECKED_BYTES, skill.fence).data
    except UnusableFile as error:
        return _refuse(skill, f"it cannot be read: {error}")
    for found in check_bytes(data, skill.location, strict=True).diagnostics:
        if found.severity == "error" and found.code != _OF_THE_FOLDER:
            return _refuse(skill, found.message, found)
    # As every host reads it, for which `1.10` without quotes is a number.
    for field, value in _text_values(written(data) or {}):
        if not isinstance(value, str):
            line = key_lines(data).get(field.partition(".")[0])
            wrong = finding("field-type", skill.location, line, f"{field} is not text", _QUOTE)
            return _refuse(skill, wrong.message, wrong)
    return data


def _text_values(fields: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield the values that must be text, each with the name of its field."""
    plain = (field for field in SPECIFIED if field in fields and field != "metadata")
    yield from ((field, fields[field]) for field in plain)
    metadata = fields.get("metadata", {})
    if isinstance(metadata, dict):
        yield from ((f"metadata.{key}", value) for key, value in metadata.items())


def _refuse(skill: Skill, reason: str, found: Diagnostic | None = None) -> Diagnostic:
    """Return the diagnostic of a skill that clients get through the tools only."""
    return Diagnostic(
        code=NOT_PUBLISHED,
        severity="info",
        path=found.path if found else skill.location,
        line=found.line if found else None,
        message=f"{skill.name} is not a resource for MCP clients, only in the tools: {reason}",
        remedy=found.remedy if found else "`skillbelt check --strict` says what is wrong with it",
    )


def _folders(files: SkillFiles) -> frozenset[str]:
    return frozenset(one.path for one in files.entries() if one.kind == "folder" and one.path)


def _resolve(uri: str, find_skill: Callable[[str], Published | None]) -> SkillLocation | None:
    parts = split_uri(uri)
    found = find_skill(parts[0]) if parts else None
    if parts is None or found is None:
        return None
    place = found.place.split("/")
    if parts[: len(place)] != place:
        return None
    return SkillLocation(found, "/".join(parts[len(place) :]))


def _digest(found: SkillLocation | None) -> str:
    file = found.published.files.get(found.path) if found else None
    return file.sha256 if file else ""


def read_bytes(published: Published, file: FileEntry) -> bytes | None:
    """Read a file of a published skill; None when it changed since it was published."""
    try:
        with published.skill.files.open(file.path, file.size) as opened:
            data = opened.read(file.size + 1)
    except (OSError, PathEscape, LoadError):
        return None
    return data if hashlib.sha256(data).hexdigest() == file.sha256 else None
