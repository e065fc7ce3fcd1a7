"""The arguments and the result of a run as values, and the checks that need nothing else."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from skillbelt.errors import RunRefused
from skillbelt.permission.command_lines import WHOLE
from skillbelt.permission.command_policy import dropped_variables, first_words, split_words
from skillbelt.permission.gate import Gate
from skillbelt.permission.rules import Initiator
from skillbelt.running.outputs import (
    OutputFile,
    Saved,
    Wanted,
    Written,
    parse_output_files,
    parse_outputs,
)
from skillbelt.running.programs.hint import Hint
from skillbelt.running.secrets import redacted, secrets_of
from skillbelt.running.workspace import OUT
from skillbelt.sandbox.protocol import MAX_STDIN_BYTES, Captured, Outcome
from skillbelt.scan.values import ObservedUse
from skillbelt.store import SessionKey
from skillbelt.text import one_line, shorten
from skillbelt.values import USUAL_TIMEOUT_SECONDS

_ALL = (f"{OUT}/**",)
_NOTHING: Mapping[str, str] = MappingProxyType({})
_SHOWN = 80
_NOT_FOUND = 127
# Linear time for any line: nothing follows a word that could make the match backtrack.
_WORD = re.compile(r"""(?:[^\s;|&<>()"'`$=\\]+|\\.|"[^"]*"|'[^']*')+""", re.DOTALL)
_QUOTED = re.compile(r"""\\(.)|"([^"]*)"|'([^']*)'""", re.DOTALL)
_SCRIPT = re.compile(r".*\.(?:py|[cm]?js|m?ts|sh|bash)\b", re.DOTALL)
# Programs whose first argument is the program that really runs.
_INTERPRETERS = frozenset(("python", "python3", "bash", "sh", "node", "perl", "ruby"))


class Asker(NamedTuple):
    """The initiator of a run: its conversation, user and agent; optionally its own gate.

    `once` marks a run outside any conversation. It gets an empty workspace, which is removed
    afterwards unless it holds files that exist nowhere else: `whole` says that the caller gets the
    text of output files with the result, `named` that it gets their names only.
    """

    key: SessionKey
    initiator: Initiator = "model"
    agent: str = ""
    gate: Gate | None = None
    once: Literal["", "whole", "named"] = ""


class RunCall(NamedTuple):
    """The arguments of one run. A tuple is executed directly, a string by `bash -c`.

    A timeout of 0 means the default; a call may ask for more, up to the settings. Copies of the
    output files go to `output_dir`, a folder of the host: it is for users and hosts, never for a
    model. `packages` are needed beside those of the skill; without `install` there are none at all.
    `secrets` are names of stored secrets, which the command gets as variables.
    """

    command: str | tuple[str, ...]
    cwd: str = ""
    env: Mapping[str, str] = _NOTHING
    timeout_seconds: float = 0.0
    inputs: Sequence[Mapping[str, object]] = ()
    output_files: tuple[str, ...] = ()
    outputs: Mapping[str, object] | None = None
    save_as_artifacts: bool = False
    artifact_prefix: str = ""
    omit_inline_content: bool = False
    stdin: bytes | None = b""
    editor_text: str | None = None
    terminal: bool = False
    output_dir: str = ""
    all_outputs: bool = False
    secrets: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    install: bool = True

    @property
    def text(self) -> str:
        """Return the command as one line."""
        if isinstance(self.command, str):
            return self.command
        return shlex.join(self.command)

    @property
    def shown(self) -> str:
        """Return the command as one line, with the run's secrets redacted."""
        return redacted(self.text, secrets_of(self.env))


class RunResult(NamedTuple):
    """The outcome of a run and its files. A command that fails has a result too.

    `enforced` maps each protection to the layer of the `sandbox` that enforced it; `hosts` are
    those that the run reached. `hints` say what a command lacked, and what provides it; `observed`
    is what it tried, and whether its skill declares that.
    """

    stdout: str
    stderr: str
    exit_code: int
    timed_out: bool
    duration_ms: int
    output_files: tuple[OutputFile, ...] = ()
    primary_output: OutputFile | None = None
    artifact_files: tuple[Saved, ...] = ()
    warnings: tuple[str, ...] = ()
    limits_hit: tuple[str, ...] = ()
    sandbox: str = ""
    enforced: Mapping[str, str] = _NOTHING
    hosts: tuple[str, ...] = ()
    cancelled: bool = False
    errors: tuple[str, ...] = ()
    written_files: tuple[Written, ...] = ()
    hints: tuple[Hint, ...] = ()
    observed: tuple[ObservedUse, ...] = ()

    def document(self) -> dict[str, object]:
        """Return the result as a JSON document, without most empty fields."""
        always = ("stdout", "stderr", "exit_code", "timed_out", "duration_ms", "output_files",
                  "limits_hit", "sandbox", "enforced")  # fmt: skip
        plain: dict[str, object] = {
            **self._asdict(),
            "output_files": [one._asdict() for one in self.output_files],
            "primary_output": self.primary_output and self.primary_output._asdict(),
            "artifact_files": [one._asdict() for one in self.artifact_files],
            "written_files": [one._asdict() for one in self.written_files],
            "hints": [one.document() for one in self.hints],
            "observed": [one._asdict() for one in self.observed],
            "enforced": dict(self.enforced),
        }
        return {key: value for key, value in plain.items() if value or key in always}


def wanted_outputs(call: RunCall, max_file_bytes: int = 0) -> Wanted | None:
    """Return which files to collect; None when the call names none. `output_files` wins.

    With an `output_dir` or `all_outputs`, and no names, it is everything below `out`.
    `max_file_bytes` is for a call that does not set its own limit.
    """
    files = call.output_files or (_ALL if call.output_dir or call.all_outputs else ())
    if call.outputs is not None and not call.output_files:
        wanted = parse_outputs(call.outputs)
    elif files:
        save, prefix = call.save_as_artifacts, call.artifact_prefix
        wanted = parse_output_files(files, save=save, prefix=prefix)
    else:
        return None
    return wanted._replace(max_file_bytes=wanted.max_file_bytes or max_file_bytes)


def timeout_of(call: RunCall, most: float) -> float:
    """Return the timeout of the call; RunRefused for an invalid number."""
    seconds = call.timeout_seconds
    if not 0 <= seconds < float("inf"):
        raise RunRefused(f"timeout must be a number of seconds above 0, not {seconds!r}")
    return min(seconds or USUAL_TIMEOUT_SECONDS, most)


def timeout_warnings(call: RunCall, most: float) -> tuple[str, ...]:
    """Warn of a timeout that the settings lower."""
    if call.timeout_seconds <= most:
        return ()
    asked = f"{call.timeout_seconds:g}"
    return (
        f"timeout was lowered from {asked} to {most:g} seconds, the maximum: run_timeout_seconds "
        "of the settings, or the timeout that they give the skill",
    )


def save_warnings(call: RunCall) -> tuple[str, ...]:
    """Warn of a call that saves files and names none."""
    wanted = call.output_files or call.output_dir or call.all_outputs
    if not call.save_as_artifacts or wanted:
        return ()
    return ("nothing was saved: save_as_artifacts keeps the files of output_files, of which there "
            "are none",)  # fmt: skip


def check_stdin(call: RunCall) -> None:
    """Raise RunRefused for too much input, and for an editor that is set twice."""
    if call.stdin is not None and len(call.stdin) > MAX_STDIN_BYTES:
        raise RunRefused(
            f"stdin is longer than {MAX_STDIN_BYTES} bytes (max_stdin_bytes); "
            "give it as an input file"
        )
    clash = {"EDITOR", "VISUAL"}.intersection(call.env)
    if call.editor_text is not None and clash:
        raise RunRefused(f"editor_text sets {min(clash)}; leave it out of env")


def environment_warnings(call: RunCall, policy: bool) -> tuple[str, ...]:
    """Warn of variables that the command does not get."""
    dropped = dropped_variables(call.env, policy=policy)
    shown = shorten(one_line(", ".join(dropped)), _SHOWN)
    return (f"not set: {shown}; such a variable can make a program run others",) if dropped else ()


def path_warnings(call: RunCall, outcome: Outcome) -> list[str]:
    """Warn of a PATH without the system's programs, when a program was not found."""
    folders = call.env.get("PATH", "/usr/bin").split(":")
    if outcome.exit_code != _NOT_FOUND or {"/usr/bin", "/bin"}.intersection(folders):
        return []
    return ["env sets a PATH without /usr/bin; leave it out, or add /usr/bin:/bin to it"]


def script_of(command: str, parts: tuple[str, ...], is_file: Callable[[str], bool]) -> str:
    """Return the skill's script that a command runs, alone or by an interpreter; "" for others.

    `parts` are its simple commands. The shell looks up a word without a slash in PATH, not in the
    skill, and an interpreter with a slash may be any file.
    """
    words = _plain_words(command, parts)
    if len(words) > 1 and words[0] in _INTERPRETERS:
        words = words[1:]
    elif words and "/" not in words[0]:
        return ""
    word = words[0] if words else ""
    path = word.removeprefix("./")
    plain = path and not word.startswith(("/", "-")) and ".." not in path.split("/")
    return path if plain and not path.startswith("/") and is_file(path) else ""


def _plain_words(command: str, parts: tuple[str, ...]) -> list[str]:
    """Return the first words of one plain command, as bash reads them; none for anything else."""
    if len(parts) == 1 and not parts[0].startswith(WHOLE):
        return first_words(command, 2)
    try:
        return split_words(command)
    except RunRefused:
        return []


def scripts_named(command: str, depth: int = 2) -> Iterator[str]:
    """Yield every word of a command line that looks like a script.

    A word with blanks may be a command line itself, as after `bash -c`.
    """
    for found in _WORD.finditer(command):
        word = _QUOTED.sub(lambda part: part[1] or part[2] or part[3] or "", found[0])
        script = _SCRIPT.match(word)
        if script:
            yield script[0]
        if depth and len(word.split(maxsplit=1)) > 1:
            yield from scripts_named(word, depth - 1)


def describe_call(call: RunCall) -> str:
    """Describe the parts of the call beside the command, for the permission request."""
    parts = [
        f"in {shorten(one_line(call.cwd), _SHOWN)}" if call.cwd else "",
        f"with {shorten(one_line(', '.join(call.env)), _SHOWN)} set" if call.env else "",
        f"with {len(call.stdin)} bytes of input" if call.stdin else "",
        "with a terminal" if call.terminal else "",
    ]
    return "".join(f", {one}" for one in parts if one)


def stream(captured: Captured) -> str:
    """Return a captured stream as text, not cut within a character."""
    data = captured.data
    if captured.truncated:
        data = data[: len(data) - unfinished(data)]
    return data.decode("utf-8", "replace")


def unfinished(data: bytes) -> int:
    """Count the bytes at the end that begin an incomplete character."""
    for count in range(1, min(len(data), 3) + 1):
        byte = data[-count]
        if byte & 0xC0 != 0x80:
            size = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return count if size > count else 0
    return 0


def stream_warnings(outcome: Outcome) -> list[str]:
    """Warn of each truncated stream."""
    named = (("stdout", outcome.stdout), ("stderr", outcome.stderr))
    return [f"{name} truncated" for name, captured in named if captured.truncated]


def end_warnings(outcome: Outcome) -> list[str]:
    """Warn of processes that may be left."""
    said = "a process of the run could not be ended and may still be alive"
    return [said] if outcome.left else []


def without_secrets(result: RunResult, secrets: Mapping[str, str]) -> RunResult:
    """Return the result with the run's secrets redacted; file names stay as they are."""
    if not secrets:
        return result

    def shown(file: OutputFile) -> OutputFile:
        return file._replace(content=redacted(file.content, secrets, cut=file.truncated))

    # Hints have hosts in lower case, even if the output has not.
    small = {name: value.lower() for name, value in secrets.items()}

    def redact(text: str) -> str:
        return redacted(redacted(text, secrets), small)

    cut = [f"{stream} truncated" in result.warnings for stream in ("stdout", "stderr")]
    return result._replace(
        stdout=redacted(result.stdout, secrets, cut=cut[0]),
        stderr=redacted(result.stderr, secrets, cut=cut[1]),
        output_files=tuple(map(shown, result.output_files)),
        primary_output=shown(result.primary_output) if result.primary_output else None,
        warnings=tuple(redacted(text, secrets) for text in result.warnings),
        errors=tuple(redacted(text, secrets) for text in result.errors),
        hints=tuple(
            one._replace(name=redact(one.name), message=redact(one.message)) for one in result.hints
        ),
    )


def left_behind(result: RunResult, names: Iterable[str], *, shown: bool) -> bool:
    """Whether one of these files of the workspace, or of the result, exists nowhere else.

    If the caller sees the texts of the result (`shown`), a complete text there counts as a copy.
    """
    first = result.primary_output
    files = (*result.output_files, *(() if first is None else (first,)))
    held = {one.name for one in files if shown and not one.truncated and _is_complete(one)}
    held.update(one.name for one in result.written_files)
    if result.artifact_files:
        held.update(one.name for one in result.output_files)
    return not held.issuperset((*names, *(one.name for one in result.output_files)))


def _is_complete(file: OutputFile) -> bool:
    return bool(file.content) or not file.size_bytes


def details_of(result: RunResult, call: RunCall, inputs: Iterable[str]) -> dict[str, object]:
    """Return the details that the history has beside the record in the audit log."""
    return {
        "shell": isinstance(call.command, str),
        "cancelled": result.cancelled,
        "enforced": dict(result.enforced),
        "warnings": list(result.warnings),
        "errors": list(result.errors),
        "inputs": list(inputs),
        "outputs": [
            {"name": one.name, "size": one.size_bytes, "mime": one.mime_type}
            for one in result.output_files
        ],
        "artifacts": [one._asdict() for one in result.artifact_files],
        "call": keep_call(call),
    }


def keep_call(call: RunCall) -> dict[str, object] | None:
    """Return the call as a document, so that it can be repeated; None where it cannot be.

    That is a call with a secret value, at a terminal, or with a long input.
    """
    if call.terminal or call.editor_text is not None:
        return None
    if call.shown != call.text or secrets_of(call.env):
        return None
    if len(call.stdin or b"") > MAX_CALL_CHARS:  # as JSON it is at least as long
        return None
    try:
        document: dict[str, object] = {
            **{name: getattr(call, name) for name in _REPEATED},
            "env": dict(call.env),
            "inputs": [dict(one) for one in call.inputs],
            "outputs": None if call.outputs is None else dict(call.outputs),
            "stdin": (call.stdin or b"").decode(),
        }
        size = len(json.dumps(document))
    except (TypeError, ValueError, RecursionError):
        return None
    return document if size <= MAX_CALL_CHARS else None


def read_call(document: Mapping[str, Any]) -> RunCall:
    """Return the call of `keep_call`; ValueError for another document."""
    try:
        command = document["command"]
        plain = {name: document[name] for name in _REPEATED}
        lists = {name: tuple(map(str, plain[name])) for name in _LISTED}
        return RunCall(
            **{
                **plain,
                **lists,
                "command": command if isinstance(command, str) else tuple(map(str, command)),
                "env": {str(name): str(value) for name, value in document["env"].items()},
                "inputs": [dict(one) for one in document["inputs"]],
                "outputs": document["outputs"],
                "stdin": str(document["stdin"]).encode(),
            }
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError("this is not the call of a run") from error


_LISTED = ("output_files", "secrets", "packages")
_REPEATED = (
    "command", "cwd", "timeout_seconds", "save_as_artifacts", "artifact_prefix",
    "omit_inline_content", "all_outputs", "install", *_LISTED,
)  # fmt: skip
# A longer call is not kept, so it cannot be repeated.
MAX_CALL_CHARS = 32_768


def record_of(result: RunResult, shown: str, secrets: Iterable[str] = ()) -> dict[str, object]:
    """Return the record of a run for the audit log; `secrets` are the names of those it got."""
    return {
        "command": shown,
        "exit_code": result.exit_code,
        "timed_out": result.timed_out,
        "duration_ms": result.duration_ms,
        "sandbox": result.sandbox,
        "limits_hit": list(result.limits_hit),
        "hosts": list(result.hosts),
        **({"secrets": sorted(secrets)} if secrets else {}),
        **({"observed": [one._asdict() for one in result.observed]} if result.observed else {}),
    }
