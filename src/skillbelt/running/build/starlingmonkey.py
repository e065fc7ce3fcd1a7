"""JavaScript and TypeScript on SpiderMonkey, a browser's engine, instead of QuickJS.

Larger and slower to build; about as fast, and deep recursion raises an error that can be caught.
"""

from __future__ import annotations

import json
import os
import re
from functools import lru_cache

from skillbelt.running.build.javascript import JavaScriptBuilder, command
from skillbelt.running.build.protocol import BuildCommand, Progress, Source
from skillbelt.running.build.toolset import node_tools
from skillbelt.sandbox.wasm.interpreters import GUESTS
from skillbelt.settings import Settings
from skillbelt.untrusted_json import read_json

TOOLS = os.path.join(GUESTS, "starling")
_OUTPUT = "skill.wasm"
_BUILD_PATHS = re.compile(rb"/home/[\w/.-]*?/registry/src/[\w.-]+/")


class StarlingMonkeyBuilder:
    """Builds with componentize-js, only when selected by name."""

    name = "starlingmonkey"
    endings: tuple[str, ...] = ()  # QuickJS builds JavaScript by default
    steady = False  # each build has another hash seed and time

    def prepare(self, source: Source, settings: Settings, progress: Progress) -> BuildCommand:
        """Install the tools and return the build command; raises RunRefused with the remedy."""
        usual = command(node_tools(settings, progress), "../starling/skill.js", source)
        engine = node_tools(settings, progress, TOOLS)
        task = {
            **read_json(usual.files["task.json"]),
            "adapter": "{0}/starling/adapter.mjs",
            "engine": f"{{{len(usual.folders)}}}",
            "outputs": [f"{{out}}/{_OUTPUT}"],
            "wit": "{work}/wit",
        }
        return usual._replace(
            outputs=(_OUTPUT,),
            folders=(*usual.folders, engine),
            files={"task.json": json.dumps(task).encode(), **_read_world()},
            env={"TMPDIR": "{out}"},
        )

    def finish(self, made: tuple[bytes, ...]) -> bytes:
        """Return the component without the build paths of its engine."""
        return _BUILD_PATHS.sub(lambda place: b"/engine".ljust(len(place[0]), b"/"), made[0])

    def recipe(self) -> bytes:
        """Return the locks and our own sources."""
        return b"\0".join((JavaScriptBuilder().recipe(), *_sources()))


def _read_world() -> dict[str, bytes]:
    """Read the WIT file of the world and of the packages it names."""
    deps = os.path.join(GUESTS, "wit", "deps")
    found = {f"wit/deps/{name}": _read(os.path.join(deps, name)) for name in os.listdir(deps)}
    return {"wit/world.wit": _read(os.path.join(TOOLS, "world.wit")), **found}


@lru_cache(maxsize=1)
def _sources() -> tuple[bytes, ...]:
    names = sorted(os.listdir(TOOLS))
    return tuple(name.encode() + b"\0" + _read(os.path.join(TOOLS, name)) for name in names)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
