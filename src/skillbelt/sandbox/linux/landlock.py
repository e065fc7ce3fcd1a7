"""The sandbox for Linux without user namespaces: Landlock and a seccomp filter.

Weaker than bubblewrap, and its results say so: `/tmp` is not private, names and modes of other
files are visible, and a read-only folder inside a writable one is writable. There is no network,
even for granted hosts, since Landlock cannot force a command through a proxy.
"""

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox.linux import seccomp
from skillbelt.sandbox.linux.configuration import shown_files, shown_folders
from skillbelt.sandbox.linux.identity import SYSTEM_FOLDERS, current_identity
from skillbelt.sandbox.process.limits import programs_enforced
from skillbelt.sandbox.process.mounts import mounts_of
from skillbelt.sandbox.process.run import ProcessRun, try_start
from skillbelt.sandbox.process.supervised import check_places, supervised_plan
from skillbelt.sandbox.protocol import Job, Keepless, Listener, Running, refusal

MIN_VERSION = 3  # older versions allow truncating any file
_SIGNALS_VERSION = 6
_CREATE_RULESET, _ASK_VERSION = 444, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = 1, 2, 4, 8
_DEVICE_CONTROL = 1 << 15
_TRUNCATE = 1 << 14
_READ = _EXECUTE | _READ_FILE | _READ_FOLDER
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DEVICE_CONTROL
_NO_DEVICES = (1 << 6) | (1 << 11)  # neither character nor block devices can be created
READ_ONLY = _READ_FILE | _READ_FOLDER
EVERYTHING = ((1 << 16) - 1) & ~_NO_DEVICES & ~_DEVICE_CONTROL
_NETWORK = 3  # bind and connect by TCP
_SCOPES = 3  # abstract unix sockets and signals
_BITS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # how many file rights each version has
_ATTRIBUTES = {1: 8, 2: 8, 3: 8, 4: 16, 5: 16}  # bytes of the structure; later: 24
# No terminals: a command could read what the user types there. A run with its own terminal has it
# as its three streams, and as /dev/tty.
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Files that programs read about themselves. The same folder has tables of sockets and mounts, which
# without namespaces show those of all users.
_OWN = ("status", "stat", "statm", "maps", "smaps", "cmdline", "comm", "environ", "auxv", "limits",
        "cgroup", "io", "oom_score", "oom_score_adj", "personality")  # fmt: skip
# Files that programs read about the machine; nothing in /proc about other processes or networks.
_PROC = ("cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems",
         "sys/kernel/ostype", "sys/kernel/osrelease", "sys/kernel/version", "sys/kernel/pid_max",
         "sys/kernel/threads-max", "sys/kernel/cap_last_cap", "sys/kernel/ngroups_max",
         "sys/kernel/random/uuid", "sys/vm/overcommit_memory", "sys/vm/max_map_count",
         "sys/vm/mmap_min_addr", "sys/fs/file-max", "sys/fs/nr_open",
         "sys/fs/pipe-max-size")  # fmt: skip
_ETC = ("localtime", "ssl/certs", "passwd", "group", "nsswitch.conf")

# Isolation that bubblewrap has and Landlock does not.
NOT_HELD = (
    "names, modes and times of your other files, which processes there are, a private /tmp, "
    "a network for granted hosts"
)


class PathRule(NamedTuple):
    """The rights for a file, or for everything in a folder."""

    path: str
    access: int


class LandlockSandbox(Keepless):
    """Runs commands in a Landlock domain."""

    name = "landlock"
    level = 1
    remaps = False

    def unavailable(self) -> str | None:
        """Return why it cannot be used here, with the remedy; None when it can."""
        return refusal(_preflight)

    def start(self, job: Job, listener: Listener | None = None) -> Running:
        """Start the command; SandboxUnavailable when the sandbox itself cannot be set up."""
        _preflight()
        return _start(job, listener)


def _start(job: Job, listener: Listener | None) -> Running:
    check_places(job, "landlock")
    plan = supervised_plan(job, enforced(job), rules(job), filter_program(job))
    return ProcessRun(plan, job, listener)


def filter_program(job: Job, machine: str = "") -> bytes:
    """Return the seccomp filter for a run without namespaces.

    It refuses more than with namespaces: calls that reach the user's other files and processes
    unchecked by Landlock. `machine` is as in `seccomp.program`.
    """
    processes = job.capabilities.processes
    more = () if processes else seccomp.FOLLOWED
    return seccomp.program(processes, network=False, machine=machine, shared=True, more=more)


@lru_cache(maxsize=1)
def version() -> int:
    """Return the Landlock version of the kernel; 0 for none."""
    if sys.platform != "linux":
        return 0
    call = ctypes.CDLL(None, use_errno=True).syscall
    return max(0, int(call(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), _ASK_VERSION)))


def _find_missing() -> str | None:
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
    """Run `true` with everything a real run has. Only success is cached."""
    reason = _find_missing()
    if reason is not None:
        raise SandboxUnavailable(reason)
    with tempfile.TemporaryDirectory(prefix="skillbelt-") as folder:
        os.chown(folder, *current_identity())
        try_start(lambda job: _start(job, None), folder, folder)


def rules(job: Job) -> dict[str, object]:
    """Return the rule set for this job."""
    return ruleset(_list_rules(job))


def ruleset(granted: Iterable[PathRule]) -> dict[str, object]:
    """Return a rule set that allows only these paths, as `make_ruleset` takes it."""
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


def _list_rules(job: Job) -> Iterator[PathRule]:
    for folder in SYSTEM_FOLDERS:
        yield PathRule(folder, _READ)
    for path in (*shown_folders(), *shown_files(), *(f"/etc/{name}" for name in _ETC)):
        yield PathRule(path, _READ)
    # The launcher opens these in the process that becomes the command; its children do not get
    # them.
    yield PathRule("/proc/self", _READ_FOLDER)
    for path in (*(f"/proc/self/{name}" for name in _OWN), *(f"/proc/{name}" for name in _PROC)):
        yield PathRule(path, _READ_FILE)
    for device in _DEVICES:
        yield PathRule(device, _READ_FILE | _READ_FOLDER | _WRITE_FILE | _DEVICE_CONTROL)
    if job.terminal:
        yield PathRule("/dev/tty", _READ_FILE | _WRITE_FILE | _DEVICE_CONTROL)  # the run's own
    for mount in mounts_of(job):
        yield PathRule(mount.source, EVERYTHING if mount.writable else _READ)


def enforced(job: Job) -> dict[str, str]:
    """Return what is enforced, and what cannot be."""
    known = version()
    signals = "no tracing, no signals" if known >= _SIGNALS_VERSION else "no tracing"
    nested = "; not for read-only folders inside writable ones" if _is_nested(job) else ""
    return {
        "files": f"Landlock version {known}{nested}",
        "file modes": "not enforced: modes, times, names and sizes of the user's other files",
        "network": "none: seccomp",
        "other processes": f"Landlock: {signals}, none of their files; that they are there shows"
        if known >= _SIGNALS_VERSION
        else f"not enforced: {signals}, none of their files, but they can be sent signals",
        "system calls": seccomp.described(job.capabilities.processes, network=False, shared=True),
        **programs_enforced(job.capabilities.processes, locked=True),
    }


def _is_nested(job: Job) -> bool:
    writable = [os.path.join(mount.source, "") for mount in job.mounts if mount.writable]
    fixed = [mount.source for mount in job.mounts if not mount.writable]
    return any(path.startswith(folder) for path in fixed for folder in writable)
