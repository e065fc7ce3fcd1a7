"""WAT: the text format of WASM, compiled by wasmtime."""

from __future__ import annotations

import importlib.util
import os

from skillbelt.errors import MissingExtra, RunRefused
from skillbelt.running.build.protocol import BuildCommand, Progress, Source
from skillbelt.sandbox.linux.identity import interpreter
from skillbelt.settings import Settings

_PROGRAM = """\
import sys
sys.path.insert(0, sys.argv[1])
from wasmtime import WasmtimeError, wat2wasm
with open(sys.argv[2], encoding="utf-8") as file:
    text = file.read()
try:
    made = wat2wasm(text)
except WasmtimeError as error:
    sys.exit(str(error))
with open(sys.argv[3], "wb") as file:
    file.write(made)
"""


class WatBuilder:
    """Builds a module or a component from its text."""

    name = "wat"
    endings: tuple[str, ...] = (".wat",)
    steady = True

    def prepare(self, source: Source, settings: Settings, progress: Progress) -> BuildCommand:
        """Return the build command; raises RunRefused when no Python works inside."""
        found = importlib.util.find_spec("wasmtime")
        if found is None or found.origin is None:
            raise MissingExtra("wasm", "building WAT")
        python = interpreter()
        if python is None:
            raise RunRefused("no Python can be run in the sandbox: install the system's python3")
        library = os.path.dirname(found.origin)
        argv = (python.path, "-I", "{work}/build.py", "{work}/library", "{skill}/" + source.entry,
                "{out}/skill.wasm")  # fmt: skip
        return BuildCommand(
            argv,
            ("skill.wasm",),
            python.folders,
            {"build.py": _PROGRAM.encode(), **_files(library)},
        )

    def finish(self, made: tuple[bytes, ...]) -> bytes:
        """Return the module unchanged."""
        return made[0]

    def recipe(self) -> bytes:
        """Return nothing: only the text matters."""
        return b""


def _files(library: str) -> dict[str, bytes]:
    """Read the library: its folder may be closed to the user of builds."""
    found: dict[str, bytes] = {}
    for folder, names, files in os.walk(library):
        names[:] = [name for name in names if name != "__pycache__"]
        for name in files:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[f"library/wasmtime/{os.path.relpath(path, library)}"] = file.read()
    return found
