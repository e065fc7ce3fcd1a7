"""Skills to build, and what they do once they are built."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from skillbelt import Skill
from skillbelt.running.build.make import Built, build
from skillbelt.running.build.protocol import BuildCommand, Builder, Progress, Source
from skillbelt.sandbox.protocol import Outcome, run
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.settings import Settings
from skillbelt.testing.sandbox_suite import Place
from tests.sandbox.guests import hosts

WAT = '(module (memory (export "memory") 1) (func (export "_start")))'


def skill(folder: Path, files: Mapping[str, str], head: str = "") -> Skill:
    """A skill with these files, and lines for its frontmatter."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    text = f"---\nname: {folder.name}\ndescription: It is built.\n{head}---\n"
    (folder / "SKILL.md").write_text(text)
    return Skill.from_folder(folder)


def built(folder: Path, files: Mapping[str, str], settings: Settings | None = None) -> Built:
    """A skill with these files, built."""
    return build(skill(folder, files), settings or hosts())


def started(
    sandbox: WasmSandbox, place: Place, made: Built, stdin: bytes = b"", *arguments: str
) -> Outcome:
    """The outcome of a built skill."""
    path = os.path.join(place.folder, "skill.wasm")
    with open(made.output, "rb") as source, open(path, "wb") as target:
        target.write(source.read())
    os.chmod(path, 0o644)
    return run(sandbox, place.job("./skill.wasm", *arguments, stdin=stdin))


class Scripted(Builder):
    """A builder whose command is a line for the shell."""

    name = "scripted"
    endings: tuple[str, ...] = (".txt",)
    steady = True

    def __init__(self, script: str) -> None:
        self.script = script

    def prepare(self, source: Source, settings: Settings, progress: Progress) -> BuildCommand:
        words = ("/bin/sh", "-c", self.script, "sh", "{out}", "{skill}", "{work}")
        return BuildCommand(words, ("made.wasm",), files={"given.json": b'{"at": "{skill}"}'})

    def finish(self, made: tuple[bytes, ...]) -> bytes:
        return made[0]

    def recipe(self) -> bytes:
        return self.script.encode()
