"""The launcher of the sandboxes without namespaces.

Run as `python3 -I -S -c TEXT FD`; the descriptor holds a JSON object with the task. It starts the
command as its child once the runtime answers, stays above it, and kills everything below it when
the command ends, when it receives SIGTERM, or when the runtime is gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import sys
import termios
import time
from contextlib import suppress
from typing import Any, NoReturn

from skillbelt.sandbox.inside.command import (
    FAILED,
    KILLED,
    RESTRICT_SELF,
    SET_DEATH_SIGNAL,
    SET_DUMPABLE,
    SET_NO_NEW_PRIVILEGES,
    SET_SUBREAPER,
    become,
    call,
    change_user,
    close_streams,
    exit_code,
    load_filter,
    load_lock,
    make_ruleset,
    prctl,
    reset_signals,
)

_OWN_PROCESS = "/proc/self"
_SWEEP_SECONDS = 4.0  # the runtime waits a little longer
_NEAR, _MOST_UNSEEN = 16, 2**16
_MOST_FOLLOWED = 2**15  # in case processes are started faster than they are found
_AWAITED = (signal.SIGTERM, signal.SIGCHLD)


def main(fd: int) -> int:
    """Run the command; return its exit code."""
    with os.fdopen(fd, "rb") as file:
        task = json.load(file)
    # Waited for, not handled: a handler can run just before the wait that it should interrupt.
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    prctl(SET_DEATH_SIGNAL, signal.SIGTERM)
    prctl(SET_SUBREAPER, 1)
    if os.getppid() != task["parent"]:
        return FAILED  # the runtime was gone before the death signal was set
    # The command may run as the same user, and must not read this process or its descriptors.
    prctl(SET_DUMPABLE, 0)
    child = os.fork()
    if child == 0:
        prctl(SET_DUMPABLE, 1)
        _become(task)
    close_streams()
    _hold_open(child, task["rules"])
    code = _wait(child)
    if not _sweep():
        os.kill(os.getpid(), signal.SIGKILL)  # tells the runtime that a process is left
    return code


def _hold_open(child: int, rules: dict[str, Any] | None) -> None:
    """Keep the child's files in /proc open: the kernel would create new ones without the rules."""
    for path, _ in rules["paths"] if rules else ():
        if path.startswith(_OWN_PROCESS):
            with suppress(OSError):  # the child has ended, or the kernel has no such file
                os.open(path.replace(_OWN_PROCESS, f"/proc/{child}", 1), os.O_PATH | os.O_CLOEXEC)


def _wait(child: int) -> int:
    """Return the child's exit code; 137 when the runtime asked us to stop."""
    while signal.sigwait(_AWAITED) == signal.SIGCHLD:
        pid, status = os.waitpid(-1, os.WNOHANG)
        while pid:
            if pid == child:
                return exit_code(status)
            pid, status = os.waitpid(-1, os.WNOHANG)
    return KILLED


def _sweep() -> bool:
    """Kill everything below; return False when a process does not exit.

    A process that loses its parent becomes our child, so none escapes.
    """
    until = time.monotonic() + _SWEEP_SECONDS
    while time.monotonic() < until:
        for pid in _below(os.getpid()):
            with suppress(OSError):  # it has ended
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        time.sleep(0.0005)
    return False


def _below(pid: int) -> list[int]:
    found: list[int] = []
    pending = [pid]
    while pending and len(found) < _MOST_FOLLOWED:
        parent = pending.pop()
        with suppress(OSError):  # it has ended
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children", "rb") as file:
                    children = [int(each) for each in file.read().split()]
                found += children
                pending += children
    return found


def _become(task: dict[str, Any]) -> NoReturn:
    """In the child: drop everything that is not granted, then become the command."""
    try:
        _prepare(task)
        execute = load_lock(**task["lock"]) if task["lock"] else os.execve
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(FAILED)
    os._exit(become(task["argv"], task["env"], execute))


def _prepare(task: dict[str, Any]) -> None:
    reset_signals()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
    prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
    os.setsid()
    change_user(task["identity"])
    prctl(SET_DEATH_SIGNAL, signal.SIGKILL)  # the change of the user has reset it
    os.chdir(task["cwd"])
    rules = make_ruleset(**task["rules"]) if task["rules"] else None
    _wait_for_answer()
    if task["terminal"]:
        fcntl.ioctl(2, termios.TIOCSCTTY, 0)
        os.dup2(2, 0)
        os.dup2(2, 1)
    # Last, since everything above needs descriptors and memory itself.
    prctl(SET_NO_NEW_PRIVILEGES, 1)
    tasks = task.get("tasks")
    unseen = 0 if tasks is None else find_unseen_tasks(tasks)
    for kind, values in task["limits"]:
        if kind == resource.RLIMIT_NPROC and unseen:
            values = [_within_hard(kind, value + unseen) for value in values]
        resource.setrlimit(kind, tuple(values))
    if rules is not None:
        call("syscall", RESTRICT_SELF, rules, 0)
    if task["filter"]:
        load_filter(bytes.fromhex(task["filter"]))


def find_unseen_tasks(seen: int) -> int:
    """Return an upper bound on the tasks of this user beside the visible ones.

    Other containers may have the same user: the kernel counts all of them for one limit.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    enough, step = seen + _NEAR, _NEAR
    if _may_fork(enough, hard):
        return 0
    while not _may_fork(enough, hard):
        step *= 2
        enough += step
        if step > _MOST_UNSEEN:
            return 0  # this limit does not apply
    few = enough - step
    while enough - few > _NEAR:
        middle = (few + enough) // 2
        few, enough = (few, middle) if _may_fork(middle, hard) else (middle, enough)
    return enough - seen


def _within_hard(kind: int, wanted: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def _may_fork(most: int, hard: int) -> bool:
    limit = _within_hard(resource.RLIMIT_NPROC, most)
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, hard))
    try:
        child = os.fork()
    except BlockingIOError:
        return False
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    return True


def _wait_for_answer() -> None:
    """Report that everything is in place; exit when the runtime does not answer."""
    os.write(1, b"1")
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            os._exit(FAILED)
        line += piece


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
