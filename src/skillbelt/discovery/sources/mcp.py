"""Skills that an MCP server lists: their entries are cached, their files fetched when read.

An entry becomes a folder that can be scanned: a SKILL.md with the frontmatter and no text, and an
empty file for each other file. `listed_files` fetches the contents, one file at a time, and caches
them by digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from skillbelt.discovery.sources.bounds import (
    MAX_ARCHIVE_FILES,
    MAX_EXTRACTED_BYTES,
    MAX_EXTRACTED_FILE_BYTES,
)
from skillbelt.discovery.sources.cache import Update, link_file
from skillbelt.discovery.sources.failure import SourceFailure, report
from skillbelt.discovery.sources.mcp_address import id_slug
from skillbelt.errors import PathEscape
from skillbelt.files.contain import check_relative, create_beneath, open_folder
from skillbelt.format.bounds import MAX_FRONTMATTER_BYTES
from skillbelt.text import one_line, shorten
from skillbelt.values import SKILL_FILE, Diagnostic

if TYPE_CHECKING:
    from types import ModuleType

    from skillbelt.discovery.sources.bounds import Deadline
    from skillbelt.discovery.sources.cache import CachedSource, CopyState, Generation
    from skillbelt.discovery.sources.source_hosts import SourceHosts
    from skillbelt.values import Limits

BLOBS = "blobs"
_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_MAX_URI_CHARS = 4_096
_MAX_ID_CHARS = 128
_SHOWN = 120
_REMEDY = "ask the operator of the server to fix its entry"


class McpFile(NamedTuple):
    """One file of an entry: its URI, its SHA-256 in hex digits, its size."""

    uri: str
    sha256: str
    size: int


class McpSkill(NamedTuple):
    """One skill that a server lists. `id` is its id here, with the server's label."""

    id: str
    name: str
    uri: str
    frontmatter: Mapping[str, Any]
    files: Mapping[str, McpFile]

    def record(self) -> dict[str, Any]:
        """Return the entry as it is stored in the cache."""
        files = {path: list(one) for path, one in self.files.items()}
        return {"name": self.name, "uri": self.uri, "frontmatter": self.frontmatter, "files": files}


class _EntryRefused(Exception):
    """An entry cannot be used; the text says why."""


def pull_mcp(
    url: str,
    *,
    cached: CachedSource,
    old: CopyState | None,
    stage: Generation,
    limits: Limits,
    deadline: Deadline,
    allowed: SourceHosts,
) -> Update:
    """Update the stage from the server's list; raises SourceError."""
    label, listed = _client(url).list_skills(url, limits, deadline.left(), allowed)
    found, problems = parse_entries(listed, label, url)
    records = {one.id: one.record() for one in found}
    before = cached.entries(old) if old else {}
    if old is not None and records == before:
        return Update("mcp", False, url, problems=problems)
    for one in found:
        _write_skill(stage, one)
    _link_blobs(cached, old, stage, found)
    return Update("mcp", True, url, problems=problems, entries=records)


def fetch(
    url: str, limits: Limits, uris: Iterable[tuple[str, int]], allowed: SourceHosts
) -> dict[str, bytes]:
    """Return the server's files at these URIs, each with its largest size; raises SourceError."""
    files: dict[str, bytes] = _client(url).read_files(url, limits, list(uris), allowed)
    return files


def _client(url: str) -> ModuleType:
    try:
        from skillbelt.discovery.sources import mcp_client  # extra: mcp
    except ImportError as error:
        remedy = "pip install 'skillbelt[mcp]'"
        raise SourceFailure(
            url, "MCP servers need the 'mcp' extra", code="mcp-missing", remedy=remedy
        ) from error
    return mcp_client


# The copy on disk


def _write_skill(stage: Generation, skill: McpSkill) -> None:
    """Write a folder to scan, inside one named by the skill's id."""
    part = stage.part()
    folder = open_folder(part)
    try:
        for path in skill.files:
            # A deeper SKILL.md is a document of this skill, not a skill itself.
            if path == SKILL_FILE or os.path.basename(path) != SKILL_FILE:
                data = skill_file(skill.frontmatter) if path == SKILL_FILE else b""
                with os.fdopen(create_beneath(folder, f"{skill.name}/{path}"), "wb") as file:
                    file.write(data)
    except OSError as error:
        reason = f"{skill.id} has file names that conflict: {error.strerror}"
        raise SourceFailure(
            skill.uri,
            reason,
            code="mcp-entry-refused",
            remedy="ask the operator of the server to fix it",
        ) from error
    finally:
        os.close(folder)
    stage.adopt(part, skill.id)


def skill_file(frontmatter: Mapping[str, Any]) -> bytes:
    """Return a SKILL.md with this frontmatter and nothing else. JSON is valid YAML."""
    lines = [f"{_to_yaml(key)}: {_to_yaml(value)}\n" for key, value in frontmatter.items()]
    return f"---\n{''.join(lines)}---\n".encode("utf-8", "replace")


def _to_yaml(value: object) -> str:
    """Return JSON in which characters that YAML does not accept are escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else "".join(map(_escape, text))


def _escape(char: str) -> str:
    return char if char.isprintable() else f"\\U{ord(char):08x}"


def _link_blobs(
    cached: CachedSource, old: CopyState | None, stage: Generation, skills: Iterable[McpSkill]
) -> None:
    """Link the files that were fetched before and are still listed."""
    folder = os.path.join(stage.path, BLOBS)
    os.mkdir(folder, 0o700)
    if old is None:
        return
    before = os.path.join(os.path.dirname(cached.folder(old)), BLOBS)
    for digest in {file.sha256 for skill in skills for file in skill.files.values()}:
        with suppress(FileNotFoundError):
            link_file(os.path.join(before, digest), os.path.join(folder, digest))


# Check the entries of a server


def parse_record(record: Any) -> McpSkill | None:
    """Parse an entry stored in the cache; None when it is malformed."""
    try:
        files = {path: McpFile(*one) for path, one in record["files"].items()}
        return McpSkill(
            id="",
            name=record["name"],
            uri=record["uri"],
            frontmatter=record["frontmatter"],
            files=files,
        )
    except (TypeError, KeyError, AttributeError):
        return None


def parse_entries(
    listed: Iterable[object], label: str, source: str
) -> tuple[list[McpSkill], tuple[Diagnostic, ...]]:
    """Return the usable entries, each with a unique id, and a diagnostic for each other."""
    found: dict[str, McpSkill] = {}
    problems: list[Diagnostic] = []
    for item in listed:
        try:
            entry = _parse_entry(item)
            if entry.uri in found:
                raise _EntryRefused("it is listed twice; the first one counts")
            found[entry.uri] = entry
        except _EntryRefused as refused:
            message = f"{_describe(item)}: {refused}"
            problems.append(report("mcp-entry-refused", "warning", source, message, _REMEDY))
    return _assign_ids(list(found.values()), label), tuple(problems)


def _describe(item: object) -> str:
    uri = item.get("uri") if isinstance(item, dict) else None
    return shorten(one_line(uri), _SHOWN) if isinstance(uri, str) else "an entry without a URI"


def _parse_entry(item: object) -> McpSkill:
    if not isinstance(item, dict):
        raise _EntryRefused("it is not an object")
    uri, front = item.get("uri"), item.get("frontmatter")
    base = _base(uri)
    if not isinstance(front, dict) or not all(
        _is_text(front.get(k)) for k in ("name", "description")
    ):
        raise _EntryRefused("its frontmatter has no name or no description")
    if len(json.dumps(front, ensure_ascii=False).encode("utf-8", "replace")) > (
        MAX_FRONTMATTER_BYTES // 2
    ):
        raise _EntryRefused("its frontmatter is too long")
    name = front["name"]
    if not _NAME.fullmatch(name) or unquote(base.rstrip("/").rpartition("/")[2]) != name:
        raise _EntryRefused("its name is invalid, or is not the one in its URI")
    return McpSkill(
        id="",
        name=name,
        uri=str(uri),
        frontmatter=front,
        files=_files(item.get("resources"), base),
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _base(uri: object) -> str:
    """Return the URI of the folder of the SKILL.md, with a slash at its end."""
    ending = f"/{SKILL_FILE}"
    plain = isinstance(uri, str) and len(uri) <= _MAX_URI_CHARS and uri.isprintable()
    if not plain or not str(uri).endswith(ending) or "://" not in str(uri) or " " in str(uri):
        raise _EntryRefused("its URI is not that of a SKILL.md")
    return str(uri)[: -len(SKILL_FILE)]


def _files(resources: object, base: str) -> dict[str, McpFile]:
    if resources == "dynamic":
        raise _EntryRefused("its files cannot be verified (dynamic), so it is not used")
    if not isinstance(resources, list):
        raise _EntryRefused("it does not list its files")
    if len(resources) > MAX_ARCHIVE_FILES:
        raise _EntryRefused(f"it has more than {MAX_ARCHIVE_FILES} files (max_archive_files)")
    files: dict[str, McpFile] = {}
    for resource in resources:
        path, listed = _file(resource, base)
        if path in files:
            raise _EntryRefused(f"it lists {path!r} twice")
        files[path] = listed
    if any(parent in files for path in files for parent in _parents(path)):
        raise _EntryRefused("one of its files is inside another one")
    if SKILL_FILE not in files:
        raise _EntryRefused("its SKILL.md is not among its files")
    if sum(one.size for one in files.values()) > MAX_EXTRACTED_BYTES:
        raise _EntryRefused(f"it has more than {MAX_EXTRACTED_BYTES} bytes (max_extracted_bytes)")
    return files


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _file(resource: object, base: str) -> tuple[str, McpFile]:
    if not isinstance(resource, dict):
        raise _EntryRefused("one of its files is not an object")
    uri, digest, size = (resource.get(key) for key in ("uri", "digest", "size"))
    if not isinstance(uri, str) or len(uri) > _MAX_URI_CHARS or not uri.startswith(base):
        raise _EntryRefused("one of its files is outside of the skill")
    marked = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if marked is None or type(size) is not int or size < 0:
        raise _EntryRefused("one of its files has no digest or no size")
    if size > MAX_EXTRACTED_FILE_BYTES:
        raise _EntryRefused(f"one of its files has {size} bytes (max_extracted_file_bytes)")
    return _path(uri[len(base) :]), McpFile(uri, marked[1], size)


def _path(escaped: str) -> str:
    """Return the path of a file below the skill; raises for one that leaves it."""
    parts = [unquote(part, errors="strict") for part in _split(escaped)]
    try:
        if any("/" in part for part in parts):
            raise _EntryRefused("one of its files has an escaped slash in its path")
        return check_relative("/".join(parts))
    except PathEscape as escape:
        raise _EntryRefused(f"one of its files has a path that is refused: {escape}") from escape


def _split(escaped: str) -> list[str]:
    try:
        escaped.encode("ascii")
        unquote(escaped, errors="strict")
    except UnicodeError as error:
        raise _EntryRefused("one of its files has an invalid URI") from error
    if any(mark in escaped for mark in "?#"):
        raise _EntryRefused("one of its files has an invalid URI")
    return escaped.split("/")


def _assign_ids(entries: list[McpSkill], label: str) -> list[McpSkill]:
    """Give each an id: the label and the name, and more of the URI when the name is not unique."""
    names = Counter(entry.name for entry in entries)
    made: dict[str, McpSkill] = {}
    for entry in sorted(entries, key=lambda one: one.uri):
        alone = names[entry.name] == 1
        wanted = f"{label}.{entry.name if alone else _long_name(entry)}"
        if len(wanted) > _MAX_ID_CHARS or wanted in made:
            mark = hashlib.sha256(entry.uri.encode()).hexdigest()[:8]
            wanted = f"{wanted[: _MAX_ID_CHARS - 9]}-{mark}"
        made[wanted] = entry._replace(id=wanted)
    return list(made.values())


def _long_name(entry: McpSkill) -> str:
    """Return the name with the folders before it in the URI."""
    place = unquote(entry.uri.partition("://")[2]).split("/")[:-1]
    return ".".join(slug for part in place if (slug := id_slug(part)))
