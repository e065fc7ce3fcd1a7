"""JavaScript and TypeScript: esbuild bundles, componentize-qjs builds a component."""

from __future__ import annotations

import json
import os
import re
from functools import lru_cache
from glob import glob

from skillbelt.errors import RunRefused
from skillbelt.running.build.binary import (
    BinaryFault,
    embedded_modules,
    exports,
    rename_import,
    steady,
    with_event_loop,
    without_call,
)
from skillbelt.running.build.protocol import BuildCommand, Progress, Source
from skillbelt.running.build.toolset import node_program, node_tools
from skillbelt.sandbox.wasm.interpreters import GUESTS
from skillbelt.settings import Settings

OUTPUTS = ("one.wasm", "other.wasm")
_RUN = "wasi:cli/run@0.2.0#run"
# The seed of the engine's hash tables is read during the build, and would differ each time.
_SEED = ("wasi:random/insecure-seed@0.2.9", "insecure-seed")
_FIXED = ("wasi:clocks/wall-clock@0.2.0", "resolution")
# The engine's own error output; a script has its own stream.
_ENGINE_STDERR = ("wasi:cli/stderr@0.2.0", "get-stderr")
# Paths of the machine that compiled the engine; replaced by a text of the same length.
_BUILD_PATHS = re.compile(rb"/home/[\w/.-]*?/registry/src/[\w.-]+/")


class JavaScriptBuilder:
    """Builds with QuickJS: small, and fast to start."""

    name = "javascript"
    endings: tuple[str, ...] = (".ts", ".mts", ".js", ".mjs")
    steady = True

    def prepare(self, source: Source, settings: Settings, progress: Progress) -> BuildCommand:
        """Install the tools and return the build command; raises RunRefused with the remedy."""
        return command(node_tools(settings, progress), "skill.js", source)

    def finish(self, made: tuple[bytes, ...]) -> bytes:
        """Return the component with an event loop, without traces of the clock."""
        return finish_component(*made)

    def recipe(self) -> bytes:
        """Return the lock and our own sources."""
        return _recipe()


def command(tools: str, entry: str, source: Source | None = None) -> BuildCommand:
    """Return the command that builds one of our entries, with or without a skill's source."""
    packages = (source.packages,) if source and source.packages else ()
    task = {
        "tools": "{1}",
        "packages": "{2}" if packages else "",
        "root": "{skill}" if source else "{0}/js",
        "entry": f"{{0}}/js/{entry}",
        "source": f"{{skill}}/{source.entry}" if source else "",
        "outputs": [f"{{out}}/{name}" for name in OUTPUTS],
        "world": "script",
        "wit": "{0}/wit",
        "runtime": "{work}/runtime.wasm",
    }
    node = node_program()
    return BuildCommand(
        (node, "{0}/js/build.mjs", "{work}/task.json"),
        OUTPUTS,
        (GUESTS, tools, *packages, *_node_folders(node)),
        {"runtime.wasm": _runtime(tools), "task.json": json.dumps(task).encode()},
    )


def _node_folders(node: str) -> tuple[str, ...]:
    """Return the folders to mount for a node outside the system folders."""
    return () if node.startswith("/usr/") else (os.path.dirname(os.path.dirname(node)),)


def finish_component(one: bytes, other: bytes) -> bytes:
    """Return the reproducible component of two builds."""
    return with_event_loop(steady(one, other), _RUN, "start", "turn", "[async-lift]pump")


@lru_cache(maxsize=2)
def _runtime(tools: str) -> bytes:
    """Return the engine of the package, with a fixed seed."""
    pattern = os.path.join(tools, "node_modules", "@andreiltd", "componentize-qjs-binding-*")
    for path in sorted(glob(os.path.join(pattern, "*.node"))):
        with open(path, "rb") as file:
            found = [one for one in embedded_modules(file.read()) if _is_engine(one)]
        if found:
            quiet = without_call(max(found, key=len), _ENGINE_STDERR)
            engine = rename_import(quiet, _SEED, _FIXED)
            return _BUILD_PATHS.sub(lambda place: b"/engine".ljust(len(place[0]), b"/"), engine)
    raise RunRefused("componentize-qjs does not contain the expected engine")


def _is_engine(module: bytes) -> bool:
    """Whether it is the engine, in the variant without asynchronous imports."""
    if b"wit_dylib_initialize" not in module or b"[waitable-set-new]" in module:
        return False
    try:
        return "wit_dylib_initialize" in exports(module)
    except BinaryFault:
        return False


@lru_cache(maxsize=1)
def _recipe() -> bytes:
    names = ["package-lock.json"]
    for folder, _, files in os.walk(os.path.join(GUESTS, "js")):
        names += (os.path.relpath(os.path.join(folder, name), GUESTS) for name in files)
    for folder, _, files in os.walk(os.path.join(GUESTS, "wit")):
        names += (os.path.relpath(os.path.join(folder, name), GUESTS) for name in files)
    parts = []
    for name in sorted(names):
        with open(os.path.join(GUESTS, name), "rb") as file:
            parts.append(name.encode() + b"\0" + file.read())
    return b"\0".join(parts)
