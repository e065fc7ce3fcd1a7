"""Start processes from a thread that lives as long as the runtime.

The kernel sends a parent-death signal when the thread that forked ends, not when its process does.
So the calling thread must not be the one that forks, unless it waits for the end.
"""

import os
import queue
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

_CHUNK = 2**12
_MOST_FOLLOWED = 2**15


class Ends(NamedTuple):
    """The three streams of the new process, and the other descriptors that it inherits."""

    stdin: int
    stdout: int
    stderr: int
    others: tuple[int, ...] = ()


class Order:
    """One process to start, and the result: its pid, or the error.

    The result is valid once `settled` can be acquired: the process may write something before this
    thread has stored its pid. Without `done` the ends are closed here, so that streams reach EOF.
    """

    def __init__(self, argv: Sequence[str], ends: Ends, done: threading.Event | None) -> None:
        self._argv, self._ends, self._done = argv, ends, done
        self.settled = threading.Lock()
        self.settled.acquire()
        self.pid = -1
        self.error: OSError | ValueError | None = None

    def carry_out(self) -> None:
        """Start it; it inherits no environment, no descriptors and no terminal."""
        try:
            self.pid = _popen(self._argv, self._ends)
        except (OSError, ValueError) as error:
            self.error = error
        finally:
            self.settled.release()
        if self._done is not None:
            self._done.set()
        else:
            self.close_ends()

    def close_ends(self) -> None:
        """Close the descriptors that the process inherited."""
        stdin, stdout, stderr, others = self._ends
        for fd in {stdin, stdout, stderr, *others}:
            os.close(fd)


def _popen(argv: Sequence[str], ends: Ends) -> int:
    process = subprocess.Popen(
        argv,
        stdin=ends.stdin,
        stdout=ends.stdout,
        stderr=ends.stderr,
        pass_fds=ends.others,
        env={},
        cwd="/",
        start_new_session=True,
    )
    # The caller waits for the pid itself; without this the object would warn.
    process.returncode = 0
    return process.pid


class _Spawner:
    """The thread, and the pid of its process: a forked process has no such thread."""

    def __init__(self) -> None:
        self.orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self.pid = os.getpid()
        threading.Thread(target=self._serve, name="skillbelt-spawn", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self.orders.get().carry_out()


_lock = threading.Lock()
_spawner: _Spawner | None = None


def spawn(argv: Sequence[str], ends: Ends) -> int:
    """Start the program and return its pid; OSError or ValueError when that fails."""
    done = threading.Event()
    given = Order(argv, ends, done)
    _hand_over(given)
    done.wait()
    if given.error is not None:
        raise given.error
    return given.pid


def order(argv: Sequence[str], ends: Ends, here: bool = False) -> Order:
    """Start the program soon; with `here`, now and in the calling thread."""
    given = Order(argv, ends, None)
    if here:
        given.carry_out()
        return given
    try:
        _hand_over(given)
    except RuntimeError:  # no thread can be started for it
        given.close_ends()
        raise
    return given


def _hand_over(given: Order) -> None:
    global _spawner
    if threading.current_thread() is threading.main_thread():
        given.carry_out()  # the main thread lives as long as the runtime
        return
    with _lock:
        if _spawner is None or _spawner.pid != os.getpid():
            _spawner = _Spawner()
    _spawner.orders.put(given)


def descendants(pid: int) -> list[int]:
    """Return the descendants of a process, parents before children.

    Bounded, in case they start others faster than they are listed.
    """
    found: list[int] = []
    pending = [pid]
    while pending and len(found) < _MOST_FOLLOWED:
        parent = pending.pop()
        with suppress(FileNotFoundError, ProcessLookupError):
            for thread in os.listdir(f"/proc/{parent}/task"):
                below = children(parent, int(thread))
                found += below
                pending += below
    return found


def children(pid: int, thread: int | None = None) -> list[int]:
    """Return the children of one thread, the main thread by default, oldest first."""
    return [int(each) for each in _read_proc(f"{pid}/task/{thread or pid}/children").split()]


def _read_proc(name: str) -> bytes:
    """Read a file in /proc. A file object would make five more system calls."""
    handle = os.open(f"/proc/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(handle, _CHUNK)
        # The kernel returns whole lines or words, as many as fit.
        if len(data) < _CHUNK // 2:
            return data
        return data + b"".join(iter(lambda: os.read(handle, _CHUNK), b""))
    finally:
        os.close(handle)
