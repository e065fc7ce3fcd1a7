"""The engine process of the WASM sandbox, as the runtime holds it, and whose turn it is.

One process holds the engine and forks a worker for each run (`wasm_worker`). It is started when it
is first needed, ends when nothing was run for long, and ends with the runtime.
"""

import fcntl
import json
import os
import select
import signal
import socket
import stat
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.machinery import PathFinder
from typing import Any

from skillbelt.errors import SandboxUnavailable
from skillbelt.files.contain import READ_FOLDER
from skillbelt.files.remove import remove_tree
from skillbelt.sandbox.linux import seccomp, syscalls
from skillbelt.sandbox.linux.identity import current_identity, run_identity
from skillbelt.sandbox.process.spawn import Ends, spawn
from skillbelt.sandbox.process.supervised import launcher_python
from skillbelt.untrusted_json import read_json
from skillbelt.values import Limits

# Runs at the same time; each may use a whole core.
MAX_WASM_WORKERS = 4
# An idle engine holds compiled code in memory; starting it again takes 0.2 s.
WASM_IDLE_SECONDS = 300.0

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_TEXT = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("wasm_worker", sys.argv[2] + "/wasm/worker.py")
sys.modules["wasm_worker"] = worker = module_from_spec(spec)
spec.loader.exec_module(worker)
worker.main(int(sys.argv[1]), sys.argv[2])
"""
_PACKAGE = "wasmtime"
_START_SECONDS = 60.0
_END_SECONDS = 5.0
_MESSAGE_BYTES = 64 * 2**10
_LAST_WORDS = 4 * 2**10
_PREFIX = "skillbelt-wasm-"
_MOST_TREES, _MOST_FREE = 256, 8
_PRIVATE, _PASSABLE = stat.S_IFDIR | 0o700, stat.S_IFDIR | 0o711


def packages() -> str:
    """The folder that holds the engine's package; empty when there is none. It is not loaded."""
    spec = PathFinder.find_spec(_PACKAGE)
    return os.path.dirname(os.path.dirname(spec.origin)) if spec and spec.origin else ""


def worker_filter() -> bytes:
    """The filter for the system calls of a worker."""
    # It gives up its files by rules of its own when it knows for whom it works.
    return seccomp.program(False, False, programs=False, more=tuple(syscalls.RULES))


class EngineProcess:
    """A running engine process; SandboxUnavailable when it does not come up."""

    def __init__(self, idle_seconds: float) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Whoever forgets to close a runtime is not warned of what only this module knows of.
        weakref.finalize(self, self._control.close)
        self._ended = threading.Event()
        said, errors = os.pipe()
        try:
            self.pid = self._spawn(theirs, errors)
            self._hello = self._greet(idle_seconds, said)
        except BaseException:
            self._control.close()
            raise
        finally:
            os.close(said)

    def _spawn(self, theirs: socket.socket, errors: int) -> int:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        handle = theirs.fileno()
        argv = (launcher_python(), "-I", "-S", "-c", _TEXT, str(handle), _HERE)
        try:
            pid = spawn(argv, Ends(null, null, errors, (handle,)))
        except (OSError, ValueError) as error:
            raise SandboxUnavailable(f"the engine can not be started: {error}") from error
        finally:
            theirs.close()
            os.close(null)
            os.close(errors)
        threading.Thread(target=self._await_end, args=(pid,), daemon=True).start()
        return pid

    def _await_end(self, pid: int) -> None:
        # Whoever embeds us may have taken it.
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
        self._ended.set()

    def _greet(self, idle_seconds: float, said: int) -> dict[str, Any]:
        spec = {
            "parent": os.getpid(),
            "identity": run_identity(),
            "packages": packages(),
            "filter": worker_filter().hex(),
            "idle_seconds": idle_seconds,
        }
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        with suppress(OSError):
            self._control.send(json.dumps(spec).encode())
            if poll.poll(_START_SECONDS * 1000):
                answer = self._control.recv(_MESSAGE_BYTES)
                if answer:
                    hello: dict[str, Any] = read_json(answer)
                    return hello
        self._kill()
        words = os.read(said, _LAST_WORDS).decode("utf-8", "replace").strip().split("\n")[-1]
        raise SandboxUnavailable(f"the engine can not start: {words or 'it said nothing'}")

    def _kill(self) -> None:
        if not self._ended.is_set():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._ended.wait(_END_SECONDS)

    @property
    def flavour(self) -> str:
        """What its machine code depends on: the engine's version, and what the processor can do."""
        return json.dumps(self._hello, sort_keys=True)

    @property
    def alive(self) -> bool:
        """Whether it can still be told something."""
        return not self._ended.is_set()

    def order(self, what: dict[str, object], handles: Iterable[int]) -> None:
        """Tell it to start a worker; OSError when it has gone. The handles stay the caller's."""
        with self._lock:
            socket.send_fds(self._control, [json.dumps(what).encode()], list(handles))

    def stop(self, *, wait: bool) -> None:
        """Let it end, once all its workers have; `wait` until then."""
        with self._lock:
            self._control.close()
        if wait and not self._ended.wait(_END_SECONDS):
            self._kill()


class Ticket:
    """A place in the line of those who wait for a worker."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.granted = False
        self.wake = wake


class Pool:
    """What all runs of one sandbox share: the engine process, the turns, a folder of its own."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._engine: EngineProcess | None = None
        self._owner = os.getpid()
        self._line: deque[Ticket] = deque()
        self._running = 0
        self._closing = False
        self._folder = ""
        self._remover: weakref.finalize[[str, int, int], Pool] | None = None
        self._free: list[str] = []
        self._made = 0
        self._trees: dict[tuple[str, ...], str] = {}

    def engine(self, gone: EngineProcess | None = None) -> EngineProcess:
        """The process, started if there is none, or if the one there was is `gone`."""
        self._notice_fork()
        with self._starting:
            if self._engine is not None and self._engine.alive and self._engine is not gone:
                return self._engine
            if self._engine is not None:
                # One that could not do what it was told may have others' runs all the same.
                self._engine.stop(wait=not self._engine.alive)
            self._engine = EngineProcess(WASM_IDLE_SECONDS)
            return self._engine

    def _notice_fork(self) -> None:
        """A fork has neither the process nor the turns of the other, and its locks may be held."""
        if self._owner != os.getpid():
            self.__init__(self._limits)  # type: ignore[misc]

    def close(self) -> None:
        """End the process and remove the folder; runs that go on are left to come to their end."""
        self._notice_fork()
        with self._starting:
            engine, self._engine = self._engine, None
            with self._lock:
                busy = self._closing = self._running > 0
        if engine is not None:
            engine.stop(wait=not busy)
        if not busy:
            self._clear()

    def _clear(self) -> None:
        with self._lock:
            remove, self._remover = self._remover, None
            self._folder, self._trees, self._free, self._closing = "", {}, [], False
        if remove is not None:
            remove()

    # Turns

    def enter(self, wake: Callable[[], None]) -> Ticket:
        """Stand in line; `wake` is called when it is one's turn."""
        self._notice_fork()
        ticket = Ticket(wake)
        with self._lock:
            self._line.append(ticket)
        self._next()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Give one's turn back, or one's place in the line."""
        with self._lock:
            if ticket.granted:
                self._running -= 1
            elif ticket in self._line:
                self._line.remove(ticket)
            last = self._closing and not self._running and not self._line
        if last:
            self._clear()
        self._next()

    def _next(self) -> None:
        woken = []
        with self._lock:
            while self._line and self._running < max(1, MAX_WASM_WORKERS):
                ticket = self._line.popleft()
                ticket.granted = True
                self._running += 1
                woken.append(ticket)
        for ticket in woken:
            ticket.wake()

    # Folders

    def temporary(self) -> str:
        """An empty folder that belongs to whoever commands run as."""
        self._notice_fork()
        with self._lock:
            if self._free:
                return self._free.pop()
        path = os.path.join(self.place(), os.urandom(8).hex())
        os.mkdir(path, 0o700)
        if run_identity() is not None:
            os.chown(path, *current_identity())
        return path

    def give_back(self, path: str) -> None:
        """Take a folder for temporary files back. To make one can take longer than all else."""
        with suppress(OSError), self._lock:
            found = os.lstat(path)
            plain = found.st_uid == current_identity().uid and found.st_mode == _PRIVATE
            if plain and len(self._free) < _MOST_FREE and not os.listdir(path):
                self._free.append(path)
                return
        remove_tree(path)

    def tree(self, paths: Iterable[str]) -> str:
        """A folder with nothing but empty folders at these paths, so that what lies above is there.

        The same paths have the same folder.
        """
        key = tuple(sorted(paths))
        place = self.place()
        with self._lock:
            if key not in self._trees:
                self._made += 1
                root = os.path.join(place, f"tree-{self._made}")
                for path in key:
                    os.makedirs(os.path.join(root, path.strip("/")), 0o755, exist_ok=True)
                self._trees[key] = root
                if len(self._trees) > _MOST_TREES:
                    remove_tree(self._trees.pop(next(iter(self._trees))))
            return self._trees[key]

    def place(self) -> str:
        """The folder itself; what is in it is gone when the pool is closed."""
        self._notice_fork()
        with self._lock:
            if not self._folder:
                _sweep()
                self._folder, hold = _new_folder()
                self._remover = weakref.finalize(self, _remove, self._folder, hold, os.getpid())
            return self._folder


def _new_folder() -> tuple[str, int]:
    """A folder of ours among those of others, and a handle that shows that somebody uses it."""
    folder = tempfile.mkdtemp(prefix=_PREFIX)
    hold = os.open(folder, READ_FOLDER)
    fcntl.flock(hold, fcntl.LOCK_EX)
    # Others must pass through, and can not look around.
    os.fchmod(hold, 0o711)
    return folder, hold


def _sweep() -> None:
    """Remove what a killed runtime of the same user left: nobody holds it any more."""
    place = tempfile.gettempdir()
    for name in os.listdir(place):
        path = os.path.join(place, name)
        with suppress(OSError):
            # The first moment of one that is being made looks the same, but for its mode.
            if name.startswith(_PREFIX) and os.lstat(path).st_mode == _PASSABLE:
                hold = os.open(path, READ_FOLDER)
                try:
                    fcntl.flock(hold, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(hold)
                else:
                    _remove(path, hold, os.getpid())


def _remove(folder: str, hold: int, owner: int) -> None:
    """Remove a folder and all in it, if it is ours; a fork leaves it alone."""
    with suppress(OSError):
        if owner == os.getpid() and os.fstat(hold).st_uid == os.geteuid():
            for name in os.listdir(folder):
                remove_tree(os.path.join(folder, name))
            os.rmdir(folder)
    os.close(hold)
