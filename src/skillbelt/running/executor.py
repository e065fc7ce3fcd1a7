"""Where a run is made ready, carried out and cleared up after: one call, from start to result.

Stage, ask, provide, run, collect, record. Whatever is refused is refused before the command starts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from typing import Literal, NamedTuple, Self

from skillbelt.artifacts import ArtifactStore, SessionArtifacts, open_artifacts
from skillbelt.errors import ArtifactError, PermissionDenied, RunRefused
from skillbelt.files.contain import inside
from skillbelt.files.private import create_file
from skillbelt.format.skill import Skill
from skillbelt.hosts import leads_inside
from skillbelt.permission.command_lines import read_line
from skillbelt.permission.command_policy import (
    CommandPolicy,
    check_vector,
    clean_environment,
    policy_from,
    prepare,
)
from skillbelt.permission.gate import Gate, session_id
from skillbelt.permission.grants import named_hosts
from skillbelt.permission.packages import Environment
from skillbelt.permission.rules import SHELL_TOOLS, Initiator, Request
from skillbelt.running.call import (
    RunCall,
    RunResult,
    check_stdin,
    end_warnings,
    environment_warnings,
    left_behind,
    path_warnings,
    record_of,
    stream,
    stream_warnings,
    timeout_of,
    wanted_outputs,
    without_secrets,
)
from skillbelt.running.call_facts import ground_of, loose_files, touched
from skillbelt.running.cleanup import (
    LOCKS,
    Cleaned,
    clean_environments,
    clean_orphans,
    clean_workspaces,
    retire,
)
from skillbelt.running.inputs import HostInput, Inputs, StagedInput
from skillbelt.running.job import Place, make_job, own_script, script_named, shell, write_editor
from skillbelt.running.outputs import HINT, Collected, Save, Wanted, collect, primary
from skillbelt.running.packages.declared import Needs, needs_of
from skillbelt.running.questions import Wish, network_request, permitting, run_request
from skillbelt.running.room import room_for_a_run
from skillbelt.running.secrets import RedactingListener, secrets_of
from skillbelt.running.staging import Staged, check_unchanged, stage
from skillbelt.running.workspace import (
    SHELTERS,
    Workspace,
    name_of,
    open_workspace,
    place_of,
    places,
)
from skillbelt.sandbox.linux.identity import run_identity
from skillbelt.sandbox.network.proxy import Egress
from skillbelt.sandbox.protocol import Job, Listener, Outcome, Running, Sandbox
from skillbelt.sandbox.registry import Sandboxes
from skillbelt.settings import Settings
from skillbelt.store import SessionKey
from skillbelt.text import one_line
from skillbelt.tracing import skill_attributes, span
from skillbelt.values import Capabilities

# An unused workspace is removed after a week.
WORKSPACE_IDLE_SECONDS = 7 * 24 * 3600.0
# All workspaces together; the least recently used are removed first.
MAX_WORKSPACES_BYTES = 10 * 2**30

NO_ARTIFACTS = "none"
_DAY_SECONDS = 24 * 3600.0


class Who(NamedTuple):
    """Whose run it is: the conversation, who asked for it, the agent; and a gate of its own.

    `once` says that it belongs to no conversation: it has a workspace of its own, empty, that goes
    with it. Files that are to be had there alone stay: `named` ones are those whose text nobody is
    given with the result.
    """

    key: SessionKey
    initiator: Initiator = "model"
    agent: str = ""
    gate: Gate | None = None
    once: Literal["", "whole", "named"] = ""


class Seen(NamedTuple):
    """What somebody's answer is bound to, of what runs can write; looked at again at the start."""

    wish: Wish
    files: Mapping[str, str]
    remembered: bool

    def check(self, call: RunCall, *, alone: bool) -> None:
        """RunRefused when it is not any more what was asked for."""
        wish = self.wish
        now = loose_files(call, wish.line, wish.ground, wish.script).files
        changed = [name for name, sha256 in self.files.items() if now.get(name) != sha256]
        if changed:
            raise RunRefused(
                f"{', '.join(map(repr, changed[:5]))} in the workspace changed while the run was "
                "asked for; nothing was run; try again, and it is asked for as it is now"
            )
        if self.remembered and not alone and (self.files or not wish.script):
            raise RunRefused(
                "another run of this conversation began, which can change what this one uses, and "
                "a remembered answer does not cover that; nothing was run; try again, and it is "
                "asked for"
            )


class Ready(NamedTuple):
    """A run that only has to be started. Everything in it was allowed."""

    workspace: Workspace
    staged: Staged
    run: str
    job: Job
    request: Request
    call: RunCall
    wanted: Wanted | None
    sandbox: Sandbox
    homes: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    egress: Egress | None = None
    seen: Seen | None = None


class Workbench:
    """Runs the commands of skills for one project."""

    def __init__(
        self,
        settings: Settings,
        gate: Gate,
        find: Callable[[str], Skill],
        *,
        skills: Callable[[], Mapping[str, Skill]] = dict,
        artifacts: ArtifactStore | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        """`find` gives the skill of a name, `skills` all of them; `progress` hears what takes long.

        A file of the host that lies in one of the `skills` is given to who may have that skill.
        """
        self.settings, self.gate, self._find = settings, gate, find
        self._skills = skills
        self._artifacts, self._progress = artifacts, progress
        self._sandboxes = Sandboxes(settings, progress)

    def close(self) -> None:
        """Let go of what is kept ready for the next run."""
        self._sandboxes.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def policy(self) -> CommandPolicy:
        """The lists of commands of the settings."""
        return policy_from(self.settings.allowed_commands, self.settings.denied_commands)

    @property
    def has_artifacts(self) -> bool:
        """Whether there is a store of artifacts; the settings may say `none`."""
        return self._artifacts is not None or self.settings.artifacts_url != NO_ARTIFACTS

    def artifacts(self, key: SessionKey) -> SessionArtifacts:
        """The artifacts of a conversation; ArtifactError when there is no store of them."""
        if not self.has_artifacts:
            raise ArtifactError("there is no store of artifacts (artifacts_url)")
        return SessionArtifacts(self._store, key)

    @cached_property
    def _store(self) -> ArtifactStore:
        return self._artifacts or open_artifacts(self.settings, self.settings.artifacts_url)

    def gate_of(self, who: Who) -> Gate:
        """Where it is decided what that run may do: the conversation may have rules of its own."""
        return who.gate or self.gate

    @property
    def owner(self) -> tuple[int, int] | None:
        """Whom workspaces belong to, where commands run as somebody else."""
        return run_identity()

    @property
    def folder(self) -> str:
        """Where the workspaces of all conversations are asked for."""
        return os.path.join(self.settings.state_dir, "workspaces")

    def workspace(self, key: SessionKey) -> Workspace:
        """The workspace that a conversation has in this project, open; close it again."""
        with span("workspace.create", exec_id=session_id(key)):
            return open_workspace(self.folder, key, self.owner, self.settings.project)

    def _entered(self, who: Who, stack: ExitStack) -> Workspace:
        """The workspace of a run, open until the stack ends."""
        if not who.once:
            workspace = stack.enter_context(self.workspace(who.key))
            stack.enter_context(room_for_a_run(workspace, self.settings.limits))
            return workspace
        with span("workspace.create", exec_id=session_id(who.key)):
            workspace = open_workspace(self.folder, None, self.owner)
        stack.callback(self._left, workspace)
        return stack.enter_context(workspace)

    @staticmethod
    def _left(workspace: Workspace) -> None:
        """Remove the workspace of one run, unless something in it is still to be had."""
        if not workspace.wanted:
            retire(os.path.dirname(workspace.path), workspace.name)

    def tidy(self, *, now: bool = False) -> list[Cleaned]:
        """Remove workspaces and packages that nobody uses; once a day, unless it shall be `now`."""
        place = place_of(self.folder, self.owner)
        if not now and not _due(os.path.join(place, LOCKS, "tidied")):
            return []
        limits = self.settings.limits
        with span("workspace.cleanup", path=place):
            cleaned = clean_workspaces(
                place,
                idle_seconds=WORKSPACE_IDLE_SECONDS,
                max_bytes=MAX_WORKSPACES_BYTES,
                now=time.time(),
            )
        if self.owner is not None:
            idle = WORKSPACE_IDLE_SECONDS
            cleaned += clean_orphans(SHELTERS, idle_seconds=idle, now=time.time())
        for cache in places(self._packages_folder):
            with span("workspace.cleanup", path=cache):
                cleaned += clean_environments(cache, max_bytes=limits.max_packages_bytes)
        for one in cleaned:
            left = f"; left: {one_line(one.left[0])}" if one.left else ""
            self._say(f"cleared away {one.name} ({one.reason}): {one.size_bytes:,} bytes{left}")
        return cleaned

    @property
    def _packages_folder(self) -> str:
        return os.path.join(self.settings.cache_dir, "packages")

    def forget(self, key: SessionKey) -> bool:
        """Remove the workspace of a conversation; False when it is in use, or there is none."""
        name = name_of(key, self.owner, self.settings.project)
        there = [place for place in places(self.folder) if os.path.isdir(f"{place}/{name}")]
        return any(retire(place, name) is not None for place in there)

    # One run

    def run(
        self,
        skill: Skill,
        call: RunCall,
        who: Who,
        listener: Listener | None = None,
        started: Callable[[Running], None] | None = None,
    ) -> RunResult:
        """Run a command of a skill; RunRefused or PermissionDenied when it was not run.

        `started` is given the command once it runs, to talk to it or end it.
        """
        with self.ready(skill, call, who) as ready:
            result = self.finish(ready, self.carry_out(skill, ready, listener, started), who)
        self.tidy()
        return result

    def carry_out(
        self,
        skill: Skill,
        ready: Ready,
        listener: Listener | None = None,
        started: Callable[[Running], None] | None = None,
    ) -> Outcome:
        """Start the command that was made ready, and wait for its end.

        RunRefused when the skill is not any more what was asked for.
        """
        with ready.workspace.running() as others:
            check_unchanged(ready.workspace, ready.staged, self.settings.limits)
            if ready.seen is not None:
                ready.seen.check(ready.call, alone=not others)
            return self._started(skill, ready, listener, started)

    def _started(
        self,
        skill: Skill,
        ready: Ready,
        listener: Listener | None,
        started: Callable[[Running], None] | None,
    ) -> Outcome:
        self._say(f"running {skill.name}: {ready.call.shown}")
        secrets = secrets_of(ready.call.env)
        heard = RedactingListener(listener, secrets) if listener and secrets else None
        with span("workspace.run", **_run_facts(skill, ready)) as running:
            job = ready.job._replace(waited=True)
            outcome = _waited(ready.sandbox.start(job, heard or listener), started)
            if heard is not None:
                heard.end()
            running.set(exit_code=outcome.exit_code, timed_out=outcome.timed_out)
            return outcome

    def _say(self, text: str) -> None:
        if self._progress is not None:
            self._progress(text)

    @contextmanager
    def ready(
        self,
        skill: Skill,
        call: RunCall,
        who: Who,
        grant: Callable[[Request], Capabilities] | None = None,
        needs: str = "",
    ) -> Iterator[Ready]:
        """The run, made ready; what it needs is let go of when the block ends.

        `grant` says what an allowed run may do; each host among that is asked for. By default that
        is to start processes, and to reach the hosts that the skill names. `needs` names the only
        sandbox that can carry this out.
        """
        argv = self._argv(call)
        check_stdin(call, self.settings.limits)
        timeout_of(call, self.settings.limits.run_timeout_seconds)
        wanted, sandbox = wanted_outputs(call), self._sandboxes.of(skill, needs)
        self._saving(wanted, who)  # a store that can not be used is told before anything runs
        with ExitStack() as stack:
            workspace = self._entered(who, stack)
            self._say(f"staging {skill.name}")
            with span("workspace.stage.dir", **_skill_facts(skill)):
                staged = stage(workspace, skill, self.settings.limits)
            run = workspace.run_folder()
            stack.callback(workspace.end_run, run)
            place = Place(
                workspace=workspace, skill=skill.name, staged=staged, run=run, remaps=sandbox.remaps
            )
            others: dict[str, str] = {}
            inputs = stack.enter_context(self._inputs(call, place, others, who))
            line = read_line(call.text)
            script = own_script(place, call, line.commands)
            needed = script or script_named(place, call)
            needs_packages = needs_of(staged.path, needed or None)
            lowered = self._sandboxes.warnings(sandbox)
            wish = Wish(
                line=line,
                ground=ground_of(workspace, staged.path, call.cwd, skill.name),
                script=script,
                inputs=inputs,
                packages=tuple(needs_packages.requirements) if needs_packages else (),
                hosts=named_hosts(skill.frontmatter.allowed_tools),
                sandbox=sandbox.name,
                limits=self.settings.limits,
                where=f", in the sandbox {sandbox.name} alone" if lowered else "",
                beside=workspace.has_others(),
            )
            # A single script is no use of a shell: what it may start, the grant says.
            tools = () if grant else SHELL_TOOLS
            request = run_request(skill, call, wish, _asker(who, staged.hash, tools))
            self._require_use(skill, who, staged.hash, request)
            answered = self._answered(request, who)
            if call.editor_text is not None:
                write_editor(workspace, run, call.editor_text)
            put = inputs.place(self._permitting(skill, request, who))
            warnings = (
                *lowered,
                *environment_warnings(call, self.policy.active),
                *_warned(put),
            )
            seen = _seen(request, call, wish, answered, (run, *(one.to for one in put)))
            packages = self._packages(needs_packages, request, who, stack)
            granted = grant(request) if grant else _command(skill)
            hosts = tuple(host for host in granted.hosts if self._reaches(request, host, who))
            egress = self._egress(hosts, stack)
            place = place._replace(others=others)
            job = make_job(
                argv,
                call,
                place,
                granted._replace(hosts=hosts),
                self.settings.limits,
                packages=packages,
                egress=egress,
                policy=self.policy.active,
            )
            yield Ready(
                workspace=workspace,
                staged=staged,
                run=run,
                job=job,
                request=request,
                call=call,
                wanted=wanted,
                sandbox=sandbox,
                homes=place.homes,
                warnings=warnings,
                egress=egress,
                seen=seen,
            )

    def _require_use(self, skill: Skill, who: Who, hash: str, run: Request | None = None) -> None:
        """Refuse a skill that whoever asks may not have, and ask where a rule says so."""
        if skill.scope == "builtin":  # what an answer's code belongs to is nobody's skill
            return
        gate, key = self.gate_of(who), None if who.once else who.key
        request = gate.load_request(skill, who.initiator, who.agent, key, hash)
        gate.require_use(request, run)

    def _permitting(self, own: Skill, request: Request, who: Who) -> Callable[[HostInput], None]:
        """What asks for files of the host, and for each other skill that they are a part of."""
        permit = permitting(self.gate_of(who), request)

        def permit_host(host: HostInput) -> None:
            paths = (host.path, *host.files)
            for skill in self._skills().values():
                folder = os.path.realpath(skill.dir)
                if skill.dir != own.dir and any(inside(path, folder) for path in paths):
                    self._require_use(skill, who, "")
            permit(host)

        return permit_host

    def _answered(self, request: Request, who: Who) -> str:
        """How the run was allowed; PermissionDenied when it was not."""
        decision = self.gate_of(who).check(request)
        if not decision.allowed:
            raise PermissionDenied(request.skill or request.type, decision.reason)
        return decision.by

    def _argv(self, call: RunCall) -> tuple[str, ...]:
        check_vector(() if isinstance(call.command, str) else call.command, call.env)
        clean_environment(call.env)  # what is wrong with it is told before anybody is asked
        if isinstance(call.command, str):
            words = prepare(call.command, self.policy)
            # What stands before the command is ours, so no PATH of the caller's leads there.
            return words if self.policy.active else (shell(), *words[1:])
        if not call.command or not call.command[0].strip():
            raise RunRefused("skill and command are required")
        return prepare(call.text, self.policy) if self.policy.active else call.command

    # What it works on

    def _inputs(self, call: RunCall, place: Place, others: dict[str, str], who: Who) -> Inputs:
        """The inputs of the call, copied aside; `others` gets the copies of skills they need."""

        def stage_other(name: str) -> str:
            # The skill that runs stays the copy that was asked for.
            if name == place.skill:
                return place.staged.home
            other = self._find(name)
            found = stage(place.workspace, other, self.settings.limits)
            self._require_use(other, who, found.hash)
            return others.setdefault(name, found.home)

        if not call.inputs:
            return Inputs(place.workspace, ())
        self._say(f"bringing in {len(call.inputs)} inputs")
        with span("workspace.stage.files", count=len(call.inputs)):
            return Inputs(
                place.workspace,
                call.inputs,
                artifacts=self.artifacts(who.key) if self.has_artifacts else None,
                host_roots=self.host_roots,
                stage_skill=stage_other,
                run=place.run,
                remaps=place.remaps,
                limits=self.settings.limits,
            )

    @property
    def host_roots(self) -> tuple[str, ...]:
        """The folders that files may be taken from unasked; the project's own by default."""
        return self.settings.host_roots or (self.settings.project,)

    def _packages(
        self, needs: Needs | None, request: Request, who: Who, stack: ExitStack
    ) -> Environment | None:
        """The packages that the skill declares, and all that these need, once they are allowed."""
        if needs is None or not needs.requirements:
            return None
        # Most runs need none, and it takes long to import.
        from skillbelt.running.provide_packages import packages_for

        cache, gate = place_of(self._packages_folder, self.owner), self.gate_of(who)
        asked = packages_for(needs, request, gate, self.settings, cache, self._progress)
        return stack.enter_context(asked)

    def _reaches(self, request: Request, host: str, who: Who) -> bool:
        asked = network_request(request, host)
        decision = self.gate_of(who).check(asked)
        # The skill named the address. One that is not public needs more than a rule about all.
        by_the_way = decision.by == "rule" and decision.rule.pattern not in (host, *asked.patterns)
        return decision.allowed and not (by_the_way and leads_inside(host))

    def _egress(self, hosts: tuple[str, ...], stack: ExitStack) -> Egress | None:
        if not hosts:
            return None
        owner = self.owner
        limits = self.settings.limits
        return stack.enter_context(Egress(hosts, limits=limits, owner=owner and owner[0]))

    # Afterwards

    def finish(self, ready: Ready, outcome: Outcome, who: Who) -> RunResult:
        """Collect what the run left, write it down, and put the result together."""
        if ready.egress is not None:
            ready.egress.close()  # what was still open is told then
        patterns = ready.wanted.globs if ready.wanted else ()
        self._say("collecting")
        with span("workspace.collect", patterns=", ".join(patterns), count=len(patterns)):
            collected = self._collected(ready, outcome, who)
        if who.once:  # there is no conversation in which a file could be named again
            said = tuple(text for text in collected.warnings if text != HINT)
            collected = collected._replace(warnings=said)
        result = _result(ready, outcome, collected)
        if who.once and left_behind(result, ready.workspace.results(), shown=who.once == "whole"):
            ready.workspace.wanted = True
            told = f"its files are kept in {ready.workspace.path} until they are cleared away"
            result = result._replace(warnings=(*result.warnings, told))
        result = without_secrets(result, ready.call)
        self.gate_of(who).record("run", ready.request, record_of(result, ready.call))
        return result

    def _collected(self, ready: Ready, outcome: Outcome, who: Who) -> Collected:
        limits, omit = self.settings.limits, ready.call.omit_inline_content
        if ready.wanted is None:
            found = primary(ready.workspace.path, limits, omit_content=omit)
            return Collected(
                files=(), primary=found, saved=(), limits_hit=(), warnings=(), errors=()
            )
        return collect(
            ready.workspace.path,
            ready.wanted,
            limits,
            run=ready.run,
            homes=ready.homes,
            exit_code=outcome.exit_code,
            omit_content=omit,
            save=self._saving(ready.wanted, who),
        )

    def _saving(self, wanted: Wanted | None, who: Who) -> Save | None:
        """What keeps a file, when files are to be kept and there is somewhere to keep them."""
        if wanted is None or not wanted.save or not self.has_artifacts:
            return None
        return self.artifacts(who.key).save


def _waited(running: Running, started: Callable[[Running], None] | None) -> Outcome:
    """The outcome; whoever is interrupted meanwhile leaves nothing running."""
    try:
        if started is not None:
            started(running)
        outcome = running.wait()
    except BaseException:
        running.kill()
        running.wait()
        raise
    assert outcome is not None
    return outcome


def _asker(who: Who, hash: str, tools: tuple[str, ...]) -> Request:
    """Who asks for a run, and for which copy of the skill."""
    return Request(
        "run",
        (),
        initiator=who.initiator,
        agent=who.agent,
        session=session_id(who.key),
        hash=hash,
        tools=tools,
    )


def _seen(
    request: Request, call: RunCall, wish: Wish, answered: str, put: Iterable[str]
) -> Seen | None:
    """What an answer is bound to; nothing where a rule allowed it, whatever lies there.

    What the run itself was given there meanwhile, the answer held by other facts.
    """
    if answered not in ("once", "always", "remembered"):
        return None
    facts = request.metadata["call"]
    told = facts.get("files", {}) if isinstance(facts, Mapping) else {}
    fresh = touched(told, wish.ground, put)
    if fresh:
        now = loose_files(call, wish.line, wish.ground, wish.script).files
        told = {**told, **{name: now[name] for name in fresh if name in now}}
    return Seen(wish, told, answered == "remembered")


def _warned(staged: Iterable[StagedInput]) -> tuple[str, ...]:
    return tuple(one.warning for one in staged if one.warning)


def _command(skill: Skill) -> Capabilities:
    return Capabilities(hosts=named_hosts(skill.frontmatter.allowed_tools), processes=True)


def _due(mark: str) -> bool:
    """Whether it is a day since this was last so; the mark is then set to now."""
    with suppress(FileNotFoundError):
        if time.time() - os.stat(mark).st_mtime < _DAY_SECONDS:
            return False
    create_file(mark)
    os.utime(mark)
    return True


def _result(ready: Ready, outcome: Outcome, collected: Collected) -> RunResult:
    reached = ready.egress.connections if ready.egress else ()
    hit = (*outcome.limits_hit, *collected.limits_hit)
    hit += ready.egress.limits_hit if ready.egress else ()
    return RunResult(
        stdout=stream(outcome.stdout),
        stderr=stream(outcome.stderr),
        exit_code=outcome.exit_code,
        timed_out=outcome.timed_out,
        duration_ms=round(outcome.duration_seconds * 1000),
        output_files=collected.files,
        primary_output=collected.primary,
        artifact_files=collected.saved,
        warnings=(
            *ready.warnings,
            *path_warnings(ready.call, outcome),
            *stream_warnings(outcome),
            *end_warnings(outcome),
            *collected.warnings,
        ),
        limits_hit=tuple(dict.fromkeys(hit)),
        sandbox=ready.sandbox.name,
        enforced=outcome.enforced,
        hosts=tuple(sorted({f"{one.host}:{one.port}" for one in reached if one.allowed})),
        cancelled=outcome.cancelled,
        errors=tuple(collected.errors),
    )


def _skill_facts(skill: Skill) -> Mapping[str, str]:
    return skill_attributes(skill.name, skill.location, skill.origin.url)


def _run_facts(skill: Skill, ready: Ready) -> Mapping[str, object]:
    return {**_skill_facts(skill), "cmd": ready.call.shown, "cwd": ready.job.cwd}
