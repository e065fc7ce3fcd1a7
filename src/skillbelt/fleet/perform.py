"""Carry out an order on a node: check it, prepare the workspace, run the command, return the files.

Nothing is decided here. What the grant of the order does not include is refused.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import NamedTuple

from skillbelt.errors import RunRefused, SkillbeltError
from skillbelt.files.locks import hold, release
from skillbelt.files.remove import remove_tree
from skillbelt.fleet.sent_skills import Pack, SentSkills, pack_skill
from skillbelt.format.skill import Skill
from skillbelt.objects.space import Objects
from skillbelt.permission.command_lines import read_line
from skillbelt.permission.gate import Gate
from skillbelt.permission.rules import Rule
from skillbelt.running.call import Asker, RunCall
from skillbelt.running.cleanup import held_environment, retire
from skillbelt.running.executors import LocalExecutor
from skillbelt.running.job import make_job, shell, show_programs
from skillbelt.running.mirrors import (
    BATCH_BYTES,
    MAX_CARRIED_BYTES,
    Carried,
    EntryFact,
    Mirror,
    carry,
    differing,
    put,
)
from skillbelt.running.named_files import ground_of
from skillbelt.running.orders import (
    PrivateValues,
    RunOrder,
    check_grant,
    check_seal,
    read_facts,
    read_order,
    read_private,
)
from skillbelt.running.packages.environments import plan, provide
from skillbelt.running.packages.install_sandbox import NativeSandboxes
from skillbelt.running.packages.installation import SourceBuilds
from skillbelt.running.quota import quota_for_run
from skillbelt.running.run import Run
from skillbelt.running.spare_workspaces import SpareWorkspaces
from skillbelt.running.staging import check_unchanged, stage
from skillbelt.running.workspace import (
    RUNS,
    Workspace,
    open_workspace,
    place_of,
    places,
)
from skillbelt.sandbox.linux.identity import run_identity
from skillbelt.sandbox.linux.stuck import end_stuck
from skillbelt.sandbox.network.connection import Connection
from skillbelt.sandbox.protocol import Job, Listener, Outcome, Running, run_to_end
from skillbelt.settings import Settings, load_settings, process_environment
from skillbelt.store import SessionKey
from skillbelt.store.memory import MemoryStore
from skillbelt.tracing import extract, span
from skillbelt.values import Capabilities, SkillSettings

_NEW_SECONDS = 60.0
# A node removes a conversation's workspace that was not used for this long, and the oldest ones
# beyond this number: the server has all their files, and sends them again.
KEEP_SECONDS, KEEP_WORKSPACES = 3600.0, 500
_ALIVE = ".alive"  # a file on which the process of a node holds a lock


class Sent(NamedTuple):
    """An order as it was received, with its data: nothing in it is trusted yet."""

    order: bytes
    seal: str
    private: bytes
    facts: bytes
    contents: Mapping[str, bytes]
    skills: Mapping[str, Pack]


class MissingParts(NamedTuple):
    """The parts that a node needs to carry out an order: hashes of contents, and of skills."""

    contents: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()


class Performed(NamedTuple):
    """The outcome of the command of an order, and its files. Nothing ran if something `lacks`."""

    outcome: Outcome
    carried: Carried
    connections: tuple[Connection, ...] = ()
    limits_hit: tuple[str, ...] = ()
    lacks: MissingParts = MissingParts()


class _Held:
    """The state of a conversation's workspace on this node, as the server knows it."""

    def __init__(self, mirror: Mirror) -> None:
        self.lock, self.mirror = threading.Lock(), mirror
        self.known: dict[str, EntryFact] | None = None
        self.runs, self.used = 0, time.monotonic()


def node_settings(name: str) -> Settings:
    """Return the settings of a node, with folders that no server on the same machine uses.

    Kills the processes and removes the files that killed node processes left here.
    """
    end_stuck()
    settings = load_settings(os.sep)
    nodes = os.path.join(settings.state_dir, "nodes")
    state = os.path.join(nodes, name)
    os.makedirs(state, mode=0o700, exist_ok=True)
    hold(os.path.join(state, _ALIVE), fcntl.LOCK_SH)  # until this process ends
    remove_left(nodes)
    return settings._replace(
        project="", state_dir=state, sandbox="auto", untrusted_sandbox="", audit=False
    )


def remove_left(nodes: str) -> None:
    """Remove the folders of processes that are gone; a live process holds a lock in its folder."""
    for name in os.listdir(nodes):
        state = os.path.join(nodes, name)
        with suppress(OSError):
            mark = os.path.join(state, _ALIVE)
            # A folder that was just created has no lock yet.
            if time.time() - os.stat(mark).st_mtime < _NEW_SECONDS:
                continue
            release(hold(mark, fcntl.LOCK_EX | fcntl.LOCK_NB))
            _remove_state(state)


def _remove_state(state: str) -> None:
    for place in filter(os.path.isdir, places(os.path.join(state, "workspaces"))):
        remove_tree(place)
    remove_tree(state)


class NodeBench:
    """Carries out orders on this machine. Safe to use from threads."""

    def __init__(self, settings: Settings, key: bytes) -> None:
        self.settings, self._key = settings, key
        self._executor = LocalExecutor(settings)
        # Refuses every permission question: a node decides nothing.
        self._gate = Gate(settings, MemoryStore, rules=(Rule("*", "*", "deny"),))
        self._sent_skills = SentSkills(os.path.join(settings.state_dir, "skills"))
        self._folder = os.path.join(settings.state_dir, "workspaces")
        self._held: dict[str, _Held] = {}
        self._spare = SpareWorkspaces()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Release the sandboxes that are kept ready."""
        self._executor.close()

    def remove(self) -> None:
        """Close it, and remove all its files on this machine."""
        self.close()
        self._spare.remove()
        _remove_state(self.settings.state_dir)

    def read(self, sent: Sent) -> RunOrder:
        """Return the order; PermissionDenied when no server sealed it."""
        check_seal(self._key, sent.order, sent.seal)
        return read_order(sent.order)

    def run(
        self,
        order: RunOrder,
        sent: Sent,
        listener: Listener | None,
        started: Callable[[Running], None],
    ) -> Performed:
        """Carry out an order that was read; raises the errors of a run when nothing was run."""
        private = read_private(self._key, order, sent.private)
        facts = read_facts(sent.facts, order)
        lacks = self._find_lacking(order, sent)
        if lacks.skills:
            return Performed(Outcome(0), Carried({}, (), {}), lacks=lacks)
        with ExitStack() as stack, extract(order.trace):
            workspace = self._enter(order, stack)
            held = stack.enter_context(self._holding(order))
            with held.lock:
                lacks = self._apply_changes(workspace, order, held, facts, sent.contents)
            if lacks.contents:
                return Performed(Outcome(0), Carried({}, (), {}), lacks=lacks)
            stdin = None if order.stdin is None else sent.contents.get(order.stdin, b"")
            run = self._prepare(order, private, workspace, stdin)
            check_grant(order, run)
            job = self._provide(order, private, run, stack)
            with workspace.running():
                check_unchanged(workspace, run.staged, run.limits)
                with span("workspace.run", cmd="", cwd=job.cwd):
                    outcome = run_to_end(lambda: self._executor.start(run, job, listener), started)
            # A process that may be left could still write here.
            workspace.wanted = outcome.left
            return self._finish(order, run, outcome, held)

    # Its steps

    def _find_lacking(self, order: RunOrder, sent: Sent) -> MissingParts:
        """Unpack the skills that were sent or are in the object store.

        Return those that are missing.
        """
        missing = []
        for name, hash in order.hashes.items():
            if self._sent_skills.find(name, hash):
                continue
            pack = sent.skills.get(hash) or self._fetch_skill(name, hash)
            if pack:
                self._sent_skills.put(name, hash, pack)
            else:
                missing.append(hash)
        return MissingParts(skills=tuple(missing))

    def _fetch_skill(self, name: str, hash: str) -> Pack:
        """Return a skill from the object store; an empty one when it is not there."""
        if not self.settings.objects:
            return {}
        try:
            objects = Objects.from_settings(self.settings)
            with objects.skill_folder(hash, self.settings.cache_dir, name) as folder:
                return pack_skill(folder)
        except (SkillbeltError, OSError):
            return {}  # the server sends it

    def _enter(self, order: RunOrder, stack: ExitStack) -> Workspace:
        """Return the workspace of the order, and make the folder of the run."""
        workspace = self._open(order, stack)
        stack.enter_context(quota_for_run(workspace, order.limits))
        _check_folder(order.folder)
        os.close(workspace.make_folders(order.folder))
        stack.callback(workspace.end_run, order.folder)
        return workspace

    def _open(self, order: RunOrder, stack: ExitStack) -> Workspace:
        """Open the workspace of a conversation, or an empty one."""
        owner = run_identity()
        if order.workspace:
            key = SessionKey(order.tenant, "node", order.workspace)
            return stack.enter_context(open_workspace(self._folder, key, owner))
        # Another run of the same user with the same skill may get this workspace.
        purpose = (order.tenant, order.hash)
        workspace = self._spare.take(purpose) or open_workspace(self._folder, None, owner)
        stack.callback(self._spare.put_aside, workspace, purpose)
        return workspace

    @contextmanager
    def _holding(self, order: RunOrder) -> Iterator[_Held]:
        """Yield the state of the run's workspace, and count the run as one that uses it."""
        held = _Held(Mirror(order.limits.max_workspace_files))
        with self._lock:
            if order.workspace:
                held = self._held.setdefault(f"{order.tenant}/{order.workspace}", held)
            held.runs += 1
        try:
            yield held
        finally:
            with self._lock:
                held.runs, held.used = held.runs - 1, time.monotonic()

    def _apply_changes(
        self,
        workspace: Workspace,
        order: RunOrder,
        held: _Held,
        facts: Mapping[str, EntryFact],
        contents: Mapping[str, bytes],
    ) -> MissingParts:
        """Apply the changes that the server made in the workspace since the last run."""
        known = held.known
        if known is None:
            known = held.mirror.look(workspace, order.folder)
        changed, removed = differing(known, facts)
        missing = {
            fact.content
            for fact in changed.values()
            if fact.kind == "file" and fact.content not in contents
        }
        if order.stdin and order.stdin not in contents:
            missing.add(order.stdin)
        if missing:
            if order.workspace:  # the next message sends more, and not the same again
                here = {
                    path: fact
                    for path, fact in changed.items()
                    if fact.kind == "file" and fact.content in contents
                }
                put(workspace, Carried(here, (), dict(contents)))
                held.known = {**known, **here}
            return MissingParts(contents=tuple(sorted(missing)))
        gone = tuple(path for path in removed if not path.startswith(f"{RUNS}/"))
        put(workspace, Carried(changed, gone, dict(contents)))
        held.known = dict(facts)
        return MissingParts()

    def _prepare(
        self, order: RunOrder, private: PrivateValues, workspace: Workspace, stdin: bytes | None
    ) -> Run:
        """Stage the skills, each by its hash, and return the run as the server has it."""
        skill = self._skill(order.skill, order.hash)
        argv = (shell(), *order.argv[1:]) if order.own_shell else order.argv
        call = RunCall(
            command=order.command,
            cwd=order.cwd,
            env=private.env,
            timeout_seconds=order.timeout_seconds,
            stdin=stdin,
            terminal=order.terminal,
        )
        run = Run(
            skill=skill,
            call=call,
            who=Asker(SessionKey(order.tenant, "node", order.workspace), gate=self._gate),
            gate=self._gate,
            limits=order.limits,
            sandbox=self._executor.of(skill, order.sandbox, SkillSettings()),
            argv=argv,
            policy=order.policy,
            observed=order.observed,
        )
        run.workspace, run.folder = workspace, order.folder
        run.staged = stage(workspace, skill, order.limits, expected_hash=order.hash)
        for name, (hash, _) in order.others.items():
            other = stage(workspace, self._skill(name, hash), order.limits, expected_hash=hash)
            run.others[name] = other.home
        run.line = read_line(call.text)
        run.ground = ground_of(workspace, run.staged.path, call.cwd, skill.name)
        return run

    def _skill(self, name: str, hash: str) -> Skill:
        folder = self._sent_skills.find(name, hash)
        return Skill.from_folder(folder)._replace(name=name, fence=folder)

    def _provide(self, order: RunOrder, private: PrivateValues, run: Run, stack: ExitStack) -> Job:
        """Install the packages, open the network; return the job."""
        if order.packages is not None:
            wanted = order.packages
            planned = plan(
                wanted.needs,
                place_of(os.path.join(self.settings.cache_dir, "packages"), run_identity()),
                sandboxes=NativeSandboxes(order.limits, order.sandbox),
                environ=process_environment(),
                allow_builds=SourceBuilds(wanted.builds) if wanted.builds else False,
                hosts=self.settings.package_hosts,
                max_bytes=order.limits.max_packages_bytes,
                locked=wanted.lock,
                objects=self.settings.objects,
            )
            run.packages = stack.enter_context(held_environment(partial(provide, planned)))
        show_programs(run, self.settings)
        run.secrets = private.secrets
        run.capabilities = Capabilities(hosts=order.hosts, processes=order.processes)
        if order.hosts or order.observed:
            owner = run_identity()
            run.egress = stack.enter_context(
                self._executor.open_network(run, order.hosts, owner and owner[0])
            )
        job = make_job(run)
        added = {
            name: run.root if value == order.root else value
            for name, value in private.variables.items()
        }
        return job._replace(env={**job.env, **added}, waited=True)

    def _finish(self, order: RunOrder, run: Run, outcome: Outcome, held: _Held) -> Performed:
        """Return the outcome, with the files that the command changed."""
        reached: tuple[Connection, ...] = ()
        hit: tuple[str, ...] = ()
        if run.egress is not None:
            run.egress.close()
            reached, hit = run.egress.connections, run.egress.limits_hit
        # The workspace of a single run is removed afterwards, so send all of it now.
        batch = BATCH_BYTES if order.workspace else MAX_CARRIED_BYTES
        with held.lock:
            carried = _take_changed(held, run.workspace, run.folder, batch)
        return Performed(outcome, carried, reached, hit)

    def collect(self, tenant: str, workspace: str, folder: str) -> Carried:
        """Return the next batch of files that the runs of a conversation changed."""
        _check_folder(folder)
        with self._lock:
            held = self._held.get(f"{tenant}/{workspace}")
            if held is None:
                raise RunRefused("this node has no such workspace any more")
            held.runs += 1
        try:
            key = SessionKey(tenant, "node", workspace)
            with held.lock, open_workspace(self._folder, key, run_identity()) as opened:
                return _take_changed(held, opened, folder, BATCH_BYTES)
        finally:
            with self._lock:
                held.runs, held.used = held.runs - 1, time.monotonic()

    def forget_unused(self) -> list[str]:
        """Remove workspaces that were not used for long, or are too many; return their names."""
        with self._lock:
            idle = [(held.used, name) for name, held in self._held.items() if not held.runs]
            before, excess = time.monotonic() - KEEP_SECONDS, len(self._held) - KEEP_WORKSPACES
        found = [
            name
            for number, (used, name) in enumerate(sorted(idle))
            if used < before or number < excess
        ]
        for name in found:
            tenant, _, workspace = name.partition("/")
            self.forget(tenant, workspace)
        return found

    def forget(self, tenant: str, workspace: str) -> None:
        """Remove a conversation's workspace from this node."""
        with self._lock:
            self._held.pop(f"{tenant}/{workspace}", None)
        with suppress(OSError, SkillbeltError):  # the rest is removed with the actor
            key = SessionKey(tenant, "node", workspace)
            opened = open_workspace(self._folder, key, run_identity())
            opened.close()
            retire(os.path.dirname(opened.path), opened.name)


def _check_folder(folder: str) -> None:
    top, _, name = folder.partition("/")
    if top != RUNS or not name.replace("-", "").isalnum():
        raise RunRefused(f"{folder!r} is not the folder of a run")


def _take_changed(held: _Held, workspace: Workspace, folder: str, batch_bytes: int) -> Carried:
    """Return the changes that the server does not know yet; from now on it knows them."""
    now, known = held.mirror.look(workspace, folder), held.known or {}
    changed, removed = differing(known, now)
    # The folders of other runs were not examined.
    others = {
        path: fact
        for path, fact in known.items()
        if path.startswith(f"{RUNS}/") and not path.startswith(f"{folder}/")
    }
    gone = tuple(path for path in removed if path not in others)
    carried = carry(workspace, changed, gone, batch_bytes)
    # Files that were left behind are offered again, after the next run at the latest.
    waits = {*carried.left, *carried.later}
    kept = {path: fact for path, fact in now.items() if path not in waits}
    held.known = {**others, **kept, **carried.changed}
    return carried
