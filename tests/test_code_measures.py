"""Figures that show how easy the code is to enter; `scripts/measure_code.py` prints them."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from tests.source_code import SOURCE, calls, modules, statements

MAX_POSITIONAL = 4
# Each is for an extra, or for a cost that most commands and runs do without; design/layout.md lists
# them. `import_module` with a fixed name counts too.
MAX_INNER_IMPORTS = 60
MAX_FUNCTION_LINES = 60
# Values that decide about permission, or that have many fields of one type.
BY_KEYWORD = {"AuditEvent", "Job", "RunResult", "Skill"}
# One class for each framework, under the name that its users import.
SHARED_NAMES = {"SkillTool", "SkillToolset"}
# A guest exports `wasi:cli/run` by a class that must have this name.
GUESTS, EXPORTED = Path("sandbox/wasm/guests"), {"Run"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def classes() -> list[tuple[Path, ast.ClassDef]]:
    return [
        (path, node)
        for path, tree in modules().items()
        for node in statements(tree)
        if isinstance(node, ast.ClassDef)
    ]


@cache
def functions() -> list[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    return [
        (path, node)
        for path, tree in modules().items()
        for node in statements(tree)
        if isinstance(node, _FUNCTIONS)
    ]


def where(path: Path, node: ast.stmt | ast.expr) -> str:
    return f"{path.relative_to(SOURCE)}:{node.lineno}"


def name_of(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""


def test_our_classes_are_built_by_keyword() -> None:
    names = {node.name for _, node in classes()}
    found = [
        f"{where(path, node)}: {name_of(node)} with {len(node.args)} positional arguments"
        for path, node in calls()
        if name_of(node) in names
        and len(node.args) > (0 if name_of(node) in BY_KEYWORD else MAX_POSITIONAL)
    ]
    assert not found


def test_a_class_name_has_one_meaning() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path, node in classes():
        if not node.name.startswith("_"):
            guest = path.relative_to(SOURCE).is_relative_to(GUESTS)
            found[node.name] += [where(path, node)] * (not guest or node.name not in EXPORTED)
    assert not {
        name: places
        for name, places in found.items()
        if len(places) > 1 and name not in SHARED_NAMES
    }


@cache
def inner_imports() -> list[tuple[Path, ast.stmt | ast.Call]]:
    lines = {(path, line) for path, one in functions() for line in _lines_of(one)}
    imports = [
        (path, one)
        for path, tree in modules().items()
        for one in statements(tree)
        if isinstance(one, ast.Import | ast.ImportFrom)
    ]
    named = [(path, call) for path, call in calls() if names_a_module(call)]
    return [(path, one) for path, one in (*imports, *named) if (path, one.lineno) in lines]


def _lines_of(function: ast.stmt) -> range:
    return range(function.lineno + 1, (function.end_lineno or function.lineno) + 1)


def names_a_module(call: ast.Call) -> bool:
    """Whether it imports a module by a name that stands there; a table's entries do not."""
    return name_of(call) == "import_module" and isinstance(call.args[0], ast.Constant)


def test_few_imports_are_inside_functions() -> None:
    found = sorted(where(path, node) for path, node in inner_imports())
    assert len(found) <= MAX_INNER_IMPORTS, found


def test_an_import_inside_a_function_names_its_reason() -> None:
    """A comment on the line: the extra it belongs to, or what it costs."""
    unexplained = []
    for path, node in inner_imports():
        lines = path.read_text("utf-8").split("\n")[node.lineno - 2 : node.end_lineno]
        if not any("# extra:" in line or "# cost:" in line for line in lines):
            unexplained.append(where(path, node))
    assert not unexplained


def test_functions_are_short() -> None:
    found = [
        f"{where(path, node)}: {node.name}"
        for path, node in functions()
        if (node.end_lineno or node.lineno) - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert not found


def test_a_property_says_how_many_examples_it_deserves() -> None:
    """With a number of its own it would be tried as often in `make test` as in `make test-all`."""
    tests = Path(__file__).parent
    fixed = [
        str(path.relative_to(tests))
        for path in sorted(tests.rglob("*.py"))
        if re.search(r"max_examples=\d", path.read_text("utf-8"))
    ]
    assert fixed == []
