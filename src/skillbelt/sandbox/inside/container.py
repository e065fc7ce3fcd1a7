"""The first process of a container: it starts one command after another and ends what they leave.

It comes over its own input, which `START` reads; any Python from 3.9 on will do. Its arguments are
places of mounts that the runtime wants to know of. It speaks with the runtime over its input and
output, in frames: a letter, the length of what follows in four bytes, and that. When its input
ends, the runtime is gone, and with this process everything in the container ends.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import select
import signal
import stat
import struct
import sys
import termios
import time
from contextlib import suppress
from typing import Any, NoReturn

from skillbelt.sandbox.inside.command import (
    FAILED,
    KILLED,
    SET_DUMPABLE,
    become,
    exit_code,
    load_filter,
    load_lock,
    prctl,
    reset_signals,
)

HELLO, OUTPUT, ERRORS, TAKEN, BROKEN, STARTED, REFUSED, DONE, CLEAN, UNCLEAN = (
    b"H", b"1", b"2", b"T", b"B", b"S", b"F", b"D", b"C", b"U")  # fmt: skip
JOB, INPUT, END_OF_INPUT, KILL = b"J", b"I", b"E", b"K"
HEADER = struct.Struct(">cI")
# Short, since everybody can read a command line.
START = (
    "import os; text = b''\n"
    "while len(text) < {size}: text += os.read(0, {size} - len(text)) or os._exit(125)\n"
    "exec(compile(text, 'keeper', 'exec'))"
)
NAMESPACES = ("ipc", "mnt", "net", "pid", "uts")
_CHUNK = 64 * 2**10
_ENOUGH = 4 * _CHUNK  # what may wait for the runtime before the command has to
_SWEEP_SECONDS, _CLEAR_SECONDS = 5.0, 2.0
_MORE_LIKELY = "500"  # that memory is taken from the command rather than from this process
_GET_IO_PRIORITY = {"x86_64": 252, "aarch64": 31}
_PREFIX = "sandbox: 1: exec: "  # of the messages in the native sandbox, which a shell gives
_WINDOW = struct.pack("HHHH", 24, 80, 0, 0)
_libc = ctypes.CDLL(None, use_errno=True)


class Unstartable(Exception):
    """What a command needs can not be set up; its own failures are something else."""


class Keeper:
    """What is on its way to and from the runtime, and the command that runs, if one does."""

    def __init__(self, devices: set[int]) -> None:
        """`devices` are those that something of the host is on: nothing there is ever removed."""
        self._inbox, self._outbox = bytearray(), bytearray()
        self._devices = devices
        self._command: Command | None = None
        self._standing = standing()
        self._wake, wake = os.pipe()
        for fd in (0, 1, self._wake, wake):
            os.set_blocking(fd, False)
        # The end of a child interrupts nothing by itself; it writes here.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self, hello: dict[str, Any]) -> None:
        """Do what the runtime says until it is gone."""
        self._say(HELLO, json.dumps(hello).encode())
        while True:
            events = self._wait()
            if 1 in events:
                self._flush()
            if 0 in events and not self._hear():
                return
            if self._command is not None:
                self._attend(self._command, events)

    def _wait(self) -> dict[int, int]:
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        if self._outbox:
            poll.register(1, select.POLLOUT)
        if self._command is not None:
            self._command.register(poll, len(self._outbox) < _ENOUGH)
        events = dict(poll.poll())
        if self._wake in events:
            os.read(self._wake, 512)
        return events

    def _say(self, kind: bytes, data: bytes = b"") -> None:
        self._outbox += HEADER.pack(kind, len(data)) + data
        self._flush()

    def _flush(self) -> None:
        try:
            while self._outbox:
                del self._outbox[: os.write(1, self._outbox[:_CHUNK])]
        except BlockingIOError:
            pass

    def _hear(self) -> bool:
        """Take what the runtime said; false when it is gone."""
        try:
            data = os.read(0, _CHUNK)
        except BlockingIOError:
            return True
        self._inbox += data
        while len(self._inbox) >= HEADER.size:
            kind, size = HEADER.unpack_from(self._inbox)
            if len(self._inbox) < HEADER.size + size:
                break
            body = bytes(self._inbox[HEADER.size : HEADER.size + size])
            del self._inbox[: HEADER.size + size]
            self._obey(kind, body)
        return bool(data)

    def _obey(self, kind: bytes, body: bytes) -> None:
        command = self._command
        if kind == JOB and command is None:
            self._start(json.loads(body))
        elif command is not None and kind == INPUT:
            command.pending += body
        elif command is not None and kind == END_OF_INPUT:
            command.last = True
        elif command is not None and kind == KILL:
            self._finish(command)

    def _start(self, task: dict[str, Any]) -> None:
        try:
            self._command = Command(task)
        except (OSError, Unstartable) as error:
            self._say(REFUSED, str(error).encode("utf-8", "surrogateescape"))
        else:
            self._say(STARTED)

    def _attend(self, command: Command, events: dict[int, int]) -> None:
        if command.stdin in events and events[command.stdin] & ~select.POLLIN:
            self._feed(command)
        command.end_input()
        for fd in tuple(command.outputs):
            if events.get(fd, 0) & ~select.POLLOUT:
                self._pass_on(command, fd)
        if command.reap():
            self._finish(command)

    def _feed(self, command: Command) -> None:
        taken, broken = command.feed()
        if broken:
            self._say(BROKEN)
        elif taken:
            self._say(TAKEN, struct.pack(">I", taken))

    def _pass_on(self, command: Command, fd: int) -> bool:
        """Read once; false when nothing is there."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # a terminal that nobody holds any more
            data = b""
        if data:
            self._say(command.outputs[fd], data)
        else:
            del command.outputs[fd]
        return bool(data)

    def _finish(self, command: Command) -> None:
        """Nothing that the command has started is left when the runtime is told of its end."""
        gone = command.sweep()
        for fd in tuple(command.outputs):
            while self._pass_on(command, fd):
                pass
        command.close()
        self._command = None
        ended = {"code": command.code, "cpu": command.cpu_seconds(), "gone": gone}
        self._say(DONE, json.dumps(ended).encode())
        self._flush_all()
        clean = gone and standing() == self._standing and clear(command.temporary, self._devices)
        self._say(CLEAN if clean else UNCLEAN)

    def _flush_all(self) -> None:
        poll = select.poll()
        poll.register(1, select.POLLOUT)
        while self._outbox:
            poll.poll()
            self._flush()


class Command:
    """A command that runs: its streams and what is to be written to it."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.pending, self.last, self.code = bytearray(), False, KILLED
        self._terminal, self._before = task["terminal"], _children_cpu()
        self.temporary = task["temporary"]
        self.stdin, self.outputs, theirs = _terminal() if self._terminal else _pipes()
        self._fds = {self.stdin, *self.outputs}
        told, tell = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _become(task, theirs, tell)
        for fd in (*set(theirs), tell):
            os.close(fd)
        with os.fdopen(told, "rb") as file:
            said = file.read()
        if said:
            self.sweep()
            self.close()
            raise Unstartable(said.decode("utf-8", "surrogateescape"))
        for fd in self._fds:
            os.set_blocking(fd, False)

    def register(self, poll: select.poll, room: bool) -> None:
        """Ask to be told of what can be read or written."""
        wanted = dict.fromkeys(self.outputs, select.POLLIN) if room else {}
        if self.pending:
            wanted[self.stdin] = wanted.get(self.stdin, 0) | select.POLLOUT
        for fd, events in wanted.items():
            poll.register(fd, events)

    def feed(self) -> tuple[int, bool]:
        """Write what is taken now: how much that was, and whether nobody reads any more."""
        before = len(self.pending)
        try:
            while self.pending:
                del self.pending[: os.write(self.stdin, self.pending[:_CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            self.pending.clear()
            self.last = True
            return 0, True
        return before - len(self.pending), False

    def end_input(self) -> None:
        """Tell the command that no more comes, once all is written."""
        if not self.last or self.pending or self.stdin not in self._fds:
            return
        self.last = False
        if self._terminal:
            with suppress(OSError):
                os.write(self.stdin, b"\x04")
        else:
            self._fds.discard(self.stdin)
            os.close(self.stdin)

    def reap(self) -> bool:
        """Take everything that has ended; true when the command itself is among it."""
        ended = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ended
            if pid == 0:
                return ended
            if pid == self._pid:
                ended = True
                self.code = exit_code(status)

    def sweep(self) -> bool:
        """End everything else in the container; false when something does not end."""
        if os.getpid() != 1:
            raise Unstartable("only the first process of a container may end all others")
        until = time.monotonic() + _SWEEP_SECONDS
        while time.monotonic() < until:
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            self.reap()
            if not others():
                return True
            time.sleep(0.0005)
        return False

    def cpu_seconds(self) -> float:
        """What the command and all it started have used; they were all waited for."""
        return _children_cpu() - self._before

    def close(self) -> None:
        """Let go of the streams."""
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()


def others() -> list[int]:
    """The processes in the container, but for this one."""
    own = os.getpid()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own]


def standing() -> tuple[object, ...]:
    """How the kernel treats this process, which a command of the same user can make worse.

    The next command would inherit it.
    """
    number = _GET_IO_PRIORITY.get(os.uname().machine, -1)
    priority = os.getpriority(os.PRIO_PROCESS, 0)
    io_priority = _libc.syscall(ctypes.c_long(number), 1, 0)
    return priority, io_priority, os.sched_getscheduler(0), sorted(os.sched_getaffinity(0))


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _pipes() -> tuple[int, dict[int, bytes], tuple[int, ...]]:
    """Where to write, what to read as which stream, and the three ends of the command."""
    given, said, shown = os.pipe(), os.pipe(), os.pipe()
    return given[1], {said[0]: OUTPUT, shown[0]: ERRORS}, (given[0], said[1], shown[1])


def _terminal() -> tuple[int, dict[int, bytes], tuple[int, ...]]:
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, _WINDOW)
    return ours, {ours: OUTPUT}, (theirs, theirs, theirs)


def _become(task: dict[str, Any], streams: tuple[int, ...], tell: int) -> NoReturn:
    """In the child: apply everything, then become the command."""
    try:
        _prepare(task, streams, tell)
        execute = load_lock(**task["lock"]) if task["lock"] else os.execve
    except BaseException as error:
        os.write(tell, str(error).encode("utf-8", "surrogateescape"))
        os._exit(FAILED)
    os._exit(become(task["argv"], task["env"], execute, _PREFIX))


def _prepare(task: dict[str, Any], streams: tuple[int, ...], tell: int) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    reset_signals()
    _set_streams(streams, tell)
    if task["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    prctl(SET_DUMPABLE, 1)  # else its own files in /proc are root's
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write(_MORE_LIKELY)
    os.chdir(task["cwd"])
    for kind, wanted in task["limits"]:
        _limit(kind, *wanted)
    load_filter(bytes.fromhex(task["filter"]))


def _set_streams(streams: tuple[int, ...], tell: int) -> None:
    """The three streams, and nothing else that is open."""
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != tell:
            with suppress(OSError):  # the folder that was listed is closed already
                os.close(int(name))


def _limit(kind: int, soft: int, hard: int) -> None:
    """Set the limit, not above what the container itself has."""
    most = resource.getrlimit(kind)[1]
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(kind, (soft, hard))


def clear(folders: list[str], kept: set[int]) -> bool:
    """Empty the folders, but for what is mounted there; false when something stays.

    Nothing is removed on the devices that are to be kept.
    """
    until = time.monotonic() + _CLEAR_SECONDS
    try:
        there = [(folder, os.stat(folder).st_dev) for folder in folders if os.path.isdir(folder)]
        own = [(folder, device) for folder, device in there if device not in kept]
        return all(_clear(folder, device, until) for folder, device in own)
    except (OSError, RecursionError):
        return False


def _clear(folder: str, device: int, until: float) -> bool:
    with os.scandir(folder) as entries:
        for entry in entries:
            found = entry.stat(follow_symlinks=False)
            if found.st_dev == device and not _removed(entry.path, found, device, until):
                return False
    return time.monotonic() < until


def _removed(path: str, found: os.stat_result, device: int, until: float) -> bool:
    """Whether it is gone; what the engine made to mount something on may stay."""
    if found.st_uid != os.getuid():
        return stat.S_ISDIR(found.st_mode) and _clear(path, device, until)
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(path)
        return True
    os.chmod(path, 0o700)
    if not _clear(path, device, until):
        return False
    os.rmdir(path)
    return True


def about_me(places: list[str]) -> dict[str, Any]:
    """What the kernel says of this process and of the places, so that the runtime can check."""
    with open("/proc/self/status", encoding="utf-8") as lines:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in lines if ":\t" in line)
    wanted = ("Uid", "Gid", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")
    seen = [os.stat(place) for place in places]
    return {
        **{name: status.get(name, "") for name in wanted},
        "namespaces": [namespace(name) for name in NAMESPACES],
        "places": [(found.st_dev, found.st_ino) for found in seen],
    }


def namespace(name: str) -> str:
    """The namespace of that kind that this process is in; empty when that is not known."""
    try:
        return os.readlink(f"/proc/self/ns/{name}")
    except OSError:  # a kernel of its own need not have it
        return ""


def main(places: list[str]) -> None:
    """Be the first process. What has the same user can then neither read nor change it."""
    hello = about_me(places)
    prctl(SET_DUMPABLE, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    Keeper({device for device, _ in hello["places"]}).serve(hello)


if __name__ == "__main__":
    main(sys.argv[1:])
