"""Tests in several processes that share what was imported and collected.

The workers of pytest-xdist each import and collect everything, which takes as long as a thousand
tests. Here pytest collects once and forks; a worker that is free takes the next module. The options
are those of pytest-xdist, which does the work where `--dist` asks for another order than ours.
"""

from __future__ import annotations

import atexit
import mmap
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import chain, groupby
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, NamedTuple

import pytest
from _pytest._io import TerminalWriter

OURS = (
    "loadscope"  # of the choices for --dist: a module, or a class of tests, is done by one worker
)
_INDEX_BYTES = 4
_END_SECONDS = 30.0


def take_over(config: pytest.Config) -> None:
    """Fork workers, if this pytest would start those of pytest-xdist in our order."""
    option = config.option
    if sys.platform != "linux" or option.dist != OURS or hasattr(config, "workerinput"):
        return
    count, option.dist, option.tx = len(option.tx), "no", []
    config.pluginmanager.register(Workers(count), "forked-workers")


class _Worker(NamedTuple):
    """A process, as the one that started it sees it."""

    number: int
    process: int
    current: mmap.mmap  # which test it is at
    inbox: Connection


class Workers:
    """Give tests to workers and tell what they say of them."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._run = uuid.uuid4().hex
        self._done: set[int] = set()
        self._alive: dict[Connection, _Worker] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run everything that was collected."""
        if session.testsfailed or session.config.option.collectonly or len(session.items) < 2:
            return None  # pytest's own way
        assert len(os.listdir("/proc/self/task")) == 1, "importing a test started a thread"
        if reporter := session.config.pluginmanager.getplugin("terminalreporter"):
            reporter.showfspath = False  # tests of several modules come in turn
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        scopes = _split(session.items)
        queue, end = os.pipe()
        os.write(end, b"".join(first.to_bytes(_INDEX_BYTES) for first in scopes))
        os.close(end)
        try:
            for number in range(min(self._count, len(scopes))):
                self._start(session, number, queue, scopes, [])
            while self._alive:
                for inbox in wait(list(self._alive)):
                    self._hear(session, self._alive[inbox], queue, scopes)  # type: ignore[index]
        finally:
            self._stop()
            os.close(queue)
        assert len(self._done) == len(session.items), "a worker left out tests"
        return True

    def _start(
        self,
        session: pytest.Session,
        number: int,
        queue: int,
        scopes: dict[int, range],
        first: list[int],
    ) -> None:
        inbox, outbox = Pipe(duplex=False)
        current = mmap.mmap(-1, _INDEX_BYTES)
        process = os.fork()
        if process:
            outbox.close()
            self._alive[inbox] = _Worker(number, process, current, inbox)
            return
        for other in (inbox, *self._alive):
            other.close()
        sender = _Sender(session.config, outbox, current)
        become(session, sender, number, self._run)
        work(session, sender, first, _take(queue, scopes))

    def _hear(
        self, session: pytest.Session, worker: _Worker, queue: int, scopes: dict[int, range]
    ) -> None:
        config, kind, said = session.config, "nothing", []
        with suppress(EOFError):
            kind, *said = worker.inbox.recv()
        if kind == "nothing":  # it is gone
            rest = self._bury(session, worker, scopes)
            self._start(session, worker.number, queue, scopes, rest)
        elif kind == "test":
            self._tell(config, session.items[said[0]], said[1])
            self._done.add(said[0])
        elif kind == "warning":
            config.hook.pytest_warning_recorded.call_historic(kwargs=said[0])
        else:
            del self._alive[worker.inbox]
            os.waitpid(worker.process, 0)
            if said[0]:
                self._fail(session, f"worker {worker.number} did not end well:\n{said[0]}")
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)

    def _bury(
        self, session: pytest.Session, worker: _Worker, scopes: dict[int, range]
    ) -> list[int]:
        """Tell which test a worker ended in; return what it had still to do of the module."""
        del self._alive[worker.inbox]
        code = os.waitstatus_to_exitcode(os.waitpid(worker.process, 0)[1])
        index = int.from_bytes(worker.current[:])
        item = session.items[index]
        if index in self._done:
            raise RuntimeError(f"a worker ended with {code} after {item.nodeid}")
        said = f"the worker ended with {code} in this test"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call")
        data = session.config.hook.pytest_report_to_serializable(
            config=session.config, report=report
        )
        self._tell(session.config, item, [data])
        self._done.add(index)
        scope = next(one for one in scopes.values() if index in one)
        return list(range(index + 1, scope.stop))

    def _fail(self, session: pytest.Session, problem: str) -> None:
        """Let the run fail for what belongs to no test, and go on: the summary names the others."""
        session.testsfailed += 1
        if reporter := session.config.pluginmanager.getplugin("terminalreporter"):
            reporter.write_line(problem, red=True)

    def _tell(self, config: pytest.Config, item: pytest.Item, reports: list[Any]) -> None:
        hook, where = config.hook, {"nodeid": item.nodeid, "location": item.location}
        hook.pytest_runtest_logstart(**where)
        for data in reports:
            report = hook.pytest_report_from_serializable(config=config, data=data)
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(**where)

    def _stop(self) -> None:
        """End the workers, if something ended the run before they are done."""
        for worker in self._alive.values():
            worker.inbox.close()
            os.kill(worker.process, signal.SIGINT)
        until = time.monotonic() + _END_SECONDS
        for worker in self._alive.values():
            while os.waitpid(worker.process, os.WNOHANG) == (0, 0):
                if time.monotonic() > until:
                    os.kill(worker.process, signal.SIGKILL)
                time.sleep(0.05)


def _split(items: list[pytest.Item]) -> dict[int, range]:
    """Return the tests that belong together, by the first of them."""
    found = {}
    for _, some in groupby(range(len(items)), key=lambda each: items[each].parent):
        indexes = list(some)
        found[indexes[0]] = range(indexes[0], indexes[-1] + 1)
    return found


def _take(queue: int, scopes: dict[int, range]) -> Iterator[range]:
    """Take from what all workers share until nothing is left; so short a read is never torn."""
    while index := os.read(queue, _INDEX_BYTES):
        yield scopes[int.from_bytes(index)]


class _Sender:
    """Send what a worker reports."""

    def __init__(self, config: pytest.Config, outbox: Connection, current: mmap.mmap) -> None:
        self._config, self._outbox, self._current = config, outbox, current
        self._reports: list[Any] = []
        self._is_timed = config.option.durations is not None or bool(config.option.xmlpath)

    def begin(self, index: int) -> None:
        """Note the test, for the case that the worker does not survive it."""
        self._current[:] = index.to_bytes(_INDEX_BYTES)
        self._reports.clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a part of what is told of a test; of what only prepares it, no more than trouble."""
        if report.when != "call" and report.passed and not self._is_timed:
            return
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._reports.append(data)

    def finish(self, index: int) -> None:
        """Send all that is told of a test."""
        self._outbox.send(("test", index, self._reports))

    def pytest_warning_recorded(
        self, warning_message: Any, when: str, nodeid: str, location: object
    ) -> None:
        """Send a warning."""
        warning_message.source = None  # may be anything
        said = {"warning_message": warning_message, "when": when, "nodeid": nodeid}
        self._outbox.send(("warning", {**said, "location": location}))

    def end(self, problem: str) -> None:
        """Send that nothing more follows."""
        self._outbox.send(("end", problem))


def become(session: pytest.Session, sender: _Sender, number: int, run: str) -> None:
    """Turn this process, which was forked, into a worker as pytest-xdist has them."""
    config, plugins = session.config, session.config.pluginmanager
    name = f"gw{number}"
    config.workerinput = {"workerid": name, "testrunuid": run}  # type: ignore[attr-defined]
    os.environ["PYTEST_XDIST_WORKER"] = name
    for other in ("terminalreporter", "forked-workers"):
        plugins.unregister(name=other)
    plugins.register(sender)
    plugins.register(_Terminal(), "terminalreporter")
    capture = plugins.getplugin("capturemanager")._global_capturing
    for stream in (capture.out, capture.err) if capture else ():
        _renew(stream)
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._exit_stack = ExitStack()
    factory._basetemp = factory.getbasetemp() / f"{name}-{os.getpid()}"
    factory._basetemp.mkdir(0o700)


def _renew(stream: Any) -> None:
    """Let a stream be kept in a file of this process alone; whoever has its object still has it."""
    with suppress(AttributeError, OSError), tempfile.TemporaryFile(buffering=0) as file:
        os.dup2(file.fileno(), stream.tmpfile.fileno(), inheritable=False)


class _Terminal:
    """Where plugins of a worker write to: what they say belongs to the test."""

    def __init__(self) -> None:
        self._tw = TerminalWriter(self)  # type: ignore[arg-type]

    def write(self, text: str) -> None:
        sys.stdout.write(text)

    def flush(self) -> None:
        sys.stdout.flush()


class _Nothing:
    """Stands for the next test where it is unknown: only fixtures of the session outlive."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session

    def listchain(self) -> list[Any]:
        return [self._session]


def work(
    session: pytest.Session, sender: _Sender, first: list[int], scopes: Iterator[range]
) -> None:
    """Run tests until none is left, and end this process."""
    problem, code = "", 1
    try:
        for scope in chain([first], scopes):
            for place, index in enumerate(scope):
                last = place + 1 == len(scope)
                following = _Nothing(session) if last else session.items[scope[place + 1]]
                sender.begin(index)
                session.config.hook.pytest_runtest_protocol(
                    item=session.items[index], nextitem=following
                )
                sender.finish(index)
        session.config.hook.pytest_sessionfinish(session=session, exitstatus=0)
        session.config._ensure_unconfigure()
        code = 0
    except BaseException:
        problem = traceback.format_exc()
    # As at the end of the interpreter, without what the first process has still to do.
    with suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    with suppress(OSError):
        sender.end(problem)
    os._exit(code)
