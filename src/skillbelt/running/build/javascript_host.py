"""The JavaScript host component: built here when its sources change, shipped in the package."""

from __future__ import annotations

import hashlib
import os
import sys

from skillbelt.running.build.build_sandbox import run_build
from skillbelt.running.build.javascript import command, finish_component
from skillbelt.running.build.protocol import Progress, Source
from skillbelt.running.build.toolset import node_tools
from skillbelt.sandbox.wasm.interpreters import JAVASCRIPT_HOST
from skillbelt.settings import Settings, load_settings


def javascript_host(settings: Settings, progress: Progress) -> bytes:
    """Build the component from this package's sources."""
    made = run_build(command(node_tools(settings, progress), "host.js"), Source("", {}), settings)
    return finish_component(*made)


def main() -> None:
    """Build it and put it into the package: `python -m skillbelt.running.build.javascript_host`."""
    data = javascript_host(load_settings(), lambda text: print(text, file=sys.stderr))
    for path, content in (
        (JAVASCRIPT_HOST, data),
        (f"{JAVASCRIPT_HOST}.sha256", f"{hashlib.sha256(data).hexdigest()}\n".encode()),
    ):
        with open(f"{path}.new", "wb") as file:
            file.write(content)
        os.replace(f"{path}.new", path)


if __name__ == "__main__":
    main()
