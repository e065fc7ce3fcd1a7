"""The packages that a skill declares for its scripts: names and versions, and nothing else.

Read from the script's own block (PEP 723), `requirements.txt`, `pyproject.toml` or `package.json`.
All of it is untrusted. Anything that could fetch from another place than the user's own index, or
run a build on this machine, is refused with the reason.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from skillbelt.errors import RunRefused
from skillbelt.files.contain import FOLLOW_FILE, open_beneath, open_folder
from skillbelt.permission.packages import normal
from skillbelt.text import one_line, shorten
from skillbelt.untrusted_json import read_json

MAX_BYTES = 256 * 2**10
MAX_REQUIREMENTS = 200
_MAX_CHARS = 1000
_SHOWN = 20
_NODE_ENDINGS = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts")

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VERSION = r"(?:===|==|!=|<=|>=|~=|<|>)\s*[A-Za-z0-9.*+!_-]+"
_VERSIONS = rf"{_VERSION}(?:\s*,\s*{_VERSION})*"
_WORD = r"""(?:'[^'"\\]*'|"[^'"\\]*"|[a-z_]+)"""
_COMPARED = rf"\(*\s*{_WORD}\s*(?:===|==|!=|<=|>=|~=|<|>|\bnot\s+in\b|\bin\b)\s*{_WORD}\s*\)*"
_MARKER = rf"{_COMPARED}(?:\s*\b(?:and|or)\b\s*{_COMPARED})*"
_HASH = r"--hash[= ]\s*sha(?:256|384|512):[0-9a-fA-F]{64,128}"
_REQUIREMENT = re.compile(
    rf"{_NAME}\s*(?:\[\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\])?\s*"
    rf"(?:{_VERSIONS}|\(\s*{_VERSIONS}\s*\))?\s*(?:;\s*{_MARKER})?(?:\s+{_HASH})*"
)
_PINNED = re.compile(
    rf"{_NAME}\s*(?:\[[^\]]*\])?\s*\(?\s*===?\s*[A-Za-z0-9.+!_-]+\s*\)?\s*(?:;.*)?"
)
_PYTHONS = re.compile(rf"{_VERSIONS}")
_BLOCK_START = re.compile(r"# /// [a-zA-Z0-9-]+")
_NODE_NAME = re.compile(r"(?:@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*")
_NODE_RANGE = re.compile(r"[A-Za-z0-9.^~<>=|*+ -]*")
# Each of these can name another index.
_UV_PLACES = frozenset(("sources", "index", "index-url", "extra-index-url", "find-links", "pip"))


class Needs(NamedTuple):
    """The declared packages for one interpreter, and the file that declares them."""

    kind: Literal["python", "node"]
    requirements: tuple[str, ...]
    source_path: str
    requires_python: str = ""


def needs_of(skill_dir: str, script: str | None = None) -> Needs | None:
    """Return the packages that the script or the whole skill needs; None without any.

    A script's own block has precedence; then the first file that declares anything: for JavaScript
    `package.json`, for others `requirements.txt`, then `pyproject.toml`; without a script these
    three in turn. Raises RunRefused for what is not accepted, and PathEscape for a file outside
    the folder.
    """
    folder = open_folder(skill_dir)
    try:
        return next((needs for needs in _declared(folder, script) if needs), None)
    finally:
        os.close(folder)


def describe(needs: Needs) -> str:
    """Describe what would be installed, on one line that is safe to show."""
    what = {"python": "Python", "node": "Node.js"}[needs.kind]
    names = [one.partition(" --hash")[0] for one in needs.requirements]
    shown = ", ".join(names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    noun = "package" if len(names) == 1 else "packages"
    python = f", for Python {needs.requires_python}" if needs.requires_python else ""
    packages = f"{len(names)} {what} {noun}: {shown}{more}" if names else f"no {what} packages"
    return one_line(f"{packages} (from {needs.source_path}{python})")


def names_of(needs: Needs) -> tuple[str, ...]:
    """Return the normalized names of the declared packages."""
    if needs.kind == "node":
        return tuple(normal("node", one.rpartition("@")[0]) for one in needs.requirements)
    found = (re.match(_NAME, one) for one in needs.requirements)
    return tuple(normal("python", one[0]) for one in found if one)


def _declared(folder: int, script: str | None) -> Iterator[Needs | None]:
    node = script is not None and script.endswith(_NODE_ENDINGS)
    if script is not None and not node:
        text = _read(folder, script, whole=False)
        yield _parse_block(text, script) if text else None
    if not node:
        yield from _parse_file(folder, "requirements.txt", _parse_requirements)
        yield from _parse_file(folder, "pyproject.toml", _parse_project)
    if node or script is None:
        yield from _parse_file(folder, "package.json", _parse_package)


def _parse_file(
    folder: int, path: str, parse: Callable[[str, str], Needs | None]
) -> Iterator[Needs | None]:
    text = _read(folder, path)
    if text is not None:
        yield parse(text, path)


def _read(folder: int, path: str, *, whole: bool = True) -> str | None:
    """Read a file; None when it does not exist. Of a long script only the beginning counts."""
    try:
        handle = open_beneath(folder, path, FOLLOW_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _refused(path, f"cannot be read: {error.strerror}") from error
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise _refused(path, "is not a regular file")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES and whole:
        raise _refused(path, f"has more than {MAX_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig", "strict" if whole else "replace")
    except UnicodeDecodeError as error:
        raise _refused(path, "is not UTF-8") from error
    return text.replace("\r\n", "\n")


def _refused(path: str, reason: str) -> RunRefused:
    return RunRefused(f"{one_line(path)}: {reason}")


# Python


def _parse_block(text: str, path: str) -> Needs | None:
    blocks = list(_blocks(text.split("\n")))
    if len(blocks) > 1:
        raise _refused(path, "has more than one `# /// script` block")
    if not blocks:
        return None
    table = _toml("\n".join(line[2:] for line in blocks[0]), path)
    _check_places(table, path)
    return _python_needs(table, path)


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Yield the lines of each script block; a block ends at the last `# ///` of its comment."""
    at = 0
    while at < len(lines):
        start, at = at, at + 1
        if not _BLOCK_START.fullmatch(lines[start]):
            continue
        while at < len(lines) and (lines[at] == "#" or lines[at].startswith("# ")):
            at += 1
        ends = [one for one in range(start + 1, at) if lines[one] == "# ///"]
        if ends and lines[start] == "# /// script":
            yield lines[start + 1 : ends[-1]]


def _parse_project(text: str, path: str) -> Needs | None:
    whole = _toml(text, path)
    project = whole.get("project")
    if not isinstance(project, dict):
        return None
    dynamic = project.get("dynamic")
    if isinstance(dynamic, list) and "dependencies" in dynamic:
        raise _refused(path, "declares its dependencies as dynamic; list them")
    if not project.get("dependencies"):
        return None
    _check_places(whole, path)
    return _python_needs(project, path)


def _python_needs(table: dict[str, object], path: str) -> Needs:
    listed, pythons = table.get("dependencies", []), table.get("requires-python", "")
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise _refused(path, "dependencies is not a list of strings")
    if not isinstance(pythons, str) or (
        pythons.strip() and not _PYTHONS.fullmatch(pythons.strip())
    ):
        raise _refused(path, "requires-python is not a version, like `>=3.11`")
    return Needs("python", _requirements(listed, path), path, pythons.strip())


def _toml(text: str, path: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        reason = shorten(one_line(str(error)), 200)
        raise _refused(path, f"is not valid TOML: {reason}") from error


def _check_places(table: dict[str, object], path: str) -> None:
    tool = table.get("tool")
    uv = tool.get("uv") if isinstance(tool, dict) else None
    named = sorted(_UV_PLACES & set(uv)) if isinstance(uv, dict) else []
    if named:
        raise _refused(path, f"[tool.uv] {named[0]} is not accepted: {_ONLY}")


def _parse_requirements(text: str, path: str) -> Needs | None:
    lines = re.sub(r"\\\n", " ", text).split("\n")
    plain = (re.sub(r"(^|\s)#.*", "", line).strip() for line in lines)
    found = _requirements((line for line in plain if line), path)
    return Needs("python", found, path) if found else None


_ONLY = "only names, versions, extras and markers are; packages come from your own index"


def _requirements(lines: Iterable[str], path: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for line in lines:
        text = " ".join(line.split())
        fault = _fault(text)
        if fault:
            shown = shorten(one_line(text), 80)
            raise _refused(path, f"{shown!r} is not accepted, because it {fault}: {_ONLY}")
        found[text] = None
        if len(found) > MAX_REQUIREMENTS:
            raise _refused(path, f"lists more than {MAX_REQUIREMENTS} packages")
    return tuple(found)


def _fault(text: str) -> str:
    if len(text) > _MAX_CHARS:
        return "is too long"
    if text.startswith("-"):
        return "is an option of an installer"
    if "://" in text or "@" in text:
        return "names a place to fetch from"
    if text.startswith((".", "/", "~")) or text.endswith((".whl", ".tar.gz", ".zip")):
        return "is a file"
    if not _REQUIREMENT.fullmatch(text):
        return "is not a requirement"
    # Without a fixed version an installer does not compare the hash.
    wanted, hashed, _ = text.partition(" --hash")
    return "has a hash without a version (==)" if hashed and not _PINNED.fullmatch(wanted) else ""


# Node.js


def _parse_package(text: str, path: str) -> Needs | None:
    try:
        parsed = read_json(text)
    except ValueError as error:
        reason = shorten(one_line(str(error)), 200)
        raise _refused(path, f"is not valid JSON: {reason}") from error
    listed = parsed.get("dependencies") if isinstance(parsed, dict) else None
    if not listed:
        return None
    if not isinstance(listed, dict):
        raise _refused(path, "dependencies is not a mapping")
    if len(listed) > MAX_REQUIREMENTS:
        raise _refused(path, f"lists more than {MAX_REQUIREMENTS} packages")
    return Needs("node", tuple(_node_package(*item, path) for item in listed.items()), path)


def _node_package(name: str, wanted: object, path: str) -> str:
    fine = len(name) <= 214 and _NODE_NAME.fullmatch(name)
    if not fine or not isinstance(wanted, str) or len(wanted) > 200:
        raise _refused(path, f"{shorten(one_line(name), 80)!r} is not a package with a version")
    if not _NODE_RANGE.fullmatch(wanted) or wanted.startswith("-"):
        shown = shorten(one_line(f"{name}: {wanted}"), 80)
        raise _refused(
            path, f"{shown!r} is not accepted, because it names a place to fetch from: {_ONLY}"
        )
    return f"{name}@{wanted.strip() or '*'}"
