"""The sandbox for Linux without user namespaces: Landlock and our own filter, in a launcher.

Weaker than bubblewrap, and it says so: other processes can be seen, `/tmp` is not private, and a
read-only folder inside a writable one can not be kept. There is no network at all, whatever is
granted, since nothing could lead it through a proxy.
"""

import ctypes
import errno
import os
import platform
import struct
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox import seccomp
from skillbelt.sandbox.identity import SYSTEM_FOLDERS, current_identity
from skillbelt.sandbox.limits import programs_enforced
from skillbelt.sandbox.mounts import mounts_of
from skillbelt.sandbox.process import Run
from skillbelt.sandbox.protocol import Job, Keepless, Listener, Running, refusal
from skillbelt.sandbox.supervised import check_places, supervised_plan
from skillbelt.values import Limits

MIN_VERSION = 3  # before it, a file could be cut to nothing
_SIGNALS_VERSION = 6
_CREATE_RULESET, _ASK_VERSION = 444, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = 1, 2, 4, 8
_DEVICE_CONTROL = 1 << 15
_TRUNCATE = 1 << 14
_READ = _EXECUTE | _READ_FILE | _READ_FOLDER
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DEVICE_CONTROL
_NO_DEVICES = (1 << 6) | (1 << 11)  # neither character nor block devices can be made
READ_ONLY = _READ_FILE | _READ_FOLDER
EVERYTHING = ((1 << 16) - 1) & ~_NO_DEVICES & ~_DEVICE_CONTROL
_NETWORK = 3  # bind and connect by TCP
_SCOPES = 3  # abstract unix sockets and signals
_BITS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # how many rights for files each version knows
_ATTRIBUTES = {1: 8, 2: 8, 3: 8, 4: 16, 5: 16}  # how long its structure is; later ones have 24
_LOAD, _EQUAL, _RETURN, _FAIL = 0x20, 0x15, 0x06, 0x00050000  # of a filter's program
_NUMBER_AT, _ARGUMENTS_AT = 0, 16
# Calls by their numbers on x86-64 and arm64, with the arguments that mean the calling process.
_OPEN_QUEUE = (240, 180)
_OWN_STANDING = (
    ((141, 140), ((0, 0), (1, 0))),  # setpriority
    ((251, 30), ((0, 1), (1, 0))),  # ioprio_set
    ((142, 118), ((0, 0),)),  # sched_setparam
    ((144, 119), ((0, 0),)),  # sched_setscheduler
    ((203, 122), ((0, 0),)),  # sched_setaffinity
    ((314, 274), ((0, 0),)),  # sched_setattr
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty",
            "/dev/ptmx", "/dev/pts")  # fmt: skip
_ETC = ("ld.so.cache", "alternatives", "fonts", "localtime", "ssl/certs", "ssl/openssl.cnf",
        "passwd", "group", "nsswitch.conf")  # fmt: skip


class Rule(NamedTuple):
    """What may be done with a file, or with everything in a folder."""

    path: str
    access: int


class LandlockSandbox(Keepless):
    """Runs commands in a Landlock domain."""

    name = "landlock"
    level = 1
    remaps = False

    def unavailable(self) -> str | None:
        """Why it can not be used here, with the remedy; None when it can."""
        return refusal(_preflight)

    def start(self, job: Job, listener: Listener | None = None) -> Running:
        """Start the command; SandboxUnavailable when the sandbox itself can not be brought up."""
        _preflight()
        return _start(job, listener)


def _start(job: Job, listener: Listener | None) -> Running:
    check_places(job, "landlock")
    plan = supervised_plan(job, enforced(job), rules(job), filter_program(job))
    return Run(plan, job, listener)


def filter_program(job: Job, machine: str = "") -> bytes:
    """The filter for system calls, for a run without namespaces of its own.

    Before what holds everywhere: how much a process counts can be set by that process alone, for
    the one that started the run may be of the same user; and no queue of messages can be made,
    which would stay. `machine` is as in `seccomp.program`.
    """
    column = seccomp.MACHINES[(machine or platform.machine()).lower()].column
    refused = _step(_RETURN, _FAIL | errno.EPERM)
    steps = [_step(_LOAD, _NUMBER_AT), _step(_EQUAL, _OPEN_QUEUE[column], 0, 1), refused]
    for numbers, wanted in _OWN_STANDING:
        body = [step for place, value in wanted for step in _must_be(place, value)]
        body.append(_step(_LOAD, _NUMBER_AT))
        steps += (_step(_EQUAL, numbers[column], 0, len(body)), *body)
    rest = seccomp.program(job.capabilities.processes, network=False, machine=machine)
    return b"".join(steps) + rest


def _must_be(place: int, value: int) -> Iterator[bytes]:
    """Goes on when the argument has the value, else the call fails."""
    yield _step(_LOAD, _ARGUMENTS_AT + 8 * place)
    yield _step(_EQUAL, value, 1, 0)
    yield _step(_RETURN, _FAIL | errno.EPERM)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


@lru_cache(maxsize=1)
def version() -> int:
    """Which Landlock the kernel has; 0 when it has none."""
    if sys.platform != "linux":
        return 0
    call = ctypes.CDLL(None, use_errno=True).syscall
    return max(0, int(call(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), _ASK_VERSION)))


def _missing() -> str | None:
    if version() < MIN_VERSION:
        return (
            f"the kernel has no Landlock of version {MIN_VERSION} or newer (Linux 6.2), or it is "
            "not among the security modules that the kernel was started with (lsm=landlock,...)"
        )
    if not seccomp.supported():
        return f"there is no filter for system calls for this processor ({os.uname().machine})"
    return None


@lru_cache(maxsize=1)
def _preflight() -> None:
    """Run `true` with everything a real run has; once it has worked, it is not tried again."""
    reason = _missing()
    if reason is not None:
        raise SandboxUnavailable(reason)
    with tempfile.TemporaryDirectory(prefix="skillbelt-") as folder:
        os.chown(folder, *current_identity())
        limits = Limits(max_workspace_bytes=2**62, max_workspace_files=2**62)
        job = Job(("true",), {"PATH": "/usr/bin:/bin"}, folder, (), folder, limits=limits)
        outcome = _start(job, None).wait()
    assert outcome is not None
    if outcome.exit_code:
        said = outcome.stderr.data.decode("utf-8", "replace").strip()
        raise SandboxUnavailable(f"a program in it ends with {outcome.exit_code}: {said}")


def rules(job: Job) -> dict[str, object]:
    """What the launcher tells the kernel for this job."""
    return ruleset(_granted(job))


def ruleset(granted: Iterable[Rule]) -> dict[str, object]:
    """What the kernel is told so that nothing but this is allowed."""
    known = version()
    all_files = (1 << _BITS.get(known, 16)) - 1
    network = _NETWORK if known >= 4 else 0
    scopes = _SCOPES if known >= _SIGNALS_VERSION else 0
    paths = [
        (rule.path, rule.access & all_files & (-1 if os.path.isdir(rule.path) else _ON_FILES))
        for rule in granted
        if os.path.exists(rule.path)
    ]
    size = _ATTRIBUTES.get(known, 24)
    return {"handled": (all_files, network, scopes), "size": size, "paths": paths}


def _granted(job: Job) -> Iterator[Rule]:
    for folder in SYSTEM_FOLDERS:
        yield Rule(folder, _READ)
    for name in _ETC:
        yield Rule(f"/etc/{name}", _READ)
    yield Rule("/proc", _READ_FILE | _READ_FOLDER)
    for device in _DEVICES:
        yield Rule(device, _READ_FILE | _READ_FOLDER | _WRITE_FILE | _DEVICE_CONTROL)
    for mount in mounts_of(job):
        yield Rule(mount.source, EVERYTHING if mount.writable else _READ)


def enforced(job: Job) -> dict[str, str]:
    """What is held, and what can not be."""
    known = version()
    signals = "no tracing, no signals" if known >= _SIGNALS_VERSION else "no tracing"
    denied = seccomp.denied_count(job.capabilities.processes, network=False)
    nested = "; not for read-only folders inside writable ones" if _nested(job) else ""
    return {
        "files": f"Landlock version {known}{nested}",
        "file modes": "not enforced: modes, times, names and sizes of the user's other files",
        "network": "none: seccomp",
        "other processes": f"Landlock: {signals}; they can be seen"
        if known >= _SIGNALS_VERSION
        else f"not enforced: {signals}, but they can be seen and sent signals",
        "system calls": f"seccomp, {denied} denied",
        **programs_enforced(job.capabilities.processes, locked=True),
    }


def _nested(job: Job) -> bool:
    writable = [os.path.join(mount.source, "") for mount in job.mounts if mount.writable]
    fixed = [mount.source for mount in job.mounts if not mount.writable]
    return any(path.startswith(folder) for path in fixed for folder in writable)
