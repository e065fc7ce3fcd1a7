"""A skill as a function: a script of the skill turns JSON on stdin into JSON on stdout.

The script is chosen first, by rules that never guess. It then runs like any command of the skill:
staged, asked for, sandboxed and recorded by the workbench.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from posixpath import basename, dirname, splitext
from types import MappingProxyType
from typing import Literal, NamedTuple, NoReturn

from skillbelt.disclosure.body import walk
from skillbelt.errors import PathEscape, PermissionDenied, RunRefused
from skillbelt.files.contain import check_relative, inside
from skillbelt.format.skill import Skill
from skillbelt.permission.gate import Granted
from skillbelt.permission.grants import Grants, capabilities_of, hosts_by_tool, named_hosts
from skillbelt.permission.rules import SHELL_TOOLS, Rule
from skillbelt.running.call import Asker, RunCall, RunResult
from skillbelt.running.following import UNWATCHED, Watch
from skillbelt.running.outputs import OUTPUT_FILE_BYTES, OutputFile, Saved, Written
from skillbelt.running.programs.hint import Hint
from skillbelt.running.run import Run
from skillbelt.running.secret_store import SecretStore
from skillbelt.running.secrets import Redactor
from skillbelt.running.workbench import Workbench
from skillbelt.sandbox.linux.identity import blocking_folder
from skillbelt.sandbox.protocol import Captured, Outcome
from skillbelt.sandbox.registry import WASM
from skillbelt.scan.values import ObservedUse
from skillbelt.settings import Settings
from skillbelt.text import one_line
from skillbelt.untrusted_json import read_json
from skillbelt.values import Capabilities, Limits

# The timeout of a call without `timeout_ms`; from the interface that scripts expect.
EXEC_TIMEOUT_SECONDS = 30.0

ExitKind = Literal["success", "failed", "timeout", "permission_denied"]
INTERPRETERS = {".py": "python3", ".sh": "bash", ".bash": "bash", ".js": "node", ".mjs": "node",
                ".ts": "node", ".mts": "node"}  # fmt: skip
# Only the WASM sandbox runs these without a build.
_TYPED = (".ts", ".mts")
# Linux limits a variable with its name to 128 KiB; the sandbox adds a prefix.
MAX_VARIABLE_BYTES = 128_000
_MAIN = ("main", "index", "script")
_WASM = ("wasm/skill.wasm", "skill.wasm", "module.wasm")
_SHOWN = 20
_NOTHING: Mapping[str, str] = MappingProxyType({})


class ExitStatus(NamedTuple):
    """The end of a script. `code` is the exit code; None when it was not started, see `reason`."""

    kind: ExitKind
    code: int | None = None
    reason: str = ""


class Execution(NamedTuple):
    """The result. `output` is stdout as JSON, None when it is not JSON.

    `permissions_used` are the declared tools that were granted, without those of the network that
    opened no host. `enforced` maps each protection to the layer of the `sandbox` that enforced it.
    The files and what was `observed` are as in `RunResult`.
    """

    output: object
    stdout: str
    stderr: str
    permissions_used: tuple[str, ...]
    exit_status: ExitStatus
    enforced: Mapping[str, str] = _NOTHING
    sandbox: str = ""
    duration_ms: int = 0
    warnings: tuple[str, ...] = ()
    limits_hit: tuple[str, ...] = ()
    output_files: tuple[OutputFile, ...] = ()
    artifact_files: tuple[Saved, ...] = ()
    written_files: tuple[Written, ...] = ()
    errors: tuple[str, ...] = ()
    hints: tuple[Hint, ...] = ()
    observed: tuple[ObservedUse, ...] = ()

    def document(self) -> dict[str, object]:
        """Return the result as a JSON document; optional fields are left out when empty."""
        status: dict[str, object] = {"kind": self.exit_status.kind, "code": self.exit_status.code}
        if self.exit_status.reason:
            status["reason"] = self.exit_status.reason
        more = {
            "sandbox": self.sandbox,
            "warnings": list(self.warnings),
            "limits_hit": list(self.limits_hit),
            "output_files": [one._asdict() for one in self.output_files],
            "artifact_files": [one._asdict() for one in self.artifact_files],
            "written_files": [one._asdict() for one in self.written_files],
            "errors": list(self.errors),
            "hints": [one.document() for one in self.hints],
            "observed": [one._asdict() for one in self.observed],
        }
        return {
            "output": self.output,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "permissions_used": list(self.permissions_used),
            "exit_status": status,
            "enforced": dict(self.enforced),
            **{key: value for key, value in more.items() if value},
        }


class Target(NamedTuple):
    """The script or module to execute: a path below the skill, and how."""

    mode: Literal["script", "wasm"]
    path: str


def execute(
    workbench: Workbench,
    skill: Skill,
    input: object = None,
    *,
    who: Asker,
    script: str = "",
    timeout_ms: int = 0,
    wasm_module: str = "",
    inputs: Sequence[Mapping[str, object]] = (),
    outputs: Sequence[str] = (),
    save_as_artifacts: bool = False,
    output_dir: str = "",
    all_outputs: bool = False,
    arguments: Sequence[str] = (),
    packages: Sequence[str] = (),
    install: bool = True,
    secrets: Sequence[str] = (),
    observed: bool = False,
    watch: Watch = UNWATCHED,
) -> Execution:
    """Run the skill on the input. A script that fails, or takes too long, is a result.

    `inputs` are files for the run and `arguments` words for the script, as for `RunCall`, and so
    are `packages`, `install` and `secrets`; `outputs` are patterns of files to return. Without any,
    a run outside a conversation returns all of `out`, which nothing else can have written to, and
    so does one with `all_outputs`. `observed` records the hosts that it asks for, even where it may
    reach none.

    RunRefused, PathEscape, PermissionDenied and SandboxUnavailable mean that nothing was run; for a
    model `denied` makes a result of the third. A `timeout_ms` of 0 means that of the settings.
    """
    limits = workbench.limits_for(skill)
    target = detect(skill, input, script=script, wasm_module=wasm_module)
    usual = workbench.settings.for_skill(skill.name).timeout or EXEC_TIMEOUT_SECONDS
    seconds, text = _seconds(timeout_ms, limits, usual), _json(input)
    command = (*_command(target), *arguments)
    call = RunCall(
        command, timeout_seconds=seconds, stdin=text, inputs=inputs, output_files=tuple(outputs),
        save_as_artifacts=save_as_artifacts, output_dir=output_dir,
        all_outputs=all_outputs or bool(who.once), packages=tuple(packages), install=install,
        secrets=tuple(secrets),
    )  # fmt: skip
    needs = WASM if target.mode == "wasm" or target.path.endswith(_TYPED) else ""
    grant = partial(_grant, settings=workbench.settings)
    with workbench.prepare(skill, call, who, grant=grant, needs=needs, observed=observed) as run:
        _prepare(run, text)
        outcome = _name_timeout(workbench.carry_out(run, watch), timeout_ms, limits, usual)
        run.outcome = _cut_streams(outcome, limits.max_stream_bytes)
        result = workbench.finish(run)
    return _execution(_redact(outcome, run), result, _used_tools(run), limits)


def plain_call(skill: Skill, input: object, *, script: str = "") -> RunCall:
    """Return the command that `execute` would start, for checks before the run."""
    return RunCall(_command(detect(skill, input, script=script)), stdin=_json(input))


def denied(error: PermissionDenied) -> Execution:
    """Return the result of a run that was not permitted, for a model."""
    return Execution(
        output=None,
        stdout="",
        stderr="",
        permissions_used=(),
        exit_status=ExitStatus("permission_denied", None, error.reason),
    )


# Choosing the script


def detect(
    skill: Skill,
    input: object = None,
    *,
    script: str = "",
    wasm_module: str = "",
) -> Target:
    """Choose the script or module that `execute` runs; RunRefused when that is ambiguous.

    In this order: the given module or script; a WASM module; the script that the input's `action`
    names; the one that `metadata.script` declares; the only one there is.
    """
    if script and wasm_module:
        raise RunRefused("script and wasm_module are both given; only one can be executed")
    if script.endswith(".wasm"):
        script, wasm_module = "", script
    paths = list(walk(skill))
    if wasm_module:
        return Target("wasm", _named_module(wasm_module, paths, skill))
    scripts = candidates(paths)
    if script:
        return Target("script", _named_script(script, paths, scripts, skill))
    module = _module(paths, skill)
    if module:
        return Target("wasm", module)
    return Target("script", _choose(input, paths, scripts, skill))


def candidates(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the scripts of a skill: all in `scripts/`; main, index and script elsewhere."""
    return tuple(sorted(path for path in paths if _is_candidate(path)))


def _is_candidate(path: str) -> bool:
    folder, (stem, ending) = dirname(path), splitext(basename(path))
    if ending not in INTERPRETERS or stem == "__init__":
        return False
    return folder == "scripts" or (folder in ("", "src") and stem in _MAIN)


def _named_module(name: str, paths: Sequence[str], skill: Skill) -> str:
    path = _check_path(name, skill)
    if path not in paths or not path.endswith(".wasm"):
        raise RunRefused(f"skill {skill.name!r} has no WASM module {one_line(name)!r}")
    return path


def _module(paths: Sequence[str], skill: Skill) -> str:
    """Return the WASM module of the skill; "" without one.

    Modules in deeper folders do not count.
    """
    usual = [path for path in _WASM if path in paths]
    if usual:
        return usual[0]
    found = [path for path in paths if path.endswith(".wasm") and dirname(path) in ("", "wasm")]
    if len(found) > 1:
        _refuse(skill, "has more than one WASM module", found, "give one as wasm_module")
    return found[0] if found else ""


def _named_script(name: str, paths: Sequence[str], scripts: Sequence[str], skill: Skill) -> str:
    """Return the script of that path, or the candidate of that name, with or without suffix."""
    path = _check_path(name, skill)
    if path in paths:
        return _check_ending(path)
    found = [one for one in scripts if name in (basename(one), splitext(basename(one))[0])]
    if len(found) != 1:
        fault = f"has {'more than one' if found else 'no'} script {one_line(name)!r}"
        remedy = "give one of them as script" if scripts else "there is no script in it"
        _refuse(skill, fault, found or scripts, remedy)
    return found[0]


def _check_path(name: str, skill: Skill) -> str:
    try:
        return check_relative(name, skill.dir)
    except PathEscape as escape:
        raise PathEscape(name[:200], skill.dir, "leads out of the skill's folder") from escape


def _check_ending(path: str) -> str:
    if splitext(path)[1] not in INTERPRETERS:
        endings = ", ".join(INTERPRETERS)
        raise RunRefused(f"{one_line(path)!r} cannot be executed; a script ends in {endings}")
    return path


def _choose(input: object, paths: Sequence[str], scripts: Sequence[str], skill: Skill) -> str:
    action = input.get("action") if isinstance(input, dict) else None
    found = [
        path
        for path in scripts
        if path.startswith("scripts/") and _name_without_ending(path) == action
    ]
    declared = "" if found else _declared_script(skill)
    if declared:
        return _named_script(declared, paths, scripts, skill)
    found = found or list(scripts)
    if len(found) == 1:
        return found[0]
    if not found:
        _refuse_empty_skill(skill, paths)
    _refuse(skill, "has more than one script", found, _advise(action))


def _refuse_empty_skill(skill: Skill, paths: Sequence[str]) -> NoReturn:
    """Raise RunRefused that says where a module or a script is expected, and which lie deeper."""
    places = (
        "no .wasm in its folder or in wasm/, no script in scripts/ and no main, index or script"
    )
    fault = f"has nothing to execute: {places} with a known ending"
    deeper = [path for path in paths if path.endswith(".wasm")]
    if deeper:
        _refuse(
            skill,
            f"{fault}; there are modules elsewhere",
            deeper,
            "give one as wasm_module or --script",
        )
    raise RunRefused(f"skill {skill.name!r} {fault}")


def _name_without_ending(path: str) -> str:
    return splitext(basename(path))[0]


def _declared_script(skill: Skill) -> str:
    """Return the script that the skill declares; "" when that is not text."""
    value = skill.frontmatter.metadata.get("script")
    return value.strip() if isinstance(value, str) else ""


def _advise(action: object) -> str:
    known = f"; action {one_line(action[:80])!r} names none" if isinstance(action, str) else ""
    return f"give one as script, or the input an action that is its name{known}"


def _refuse(skill: Skill, fault: str, found: Sequence[str], remedy: str) -> NoReturn:
    shown = ", ".join(map(one_line, found[:_SHOWN]))
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    there = f" ({shown}{more})" if found else ""
    raise RunRefused(f"skill {skill.name!r} {fault}{there}; {remedy}")


# Running it


def _command(target: Target) -> tuple[str, ...]:
    """Return the command; with `./`, a module is not searched in PATH."""
    if target.mode == "wasm":
        return (f"./{target.path}",)
    path = target.path
    return INTERPRETERS[splitext(path)[1]], path if not path.startswith("-") else f"./{path}"


def _seconds(timeout_ms: int, limits: Limits, usual: float) -> float:
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int) or timeout_ms < 0:
        raise RunRefused(f"timeout_ms must be a whole number of at least 0, not {timeout_ms!r}")
    if timeout_ms:
        return timeout_ms / 1000
    return min(usual, limits.run_timeout_seconds)


def _json(value: object) -> bytes:
    try:
        return json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise RunRefused(f"the input is not JSON: {one_line(str(error))}") from error


def _grant(run: Run, settings: Settings) -> Capabilities:
    """Return the capabilities of the run, by the declared tools that the skill may have."""
    sandboxed = run.sandbox.name != "none"
    tools = run.frontmatter.allowed_tools
    granted = run.gate.declared(run.skill, run.request, tools=tools, sandboxed=sandboxed)
    run.granted_tools = granted.tools
    # A skill that was denied all its declared tools is not a skill that declares none.
    if not tools and settings.empty_allowed_tools == "allow":
        granted = _grant_all(run, bool(settings.host_roots) and sandboxed)
    denied = granted.denied
    host = Grants(read=settings.host_roots)
    found = capabilities_of(granted.tools, host)
    ruled: dict[str, Rule] = {}
    read, unreachable, keeping = [], [], []
    secrets = SecretStore(settings).folder
    for path in found.read:
        if not _reachable(path):
            unreachable.append(path)
        elif os.path.isdir(secrets) and (inside(secrets, path) or inside(path, secrets)):
            keeping.append(path)
        elif rule := run.gate.denied_below(run.request, path):
            ruled[path] = rule
        else:
            read.append(path)
    run.warnings += (
        *(f"not granted: {one_line(tool)}: {why}" for tool, why in denied),
        *(f"{path} cannot be read by runs" for path in unreachable),
        *(
            f"{path} is not opened to runs: your secrets are kept in it; name the folders in it "
            "that are needed in host_roots, or set state_dir to a folder elsewhere"
            for path in keeping
        ),
        *(
            f"{path} is not opened to runs: a rule denies {one_line(rule.pattern)!r} in it; "
            "give the files that are needed as inputs"
            for path, rule in ruled.items()
        ),
    )
    hosts = hosts_by_tool(granted.tools, run.listed_hosts, run.only_hosts)
    run.warnings += tuple(
        f"{one_line(one.tool)} opens no host: {one.fault}" for one in hosts if one.fault
    )
    named = named_hosts(granted.tools, run.listed_hosts, run.only_hosts)
    return found._replace(read=tuple(read), hosts=named)


def _grant_all(run: Run, reads: bool) -> Granted:
    """Return the grant of a skill that declares no tools, no less than that of one that does.

    It may start programs unless a rule mentions that, and read the host roots, if there are any, as
    if it had declared that.
    """
    granted: tuple[str, ...] = ()
    denied: tuple[tuple[str, str], ...] = ()
    decision = run.gate.spoken_of(run.request, SHELL_TOOLS)
    if decision is None or decision.allowed:
        granted = SHELL_TOOLS[:1]
    else:
        denied = ((SHELL_TOOLS[0], decision.reason),)
    if reads:
        found = run.gate.declared(run.skill, run.request, tools=("Read",))
        granted, denied = (*granted, *found.tools), (*denied, *found.denied)
    return Granted(granted, denied)


def _used_tools(run: Run) -> tuple[str, ...]:
    """Return the granted tools without those of the network that opened no host."""
    hosts = hosts_by_tool(run.granted_tools, run.listed_hosts, run.only_hosts)
    closed = {one.tool for one in hosts if not set(one.hosts) & set(run.capabilities.hosts)}
    return tuple(tool for tool in run.granted_tools if tool not in closed)


def _reachable(path: str) -> bool:
    return os.path.isdir(path) and blocking_folder(os.path.join(path, "x")) is None


def _prepare(run: Run, text: bytes) -> None:
    """Add to the job the variables that a script reads, and room for a long output."""
    job, name = run.job, run.skill.name
    variables = {
        "SKILL_ID": name,
        "SKILL_NAME": name,
        "SKILL_WORKSPACE": job.env["WORKSPACE_DIR"],
        "TIMEOUT_MS": str(round(job.timeout_seconds * 1000)),
    }
    # The environment that a module sees is not that of a process.
    if len(text) <= MAX_VARIABLE_BYTES or run.sandbox.name == WASM:
        variables["SKILL_INPUT"] = text.decode()
    else:
        missing = f"SKILL_INPUT is not set: {len(text)} bytes; the input is on stdin alone"
        run.warnings = (*run.warnings, missing)
    limits = run.limits._replace(max_stream_bytes=_room(run.limits))
    run.job = job._replace(env={**job.env, **variables}, limits=limits)


def _room(limits: Limits) -> int:
    return max(limits.max_stream_bytes, min(limits.max_output_file_bytes, OUTPUT_FILE_BYTES))


# Its result


def _cut_streams(outcome: Outcome, most: int) -> Outcome:
    """Cut each stream to the limit of a result."""
    streams = (outcome.stdout, outcome.stderr)
    stdout, stderr = (Captured(one.data[:most], one.total_bytes) for one in streams)
    hit = {"max_stream_bytes"} if stdout.truncated or stderr.truncated else set()
    named = tuple(sorted(hit.union(outcome.limits_hit)))
    return outcome._replace(stdout=stdout, stderr=stderr, limits_hit=named)


def _redact(outcome: Outcome, run: Run) -> Outcome:
    """Return the outcome with the run's secrets redacted in stdout, which becomes the output."""
    if not run.redacts:
        return outcome
    stream = Redactor(run.redacts)
    data = stream.more(outcome.stdout.data) + stream.end()
    total = outcome.stdout.total_bytes if outcome.stdout.truncated else len(data)
    return outcome._replace(stdout=Captured(data, total))


def _name_timeout(outcome: Outcome, timeout_ms: int, limits: Limits, usual: float) -> Outcome:
    """Report the timeout that ended the script: its own, where that is the shorter one."""
    if _seconds(timeout_ms, limits, usual) >= limits.run_timeout_seconds:
        return outcome
    own = "timeout_ms" if timeout_ms else "exec_timeout_seconds"
    named = (own if one == "run_timeout_seconds" else one for one in outcome.limits_hit)
    return outcome._replace(limits_hit=tuple(named))


def _execution(
    outcome: Outcome, result: RunResult, tools: tuple[str, ...], limits: Limits
) -> Execution:
    warnings = result.warnings
    if outcome.stdout.truncated:
        most = f"{_room(limits)} bytes (max_output_file_bytes)"
        warnings = (*warnings, f"stdout is longer than {most}, so there is no output")
    return Execution(
        output=_output(outcome.stdout),
        stdout=result.stdout,
        stderr=result.stderr,
        permissions_used=tools,
        exit_status=_status(outcome),
        enforced=result.enforced,
        sandbox=result.sandbox,
        duration_ms=result.duration_ms,
        warnings=warnings,
        limits_hit=result.limits_hit,
        output_files=result.output_files,
        artifact_files=result.artifact_files,
        written_files=result.written_files,
        errors=result.errors,
        hints=result.hints,
        observed=result.observed,
    )


def _output(stdout: Captured) -> object:
    """Parse all of stdout as one JSON value; None when it is truncated or not JSON."""
    if stdout.truncated or not stdout.data.strip():
        return None
    try:
        value: object = read_json(stdout.data)
    except ValueError:
        return None
    return value


def _status(outcome: Outcome) -> ExitStatus:
    kind: ExitKind = "failed" if outcome.exit_code else "success"
    return ExitStatus("timeout" if outcome.timed_out else kind, outcome.exit_code)
