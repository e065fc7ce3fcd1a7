"""The next version of a skill that is being written: `metadata.version` of its SKILL.md."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, get_args

from skillbelt.errors import ConfigError
from skillbelt.format.frontmatter import parse, split
from skillbelt.text import Lazy
from skillbelt.values import SKILL_FILE

VersionPart = Literal["major", "minor", "patch"]
PARTS: tuple[VersionPart, ...] = get_args(VersionPart)
FIRST_VERSION = "0.1.0"
_VERSION = Lazy(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:[-+][0-9A-Za-z.+-]{1,64})?")
_AT_TOP = Lazy(r"^version:[ \t]*[^\n#]*?(?=[ \t]*(?:#[^\n]*)?$)", re.MULTILINE)
_METADATA = Lazy(r"^metadata:[ \t]*(?:#[^\n]*)?$", re.MULTILINE)
_INSIDE = Lazy(r"^([ \t]+)version:[ \t]*[^\n#]*?(?=[ \t]*(?:#[^\n]*)?$)", re.MULTILINE)


class VersionChange(NamedTuple):
    """A SKILL.md with another version: what it had, "" for none, what it has, and its bytes."""

    before: str
    after: str
    data: bytes


def read_version(data: bytes, path: str) -> str:
    """Return the version that a SKILL.md has, "" for none; ConfigError without frontmatter."""
    parsed = parse(data, path=path, folder="", derive=False)
    if parsed.state == "skipped" or split(data) is None:
        raise ConfigError(f"{path} has no frontmatter; `skillbelt check {path}` says what it lacks")
    metadata = parsed.fields.get("metadata")
    inside = metadata.get("version") if isinstance(metadata, dict) else None
    found = parsed.fields.get("version") or inside
    return str(found) if isinstance(found, str | int | float) else ""


def next_version(before: str, part: VersionPart) -> str:
    """Return the version that follows; ConfigError unless it is `X.Y.Z`."""
    if not before:
        return FIRST_VERSION
    found = _VERSION.fullmatch(before)
    if found is None:
        raise ConfigError(
            f"the version {before[:80]!r} is not like 1.2.3; give the new one with --to"
        )
    major, minor, patch = (int(found[number]) for number in (1, 2, 3))
    if part == "major":
        return f"{major + 1}.0.0"
    return f"{major}.{minor + 1}.0" if part == "minor" else f"{major}.{minor}.{patch + 1}"


def set_version(data: bytes, version: str, path: str = SKILL_FILE) -> VersionChange:
    """Return the SKILL.md with this version and nothing else changed.

    ConfigError for an invalid version, and where the place for it is not found.
    """
    if not _VERSION.fullmatch(version):
        raise ConfigError(f"{version[:80]!r} is not a version such as 1.2.3 or 2.0.0-rc.1")
    before = read_version(data, path)
    found = split(data)
    assert found is not None
    head = data[found.start : found.end].decode("utf-8", "surrogateescape")
    lines = head.replace("\r\n", "\n")
    made = _replace(lines, version)
    if lines != head:
        made = made.replace("\n", "\r\n")
    changed = data[: found.start] + made.encode("utf-8", "surrogateescape") + data[found.end :]
    if read_version(changed, path) != version or _read_rest(changed, path) != _read_rest(
        data, path
    ):
        raise ConfigError(f'{path}: write `metadata.version: "{version}"` there by hand')
    return VersionChange(before=before, after=version, data=changed)


def _read_rest(data: bytes, path: str) -> tuple[object, ...]:
    """Return everything that a new version must not change."""
    parsed = parse(data, path=path, folder="", derive=False)
    fields = {key: value for key, value in parsed.fields.items() if key != "version"}
    metadata = fields.pop("metadata", None) or {}
    if isinstance(metadata, dict):
        metadata = {key: value for key, value in metadata.items() if key != "version"}
    return fields, metadata, [one.code for one in parsed.diagnostics], data[parsed.body_offset :]


def _replace(head: str, version: str) -> str:
    """Return the frontmatter with the version at its place: at the top, or below `metadata`."""
    if _AT_TOP.search(head):
        return _AT_TOP.sub(f'version: "{version}"', head, count=1)
    block = _METADATA.search(head)
    if block is None:
        return f'{head}metadata:\n  version: "{version}"\n'
    below = head[block.end() :]
    stop = re.search(r"^[^\s#]", below, re.MULTILINE)
    inside = below[: stop.start()] if stop else below
    if _INSIDE.search(inside):
        changed = _INSIDE.sub(lambda one: f'{one[1]}version: "{version}"', inside, count=1)
        return head[: block.end()] + changed + below[len(inside) :]
    indent = re.search(r"^([ \t]+)\S", inside, re.MULTILINE)
    line = f'{indent[1] if indent else "  "}version: "{version}"'
    return f"{head[: block.end()]}\n{line}{below}"
