"""Measure the memory and files that the processes of a run hold outside named files.

These are files and folders without a name (open, only mapped, run as a program, or a current
folder); shared memory, which belongs to no process once the one that touched it has ended; data
buffered in sockets and pipes; and the kernel's own structures for them. All of it is read from
`/proc`. Where a size cannot be read, the result says so, and the caller uses what the whole machine
lost.
"""

import ctypes
import errno
import fcntl
import os
import select
import socket
import stat
import struct
import termios
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

_BLOCK = 512  # the unit of st_blocks on every file system
_MOST_SECONDS = 0.5  # a slower measurement counts as not seen
_GET_HANDLE, _SAME_TABLE = (438, 438), (312, 272)  # pidfd_getfd and kcmp on x86-64 and arm64
_TRACE = 19  # CAP_SYS_PTRACE
_TABLES = 2  # what kcmp compares: tables of handles
_OF_THREAD = os.O_EXCL  # for pidfd_open
_PIPE_SIZE = 1032
_MEMORY_INFO, _MEMORY_WORDS = 55, 9
_ORDINARY_PIPE = 64 * 2**10
_ORDINARY_SOCKET = 2 * 208 * 2**10
# The minimum that the kernel keeps for each; a terminal has buffers both ways.
_MAPPING, _HANDLE, _TERMINAL = 256, 256, 160 * 2**10
_TERMINALS = os.makedev(5, 2)
_OVERHEAD = 1024  # the most that the kernel needs to queue one byte
_NAMELESS = b" (deleted)\n"
_PLACES = ("exe", "cwd", "root")
_OF_KERNEL = b" /[aio]"


class HiddenUsage(NamedTuple):
    """The totals. The last three fields say that there is more, of unknown size."""

    file_bytes: int = 0
    files: int = 0
    shared_bytes: int = 0
    buffer_bytes: int = 0
    more_files: bool = False
    more_shared: bool = False
    more_handles: bool = False


def measure_hidden(
    pids: Iterable[int], workspace: str, temporary: str | None = None
) -> HiddenUsage:
    """Return the total that the processes hold together, each thing counted once.

    `temporary` is the path inside of a folder with a size limit; its files are not counted.
    """
    search = _Search(workspace, temporary)
    for pid in pids:
        if search.late():
            break
        search.visit(pid)
    return search.found()


@lru_cache(maxsize=8)
def can_see(uid: int | None = None) -> bool:
    """Whether we may inspect the processes of a run, which belong to our user or to that one.

    Root needs CAP_SYS_PTRACE, which it often lacks in a container.
    """
    if os.geteuid():
        return uid is None or uid == os.geteuid()
    with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
        rights = [int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")]
    return bool(sum(rights) >> _TRACE & 1)


@lru_cache(maxsize=1)
def can_copy() -> bool:
    """Whether file descriptors can be copied; in a container, seccomp may forbid the call."""
    try:
        process = os.pidfd_open(os.getpid())
    except (OSError, AttributeError):  # another system has no such call
        return False
    try:
        os.close(_call(_GET_HANDLE, process, process, 0))
    except OSError:
        return False
    finally:
        os.close(process)
    return True


def user_of(pid: int) -> int:
    """Return the user of a process; -1 when it is not known."""
    with suppress(OSError), open(f"/proc/{pid}/status", "rb") as lines:
        for line in lines:
            if line.startswith(b"Uid:"):
                return int(line.split()[1])
    return -1


class _Search:
    """One pass over all processes."""

    def __init__(self, workspace: str, temporary: str | None) -> None:
        self.sums = [0, 0, 0, 0]  # the first four fields of a hidden_usage
        self.more = [False, False, False]  # the last three
        self._until = time.monotonic() + _MOST_SECONDS
        self._temporary, self._bounded = temporary, set[int]()
        self._workspace = workspace
        self._known: set[tuple[int, int]] = set()
        self._internet = 0

    def found(self) -> HiddenUsage:
        """Return the totals so far."""
        files, shared, handles = self.more
        size, count, common, queued = self.sums
        if self._internet:
            queued += _unattended_size(self._internet)
        return HiddenUsage(size, count, common, queued)._replace(
            more_files=files, more_shared=shared, more_handles=handles
        )

    def late(self) -> bool:
        """Whether time is up; the rest then counts as not seen."""
        late = time.monotonic() > self._until
        self.more[2] |= late
        return late

    def visit(self, pid: int) -> None:
        """Inspect one process; one that cannot be read counts as holding too much."""
        try:
            if self._temporary is not None and not self._bounded:
                self._bounded = _devices(pid, self._temporary) - _device(self._workspace)
            for thread in os.listdir(f"/proc/{pid}/task"):
                self._count_places(f"/proc/{pid}/task/{thread}")
                if int(thread) == pid or not _same_table(pid, int(thread)):
                    self._handles(pid, int(thread))
                if self.late():
                    return
            self._maps(pid)
        except PermissionError:
            # The first process of a namespace is ours, and not readable.
            self.more[2] |= can_see() and not _first(pid)
        except OSError:
            pass  # it has ended

    def _handles(self, pid: int, thread: int) -> None:
        folder = f"/proc/{pid}/task/{thread}"
        names = os.listdir(f"{folder}/fd")
        self.sums[3] += len(names) * _HANDLE
        for name in names:
            try:
                found = os.stat(f"{folder}/fd/{name}")
            except FileNotFoundError:
                continue
            key = found.st_dev, found.st_ino
            if found.st_rdev == _TERMINALS:
                self.sums[3] += _TERMINAL  # they share one inode, and may be many
            if key in self._known:
                continue
            if stat.S_ISSOCK(found.st_mode):
                self._known.add(key)
                queued, internet = _queue_size(pid, thread, int(name))
                self.sums[3] += queued
                self._internet = pid if internet else self._internet
                self.more[2] |= _in_flight(f"{folder}/fdinfo/{name}")
            elif stat.S_ISFIFO(found.st_mode):
                self._known.add(key)
                self.sums[3] += _pipe_size(pid, thread, int(name))
            elif not found.st_nlink:
                self._file(key, found)
            if self.late():
                return

    def _count_places(self, thread: str) -> None:
        """Count the program and the folders of a thread."""
        for name in _PLACES:
            with suppress(FileNotFoundError):
                found = os.stat(f"{thread}/{name}")
                key = found.st_dev, found.st_ino
                if not found.st_nlink and key not in self._known:
                    self._file(key, found)

    def _file(self, key: tuple[int, int], found: os.stat_result) -> None:
        """Count a file without a name."""
        self._known.add(key)
        if found.st_dev == _memory_device():
            self.sums[2] += found.st_blocks * _BLOCK
        elif found.st_dev not in self._bounded:
            self.sums[0] += found.st_blocks * _BLOCK
            self.sums[1] += 1

    def _maps(self, pid: int) -> None:
        """Count files that are only mapped."""
        text = _read_maps(pid)
        self.sums[3] += text.count(b"\n") * _MAPPING
        for line in text.splitlines(keepends=True) if _NAMELESS in text else ():
            if line.endswith(_NAMELESS) and _OF_KERNEL not in line:
                self._map(pid, line)

    def _map(self, pid: int, line: bytes) -> None:
        place, _, _, device, number = line.split(None, 5)[:5]
        major, minor = (int(part, 16) for part in device.split(b":"))
        key = os.makedev(major, minor), int(number)
        if key in self._known:
            return
        try:
            found = os.stat(f"/proc/{pid}/map_files/{_strip_zeros(place)}")
        except OSError:  # only root may follow these
            self._known.add(key)
            if key[0] == _memory_device():
                self.more[1] = True
            elif key[0] not in self._bounded:
                self.more[0] = True
        else:
            if not found.st_nlink or key[0] == _memory_device():
                self._file(key, found)


def _read_maps(pid: int) -> bytes:
    """Read the mappings. The main thread may have ended while others continue."""
    for thread in (pid, *os.listdir(f"/proc/{pid}/task")):
        with (
            suppress(FileNotFoundError, ProcessLookupError),
            open(f"/proc/{pid}/task/{thread}/maps", "rb") as file,
        ):
            data = file.read()
            if data:
                return data
    return b""


def _strip_zeros(place: bytes) -> str:
    """Return the addresses as in map_files: without leading zeros."""
    return "-".join(f"{int(part, 16):x}" for part in place.split(b"-"))


@lru_cache(maxsize=1)
def _memory_device() -> int:
    """Return the device of all unnamed memory files."""
    handle = os.memfd_create("skillbelt", os.MFD_CLOEXEC)
    try:
        return os.fstat(handle).st_dev
    finally:
        os.close(handle)


def _devices(pid: int, temporary: str) -> set[int]:
    return _device(f"/proc/{pid}/root{temporary}") | _device(f"/proc/{pid}/root/dev/shm")


def _device(path: str) -> set[int]:
    try:
        return {os.lstat(path).st_dev}  # a link would lead to a folder of the host
    except FileNotFoundError:
        return set()


def _first(pid: int) -> bool:
    """Whether it is the first process of a pid namespace."""
    with suppress(OSError), open(f"/proc/{pid}/status", "rb") as lines:
        for line in lines:
            if line.startswith(b"NSpid:"):
                numbers = line.split()[1:]
                return len(numbers) > 1 and numbers[-1] == b"1"
    return False


def _in_flight(path: str) -> bool:
    """Whether file descriptors are queued in the socket."""
    with suppress(FileNotFoundError), open(path, "rb") as lines:
        for line in lines:
            if line.startswith(b"scm_fds:"):
                return line.split()[1] != b"0"
    return False


def _queue_size(pid: int, thread: int, number: int) -> tuple[int, bool]:
    """Return the memory of a socket's queues, and whether it is an IP socket."""
    try:
        handle = _copy_handle(pid, thread, number)
    except OSError:
        return _ORDINARY_SOCKET, True
    if handle is None:
        return 0, False
    with socket.socket(fileno=handle) as end:
        words = struct.unpack(
            f"{_MEMORY_WORDS}I",
            end.getsockopt(socket.SOL_SOCKET, _MEMORY_INFO, 4 * _MEMORY_WORDS),
        )
        received, _, sent, _, reserved, queued, _, behind, _ = words
        orphaned = _orphan_size(end) if end.family == socket.AF_UNIX else 0
        size = int(received + max(sent, queued) + reserved + behind + orphaned)
        return size, end.family in (socket.AF_INET, socket.AF_INET6)


def _unattended_size(pid: int) -> int:
    """Return the queue size of connections without a descriptor: not accepted, or closed."""
    total = 0
    with suppress(OSError):
        if os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            return 0  # these belong to the whole machine
        for name in ("tcp", "tcp6"):
            with open(f"/proc/{pid}/net/{name}", "rb") as lines:
                for row in (line.split() for line in lines if b":" in line):
                    if row[9] == b"0":
                        total += sum(int(part, 16) for part in row[4].split(b":"))
    return total


def _orphan_size(end: socket.socket) -> int:
    """Return the bytes that are charged to no socket any more, since the sending end is closed."""
    poll = select.poll()
    poll.register(end, select.POLLIN)
    if not any(events & select.POLLHUP for _, events in poll.poll(0)):
        return 0
    if end.type != socket.SOCK_STREAM:
        return _most_queued()  # a message may be empty
    return min(_most_queued(), _waiting(end.fileno()) * _OVERHEAD)


@lru_cache(maxsize=1)
def _most_queued() -> int:
    with open("/proc/sys/net/core/wmem_max", encoding="ascii") as file:
        return 2 * int(file.read())


def _pipe_size(pid: int, thread: int, number: int) -> int:
    """Return the size of a pipe that is not empty: one byte may take a page."""
    try:
        handle = (
            _copy_handle(pid, thread, number) if can_copy() else _reopen_pipe(pid, thread, number)
        )
    except OSError:
        return _ORDINARY_PIPE
    if handle is None:
        return 0
    try:
        return fcntl.fcntl(handle, _PIPE_SIZE) if _waiting(handle) else 0
    except OSError:
        return 0  # the descriptor refers to another file by now
    finally:
        os.close(handle)


def _waiting(handle: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(handle, termios.FIONREAD, bytes(4)))[0])


def _copy_handle(pid: int, thread: int, number: int) -> int | None:
    """Copy a file descriptor of the process; None when it is closed by now."""
    try:
        process = os.pidfd_open(thread, 0 if thread == pid else _OF_THREAD)
    except ProcessLookupError:
        return None
    try:
        return _call(_GET_HANDLE, process, number, 0)
    except OSError as error:
        if error.errno in (errno.EBADF, errno.ESRCH):
            return None
        raise
    finally:
        os.close(process)


def _reopen_pipe(pid: int, thread: int, number: int) -> int | None:
    """Open a pipe of the process once more, only to learn its size; None when it is closed."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        return os.open(f"/proc/{pid}/task/{thread}/fd/{number}", flags)
    except FileNotFoundError:
        return None


def _same_table(pid: int, thread: int) -> bool:
    """Whether the thread shares the file descriptors of its process."""
    with suppress(OSError):
        return _call(_SAME_TABLE, pid, thread, _TABLES, 0, 0) == 0
    return False


def _call(numbers: tuple[int, int], *arguments: int) -> int:
    number = numbers[os.uname().machine == "aarch64"]
    done = _system().syscall(*(ctypes.c_long(each) for each in (number, *arguments)))
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(done)


@lru_cache(maxsize=1)
def _system() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
