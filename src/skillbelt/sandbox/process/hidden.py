"""What the processes of a run hold that neither a folder nor their own memory shows.

That is files and folders without a name: open, only mapped, run as a program, or where a process
is; memory they share, which belongs to none of them once whoever touched it has ended; what waits
in sockets and pipes; and what the kernel needs to keep track of it. It is all seen from outside, in
`/proc`. Where the size of something can not be seen, that is said, and whoever asks must go by what
the whole machine has lost.
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

_BLOCK = 512  # what st_blocks counts in, whatever the disk does
_MOST_SECONDS = 0.5  # whoever has more than can be seen in that time has his reasons
_GET_HANDLE, _SAME_TABLE = (438, 438), (312, 272)  # pidfd_getfd and kcmp on x86-64 and arm64
_TRACE = 19  # CAP_SYS_PTRACE
_TABLES = 2  # what kcmp compares: tables of handles
_OF_THREAD = os.O_EXCL  # for pidfd_open
_PIPE_SIZE = 1032
_MEMORY_INFO, _MEMORY_WORDS = 55, 9
_ORDINARY_PIPE = 64 * 2**10
_ORDINARY_SOCKET = 2 * 208 * 2**10
# What the kernel keeps for each, at least; a terminal takes what waits in it both ways.
_MAPPING, _HANDLE, _TERMINAL = 256, 256, 160 * 2**10
_TERMINALS = os.makedev(5, 2)
_OVERHEAD = 1024  # at most what the kernel takes to queue one byte
_NAMELESS = b" (deleted)\n"
_PLACES = ("exe", "cwd", "root")
_OF_KERNEL = b" /[aio]"


class Hoard(NamedTuple):
    """What was found. The last three tell that there is more, whose size can not be seen."""

    file_bytes: int = 0
    files: int = 0
    shared_bytes: int = 0
    buffer_bytes: int = 0
    more_files: bool = False
    more_shared: bool = False
    more_handles: bool = False


def find_hoard(pids: Iterable[int], workspace: str, temporary: str | None = None) -> Hoard:
    """What the processes hold together, each thing once.

    `temporary` is the path inside of a folder that has a size of its own; what is there is not
    counted again.
    """
    search = _Search(workspace, temporary)
    for pid in pids:
        if search.late():
            break
        search.visit(pid)
    return search.found()


@lru_cache(maxsize=8)
def can_see(uid: int | None = None) -> bool:
    """Whether we may look at what the processes of a run hold; they are ours, or of that user.

    Root needs a right for it, which it often lacks in a container.
    """
    if os.geteuid():
        return uid is None or uid == os.geteuid()
    with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
        rights = [int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")]
    return bool(sum(rights) >> _TRACE & 1)


def user_of(pid: int) -> int:
    """Whose process it is; -1 when that is not known."""
    with suppress(OSError), open(f"/proc/{pid}/status", "rb") as lines:
        for line in lines:
            if line.startswith(b"Uid:"):
                return int(line.split()[1])
    return -1


class _Search:
    """One look at all processes."""

    def __init__(self, workspace: str, temporary: str | None) -> None:
        self.sums = [0, 0, 0, 0]  # as the first four of a hoard
        self.more = [False, False, False]  # and the last three
        self._until = time.monotonic() + _MOST_SECONDS
        self._temporary, self._bounded = temporary, set[int]()
        self._workspace = workspace
        self._known: set[tuple[int, int]] = set()
        self._internet = 0

    def found(self) -> Hoard:
        """What was found up to now."""
        files, shared, handles = self.more
        size, count, common, queued = self.sums
        if self._internet:
            queued += _unattended(self._internet)
        return Hoard(size, count, common, queued)._replace(
            more_files=files, more_shared=shared, more_handles=handles
        )

    def late(self) -> bool:
        """Whether the time is up; then the rest counts as not seen."""
        late = time.monotonic() > self._until
        self.more[2] |= late
        return late

    def visit(self, pid: int) -> None:
        """Look at one process; one that hides what it holds counts as if it held too much."""
        try:
            if self._temporary is not None and not self._bounded:
                self._bounded = _devices(pid, self._temporary) - _device(self._workspace)
            for thread in os.listdir(f"/proc/{pid}/task"):
                self._places(f"/proc/{pid}/task/{thread}")
                if int(thread) == pid or not _same_table(pid, int(thread)):
                    self._handles(pid, int(thread))
                if self.late():
                    return
            self._maps(pid)
        except PermissionError:
            # The first process of a namespace is ours, and closed to everybody.
            self.more[2] |= can_see() and not _first(pid)
        except OSError:
            pass  # it is gone

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
                self.sums[3] += _TERMINAL  # all have one name, and may be many
            if key in self._known:
                continue
            if stat.S_ISSOCK(found.st_mode):
                self._known.add(key)
                queued, internet = _queued(pid, thread, int(name))
                self.sums[3] += queued
                self._internet = pid if internet else self._internet
                self.more[2] |= _in_flight(f"{folder}/fdinfo/{name}")
            elif stat.S_ISFIFO(found.st_mode):
                self._known.add(key)
                self.sums[3] += _piped(pid, thread, int(name))
            elif not found.st_nlink:
                self._file(key, found)
            if self.late():
                return

    def _places(self, thread: str) -> None:
        """The program and the folders of a thread: they last as long as it does."""
        for name in _PLACES:
            with suppress(FileNotFoundError):
                found = os.stat(f"{thread}/{name}")
                key = found.st_dev, found.st_ino
                if not found.st_nlink and key not in self._known:
                    self._file(key, found)

    def _file(self, key: tuple[int, int], found: os.stat_result) -> None:
        """One that has no name any more, or never had one."""
        self._known.add(key)
        if found.st_dev == _memory_device():
            self.sums[2] += found.st_blocks * _BLOCK
        elif found.st_dev not in self._bounded:
            self.sums[0] += found.st_blocks * _BLOCK
            self.sums[1] += 1

    def _maps(self, pid: int) -> None:
        """What is only mapped: a handle is not needed to keep a file."""
        told = _told_maps(pid)
        self.sums[3] += told.count(b"\n") * _MAPPING
        for line in told.splitlines(keepends=True) if _NAMELESS in told else ():
            if line.endswith(_NAMELESS) and _OF_KERNEL not in line:
                self._map(pid, line)

    def _map(self, pid: int, line: bytes) -> None:
        place, _, _, device, number = line.split(None, 5)[:5]
        major, minor = (int(part, 16) for part in device.split(b":"))
        key = os.makedev(major, minor), int(number)
        if key in self._known:
            return
        try:
            found = os.stat(f"/proc/{pid}/map_files/{_short(place)}")
        except OSError:  # only root may follow these
            self._known.add(key)
            if key[0] == _memory_device():
                self.more[1] = True
            elif key[0] not in self._bounded:
                self.more[0] = True
        else:
            if not found.st_nlink or key[0] == _memory_device():
                self._file(key, found)


def _told_maps(pid: int) -> bytes:
    """What is mapped. A process may have ended, and its threads go on with its memory."""
    for thread in (pid, *os.listdir(f"/proc/{pid}/task")):
        with (
            suppress(FileNotFoundError, ProcessLookupError),
            open(f"/proc/{pid}/task/{thread}/maps", "rb") as file,
        ):
            data = file.read()
            if data:
                return data
    return b""


def _short(place: bytes) -> str:
    """The addresses as the names there have them, without zeros in front."""
    return "-".join(f"{int(part, 16):x}" for part in place.split(b"-"))


@lru_cache(maxsize=1)
def _memory_device() -> int:
    """Where all memory lies that has the form of a file and no name."""
    handle = os.memfd_create("skillbelt", os.MFD_CLOEXEC)
    try:
        return os.fstat(handle).st_dev
    finally:
        os.close(handle)


def _devices(pid: int, temporary: str) -> set[int]:
    return _device(f"/proc/{pid}/root{temporary}") | _device(f"/proc/{pid}/root/dev/shm")


def _device(path: str) -> set[int]:
    try:
        return {os.lstat(path).st_dev}  # a link would lead to a folder of ours
    except FileNotFoundError:
        return set()


def _first(pid: int) -> bool:
    """Whether it is the first process of a namespace."""
    with suppress(OSError), open(f"/proc/{pid}/status", "rb") as lines:
        for line in lines:
            if line.startswith(b"NSpid:"):
                numbers = line.split()[1:]
                return len(numbers) > 1 and numbers[-1] == b"1"
    return False


def _in_flight(path: str) -> bool:
    """Whether handles wait in the socket, which may be of anything."""
    with suppress(FileNotFoundError), open(path, "rb") as lines:
        for line in lines:
            if line.startswith(b"scm_fds:"):
                return line.split()[1] != b"0"
    return False


def _queued(pid: int, thread: int, number: int) -> tuple[int, bool]:
    """What waits in a socket to be sent or to be read, and whether it is one of the internet."""
    try:
        handle = _copied(pid, thread, number)
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
        orphaned = _orphaned(end) if end.family == socket.AF_UNIX else 0
        size = int(received + max(sent, queued) + reserved + behind + orphaned)
        return size, end.family in (socket.AF_INET, socket.AF_INET6)


def _unattended(pid: int) -> int:
    """What waits in connections that nobody has a handle of: not accepted yet, or closed."""
    total = 0
    with suppress(OSError):
        if os.readlink(f"/proc/{pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            return 0  # those of everybody
        for name in ("tcp", "tcp6"):
            with open(f"/proc/{pid}/net/{name}", "rb") as lines:
                for row in (line.split() for line in lines if b":" in line):
                    if row[9] == b"0":
                        total += sum(int(part, 16) for part in row[4].split(b":"))
    return total


def _orphaned(end: socket.socket) -> int:
    """What nobody is charged for any more, since the end that sent it is closed."""
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


def _piped(pid: int, thread: int, number: int) -> int:
    """What a pipe takes: one byte may take a page."""
    try:
        handle = _copied(pid, thread, number)
    except OSError:
        return _ORDINARY_PIPE
    if handle is None:
        return 0
    try:
        return fcntl.fcntl(handle, _PIPE_SIZE) if _waiting(handle) else 0
    except OSError:
        return 0  # it is another one by now
    finally:
        os.close(handle)


def _waiting(handle: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(handle, termios.FIONREAD, bytes(4)))[0])


def _copied(pid: int, thread: int, number: int) -> int | None:
    """A handle of our own of what the process has open; None when it is closed by now."""
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


def _same_table(pid: int, thread: int) -> bool:
    """Whether the thread has the handles of its process; it may have its own."""
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
