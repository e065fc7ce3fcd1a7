"""Writes `skillbelt/__init__.pyi`, the public names for type checkers, from the table of names."""

from __future__ import annotations

import sys
from pathlib import Path

import skillbelt

STUB = Path(skillbelt.__file__).with_suffix(".pyi")


def stub() -> str:
    """Return the text of the stub: each name imported from the module that defines it."""
    lines = ["# Made by scripts/public_stub.py; do not edit.", "# ruff: noqa: I001"]
    for home, names in sorted(skillbelt._HOMES.items()):
        lines += [
            f"from skillbelt.{home} import {name} as {name}" for name in sorted(names.split())
        ]
    return "\n".join(
        [*lines, "", "__version__: str", "__all__: list[str]", "_HOMES: dict[str, str]", ""]
    )


def main() -> int:
    """Return 0 when the stub is current (or is now), 1 when it is not."""
    if "--write" in sys.argv[1:]:
        STUB.write_text(stub(), "utf-8")
    return int(STUB.read_text("utf-8") != stub())


if __name__ == "__main__":
    sys.exit(main())
