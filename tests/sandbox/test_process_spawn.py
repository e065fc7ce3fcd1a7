from __future__ import annotations

import os
import signal
import threading
import time
import warnings

import pytest

from skillbelt.sandbox.process.spawn import Ends, descendants, order, spawn


def start(*argv: str, others: tuple[int, ...] = ()) -> int:
    null = os.open(os.devnull, os.O_RDWR)
    try:
        return spawn(argv, Ends(null, null, null, others))
    finally:
        os.close(null)


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_every_process_has_the_same_thread_as_its_parent() -> None:
    """Attack 31: the kernel ends a sandbox with the thread that started it."""
    found: list[int] = []
    asking = [threading.Thread(target=lambda: found.append(start("/bin/sleep", "60")))
              for _ in range(3)]  # fmt: skip
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    [home] = [thread for thread in threading.enumerate() if thread.name == "skillbelt-spawn"]
    with open(f"/proc/self/task/{home.native_id}/children", encoding="utf-8") as file:
        assert set(found) <= {int(pid) for pid in file.read().split()}
    for pid in found:
        os.kill(pid, signal.SIGKILL)
        assert ended(pid) == -signal.SIGKILL


def test_nothing_is_inherited() -> None:
    read, write = os.pipe()
    os.set_inheritable(read, True)
    pid = start("/bin/sh", "-c", f'test -z "$HOME" && test ! -e /proc/self/fd/{read}')
    assert ended(pid) == 0
    os.close(read)
    os.close(write)


def test_a_handle_is_passed_on_by_its_number() -> None:
    read, write = os.pipe()
    assert ended(start("/bin/sh", "-c", f"test -e /proc/self/fd/{read}", others=(read,))) == 0
    os.close(read)
    os.close(write)


def test_a_program_that_is_not_there_is_told() -> None:
    with pytest.raises(FileNotFoundError):
        start("/no/such/program")
    with pytest.raises(ValueError, match="null"):
        start("/bin/true", "\0")


def test_the_end_of_a_stream_comes_with_the_reason() -> None:
    """A reader of the stream needs to wait for nothing else."""
    orders = []

    def ask() -> None:
        read, write = os.pipe()
        null = os.open(os.devnull, os.O_RDWR)
        orders.append(order(("/no/such/program",), Ends(null, write, null)))
        assert os.read(read, 1) == b""
        assert isinstance(orders[0].error, FileNotFoundError)
        os.close(read)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(write)  # it was handed over

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert orders[0].pid == -1


def test_it_works_in_a_fork() -> None:
    """The thread stays behind; another takes its place."""
    assert ended(start("/bin/true")) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions warn of the threads that stay behind
        child = os.fork()
    if child == 0:
        os._exit(ended(start("/bin/sh", "-c", "exit 7")))
    assert ended(child) == 7


def test_descendants_are_found_down_to_the_last() -> None:
    pid = start("/bin/sh", "-c", "sh -c 'sleep 60; :'; :")
    until = time.monotonic() + 150
    while len(descendants(pid)) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    below = descendants(pid)
    assert len(below) == 2
    assert descendants(below[0]) == below[1:]
    for each in (*below, pid):
        os.kill(each, signal.SIGKILL)
    ended(pid)
    assert descendants(pid) == []
