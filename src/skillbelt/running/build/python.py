"""Python: componentize-py builds a component of the interpreter and the skill's modules."""

from __future__ import annotations

import base64
import os

from skillbelt.errors import RunRefused
from skillbelt.running.build.protocol import BuildCommand, Progress, Source
from skillbelt.running.build.toolset import python_tools
from skillbelt.sandbox.wasm.interpreters import GUESTS, PYTHON_SOURCES
from skillbelt.settings import Settings

_SOURCES = (*PYTHON_SOURCES, "python_program")
_CODE = "from componentize_py import script; script()"


class PythonBuilder:
    """Builds with CPython and the modules of the standard library that the source imports."""

    name = "python"
    endings: tuple[str, ...] = (".py",)
    steady = False  # each build has another hash seed

    def prepare(self, source: Source, settings: Settings, progress: Progress) -> BuildCommand:
        """Install the tools and return the build command; raises RunRefused with the remedy."""
        python, environment = python_tools(settings, progress)
        argv = (f"{environment}/bin/python", "-I", "-c", _CODE, "-q", "-d", "{0}/wit", "-w",
                "program", "componentize", "python_program", "-p", "{work}", "-o",
                "{out}/skill.wasm")  # fmt: skip
        files = {f"{name}.py": _guest(f"{name}.py") for name in _SOURCES}
        files["skill_sources.py"] = _embed(source)
        return BuildCommand(
            argv=argv,
            outputs=("skill.wasm",),
            folders=(GUESTS, environment, *python.folders),
            files=files,
            env={"VIRTUAL_ENV": "/nonexistent"},
        )

    def finish(self, made: tuple[bytes, ...]) -> bytes:
        """Return the component unchanged."""
        return made[0]

    def recipe(self) -> bytes:
        """Return the lock and our own sources."""
        return b"\0".join(_guest(name) for name in ("requirements.txt", *_guests()))


def _guests() -> list[str]:
    wit = [os.path.join("wit", "world.wit")]
    deps = sorted(os.listdir(os.path.join(GUESTS, "wit", "deps")))
    return [*(f"{name}.py" for name in _SOURCES), *wit, *(f"wit/deps/{name}" for name in deps)]


def _guest(name: str) -> bytes:
    with open(os.path.join(GUESTS, name), "rb") as file:
        return file.read()


def _embed(source: Source) -> bytes:
    """Return the entry and its modules as data: they are executed in a run, not in the build."""
    folder = os.path.dirname(source.entry)
    found: dict[str, tuple[str, bool, bytes]] = {}
    for path, data in sorted(source.files.items()):
        below = path[len(folder) + 1 :] if folder and path.startswith(f"{folder}/") else path
        if path.endswith(".py") and (not folder or path.startswith(f"{folder}/")):
            parts = below.removesuffix(".py").split("/")
            package = parts[-1] == "__init__"
            found[".".join(parts[:-1] if package else parts)] = (path, package, data)
    main = os.path.basename(source.entry).removesuffix(".py")
    if main not in found:
        raise RunRefused(f"{source.entry}: not a Python module")
    # Base64 keeps braces of a source from being taken for placeholders.
    return f"MAIN = {main!r}\nSOURCES = {_literal(found)}\n".encode()


def _literal(found: dict[str, tuple[str, bool, bytes]]) -> str:
    rows = {
        name: (path, package, base64.b64encode(data).decode())
        for name, (path, package, data) in found.items()
    }
    return repr(rows)
