"""A run in the WASM sandbox: it waits for its turn, its module is compiled if need be, it runs.

The clock of a run begins with the module: waiting for a turn and compiling have bounds of their
own. The runtime keeps it, and whatever a guest does, its worker is ended from outside.
"""

import _thread
import os
import select
import signal
import termios
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from skillbelt.errors import PathEscape, SandboxUnavailable, SkillbeltError
from skillbelt.sandbox.linux.identity import run_identity
from skillbelt.sandbox.linux.landlock import READ_ONLY, Rule, ruleset, version
from skillbelt.sandbox.process.looks import TICK_SECONDS
from skillbelt.sandbox.process.run import END_SECONDS, LOST
from skillbelt.sandbox.process.streams import Ending, Feed, Piped, Sink, outcome_of
from skillbelt.sandbox.protocol import Job, Listener, Outcome
from skillbelt.sandbox.wasm.channel import Broken, EngineGone, Worker
from skillbelt.sandbox.wasm.command import MISSING, Program
from skillbelt.sandbox.wasm.http import Fetcher, door_of
from skillbelt.sandbox.wasm.modules import (
    COMPILE_TIMEOUT_SECONDS,
    Modules,
    Ready,
    Unusable,
    compile_limits,
    worker_limits,
)
from skillbelt.sandbox.wasm.pool import EngineProcess, Pool, Ticket
from skillbelt.sandbox.wasm.view import Folder, View
from skillbelt.sandbox.wasm.watch import WasmWatch
from skillbelt.text import one_line, shorten
from skillbelt.values import Limits

# One answer to a guest's HTTP request; it is held in memory.
MAX_FETCHED_BYTES = 64 * 2**20
# Elements of the tables of a run; each takes memory outside the guest's own.
MAX_WASM_ELEMENTS = 1_000_000
# Instances, memories and tables of a run; each reserves address space.
MAX_WASM_INSTANCES = 1_000

UNSTARTABLE, UNUSABLE = 125, 126
_KILLED = 128 + signal.SIGKILL
_WINDOW = (24, 80)
_SHOWN = 300
_LIMITS_OF_GUESTS = (
    "max_memory_bytes",
    "max_wasm_elements",
    "max_wasm_instances",
    "max_wasm_fuel",
    "max_written_file_bytes",
)


class Plan(NamedTuple):
    """What is run. Without a program, only `said` is said and the run ends with `code`."""

    program: Program | None
    view: View
    temporary: str
    host: str = ""
    said: str = ""
    code: int = 0


class _Ending(NamedTuple):
    """How a run ended, as far as it is known before the streams are read to their end."""

    code: int = LOST
    said: str = ""
    limits: tuple[str, ...] = ()
    timed_out: bool = False
    cancelled: bool = False


class _Stopped(Exception):
    """What was going on was ended before its time."""

    def __init__(self, ending: _Ending) -> None:
        self.ending = ending
        super().__init__(ending.said)


class WasmRun(Piped):
    """A started command; see `Running`."""

    def __init__(
        self,
        plan: Plan,
        job: Job,
        listener: Listener | None,
        pool: Pool,
        modules: Modules,
        enforced: Mapping[str, str],
    ) -> None:
        super().__init__()
        self._plan, self._job, self._pool, self._modules = plan, job, pool, modules
        self._enforced = enforced
        self._started = time.monotonic()
        self._fetcher: Fetcher | None = None
        try:
            self._wake = self._own(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
            self._streams(listener)
        except OSError as error:
            self._close(*self._fds)
            raise SandboxUnavailable(f"the sandbox can not be started: {error}") from error
        _thread.start_new_thread(self._pump, ())

    def _streams(self, listener: Listener | None) -> None:
        keep, terminal = self._job.limits.max_stream_bytes, self._job.terminal
        if terminal:
            ours, theirs = map(self._own, os.openpty())
            termios.tcsetwinsize(theirs, _WINDOW)
            self._theirs = (theirs, theirs, theirs)
            self._sinks = [Sink(ours, "stdout", keep, listener)]
            self._feed = Feed(ours, self._job.stdin, terminal)
        else:
            taken, given = self._pipe()
            said, output = self._pipe()
            shown, errors = self._pipe()
            self._theirs = (taken, output, errors)
            self._sinks = [
                Sink(said, "stdout", keep, listener),
                Sink(shown, "stderr", keep, listener),
            ]
            self._feed = Feed(given, self._job.stdin, terminal)
        identity = run_identity()
        if identity is not None:
            # A worker opens its streams anew.
            for handle in set(self._theirs):
                os.fchown(handle, *identity)

    def _notify(self) -> None:
        # The handle is closed under the lock, so it is still ours here if it is in the set.
        if self._wake in self._fds:
            os.eventfd_write(self._wake, 1)

    def _woken(self) -> None:
        with self._lock:
            self._notify()

    # The thread of the run

    def _pump(self) -> None:
        ending = _Ending(cancelled=True)
        ticket = self._pool.enter(self._woken)
        try:
            ending = self._carried(ticket)
        except _Stopped as stopped:
            ending = stopped.ending
        except Unusable as error:
            limits = (error.limit,) if error.limit else ()
            ending = _Ending(UNUSABLE, f"{self._name()} {error}", limits)
        except (SkillbeltError, EngineGone, OSError) as error:
            ending = _Ending(UNSTARTABLE, f"the run can not be started: {error}")
        finally:
            self._conclude(ending, ticket)

    def _carried(self, ticket: Ticket) -> _Ending:
        plan = self._plan
        if plan.program is None:
            return _Ending(plan.code, plan.said)
        while not ticket.granted:
            self._pause(None)
        try:
            file = self._opened(plan.program)
        except (OSError, PathEscape):
            return _Ending(MISSING, f"{self._name()}: not found")
        try:
            return self._run_file(file, plan.program)
        finally:
            os.close(file)

    def _run_file(self, file: int, program: Program) -> _Ending:
        engine = self._pool.engine()
        try:
            return self._run_with(engine, file, program)
        except EngineGone:
            # It may have ended, for having been idle, just before it was told.
            return self._run_with(self._pool.engine(gone=engine), file, program)

    def _run_with(self, engine: EngineProcess, file: int, program: Program) -> _Ending:
        def compiled(order: dict[str, object], handles: list[int]) -> Mapping[str, Any]:
            return self._compile(engine, order, handles, limits)

        limits = compile_limits(self._job.limits, program.kind != "module")
        ready = self._modules.ready(
            file, self._name(), limits, engine.flavour, compiled, self._pause
        )
        try:
            return self._run(engine, ready, program)
        finally:
            os.close(ready.handle)

    def _name(self) -> str:
        program = self._plan.program
        if program is None or program.kind == "module":
            return program.path if program else ""
        return f"the host component for {program.kind}"

    def _opened(self, program: Program) -> int:
        if program.kind != "module":
            return os.open(self._plan.host, os.O_RDONLY | os.O_CLOEXEC)
        path = os.path.join(self._job.cwd, program.path)
        return self._plan.view.open_file(path)

    def _pause(self, seconds: float | None) -> None:
        """Wait until something happens; _Stopped when the run shall not go on."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if not self._cancelled:
            poll.poll(None if seconds is None else seconds * 1000)
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        if self._cancelled:
            raise _Stopped(_Ending(cancelled=True))

    def _compile(
        self,
        engine: EngineProcess,
        order: dict[str, object],
        handles: list[int],
        limits: Limits,
    ) -> Mapping[str, Any]:
        """What a worker that compiles answers; _Stopped when it does not come to that."""
        worker = Worker(engine, order, handles, 0)
        try:
            watch = WasmWatch(limits, self._job.workspace, self._plan.temporary)
            deadline = time.monotonic() + COMPILE_TIMEOUT_SECONDS
            attended = _Attended(
                run=self,
                worker=worker,
                watch=watch,
                deadline=deadline,
                clock="compile_timeout_seconds",
                streams=False,
            )
            ending = attended.carry()
            if attended.result is None:
                said = f"{self._name()} could not be compiled: {ending.said or _why(ending)}"
                code = LOST if ending.cancelled else UNUSABLE
                raise _Stopped(ending._replace(code=code, said=said, timed_out=False))
            return attended.result
        finally:
            worker.close()

    def _run(self, engine: EngineProcess, ready: Ready, program: Program) -> _Ending:
        job = self._job
        door = door_of(job)
        order: dict[str, object] = {
            "do": "run",
            "key": ready.key,
            "kind": ready.kind,
            "fuel": ready.fuel,
        }
        body = MAX_FETCHED_BYTES if door else 0
        self._started = time.monotonic()
        task = self._task(program, bool(door))
        worker = Worker(
            engine=engine,
            order=order,
            handles=[*self._theirs, ready.handle],
            max_body_bytes=body,
            task=task,
        )
        try:
            self._close(self._theirs[0], self._theirs[1])
            self._fetcher = Fetcher(door, MAX_FETCHED_BYTES) if door else None
            watch = WasmWatch(job.limits, job.workspace, self._plan.temporary)
            deadline = self._started + job.timeout_seconds
            return _Attended(
                run=self,
                worker=worker,
                watch=watch,
                deadline=deadline,
                clock="run_timeout_seconds",
                streams=True,
            ).carry()
        finally:
            if self._fetcher is not None:
                self._fetcher.close()
            worker.close()

    def _task(self, program: Program, network: bool) -> dict[str, object]:
        """What the worker is to do."""
        job, view = self._job, self._plan.view
        folders = view.folders()
        tree = Folder("/", self._pool.tree(folder.path for folder in folders))
        here = view.find(job.cwd) if program.kind == "module" else None
        given = [tree, *folders, *([here._replace(path=".")] if here else [])]
        rules = [*view.rules(), Rule(tree.source, READ_ONLY)]
        return {
            "argv": program.argv,
            "env": {**job.env, "PWD": job.cwd},
            "folders": given,
            "terminal": job.terminal,
            "network": network,
            "limits": {
                "max_memory_bytes": job.limits.max_memory_bytes,
                "max_wasm_elements": MAX_WASM_ELEMENTS,
                "max_wasm_instances": MAX_WASM_INSTANCES,
                "max_wasm_fuel": job.limits.max_wasm_fuel,
            },
            "rlimits": worker_limits(job.limits),
            "rules": ruleset(rules) if version() else None,
        }

    def _conclude(self, ending: _Ending, ticket: Ticket) -> None:
        try:
            self._outcome = self._outcome_of(ending)
            self._pool.give_back(self._plan.temporary)
        finally:
            # Whatever went wrong, nobody waits for ever.
            with self._lock:
                self._outcome = self._outcome or Outcome(LOST, cancelled=True)
                self._feed.over = True
                self._close(*self._fds)
            self._pool.leave(ticket)
            self._ended.set()

    def _outcome_of(self, ending: _Ending) -> Outcome:
        for sink in self._sinks:
            sink.drain()
        self._say(ending)
        why, seconds = Ending(ending.timed_out, ending.cancelled), time.monotonic() - self._started
        return outcome_of(why, ending.code, ending.limits, self._sinks, seconds, self._enforced)

    def _say(self, ending: _Ending) -> None:
        """One line on its stderr, after all that came from inside."""
        if ending.said and not ending.cancelled:
            errors = self._theirs[-1]
            os.set_blocking(errors, False)
            with suppress(OSError):
                os.write(errors, f"{ending.said}\n".encode("utf-8", "replace"))
            self._sinks[-1].drain()


class _Attended:
    """A worker while it lives: what it says is passed on, and it is ended when it must be."""

    def __init__(
        self,
        run: WasmRun,
        worker: Worker,
        watch: WasmWatch,
        deadline: float,
        clock: str,
        streams: bool,
    ) -> None:
        """`clock` is the limit that the deadline stands for."""
        self._run, self._worker, self._watch = run, worker, watch
        self._deadline, self._clock, self._streams = deadline, clock, streams
        self._sinks = {sink.fd: sink for sink in run._sinks} if streams else {}
        self._poll = select.poll()
        self.result: Mapping[str, Any] | None = None
        self._error = ""
        self._fetch: threading.Thread | None = None

    def carry(self) -> _Ending:
        """Look after it until it has ended."""
        run, worker, poll = self._run, self._worker, self._poll
        for fd in (*self._sinks, run._wake, worker.pidfd, worker.end.fileno()):
            poll.register(fd, select.POLLIN)
        look_at = time.monotonic() + TICK_SECONDS
        while True:
            if self._streams:
                run._offer(poll, self._sinks)
            until = min(self._deadline, look_at) - time.monotonic()
            events = dict(poll.poll(max(0.0, until) * 1000))
            run._pass_on(poll, self._sinks, events)
            if run._wake in events:
                with suppress(BlockingIOError):
                    os.eventfd_read(run._wake)
            if worker.end.fileno() in events and not self._hear():
                poll.unregister(worker.end)
            if worker.pidfd in events:
                return self._over()
            now = time.monotonic()
            limit = None
            if now >= look_at:
                limit = self._watch.look(worker.pid)
                look_at = time.monotonic() + TICK_SECONDS
            if limit or self._error or run._cancelled or now >= self._deadline:
                return self._stop(limit, now >= self._deadline)

    def _hear(self) -> int:
        """Take what the worker says. A guest that broke out could say anything."""
        channel = self._worker.channel
        count = channel.receive()
        try:
            while (message := channel.message()) is not None:
                self._understand(*message)
        except Broken as error:
            self._error = str(error)
        return count

    def _understand(self, head: dict[str, Any], body: bytes) -> None:
        fetcher = self._run._fetcher
        if isinstance(head.get("result"), dict):
            self.result = head["result"]
        elif "fetch" in head and fetcher is not None and not self._fetching():
            work = (fetcher, self._worker, head["fetch"], body, self._deadline)
            self._fetch = threading.Thread(target=_fetch, args=work, daemon=True)
            self._fetch.start()
        else:
            self._error = _one_line(head.get("error", "it said nothing"))

    def _fetching(self) -> bool:
        """A guest waits for its answer; whoever asks again meanwhile is none."""
        return self._fetch is not None and self._fetch.is_alive()

    def _stop(self, limit: str | None, late: bool) -> _Ending:
        """End it, and wait until it is gone."""
        self._worker.kill()
        poll = select.poll()
        poll.register(self._worker.pidfd, select.POLLIN)
        poll.poll(END_SECONDS * 1000)
        if self._error:
            return self._over()
        cancelled = self._run._cancelled and not late
        found = self._over()
        limits = {*found.limits, *([limit] if limit else []), *([self._clock] if late else [])}
        return _Ending(
            code=found.code, said="", limits=tuple(limits), timed_out=late, cancelled=cancelled
        )

    def _over(self) -> _Ending:
        """It is gone: either it came to a result, or the engine process says how it ended."""
        while self.result is None and not self._error and self._hear() > 0:
            pass  # what it said last
        if self.result is not None:
            return _ending_of(self.result, set(self._watch.finish(0, 0.0)))
        report = self._worker.report(END_SECONDS)
        code = int(report["code"]) if report else LOST
        code = 128 - code if code < 0 else code
        cpu_seconds = float(report["cpu_seconds"]) if report else 0.0
        hits = set(self._watch.finish(code, cpu_seconds))
        return self._failed(code, hits, report is None)

    def _failed(self, code: int, hits: set[str], engine_gone: bool) -> _Ending:
        """It did not come to a result: the kernel ended it, or the engine failed."""
        if self._error or (engine_gone and not hits):
            why = self._error or "its process ended"
            return _Ending(UNSTARTABLE, f"the engine failed: {why}", tuple(hits))
        killed = hits or code == _KILLED
        said = "" if killed else f"the engine failed: exit code {code}"
        return _Ending(code or UNSTARTABLE, said, tuple(hits))


def _ending_of(result: Mapping[str, Any], hits: set[str]) -> _Ending:
    code, limits = result.get("code"), result.get("limits")
    if isinstance(limits, list):
        hits |= {name for name in limits if name in _LIMITS_OF_GUESTS}
    known = isinstance(code, int) and 0 <= code < 256
    return _Ending(code if known else LOST, _one_line(result.get("said", "")), tuple(hits))  # type: ignore[arg-type]


def _fetch(fetcher: Fetcher, worker: Worker, asked: object, body: bytes, deadline: float) -> None:
    head, found = fetcher.fetch(asked, body, deadline)
    # The run may be over meanwhile.
    with suppress(OSError):
        worker.channel.send(head, found)


def _why(ending: _Ending) -> str:
    return f"it was ended ({', '.join(ending.limits)})" if ending.limits else "it was ended"


def _one_line(text: object) -> str:
    return shorten(one_line(str(text)), _SHOWN)
