"""Published lists of skills: the well-known index v0.2, and the older form with `files`.

This module only parses; no request is made for an entry that was refused.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urljoin, urlsplit

from skillbelt.discovery.sources.bounds import MAX_ARCHIVE_FILES, MAX_REMOTE_SKILLS, Refusal
from skillbelt.discovery.sources.failure import SourceFailure, report
from skillbelt.errors import PathEscape
from skillbelt.files.contain import NameTable, check_relative, check_segment
from skillbelt.records import NamedTuple
from skillbelt.untrusted_json import read_json
from skillbelt.values import SKILL_FILE, Diagnostic

if TYPE_CHECKING:
    from collections.abc import Iterator


SCHEMA = "https://schemas.agentskills.io/discovery/0.2.0/schema.json"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_WELL_KNOWN = "/.well-known/"


class IndexItem(NamedTuple):
    """One skill of a list. `key` changes with its content; empty when the list has no version."""

    name: str
    kind: Literal["files", "skill-md", "archive"]
    key: str = ""
    url: str = ""  # of the artifact, or of the folder with the files
    files: tuple[str, ...] = ()

    def file_url(self, file: str) -> str:
        """Return the URL of one of the files."""
        return urljoin(self.url, quote(file))

    @property
    def digest(self) -> str:
        """The SHA-256 that the artifact must have, in hex digits."""
        return self.key.rpartition(":")[2]


class SkillIndex(NamedTuple):
    """The usable entries of a list, and a diagnostic for each that was refused."""

    kind: Literal["index", "well-known"]
    items: tuple[IndexItem, ...]
    problems: tuple[Diagnostic, ...]


class _EntrySkipped(Exception):
    """An entry cannot be used; code, text and remedy."""

    def __init__(self, code: str, message: str, remedy: str) -> None:
        self.code, self.message, self.remedy = code, message, remedy
        super().__init__(message)


def parse(data: bytes, url: str) -> SkillIndex:
    """Parse the list published at `url`; raises SourceFailure when it is not a list."""
    document = _parse_document(data, url)
    entries = document["skills"]
    if len(entries) > MAX_REMOTE_SKILLS:
        reason = f"lists more than {MAX_REMOTE_SKILLS} skills"
        raise _invalid(url, reason)
    known = "$schema" in document
    items: dict[str, IndexItem] = {}
    problems: list[Diagnostic] = []
    for number, entry in enumerate(entries):
        try:
            item = _parse_v02(entry, url) if known else _parse_files(entry, url)
            _add(items, item)
        except _EntrySkipped as skip:
            message = f"skills[{number}]: {skip.message}"
            problems.append(report(skip.code, "error", url, message, skip.remedy))
    kind: Literal["index", "well-known"] = (
        "well-known" if known or _WELL_KNOWN in urlsplit(url).path else "index"
    )
    return SkillIndex(kind, tuple(items.values()), tuple(problems))


def _parse_document(data: bytes, url: str) -> dict[str, Any]:
    try:
        document = read_json(data)
    except ValueError as error:
        raise _invalid(url, "is not JSON") from error
    if not isinstance(document, dict) or not isinstance(document.get("skills"), list):
        raise _invalid(url, "is not a list of skills: it has no array named 'skills'")
    schema = document.get("$schema", SCHEMA)
    if schema != SCHEMA:
        raise SourceFailure(
            url,
            f"follows an unknown schema: {str(schema)[:200]!r}",
            code="remote-index-schema",
            remedy=f"only {SCHEMA} is supported; a newer skillbelt may know more",
        )
    return document


def _invalid(url: str, reason: str) -> SourceFailure:
    remedy = "give the address of an archive, a SKILL.md or a folder with an index.json"
    return SourceFailure(url, reason, code="remote-index-invalid", remedy=remedy)


def _add(items: dict[str, IndexItem], item: IndexItem) -> None:
    key = item.name.casefold()
    if key in items:
        raise _EntrySkipped(
            "remote-entry-refused", f"a second skill {item.name!r}", "rename one of them"
        )
    items[key] = item


def _check_name(entry: object) -> tuple[str, dict[str, Any]]:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise _refusal("has no name")
    try:
        return check_segment(entry["name"], "skill name"), entry
    except PathEscape as error:
        raise _refusal(str(error)) from error


def _refusal(message: str) -> _EntrySkipped:
    remedy = "it was not fetched; ask its publisher to fix the entry"
    return _EntrySkipped("remote-entry-refused", message, remedy)


def _parse_v02(entry: object, url: str) -> IndexItem:
    """Parse an entry of the well-known index v0.2."""
    name, fields = _check_name(entry)
    kind = fields.get("type")
    if kind not in ("skill-md", "archive"):
        message = f"{name!r} is of the unknown type {str(kind)[:100]!r}"
        raise _EntrySkipped("remote-entry-type", message, "a newer skillbelt may know it")
    digest, target = fields.get("digest"), fields.get("url")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise _refusal(f"{name!r} has no digest of the form sha256:<64 hex digits>")
    return IndexItem(name, kind, f"{kind} {digest}", _resolve_url(url, target, name))


def _resolve_url(url: str, target: object, name: str) -> str:
    try:
        resolved = urljoin(url, target) if isinstance(target, str) and target else ""
        # An entry listed over TLS is never fetched over plain HTTP.
        plain = () if urlsplit(url).scheme == "https" else ("http",)
        if urlsplit(resolved).scheme in ("https", *plain):
            return resolved
    except ValueError:
        pass
    raise _refusal(f"{name!r} has no http or https url: {str(target)[:200]!r}")


def _parse_files(entry: object, url: str) -> IndexItem:
    """Parse an entry of the older form: a name and its files, below the list's own folder."""
    name, fields = _check_name(entry)
    files = fields.get("files")
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        raise _refusal(f"{name!r} has no list of files")
    if len(files) > MAX_ARCHIVE_FILES:
        raise _refusal(f"{name!r} has more than {MAX_ARCHIVE_FILES} files")
    try:
        paths = tuple(_check_files(files))
    except (PathEscape, Refusal) as error:
        raise _refusal(f"{name!r}: {error}") from error
    if SKILL_FILE not in paths:
        raise _refusal(f"{name!r} lists no {SKILL_FILE}")
    folder = urljoin(url, quote(name, safe="") + "/")
    return IndexItem(
        name=name,
        kind="files",
        key=_version_key(fields.get("version"), paths),
        url=folder,
        files=paths,
    )


def _check_files(files: list[str]) -> Iterator[str]:
    names = NameTable("skill")
    for file in files:
        path = check_relative(file, "skill")
        names.add_file(path)
        yield path


def _version_key(version: object, files: tuple[str, ...]) -> str:
    if isinstance(version, bool) or not isinstance(version, str | int | float) or version == "":
        return ""
    return json.dumps([str(version), *files])
