"""The tools that run commands, and those that read what a run left."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from codecs import getincrementaldecoder
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from skillbelt.artifacts import parse_reference
from skillbelt.errors import FileUnreadable, PathEscape, RunRefused
from skillbelt.files.contain import FOLLOW_FILE, check_relative
from skillbelt.running.call import RunCall
from skillbelt.running.outputs import SCHEME
from skillbelt.running.secrets import redacted_chunks
from skillbelt.running.workspace import (
    INPUTS,
    SKILLS,
    WRITABLE,
    Workspace,
    open_inside,
    placed,
    plain,
)
from skillbelt.tools.caller import Call, Caller, Runs
from skillbelt.tools.schema import ToolResult
from skillbelt.tracing import span

if TYPE_CHECKING:
    from skillbelt.format.skill import Skill

_CHUNK = 2**16
_INPUTS = "inputs"
# The paths of the workspace as a command sees them.
RUN_FOLDERS = (*WRITABLE, _INPUTS, SKILLS)
# A model needs the result; the enforced limits are for the host, in `data`.
_FOR_HOSTS = ("enforced",)


class RunText(NamedTuple):
    """The text of a file in chunks, and the size of the file."""

    chunks: Iterator[str]
    size: int


def run_command(call: Call, skill: Skill) -> ToolResult:
    """Run the command of the call; a command that fails is a result, not an error."""
    runs, wanted = call.caller.runs(), run_call(call.arguments)
    if call.arguments.get("background") is True:
        return _begin(runs, skill, wanted)
    result = runs.workbench.run(skill, wanted, runs.who, runs.watch)
    document = result.document()
    shown = {key: value for key, value in document.items() if key not in _FOR_HOSTS}
    text = json.dumps(shown, ensure_ascii=False)
    failure = "; ".join(result.errors)
    return ToolResult(text, failure, {**document, **_failure("run_incomplete", failure)})


def execute_script(call: Call, skill: Skill) -> ToolResult:
    """Run the skill's script on the JSON of the call; a script that fails is a result."""
    runs, given = call.caller.runs(), call.arguments
    done = runs.execute(
        skill,
        given.get("input"),
        who=runs.who,
        script=str(given.get("script") or ""),
        timeout_ms=_number(given, "timeout_ms"),
        watch=runs.watch,
    )
    document = done.document()
    shown = {key: value for key, value in document.items() if key not in _FOR_HOSTS}
    failure = "; ".join(done.errors)
    text = json.dumps(shown, ensure_ascii=False)
    return ToolResult(text, failure, {**document, **_failure("run_incomplete", failure)})


def printed(result: Mapping[str, object]) -> str:
    """Return a command's output as a terminal shows it, after its failure if it failed."""
    status = f"Exit code {result['exit_code']}" if result["exit_code"] else ""
    if result.get("timed_out"):
        status = "The command took too long and was stopped"
    warnings = result.get("warnings")
    notes = [f"({one})" for one in warnings] if isinstance(warnings, list) else []
    streams = (str(result.get(stream) or "").rstrip("\n") for stream in ("stdout", "stderr"))
    return "\n".join(filter(None, (status, *streams, *notes))) or "(no output)"


def _begin(runs: Runs, skill: Skill, wanted: RunCall) -> ToolResult:
    run_id = runs.background.start(skill, wanted, runs.who)
    data: dict[str, object] = {"run_id": run_id, "running": True}
    return ToolResult(json.dumps(data), data=data)


def poll(call: Call) -> ToolResult:
    """Write input to a background run or end it, then return its new output."""
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
    """Return the data about a requested part that failed."""
    return {"error": {"kind": kind, "message": message}} if message else {}


def run_call(arguments: Mapping[str, object]) -> RunCall:
    """Build the call from a tool's arguments; RunRefused names a wrong one."""
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


@contextmanager
def open_run_text(caller: Caller, name: str) -> Iterator[RunText]:
    """Yield the text of a file in the workspace or of an artifact; nothing else can be opened.

    It is read in chunks, so that memory does not depend on the size of the file. Secrets that runs
    were given are redacted.
    """
    runs = caller.runs()
    given = runs.workbench.given_secrets
    with span("workspace.inline", path=name):
        if name.startswith(SCHEME):
            handle = _open_file(runs, name)
            with open(handle, "rb") as file:
                size = os.fstat(handle).st_size
                yield RunText(redacted_chunks(_decode(file, name), given), size)
            return
        kept, version = parse_reference(name)
        artifacts = runs.workbench.artifacts(runs.who.key)
        found = artifacts.store.find(artifacts.key, kept, version)
        with artifacts.open(kept, found.version) as file:
            chunks = _decode(file, name, found.sha256)
            yield RunText(redacted_chunks(chunks, given), found.size)


def _decode(file: BinaryIO, name: str, sha256: str = "") -> Iterator[str]:
    """Yield the text of a file; FileUnreadable if it is not text or, at the end, has changed."""
    decoder, hashed = getincrementaldecoder("utf-8")(), hashlib.sha256()
    try:
        while data := file.read(_CHUNK):
            hashed.update(data)
            if b"\0" in data:
                raise FileUnreadable(name, "is not text")
            yield decoder.decode(data)
        yield decoder.decode(b"", True)
    except UnicodeDecodeError as error:
        raise FileUnreadable(name, "is not text") from error
    if sha256 and hashed.hexdigest() != sha256:
        raise FileUnreadable(name, "was damaged since it was saved")


def _open_file(runs: Runs, name: str) -> int:
    """Open a regular file of a run; return its file descriptor."""
    path = check_relative(name.removeprefix(SCHEME))
    with runs.workbench.workspace(runs.who.key) as workspace:
        if path.split("/")[0] not in RUN_FOLDERS:
            raise PathEscape(path, ".", "is not a file of a run")
        try:
            handle = _open_alias(workspace, path)
        except OSError as error:
            raise FileUnreadable(name, f"cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileUnreadable(name, "is not a file")
    return handle


def _open_alias(workspace: Workspace, path: str) -> int:
    """Open a path as a command sees it.

    `inputs/` is the folder of inputs; a file that it lacks is looked up in the workspace itself.
    """
    path = plain(path)
    top, _, rest = path.partition("/")
    if top == SKILLS:
        staged = workspace.metadata().staged
        path = placed(path, {name: f"{one.copy}/{name}" for name, one in staged.items()})
    elif top == _INPUTS:
        try:
            return open_inside(workspace.handle, f"{INPUTS}/{rest}", FOLLOW_FILE)
        except FileNotFoundError:
            if rest.split("/")[0] not in WRITABLE:
                raise
            path = rest
    return open_inside(workspace.handle, path, FOLLOW_FILE)
