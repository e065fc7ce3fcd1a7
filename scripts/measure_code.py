"""Prints what makes a code base easy or hard to enter: `python scripts/measure_code.py [TREE...]`.

Each TREE is a folder with Python files; this product's source by default. The figures are to
compare trees by, and are shown in design/layout.md.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[1] / "src" / "skillbelt"
MANY_ARGUMENTS = 6
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Figures(NamedTuple):
    """The figures of one tree."""

    modules: int
    lines: int
    private: int
    private_used_once: int
    ambiguous_classes: int
    positional_calls: int
    inner_imports: int
    late_imports: int

    @property
    def used_once(self) -> str:
        """The share of private functions that one place uses."""
        return f"{100 * self.private_used_once // max(1, self.private)} %"


def measure(tree: Path) -> Figures:
    """Count over every Python file below a folder."""
    texts = [path.read_text("utf-8", "replace") for path in sorted(tree.rglob("*.py"))]
    parsed = [ast.parse(text) for text in texts]
    once = [list(_uses_of_private(one)) for one in parsed]
    classes = Counter(
        node.name
        for one in parsed
        for node in ast.walk(one)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return Figures(
        modules=len(parsed),
        lines=sum(text.count("\n") for text in texts),
        private=sum(map(len, once)),
        private_used_once=sum(uses == 1 for counts in once for uses in counts),
        ambiguous_classes=sum(count > 1 for count in classes.values()),
        positional_calls=sum(_has_many_arguments(node) for one in parsed for node in ast.walk(one)),
        inner_imports=sum(_inner_imports(one) for one in parsed),
        late_imports=sum(_names_a_module(node, "Late") for one in parsed for node in ast.walk(one)),
    )


def _uses_of_private(module: ast.Module) -> Iterator[int]:
    """Yield for each private function or method how often its module mentions it."""
    mentioned = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(module)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    for node in ast.walk(module):
        if isinstance(node, _FUNCTIONS) and node.name[0] == "_" and not node.name.endswith("__"):
            yield mentioned[node.name]


def _has_many_arguments(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and len(node.args) >= MANY_ARGUMENTS


def _inner_imports(module: ast.Module) -> int:
    inner = {
        node
        for function in ast.walk(module)
        if isinstance(function, _FUNCTIONS)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom) or _names_a_module(node)
    }
    return len(inner)


def _names_a_module(node: ast.AST, function: str = "import_module") -> bool:
    """Whether it calls the function with the name of a module."""
    if not isinstance(node, ast.Call) or not node.args:
        return False
    name = getattr(node.func, "id", getattr(node.func, "attr", ""))
    return name == function and isinstance(node.args[0], ast.Constant)


def main() -> int:
    """Print a table with one column for each tree."""
    trees = [Path(name) for name in sys.argv[1:]] or [SOURCE]
    found = [measure(tree) for tree in trees]
    rows = {
        "modules / lines": [f"{one.modules} / {one.lines:,}" for one in found],
        "private functions used in one place only": [one.used_once for one in found],
        "class names with several meanings": [str(one.ambiguous_classes) for one in found],
        "calls with six or more positional arguments": [str(one.positional_calls) for one in found],
        "imports inside functions": [str(one.inner_imports) for one in found],
        "modules imported on first use (`Late`)": [str(one.late_imports) for one in found],
    }
    print(f"| | {' | '.join(tree.name for tree in trees)} |")
    print(f"|---|{'--:|' * len(trees)}")
    for name, values in rows.items():
        print(f"| {name} | {' | '.join(values)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
