"""Starts a command and stays above it where the system has no better way to end a whole tree.

Run by any Python from 3.9 on as `python3 -I -S -c TEXT TASK HOLD`. TASK is a handle with a JSON
object that says what to do; HOLD is one end of a pair of sockets. When the other end is closed, or
whoever had it is gone, the command and what descends from it are ended. What has left its process
group and lost its parent is not found again: there is no subreaper outside Linux.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

_FAILED, _MISSING = 125, 127
_KILLED = 128 + signal.SIGKILL
_PS = "/bin/ps"
_ROUNDS = 5
_LONG_SECONDS = 3600.0


def main(task_fd: int, hold: int) -> int:
    """Run the command; gives its exit code."""
    os.set_inheritable(hold, False)
    with os.fdopen(task_fd, "rb") as file:
        task = json.load(file)
    # The end of a child interrupts nothing by itself; it writes here.
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    child = os.fork()
    if child == 0:
        _become(task)
    _let_go()
    code = _wait(child, ended, hold)
    _sweep(child, task["processes"])
    return code


def _let_go() -> None:
    """The streams are the command's; whoever reads them must see their end."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _wait(child: int, ended: int, hold: int) -> int:
    while True:
        ready, _, _ = select.select([ended, hold], [], [], _LONG_SECONDS)
        if hold in ready:
            return _KILLED
        if ended in ready:
            os.read(ended, 512)
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code


def _sweep(child: int, processes_allowed: bool) -> None:
    """Stop everything first, so that nothing can be started meanwhile; then end it."""
    doomed: set[int] = set()
    for _ in range(_ROUNDS if processes_allowed else 0):
        with suppress(OSError):
            os.killpg(child, signal.SIGSTOP)
        found = set(below(os.getpid())) - doomed
        if not found:
            break
        for pid in found:
            _signal(pid, signal.SIGSTOP)
        doomed |= found
    with suppress(OSError):
        os.killpg(child, signal.SIGKILL)
    for pid in doomed | {child}:
        _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: int) -> None:
    with suppress(OSError):
        os.kill(pid, number)


def below(pid: int) -> list[int]:
    """The processes that descend from this one, as `ps` knows them."""
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
    """The number, the parent and the user of every process; none where there is no `ps`."""
    import subprocess

    try:
        ps = subprocess.Popen([_PS, "-axo", "pid=,ppid=,uid="], stdout=subprocess.PIPE, env={})
    except OSError:
        return []
    rows = [line.split() for line in ps.communicate()[0].splitlines()]
    found = [(int(row[0]), int(row[1]), int(row[2])) for row in rows if len(row) == 3]
    return [one for one in found if one[0] != ps.pid]


def _become(task: dict[str, Any]) -> NoReturn:
    """In the child: take the limits on, then be the command."""
    try:
        signal.set_wakeup_fd(-1)
        if not task["argv"]:
            os.write(2, f"{task['missing']}: not found\n".encode("utf-8", "surrogateescape"))
            os._exit(_MISSING)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        others = _tasks(task)
        _change_user(task["identity"])
        os.chdir(task["cwd"])
        for kind, (soft, hard) in task["limits"]:
            more = others if kind == resource.RLIMIT_NPROC else 0
            resource.setrlimit(kind, (soft + more, hard + more))
        os.execve(task["argv"][0], task["argv"], task["env"])
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "surrogateescape"))
    os._exit(_FAILED)


def _tasks(task: dict[str, Any]) -> int:
    """How many processes the user has: a run is counted with them."""
    uid = task["identity"][0] if task["identity"] else os.getuid()
    return sum(user == uid for _, _, user in processes()) if task["processes"] else 0


def _change_user(identity: list[int] | None) -> None:
    if identity is not None:
        uid, gid = identity
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
