"""The first process of a container: it starts one command after another and kills their leftovers.

`START` reads its text from stdin. Its arguments are mount points to report on. It exchanges frames
with the runtime over stdin and stdout: a letter, the length of the body in four bytes, the body. At
EOF the runtime is gone; it exits, and the container ends with it.
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
# Short, since every user can read a command line.
START = (
    "import os; text = b''\n"
    "while len(text) < {size}: text += os.read(0, {size} - len(text)) or os._exit(125)\n"
    "exec(compile(text, 'container', 'exec'))"
)
NAMESPACES = ("ipc", "mnt", "net", "pid", "uts")
_CHUNK = 64 * 2**10
_ENOUGH = 4 * _CHUNK  # buffered output before the command has to wait
_SWEEP_SECONDS, _CLEAR_SECONDS = 5.0, 2.0
_OOM_SCORE = "500"  # so that the kernel kills the command rather than this process
_GET_IO_PRIORITY = {"x86_64": 252, "aarch64": 31}
_PREFIX = "sandbox: 1: exec: "  # prefix of a shell's messages in the native sandbox
_WINDOW = struct.pack("HHHH", 24, 80, 0, 0)
_libc = ctypes.CDLL(None, use_errno=True)


class Unstartable(Exception):
    """A command cannot be set up. Failures of the command itself are not errors."""


class Keeper:
    """The buffers to and from the runtime, and the running command, if any."""

    def __init__(self, devices: set[int]) -> None:
        """Set up the buffers; nothing on `devices`, those of the host's mounts, is ever removed."""
        self._inbox, self._outbox = bytearray(), bytearray()
        self._devices = devices
        self._command: RunningCommand | None = None
        self._standing = standing()
        self._wake, wake = os.pipe()
        for fd in (0, 1, self._wake, wake):
            os.set_blocking(fd, False)
        # SIGCHLD does not interrupt `poll`; its handler writes here.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self, hello: dict[str, Any]) -> None:
        """Serve requests of the runtime until it is gone."""
        self._send(HELLO, json.dumps(hello).encode())
        while True:
            events = self._wait()
            if 1 in events:
                self._flush()
            if 0 in events and not self._read_requests():
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

    def _send(self, kind: bytes, data: bytes = b"") -> None:
        self._outbox += HEADER.pack(kind, len(data)) + data
        self._flush()

    def _flush(self) -> None:
        try:
            while self._outbox:
                del self._outbox[: os.write(1, self._outbox[:_CHUNK])]
        except BlockingIOError:
            pass

    def _read_requests(self) -> bool:
        """Read requests of the runtime; return False at EOF."""
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
            self._handle(kind, body)
        return bool(data)

    def _handle(self, kind: bytes, body: bytes) -> None:
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
            self._command = RunningCommand(task)
        except (OSError, Unstartable) as error:
            self._send(REFUSED, str(error).encode("utf-8", "surrogateescape"))
        else:
            self._send(STARTED)

    def _attend(self, command: RunningCommand, events: dict[int, int]) -> None:
        if command.stdin in events and events[command.stdin] & ~select.POLLIN:
            self._feed(command)
        command.end_input()
        for fd in tuple(command.outputs):
            if events.get(fd, 0) & ~select.POLLOUT:
                self._pass_on(command, fd)
        if command.reap():
            self._finish(command)

    def _feed(self, command: RunningCommand) -> None:
        taken, broken = command.feed()
        if broken:
            self._send(BROKEN)
        elif taken:
            self._send(TAKEN, struct.pack(">I", taken))

    def _pass_on(self, command: RunningCommand, fd: int) -> bool:
        """Forward output once; return False when there is none."""
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # a terminal whose other end is closed
            data = b""
        if data:
            self._send(command.outputs[fd], data)
        else:
            del command.outputs[fd]
        return bool(data)

    def _finish(self, command: RunningCommand) -> None:
        """Kill all processes of the command, report its exit, and clean up."""
        gone = command.sweep()
        for fd in tuple(command.outputs):
            while self._pass_on(command, fd):
                pass
        command.close()
        self._command = None
        ended = {"code": command.code, "cpu": command.cpu_seconds(), "gone": gone}
        self._send(DONE, json.dumps(ended).encode())
        self._flush_all()
        clean = gone and standing() == self._standing and clear(command.temporary, self._devices)
        self._send(CLEAN if clean else UNCLEAN)

    def _flush_all(self) -> None:
        poll = select.poll()
        poll.register(1, select.POLLOUT)
        while self._outbox:
            poll.poll()
            self._flush()


class RunningCommand:
    """A running command, its streams and its buffered input."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.pending, self.last, self.code = bytearray(), False, KILLED
        self._terminal, self._before = task["terminal"], _children_cpu()
        self.temporary = task["temporary"]
        self.stdin, self.outputs, theirs = _terminal() if self._terminal else _pipes()
        self._fds = {self.stdin, *self.outputs}
        problem, report = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _become(task, theirs, report)
        for fd in (*set(theirs), report):
            os.close(fd)
        with os.fdopen(problem, "rb") as file:
            reason = file.read()
        if reason:
            self.sweep()
            self.close()
            raise Unstartable(reason.decode("utf-8", "surrogateescape"))
        for fd in self._fds:
            os.set_blocking(fd, False)

    def register(self, poll: select.poll, room: bool) -> None:
        """Poll for output, if there is room for it, and for input that can be written."""
        wanted = dict.fromkeys(self.outputs, select.POLLIN) if room else {}
        if self.pending:
            wanted[self.stdin] = wanted.get(self.stdin, 0) | select.POLLOUT
        for fd, events in wanted.items():
            poll.register(fd, events)

    def feed(self) -> tuple[int, bool]:
        """Write buffered input; return how much was written, and whether the pipe is broken."""
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
        """Close the input of the command once all is written."""
        if not self.last or self.pending or self.stdin not in self._fds:
            return
        self.last = False
        if self._terminal:
            with suppress(OSError):  # the command has closed its terminal
                os.write(self.stdin, b"\x04")
        else:
            self._fds.discard(self.stdin)
            os.close(self.stdin)

    def reap(self) -> bool:
        """Reap all exited processes; return whether the command itself has exited."""
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
        """Kill everything else in the container; return False when a process does not exit."""
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
        """Return the CPU time of the command and all its processes; all were reaped."""
        return _children_cpu() - self._before

    def close(self) -> None:
        """Close the streams."""
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()


def others() -> list[int]:
    """Return the other processes in the container."""
    own = os.getpid()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own]


def standing() -> tuple[object, ...]:
    """Return the scheduling of this process, which a command of the same user can change.

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
    """Return where to write, which stream each descriptor is, and the command's three ends."""
    stdin, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
    return stdin[1], {stdout[0]: OUTPUT, stderr[0]: ERRORS}, (stdin[0], stdout[1], stderr[1])


def _terminal() -> tuple[int, dict[int, bytes], tuple[int, ...]]:
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, _WINDOW)
    return ours, {ours: OUTPUT}, (theirs, theirs, theirs)


def _become(task: dict[str, Any], streams: tuple[int, ...], report: int) -> NoReturn:
    """In the child: apply everything, then become the command."""
    try:
        _prepare(task, streams, report)
        execute = load_lock(**task["lock"]) if task["lock"] else os.execve
    except BaseException as error:
        os.write(report, str(error).encode("utf-8", "surrogateescape"))
        os._exit(FAILED)
    os._exit(become(task["argv"], task["env"], execute, _PREFIX))


def _prepare(task: dict[str, Any], streams: tuple[int, ...], report: int) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    reset_signals()
    _set_streams(streams, report)
    if task["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    prctl(SET_DUMPABLE, 1)  # else root would own its files in /proc
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write(_OOM_SCORE)
    os.chdir(task["cwd"])
    for kind, wanted in task["limits"]:
        _limit(kind, *wanted)
    load_filter(bytes.fromhex(task["filter"]))


def _set_streams(streams: tuple[int, ...], report: int) -> None:
    """Set the three streams, and close everything else."""
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != report:
            with suppress(OSError):  # the descriptor of the listed folder is closed already
                os.close(int(name))


def _limit(kind: int, soft: int, hard: int) -> None:
    """Set the limit, at most that of the container itself."""
    most = resource.getrlimit(kind)[1]
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(kind, (soft, hard))


def clear(folders: list[str], kept: set[int]) -> bool:
    """Empty the folders, except for mounts; return False when something is left.

    Nothing is removed on the devices in `kept`.
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
            if found.st_dev == device and not _try_remove(entry.path, found, device, until):
                return False
    return time.monotonic() < until


def _try_remove(path: str, found: os.stat_result, device: int, until: float) -> bool:
    """Remove an entry; return whether it is gone. Mount points of the engine may stay."""
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
    """Return the kernel's facts about this process and the places, for a check."""
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
    """Return the namespace of that kind of this process; empty when it is not known."""
    try:
        return os.readlink(f"/proc/self/ns/{name}")
    except OSError:  # the kernel of a microVM may not have it
        return ""


def main(places: list[str]) -> None:
    """Serve as the first process; commands of the same user cannot read or trace it."""
    hello = about_me(places)
    prctl(SET_DUMPABLE, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    Keeper({device for device, _ in hello["places"]}).serve(hello)


if __name__ == "__main__":
    main(sys.argv[1:])
