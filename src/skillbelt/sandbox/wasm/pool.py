"""The shared parts of all runs of a WASM sandbox: engine process, queue, temporary folders."""

import fcntl
import os
import stat
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from skillbelt.files.contain import READ_FOLDER
from skillbelt.files.remove import remove_tree
from skillbelt.sandbox.linux.identity import current_identity, run_identity
from skillbelt.sandbox.wasm.engine import EngineProcess
from skillbelt.values import Limits

# Runs at the same time; each may use a whole core.
MAX_WASM_WORKERS = 4
# An idle engine holds compiled code in memory; starting it again takes 0.2 s.
WASM_IDLE_SECONDS = 300.0

_PREFIX = "skillbelt-wasm-"
_MAX_TREES, _MAX_FREE = 256, 8
_PRIVATE, _PASSABLE = stat.S_IFDIR | 0o700, stat.S_IFDIR | 0o711


class Ticket:
    """A place in the queue for a worker."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.granted = False
        self.wake = wake


class WasmPool:
    """The engine process, the queue for its workers, and a private folder."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._engine: EngineProcess | None = None
        self._owner = os.getpid()
        self._queue: deque[Ticket] = deque()
        self._running = 0
        self._closing = False
        self._folder = ""
        self._remover: weakref.finalize[[str, int, int], WasmPool] | None = None
        self._free: list[str] = []
        self._made = 0
        self._trees: dict[tuple[str, ...], str] = {}

    def engine(self, gone: EngineProcess | None = None) -> EngineProcess:
        """Return the process; start it if there is none or the old one is `gone`."""
        self._reset_after_fork()
        with self._starting:
            if self._engine is not None and self._engine.alive and self._engine is not gone:
                return self._engine
            if self._engine is not None:
                # A process that failed one order may still have other runs.
                self._engine.stop(wait=not self._engine.alive)
            self._engine = EngineProcess(WASM_IDLE_SECONDS)
            return self._engine

    def _reset_after_fork(self) -> None:
        """Start fresh in a forked process, where the engine is not ours and locks may be held."""
        if self._owner != os.getpid():
            self.__init__(self._limits)  # type: ignore[misc]

    def close(self) -> None:
        """Stop the process and remove the folder; current runs may finish first."""
        self._reset_after_fork()
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

    # The queue

    def enter(self, wake: Callable[[], None]) -> Ticket:
        """Join the queue; `wake` is called when the ticket is granted."""
        self._reset_after_fork()
        ticket = Ticket(wake)
        with self._lock:
            self._queue.append(ticket)
        self._grant_next()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Return the worker slot, or leave the queue."""
        with self._lock:
            if ticket.granted:
                self._running -= 1
            elif ticket in self._queue:
                self._queue.remove(ticket)
            last = self._closing and not self._running and not self._queue
        if last:
            self._clear()
        self._grant_next()

    def _grant_next(self) -> None:
        woken = []
        with self._lock:
            while self._queue and self._running < max(1, MAX_WASM_WORKERS):
                ticket = self._queue.popleft()
                ticket.granted = True
                self._running += 1
                woken.append(ticket)
        for ticket in woken:
            ticket.wake()

    # Folders

    def temporary(self) -> str:
        """Return an empty folder that belongs to the user that commands run as."""
        self._reset_after_fork()
        with self._lock:
            if self._free:
                return self._free.pop()
        path = os.path.join(self.root(), os.urandom(8).hex())
        os.mkdir(path, 0o700)
        if run_identity() is not None:
            os.chown(path, *current_identity())
        return path

    def give_back(self, path: str) -> None:
        """Take a temporary folder back for reuse: creating one can be the slowest step of a run."""
        with suppress(OSError), self._lock:
            found = os.lstat(path)
            plain = found.st_uid == current_identity().uid and found.st_mode == _PRIVATE
            if plain and len(self._free) < _MAX_FREE and not os.listdir(path):
                self._free.append(path)
                return
        with suppress(OSError):  # it goes with the pool
            remove_tree(path)

    def tree(self, paths: Iterable[str]) -> str:
        """Return a folder with empty folders at these paths, so that the guest sees their parents.

        The same paths give the same folder.
        """
        key = tuple(sorted(paths))
        root = self.root()
        with self._lock:
            if key not in self._trees:
                self._made += 1
                tree = os.path.join(root, f"tree-{self._made}")
                for path in key:
                    os.makedirs(os.path.join(tree, path.strip("/")), 0o755, exist_ok=True)
                self._trees[key] = tree
                if len(self._trees) > _MAX_TREES:
                    remove_tree(self._trees.pop(next(iter(self._trees))))
            return self._trees[key]

    def root(self) -> str:
        """Return the private folder, which is removed when the pool is closed."""
        self._reset_after_fork()
        with self._lock:
            if not self._folder:
                _sweep()
                self._folder, hold = _new_folder()
                self._remover = weakref.finalize(self, _remove, self._folder, hold, os.getpid())
            return self._folder


def _new_folder() -> tuple[str, int]:
    """Create a private folder in the temporary directory, and lock it while it is in use."""
    folder = tempfile.mkdtemp(prefix=_PREFIX)
    try:
        hold = os.open(folder, READ_FOLDER)
    except OSError:
        os.rmdir(folder)
        raise
    fcntl.flock(hold, fcntl.LOCK_EX)
    # The user of commands must pass through it, but not list it.
    os.fchmod(hold, 0o711)
    return folder, hold


def _sweep() -> None:
    """Remove folders that a killed runtime of the same user left: they are not locked."""
    place = tempfile.gettempdir()
    for name in os.listdir(place):
        path = os.path.join(place, name)
        with suppress(OSError):
            # A folder that is just being created is not locked either, but has another mode.
            if name.startswith(_PREFIX) and os.lstat(path).st_mode == _PASSABLE:
                hold = os.open(path, READ_FOLDER)
                try:
                    fcntl.flock(hold, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(hold)
                else:
                    _remove(path, hold, os.getpid())


def _remove(folder: str, hold: int, owner: int) -> None:
    """Remove the folder and its contents, if it is ours; a forked process does not."""
    with suppress(OSError):
        if owner == os.getpid() and os.fstat(hold).st_uid == os.geteuid():
            for name in os.listdir(folder):
                remove_tree(os.path.join(folder, name))
            os.rmdir(folder)
    os.close(hold)
