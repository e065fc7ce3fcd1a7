"""A run in the WASM sandbox: wait for a worker, compile the module if necessary, run it.

The timeout of a run begins with the module: waiting and compiling have their own limits. The
runtime keeps the time and kills the worker from outside.
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
from skillbelt.files.handles import BUSY, is_shortage
from skillbelt.sandbox.linux.identity import run_identity
from skillbelt.sandbox.linux.landlock import READ_ONLY, PathRule, ruleset, version
from skillbelt.sandbox.process.limit_checks import TICK_SECONDS
from skillbelt.sandbox.process.run import END_SECONDS, LOST
from skillbelt.sandbox.process.streams import Ending, Feed, Piped, Sink, outcome_of
from skillbelt.sandbox.process.watch import DiskWatch, Guard
from skillbelt.sandbox.protocol import Job, Listener, Outcome
from skillbelt.sandbox.wasm.command import MISSING, Program
from skillbelt.sandbox.wasm.engine import (
    EngineGone,
    EngineProcess,
    Worker,
    WorkerProtocolError,
)
from skillbelt.sandbox.wasm.folders import GuestFolder, GuestFolders
from skillbelt.sandbox.wasm.http import GuestFetcher, proxy_socket
from skillbelt.sandbox.wasm.modules import (
    COMPILE_TIMEOUT_SECONDS,
    CompiledModule,
    ModuleRefused,
    Modules,
    compile_limits,
    worker_limits,
)
from skillbelt.sandbox.wasm.pool import Ticket, WasmPool
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
_DISK_LIMITS = {"max_workspace_bytes", "max_workspace_files"}
# The engine holds the guest's memory to the limit exactly, and the guest sees the failure. The
# process gets this much more, so that the watch does not kill it before the guest sees it.
_ENGINE_BYTES = 32 * 2**20


class WasmPlan(NamedTuple):
    """The program to run. Without a program, the run prints `said` and exits with `code`."""

    program: Program | None
    folders: GuestFolders
    temporary: str
    host: str = ""
    said: str = ""
    code: int = 0


class _Ending(NamedTuple):
    """The end of a run, before its streams are read to their end."""

    code: int = LOST
    said: str = ""
    limits: tuple[str, ...] = ()
    timed_out: bool = False
    cancelled: bool = False


class _Stopped(Exception):
    """The run was stopped before its result."""

    def __init__(self, ending: _Ending) -> None:
        self.ending = ending
        super().__init__(ending.said)


class WasmRun(Piped):
    """A started command; see `Running`."""

    def __init__(
        self,
        plan: WasmPlan,
        job: Job,
        listener: Listener | None,
        pool: WasmPool,
        modules: Modules,
        enforced: Mapping[str, str],
    ) -> None:
        super().__init__()
        self._plan, self._job, self._pool, self._modules = plan, job, pool, modules
        self._enforced = enforced
        self._started = time.monotonic()
        self._fetcher: GuestFetcher | None = None
        try:
            self._wake = self._own(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
            self._open_streams(listener)
            _thread.start_new_thread(self._pump, ())
        except (OSError, RuntimeError) as error:  # no handle, or no thread
            self._close(*self._fds)
            raise SandboxUnavailable(f"the sandbox cannot be started: {error}") from error

    def _open_streams(self, listener: Listener | None) -> None:
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
            # A worker reopens its streams as that user.
            for handle in set(self._theirs):
                os.fchown(handle, *identity)

    def _notify(self) -> None:
        # The handle is closed under the lock, so it is still open if it is in the set.
        if self._wake in self._fds:
            os.eventfd_write(self._wake, 1)

    def _on_granted(self) -> None:
        with self._lock:
            self._notify()

    # The thread of the run

    def _pump(self) -> None:
        ending = _Ending(cancelled=True)
        ticket = self._pool.enter(self._on_granted)
        try:
            ending = self._execute(ticket)
        except _Stopped as stopped:
            ending = stopped.ending
        except ModuleRefused as error:
            limits = (error.limit,) if error.limit else ()
            ending = _Ending(UNUSABLE, f"{self._name()} {error}", limits)
        except (SkillbeltError, EngineGone, OSError) as error:
            why = BUSY if is_shortage(error) else error
            ending = _Ending(UNSTARTABLE, f"the run cannot be started: {why}")
        finally:
            self._conclude(ending, ticket)

    def _execute(self, ticket: Ticket) -> _Ending:
        plan = self._plan
        if plan.program is None:
            return _Ending(plan.code, plan.said)
        while not ticket.granted:
            self._pause(None)
        try:
            file = self._open_module(plan.program)
        except (OSError, PathEscape) as error:
            if is_shortage(error):
                raise
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
            # It may have exited, idle, just before the order.
            return self._run_with(self._pool.engine(gone=engine), file, program)

    def _run_with(self, engine: EngineProcess, file: int, program: Program) -> _Ending:
        def compile_(order: dict[str, object], handles: list[int]) -> Mapping[str, Any]:
            return self._compile(engine, order, handles, limits)

        limits = compile_limits(self._job.limits, program.kind != "module")
        module = self._modules.get(
            file,
            self._name(),
            limits=limits,
            flavour=engine.flavour,
            compile_=compile_,
            pause=self._pause,
        )
        try:
            return self._run(engine, module, program)
        finally:
            os.close(module.handle)

    def _name(self) -> str:
        program = self._plan.program
        if program is None or program.kind == "module":
            return program.path if program else ""
        return f"the host component for {program.kind}"

    def _open_module(self, program: Program) -> int:
        if program.kind != "module":
            return os.open(self._plan.host, os.O_RDONLY | os.O_CLOEXEC)
        path = os.path.join(self._job.cwd, program.path)
        return self._plan.folders.open_file(path)

    def _pause(self, seconds: float | None) -> None:
        """Wait for an event; raises _Stopped when the run is cancelled."""
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
        """Return the answer of a compiling worker; raises _Stopped without one."""
        worker = Worker(engine, order, handles, 0)
        try:
            watch = WasmWatch(limits, self._job.workspace, self._plan.temporary)
            deadline = time.monotonic() + COMPILE_TIMEOUT_SECONDS
            loop = _WorkerLoop(
                run=self,
                worker=worker,
                watch=watch,
                deadline=deadline,
                clock="compile_timeout_seconds",
                streams=False,
            )
            ending = loop.run()
            if loop.result is None:
                said = f"{self._name()} could not be compiled: {ending.said or _killed_by(ending)}"
                code = LOST if ending.cancelled else UNUSABLE
                raise _Stopped(ending._replace(code=code, said=said, timed_out=False))
            return loop.result
        finally:
            worker.close()

    def _run(self, engine: EngineProcess, module: CompiledModule, program: Program) -> _Ending:
        job = self._job
        proxy = proxy_socket(job)
        order: dict[str, object] = {
            "do": "run",
            "key": module.key,
            "kind": module.kind,
            "fuel": module.fuel,
        }
        body = MAX_FETCHED_BYTES if proxy else 0
        self._started = time.monotonic()
        task = self._task(program, bool(proxy))
        worker = Worker(
            engine=engine,
            order=order,
            handles=[*self._theirs, module.handle],
            max_body_bytes=body,
            task=task,
        )
        try:
            self._close(self._theirs[0], self._theirs[1])
            self._fetcher = GuestFetcher(proxy, MAX_FETCHED_BYTES) if proxy else None
            watch = WasmWatch(job.limits, job.workspace, self._plan.temporary)
            deadline = self._started + job.timeout_seconds
            return _WorkerLoop(
                run=self,
                worker=worker,
                watch=watch,
                deadline=deadline,
                clock="run_timeout_seconds",
                streams=True,
            ).run()
        finally:
            if self._fetcher is not None:
                self._fetcher.close()
            worker.close()

    def _task(self, program: Program, network: bool) -> dict[str, object]:
        """Return the task for the worker."""
        job, folders = self._job, self._plan.folders
        listed = folders.folders()
        tree = GuestFolder("/", self._pool.tree(folder.path for folder in listed))
        here = folders.find(job.cwd) if program.kind == "module" else None
        shown = [tree, *listed, *([here._replace(path=".")] if here else [])]
        rules = [*folders.rules(), PathRule(tree.source, READ_ONLY)]
        return {
            "argv": program.argv,
            "env": {**job.env, "PWD": job.cwd},
            "folders": shown,
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
            # Even after an error the waiting caller must wake up.
            with self._lock:
                self._outcome = self._outcome or Outcome(LOST, cancelled=True)
                self._feed.over = True
                self._close(*self._fds)
            self._pool.leave(ticket)
            self._ended.set()

    def _outcome_of(self, ending: _Ending) -> Outcome:
        for sink in self._sinks:
            sink.drain()
        self._write_message(ending)
        why, seconds = Ending(ending.timed_out, ending.cancelled), time.monotonic() - self._started
        return outcome_of(
            why,
            ending.code,
            hits=ending.limits,
            sinks=self._sinks,
            seconds=seconds,
            enforced=self._enforced,
        )

    def _write_message(self, ending: _Ending) -> None:
        """Write one line to its stderr, after the output of the guest."""
        if ending.said and not ending.cancelled:
            errors = self._theirs[-1]
            os.set_blocking(errors, False)
            with suppress(OSError):
                os.write(errors, f"{ending.said}\n".encode("utf-8", "replace"))
            self._sinks[-1].drain()


class WasmWatch:
    """Watches one worker: its memory and time, the workspace, and its temporary files."""

    def __init__(self, limits: Limits, workspace: str, temporary: str) -> None:
        whole = limits._replace(max_memory_bytes=limits.max_memory_bytes + _ENGINE_BYTES)
        self._guard = Guard(whole, workspace, members=lambda pid: [pid])
        # The folder is on disk, not in a tmpfs of a fixed size.
        bounds = limits._replace(max_workspace_bytes=limits.max_temporary_bytes)
        self._temporary = DiskWatch(temporary, bounds)

    def look(self, pid: int) -> str | None:
        """Return the limit that was exceeded, if any."""
        limit = self._guard.look(pid)
        if limit is None and self._temporary.look() is not None:
            limit = "max_temporary_bytes"
        return limit

    def finish(self, exit_code: int, cpu_seconds: float) -> tuple[str, ...]:
        """Return all limits that were exceeded."""
        hits = set(self._guard.finish(exit_code, cpu_seconds))
        self._temporary.finish()
        seen = self._temporary.seen
        return tuple(
            hits
            | (seen - _DISK_LIMITS)
            | ({"max_temporary_bytes"} if seen & _DISK_LIMITS else set())
        )


class _WorkerLoop:
    """Serves a running worker: passes its output on, and kills it at a limit."""

    def __init__(
        self,
        run: WasmRun,
        worker: Worker,
        watch: WasmWatch,
        deadline: float,
        clock: str,
        streams: bool,
    ) -> None:
        """Take the worker to serve; `clock` is the name of the limit behind the deadline."""
        self._run, self._worker, self._watch = run, worker, watch
        self._deadline, self._clock, self._streams = deadline, clock, streams
        self._sinks = {sink.fd: sink for sink in run._sinks} if streams else {}
        self._poll = select.poll()
        self.result: Mapping[str, Any] | None = None
        self._error = ""
        self._fetch: threading.Thread | None = None

    def run(self) -> _Ending:
        """Serve the worker until it has exited."""
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
            if worker.end.fileno() in events and not self._receive():
                poll.unregister(worker.end)
            if worker.pidfd in events:
                return self._finish()
            now = time.monotonic()
            limit = None
            if now >= look_at:
                limit = self._watch.look(worker.pid)
                look_at = time.monotonic() + TICK_SECONDS
            if limit or self._error or run._cancelled or now >= self._deadline:
                return self._stop(limit, now >= self._deadline)

    def _receive(self) -> int:
        """Handle the worker's messages. A guest that escaped could send anything."""
        channel = self._worker.channel
        count = channel.receive()
        try:
            while (message := channel.message()) is not None:
                self._handle(*message)
        except WorkerProtocolError as error:
            self._error = str(error)
        return count

    def _handle(self, head: dict[str, Any], body: bytes) -> None:
        fetcher = self._run._fetcher
        if isinstance(head.get("result"), dict):
            self.result = head["result"]
        elif "fetch" in head and fetcher is not None and not self._fetching():
            # The end of the run closes it; a failure of its own would look like the guest's.
            until = self._deadline + END_SECONDS
            work = (fetcher, self._worker, head["fetch"], body, until)
            self._fetch = threading.Thread(target=_fetch, args=work, daemon=True)
            self._fetch.start()
        else:
            self._error = _one_line(head.get("error", "no message"))

    def _fetching(self) -> bool:
        """Whether an HTTP request of the guest is in flight; a second one is a protocol error."""
        return self._fetch is not None and self._fetch.is_alive()

    def _stop(self, limit: str | None, late: bool) -> _Ending:
        """Kill it, and wait until it is gone."""
        self._worker.kill()
        poll = select.poll()
        poll.register(self._worker.pidfd, select.POLLIN)
        poll.poll(END_SECONDS * 1000)
        if self._error:
            return self._finish()
        cancelled = self._run._cancelled and not late
        found = self._finish()
        limits = {*found.limits, *([limit] if limit else []), *([self._clock] if late else [])}
        return _Ending(
            code=found.code, said="", limits=tuple(limits), timed_out=late, cancelled=cancelled
        )

    def _finish(self) -> _Ending:
        """Return the ending of an exited worker, from its result or from the engine's report."""
        while self.result is None and not self._error and self._receive() > 0:
            pass  # read its last messages
        if self.result is not None:
            return _ending_of(self.result, set(self._watch.finish(0, 0.0)))
        report = self._worker.report(END_SECONDS)
        code = int(report["code"]) if report else LOST
        code = 128 - code if code < 0 else code
        cpu_seconds = float(report["cpu_seconds"]) if report else 0.0
        hits = set(self._watch.finish(code, cpu_seconds))
        return self._failure_ending(code, hits, report is None)

    def _failure_ending(self, code: int, hits: set[str], engine_gone: bool) -> _Ending:
        """Return the ending without a result: the kernel killed it, or the engine failed."""
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


def _fetch(
    fetcher: GuestFetcher, worker: Worker, asked: object, body: bytes, deadline: float
) -> None:
    head, found = fetcher.fetch(asked, body, deadline)
    # The run may have ended.
    with suppress(OSError):
        worker.channel.send(head, found)


def _killed_by(ending: _Ending) -> str:
    return f"it was stopped ({', '.join(ending.limits)})" if ending.limits else "it was stopped"


def _one_line(text: object) -> str:
    return shorten(one_line(str(text)), _SHOWN)
