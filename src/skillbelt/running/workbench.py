"""The workbench: check, stage, ask for, provide, start, collect and record a run, in this order.

Everything that can be refused is refused before the command starts. An executor (`executors`)
starts the command, on this machine or on another one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Self

from skillbelt.artifacts import ArtifactStore, SessionArtifacts, open_artifacts
from skillbelt.artifacts.protocol import USER_PREFIX
from skillbelt.discovery.catalog import Snapshot
from skillbelt.errors import (
    ArtifactError,
    DiskFull,
    PermissionDenied,
    RunRefused,
    SandboxUnavailable,
    SkillbeltError,
    is_disk_full,
)
from skillbelt.files.contain import inside
from skillbelt.files.private import create_file
from skillbelt.format.skill import Skill
from skillbelt.hosts import is_this_machine, leads_inside
from skillbelt.late import made_once
from skillbelt.metrics import count, held, observe
from skillbelt.permission.command_lines import read_line
from skillbelt.permission.command_policy import (
    CommandPolicy,
    check_vector,
    clean_environment,
    policy_from,
    prepare,
)
from skillbelt.permission.gate import Gate, named_project, session_id
from skillbelt.permission.grants import hosts_by_tool
from skillbelt.permission.packages import LockedPackages
from skillbelt.permission.rules import SHELL_TOOLS, Request
from skillbelt.running.call import (
    Asker,
    RunCall,
    RunResult,
    check_stdin,
    details_of,
    end_warnings,
    environment_warnings,
    left_behind,
    path_warnings,
    record_of,
    save_warnings,
    stream,
    stream_warnings,
    timeout_of,
    timeout_warnings,
    wanted_outputs,
    without_secrets,
)
from skillbelt.running.cleanup import (
    LOCKS,
    Cleaned,
    clean_environments,
    clean_orphans,
    clean_workspaces,
    retire,
)
from skillbelt.running.executors import Executor, LocalExecutor
from skillbelt.running.following import UNWATCHED, Watch
from skillbelt.running.history import (
    PastRun,
    RunHistory,
    RunRecorder,
    begin_record,
    record_output,
)
from skillbelt.running.inputs import HostInput, Inputs
from skillbelt.running.job import (
    make_job,
    own_script,
    shell,
    show_programs,
    start_folder,
    write_editor,
)
from skillbelt.running.named_files import ground_of
from skillbelt.running.needed_packages import StartedIn, Wishes, find_needs
from skillbelt.running.observed import add_observed
from skillbelt.running.outputs import (
    HINT,
    Collected,
    OutputFolder,
    Save,
    check_folder,
    collect,
    primary,
)
from skillbelt.running.packages.declared import Needs
from skillbelt.running.questions import (
    bind_answer,
    check_answer,
    network_request,
    require_file,
    run_request,
)
from skillbelt.running.quota import quota_for_run
from skillbelt.running.run import Run
from skillbelt.running.secret_grants import find_secrets, give_secrets
from skillbelt.running.secret_store import SecretStore
from skillbelt.running.secrets import RedactingListener
from skillbelt.running.slots import SLOTS, busy_without_handles
from skillbelt.running.spare_workspaces import SpareWorkspaces
from skillbelt.running.staging import check_unchanged, stage
from skillbelt.running.workspace import (
    SHELTERS,
    SKILLS,
    Workspace,
    open_workspace,
    place_of,
    places,
    prefix_of,
)
from skillbelt.sandbox.linux.identity import run_identity
from skillbelt.sandbox.network.connection import Connection
from skillbelt.sandbox.protocol import Outcome, run_to_end
from skillbelt.sandbox.registry import CONTAINER, WASM
from skillbelt.settings import Settings, process_environment
from skillbelt.store import SessionKey
from skillbelt.text import one_line
from skillbelt.tracing import skill_attributes, span
from skillbelt.values import Capabilities, Limits

if TYPE_CHECKING:
    from skillbelt.running.workspace_keeper import WorkspaceKeeper

# An unused workspace is removed after a week.
WORKSPACE_IDLE_SECONDS = 7 * 24 * 3600.0
# All workspaces together; the least recently used are removed first.
MAX_WORKSPACES_BYTES = 10 * 2**30

NO_ARTIFACTS = "none"
LockedFiles = Callable[[Skill], Mapping[str, LockedPackages]]
_MAX_REFUSED = 5
_DAY_SECONDS = 24 * 3600.0


class Workbench:
    """Runs the commands of skills for one project."""

    def __init__(
        self,
        settings: Settings | Callable[[], Settings],
        gate: Gate,
        find: Callable[[str], Skill],
        *,
        skills: Callable[[], Mapping[str, Skill]] = dict,
        artifacts: ArtifactStore | None = None,
        progress: Callable[[str], None] | None = None,
        executor: Executor | None = None,
        locked: LockedFiles = lambda skill: {},
    ) -> None:
        """Create a workbench; `find` returns a skill by name, `skills` all.

        `progress` gets status texts. A host file that belongs to one of the `skills` needs the
        permission to use that skill. Commands run on this machine, unless an `executor` carries
        them out elsewhere. `locked` returns the packages that the lock of a skill names, by the
        file that declares them.
        """
        self._settings, self.gate, self.find = settings, gate, find
        self._skills, self._locked = skills, locked
        self._artifacts, self._progress = artifacts, progress
        self._given: dict[str, str] = {}
        self._executor: Executor = executor or LocalExecutor(self.settings, progress)
        self._runs_elsewhere = bool(getattr(self._executor, "elsewhere", False))
        self._spare = SpareWorkspaces()

    @property
    def settings(self) -> Settings:
        """Return the current settings; the sandboxes keep those they started with."""
        return self._settings() if callable(self._settings) else self._settings

    def close(self) -> None:
        """Release everything kept ready for the next run."""
        self._spare.remove()
        self._executor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def policy(self) -> CommandPolicy:
        """Return the allow and deny lists of commands in the settings."""
        return policy_from(self.settings.allowed_commands, self.settings.denied_commands)

    @property
    def has_artifacts(self) -> bool:
        """Whether there is an artifact store; the setting may be `none`."""
        return self._artifacts is not None or self.settings.artifacts_url != NO_ARTIFACTS

    def artifacts(self, key: SessionKey) -> SessionArtifacts:
        """Return the artifacts of a conversation; ArtifactError without an artifact store."""
        if not self.has_artifacts:
            raise ArtifactError("there is no artifact store (artifacts_url)")
        return SessionArtifacts(self._store, key)

    @made_once
    def _store(self) -> ArtifactStore:
        return self._artifacts or open_artifacts(self.settings, self.settings.artifacts_url)

    @property
    def owner(self) -> tuple[int, int] | None:
        """Return the user and group that own workspaces, where commands run as another user."""
        return run_identity()

    @property
    def folder(self) -> str:
        """Return the folder of all workspaces."""
        return os.path.join(self.settings.state_dir, "workspaces")

    def workspace(self, key: SessionKey) -> Workspace:
        """Open the workspace of a conversation in this project; the caller closes it."""
        with span("workspace.create", exec_id=session_id(key)) as creating:
            workspace = open_workspace(self.folder, key, self.owner, self.settings.project)
            creating.set(path=workspace.path)
        if self._keeper is not None:
            try:
                self._keeper.restore(workspace, key)
            except BaseException:
                workspace.close()
                raise
        return workspace

    @made_once
    def _keeper(self) -> WorkspaceKeeper | None:
        """Return the keeper that shares workspaces with other machines; None on one machine."""
        if not self.settings.objects:
            return None
        # cost: 20 ms, only with many machines
        from skillbelt.running.workspace_keeper import WorkspaceKeeper

        # Machines that share a project by its name may have it in different folders.
        name = named_project(self.settings, self.gate.policy.project_trusted)
        return WorkspaceKeeper(self.settings, name or self.settings.project)

    def tidy(self, *, now: bool = False) -> list[Cleaned]:
        """Remove unused workspaces and packages; once a day, or `now`."""
        place = place_of(self.folder, self.owner)
        if not now and not _claim_daily(os.path.join(place, LOCKS, "tidied")):
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
            # The shelters belong to all projects: one of these checks them each day.
            shelters = [one for one in SHELTERS if os.path.isdir(one)]
            due = [one for one in shelters if now or _claim_daily(os.path.join(one, ".tidied"))]
            idle = WORKSPACE_IDLE_SECONDS
            cleaned += clean_orphans(due, idle_seconds=idle, now=time.time())
        if self._keeper is not None:
            cleaned += self._keeper.clean(self.folder)
        for cache in places(self._packages_folder):
            with span("workspace.cleanup", path=cache):
                cleaned += clean_environments(cache, max_bytes=limits.max_packages_bytes)
        for one in cleaned:
            left = f"; left: {one_line(one.left[0])}" if one.left else ""
            self._report_progress(
                f"cleared away {one.name} ({one.reason}): {one.size_bytes:,} bytes{left}"
            )
        return cleaned

    @property
    def secret_store(self) -> SecretStore:
        """Return the user's secrets."""
        return SecretStore(self.settings)

    @property
    def given_secrets(self) -> dict[str, str]:
        """Return the secrets that runs of this workbench got so far, to redact them elsewhere."""
        return dict(self._given)

    @property
    def _packages_folder(self) -> str:
        return os.path.join(self.settings.cache_dir, "packages")

    def forget(self, key: SessionKey) -> bool:
        """Remove the workspaces of a conversation, in all projects; return whether one was removed.

        Those that a run uses stay. Their snapshots in the object store are removed too.
        """
        gone = self._keeper.forget(key) if self._keeper else 0
        found = self.workspaces(key)
        for path in found:
            with span("workspace.cleanup", exec_id=session_id(key), path=path):
                gone += retire(*os.path.split(path)) is not None
        if forget := getattr(self._executor, "forget", None):
            forget(key, [os.path.basename(path) for path in found])
        return gone > 0

    def forget_deleted(self) -> None:
        """Remove workspaces of conversations that were deleted on other machines meanwhile."""
        if self._keeper is not None:
            self._keeper.clean(self.folder)

    def workspaces(self, key: SessionKey) -> list[str]:
        """Return the folders of a conversation's workspaces."""
        prefix, found = prefix_of(key), []
        for place in filter(os.path.isdir, places(self.folder)):
            found += [f"{place}/{name}" for name in os.listdir(place) if name.startswith(prefix)]
        return sorted(found)

    def forget_artifacts(self, key: SessionKey) -> bool:
        """Delete the artifacts of a conversation; return whether there was one.

        Artifacts that all sessions of the user share are kept.
        """
        if not self.has_artifacts:
            return False
        store = self._store
        own = [one.name for one in store.latest(key) if not one.name.startswith(USER_PREFIX)]
        return sum(store.delete(key, name) for name in own) > 0

    def forget_runs(self, key: SessionKey) -> int:
        """Delete a conversation's runs from the history; return how many."""
        return RunHistory(self.gate.store).forget(session_id(key))

    # One run

    def run(
        self,
        skill: Skill,
        call: RunCall,
        who: Asker,
        watch: Watch = UNWATCHED,
    ) -> RunResult:
        """Run a command of a skill; RunRefused or PermissionDenied when it was not run."""
        with _count_refusals(), self.prepare(skill, call, who) as run:
            self.carry_out(run, watch)
            result = self.finish(run)
        self.tidy()
        return result

    @contextmanager
    def prepare(
        self,
        skill: Skill,
        call: RunCall,
        who: Asker,
        *,
        grant: Callable[[Run], Capabilities] | None = None,
        needs: str = "",
        observed: bool = False,
        secrets: bool = True,
    ) -> Iterator[Run]:
        """Yield the run, allowed and ready to start; the end of the block releases its resources.

        `grant` returns the capabilities of the allowed run; each host in it is asked for. The
        default is to start processes, and to reach the hosts that the skill names. `needs` names
        the only sandbox that can carry this out. `observed` makes the proxy record which hosts the
        command asks for even where it may reach none. Without `secrets` it gets no stored secret,
        even if a rule allows it.
        """
        with busy_without_handles(), ExitStack() as stack:
            with _raise_disk_full():
                run = self._check(skill, call, who, needs)
                run.observed = observed and run.remaps
                with run.clock.step("stage"):
                    self._stage(run, stack)
                with run.clock.step("ask"):
                    # A single script does not use a shell; the grant says which programs it may
                    # start.
                    self._ask(run, () if grant else SHELL_TOOLS, secrets=secrets)
                with run.clock.step("provide"):
                    self._provide(run, grant or _grant_commands, stack)
                    run.job = make_job(run)
            stack.callback(_give_up_record, run)
            yield run

    def carry_out(self, run: Run, watch: Watch = UNWATCHED) -> Outcome:
        """Start the command and wait for its end.

        RunRefused when the skill changed since the question.
        """
        with run.workspace.running() as others:
            check_unchanged(run.workspace, run.staged, run.limits)
            check_answer(run, alone=not others)
            if watch.is_over is not None and watch.is_over():
                raise RunRefused("the call was cancelled before the command started")
            run.began = run.workspace.mark_time()
            self._report_progress(f"running {run.skill.name}: {run.shown}")
            run.recorder = _begin_record(run) if run.gate.is_recorded else None
            run.followed = watch.listener is not None
            watch, secrets = record_output(watch, run.recorder), run.redacts
            listener = watch.listener
            redacting = RedactingListener(listener, secrets) if listener and secrets else None
            facts = {**_skill_facts(run.skill), "cmd": run.shown, "cwd": run.job.cwd}
            with span("workspace.run", **facts) as running:
                job = run.job._replace(waited=True)
                with run.clock.step("run"), SLOTS.hold(job.timeout_seconds), held("runs_running"):
                    run.outcome = outcome = run_to_end(
                        lambda: self._executor.start(run, job, redacting or listener),
                        watch.started,
                    )
                if redacting is not None:
                    redacting.end()
                running.set(exit_code=outcome.exit_code, timed_out=outcome.timed_out)
                _count_outcome(outcome, run.sandbox.name)
                return outcome

    def _report_progress(self, text: str) -> None:
        if self._progress is not None:
            self._progress(text)

    # Its steps

    def _check(self, skill: Skill, call: RunCall, who: Asker, needs: str) -> Run:
        """Return the run, or raise for a call that cannot be carried out; nothing is changed."""
        said, limits = self.settings.for_skill(skill.name), self.limits_for(skill)
        call = call._replace(
            env={**said.values, **call.env},
            timeout_seconds=call.timeout_seconds or min(said.timeout, limits.run_timeout_seconds),
        )
        argv = self._argv(call)
        check_stdin(call)
        timeout_of(call, limits.run_timeout_seconds)
        # Users need no permission for what their own settings allow.
        most = self.settings.limits.max_output_file_bytes if who.initiator == "user" else 0
        run = Run(
            skill=skill,
            call=call,
            who=who,
            gate=who.gate or self.gate,
            limits=limits,
            wanted=wanted_outputs(call, most),
            sandbox=self._executor.of(skill, needs, said),
            argv=argv,
            listed_hosts=self.settings.fetch_hosts,
            only_hosts=said.hosts,
            policy=self.policy.active,
            known_secrets=self.given_secrets,
            gpus=said.gpus,
        )
        self._saving(run)  # refuse an unusable store or folder before anything runs
        check_folder(call.output_dir)
        return run

    def limits_for(self, skill: Skill) -> Limits:
        """Return the limits of a run of the skill, with the timeout that the settings give it."""
        limits, own = self.settings.limits, self.settings.for_skill(skill.name).timeout
        most = min(own or limits.run_timeout_seconds, limits.run_timeout_seconds)
        return limits._replace(run_timeout_seconds=most)

    def _argv(self, call: RunCall) -> tuple[str, ...]:
        check_vector(() if isinstance(call.command, str) else call.command, call.env)
        clean_environment(call.env)  # refuse errors in it before anyone is asked
        if isinstance(call.command, str):
            words = prepare(call.command, self.policy)
            # The shell is ours: the caller's PATH does not apply to it.
            return words if self.policy.active else (shell(), *words[1:])
        if not call.command or not call.command[0].strip():
            raise RunRefused("skill and command are required")
        return prepare(call.text, self.policy) if self.policy.active else call.command

    def _stage(self, run: Run, stack: ExitStack) -> None:
        """Copy the skill into the workspace, and the inputs to a private folder."""
        run.workspace = self._enter_workspace(run, stack)
        self._report_progress(f"staging {run.skill.name}")
        seconds = timeout_of(run.call, run.limits.run_timeout_seconds)
        # Not held while a person is asked, as for inputs that come from another skill.
        place = f"{SKILLS}/{run.skill.name}"
        facts = {**_skill_facts(run.skill), "host_path": run.skill.dir, "to": place}
        traced = span("workspace.stage.dir", **facts, mount_used=run.remaps)
        with traced as staging, SLOTS.hold(seconds):
            run.staged = stage(run.workspace, run.skill, run.limits)
            staging.set(path=run.staged.path)
        run.folder = run.workspace.run_folder()
        stack.callback(run.workspace.end_run, run.folder)
        run.inputs = stack.enter_context(self._inputs(run))

    def _enter_workspace(self, run: Run, stack: ExitStack) -> Workspace:
        """Return the workspace of a run, open until the stack ends."""
        who = run.who
        if not who.once:
            workspace = stack.enter_context(self.workspace(who.key))
            stack.enter_context(quota_for_run(workspace, self.settings.limits))
            return workspace
        with span("workspace.create", exec_id=session_id(who.key)) as creating:
            if self._runs_elsewhere:
                # No command writes here: the next run can use the same copy of the skill.
                purpose = (*who.key[:2], run.skill.dir)
                workspace = self._spare.take(purpose) or self._open_once()
                stack.callback(self._spare.put_aside, workspace, purpose)
            else:
                workspace = self._open_once()
                stack.callback(self._leave_workspace, workspace)
                stack.enter_context(workspace)
            creating.set(path=workspace.path)
        return workspace

    def _open_once(self) -> Workspace:
        return open_workspace(self.folder, None, self.owner)

    @staticmethod
    def _leave_workspace(workspace: Workspace) -> None:
        """Remove the workspace of a single run, unless it holds files that exist nowhere else."""
        if not workspace.wanted:
            retire(os.path.dirname(workspace.path), workspace.name)

    def _inputs(self, run: Run) -> Inputs:
        """Return the inputs of the call, copied to a private folder.

        `run.others` gets the skills they need.
        """

        def stage_other(name: str) -> str:
            # The skill that runs stays the copy that was approved.
            if name == run.skill.name:
                return run.staged.home
            other = self.find(name)
            found = stage(run.workspace, other, run.limits)
            self._require_use(run, other, found.hash)
            return run.others.setdefault(name, found.home)

        if not run.call.inputs:
            return Inputs(run.workspace, ())
        self._report_progress(f"bringing in {len(run.call.inputs)} inputs")
        with span("workspace.stage.files", count=len(run.call.inputs)) as staging:
            inputs = Inputs(
                run.workspace,
                run.call.inputs,
                artifacts=self.artifacts(run.who.key) if self.has_artifacts else None,
                host_roots=self.host_roots,
                stage_skill=stage_other,
                run=run.folder,
                remaps=run.remaps,
                limits=run.limits,
            )
            staging.set(to=inputs.places, host_path=inputs.host_paths, mount_used=False)
            return inputs

    @property
    def host_roots(self) -> tuple[str, ...]:
        """Return the folders whose files need no permission; by default the project's own."""
        return self.settings.host_roots or (self.settings.project,)

    def _ask(self, run: Run, tools: tuple[str, ...], *, secrets: bool = True) -> None:
        """Ask for the run, then put its inputs in place; raise PermissionDenied."""
        run.line = read_line(run.call.text)
        run.script = own_script(run)
        run.needs = self._needs(run)
        lowered = self._executor.warnings(run.sandbox)
        run.ground = ground_of(run.workspace, run.staged.path, run.call.cwd, run.skill.name)
        where = f", in the sandbox {run.sandbox.name} alone" if lowered else ""
        if secrets:
            find_secrets(run, self.secret_store, self.settings.for_skill(run.skill.name))
        run.request = run_request(run, tools, where)
        self._require_use(run, run.skill, run.staged.hash, run.request)
        decision = run.gate.check(run.request)
        if not decision.allowed:
            raise PermissionDenied(run.request.skill or run.request.type, decision.reason)
        if run.call.editor_text is not None:
            write_editor(run, run.call.editor_text)
        put = run.inputs.place(lambda host: self._require_file(run, host))
        run.warnings = (
            *lowered,
            *environment_warnings(run.call, self.policy.active),
            *timeout_warnings(run.call, run.limits.run_timeout_seconds),
            *save_warnings(run.call),
            *(f"{one.message}; {one.remedy}" for one in run.staged.diagnostics),
            *(one.warning for one in put if one.warning),
            *run.missing_secrets,
        )
        bind_answer(run, decision.by, (run.folder, *(one.to for one in put)))

    def _needs(self, run: Run) -> Needs | None:
        """Return the packages for the run; None where it runs without."""
        call, settings = run.call, self.settings
        if not call.install:
            return None
        own = settings.for_skill(run.skill.name).packages
        by = "--with" if run.who.initiator == "user" else "the call"
        sources = (by if call.packages else "", "the settings" if own else "")
        # A module has no packages, and an image has its own.
        foreign = run.sandbox.name == CONTAINER and bool(settings.container_image)
        return find_needs(
            StartedIn(run.staged.path, run.workspace.path, start_folder(run)),
            call.command,
            script=run.script,
            stdin=call.stdin or b"",
            wishes=Wishes(
                (*own, *call.packages),
                named_by=" and ".join(filter(None, sources)),
                guess=run.sandbox.name != WASM and not foreign,
                locked=partial(self._locked, run.skill),
            ),
        )

    def _require_use(
        self, run: Run, skill: Skill, hash: str, request: Request | None = None
    ) -> None:
        """Refuse a skill that the asker may not use, and ask where a rule says so."""
        if skill.scope == "builtin":  # code in a model's reply belongs to no skill of a user
            return
        who = run.who
        session = None if who.once else who.key
        wanted = run.gate.load_request(skill, who.initiator, who.agent, session=session, hash=hash)
        run.gate.require_use(wanted, request)

    def _require_file(self, run: Run, host: HostInput) -> None:
        """Ask for files of the host, and for each other skill that they belong to."""
        paths = (host.path, *host.files)
        if any(inside(path, self.secret_store.folder) for path in paths):
            raise PermissionDenied(run.skill.name, "your secrets cannot be an input of a run")
        known = self._skills()
        disabled = known.disabled if isinstance(known, Snapshot) else {}
        for name, (skill, where) in disabled.items():
            if any(inside(path, os.path.realpath(skill.dir)) for path in paths):
                raise PermissionDenied(name, f"the skill of this file is disabled by {where}")
        for skill in known.values():
            folder = os.path.realpath(skill.dir)
            if skill.dir != run.skill.dir and any(inside(path, folder) for path in paths):
                self._require_use(run, skill, "")
        require_file(run, host)

    def _provide(self, run: Run, grant: Callable[[Run], Capabilities], stack: ExitStack) -> None:
        """Install the packages and open the network, after each was allowed."""
        if run.needs is not None and run.needs.requirements:
            # cost: 20 ms, most runs need no packages
            from skillbelt.running.provide_packages import PackageProvider

            cache = place_of(self._packages_folder, self.owner)
            provider = PackageProvider(run.gate, self.settings, cache, self._progress)
            provided = stack.enter_context(provider.provide(run.request, run.needs))
            run.packages, run.planned = provided.environment, provided.planned
            run.warnings += provided.warnings
        if run.stored:
            run.secrets = give_secrets(run, self.secret_store)
            self._remember_given(run)
        show_programs(run, self.settings)
        granted = grant(run)
        refused = {host: why for host in granted.hosts if (why := _refusal(run, host))}
        hosts = tuple(host for host in granted.hosts if host not in refused)
        run.warnings += tuple(f"{host} is not opened: {why}" for host, why in refused.items())
        run.capabilities = granted._replace(hosts=hosts)
        if hosts or run.observed:
            owner = self.owner and self.owner[0]
            run.egress = stack.enter_context(self._executor.open_network(run, hosts, owner))

    def _remember_given(self, run: Run) -> None:
        """Keep the values in memory: later runs may print them from files, and are redacted too."""
        for name, value in run.secrets.items():
            if value not in self._given.values():
                self._given[f"{os.urandom(4).hex()}/{name}"] = value

    # Afterwards

    def finish(self, run: Run) -> RunResult:
        """Collect the files of the run, record it, and return the result."""
        with run.clock.step("collect"):
            result = self._gather(run)
        facts = record_of(result, run.shown, run.secrets)
        if run.recorder is not None:
            facts["run"] = run.recorder.id
            details = {**facts, **details_of(result, run.call, run.inputs.places)}
            run.recorder.end(details, run.clock.steps)
            run.recorder = None
        steps = {one.name: one.duration_ms for one in run.clock.steps}
        run.gate.record("run", run.request, {**facts, "steps_ms": steps})
        return result

    def _gather(self, run: Run) -> RunResult:
        """Collect the files of the run, and return the result without secrets."""
        if run.egress is not None:
            run.egress.close()  # reports the connections that were still open
        patterns = run.wanted.globs if run.wanted else ()
        self._report_progress("collecting")
        with span("workspace.collect", patterns=", ".join(patterns), count=len(patterns)):
            collected = self._collect(run)
        once = run.who.once
        if once:  # without a conversation, no later call can name a file
            kept = tuple(text for text in collected.warnings if text != HINT)
            collected = collected._replace(warnings=kept)
        result = self._with_hints(run, _result(run, collected))
        if once and left_behind(result, run.workspace.results(), shown=once == "whole"):
            run.workspace.wanted = True
            warning = f"its files are kept in {run.workspace.path} until they are cleared away"
            result = result._replace(warnings=(*result.warnings, warning))
        if self._keeper is not None and not once:
            warning = self._keeper.keep(run.workspace, run.who.key)
            result = result._replace(warnings=(*result.warnings, *filter(None, (warning,))))
        return add_observed(run, without_secrets(result, run.redacts))

    def _with_hints(self, run: Run, result: RunResult) -> RunResult:
        """Add hints about what the command lacked.

        A module has no programs and reports that itself.
        """
        if run.sandbox.name == WASM or not (run.outcome.exit_code or result.stderr):
            return result
        from skillbelt.running.programs.lacking import lacking  # cost: 30 ms, only for failures

        image = self.settings.container_image if run.sandbox.name == CONTAINER else ""
        path = process_environment().get("PATH", "")
        found = lacking(
            run,
            result.stdout,
            result.stderr,
            path=path,
            image=one_line(image),
            project=self.settings.project,
        )
        return result._replace(hints=found)

    def _collect(self, run: Run) -> Collected:
        limits, omit = run.limits, run.call.omit_inline_content
        if run.wanted is None:
            found = primary(run.workspace.path, limits, omit_content=omit, since=run.began)
            return Collected(primary=found)
        return collect(
            run.workspace.path,
            run.wanted,
            limits,
            run=run.folder,
            homes=run.homes,
            exit_code=run.outcome.exit_code,
            omit_content=omit,
            may_be_empty=not run.call.output_files and run.call.outputs is None,
            save=self._saving(run),
            write=OutputFolder(run.call.output_dir).write if run.call.output_dir else None,
        )

    def _saving(self, run: Run) -> Save | None:
        """Return the function that saves a file; None without a request to save or a store."""
        if run.wanted is None or not run.wanted.save or not self.has_artifacts:
            return None
        return self.artifacts(run.who.key).save


def _begin_record(run: Run) -> RunRecorder:
    asked = run.request
    return begin_record(
        run.gate.store,
        PastRun(
            id="",
            time=run.clock.time,
            state="running",
            skill=asked.skill,
            command=run.shown,
            project=run.gate.settings.project,
            session=asked.session,
            agent=asked.agent,
            initiator=asked.initiator,
            hash=asked.hash,
            sandbox=run.sandbox.name,
            steps=tuple(run.clock.steps),
        ),
    )


def _give_up_record(run: Run) -> None:
    """Remove a run from the history that did not end by itself."""
    if run.recorder is not None:
        run.recorder.end(None, ())


def _grant_commands(run: Run) -> Capabilities:
    found = hosts_by_tool(run.frontmatter.allowed_tools, run.listed_hosts, run.only_hosts)
    run.unopened = tuple(
        f"{one_line(one.tool)} opens no host: {one.fault}" for one in found if one.fault
    )
    hosts = tuple(dict.fromkeys(host for one in found for host in one.hosts))
    return Capabilities(hosts=hosts, processes=True)


def _refusal(run: Run, host: str) -> str:
    """Return why the run may not reach the host, asking for it; "" when it may."""
    if is_this_machine(host):
        return "it is this machine; name its address, such as 127.0.0.1:8080, and allow that"
    asked = network_request(run.request, host)
    decision = run.gate.check(asked)
    # The skill named the address. A private one needs more than a general rule for hosts.
    general = decision.by == "rule" and decision.rule.pattern not in (host, *asked.patterns)
    if decision.allowed and general and leads_inside(host):
        rule = one_line(decision.rule.pattern)
        return f"it is not a public address; the rule {rule!r} is too general, allow {host} itself"
    return "" if decision.allowed else decision.reason


def _refused_connections(connections: Iterable[Connection]) -> list[str]:
    """Return the first reasons why the proxy refused connections."""
    reasons = dict.fromkeys(one.reason for one in connections if not one.allowed and one.reason)
    return [f"refused: {one_line(reason)}" for reason in islice(reasons, _MAX_REFUSED)]


def _claim_daily(mark: str) -> bool:
    """Whether a day has passed since the last time; if so, set the mark to now."""
    with suppress(FileNotFoundError):
        if time.time() - os.stat(mark).st_mtime < _DAY_SECONDS:
            return False
    create_file(mark)
    os.utime(mark)
    return True


def _result(run: Run, collected: Collected) -> RunResult:
    outcome, egress = run.outcome, run.egress
    reached = egress.connections if egress else ()
    hit = (*outcome.limits_hit, *collected.limits_hit, *(egress.limits_hit if egress else ()))
    return RunResult(
        stdout=stream(outcome.stdout),
        stderr=stream(outcome.stderr),
        exit_code=outcome.exit_code,
        timed_out=outcome.timed_out,
        duration_ms=round(outcome.duration_seconds * 1000),
        output_files=collected.files,
        primary_output=collected.primary,
        artifact_files=collected.saved,
        written_files=collected.written,
        warnings=(
            *run.warnings,
            *(run.unopened if outcome.exit_code else ()),
            *_refused_connections(reached),
            *path_warnings(run.call, outcome),
            *stream_warnings(outcome),
            *end_warnings(outcome),
            *collected.warnings,
        ),
        limits_hit=tuple(dict.fromkeys(hit)),
        sandbox=run.sandbox.name,
        enforced=outcome.enforced,
        hosts=tuple(sorted({f"{one.host}:{one.port}" for one in reached if one.allowed})),
        cancelled=outcome.cancelled,
        errors=tuple(collected.errors),
    )


def _count_outcome(outcome: Outcome, sandbox: str) -> None:
    ended = "failed" if outcome.exit_code else "ok"
    ended = "timed_out" if outcome.timed_out else "cancelled" if outcome.cancelled else ended
    count("runs", outcome=ended, sandbox=sandbox)
    observe("run_duration_seconds", outcome.duration_seconds, sandbox=sandbox)
    count("run_output_bytes", outcome.stdout.total_bytes, stream="stdout")
    count("run_output_bytes", outcome.stderr.total_bytes, stream="stderr")


@contextmanager
def _count_refusals() -> Iterator[None]:
    """Count a run that did not start, by the kind of its error."""
    try:
        yield
    except (PermissionDenied, RunRefused, SandboxUnavailable) as error:
        count("runs", outcome=error.kind, sandbox="")
        raise


@contextmanager
def _raise_disk_full() -> Iterator[None]:
    """Raise DiskFull for a full disk in any step before a command."""
    try:
        yield
    except (SkillbeltError, OSError) as error:
        if is_disk_full(error) and not isinstance(error, DiskFull):
            raise DiskFull(str(error)) from error
        raise


def _skill_facts(skill: Skill) -> Mapping[str, str]:
    return skill_attributes(skill.name, skill.location, skill.origin.url)
