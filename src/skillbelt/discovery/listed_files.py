"""The files of skills that another MCP server serves: fetched when they are read, always verified.

An entry that the server listed stays cached while the skill is in the catalogue. A file that the
entry does not name, or that differs from it, is not returned.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any, BinaryIO

from skillbelt.discovery.sources.cache import ENTRIES
from skillbelt.discovery.sources.mcp import BLOBS, McpFile, McpSkill, fetch, parse_record
from skillbelt.discovery.sources.pull import SERVERS
from skillbelt.errors import FileTooLarge, FileUnreadable, SourceError
from skillbelt.files.contain import NEW_FILE, create_beneath, open_folder
from skillbelt.files.manifest import PARTIAL, content_hash, kind_of
from skillbelt.files.tree import TreeEntry
from skillbelt.format.frontmatter import written
from skillbelt.format.skill import Skill
from skillbelt.untrusted_json import read_json
from skillbelt.values import SKILL_FILE, FileEntry, Manifest

WHOLE = "whole"
_MAX_BYTES = 64 * 2**20


class ListedFiles:
    """The files of a skill as its server lists them; each is fetched when it is opened."""

    def __init__(self, skill: Skill) -> None:
        self.skill = skill

    def entries(self) -> tuple[TreeEntry, ...]:
        """Return the files that the server lists; nothing is fetched for it."""
        with suppress(FileUnreadable):
            listed = sorted(_entry(self.skill).files.items())
            return tuple(TreeEntry(path, "file", size=one.size) for path, one in listed)
        return ()  # `open` and `manifest` report why

    def open(self, path: str, most: int = sys.maxsize) -> BinaryIO:
        """Open a file as the server listed it.

        FileUnreadable if it cannot be fetched or differs.
        """
        entry = _entry(self.skill)
        listed = entry.files.get(path)
        if listed is None:
            raise FileUnreadable(path, "is not among the files that its server lists")
        if listed.size > most:
            raise FileTooLarge(path, f"has {listed.size:,} bytes; the limit is {most:,}")
        [data] = _get_files(self.skill, entry, [path])
        return io.BytesIO(data)

    def fetch_ahead(self, most: int = 32 * 2**20) -> None:
        """Fetch files at once, up to that many bytes in total; later opens are local.

        If the server does not answer, `open` reports it.
        """
        with suppress(FileUnreadable):
            entry, left = _entry(self.skill), most
            wanted: list[str] = []
            for path, one in sorted(entry.files.items()):
                left -= one.size
                if left < 0:
                    break
                wanted.append(path)
            _get_files(self.skill, entry, wanted)

    def digest(self) -> str:
        """Return the hash that the files will have once they are fetched as listed."""
        try:
            return self.manifest().hash
        except FileUnreadable:
            return f"{content_hash(())}{PARTIAL}"

    def manifest(self) -> Manifest:
        """Return every file as the server lists them; nothing is fetched for it."""
        files = sorted(
            FileEntry(path, one.size, one.sha256, kind_of(path, b""))
            for path, one in _entry(self.skill).files.items()
        )
        return Manifest(tuple(files), content_hash((file.path, file.sha256) for file in files))

    def whole_folder(self) -> tuple[str, str]:
        """Return a folder with all files, verified; FileUnreadable if one is missing."""
        skill, entry = self.skill, _entry(self.skill)
        name = os.path.basename(os.path.dirname(skill.dir))
        place = os.path.join(_generation(skill), WHOLE, name)
        if not os.path.isdir(place):
            _fill(place, zip(entry.files, _get_files(skill, entry, entry.files), strict=True))
        return place, place


def _fill(place: str, files: Iterable[tuple[str, bytes]]) -> None:
    """Create the folder, complete or not at all."""
    aside = f"{place}.{os.urandom(8).hex()}"
    os.makedirs(aside, 0o700)
    handle = open_folder(aside)
    try:
        for path, data in files:
            with os.fdopen(create_beneath(handle, path), "wb") as file:
                file.write(data)
        os.rename(aside, place)
    except OSError:
        # Another process may have been faster; its folder is the same.
        shutil.rmtree(aside, ignore_errors=True)
        if not os.path.isdir(place):
            raise
    finally:
        os.close(handle)


def _get_files(skill: Skill, entry: McpSkill, paths: Iterable[str]) -> list[bytes]:
    """Return the files, from the cache or from their server."""
    wanted = {path: entry.files[path] for path in paths}
    found = {
        path: data for path, one in wanted.items() if (data := _read_cached(skill, one)) is not None
    }
    missing = {path: one for path, one in wanted.items() if path not in found}
    if missing:
        fetched = _fetch(skill, missing)
        for path, one in missing.items():
            found[path] = _verify(entry, path, one, fetched[one.uri])
            _write_cached(skill, one, found[path])
    return [found[path] for path in wanted]


def _fetch(skill: Skill, missing: dict[str, McpFile]) -> dict[str, bytes]:
    first = next(iter(missing))
    job = SERVERS.get(os.path.dirname(_generation(skill)))
    if job is None or job.offline:
        reason = "was not fetched yet, and its server may not be contacted now"
        raise FileUnreadable(first, reason)
    try:
        wanted = [(one.uri, one.size) for one in missing.values()]
        return fetch(job.url, job.limits, wanted, job.source_hosts())
    except SourceError as error:
        raise FileUnreadable(first, f"cannot be fetched: {error.reason}") from error


def _verify(entry: McpSkill, path: str, listed: McpFile, data: bytes) -> bytes:
    if len(data) != listed.size or hashlib.sha256(data).hexdigest() != listed.sha256:
        reason = "is not what its server listed; `skillbelt refresh` asks for the list again"
        raise FileUnreadable(path, reason)
    if path == SKILL_FILE and not _matches_frontmatter(data, entry):
        raise FileUnreadable(path, "has another frontmatter than its server listed")
    return data


def _matches_frontmatter(data: bytes, entry: McpSkill) -> bool:
    """Whether the frontmatter is the listed one; servers use either version of YAML."""
    return any(written(data, core=core) == entry.frontmatter for core in (True, False))


# The cache


def _generation(skill: Skill) -> str:
    """Return the folder of the skill's copy: `<generation>/skills/<id>/<name>`."""
    return os.path.dirname(os.path.dirname(os.path.dirname(skill.dir)))


def _entry(skill: Skill) -> McpSkill:
    name = os.path.basename(os.path.dirname(skill.dir))
    entry = parse_record(_records(_generation(skill)).get(name))
    if entry is None:
        raise FileUnreadable(SKILL_FILE, "is not listed by its server any more")
    return entry


@lru_cache(maxsize=32)
def _records(generation: str) -> dict[str, Any]:
    """Return the entries of a copy. It never changes; the next copy has another name."""
    try:
        with open(os.path.join(generation, ENTRIES), "rb") as file:
            found = read_json(file.read(_MAX_BYTES))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _read_cached(skill: Skill, listed: McpFile) -> bytes | None:
    """Return the file from the cache, if its bytes match the entry."""
    path = os.path.join(_generation(skill), BLOBS, listed.sha256)
    try:
        with open(path, "rb") as file:
            data = file.read(listed.size + 1)
    except OSError:
        return None
    if hashlib.sha256(data).hexdigest() == listed.sha256:
        return data
    with suppress(OSError):
        os.unlink(path)
    return None


def _write_cached(skill: Skill, listed: McpFile, data: bytes) -> None:
    """Cache a file; a full disk must not prevent reading it."""
    folder = os.path.join(_generation(skill), BLOBS)
    part = os.path.join(folder, f"new-{os.urandom(8).hex()}")
    with suppress(OSError):
        handle = os.open(part, NEW_FILE, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.rename(part, os.path.join(folder, listed.sha256))
