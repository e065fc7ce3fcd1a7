"""The product's own source code, parsed, for tests that look at it.

Most of such a test's time goes into visiting nodes, so that each visits no more than it needs.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "skillbelt"


@cache
def modules() -> dict[Path, ast.Module]:
    """Parse every module of the product."""
    gc.disable()  # the collector would take as long as the parser, and find nothing
    try:
        return {path: ast.parse(path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))}
    finally:
        gc.freeze()
        gc.enable()


def statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield every statement of a module, also those inside others; expressions are passed over."""
    blocks: list[list[ast.stmt]] = [tree.body]
    while blocks:
        for statement in blocks.pop():
            yield statement
            blocks += _blocks(statement)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        if block := getattr(statement, field, None):
            yield block
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


@cache
def calls() -> list[tuple[Path, ast.Call]]:
    """Find every call in the product."""
    return [
        (path, node)
        for path, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    ]
