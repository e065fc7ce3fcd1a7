"""A skill's source made into `wasm/skill.wasm`, and whether the one that is there is current."""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from typing import NamedTuple

from skillbelt.disclosure.body import read_file
from skillbelt.errors import FileUnreadable, LoadError, RunRefused
from skillbelt.files.contain import create_beneath, make_folders, open_dir
from skillbelt.format.skill import Skill
from skillbelt.running.build import binary
from skillbelt.running.build.protocol import Builder, Progress, Source
from skillbelt.running.build.registry import builder_for, named_builder
from skillbelt.running.build.sources import OUTPUT, declared, source_of
from skillbelt.running.build.workroom import carry_out
from skillbelt.sandbox.wasm.modules import MAX_WASM_BYTES
from skillbelt.settings import Settings

_FORMAT = "1"  # raised when something is built in another way
_RECORD = "skillbelt-build"  # the section that says of what a component was made


class Built(NamedTuple):
    """What came of it. `current` says whether the file holds what the source gives."""

    output: str
    sha256: str
    plugin: str
    seconds: float
    current: bool

    def document(self) -> dict[str, object]:
        """The result as JSON has it."""
        return {**self._asdict(), "seconds": round(self.seconds, 3)}


def build(
    skill: Skill, settings: Settings, *, plugin: str = "", progress: Progress | None = None
) -> Built:
    """Build the skill and put the component in its place, whole or not at all.

    RunRefused says what can not be built, with what the tools said; SandboxUnavailable that there
    is no sandbox to build in.
    """
    started = time.monotonic()
    builder, source = _chosen(skill, settings, plugin)
    data = _made(builder, source, settings, progress or _silent)
    _place(skill, data)
    return _built(skill, data, builder, started, True)


def check(
    skill: Skill, settings: Settings, *, plugin: str = "", progress: Progress | None = None
) -> Built:
    """Whether `wasm/skill.wasm` is what the source gives now; nothing is changed.

    It is built again and compared. A builder that never gives the same twice leaves a record of
    what it was given, and that is compared.
    """
    started = time.monotonic()
    builder, source = _chosen(skill, settings, plugin)
    try:
        there = read_file(skill, OUTPUT, MAX_WASM_BYTES)
    except LoadError:
        return _built(skill, b"", builder, started, False)
    if builder.steady:
        current = _made(builder, source, settings, progress or _silent) == there
    else:
        current = _recorded(there) == _record(builder, source)
    return _built(skill, there, builder, started, current)


def _silent(_: str) -> None:
    pass


def _chosen(skill: Skill, settings: Settings, plugin: str) -> tuple[Builder, Source]:
    if skill.origin.remote or skill.source or not os.path.isdir(skill.dir):
        raise RunRefused(
            f"skill {skill.name!r} is not a folder of yours; build it where it is made"
        )
    source = source_of(skill, settings)
    name = plugin or declared(skill).plugin
    return named_builder(name) if name else builder_for(source.entry), source


def _made(builder: Builder, source: Source, settings: Settings, progress: Progress) -> bytes:
    command = builder.prepare(source, settings, progress)
    progress(f"building {source.entry} with {builder.name}")
    outputs = carry_out(command, source, settings)
    try:
        data = builder.finish(outputs)
        binary.check(data)
    except (binary.BinaryFault, RecursionError) as error:
        raise RunRefused(f"{source.entry}: what was built is no WASM: {error}") from error
    return data if builder.steady else binary.with_custom(data, _RECORD, _record(builder, source))


def _record(builder: Builder, source: Source) -> bytes:
    """What it was made of: the files of the source, and how."""
    digest = hashlib.sha256(f"{_FORMAT}\0{builder.name}\0{source.entry}\0".encode())
    digest.update(hashlib.sha256(builder.recipe()).digest())
    for path, data in sorted(source.files.items()):
        digest.update(f"{path}\0".encode() + hashlib.sha256(data).digest())
    return json.dumps({"inputs": digest.hexdigest(), "plugin": builder.name}).encode()


def _recorded(data: bytes) -> bytes:
    """The record in a component, when the rest is what it was made with."""
    try:
        return binary.custom(data, _RECORD)
    except binary.BinaryFault:
        return b""


def _place(skill: Skill, data: bytes) -> None:
    """Written beside the old one, then in its place at once."""
    folder, _, name = OUTPUT.rpartition("/")
    new = not os.path.lexists(os.path.join(skill.dir, folder))
    temporary = f".{name}.{os.getpid()}"
    try:
        top = open_dir(skill.dir, skill.fence)
        try:
            inside = make_folders(top, folder)
        finally:
            os.close(top)
        try:
            if new:
                os.fchmod(inside, 0o755)
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=inside)
            with open(create_beneath(inside, temporary), "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), 0o644)
            os.rename(temporary, name, src_dir_fd=inside, dst_dir_fd=inside)
        finally:
            os.close(inside)
    except OSError as error:
        raise FileUnreadable(os.path.join(skill.dir, OUTPUT), str(error.strerror)) from error


def _built(skill: Skill, data: bytes, builder: Builder, started: float, current: bool) -> Built:
    digest = hashlib.sha256(data).hexdigest() if data else ""
    path = os.path.join(skill.dir, OUTPUT)
    return Built(
        output=path,
        sha256=digest,
        plugin=builder.name,
        seconds=time.monotonic() - started,
        current=current,
    )
