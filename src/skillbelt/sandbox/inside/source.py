"""The source of a program that another Python runs above a command."""

import os
import re
from functools import lru_cache
from typing import Literal

_HERE = os.path.dirname(os.path.abspath(__file__))
_FUTURE = "from __future__ import annotations\n"
_IMPORT = re.compile(
    r"^from skillbelt\.sandbox\.inside\.command import (\([^)]*\)|[^(\n]*)\n", re.MULTILINE
)


@lru_cache(maxsize=4)
def source_of(program: Literal["launch", "portable_launch", "bridge", "container"]) -> str:
    """Return the program with `command` in front of it, instead of importing it.

    It may run where this package cannot be read, so it is passed as text.
    """
    shared, own = _read("command"), _read(program)
    return shared + _IMPORT.sub("", own.replace(_FUTURE, "", 1), count=1)


def _read(name: str) -> str:
    with open(os.path.join(_HERE, f"{name}.py"), encoding="utf-8") as file:
        return file.read()
