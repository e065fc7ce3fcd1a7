"""The modules that a Python source imports, without running any of it.

The source is hostile: it is parsed, never compiled, in bounded time. One that cannot be parsed
(for another version of Python, or broken on purpose) is read line by line instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from skillbelt.format.python_source import MAX_SOURCE_BYTES, parse_python

MAX_IMPORTS = 500
_CAUGHT = frozenset(("ImportError", "ModuleNotFoundError", "Exception", "BaseException"))
_MAX_LINE = 1_000
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_PATH_CHANGES = re.compile(r"\bsys\s*\.\s*path\b|\bPYTHONPATH\b|\bsite\s*\.\s*addsitedir\b")


class ImportedModule(NamedTuple):
    """One import: the module with its dots, including leading ones for relative imports.

    `optional` says that the source catches its failure and continues. `instead_of` are the modules
    that it replaces where none of them can be imported. `names` are what it imports from the
    module, which may be modules themselves.
    """

    module: str
    optional: bool = False
    instead_of: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class PythonImports(NamedTuple):
    """The imports of one source in their order, and whether it changes the module search path."""

    modules: tuple[ImportedModule, ...]
    changes_path: bool = False


def python_imports(data: bytes | str, *, is_main: bool = True) -> PythonImports:
    """Return the imports of a source; without `is_main` those that importing it needs.

    Imports only for type checkers are left out.
    """
    text = _decode(data)
    changes = bool(_PATH_CHANGES.search(text))
    try:
        tree = parse_python(text)
        found = list(_Reader(is_main).read(tree.body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        found = list(_by_line(text))
    kept: dict[str, ImportedModule] = {}
    for one in found:
        before = kept.get(one.module)
        kept[one.module] = one if before is None else _merge(before, one)
        if len(kept) >= MAX_IMPORTS:
            break
    return PythonImports(tuple(kept.values()), changes)


def _merge(before: ImportedModule, one: ImportedModule) -> ImportedModule:
    """Merge two imports.

    One that is required in one place is required, even if another guards it.
    """
    needed = before.instead_of and one.instead_of
    return before._replace(
        optional=before.optional and one.optional,
        instead_of=before.instead_of if needed else (),
        names=tuple(dict.fromkeys((*before.names, *one.names)))[:MAX_IMPORTS],
    )


def _decode(data: bytes | str) -> str:
    if isinstance(data, bytes):
        data = data[:MAX_SOURCE_BYTES].decode("utf-8-sig", "replace")
    return data[:MAX_SOURCE_BYTES].replace("\r\n", "\n")


def _by_line(text: str) -> Iterator[ImportedModule]:
    """Yield the imports of single lines. Words are split, not matched: no line takes long."""
    for line in text.split("\n"):
        words = line[:_MAX_LINE].partition("#")[0].partition(";")[0].split(None, 1)
        if len(words) < 2 or words[0] not in ("import", "from"):
            continue
        names = words[1].split(",")
        if words[0] == "from":
            rest = words[1].split()
            names = rest[:1] if rest[1:2] == ["import"] else []
        modules = [name.split(" as ")[0].strip() for name in names]
        # A line with anything else is not one of these imports.
        if all(map(_NAME.fullmatch, modules)):
            yield from map(ImportedModule, modules)


class _Reader:
    """Walks statements with its own stack: nesting cannot exhaust that of the interpreter."""

    def __init__(self, is_main: bool) -> None:
        self._is_main = is_main

    def read(self, body: Sequence[ast.stmt]) -> Iterator[ImportedModule]:
        """Yield the imports below the statements in their order."""
        waiting: list[tuple[ast.AST, bool, tuple[str, ...]]] = [
            (node, False, ()) for node in reversed(body)
        ]
        while waiting:
            node, optional, instead_of = waiting.pop()
            names = _names(node)
            for module in _modules(node):
                yield ImportedModule(module, optional, instead_of, names)
            below = list(self._below(node, optional, instead_of))
            waiting.extend(reversed(below))

    def _below(
        self, node: ast.AST, optional: bool, instead_of: tuple[str, ...]
    ) -> Iterator[tuple[ast.AST, bool, tuple[str, ...]]]:
        if isinstance(node, ast.If):
            yes, no = self._branches(node)
            yield from ((one, optional, instead_of) for one in (*yes, *no))
            return
        if not isinstance(node, ast.Try) or not any(map(_catches, node.handlers)):
            yield from ((one, optional, instead_of) for one in ast.iter_child_nodes(node))
            return
        soft = all(not _ends(one.body) for one in node.handlers if _catches(one))
        tried = tuple(module for one in node.body for module in _modules(one))
        for one in node.body:
            yield one, optional or soft, instead_of
        for handler in node.handlers:
            other = (*instead_of, *tried) if _catches(handler) else instead_of
            yield from ((one, optional, other) for one in handler.body)
        yield from ((one, optional, instead_of) for one in (*node.orelse, *node.finalbody))

    def _branches(self, node: ast.If) -> tuple[Sequence[ast.AST], Sequence[ast.AST]]:
        """Return the branches of an `if` that may run."""
        test = node.test
        name = test.attr if isinstance(test, ast.Attribute) else getattr(test, "id", "")
        if name == "TYPE_CHECKING":
            return (), node.orelse
        if not self._is_main and _is_main_test(node.test):
            return (), node.orelse
        return (node.test, *node.body), node.orelse


def _modules(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (one.name for one in node.names)
    elif isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        # `from google import genai` imports a module of a shared name; so does `from . import x`.
        if not node.module or module in ("google", "google.cloud"):
            dot = "" if module.endswith(".") else "."
            yield from (f"{module}{dot}{one.name}" for one in node.names if one.name != "*")
        else:
            yield module
    elif isinstance(node, ast.Call) and node.args:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        called = node.func.id if isinstance(node.func, ast.Name) else called
        first = node.args[0]
        if called in ("import_module", "__import__") and isinstance(first, ast.Constant):
            name = first.value
            if isinstance(name, str) and _NAME.fullmatch(name):
                yield name


def _names(node: ast.AST) -> tuple[str, ...]:
    if not isinstance(node, ast.ImportFrom):
        return ()
    return tuple(one.name for one in node.names if one.name != "*")[:MAX_IMPORTS]


def _catches(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches a failed import."""
    kind = handler.type
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(one is None or (isinstance(one, ast.Name) and one.id in _CAUGHT) for one in kinds)


def _ends(body: Sequence[ast.stmt]) -> bool:
    """Whether a handler ends the program: then the guarded module is required."""
    last = body[-1]
    if isinstance(last, ast.Raise):
        return True
    called = last.value if isinstance(last, ast.Expr) else None
    if not isinstance(called, ast.Call):
        return False
    name = called.func
    word = name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")
    return word in ("exit", "_exit", "quit", "abort", "fail", "die")


def _is_main_test(test: ast.expr) -> bool:
    if not isinstance(test, ast.Compare) or len(test.comparators) != 1:
        return False
    sides = (test.left, test.comparators[0])
    named = any(isinstance(one, ast.Name) and one.id == "__name__" for one in sides)
    return named and any(isinstance(one, ast.Constant) and one.value == "__main__" for one in sides)
