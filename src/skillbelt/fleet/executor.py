"""An executor that carries out runs on the nodes of a Ray cluster.

All decisions come before: an order lists what was allowed, and a node does that and nothing else.
Ray places the actors that keep workspaces on nodes that announce what is needed, and finds them by
name; a conversation goes to the same actor each time, as long as the actor lives.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from skillbelt import __version__
from skillbelt.errors import (
    MissingExtra,
    RunLost,
    RunRefused,
    SandboxUnavailable,
    SkillbeltError,
)
from skillbelt.fleet.facts import label_of
from skillbelt.fleet.fair_queue import FairSlots, QueuePlace
from skillbelt.fleet.live_output import FEED_END, REPORT_BYTES
from skillbelt.fleet.node import CONCURRENCY, RUNS_AT_ONCE, WorkspaceActor
from skillbelt.fleet.placing import (
    CPU,
    AnnouncedNode,
    NodeNeeds,
    NodePlacement,
    find_placement,
    interpreter_of,
    lacking_sandbox,
)
from skillbelt.fleet.replies import (
    ActorEnded,
    NodeReply,
    error_of,
    lost_run,
    read_carried,
    read_reply,
)
from skillbelt.fleet.submit import is_kept, order_of, pack_of, seal_order, tenant_of
from skillbelt.format.skill import Skill
from skillbelt.objects.space import Objects
from skillbelt.running.history import LIVE_SECONDS
from skillbelt.running.mirrors import (
    BATCH_BYTES,
    MAX_CARRIED_BYTES,
    Carried,
    EntryFact,
    Mirror,
    carry,
    put,
)
from skillbelt.running.orders import (
    PrivateValues,
    RunOrder,
    write_facts,
)
from skillbelt.running.run import Run
from skillbelt.sandbox.network.connection import Connection
from skillbelt.sandbox.protocol import (
    Job,
    Keepless,
    Listener,
    Outcome,
    Running,
    Sandbox,
)
from skillbelt.sandbox.registry import AUTO, CONTAINER, WASM, Choice, Sandboxes
from skillbelt.settings import Settings
from skillbelt.store import SessionKey
from skillbelt.store.protocol import hash_texts
from skillbelt.text import one_line
from skillbelt.values import SkillSettings

try:
    import ray
    from ray import exceptions

    from skillbelt.fleet.cluster import NAMESPACE, WORKSPACES, connect, first_line
    from skillbelt.fleet.cluster_key import ClusterTies
except ImportError as error:
    raise MissingExtra("ray", "running skills on a Ray cluster") from error

# Runs of this server that may wait for a node, in total and for one user.
MAX_WAITING = 1_000
MAX_WAITING_OF_USER = 250
# The sandboxes that a node may choose by itself, the strongest first.
_AUTO = ("bubblewrap", "landlock")
_LEVELS = {"bubblewrap": 2, "landlock": 1, WASM: 2, CONTAINER: 2}
# An actor that did not answer for this long is pinged before it gets a run: a run that is sent to a
# dead actor counts as lost, though nothing was started.
_SURE_SECONDS = 0.05
_PING_SECONDS = 2.0
_CREATION_SECONDS = 120.0
_AGAIN_SECONDS = 0.05
_LOOK_SECONDS = 5.0
_TRIES = 4
_MAX_SHOWN = 3  # names in a warning
_TOO_LARGE = f"more than {MAX_CARRIED_BYTES // 2**20} MiB"
_MAX_KNOWN = 4_096
_CONNECTING = threading.Lock()
_NOTHING_SAID = SkillSettings()
_LOST = (exceptions.ActorDiedError, exceptions.ActorUnavailableError,
         exceptions.NodeDiedError, exceptions.WorkerCrashedError)  # fmt: skip


class NodeSandbox(Keepless):
    """A sandbox that nodes announce; this server knows only its name and level."""

    def __init__(self, name: str) -> None:
        self.name, self.level, self.remaps = name, _LEVELS[name], name != "landlock"

    def unavailable(self) -> str | None:
        """Return None: a node announces only sandboxes that work."""
        return None

    def start(self, job: Job, listener: Listener | None = None) -> Running:
        """Raise: the sandbox starts commands only on a node."""
        raise SandboxUnavailable(f"the sandbox {self.name!r} is one of the nodes")


class NodeNetwork:
    """The network of a run on a node; the hosts it reached are known at the end."""

    folder = "/run/skillbelt-node"

    def __init__(self) -> None:
        self.connections: tuple[Connection, ...] = ()
        self.limits_hit: tuple[str, ...] = ()

    def close(self) -> None:
        """Do nothing: the node has closed it."""


class _Known:
    """The state of a workspace on an actor, as far as this server knows."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror, self.lock = mirror, threading.Lock()
        self.actor = ""
        self.facts: dict[str, EntryFact] = {}


class _Actor(NamedTuple):
    """An actor by its name, and its incarnation."""

    name: str
    id: str
    handle: Any


class RayExecutor(Sandboxes):
    """Sends allowed runs to nodes, and brings back the files that they wrote."""

    elsewhere = True  # no command runs on this machine

    def __init__(self, settings: Settings, progress: Callable[[str], None] | None = None) -> None:
        super().__init__(settings, progress)
        self._open_named = self._find_announced
        with _CONNECTING:
            if not ray.is_initialized():
                connect(settings.ray_address)
        ties = ClusterTies()
        self._key, self._job = ties.key, ties.job
        self._guard = threading.Lock()
        self._slots = FairSlots(
            RUNS_AT_ONCE, max_waiting=MAX_WAITING, max_of_tenant=MAX_WAITING_OF_USER
        )
        self._actors: dict[str, _Actor] = {}
        self._heard: dict[str, float] = {}
        self._load: dict[str, int] = {}
        self._sent: set[tuple[str, str]] = set()
        self._known: dict[str, _Known] = {}
        self._nodes: tuple[AnnouncedNode, ...] = ()
        self._looked = 0.0
        self._class: Any = _wrap()
        # Where nodes find skills; without it, skills are sent with orders.
        self.objects = Objects.from_settings(settings) if settings.objects else None

    # What nodes announce

    def _announced_nodes(self) -> tuple[AnnouncedNode, ...]:
        with self._guard:
            if time.monotonic() - self._looked > _LOOK_SECONDS:
                find: Any = ray.nodes
                listed = [AnnouncedNode.from_ray(one) for one in find() if one["Alive"]]
                self._nodes, self._looked = tuple(listed), time.monotonic()
                processors = sum(one.resources.get(CPU, 0) for one in listed)
                self._slots.resize(max(1, int(processors)) * RUNS_AT_ONCE)
            return self._nodes

    def _find_announced(self, name: str) -> Choice:
        """Return the sandbox of that name, if a node announces it."""
        known = [one for one in (_AUTO if name == AUTO else (name,)) if one in _LEVELS]
        for one in known:
            with suppress(SandboxUnavailable):
                find_placement(self._announced_nodes(), NodeNeeds(sandbox=one, memory_bytes=0))
                return Choice(NodeSandbox(one))
        raise lacking_sandbox(name)

    def of(self, skill: Skill, needs: str = "", said: SkillSettings = _NOTHING_SAID) -> Sandbox:
        """Return the sandbox for a run of the skill, before any permission question.

        SandboxUnavailable or RunRefused when no node meets the needs.
        """
        sandbox = super().of(skill, needs, said)
        memory = self._settings.limits.max_memory_bytes
        wanted = NodeNeeds(sandbox=sandbox.name, memory_bytes=memory, gpus=said.gpus)
        find_placement(self._announced_nodes(), wanted)
        return sandbox

    def _find_nodes(self, run: Run) -> NodePlacement:
        """Return the nodes that may take the run."""
        kind = run.sandbox.name
        needs = NodeNeeds(
            sandbox=kind,
            memory_bytes=run.limits.max_memory_bytes,
            gpus=run.gpus,
            interpreter=interpreter_of(run.argv, kind),
        )
        return find_placement(self._announced_nodes(), needs)

    def open_network(self, run: Run, hosts: tuple[str, ...], owner: int | None) -> Any:
        """Return the record of a network that the node opens."""
        return _as_context(NodeNetwork())

    @property
    def counts(self) -> dict[str, int]:
        """Return how many runs of this server are running, and how many wait."""
        return self._slots.counts

    # Runs

    def start(self, run: Run, job: Job, listener: Listener | None = None) -> Running:
        """Queue the command for a node; RunRefused when the queue is full."""
        self._find_nodes(run)
        return RemoteRun(self, run, job, listener)

    def close(self) -> None:
        """Keep the connection: other executors of this process may use it."""

    def enter(self, run: Run) -> QueuePlace:
        """Enter the queue."""
        return self._slots.enter(tenant_of(run))

    def known_for(self, run: Run) -> _Known:
        """Return the known state of the run's workspace on its actor."""
        made = _Known(Mirror(run.limits.max_workspace_files))
        if run.who.once:
            return made
        with self._guard:
            # Least recently used first; a workspace that is not known is sent again.
            made = self._known.pop(run.workspace.path, made)
            self._known[run.workspace.path] = made
            while len(self._known) > _MAX_KNOWN:
                del self._known[next(iter(self._known))]
            return made

    @contextmanager
    def choosing(self, run: Run) -> Iterator[tuple[NodePlacement, int]]:
        """Yield the placement of the run and the number of its actor.

        Reserve the actor in the block. It is the actor of the conversation, else the least loaded
        one; counted at once, so that runs that start together do not all choose the same one.
        """
        place = self._find_nodes(run)
        with self._guard:
            loads = [self._load.get(f"{place.name}-{n}", 0) for n in range(place.actors)]
            number = loads.index(min(loads))
            if not run.who.once:
                number = int(hash_texts(*run.who.key, run.workspace.name), 16) % place.actors
            name = f"{place.name}-{number}"
            self._load[name] = self._load.get(name, 0) + 1
        try:
            yield place, number
        finally:
            with self._guard:
                self._load[name] -= 1

    def actor_for(
        self, chosen: tuple[NodePlacement, int], seconds: float, is_over: Callable[[], bool]
    ) -> _Actor:
        """Return the chosen actor if it lives and takes runs, else one after it."""
        place, number = chosen
        until = time.monotonic() + min(seconds, _CREATION_SECONDS)
        lost = passed = 0
        while lost < _TRIES and time.monotonic() < until and not is_over():
            # The others come after the first. The same number of further names is for actors that
            # do not exist yet, in case all existing ones are on a draining node.
            which = (number + passed) % (2 * place.actors)
            actor = self._known_actor(f"{place.name}-{which}", place)
            if time.monotonic() - self._heard.get(actor.id, 0.0) < _SURE_SECONDS:
                return actor
            try:
                ping = actor.handle.ping.options(concurrency_group="control").remote()
                if ray.get(ping, timeout=_PING_SECONDS):
                    self.hear(actor)
                    return actor
                passed += 1  # it is drained
            except exceptions.GetTimeoutError:
                continue  # it is being created, which takes as long as a node needs
            except exceptions.ActorUnavailableError:
                passed += 1  # its node is gone, and Ray needs some seconds to notice
            except exceptions.RayError:
                lost += 1
            self.drop(actor)
            time.sleep(_AGAIN_SECONDS)
        raise RunRefused(
            "no node of the Ray cluster took the run; nothing was run; `skillbelt fleet status` "
            "says which nodes there are"
        )

    def _known_actor(self, name: str, place: NodePlacement) -> _Actor:
        with self._guard:
            actor = self._actors.get(name)
        return actor or self._open_actor(name, place)

    def _open_actor(self, name: str, place: NodePlacement) -> _Actor:
        """Return the actor of that name; Ray creates it on a node that announces what it needs."""
        try:
            handle: Any = self._class.options(
                # Servers of another version have their own actors, during an upgrade of the fleet.
                name=f"{WORKSPACES}{label_of(__version__)}-{name}",
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                scheduling_strategy="SPREAD",
                max_restarts=0,
                max_task_retries=0,
                enable_task_events=False,  # Ray would record each call, for its dashboard
                **place.options,
            ).remote()
        except exceptions.RayError as error:
            raise RunRefused(f"no actor can be made in the Ray cluster: {error}") from error
        actor = _Actor(name, handle._actor_id.hex(), handle)
        with self._guard:
            self._actors[name] = actor
        return actor

    def hear(self, actor: _Actor) -> None:
        """Record that the actor answered."""
        with self._guard:
            self._heard[actor.id] = time.monotonic()

    def drop(self, actor: _Actor) -> None:
        """Forget an actor that is gone; the next run gets another one."""
        with self._guard:
            if self._actors.get(actor.name) == actor:
                del self._actors[actor.name]
            self._heard.pop(actor.id, None)
            self._sent = {one for one in self._sent if one[0] != actor.id}

    def has_skill(self, actor: _Actor, hash: str) -> bool:
        """Whether the actor was sent that version of a skill."""
        return (actor.id, hash) in self._sent

    def note_skills(self, actor: _Actor, hashes: Mapping[str, str]) -> None:
        """Record that the actor has these skills."""
        with self._guard:
            self._sent.update((actor.id, hash) for hash in hashes.values())

    def forget(self, key: SessionKey, workspaces: Sequence[str]) -> None:
        """Have the actors that this server knows remove the workspaces of a conversation.

        Other actors remove them after an hour without use.
        """
        with self._guard:
            actors = list(self._actors.values())
        tenant = hash_texts(*key[:2])
        for actor in actors:
            method = actor.handle.forget.options(concurrency_group="control")
            for name in workspaces:
                method.remote(tenant, hash_texts(*key, name))

    def sealed(self, order: RunOrder, values: PrivateValues) -> tuple[bytes, str, bytes]:
        """Return the order, its seal and its private values."""
        return seal_order(self._key, order._replace(job=self._job), values)


class RemoteRun:
    """A command on a node. `wait` waits in the queue, sends the order and brings back its files."""

    def __init__(
        self, executor: RayExecutor, run: Run, job: Job, listener: Listener | None
    ) -> None:
        self._executor, self._run, self._job, self._listener = executor, run, job, listener
        self._id = os.urandom(16).hex()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._outcome: Outcome | None = None
        self._error: BaseException | None = None
        self._actor: _Actor | None = None
        self._killed, self._heard = False, False
        self._turn = executor.enter(run)

    # The interface of `Running`

    def write(self, data: bytes) -> None:
        """Write to its stdin; BrokenPipeError after stdin was closed."""
        self._write(data, False)

    def close_stdin(self) -> None:
        """Close its stdin after the data that was written."""
        self._write(b"", True)

    def _write(self, data: bytes, close: bool) -> None:
        for _ in range(600):
            with self._lock:
                actor = self._actor
            if self._ended.is_set() or self._killed:
                break
            if actor is not None:
                with suppress(exceptions.RayError):
                    method = actor.handle.write.options(concurrency_group="control")
                    if ray.get(method.remote(self._id, data, close)):
                        return
            # Not started yet, or just ended.
            self._ended.wait(0.1)
        raise BrokenPipeError("the run takes no more input")

    def kill(self) -> None:
        """Kill the command on its node, now or as soon as it is there."""
        with self._lock:
            self._killed, actor = True, self._actor
        if actor is not None:
            actor.handle.kill.options(concurrency_group="control").remote(self._id)

    def wait(self, timeout_seconds: float | None = None) -> Outcome | None:
        """Return the outcome. The first call carries out the run in its thread."""
        if not self._ended.is_set():
            try:
                self._outcome = self._carry_out()
            except BaseException as error:
                self._error = error
                self.kill()
                raise
            finally:
                self._turn.end()
                self._ended.set()
        if self._error is not None:
            raise self._error
        return self._outcome

    # Its steps

    def _carry_out(self) -> Outcome:
        if not self._turn.wait(self._job.timeout_seconds, lambda: self._killed):
            if self._killed:
                return Outcome(137, cancelled=True)
            raise RunRefused(
                "the run waited for a node for as long as it may last; nothing was run; try again "
                "later"
            )
        known = self._executor.known_for(self._run)
        lacks: Mapping[str, tuple[str, ...]] = {}
        tries = 0
        while tries < _TRIES:
            with self._executor.choosing(self._run) as chosen:
                actor = self._executor.actor_for(
                    chosen, self._job.timeout_seconds, lambda: self._killed
                )
                try:
                    reply = self._send(actor, known, lacks)
                except ActorEnded:
                    self._executor.drop(actor)
                    lacks, tries = {}, tries + 1
                    continue
            if reply.ran:
                return self._bring_back(actor, known, reply)
            # Each message sends a batch, as long as the node reports fewer missing parts each time.
            fewer = len(reply.lacks["contents"]) < len(lacks.get("contents", ()))
            lacks, tries = reply.lacks, tries + (not fewer)
        raise RunRefused("the node lacks what the run needs, though it was sent; nothing was run")

    def _send(
        self, actor: _Actor, known: _Known, lacks: Mapping[str, tuple[str, ...]]
    ) -> NodeReply:
        """Send the order with the parts that the node may lack.

        Return its answer, or raise its error.
        """
        run, executor = self._run, self._executor
        with known.lock:
            facts = known.mirror.look(run.workspace, run.folder)
            there = known.facts if known.actor == actor.id else {}
        changed = {path: fact for path, fact in facts.items() if there.get(path) != fact}
        wanted = set(lacks.get("contents", ())) or {fact.content for fact in changed.values()}
        needed = {
            path: fact
            for path, fact in facts.items()
            if fact.kind == "file" and fact.content in wanted
        }
        # A single run has one message: the node keeps nothing of it for the next run.
        sending = carry(run.workspace, needed, batch_bytes=_batch_bytes(run))
        if sending.left:
            raise RunRefused(
                f"{one_line(sending.left[0])} is not sent to a node, since it has {_TOO_LARGE}; "
                'split it, or run this with executor = "local"; nothing was run'
            )
        if run.who.once and sending.later:
            raise RunRefused(
                f"the files of the run have {_TOO_LARGE} together, and a run without a session "
                "sends them at once; name a session; nothing was run"
            )
        facts = {path: sending.changed.get(path, fact) for path, fact in facts.items()}
        contents = sending.contents
        stdin = self._job.stdin
        if stdin:
            contents[hashlib.sha256(stdin).hexdigest()] = stdin
        order, values, hashes = order_of(run, self._job, self._id, write_facts(facts))
        data, sealed, private = executor.sealed(order, values)
        skills = {
            hash: pack_of(run, name)
            for name, hash in hashes.items()
            if hash in lacks.get("skills", ())
            or not (executor.has_skill(actor, hash) or is_kept(executor.objects, run, name, hash))
        }
        with self._lock:
            self._actor, killed = actor, self._killed
        if killed:
            raise RunRefused("the call was cancelled")
        answer = self._call(actor, data, sealed, private, write_facts(facts), contents, skills)
        executor.hear(actor)
        if (error := error_of(run.skill.name, answer)) is not None:
            raise error
        reply = read_reply(answer)
        if reply.ran:
            self._pass_on_rest(reply.outcome)
        if not reply.lacks["skills"]:
            executor.note_skills(actor, hashes)
        return reply

    def _call(self, actor: _Actor, *sent: Any) -> object:
        """Send the order and wait for its end; RunLost when the node dies meanwhile."""
        try:
            if self._run.followed:
                return self._listen(actor, actor.handle.stream, *sent)
            # Only the history needs the output, and for a short run only at its end: one message.
            call = actor.handle.run.options(concurrency_group="runs", name="skillbelt.run")
            return self._await_end(actor, call.remote(*sent))
        except _LOST as error:
            self._executor.drop(actor)
            raise RunLost(
                "the node that carried out the run is gone, or its process was ended; it was not "
                "started again, and what the command did until then is not known "
                f"({type(error).__name__})"
            ) from error
        except exceptions.RayError as error:
            raise lost_run(first_line(error)) from error

    def _pass_on_rest(self, outcome: Outcome) -> None:
        """Pass on the output of a run that ended before anything was streamed."""
        if self._listener is None or self._heard:
            return
        if outcome.stdout.data:
            self._listener("stdout", outcome.stdout.data)
        if outcome.stderr.data:
            self._listener("stderr", outcome.stderr.data)

    def _await_end(self, actor: _Actor, end: Any) -> object:
        """Wait for the end; for a long run, pass on the output as it arrives."""
        while True:
            with suppress(exceptions.GetTimeoutError):
                result: object = ray.get(end, timeout=LIVE_SECONDS if self._listener else None)
                return result
            self._listen(actor, actor.handle.follow, self._id, group="followers")

    def _listen(self, actor: _Actor, method: Any, *sent: Any, group: str = "runs") -> object:
        """Call a streaming method and pass on its output; return the value of its end, if any."""
        call = method.options(
            concurrency_group=group, name="skillbelt.run", num_returns="streaming"
        )
        taken = reported = 0
        for ref in call.remote(*sent):
            name, value = ray.get(ref)
            if name == FEED_END:
                end: object = value
                return end
            if self._listener is not None:
                self._listener(name, value)
            self._heard = True
            taken += len(value)
            if taken - reported >= REPORT_BYTES:
                tell = actor.handle.note_taken.options(concurrency_group="control")
                tell.remote(self._id, taken)
                reported = taken
        return None

    def _bring_back(self, actor: _Actor, known: _Known, reply: NodeReply) -> Outcome:
        """Write the changed files into the workspace here; return the outcome of the command."""
        run = self._run
        self._apply_changes(actor, known, reply.carried)
        run.warnings += tuple(
            f"{one_line(path)} stays on the node, and is not in the result: it has {_TOO_LARGE}; "
            "write it in smaller parts"
            for path in self._collect(actor, known, reply.carried).left
        )
        if isinstance(run.egress, NodeNetwork):
            run.egress.connections = reply.connections
            run.egress.limits_hit = reply.limits_hit
        return reply.outcome

    def _apply_changes(self, actor: _Actor, known: _Known, carried: Carried) -> None:
        with known.lock:
            put(self._run.workspace, carried)
            known.actor = actor.id
            known.facts = known.mirror.look(self._run.workspace, self._run.folder)

    def _collect(self, actor: _Actor, known: _Known, last: Carried) -> Carried:
        """Fetch the files that did not fit into the first answer, batch by batch.

        Return the last batch.
        """
        run = self._run
        while last.later:
            method = actor.handle.collect.options(concurrency_group="runs")
            names = tenant_of(run), hash_texts(*run.who.key, run.workspace.name)
            try:
                answer = ray.get(method.remote(*names, run.folder))
                if (error := error_of(run.skill.name, answer)) is not None:
                    raise error
                batch = read_carried(answer)
                self._apply_changes(actor, known, batch)
            except (SkillbeltError, exceptions.RayError) as error:
                shown = ", ".join(last.later[:_MAX_SHOWN])
                run.warnings += (
                    f"{shown} and more were not brought back from the node: {first_line(error)}",
                )
                return last
            if not batch.contents:
                return batch
            last = batch
        return last


def _batch_bytes(run: Run) -> int:
    return MAX_CARRIED_BYTES if run.who.once else BATCH_BYTES


@contextmanager
def _as_context(network: NodeNetwork) -> Iterator[NodeNetwork]:
    yield network


def _wrap() -> Any:
    """Return the Ray actor class."""
    remote: Any = ray.remote
    return remote(concurrency_groups=CONCURRENCY)(WorkspaceActor)
