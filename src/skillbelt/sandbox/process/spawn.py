"""Starting a process from the one thread that lives as long as the runtime does.

The kernel ends a sandbox when the thread that started it ends, not when the process does, so the
thread of whoever asks must not be the one; unless it waits for the end.
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
    """What the new process has as its three streams, and what else it gets."""

    stdin: int
    stdout: int
    stderr: int
    others: tuple[int, ...] = ()


class Order:
    """One process to start, and what became of it: its pid, or why there is none.

    Its ends are closed then, unless somebody waits for `done`; so a stream of the process comes to
    its end without it. Which of the two is known once `settled` can be had: the process may say
    something before this thread gets round to noting its pid.
    """

    def __init__(self, argv: Sequence[str], ends: Ends, done: threading.Event | None) -> None:
        self._argv, self._ends, self._done = argv, ends, done
        self.settled = threading.Lock()
        self.settled.acquire()
        self.pid = -1
        self.error: OSError | ValueError | None = None

    def carry_out(self) -> None:
        """Start it; nothing of ours is inherited, neither environment nor handles nor terminal."""
        try:
            self.pid = _popen(self._argv, self._ends)
        except (OSError, ValueError) as error:
            self.error = error
        finally:
            self.settled.release()
        if self._done is not None:
            self._done.set()
            return
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
    # Whoever ordered it waits for it; this object would only warn.
    process.returncode = 0
    return process.pid


class _Spawner:
    """The thread, and the process it belongs to: a fork has none."""

    def __init__(self) -> None:
        self.orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self.pid = os.getpid()
        threading.Thread(target=self._work, name="skillbelt-spawn", daemon=True).start()

    def _work(self) -> None:
        while True:
            self.orders.get().carry_out()


_lock = threading.Lock()
_spawner: _Spawner | None = None


def spawn(argv: Sequence[str], ends: Ends) -> int:
    """Start the program and give its pid; OSError or ValueError when it can not be."""
    done = threading.Event()
    given = Order(argv, ends, done)
    _hand_over(given)
    done.wait()
    if given.error is not None:
        raise given.error
    return given.pid


def order(argv: Sequence[str], ends: Ends, here: bool = False) -> Order:
    """Start the program, now or in a moment; with `here`, it ends with the calling thread."""
    given = Order(argv, ends, None)
    if here:
        given.carry_out()
    else:
        _hand_over(given)
    return given


def _hand_over(given: Order) -> None:
    global _spawner
    if threading.current_thread() is threading.main_thread():
        given.carry_out()  # it lives as long as the runtime too
        return
    with _lock:
        if _spawner is None or _spawner.pid != os.getpid():
            _spawner = _Spawner()
    _spawner.orders.put(given)


def descendants(pid: int) -> list[int]:
    """The processes below this one, parents before children; itself is not among them.

    Not without end, where they start others faster than they can be followed.
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
    """The processes that one thread has started, the first one by default, oldest first."""
    return [int(each) for each in _told(f"{pid}/task/{thread or pid}/children").split()]


def _told(name: str) -> bytes:
    """What the system says of a process. A file object would ask it five more questions."""
    handle = os.open(f"/proc/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(handle, _CHUNK)
        # It gives whole lines or words, as many as there is room for.
        if len(data) < _CHUNK // 2:
            return data
        return data + b"".join(iter(lambda: os.read(handle, _CHUNK), b""))
    finally:
        os.close(handle)
