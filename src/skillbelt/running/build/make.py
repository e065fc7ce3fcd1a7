"""Build a skill's source into `wasm/skill.wasm`, or check whether that file is up to date."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from skillbelt.disclosure.body import read_file
from skillbelt.errors import FileUnreadable, LoadError, RunRefused
from skillbelt.files.contain import create_beneath, make_folders, open_dir
from skillbelt.format.skill import Skill
from skillbelt.permission.gate import Gate
from skillbelt.permission.rules import Request
from skillbelt.running.build import binary
from skillbelt.running.build.build_sandbox import run_build
from skillbelt.running.build.protocol import Builder, Progress, Source
from skillbelt.running.build.registry import builder_for, named_builder
from skillbelt.running.build.sources import OUTPUT, declared, source_of
from skillbelt.running.build.toolset import tool_folder
from skillbelt.running.packages.declared import describe, needs_of
from skillbelt.running.provide_packages import packages_for
from skillbelt.sandbox.wasm.modules import MAX_WASM_BYTES
from skillbelt.settings import Settings

_FORMAT = "1"  # increase it when components are built differently
_RECORD = "skillbelt-build"  # the custom section with the hash of a component's inputs


class Built(NamedTuple):
    """The result. `current`: whether the file is up to date with the source."""

    output: str
    sha256: str
    plugin: str
    seconds: float
    current: bool

    def document(self) -> dict[str, object]:
        """Return the result for JSON."""
        return {**self._asdict(), "seconds": round(self.seconds, 3)}


def build(
    skill: Skill,
    settings: Settings,
    *,
    plugin: str = "",
    gate: Gate | None = None,
    progress: Progress | None = None,
) -> Built:
    """Build the skill and replace the component atomically.

    The `gate` is asked for the packages that the skill declares; without one, none are installed.
    Raises RunRefused with the output of the tools when it cannot be built, and SandboxUnavailable
    when there is no sandbox to build in.
    """
    started = time.monotonic()
    builder, source = _choose_builder(skill, plugin)
    with _with_packages(skill, source, settings, gate, progress) as source:
        data = _build(builder, source, settings, progress or _silent)
    _install(skill, data)
    return _result(skill, data, builder, started, True)


def check(
    skill: Skill,
    settings: Settings,
    *,
    plugin: str = "",
    gate: Gate | None = None,
    progress: Progress | None = None,
) -> Built:
    """Check whether `wasm/skill.wasm` is up to date, without changing it.

    It is built again and compared. A builder whose builds are not reproducible leaves a record of
    its inputs in the component, which is compared instead.
    """
    started = time.monotonic()
    builder, source = _choose_builder(skill, plugin)
    try:
        there = read_file(skill, OUTPUT, MAX_WASM_BYTES)
    except LoadError:
        return _result(skill, b"", builder, started, False)
    if builder.steady:
        with _with_packages(skill, source, settings, gate, progress) as source:
            current = _build(builder, source, settings, progress or _silent) == there
    else:
        current = _read_record(there) == _record(builder, source)
    return _result(skill, there, builder, started, current)


def _silent(_: str) -> None:
    pass


def _choose_builder(skill: Skill, plugin: str) -> tuple[Builder, Source]:
    if skill.origin.remote or skill.source or not os.path.isdir(skill.dir):
        raise RunRefused(
            f"skill {skill.name!r} is not a local folder of yours; build it in its own repository"
        )
    source = source_of(skill)
    name = plugin or declared(skill).plugin
    return named_builder(name) if name else builder_for(source.entry), source


@contextmanager
def _with_packages(
    skill: Skill,
    source: Source,
    settings: Settings,
    gate: Gate | None,
    progress: Progress | None,
) -> Iterator[Source]:
    """Yield the source with the packages for Node.js that the skill declares, held meanwhile."""
    needs = needs_of(skill.dir, source.entry)
    if needs is None or needs.kind != "node" or not needs.requirements:
        yield source
        return
    if gate is None:
        needed = f"skill {skill.name!r} needs {describe(needs)}"
        raise RunRefused(f"{needed}, and no gate was given to ask for them")
    request = Request(
        type="install", patterns=(), initiator="user", skill=skill.name,
        hash=skill.files.digest(), origin=skill.dir, trusted=skill.trusted,
    )  # fmt: skip
    cache = tool_folder(settings, "packages")
    with packages_for(gate, request, needs, settings, cache_dir=cache, progress=progress) as found:
        yield source._replace(packages=found.path)


def _build(builder: Builder, source: Source, settings: Settings, progress: Progress) -> bytes:
    command = builder.prepare(source, settings, progress)
    progress(f"building {source.entry} with {builder.name}")
    outputs = run_build(command, source, settings)
    try:
        data = builder.finish(outputs)
        binary.check(data)
    except (binary.BinaryFault, RecursionError) as error:
        raise RunRefused(
            f"{source.entry}: the build did not produce valid WASM: {error}"
        ) from error
    return data if builder.steady else binary.with_custom(data, _RECORD, _record(builder, source))


def _record(builder: Builder, source: Source) -> bytes:
    """Return the record of the inputs: the files of the source, and the recipe."""
    digest = hashlib.sha256(f"{_FORMAT}\0{builder.name}\0{source.entry}\0".encode())
    digest.update(hashlib.sha256(builder.recipe()).digest())
    for path, data in sorted(source.files.items()):
        digest.update(f"{path}\0".encode() + hashlib.sha256(data).digest())
    return json.dumps({"inputs": digest.hexdigest(), "plugin": builder.name}).encode()


def _read_record(data: bytes) -> bytes:
    """Return the record in a component, if the component is unchanged since the build."""
    try:
        return binary.custom(data, _RECORD)
    except binary.BinaryFault:
        return b""


def _install(skill: Skill, data: bytes) -> None:
    """Write a temporary file and rename it into place."""
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


def _result(skill: Skill, data: bytes, builder: Builder, started: float, current: bool) -> Built:
    digest = hashlib.sha256(data).hexdigest() if data else ""
    path = os.path.join(skill.dir, OUTPUT)
    return Built(
        output=path,
        sha256=digest,
        plugin=builder.name,
        seconds=time.monotonic() - started,
        current=current,
    )
