"""The packages that a run needs: declared by the skill, named by the call, proposed by imports."""

from __future__ import annotations

import os
import posixpath
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from skillbelt.errors import PathEscape, RunRefused
from skillbelt.files.contain import FOLLOW_FILE, inside, open_beneath, open_folder
from skillbelt.files.tree import SkillTree
from skillbelt.format.python_source import MAX_SOURCE_BYTES
from skillbelt.permission.packages import Kind, LockedPackages
from skillbelt.running.call import scripts_named
from skillbelt.running.packages.declared import (
    MAX_REQUIREMENTS,
    Needs,
    for_needs,
    given_needs,
    is_for_development,
    name_of,
    names_of,
    needs_of,
    versions_listed,
    without_names,
)
from skillbelt.running.packages.known_packages import is_known
from skillbelt.running.packages.proposed import (
    Proposal,
    Sources,
    StartedCode,
    imports_of,
    kind_of,
    propose,
    uncovered,
)
from skillbelt.running.packages.started import StartedPart, started_parts
from skillbelt.sandbox.linux.identity import interpreter

_MAX_SHELL_DEPTH = 3
_MAX_LISTS = 10
_MAX_CODE_CHARS = MAX_SOURCE_BYTES


class Wishes(NamedTuple):
    """The packages that a user or a call asks for beside those of the skill.

    `packages` are requirements, `named_by` says who names them. Without `guess` the imports do not
    count. `locked` returns the packages in the lock of the skill, by the file that declares them.
    """

    packages: tuple[str, ...] = ()
    named_by: str = "--with"
    guess: bool = True
    locked: Callable[[], Mapping[str, LockedPackages]] = dict


_NO_WISHES = Wishes()


class StartedIn(NamedTuple):
    """The start of a command: the skill's copy, its workspace and the working folder, as paths."""

    home: str
    workspace: str
    folder: str


class _Found(NamedTuple):
    """The programs that a command starts, with the paths of the skill's scripts looked up."""

    scripts: list[str]
    code: list[tuple[Kind, str]]
    packages: list[tuple[Kind, str]]
    lists: list[str]
    folders: list[str]


def find_needs(
    place: StartedIn,
    command: str | Sequence[str],
    *,
    script: str = "",
    stdin: bytes = b"",
    wishes: Wishes = _NO_WISHES,
) -> Needs | None:
    """Return the packages that a command of a skill needs; None without any.

    `script` is the script of the skill that the command is known to run; without it the words of
    the command say what it starts. Raises RunRefused for a declaration that is not accepted.
    """
    found = _look_up(place, command, script, stdin)
    first = script or next(iter(found.scripts), "")
    kind = _kind(first, found)
    declared = needs_of(place.home, first or None)
    if declared is not None and declared.kind != kind and (first or found.code):
        declared = None
    if declared is not None:
        kind = declared.kind
        declared = for_needs(declared, wishes.locked()) if declared.requirements else declared
    needs = declared or Needs(kind, (), first)
    own = needs.requirements
    if wishes.packages:
        given = given_needs(kind, wishes.packages, wishes.named_by)
        needs = _add(needs, given)
        own = tuple(one for one in own if name_of(one, kind) not in names_of(given))
    if wishes.guess and any(found):
        needs = _read_imports(needs, place, found, own)
    return needs if needs.requirements or declared is not None else None


def _kind(first: str, found: _Found) -> Kind:
    named: list[Kind] = [kind for kind, _ in (*found.code, *found.packages)]
    return kind_of(first) or (named[0] if named else "python")


def _add(needs: Needs, given: Needs) -> Needs:
    """Return the needs together with the given ones, which replace those of the skill."""
    names = frozenset(names_of(given))
    kept = tuple(one for one in needs.requirements if name_of(one, needs.kind) not in names)
    source = f"{needs.source_path} and {given.source_path}" if kept else given.source_path
    return needs._replace(
        requirements=(*kept, *given.requirements),
        source_path=source,
        locked=without_names(needs.locked, names),
    )


# What the command starts


def _look_up(place: StartedIn, command: str | Sequence[str], script: str, stdin: bytes) -> _Found:
    found = _Found(scripts=[script] if script else [], code=[], packages=[], lists=[], folders=[])
    text = stdin[:_MAX_CODE_CHARS].decode("utf-8", "replace")
    parts = started_parts(command, text)
    _sort(place, parts, found)
    # A line that cannot be parsed may still name a script.
    if not found.scripts and not found.code:
        line = command if isinstance(command, str) else shlex.join(command)
        words = (_path_in_skill(place, word) for word in scripts_named(line))
        found.scripts.extend(islice(filter(None, words), 1))
    for path in [one for one in found.scripts if one.endswith((".sh", ".bash"))]:
        _sort(place, _parts_of_shell(place, path), found, 1)
    return found


def _sort(place: StartedIn, parts: Sequence[StartedPart], found: _Found, depth: int = 0) -> None:
    for part in parts:
        if part.what == "code":
            found.code.append((part.kind, part.text))
            found.folders.append(_relative(place, place.folder))
        elif part.what == "package":
            found.packages.append((part.kind, part.text))
        elif part.what == "module":
            _add_module(place, part.text, found)
        else:
            path = _path_in_skill(place, part.text)
            if part.what == "list":
                found.lists.extend([path] if path else [])
            elif path and path not in found.scripts:
                found.scripts.append(path)
                if part.what == "shell" and depth < _MAX_SHELL_DEPTH:
                    _sort(place, _parts_of_shell(place, path), found, depth + 1)
            elif not path and part.what == "script":
                found.code.extend(_code_in_workspace(place, part))


def _parts_of_shell(place: StartedIn, path: str) -> list[StartedPart]:
    data = _read_beneath(place.home, path)
    return started_parts(data.decode("utf-8", "replace")) if data else []


def _add_module(place: StartedIn, module: str, found: _Found) -> None:
    """Add the module that `python -m` runs: one of the skill, or one of a package."""
    parts = module.replace(".", "/")
    for folder in (place.folder, place.home):
        for end in (f"{parts}.py", f"{parts}/__main__.py"):
            path = os.path.join(folder, end)
            if os.path.isfile(path) and inside(path, place.home):
                found.scripts.append(_relative(place, path))
                found.folders.append(_relative(place, folder))
                above = module if end.endswith("__main__.py") else module.rpartition(".")[0]
                if above:  # Python imports the packages that the module is in first
                    found.code.append(("python", f"import {above}"))
                return
    if all(one.isidentifier() for one in module.split(".")):
        found.code.append(("python", f"import {module}"))


def _path_in_skill(place: StartedIn, word: str) -> str:
    """Return a file of the skill that a word names, relative to the skill; "" if it names none."""
    folders = (place.folder, place.home, os.path.join(place.home, "scripts"))
    for folder in folders:
        path = os.path.join(folder, word)
        if "\0" not in path and os.path.isfile(path) and inside(path, place.home):
            return _relative(place, path)
    return ""


def _relative(place: StartedIn, path: str) -> str:
    found = os.path.relpath(os.path.realpath(path), os.path.realpath(place.home))
    return "" if found == "." else found.replace(os.sep, "/")


def _code_in_workspace(place: StartedIn, part: StartedPart) -> Iterator[tuple[Kind, str]]:
    """Yield a script that the command names and that another run, or a model, wrote."""
    path = os.path.normpath(os.path.join(place.folder, part.text))
    if kind_of(path) and inside(path, place.workspace) and "\0" not in path:
        data = _read_beneath(place.workspace, os.path.relpath(path, place.workspace))
        if data is not None:
            yield kind_of(path) or "python", data.decode("utf-8", "replace")


def _read_beneath(folder: str, path: str) -> bytes | None:
    """Read the beginning of a regular file; None when that is not possible."""
    try:
        top = open_folder(folder)
        try:
            with open(open_beneath(top, path, FOLLOW_FILE), "rb") as file:
                return file.read(MAX_SOURCE_BYTES)
        finally:
            os.close(top)
    except (OSError, PathEscape, ValueError):
        return None


# What its imports propose


def _read_imports(needs: Needs, place: StartedIn, found: _Found, declared: Sequence[str]) -> Needs:
    """Return the needs with the imported packages added, and which declared ones are not imported.

    A package that the skill itself declares may be unused; one that a user names is always wanted.
    """
    kind = needs.kind
    code = tuple(text for one, text in found.code if one == kind)
    scripts = tuple(one for one in found.scripts if kind_of(one) == kind)
    # Where no file is read that could import, the folder need not be walked.
    paths = _paths(place.home) if scripts or code else frozenset[str]()
    started = StartedCode(kind, scripts, code, tuple(dict.fromkeys(found.folders)))
    sources = Sources(paths, lambda path: _read_beneath(place.home, path))
    imported = propose(sources, started)
    if declared and (scripts or code):
        uses = {one: imports_of(name_of(one, kind), imported) for one in declared}
        needs = needs._replace(
            unused=tuple(one for one, by in uses.items() if not by),
            guarded=tuple(
                one for one, by in uses.items() if by and all(each.optional for each in by)
            ),
        )
    proposals = uncovered(imported, names_of(needs))
    named = _named_packages(needs, place, found)
    if not needs.requirements and not named and kind == "python" and _has_all_modules(proposals):
        return needs
    listed = _versions(place.home, paths, needs) if proposals and kind == "python" else {}
    guessed = dict.fromkeys(named)
    unknown = {one for one in named if not is_known(name_of(one, kind), kind)}
    have = {*names_of(needs), *(name_of(one, kind) for one in named)}
    for one in proposals:
        name = one.package.name
        text = listed.get(name, name) if kind == "python" else f"{name}@*"
        if name not in have:
            guessed[text] = None
            unknown |= set() if one.package.known else {text}
    room = MAX_REQUIREMENTS - len(needs.requirements)
    kept = tuple(guessed)[: max(room, 0)]
    return needs._replace(
        requirements=(*needs.requirements, *kept),
        guessed=kept,
        unknown=tuple(one for one in kept if one in unknown),
    )


def _named_packages(needs: Needs, place: StartedIn, found: _Found) -> tuple[str, ...]:
    """Return the packages that the command line itself names and nothing else does."""
    have = set(names_of(needs))
    texts: list[str] = []
    for kind, text in found.packages:
        if kind != needs.kind:
            continue
        try:
            texts += given_needs(kind, (text,), "the command").requirements
        except RunRefused:
            continue
    if needs.kind == "python":
        texts += versions_listed(place.home, found.lists).values()
    return tuple(dict.fromkeys(one for one in texts if name_of(one, needs.kind) not in have))


def _versions(home: str, paths: frozenset[str], needs: Needs) -> dict[str, str]:
    """Return the versions that lists elsewhere in the skill give, the nearest to its top first."""
    lists = [
        path
        for path in sorted(paths, key=lambda path: (path.count("/"), path))
        if posixpath.basename(path).startswith("requirements")
        and path.endswith(".txt")
        and path != needs.source_path
        and not is_for_development(path)
    ]
    return versions_listed(home, lists[:_MAX_LISTS])


def _paths(home: str) -> frozenset[str]:
    with SkillTree(home) as tree:
        return frozenset(one.path for one in tree.entries() if one.kind == "file")


# What the interpreter has


def _has_all_modules(proposals: Sequence[Proposal]) -> bool:
    """Whether the interpreter of runs has every module, so that nothing has to be installed."""
    python = interpreter()
    if python is None or not proposals:
        return False
    folders = _site_folders(python.path)
    return all(_is_there(one.module, folders) for one in proposals)


def _is_there(module: str, folders: tuple[str, ...]) -> bool:
    path = module.replace(".", "/")
    top = path.partition("/")[0]
    for folder in folders:
        plain = f"{folder}/{top}"
        if os.path.isfile(f"{plain}.py") or os.path.isfile(f"{plain}/__init__.py"):
            return True
        # A folder that several packages share contains only the installed ones.
        if os.path.isdir(f"{folder}/{path}") or os.path.isfile(f"{folder}/{path}.py"):
            return True
    return False


@lru_cache(maxsize=4)
def _site_folders(python: str) -> tuple[str, ...]:
    """Return the folders of the packages of an interpreter, by the usual layouts."""
    prefix = os.path.dirname(os.path.dirname(os.path.realpath(python)))
    version = os.path.basename(os.path.realpath(python)).removeprefix("python")
    if "." not in version:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
    names = (f"{prefix}/lib/python{version}/site-packages",
             f"{prefix}/lib/python{version}/dist-packages", f"{prefix}/lib/python3/dist-packages",
             f"{prefix}/local/lib/python{version}/dist-packages")  # fmt: skip
    return tuple(name for name in names if os.path.isdir(name))
