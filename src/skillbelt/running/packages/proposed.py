"""Propose the packages that scripts import and nothing declares; the user is always asked.

Only the scripts that a command runs count, with the modules of the skill that they import in turn.
A module of the skill itself is never looked up in an index.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from skillbelt.permission.packages import Kind
from skillbelt.running.packages.known_packages import PackageName, is_standard, package_for
from skillbelt.running.packages.python_imports import ImportedModule, python_imports

NODE_ENDINGS = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".jsx", ".tsx")
_MAX_SOURCES = 300
_MAX_PROPOSED = 60
_EXTENSION_MODULE = (".so", ".pyd")
_NODE_SUFFIXES = ("", *NODE_ENDINGS, ".json", *(f"/index{one}" for one in NODE_ENDINGS))


class Proposal(NamedTuple):
    """One package that no file declares. `path` is the source that imports the `module`."""

    package: PackageName
    module: str
    path: str
    optional: bool = False


class Sources(NamedTuple):
    """The files of a skill: their paths, and a function that reads one or returns None."""

    paths: frozenset[str]
    read: Callable[[str], bytes | None]


class StartedCode(NamedTuple):
    """The code that a command runs: scripts of the skill by their paths, and code in the command.

    `folders` are those of the skill where modules are found, beside that of the script.
    """

    kind: Kind
    scripts: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


def propose(sources: Sources, started: StartedCode) -> tuple[Proposal, ...]:
    """Return the packages that the started code imports, each once, in the order of the imports."""
    find = _python_imports if started.kind == "python" else _node_imports
    found: dict[str, Proposal] = {}
    for one in find(sources, started):
        before = found.get(one.package.name)
        if before is None or (before.optional and not one.optional):
            found[one.package.name] = one
        if len(found) >= _MAX_PROPOSED:
            break
    return tuple(found.values())


# Python


class _Source(NamedTuple):
    """A Python source: a script that is run, or a module that one imports."""

    path: str
    text: bytes | str
    is_main: bool = True


def _python_imports(sources: Sources, started: StartedCode) -> Iterator[Proposal]:
    waiting = [_Source("", code) for code in started.code]
    waiting += _open_sources(sources, started.scripts, is_main=True)
    places = _Places(sources.paths, (*started.folders, *map(posixpath.dirname, started.scripts)))
    seen = set(started.scripts)
    for source in waiting:  # grows on the way
        read = python_imports(source.text, is_main=source.is_main)
        places.anywhere = places.anywhere or read.changes_path
        missing: set[str] = set()
        for one in read.modules:
            own = places.files_of(one.module, source.path)
            if own:
                parts = (places.files_of(f"{one.module}.{name}", source.path) for name in one.names)
                own = [*own, *(path for files in parts for path in files)]
            new = [path for path in own if path not in seen]
            seen.update(new)
            if len(seen) < _MAX_SOURCES:
                waiting += _open_sources(sources, new, is_main=False)
            if not own and not one.module.startswith("."):
                yield from _propose(one, source.path, missing)


def _open_sources(sources: Sources, paths: Iterable[str], *, is_main: bool) -> list[_Source]:
    found = ((path, sources.read(path)) for path in paths if path.endswith(".py"))
    return [_Source(path, text, is_main=is_main) for path, text in found if text is not None]


def _propose(one: ImportedModule, path: str, missing: set[str]) -> Iterator[Proposal]:
    """Yield the package of an import, unless it is only a fallback for one that will be there."""
    if one.instead_of and not missing.issuperset(one.instead_of):
        return
    package = package_for(one.module)
    if package is None:
        if not is_standard(one.module):
            missing.add(one.module)
        return
    if one.optional and package.is_heavy:
        return
    yield Proposal(package, one.module, path, one.optional)


class _Places:
    """The places where a script finds modules of its skill.

    Those beside it are always found. Elsewhere one is found if the script changes its path; and if
    no known package has that name, it is the skill's too: a module of the skill is never looked up
    in an index by its name.
    """

    def __init__(self, paths: frozenset[str], folders: Iterable[str]) -> None:
        self._paths = paths
        self._folders = frozenset(folders)
        self.anywhere = False  # whether a source changes its path
        self._tops: dict[str, list[str]] = {}
        for path in sorted(paths, key=lambda path: (path.count("/"), path)):
            for name, top in _importable(path):
                places = self._tops.setdefault(name, [])
                if top not in places:
                    places.append(top)

    def files_of(self, module: str, path: str) -> list[str]:
        """Return the sources of the skill that an import reads; none for a module of a package."""
        if module.startswith("."):
            return self._relative(module, path)
        if is_standard(module):
            return []
        top = module.partition(".")[0]
        found = [folder for folder in self._tops.get(top, ()) if self._reaches(folder, top)]
        return [file for folder in found[:1] for file in self._files(folder, module)]

    def _reaches(self, folder: str, top: str) -> bool:
        known = package_for(top)
        if known is None or not known.known:
            return True
        # A folder without __init__.py gives way to a package of its name, as in Python itself.
        at = posixpath.join(folder, top)
        real = not self._paths.isdisjoint((f"{at}.py", f"{at}/__init__.py"))
        return real and (self.anywhere or folder in self._folders)

    def _relative(self, module: str, path: str) -> list[str]:
        name = module.lstrip(".")
        folder = posixpath.dirname(path)
        for _ in range(len(module) - len(name) - 1):
            folder = posixpath.dirname(folder)
        return list(self._files(folder, name)) or [path]

    def _files(self, folder: str, module: str) -> Iterator[str]:
        """Yield the files of a dotted module below a folder, and those of its parent packages."""
        at, found = folder, False
        for name in module.split(".") if module else ():
            at = posixpath.join(at, name)
            for path in (f"{at}/__init__.py", f"{at}.py"):
                if path in self._paths:
                    found = True
                    yield path
        if not module:
            yield from (one for one in (posixpath.join(at, "__init__.py"),) if one in self._paths)
        elif not found:  # a folder without __init__.py, or a compiled module
            yield f"{at}/"


def _importable(path: str) -> Iterator[tuple[str, str]]:
    """Yield the names under which a file can be imported, each with the folder to import from."""
    folder, name = posixpath.split(path)
    stem, dot, ending = name.partition(".")
    is_module = dot + ending == ".py" and stem != "__init__"
    if is_module or name.endswith(_EXTENSION_MODULE):
        yield stem, folder
    if name.endswith(".py"):
        while folder:
            folder, package = posixpath.split(folder)
            yield package, folder


# JavaScript and TypeScript


def _node_imports(sources: Sources, started: StartedCode) -> Iterator[Proposal]:
    waiting = [("", code.encode("utf-8", "replace")) for code in started.code]
    seen = set(started.scripts)
    found = ((path, sources.read(path)) for path in started.scripts)
    waiting += [(path, text) for path, text in found if text is not None]
    if not waiting:
        return
    # cost: 6 ms for its patterns, only where JavaScript is started
    from skillbelt.running.packages.javascript_imports import javascript_imports

    for path, text in waiting:
        for name in javascript_imports(text):
            if name.startswith("."):
                own = _node_file(sources.paths, posixpath.dirname(path), name)
                if own and own not in seen and len(seen) < _MAX_SOURCES:
                    seen.add(own)
                    more = None if own.endswith(".json") else sources.read(own)
                    waiting += [] if more is None else [(own, more)]
                continue
            package = package_for(name, "node")
            if package is not None:
                yield Proposal(package, name, path)


def _node_file(paths: frozenset[str], folder: str, name: str) -> str:
    at = posixpath.normpath(posixpath.join(folder, name))
    stem = at.removesuffix(".js")  # TypeScript names the compiled file
    ends = (at + one for one in _NODE_SUFFIXES)
    return next((one for one in (*ends, f"{stem}.ts", f"{stem}.tsx") if one in paths), "")


def kind_of(path: str) -> Kind | None:
    """Return the kind of packages that a script needs; None for one that needs none itself."""
    if path.endswith(".py"):
        return "python"
    return "node" if path.endswith(NODE_ENDINGS) else None


def uncovered(proposals: Sequence[Proposal], declared: Sequence[str]) -> tuple[Proposal, ...]:
    """Return the proposals that no declared package provides.

    A package that the table does not know is not proposed beside a declared one whose name contains
    the module's name: `acme-sdk` may well provide `acme`.
    """
    return tuple(one for one in proposals if not any(_may_provide(name, one) for name in declared))


def imports_of(declared: str, proposals: Sequence[Proposal]) -> tuple[Proposal, ...]:
    """Return the imports that a declared package provides, or may provide."""
    return tuple(one for one in proposals if _may_provide(declared, one))


def _may_provide(declared: str, one: Proposal) -> bool:
    if declared in (one.package.name, *one.package.others):
        return True
    return not one.package.known and one.package.name in declared
