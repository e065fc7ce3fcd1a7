"""Figures that show how easy the code is to enter; `scripts/measure_code.py` prints them."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "skillbelt"
MAX_POSITIONAL = 4
# Each is for an extra, or for a cost that most commands and runs do without; design/layout.md lists
# them. `import_module` with a fixed name counts too.
MAX_INNER_IMPORTS = 78
MAX_FUNCTION_LINES = 60
# Values that decide about permission, or that have many fields of one type.
BY_KEYWORD = {"AuditEvent", "Job", "RunResult", "Skill"}
# One class for each framework, under the name that its users import.
SHARED_NAMES = {"SkillTool", "SkillToolset"}
# A guest exports `wasi:cli/run` by a class that must have this name.
GUESTS, EXPORTED = Path("sandbox/wasm/guests"), {"Run"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def trees() -> dict[Path, ast.Module]:
    """Every module of the product, parsed; every worker imports this file, and one needs them."""
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


@cache
def nodes() -> list[tuple[Path, ast.AST]]:
    return [(path, node) for path, tree in trees().items() for node in ast.walk(tree)]


@cache
def classes() -> set[str]:
    return {node.name for _, node in nodes() if isinstance(node, ast.ClassDef)}


def where(path: Path, node: ast.stmt | ast.expr) -> str:
    return f"{path.relative_to(SOURCE)}:{node.lineno}"


def name_of(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""


def test_our_classes_are_built_by_keyword() -> None:
    found = [
        f"{where(path, node)}: {name_of(node)} with {len(node.args)} positional arguments"
        for path, node in nodes()
        if isinstance(node, ast.Call)
        and name_of(node) in classes()
        and len(node.args) > (0 if name_of(node) in BY_KEYWORD else MAX_POSITIONAL)
    ]
    assert not found


def test_a_class_name_has_one_meaning() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for path, node in nodes():
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            guest = path.relative_to(SOURCE).is_relative_to(GUESTS)
            found[node.name] += [where(path, node)] * (not guest or node.name not in EXPORTED)
    assert not {
        name: places
        for name, places in found.items()
        if len(places) > 1 and name not in SHARED_NAMES
    }


@cache
def inner_imports() -> list[tuple[Path, ast.stmt | ast.Call]]:
    return [
        (path, node)
        for path, tree in trees().items()
        for node in {
            node
            for function in ast.walk(tree)
            if isinstance(function, _FUNCTIONS)
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
            or (isinstance(node, ast.Call) and names_a_module(node))
        }
    ]


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
        for path, node in nodes()
        if isinstance(node, _FUNCTIONS)
        and (node.end_lineno or node.lineno) - node.lineno >= MAX_FUNCTION_LINES
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
