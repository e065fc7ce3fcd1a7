"""The launcher of the sandboxes without namespaces. Any Python from 3.9 on runs it as a text.

Run as `python3 -I -S -c TEXT FD`; the handle gives a JSON object with what to do. It starts the
command as its child, behind the same answer as everywhere, stays above it, and lets nothing below
it live on when the command ends, when it is asked to stop, or when the runtime is gone.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

_SET_DEATH_SIGNAL, _SET_NO_NEW_PRIVILEGES, _SET_SUBREAPER, _SET_SECCOMP = 1, 38, 36, 22
_SET_DUMPABLE = 4
_FILTER_MODE = 2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_PATH_BENEATH = 1
_OWN_PROCESS = "/proc/self"
_FAILED = 125
_SWEEP_SECONDS = 4.0  # the runtime waits a little longer
_MOST_FOLLOWED = 2**15  # of those that may start others faster than they are found
_AWAITED = (signal.SIGTERM, signal.SIGCHLD)
_libc = ctypes.CDLL(None, use_errno=True)


def main(fd: int) -> int:
    """Run the command; gives its exit code."""
    with os.fdopen(fd, "rb") as file:
        task = json.load(file)
    # Waited for, not handled: a handler can run too early, just before the wait that it should end.
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    _call("prctl", _SET_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    _call("prctl", _SET_SUBREAPER, 1, 0, 0, 0)
    if os.getppid() != task["parent"]:
        return _FAILED  # it was gone before we asked to be told
    # The command may be of the same user, and is not to look into this process or its handles.
    _call("prctl", _SET_DUMPABLE, 0, 0, 0, 0)
    child = os.fork()
    if child == 0:
        _call("prctl", _SET_DUMPABLE, 1, 0, 0, 0)
        _become(task)
    _let_go()
    _hold(child, task["rules"])
    code = _wait(child)
    if not _sweep():
        os.kill(os.getpid(), signal.SIGKILL)  # as nothing else does, so the runtime knows
    return code


def _let_go() -> None:
    """The streams are the command's; whoever reads them must see their end."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _hold(child: int, rules: dict[str, Any] | None) -> None:
    """Keep the child's own files in /proc: its rules are of these, and would not be of new ones."""
    for path, _ in rules["paths"] if rules else ():
        if path.startswith(_OWN_PROCESS):
            with suppress(OSError):
                os.open(path.replace(_OWN_PROCESS, f"/proc/{child}", 1), os.O_PATH | os.O_CLOEXEC)


def _wait(child: int) -> int:
    """The exit code of the child, or of somebody killed when the runtime wants the end."""
    while signal.sigwait(_AWAITED) == signal.SIGCHLD:
        pid, status = os.waitpid(-1, os.WNOHANG)
        while pid:
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                return 128 - code if code < 0 else code
            pid, status = os.waitpid(-1, os.WNOHANG)
    return 128 + signal.SIGKILL


def _sweep() -> bool:
    """End everything below; what loses its parent becomes our child, so nothing gets away.

    False when something does not end.
    """
    until = time.monotonic() + _SWEEP_SECONDS
    while time.monotonic() < until:
        for pid in _below(os.getpid()):
            with suppress(OSError):
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
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children", "rb") as file:
                    children = [int(each) for each in file.read().split()]
                found += children
                pending += children
    return found


def _become(task: dict[str, Any]) -> NoReturn:
    """In the child: give up everything that is not granted, then be the command."""
    try:
        _prepare(task)
        become = _locked(task["lock"]) if task["lock"] else os.execve
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(_FAILED)
    code, reason = 127, "not found"
    for path in _places(task["argv"][0], task["env"].get("PATH", "")):
        try:
            become(path, task["argv"], task["env"])
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            code, reason = 126, str(error.strerror)
    os.write(2, f"{task['argv'][0]}: {reason}\n".encode("utf-8", "surrogateescape"))
    os._exit(code)


def _places(name: str, path: str) -> list[str]:
    """Where a program may lie; os.execvpe would import something it can not read any more."""
    if "/" in name:
        return [name]
    return [os.path.join(folder, name) for folder in path.split(":") if folder]


def _prepare(task: dict[str, Any]) -> None:
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
    _call("prctl", _SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    os.setsid()
    if task["identity"] is not None:
        uid, gid = task["identity"]
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        # It was forgotten with the change of the user.
        _call("prctl", _SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    os.chdir(task["cwd"])
    rules = _ruleset(task["rules"]) if task["rules"] else None
    _answered()
    if task["terminal"]:
        fcntl.ioctl(2, termios.TIOCSCTTY, 0)
        os.dup2(2, 0)
        os.dup2(2, 1)
    # Set last, as anything above needs handles and memory itself.
    _call("prctl", _SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    for kind, values in task["limits"]:
        resource.setrlimit(kind, tuple(values))
    if rules is not None:
        _system_call(_RESTRICT_SELF, rules, 0)
    if task["filter"]:
        _load_filter(bytes.fromhex(task["filter"]))


def _locked(lock: dict[str, Any]) -> Callable[[str, list[str], dict[str, str]], None]:
    """A way to become a program that can become no other, for it does not know the number."""
    number, program = os.urandom(8), bytearray.fromhex(lock["filter"])
    for half, at in enumerate(lock["at"]):
        program[at : at + 4] = number[4 * half : 4 * half + 4]
    _load_filter(bytes(program))

    def become(path: str, argv: list[str], env: dict[str, str]) -> None:
        variables = [f"{name}={value}" for name, value in env.items()]
        lists = [[os.fsencode(each) for each in one] for one in (argv, variables)]
        given = [(ctypes.c_char_p * (len(one) + 1))(*one, None) for one in lists]
        wide = ctypes.c_ulong(int.from_bytes(number, sys.byteorder))
        _libc.syscall(ctypes.c_long(lock["call"]), os.fsencode(path), *given, wide)
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    return become


def _answered() -> None:
    """Say that all is in place, and go on only when somebody is there to answer."""
    os.write(1, b"1")
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            os._exit(_FAILED)
        line += piece


def _ruleset(rules: dict[str, Any]) -> int:
    attributes = struct.pack("QQQ", *rules["handled"])[: rules["size"]]
    handle = _system_call(_CREATE_RULESET, attributes, len(attributes), 0)
    for path, access in rules["paths"]:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", access, place)
        _system_call(_ADD_RULE, handle, _PATH_BENEATH, rule, 0)
        os.close(place)
    return handle


def _load_filter(program: bytes) -> None:
    text = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(text))
    _call("prctl", _SET_SECCOMP, _FILTER_MODE, header, 0, 0)


def _call(name: str, *arguments: int | bytes) -> int:
    converted = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments]
    done = int(getattr(_libc, name)(*converted))
    if done < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return done


def _system_call(number: int, *arguments: int | bytes) -> int:
    return _call("syscall", number, *arguments)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
