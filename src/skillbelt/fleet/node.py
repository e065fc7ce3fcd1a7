"""The actor on a node that keeps workspaces of conversations and carries out their runs.

A Ray worker is trusted: it starts the sandbox, and no code of a skill runs in it. Its arguments and
results are plain data. One actor keeps the workspaces of many conversations.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from skillbelt.errors import (
    DiskFull,
    PermissionDenied,
    RunLost,
    RunRefused,
    SkillbeltError,
    is_disk_full,
)
from skillbelt.fleet.cluster_key import ClusterTies
from skillbelt.fleet.fair_queue import FairSlots
from skillbelt.fleet.live_output import FEED_END, OutputFeed
from skillbelt.fleet.perform import NodeBench, Performed, Sent, node_settings
from skillbelt.fleet.replies import ActorEnded
from skillbelt.running.mirrors import Carried
from skillbelt.running.orders import RunOrder
from skillbelt.sandbox.protocol import Running

# Runs that one actor carries out at once; there is an actor for each processor of the cluster.
RUNS_AT_ONCE = 8
# Runs that wait for a turn: an actor refuses more.
MAX_WAITING_RUNS = 48
# Threads of an actor for runs, for their output, and for calls that must not wait behind them.
CONCURRENCY = {
    "runs": RUNS_AT_ONCE + MAX_WAITING_RUNS, "followers": RUNS_AT_ONCE, "control": 8
}  # fmt: skip
IDLE_SECONDS = 300.0
_WATCH_SECONDS = 0.5
_MAX_KILLED = 1_000
_log = logging.getLogger("skillbelt")


class WorkspaceActor:
    """Carries out the orders of servers. The Ray executor creates it; `ray.remote` wraps it."""

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._ties = ties = ClusterTies()
        self._node = ties.node
        self.bench = NodeBench(node_settings(f"{self._node[:12]}-{os.getpid()}"), ties.key)
        self._slots = FairSlots(
            RUNS_AT_ONCE, max_waiting=MAX_WAITING_RUNS, max_of_tenant=MAX_WAITING_RUNS // 2
        )
        self._changed = threading.Condition()
        self._runs: dict[str, _NodeRun] = {}
        self._killed: dict[str, None] = {}
        self._used: dict[str, float] = {}
        self._last, self._idle_seconds = time.monotonic(), idle_seconds
        self._draining = False
        threading.Thread(target=self._watch, name="skillbelt-watch", daemon=True).start()

    # Runs

    def run(self, *sent: Any) -> dict[str, Any]:
        """Carry out an order and return its outcome, as plain data; `follow` yields its output."""
        return self._perform(sent, OutputFeed())

    def stream(self, *sent: Any) -> Iterator[tuple[str, Any]]:
        """Carry out an order; yield its output as it arrives, then its outcome."""
        feed = OutputFeed()
        feed.follow()
        name = "skillbelt-node-run"
        threading.Thread(target=self._perform, args=(sent, feed), name=name, daemon=True).start()
        yield from feed.pieces()

    def follow(self, id: str) -> Iterator[tuple[str, Any]]:
        """Yield the output of a run from its beginning, while it lasts.

        Nothing if the run is unknown.
        """
        run = self._runs.get(id)
        if run is not None and run.goes_on:
            run.feed.follow()
            yield from (piece for piece in run.feed.pieces() if piece[0] != FEED_END)

    def _perform(self, came: tuple[Any, ...], feed: OutputFeed) -> dict[str, Any]:
        """Carry out an order. Its feed ends with the returned value, also after an error."""
        done = self._try_order(came, feed)
        feed.end(done)
        return done

    def _try_order(self, came: tuple[Any, ...], feed: OutputFeed) -> dict[str, Any]:
        try:
            sent = Sent(*came)
            order = self.bench.read(sent)
            run = self._admit(order, feed)
            try:
                if not run.turn.wait(order.timeout_seconds, lambda: run.killed):
                    raise RunRefused(_LATE if not run.killed else _CANCELLED)
                done = self.bench.run(order, sent, feed.listen, run.note_start)
                return _to_plain(done, self._node)
            finally:
                self._release(order, run)
        except (SkillbeltError, OSError) as error:
            return {"error": plain_error(error, self._node), "node": self._node}
        except Exception as error:  # a follower of the output would wait for its end forever
            _log.exception("an order failed")
            failure = {"kind": RunLost.kind, "message": f"{type(error).__name__}: {error}"}
            return {"error": failure, "node": self._node}

    def _admit(self, order: RunOrder, feed: OutputFeed) -> _NodeRun:
        with self._changed:
            if self._draining:
                raise ActorEnded("this node takes no more runs")
            run = _NodeRun(self._slots, order, feed)
            run.killed = order.id in self._killed
            self._runs[order.id] = run
            return run

    def _release(self, order: RunOrder, run: _NodeRun) -> None:
        run.turn.end()
        with self._changed:
            self._runs.pop(order.id, None)
            self._last = time.monotonic()
            if order.workspace:
                self._used[f"{order.tenant}/{order.workspace}"] = time.time()
            self._changed.notify_all()

    def collect(self, tenant: str, workspace: str, folder: str) -> dict[str, Any]:
        """Return the next batch of files that the runs of a conversation changed, as plain data."""
        try:
            return plain_carried(self.bench.collect(tenant, workspace, folder))
        except (SkillbeltError, OSError) as error:
            return {"error": plain_error(error, self._node)}

    # Control

    def kill(self, id: str) -> bool:
        """Kill a run, now or as soon as it arrives; return whether it was here."""
        with self._changed:
            if len(self._killed) >= _MAX_KILLED:
                self._killed.clear()
            self._killed[id] = None
            run = self._runs.get(id)
        if run is not None:
            run.kill()
        return run is not None

    def write(self, id: str, data: bytes, close: bool) -> bool:
        """Write to the stdin of a run; False when it is closed."""
        run = self._runs.get(id)
        return run is not None and run.write(data, close)

    def note_taken(self, id: str, total: int) -> None:
        """Let a run print more: its server has taken `total` bytes of live output."""
        run = self._runs.get(id)
        if run is not None:
            run.feed.window.note_taken(total)

    def ping(self) -> str:
        """Return the id of this node, "" when it takes no more runs."""
        return "" if self._draining else self._node

    def counts(self) -> dict[str, int]:
        """Return how many runs are running here, and how many wait."""
        return self._slots.counts

    def list(self) -> list[dict[str, Any]]:
        """Return the workspaces that this actor keeps."""
        with self._changed:
            busy = [f"{one.order.tenant}/{one.order.workspace}" for one in self._runs.values()]
            return [
                {
                    "conversation": name,
                    "node": self._node,
                    "busy": name in busy,
                    "runs": busy.count(name),
                    "last_used": used,
                }
                for name, used in self._used.items()
            ]

    def forget(self, tenant: str, workspace: str) -> None:
        """Remove a conversation's workspace from this node."""
        with self._changed:
            self._used.pop(f"{tenant}/{workspace}", None)
        self.bench.forget(tenant, workspace)

    def drain(self, seconds: float = 3600.0) -> bool:
        """Take no more runs, wait for the running ones, and end; return whether all ended in time.

        The server gets the files of each run as soon as it ends.
        """
        with self._changed:
            self._draining = True
            return self._changed.wait_for(lambda: not self._runs, seconds)

    # By itself

    def _watch(self) -> None:
        """Kill the runs of servers that are gone.

        Remove unused workspaces, and end an unused actor.
        """
        while True:
            time.sleep(_WATCH_SECONDS)
            with self._changed:
                runs = list(self._runs.values())
                idle = time.monotonic() - self._last > self._idle_seconds
                over = not runs and (idle or self._draining)
                self._draining = self._draining or over
            if over:
                self._end()
                continue
            self._end_orphans(runs)
            for name in self.bench.forget_unused():
                with self._changed:
                    self._used.pop(name, None)

    def _end_orphans(self, runs: Sequence[_NodeRun]) -> None:
        """Kill the runs of servers that are gone.

        While the head is away, none is known to be gone.
        """
        if not runs:
            return
        with suppress(Exception):
            dead = self._ties.find_dead_jobs()
            for one in runs:
                if one.order.job in dead:
                    one.kill()

    def _end(self) -> None:
        self.bench.remove()
        self._ties.end_this_actor()


class _NodeRun:
    """A run that waits or is running."""

    def __init__(self, slots: FairSlots, order: RunOrder, feed: OutputFeed) -> None:
        self.order, self.turn, self.feed = order, slots.enter(order.tenant), feed
        self.killed = False
        self._running: Running | None = None
        self._lock = threading.Lock()

    @property
    def goes_on(self) -> bool:
        """Whether its command was started."""
        return self._running is not None

    def note_start(self, running: Running) -> None:
        """Record the running command, so that `kill` can end it."""
        with self._lock:
            self._running, killed = running, self.killed
        self.feed.window.end_after(self.order.timeout_seconds)
        if killed:
            running.kill()

    def kill(self) -> None:
        """Kill it, now or as soon as it starts."""
        with self._lock:
            self.killed, running = True, self._running
        self.feed.window.end_after(0)
        if running is not None:
            running.kill()

    def write(self, data: bytes, close: bool) -> bool:
        """Write to its stdin; False when it is closed."""
        running = self._running
        if running is None:
            return False
        try:
            if data:
                running.write(data)
            if close:
                running.close_stdin()
        except BrokenPipeError:
            return False
        return True


_LATE = "the run waited for a node for as long as it may last; nothing was run; try again later"
_CANCELLED = "the call was cancelled before the command started"


def _to_plain(done: Performed, node: str) -> dict[str, Any]:
    outcome = done.outcome
    return {
        "node": node,
        "lacks": {"contents": done.lacks.contents, "skills": done.lacks.skills},
        "outcome": {
            **outcome._asdict(),
            "stdout": tuple(outcome.stdout),
            "stderr": tuple(outcome.stderr),
            "enforced": dict(outcome.enforced),
        },
        **plain_carried(done.carried),
        "connections": [tuple(one) for one in done.connections],
        "limits_hit": done.limits_hit,
    }


def plain_carried(carried: Carried) -> dict[str, Any]:
    """Return the carried files as plain data."""
    changed = {path: tuple(fact) for path, fact in carried.changed.items()}
    return {**carried._asdict(), "changed": changed}


def plain_error(error: Exception, node: str) -> Mapping[str, str]:
    """Return why a node did not carry out an order, as plain data."""
    if isinstance(error, PermissionDenied):
        return {"kind": error.kind, "message": error.reason}
    full = is_disk_full(error)
    if isinstance(error, OSError) or full:
        why = (isinstance(error, OSError) and error.strerror) or error
        text = f"the node {node[:12]} cannot carry it out: {why}"
        return {"kind": DiskFull.kind if full else RunRefused.kind, "message": text}
    return {"kind": getattr(error, "kind", RunRefused.kind), "message": str(error)}
