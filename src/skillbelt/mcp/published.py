"""The skills that other hosts can take: entries with complete manifests, addresses and files.

Only a skill that follows the format exactly is published, since other hosts compare every field.
The others are still available through tools and prompts.

An address is `skill://place/path`. A place is one or two segments: the skill's id, then its name
as written where that differs.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from skillbelt.errors import LoadError, PathEscape
from skillbelt.files.contain import Fence
from skillbelt.files.manifest import SkillFiles, is_complete
from skillbelt.format.frontmatter import read_head, written
from skillbelt.format.skill import Skill
from skillbelt.runtime.runtime import Runtime
from skillbelt.values import SKILL_FILE, FileEntry

SCHEME = "skill://"
FOLDER = "inode/directory"
_MAX_URI_CHARS = 4_096
_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_DESCRIPTION_CHARS = 1_024


def uri_of(place: str, path: str = "") -> str:
    """Return the address of a file or folder of a skill; without a path that of its folder."""
    whole = f"{place}/{path}" if path else place
    return SCHEME + quote(os.fsencode(whole), safe="/-._~")


def split_uri(uri: str) -> list[str] | None:
    """Split an address into parts, each unescaped once; None for any other kind of address.

    No part is empty, `.` or `..`, or holds a slash, so joining them cannot leave the folder.
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
        self._known: dict[str, tuple[str, frozenset[str], Skill, Published | None]] = {}

    def names(self) -> list[str]:
        """Return the sorted ids of the skills a model may see; some may not be publishable."""
        self._runtime.look()
        names = sorted(self._runtime.available())
        for gone in self._known.keys() - set(names):
            self._known.pop(gone, None)
        return names

    def find_skill(self, name: str) -> Published | None:
        """Return the skill of that id, if a model may see it and it can be published."""
        skill = self._runtime.available().get(name)
        if skill is None or skill.origin.kind == "mcp" or not os.path.isabs(skill.location):
            return None
        files = skill.files
        # The digest covers no empty folders.
        digest, folders = files.digest(), _folders(files)
        known = self._known.get(name)
        if known is None or known[:3] != (digest, folders, skill):
            made = self._publish(skill, files) if is_complete(digest) else None
            self._known[name] = known = (digest, folders, skill, made)
        return known[3]

    def find(self, uri: str) -> SkillLocation | None:
        """Resolve an address; None when there is no such skill, or not for this client."""
        return _resolve(uri, self.find_skill)

    def digests(self, uris: Iterable[str]) -> dict[str, str]:
        """Return the SHA-256 of the file at each address, "" where there is none.

        Each skill is read once, even for many of its files.
        """
        find_skill = cache(self.find_skill)
        return {uri: _digest(_resolve(uri, find_skill)) for uri in uris}

    def _publish(self, skill: Skill, listed: SkillFiles) -> Published | None:
        limits = self._runtime.settings.limits
        try:
            with Fence(skill.fence) as fence:
                head = read_head(skill.location, limits, fence)
        except (OSError, PathEscape):
            return None
        fields = written(head, limits) or {}
        name, about = fields.get("name"), fields.get("description")
        if not (isinstance(name, str) and _NAME.fullmatch(name) and isinstance(about, str)):
            return None
        if not 0 < len(about) <= _MAX_DESCRIPTION_CHARS:
            return None
        files = {file.path: file for file in listed.manifest().files}
        if SKILL_FILE not in files:
            return None
        place = skill.name if skill.name == name else f"{skill.name}/{name}"
        return Published(
            skill=skill, place=place, frontmatter=fields, files=files, folders=_folders(listed)
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
