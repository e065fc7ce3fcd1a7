"""The tools that run commands; imported when the first of them is called."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING

from skillbelt.artifacts import parse_reference
from skillbelt.artifacts import read as read_artifact
from skillbelt.errors import ArtifactError, FileUnreadable, PathEscape, RunRefused
from skillbelt.files.contain import READ_FILE, check_relative, open_beneath, read_handle
from skillbelt.files.manifest import too_large
from skillbelt.running.call import RunCall
from skillbelt.running.outputs import SCHEME
from skillbelt.running.workspace import WRITABLE
from skillbelt.tools.caller import Call, Runs
from skillbelt.tools.schema import ToolResult
from skillbelt.tracing import span

if TYPE_CHECKING:
    from skillbelt.format.skill import Skill

# A model needs the result; what was enforced is for the host, in `data`.
_FOR_HOSTS = ("enforced",)


def run_command(call: Call, skill: Skill) -> ToolResult:
    """Run what the call asks for; a command that fails is a result, not an error."""
    runs, wanted = call.caller.runs(), run_call(call.arguments)
    if call.arguments.get("background") is True:
        return _begin(runs, skill, wanted)
    result = runs.workbench.run(skill, wanted, runs.who, runs.watch)
    document = result.document()
    shown = {key: value for key, value in document.items() if key not in _FOR_HOSTS}
    text = json.dumps(shown, ensure_ascii=False)
    failure = "; ".join(result.errors)
    return ToolResult(text, failure, {**document, **_failure("run_incomplete", failure)})


def _begin(runs: Runs, skill: Skill, wanted: RunCall) -> ToolResult:
    run_id = runs.background.start(skill, wanted, runs.who)
    data: dict[str, object] = {"run_id": run_id, "running": True}
    return ToolResult(json.dumps(data), data=data)


def poll(call: Call) -> ToolResult:
    """Write input to a run in the background or end it, then give its new output."""
    runs, given = call.caller.runs(), call.arguments
    key, run_id = runs.who.key, str(given["run_id"])
    if given.get("kill") is True:
        runs.background.kill(key, run_id)
    elif "stdin" in given or given.get("close_stdin") is True:
        text = str(given.get("stdin") or "")
        runs.background.write(key, run_id, text, given.get("close_stdin") is True)
    polled = runs.background.poll(
        key,
        run_id,
        stdout_offset=_number(given, "stdout_offset"),
        stderr_offset=_number(given, "stderr_offset"),
        wait_seconds=_number(given, "wait"),
    )
    result = polled.result.document() if polled.result else None
    data = {**polled._asdict(), "result": result}
    del data["error"]
    shown = {key: value for key, value in data.items() if value or key == "running"}
    if result:
        shown["result"] = {key: value for key, value in result.items() if key not in _FOR_HOSTS}
    if polled.error:
        shown["error"] = polled.error
    text = json.dumps(shown, ensure_ascii=False)
    return ToolResult(text, polled.error, {**data, **_failure(polled.error_kind, polled.error)})


def _number(given: Mapping[str, object], key: str) -> int:
    value = given.get(key, 0)
    assert isinstance(value, int)
    return value


def _failure(kind: str, message: str) -> dict[str, object]:
    """Return what to add to the data about something that was requested and failed."""
    return {"error": {"kind": kind, "message": message}} if message else {}


def run_call(arguments: Mapping[str, object]) -> RunCall:
    """Build the call from a tool's arguments; RunRefused names what is wrong with one."""
    given = dict(arguments)
    env = given.get("env") or {}
    assert isinstance(env, dict)
    for name, value in env.items():
        if not isinstance(value, str):
            raise RunRefused(f"env: {str(name)[:80]} must be text, not {type(value).__name__}")
    if not str(given["command"]).strip():
        raise RunRefused("skill and command are required")
    stdin = given.get("stdin")
    return RunCall(
        command=str(given["command"]),
        cwd=str(given.get("cwd") or ""),
        env=env,
        timeout_seconds=float(str(given.get("timeout") or 0)),
        inputs=tuple(given.get("inputs") or ()),  # type: ignore[arg-type]
        output_files=tuple(given.get("output_files") or ()),  # type: ignore[arg-type]
        outputs=given.get("outputs"),  # type: ignore[arg-type]
        save_as_artifacts=given.get("save_as_artifacts") is True,
        artifact_prefix=str(given.get("artifact_prefix") or ""),
        omit_inline_content=given.get("omit_inline_content") is True,
        stdin=stdin.encode("utf-8", "replace") if isinstance(stdin, str) else b"",
        editor_text=given.get("editor_text"),  # type: ignore[arg-type]
        terminal=given.get("terminal") is True,
    )


def read_run_text(runs: Runs, name: str) -> str:
    """Return the text of a file in the workspace or of an artifact, and of nothing else."""
    with span("workspace.inline", path=name):
        data = _workspace_file(runs, name) if name.startswith(SCHEME) else _artifact(runs, name)
    if b"\0" in data:
        raise FileUnreadable(name, "is not text")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileUnreadable(name, "is not text") from error


def _workspace_file(runs: Runs, name: str) -> bytes:
    path = check_relative(_alias(name.removeprefix(SCHEME)))
    most = runs.workbench.settings.limits.max_resource_file_bytes
    with runs.workbench.workspace(runs.who.key) as workspace:
        # Files of skills have skill:// URIs, for which the permission is checked.
        if path.split("/")[0] not in WRITABLE:
            raise PathEscape(path, ".", "is not a file of a run")
        try:
            handle = open_beneath(workspace.handle, path, READ_FILE)
        except OSError as error:
            raise FileUnreadable(name, f"cannot be read: {error.strerror}") from error
        return _regular(handle, name, most)


def _alias(path: str) -> str:
    """Replace `inputs/` by the folder of inputs."""
    return f"work/{path}" if path.startswith("inputs/") else path


def _regular(handle: int, name: str, most: int) -> bytes:
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_size > most:
        os.close(handle)
        if stat.S_ISREG(found.st_mode):
            raise too_large(name, found.st_size, most)
        raise FileUnreadable(name, "is not a file")
    return read_handle(handle, most)


def _artifact(runs: Runs, name: str) -> bytes:
    kept, version = parse_reference(name)
    store, most = runs.workbench.artifacts(runs.who.key), runs.workbench.settings.limits
    found = store.store.find(store.key, kept, version)
    if found.size > most.max_resource_file_bytes:
        raise ArtifactError(f"{name} has {found.size:,} bytes; too many to read")
    return read_artifact(store.store, store.key, kept, version)[1]
