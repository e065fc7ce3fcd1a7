"""The launcher for systems other than Linux, which have no better way to kill a whole tree.

Run as `python3 -I -S -c TEXT TASK HOLD`. TASK is a descriptor with a JSON object; HOLD is one end
of a socket pair. When the other end is closed, or its process is gone, the command and its
descendants are killed. A process that has left its process group and lost its parent is not found:
there is no subreaper outside Linux.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any, NoReturn

from skillbelt.sandbox.inside.command import (
    FAILED,
    KILLED,
    MISSING,
    become,
    change_user,
    close_streams,
    exit_code,
    reset_signals,
)

_PS = "/bin/ps"
_ROUNDS = 5
_LONG_SECONDS = 3600.0


def main(task_fd: int, hold: int) -> int:
    """Run the command; return its exit code."""
    os.set_inheritable(hold, False)
    with os.fdopen(task_fd, "rb") as file:
        task = json.load(file)
    # SIGCHLD does not interrupt `select`; its handler writes here.
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    child = os.fork()
    if child == 0:
        _become(task)
    close_streams()
    code = _wait(child, ended, hold)
    _sweep(child, task["processes"])
    return code


def _wait(child: int, ended: int, hold: int) -> int:
    while True:
        ready, _, _ = select.select([ended, hold], [], [], _LONG_SECONDS)
        if hold in ready:
            return KILLED
        if ended in ready:
            os.read(ended, 512)
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return exit_code(status)


def _sweep(child: int, processes_allowed: bool) -> None:
    """Stop everything first, so that nothing new is started; then kill it."""
    doomed: set[int] = set()
    for _ in range(_ROUNDS if processes_allowed else 0):
        with suppress(OSError):  # the group is empty
            os.killpg(child, signal.SIGSTOP)
        found = set(below(os.getpid())) - doomed
        if not found:
            break
        for pid in found:
            _signal(pid, signal.SIGSTOP)
        doomed |= found
    with suppress(OSError):  # the group is empty
        os.killpg(child, signal.SIGKILL)
    for pid in doomed | {child}:
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: int) -> None:
    with suppress(OSError):  # it has ended
        os.kill(pid, number)


def below(pid: int) -> list[int]:
    """Return the descendants of a process, as `ps` lists them."""
    parents: dict[int, list[int]] = {}
    for one, parent, _ in processes():
        parents.setdefault(parent, []).append(one)
    found, pending = [], [pid]
    while pending:
        children = parents.get(pending.pop(), [])
        found += children
        pending += children
    return found


def processes() -> list[tuple[int, int, int]]:
    """Return the pid, the parent and the user of every process; none without a `ps`."""
    try:
        ps = subprocess.Popen([_PS, "-axo", "pid=,ppid=,uid="], stdout=subprocess.PIPE, env={})
    except OSError:
        return []
    rows = [line.split() for line in ps.communicate()[0].splitlines()]
    found = [(int(row[0]), int(row[1]), int(row[2])) for row in rows if len(row) == 3]
    return [one for one in found if one[0] != ps.pid]


def _become(task: dict[str, Any]) -> NoReturn:
    """In the child: apply the limits, then become the command."""
    try:
        signal.set_wakeup_fd(-1)
        if not task["argv"]:
            os.write(2, f"{task['missing']}: not found\n".encode("utf-8", "surrogateescape"))
            os._exit(MISSING)
        reset_signals()
        os.setsid()
        others = _count_processes(task)
        change_user(task["identity"])
        os.chdir(task["cwd"])
        for kind, (soft, hard) in task["limits"]:
            more = others if kind == resource.RLIMIT_NPROC else 0
            resource.setrlimit(kind, (soft + more, hard + more))
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "surrogateescape"))
        os._exit(FAILED)
    os._exit(become(task["argv"], task["env"]))


def _count_processes(task: dict[str, Any]) -> int:
    """Count the user's processes: the limit covers them together with those of the run."""
    uid = task["identity"][0] if task["identity"] else os.getuid()
    return sum(user == uid for _, _, user in processes()) if task["processes"] else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
