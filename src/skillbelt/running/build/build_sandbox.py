"""Run builders in the native sandbox, without network and with a read-only source.

A source may name any files or plugins of tools: only the system's own programs are visible, and
only the output folder is writable.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping

from skillbelt.errors import RunRefused
from skillbelt.files.contain import READ_FILE, create_beneath, make_folders, open_folder
from skillbelt.running.build.protocol import BuildCommand, Source
from skillbelt.running.build.toolset import tool_folder
from skillbelt.sandbox.linux.identity import interpreter, run_identity
from skillbelt.sandbox.protocol import Job, Mount, Outcome, run
from skillbelt.sandbox.registry import AUTO, choose
from skillbelt.sandbox.wasm.interpreters import BUILD_TIMEOUT_SECONDS
from skillbelt.sandbox.wasm.modules import MAX_WASM_BYTES
from skillbelt.settings import Settings
from skillbelt.text import one_line, shorten
from skillbelt.values import Capabilities

_INSIDE = "/build"
_OUTPUT_CHARS = 2_000


def run_build(command: BuildCommand, source: Source, settings: Settings) -> tuple[bytes, ...]:
    """Run the command in the sandbox and return its outputs; raises RunRefused with its output."""
    base = tool_folder(settings, "builds")
    stage = tempfile.mkdtemp(prefix="build-", dir=base)
    try:
        os.chmod(stage, 0o755)
        _write(os.path.join(stage, "skill"), source.files)
        return _build(command, stage, settings)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _build(command: BuildCommand, stage: str, settings: Settings) -> tuple[bytes, ...]:
    sandbox = choose(AUTO)
    places = _map_placeholders(command, stage, sandbox.remaps)
    _write(os.path.join(stage, "work"), _fill_files(command.files, places))
    out = os.path.join(stage, "out")
    os.mkdir(out, 0o700)
    owner = run_identity()
    if owner is not None:
        os.chown(out, *owner)
    outcome = run(sandbox, _job(command, places, out, settings))
    _check(outcome, places)
    return tuple(_read(out, name, MAX_WASM_BYTES) for name in command.outputs)


def _write(folder: str, files: Mapping[str, bytes]) -> None:
    os.mkdir(folder, 0o755)
    top = open_folder(folder)
    try:
        for path, data in files.items():
            parent = os.path.dirname(path)
            if parent:
                os.close(make_folders(top, parent))
            with open(create_beneath(top, path), "wb") as file:
                file.write(data)
    finally:
        os.close(top)
    for here, _, names in os.walk(folder):
        os.chmod(here, 0o755)
        for name in names:
            os.chmod(os.path.join(here, name), 0o644)


def _map_placeholders(
    command: BuildCommand, stage: str, remaps: bool
) -> dict[str, tuple[str, str]]:
    """Return each placeholder with its folder outside and inside."""
    outside = {name: os.path.join(stage, name) for name in ("skill", "work", "out")}
    outside |= {str(number): path for number, path in enumerate(command.folders)}
    return {
        name: (path, f"{_INSIDE}/{name}" if remaps and not _keeps_path(path) else path)
        for name, path in outside.items()
    }


def _keeps_path(path: str) -> bool:
    """Whether a folder must keep its path: installed programs depend on it."""
    python = interpreter()
    shown = python.folders if python else ()
    return path in shown or os.path.isdir(os.path.join(path, "bin"))


def _fill(text: str, places: Mapping[str, tuple[str, str]]) -> str:
    for name, (_, inside) in places.items():
        text = text.replace(f"{{{name}}}", inside)
    return text


def _fill_files(
    files: Mapping[str, bytes], places: Mapping[str, tuple[str, str]]
) -> dict[str, bytes]:
    return {
        name: _fill(data.decode(), places).encode() if name.endswith(".json") else data
        for name, data in files.items()
    }


def _job(
    command: BuildCommand, places: Mapping[str, tuple[str, str]], out: str, settings: Settings
) -> Job:
    mounts = tuple(
        Mount(outside, inside, writable=name == "out") for name, (outside, inside) in places.items()
    )
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8",
           "TMPDIR": "/tmp", "SOURCE_DATE_EPOCH": "0", "TZ": "UTC"}  # fmt: skip
    env |= {name: _fill(value, places) for name, value in command.env.items()}
    limits = settings.limits._replace(max_stream_bytes=64 * 2**10)
    return Job(
        argv=tuple(_fill(word, places) for word in command.argv),
        env=env,
        cwd=places["skill"][1],
        mounts=mounts,
        workspace=out,
        capabilities=Capabilities(processes=True),
        limits=limits,
        timeout_seconds=BUILD_TIMEOUT_SECONDS,
    )


def _check(outcome: Outcome, places: Mapping[str, tuple[str, str]]) -> None:
    if outcome.timed_out:
        seconds = BUILD_TIMEOUT_SECONDS
        raise RunRefused(f"not built after {seconds:g} s (build_timeout_seconds)")
    if outcome.exit_code or outcome.limits_hit:
        said = (outcome.stderr.data + outcome.stdout.data).decode("utf-8", "replace")
        for _, inside in places.values():
            said = said.replace(f"{inside}/", "")
        limits = f" (limits hit: {', '.join(outcome.limits_hit)})" if outcome.limits_hit else ""
        reason = shorten(one_line(said.strip()), _OUTPUT_CHARS) or f"exit {outcome.exit_code}"
        raise RunRefused(f"the source cannot be built{limits}: {reason}")


def _read(folder: str, name: str, most: int) -> bytes:
    """Read an output; a builder may leave anything there, as its input is untrusted."""
    try:
        with open(os.open(os.path.join(folder, name), READ_FILE), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_size > most:
                raise RunRefused(f"{name}: not a file of at most {most:,} bytes (max_wasm_bytes)")
            return file.read(most)
    except OSError as error:
        raise RunRefused(f"the builder made no {name}: {error.strerror}") from error
