"""What is offered as skills: entries with complete manifests, and the files they name.

Only what the format allows to the letter is published, since other hosts compare every field. What
is not is still there as tools and prompts.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import NamedTuple

from skillbelt.discovery.fingerprint import fingerprint, is_complete
from skillbelt.discovery.reading import open_file
from skillbelt.errors import FileUnreadable, PathEscape
from skillbelt.files.contain import Fence, read_handle
from skillbelt.files.manifest import build_manifest
from skillbelt.format.frontmatter import written
from skillbelt.format.head import read_head
from skillbelt.format.skill import Skill
from skillbelt.mcp.uris import segments, uri_of
from skillbelt.runtime.shelf import Shelf
from skillbelt.values import SKILL_FILE, FileEntry

FOLDER = "inode/directory"
_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
_MAX_DESCRIPTION_CHARS = 1_024


class Published(NamedTuple):
    """A skill as other hosts get it: its frontmatter as it is written, and all of its files."""

    skill: Skill
    place: str
    frontmatter: Mapping[str, object]
    files: Mapping[str, FileEntry]

    @property
    def uri(self) -> str:
        """The address of its SKILL.md."""
        return uri_of(self.place, SKILL_FILE)

    def entry(self) -> dict[str, object]:
        """The entry that `skills/list` and `skills/get` give."""
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
        """What lies in a folder of the skill, by name, None for folders; None: no such folder."""
        below = f"{folder}/" if folder else ""
        found: dict[str, FileEntry | None] = {}
        for path, file in self.files.items():
            if path.startswith(below):
                name, deeper, _ = path[len(below) :].partition("/")
                found[name] = None if deeper else file
        return dict(sorted(found.items())) if found else None


class Located(NamedTuple):
    """What an address names: a published skill and a path in it, "" for its folder."""

    published: Published
    path: str


class Offer:
    """The skills of a runtime as they are published now. Safe to use from threads."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._known: dict[str, tuple[str, Skill, Published | None]] = {}

    def names(self) -> list[str]:
        """The ids of what a model may see, sorted; some of it may not be publishable."""
        self._shelf.look()
        names = sorted(self._shelf.available())
        for gone in self._known.keys() - set(names):
            self._known.pop(gone, None)
        return names

    def published(self, name: str) -> Published | None:
        """The skill of that id, if there is one that a model may see and others can take."""
        skill = self._shelf.available().get(name)
        if skill is None or skill.origin.kind == "mcp" or not os.path.isabs(skill.location):
            return None
        mark = fingerprint(skill, self._shelf.settings.limits)
        known = self._known.get(name)
        if known is None or known[:2] != (mark, skill):
            made = self._publish(skill) if is_complete(mark) else None
            self._known[name] = known = (mark, skill, made)
        return known[2]

    def find(self, uri: str) -> Located | None:
        """What the address names; None for what is not there, or is not for this client."""
        return _located(uri, self.published)

    def digests(self, uris: Iterable[str]) -> dict[str, str]:
        """The SHA-256 of the file at each address, "" where there is none.

        Each skill is looked at once, however many of its files are meant.
        """
        published = cache(self.published)
        return {uri: _digest(_located(uri, published)) for uri in uris}

    def _publish(self, skill: Skill) -> Published | None:
        limits = self._shelf.settings.limits
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
        files = {file.path: file for file in build_manifest(skill.dir, limits, skill.fence).files}
        if SKILL_FILE not in files:
            return None
        place = skill.name if skill.name == name else f"{skill.name}/{name}"
        return Published(skill, place, fields, files)


def _located(uri: str, published: Callable[[str], Published | None]) -> Located | None:
    parts = segments(uri)
    found = published(parts[0]) if parts else None
    if parts is None or found is None:
        return None
    place = found.place.split("/")
    if parts[: len(place)] != place:
        return None
    return Located(found, "/".join(parts[len(place) :]))


def _digest(found: Located | None) -> str:
    file = found.published.files.get(found.path) if found else None
    return file.sha256 if file else ""


def read_bytes(published: Published, file: FileEntry) -> bytes | None:
    """All of a file that the skill's entry names; None when it is no longer what it was."""
    try:
        handle = open_file(published.skill, file.path)
    except (OSError, PathEscape, FileUnreadable):
        return None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        return None
    data = read_handle(handle, file.size + 1)
    return data if hashlib.sha256(data).hexdigest() == file.sha256 else None
