"""The packages that a skill declares for its scripts: names and versions, and nothing else.

Read from the script's own block (PEP 723), or from the nearest `requirements.txt`, `pyproject.toml`
or `package.json`. All of it is untrusted. Anything that could fetch from another place than the
user's own index, or run a build on this machine, is refused with the reason.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal

from skillbelt.errors import PathEscape, RunRefused
from skillbelt.files.contain import FOLLOW_FILE, FOLLOW_FOLDER, open_beneath, open_folder
from skillbelt.permission.packages import LockedPackages, normal
from skillbelt.records import NamedTuple
from skillbelt.text import Lazy, one_line, read_toml, shorten
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
_REQUIREMENT = Lazy(
    rf"{_NAME}\s*(?:\[\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\])?\s*"
    rf"(?:{_VERSIONS}|\(\s*{_VERSIONS}\s*\))?\s*(?:;\s*{_MARKER})?(?:\s+{_HASH})*"
)
_PINNED = Lazy(rf"{_NAME}\s*(?:\[[^\]]*\])?\s*\(?\s*===?\s*[A-Za-z0-9.+!_-]+\s*\)?\s*(?:;.*)?")
_PYTHONS = Lazy(rf"{_VERSIONS}")
_BLOCK_START = Lazy(r"# /// [a-zA-Z0-9-]+")
_NODE_NAME = Lazy(r"(?:@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*")
_NODE_RANGE = Lazy(r"[A-Za-z0-9.^~<>=|*+ -]*")
_OTHER = Lazy(r"requirements[A-Za-z0-9._-]+\.txt")
_DEVELOPMENT = Lazy(r"dev|test|lint|doc|ci\b|build|check", re.IGNORECASE)
_LISTS = 5
_FOLLOWED = 5  # how deep one list may include another
_OTHER_LIST = Lazy(r"(?:-r|--requirement)(?:\s+|=|(?<=-r))(?P<path>[^\s].*)")
# Each of these can name another index.
_UV_PLACES = frozenset(("sources", "index", "index-url", "extra-index-url", "find-links", "pip"))


class Needs(NamedTuple):
    """The packages for one interpreter, and the file that declares them.

    `guessed` are those of the requirements that no file declares: the scripts import them.
    `unknown` are those of the guessed whose names are not in the table of known packages. `unused`
    are declared ones that no source of the run imports, `guarded` those that it imports only where
    it can run without them. `locked` is the resolution of the declared ones in a lock, `unlocked`
    why it does not count.
    """

    kind: Literal["python", "node"]
    requirements: tuple[str, ...]
    source_path: str
    requires_python: str = ""
    guessed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    guarded: tuple[str, ...] = ()
    locked: LockedPackages | None = None
    unlocked: str = ""

    @property
    def optional(self) -> tuple[str, ...]:
        """Return the packages that the run can start without."""
        return (*self.guessed, *self.unused, *self.guarded)

    def without(self, left_out: Collection[str]) -> Needs:
        """Return the needs without some of the packages."""
        return self._replace(
            requirements=tuple(one for one in self.requirements if one not in left_out),
            guessed=tuple(one for one in self.guessed if one not in left_out),
            unknown=tuple(one for one in self.unknown if one not in left_out),
            unused=tuple(one for one in self.unused if one not in left_out),
            guarded=tuple(one for one in self.guarded if one not in left_out),
        )


def needs_of(skill_dir: str, script: str | None = None) -> Needs | None:
    """Return the packages that the script or the whole skill declares; None without any.

    A script's own block has precedence; then the nearest folder with a file that declares anything,
    from the one of the script up to the skill's own: for JavaScript `package.json`, for others
    `requirements.txt`, another `requirements*.txt` that is not for tests or development, then
    `pyproject.toml`; without a script the files of the skill's own folder and of `scripts`. Raises
    RunRefused for a declaration that is not accepted, and PathEscape for a file outside the folder.
    """
    folder = open_folder(skill_dir)
    try:
        return next((needs for needs in _declarations(folder, script) if needs), None)
    finally:
        os.close(folder)


def for_needs(needs: Needs, files: Mapping[str, LockedPackages]) -> Needs:
    """Return declared needs with their entry in the lock; `unlocked` says why it does not count.

    An entry for other requirements than the file has now belongs to another version of the file.
    """
    locked = files.get(needs.source_path)
    if locked is None:
        return needs
    if (locked.kind, locked.requirements) != (needs.kind, needs.requirements):
        return needs._replace(unlocked="the lock has packages for other requirements")
    return needs._replace(locked=locked)


def without_names(locked: LockedPackages | None, names: Iterable[str]) -> LockedPackages | None:
    """Return the locked packages without those that a user names with another requirement."""
    left_out = frozenset(names)
    if locked is None or left_out.isdisjoint(one.name for one in locked.packages):
        return locked
    kept = tuple(one for one in locked.packages if one.name not in left_out)
    return locked._replace(packages=kept, text="")


def versions_listed(skill_dir: str, paths: Iterable[str]) -> dict[str, str]:
    """Return the requirements by name that files of the skill list; an invalid file is skipped.

    These files do not declare the packages of a script, since they are not near it.
    """
    found: dict[str, str] = {}
    folder = open_folder(skill_dir)
    try:
        for path in paths:
            try:
                text = _read(folder, path)
                needs = _parse_requirements(folder, text, path) if text is not None else None
            except (RunRefused, PathEscape):
                continue
            for one in needs.requirements if needs else ():
                found.setdefault(name_of(one), one)
    finally:
        os.close(folder)
    return found


def given_needs(kind: Literal["python", "node"], texts: Iterable[str], source: str) -> Needs:
    """Return the needs that a user or a call names itself; raises RunRefused for invalid texts."""
    if kind == "node":
        return Needs(kind, tuple(_given_node(text, source) for text in texts), source)
    return Needs(kind, _requirements(texts, source), source)


def _given_node(text: str, source: str) -> str:
    name, at, wanted = text[1:].partition("@")
    return _node_package(text[:1] + name, wanted if at else "*", source)


def describe(needs: Needs) -> str:
    """Describe the packages to install, on one line that is safe to show."""
    what = {"python": "Python", "node": "Node.js"}[needs.kind]
    guessed = frozenset(needs.guessed)
    declared = [_format(one) for one in needs.requirements if one not in guessed]
    count = len(needs.requirements)
    noun = "package" if count == 1 else "packages"
    python = f", for Python {needs.requires_python}" if needs.requires_python else ""
    parts = [f"{_list(declared)} (from {needs.source_path}{python})"] if declared else []
    if needs.guessed:
        names = [_format(one) for one in needs.guessed]
        parts.append(f"{_list(names)} (not declared by the skill; guessed from its imports)")
    if needs.unknown:
        names = [_format(one) for one in needs.unknown]
        it = "it" if len(names) == 1 else "each"
        parts.append(f"of these {_list(names)} by the name of the import alone: no known package, "
                     f"so check that {it} is what the skill means")  # fmt: skip
    if not parts:
        return one_line(f"no {what} packages (from {needs.source_path}{python})")
    return one_line(f"{count} {what} {noun}: {'; '.join(parts)}")


def _format(requirement: str) -> str:
    return requirement.partition(" --hash")[0].removesuffix("@*")


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def names_of(needs: Needs) -> tuple[str, ...]:
    """Return the normalized names of the packages."""
    return tuple(name_of(one, needs.kind) for one in needs.requirements)


def name_of(requirement: str, kind: Literal["python", "node"] = "python") -> str:
    """Return the normalized name in a requirement."""
    if kind == "node":
        return normal("node", requirement.rpartition("@")[0])
    found = re.match(_NAME, requirement)
    return normal("python", found[0]) if found else ""


def is_for_development(path: str) -> bool:
    """Whether a `requirements*.txt` is for developers of the skill, by its name."""
    return bool(_DEVELOPMENT.search(posixpath.basename(path)))


def _declarations(folder: int, script: str | None) -> Iterator[Needs | None]:
    node = script is not None and script.endswith(_NODE_ENDINGS)
    if script is not None and not node:
        text = _read(folder, script, whole=False)
        yield _parse_block(text, script) if text else None
    for place in _declaring_folders(script):
        if not node:
            yield from _python_files(folder, place)
        if node or script is None:
            path = posixpath.join(place, "package.json")
            text = _read(folder, path)
            yield _parse_package(text, path) if text is not None else None


def _declaring_folders(script: str | None) -> Iterator[str]:
    """Yield the folders that declare the packages of a script, the nearest first."""
    place = posixpath.dirname(script or "")
    while place:
        yield place
        place = posixpath.dirname(place)
    yield ""
    if script is None or "/" not in script:
        yield "scripts"


def _python_files(folder: int, place: str) -> Iterator[Needs | None]:
    for name in ("requirements.txt", *_other_requirements(folder, place)):
        path = posixpath.join(place, name)
        text = _read(folder, path)
        if text is not None:
            yield _parse_requirements(folder, text, path)
    path = posixpath.join(place, "pyproject.toml")
    text = _read(folder, path)
    if text is not None:
        yield _parse_project(text, path)


def _other_requirements(folder: int, place: str) -> list[str]:
    """Return the further lists of a folder, such as `requirements-pdf.txt`, by their names."""
    try:
        handle = open_beneath(folder, place or ".", FOLLOW_FOLDER)
    except OSError:
        return []
    try:
        names = sorted(os.listdir(handle))
    finally:
        os.close(handle)
    return [one for one in names if _OTHER.fullmatch(one) and not is_for_development(one)][:_LISTS]


def _read(folder: int, path: str, *, whole: bool = True) -> str | None:
    """Read a file; None when it does not exist. Of a long script only the beginning is read."""
    try:
        handle = open_beneath(folder, path, FOLLOW_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _refusal(path, f"cannot be read: {error.strerror}") from error
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise _refusal(path, "is not a regular file")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES and whole:
        raise _refusal(path, f"has more than {MAX_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig", "strict" if whole else "replace")
    except UnicodeDecodeError as error:
        raise _refusal(path, "is not UTF-8") from error
    return text.replace("\r\n", "\n")


def _refusal(path: str, reason: str) -> RunRefused:
    return RunRefused(f"{one_line(path)}: {reason}")


# Python


def _parse_block(text: str, path: str) -> Needs | None:
    blocks = list(_blocks(text.split("\n")))
    if len(blocks) > 1:
        raise _refusal(path, "has more than one `# /// script` block")
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
        raise _refusal(path, "declares its dependencies as dynamic; list them")
    if not project.get("dependencies"):
        return None
    _check_places(whole, path)
    return _python_needs(project, path)


def _python_needs(table: dict[str, object], path: str) -> Needs:
    listed, pythons = table.get("dependencies", []), table.get("requires-python", "")
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise _refusal(path, "dependencies is not a list of strings")
    if not isinstance(pythons, str) or (
        pythons.strip() and not _PYTHONS.fullmatch(pythons.strip())
    ):
        raise _refusal(path, "requires-python is not a version, like `>=3.11`")
    return Needs("python", _requirements(listed, path), path, pythons.strip())


def _toml(text: str, path: str) -> dict[str, object]:
    try:
        return read_toml(text)
    except (ValueError, RecursionError) as error:
        reason = shorten(one_line(str(error)), 200)
        raise _refusal(path, f"is not valid TOML: {reason}") from error


def _check_places(table: dict[str, object], path: str) -> None:
    tool = table.get("tool")
    uv = tool.get("uv") if isinstance(tool, dict) else None
    named = sorted(_UV_PLACES & set(uv)) if isinstance(uv, dict) else []
    if named:
        raise _refusal(path, f"[tool.uv] {named[0]} is not accepted: {_ONLY}")


def _parse_requirements(folder: int, text: str, path: str) -> Needs | None:
    lines: list[str] = []
    pythons: list[str] = []
    for line in _lines(folder, text, path):
        name = name_of(line)
        if name == "python" and _PYTHONS.fullmatch(line[len("python") :].strip()):
            pythons.append(line[len("python") :].strip())  # a common spelling
        elif name not in sys.stdlib_module_names or "--hash" in line:
            lines.append(line)
    found = _requirements(lines, path)
    return Needs("python", found, path, ",".join(pythons)) if found else None


def _lines(folder: int, text: str, path: str, depth: int = 0) -> Iterator[str]:
    """Yield the lines of a list, and those of the skill's lists that it includes."""
    for line in re.sub(r"\\\n", " ", text).split("\n"):
        plain = re.sub(r"(^|\s)#.*", "", line).strip()
        other = _OTHER_LIST.fullmatch(plain)
        if other is None:
            yield from (plain,) if plain else ()
            continue
        named = posixpath.normpath(posixpath.join(posixpath.dirname(path), other["path"]))
        if depth >= _FOLLOWED:
            raise _refusal(path, f"lists name each other more than {_FOLLOWED} deep; write one")
        more = None if named.startswith(("/", "..")) else _read(folder, named)
        if more is None:
            shown = shorten(one_line(plain), 80)
            raise _refusal(path, f"{shown!r} names no file of the skill: {_REMEDY}")
        yield from _lines(folder, more, named, depth + 1)


_ONLY = "only names, versions, extras and markers are; packages come from your own index"
_REMEDY = "delete the line, or run without packages (--no-install) and name them by --with"
_REMEDIES = {
    "is an option of an installer": "delete it; your own index is set in uv.toml or pip.conf",
    "names a place to fetch from": "write the name and the version, as `name==1.2`",
    "is a file": "write the name and the version, as `name==1.2`",
}


def _requirements(lines: Iterable[str], path: str) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for line in lines:
        text = " ".join(line.split())
        fault = _fault(text)
        if fault:
            shown = shorten(one_line(text), 80)
            remedy = _REMEDIES.get(fault, "correct it")
            raise _refusal(
                path, f"{shown!r} is not accepted, because it {fault}: {_ONLY}; {remedy}, or run "
                "without packages (--no-install)"
            )  # fmt: skip
        found[text] = None
        if len(found) > MAX_REQUIREMENTS:
            raise _refusal(path, f"lists more than {MAX_REQUIREMENTS} packages")
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
    # Without a fixed version, installers do not check the hash.
    wanted, hashed, _ = text.partition(" --hash")
    return "has a hash without a version (==)" if hashed and not _PINNED.fullmatch(wanted) else ""


# Node.js


def _parse_package(text: str, path: str) -> Needs | None:
    try:
        parsed = read_json(text)
    except ValueError as error:
        reason = shorten(one_line(str(error)), 200)
        raise _refusal(path, f"is not valid JSON: {reason}") from error
    listed = parsed.get("dependencies") if isinstance(parsed, dict) else None
    if not listed:
        return None
    if not isinstance(listed, dict):
        raise _refusal(path, "dependencies is not a mapping")
    if len(listed) > MAX_REQUIREMENTS:
        raise _refusal(path, f"lists more than {MAX_REQUIREMENTS} packages")
    return Needs("node", tuple(_node_package(*item, path) for item in listed.items()), path)


def _node_package(name: str, wanted: object, path: str) -> str:
    fine = len(name) <= 214 and _NODE_NAME.fullmatch(name)
    if not fine or not isinstance(wanted, str) or len(wanted) > 200:
        raise _refusal(path, f"{shorten(one_line(name), 80)!r} is not a package with a version")
    if not _NODE_RANGE.fullmatch(wanted) or wanted.startswith("-"):
        shown = shorten(one_line(f"{name}: {wanted}"), 80)
        raise _refusal(
            path, f"{shown!r} is not accepted, because it names a place to fetch from: {_ONLY}"
        )
    return f"{name}@{wanted.strip() or '*'}"
