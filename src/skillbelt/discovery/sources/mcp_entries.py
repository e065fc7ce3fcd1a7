"""What an MCP server lists as skills, checked before anything of it is believed."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from skillbelt.discovery.sources.bounds import (
    MAX_ARCHIVE_FILES,
    MAX_EXTRACTED_BYTES,
    MAX_EXTRACTED_FILE_BYTES,
)
from skillbelt.discovery.sources.failure import report
from skillbelt.discovery.sources.located import slug_of
from skillbelt.errors import PathEscape
from skillbelt.files.contain import check_relative
from skillbelt.format.frontmatter import MAX_FRONTMATTER_BYTES
from skillbelt.text import one_line, shorten
from skillbelt.values import SKILL_FILE, Diagnostic

if TYPE_CHECKING:
    from skillbelt.values import Limits

_NAME = re.compile(r"(?=.{1,64}\Z)[a-z0-9]+(?:-[a-z0-9]+)*")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_MAX_URI_CHARS = 4_096
_MAX_ID_CHARS = 128
_SHOWN = 120
_REMEDY = "ask whoever runs the server to mend its entry"


class Listed(NamedTuple):
    """One file that an entry names: its address, the hex digits of its digest, its size."""

    uri: str
    sha256: str
    size: int


class Entry(NamedTuple):
    """One skill that a server lists. `id` is what it is called here, with the server's label."""

    id: str
    name: str
    uri: str
    frontmatter: Mapping[str, Any]
    files: Mapping[str, Listed]

    def record(self) -> dict[str, Any]:
        """The entry as it is held in the cache."""
        files = {path: list(one) for path, one in self.files.items()}
        return {"name": self.name, "uri": self.uri, "frontmatter": self.frontmatter, "files": files}


class _Refused(Exception):
    """An entry can not be used; the text says why."""


def held(record: Any) -> Entry | None:
    """The entry that was held as a record; None when it can not be understood."""
    try:
        files = {path: Listed(*one) for path, one in record["files"].items()}
        return Entry(
            id="",
            name=record["name"],
            uri=record["uri"],
            frontmatter=record["frontmatter"],
            files=files,
        )
    except (TypeError, KeyError, AttributeError):
        return None


def entries_of(
    listed: Iterable[object], label: str, source: str, limits: Limits
) -> tuple[list[Entry], tuple[Diagnostic, ...]]:
    """The entries that can be used, each with an id of its own, and why others can not."""
    found: dict[str, Entry] = {}
    problems: list[Diagnostic] = []
    for item in listed:
        try:
            entry = _entry(item, limits)
            if entry.uri in found:
                raise _Refused("it is listed twice; the first one counts")
            found[entry.uri] = entry
        except _Refused as refused:
            message = f"{_called(item)}: {refused}"
            problems.append(report("mcp-entry-refused", "warning", source, message, _REMEDY))
    return _with_ids(list(found.values()), label), tuple(problems)


def _called(item: object) -> str:
    uri = item.get("uri") if isinstance(item, dict) else None
    return shorten(one_line(uri), _SHOWN) if isinstance(uri, str) else "an entry without an address"


def _entry(item: object, limits: Limits) -> Entry:
    if not isinstance(item, dict):
        raise _Refused("it is no object")
    uri, front = item.get("uri"), item.get("frontmatter")
    base = _base(uri)
    if not isinstance(front, dict) or not all(_text(front.get(k)) for k in ("name", "description")):
        raise _Refused("its frontmatter has no name or no description")
    if len(json.dumps(front, ensure_ascii=False).encode("utf-8", "replace")) > (
        MAX_FRONTMATTER_BYTES // 2
    ):
        raise _Refused("its frontmatter is too long")
    name = front["name"]
    if not _NAME.fullmatch(name) or unquote(base.rstrip("/").rpartition("/")[2]) != name:
        raise _Refused("its name breaks the rules, or is not the one in its address")
    return Entry(
        id="",
        name=name,
        uri=str(uri),
        frontmatter=front,
        files=_files(item.get("resources"), base, limits),
    )


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _base(uri: object) -> str:
    """The address of the folder that the SKILL.md lies in, with a slash at its end."""
    ending = f"/{SKILL_FILE}"
    plain = isinstance(uri, str) and len(uri) <= _MAX_URI_CHARS and uri.isprintable()
    if not plain or not str(uri).endswith(ending) or "://" not in str(uri) or " " in str(uri):
        raise _Refused("its address is not that of a SKILL.md")
    return str(uri)[: -len(SKILL_FILE)]


def _files(resources: object, base: str, limits: Limits) -> dict[str, Listed]:
    if resources == "dynamic":
        raise _Refused("its files can not be verified (dynamic), so it is not used")
    if not isinstance(resources, list):
        raise _Refused("it does not list its files")
    if len(resources) > MAX_ARCHIVE_FILES:
        raise _Refused(f"it has more than {MAX_ARCHIVE_FILES} files (max_archive_files)")
    files: dict[str, Listed] = {}
    for resource in resources:
        path, listed = _file(resource, base, limits)
        if path in files:
            raise _Refused(f"it lists {path!r} twice")
        files[path] = listed
    if any(parent in files for path in files for parent in _parents(path)):
        raise _Refused("one of its files lies in another one of them")
    if SKILL_FILE not in files:
        raise _Refused("its SKILL.md is not among its files")
    if sum(one.size for one in files.values()) > MAX_EXTRACTED_BYTES:
        raise _Refused(f"it has more than {MAX_EXTRACTED_BYTES} bytes (max_extracted_bytes)")
    return files


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _file(resource: object, base: str, limits: Limits) -> tuple[str, Listed]:
    if not isinstance(resource, dict):
        raise _Refused("one of its files is no object")
    uri, digest, size = (resource.get(key) for key in ("uri", "digest", "size"))
    if not isinstance(uri, str) or len(uri) > _MAX_URI_CHARS or not uri.startswith(base):
        raise _Refused("one of its files lies outside of it")
    marked = _DIGEST.fullmatch(digest) if isinstance(digest, str) else None
    if marked is None or type(size) is not int or size < 0:
        raise _Refused("one of its files has no digest or no size")
    if size > MAX_EXTRACTED_FILE_BYTES:
        raise _Refused(f"one of its files has {size} bytes (max_extracted_file_bytes)")
    return _path(uri[len(base) :]), Listed(uri, marked[1], size)


def _path(escaped: str) -> str:
    """The path of a file below the skill; nothing in it leads anywhere else."""
    parts = [unquote(part, errors="strict") for part in _split(escaped)]
    try:
        if any("/" in part for part in parts):
            raise _Refused("one of its files has a path that leads elsewhere")
        return check_relative("/".join(parts))
    except PathEscape as escape:
        raise _Refused(f"one of its files has a path that is refused: {escape}") from escape


def _split(escaped: str) -> list[str]:
    try:
        escaped.encode("ascii")
        unquote(escaped, errors="strict")
    except UnicodeError as error:
        raise _Refused("one of its files has an address that is none") from error
    if any(mark in escaped for mark in "?#"):
        raise _Refused("one of its files has an address that is none")
    return escaped.split("/")


# What they are called here


def _with_ids(entries: list[Entry], label: str) -> list[Entry]:
    """Each with the server's label before its name, and with more of its address if need be."""
    names = Counter(entry.name for entry in entries)
    made: dict[str, Entry] = {}
    for entry in sorted(entries, key=lambda one: one.uri):
        alone = names[entry.name] == 1
        wanted = f"{label}.{entry.name if alone else _long_name(entry)}"
        if len(wanted) > _MAX_ID_CHARS or wanted in made:
            mark = hashlib.sha256(entry.uri.encode()).hexdigest()[:8]
            wanted = f"{wanted[: _MAX_ID_CHARS - 9]}-{mark}"
        made[wanted] = entry._replace(id=wanted)
    return list(made.values())


def _long_name(entry: Entry) -> str:
    """The name with the parts of the address that stand before it."""
    place = unquote(entry.uri.partition("://")[2]).split("/")[:-1]
    return ".".join(slug for part in place if (slug := slug_of(part)))
