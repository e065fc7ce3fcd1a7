"""The sandbox for Linux: bubblewrap, a seccomp filter and limits, never as root.

Inside are the system's programs and libraries, a private `/tmp`, `/proc` and `/dev`, and the mounts
of the job; nothing else of the host, no network, no other process. The first process inside is
`inside.entry`; when it ends, the kernel kills everything else inside.
"""

import os
from collections.abc import Iterator
from functools import lru_cache

from skillbelt.errors import RunRefused, SandboxUnavailable
from skillbelt.files.handles import Handles, closed_on_error
from skillbelt.sandbox.inside import entry
from skillbelt.sandbox.linux import seccomp
from skillbelt.sandbox.linux.cgroups import Hierarchy, hierarchy
from skillbelt.sandbox.linux.configuration import shown_files, shown_folders
from skillbelt.sandbox.linux.identity import (
    SYSTEM_FOLDERS,
    Identity,
    blocking_folder,
    current_identity,
    run_identity,
    trusted_program,
)
from skillbelt.sandbox.process.hidden_usage import can_copy, can_see
from skillbelt.sandbox.process.limit_checks import TICK_SECONDS
from skillbelt.sandbox.process.limits import (
    OWN_PROCESSES,
    counted_enforced,
    process_limits,
    programs_enforced,
)
from skillbelt.sandbox.process.mounts import mounts_of
from skillbelt.sandbox.process.run import LaunchPlan, ProcessRun, check_job, try_start
from skillbelt.sandbox.process.watch import Guard
from skillbelt.sandbox.protocol import Job, Keepless, Listener, Running, refusal

TEMPORARY = "/tmp"
_NOBODY = "nobody"
_ETC_FOR_NETWORK = ("ssl/certs", "pki/tls/certs", "pki/ca-trust/extracted")
# The workspace of the preflight. It is small, since a slow machine measures it.
_SMALL_FOLDER = "/proc/self/ns"
_SYSCTL = "/proc/sys"
_DEVICES = ("null", "zero", "urandom")
_DEVICE_LINKS = (("urandom", "random"), ("/proc/self/fd", "fd"), ("/proc/self/fd/0", "stdin"),
                 ("/proc/self/fd/1", "stdout"), ("/proc/self/fd/2", "stderr"),
                 (TEMPORARY, "shm"))  # fmt: skip


class LinuxSandbox(Keepless):
    """Runs commands in bubblewrap."""

    name = "bubblewrap"
    level = 2
    remaps = True

    def unavailable(self) -> str | None:
        """Return why it cannot be used here, with the remedy; None when it can."""
        return refusal(_preflight)

    def start(self, job: Job, listener: Listener | None = None) -> Running:
        """Start the command; SandboxUnavailable when the sandbox itself cannot be set up."""
        _preflight()
        return ProcessRun(_plan(job), job, listener)


def _find_missing() -> str | None:
    if trusted_program("bwrap") is None:
        return (
            "bubblewrap is not installed, or users other than root can change it: "
            "install the package 'bubblewrap'"
        )
    if trusted_program("sh") is None:
        return "there is no /bin/sh that only root can change"
    if run_identity() is not None and trusted_program("setpriv") is None:
        return "commands never run as root, and 'setpriv' (package util-linux) is not installed"
    if not seccomp.supported():
        return f"there is no filter for system calls for this processor ({os.uname().machine})"
    return None


@lru_cache(maxsize=1)
def _preflight() -> None:
    """Run `true` with everything a real run has. Only success is cached."""
    reason = _find_missing()
    if reason is not None:
        raise SandboxUnavailable(reason)
    try_start(lambda job: ProcessRun(_plan(job), job, None), "/", _SMALL_FOLDER)


def _explain(said: str) -> str:
    """Return the message of bubblewrap, and the likely cause on this machine."""
    return f"bubblewrap cannot start: {said or 'no message'}{_remedy()}"


def _remedy() -> str:
    for path, value, remedy in (
        ("kernel/unprivileged_userns_clone", "0", "set kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "raise user.max_user_namespaces"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "give bwrap an AppArmor profile that allows userns, or set "
            "kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ):
        try:
            with open(os.path.join(_SYSCTL, path), encoding="utf-8") as file:
                if file.read().strip() == value:
                    return f"; user namespaces are off here: {remedy}"
        except OSError:
            continue
    return ""


def _explain_job(job: Job, said: str) -> str:
    """Explain a failed start. After the preflight, an unreachable mount is the usual cause."""
    for mount in mounts_of(job):
        folder = blocking_folder(mount.source)
        if folder is not None:
            uid = current_identity().uid
            return (
                f"{mount.source} cannot be mounted: {folder} is closed to uid {uid}, which runs "
                "commands; keep it in a folder that others can pass through"
            )
    return _explain(said)


def _plan(job: Job) -> LaunchPlan:
    check_environment(job)
    identity = run_identity()
    first, last = programs(job)
    with closed_on_error() as handles:
        arguments = bubblewrap_arguments(job, handles, first=first, last=last)
        # In a file, since every process inside can read the command line of the first one.
        words = handles.add(_memory_file(os.fsencode("\0".join((*arguments, "")))))
        return LaunchPlan(
            argv=(*_prefix(identity), "--args", str(words), "--", *_inner_arguments(job)),
            enforced=_describe_enforced(job, identity, hierarchy()),
            watch=Guard(job.limits, job.workspace, TEMPORARY),
            explain=lambda said: _explain_job(job, said),
            fds=handles.all,
            terminal_owner=identity,
        )


def programs(job: Job) -> tuple[bytes, bytes]:
    """Return the first process, and the program between the bridge and the command, if any.

    The bridge has to exec a program itself, so the program after it loads the lock.
    """
    locked = not job.capabilities.processes
    word = job.bridge[0] if job.bridge else job.argv[0]
    first = entry.program(
        entry.paths_of(word, job.env.get("PATH", "")),
        process_limits(job.limits, OWN_PROCESSES),
        stays=True,
        terminal=job.terminal,
        lock=seccomp.alone() if locked and not job.bridge else b"",
    )
    return first, entry.last(job) if locked and job.bridge else b""


def check_environment(job: Job) -> None:
    """Raise RunRefused for variables that a shell or the kernel would misread."""
    check_job(job)
    for name in job.env:
        if not (name.isascii() and name.isidentifier()):
            raise RunRefused(f"{name[:100]!r} is not a name for an environment variable")


def bubblewrap_arguments(
    job: Job, handles: Handles, *, first: bytes = b"", last: bytes = b""
) -> list[str]:
    """Return all flags for the job; add the handles that they name, which the caller closes.

    `first` and `last` are as in `programs`.
    """
    network, identity = bool(job.bridge), current_identity()
    whole_dev = job.capabilities.processes or job.terminal
    arguments = [*_common_flags(whole_dev, network, job.limits.max_temporary_bytes)]
    for mount in mounts_of(job):
        arguments += ("--bind" if mount.writable else "--ro-bind", mount.source, mount.target)
    for name, value in job.env.items():
        arguments += ("--setenv", name, value)
    # The first process starts the command, and may load its own filter first, as the bridge
    # does. That filter allows no further one, and no process where the job may start none.
    followed = network or (bool(first) and not job.capabilities.processes)
    more = seccomp.FOLLOWED if followed else ()
    processes = job.capabilities.processes or bool(first)
    calls = handles.add(_memory_file(seccomp.program(processes, network, more=more, listens=True)))
    for path, data in (("/etc/passwd", passwd(identity)), ("/etc/group", group(identity))):
        arguments += ("--file", str(handles.add(_memory_file(data))), path)
    # Copied, since bubblewrap reads the whole mount table for each mount that it adds.
    for path in shown_files():
        copied = handles.add(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        arguments += ("--file", str(copied), path)
    for place, program in ((entry.PLACE, first), (entry.LAST_PLACE, last)):
        if program:
            given = handles.add(_memory_file(program))
            arguments += ("--perms", "0111", "--file", str(given), place)
    # The root is a tmpfs without a size limit.
    arguments += ("--remount-ro", "/", "--chdir", job.cwd, "--seccomp", str(calls))
    return arguments


def _prefix(identity: Identity | None) -> Iterator[str]:
    if identity is not None:
        yield str(trusted_program("setpriv"))
        yield from (f"--reuid={identity.uid}", f"--regid={identity.gid}", "--clear-groups", "--")
    yield str(trusted_program("bwrap"))


@lru_cache(maxsize=16)
def _common_flags(whole_dev: bool, network: bool, temporary_bytes: int) -> tuple[str, ...]:
    """Return the flags that most jobs share: namespaces, system, devices, temporary files."""
    size = ("--size", str(temporary_bytes))
    devices = (
        ("--dev", "/dev", *size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev")
        if whole_dev
        else _few_devices()
    )
    return (
        *("--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"),
        *("--as-pid-1", "--die-with-parent", "--new-session", "--clearenv"),
        *("--hostname", "sandbox"),
        *system_arguments(network),
        *("--proc", "/proc", *devices, *size, "--tmpfs", TEMPORARY),
    )


def _few_devices() -> tuple[str, ...]:
    """Return a small /dev. A command without child processes needs no new terminals."""
    binds = ((f"/dev/{name}", f"/dev/{name}") for name in _DEVICES)
    links = ((target, f"/dev/{name}") for target, name in _DEVICE_LINKS)
    return (
        *(word for pair in binds for word in ("--dev-bind", *pair)),
        *(word for pair in links for word in ("--symlink", *pair)),
    )


def system_arguments(network: bool) -> tuple[str, ...]:
    """Return the flags that show the system's programs and libraries, and nothing else."""
    arguments: list[str] = []
    for folder in SYSTEM_FOLDERS:
        if os.path.islink(folder):
            arguments += ("--symlink", os.readlink(folder), folder)
        elif os.path.isdir(folder):
            arguments += ("--ro-bind", folder, folder)
    further = (f"/etc/{name}" for name in (_ETC_FOR_NETWORK if network else ()))
    for path in (*shown_folders(), *further):
        if os.path.exists(path):
            arguments += ("--ro-bind-try", os.path.realpath(path), path)
    if os.path.exists("/etc/localtime"):
        arguments += ("--symlink", os.path.realpath("/etc/localtime"), "/etc/localtime")
    return tuple(arguments)


def _inner_arguments(job: Job) -> Iterator[str]:
    """Yield the arguments of the first process and of all programs after it."""
    locked = not job.capabilities.processes
    if not job.bridge:
        yield from (*(entry.LOCKED_WORDS if locked else entry.WORDS), *job.argv)
        return
    # The bridge needs a named socket; the filter that it loads for the command refuses one.
    more = seccomp.FOLLOWED if locked else ()
    last = seccomp.program(job.capabilities.processes, True, named_sockets=False, more=more)
    yield from (*entry.WORDS, *job.bridge, last.hex())
    if locked:
        yield from (entry.LAST_PLACE, *entry.LOCKED_WORDS[1:])
    yield from job.argv


@lru_cache(maxsize=1)
def passwd(identity: Identity) -> bytes:
    """Return the content of /etc/passwd inside."""
    return (
        f"skill:x:{identity.uid}:{identity.gid}:skill:{TEMPORARY}:/bin/sh\n"
        f"{_NOBODY}:x:65534:65534:{_NOBODY}:/nonexistent:/usr/sbin/nologin\n"
    ).encode()


@lru_cache(maxsize=1)
def group(identity: Identity) -> bytes:
    """Return the content of /etc/group inside."""
    return f"skill:x:{identity.gid}:\nnogroup:x:65534:\n".encode()


def _memory_file(data: bytes) -> int:
    with closed_on_error() as handles:
        fd = handles.add(os.memfd_create("skillbelt", os.MFD_CLOEXEC))
        os.pwrite(fd, data, 0)  # it is read from its beginning
        return fd


def _describe_enforced(
    job: Job, identity: Identity | None, found: Hierarchy | None
) -> dict[str, str]:
    network = bool(job.bridge)
    uid = current_identity().uid
    return {
        "files": "bubblewrap mount namespace",
        "file modes": "bubblewrap mount namespace",
        "time": "everything is ended at the deadline",
        "network": "network namespace, proxy only" if network else "none: network namespace",
        "other processes": "pid namespace",
        "system calls": seccomp.described(job.capabilities.processes, network, listens=True),
        **programs_enforced(job.capabilities.processes, locked=True),
        "user": f"uid {uid}" + (", changed from root" if identity else "") + ", no capabilities",
        **counted_enforced(found.label if found else "", can_see(), can_copy()),
        "process count": "rlimit in a user namespace",
        "cpu": "rlimit for each process, watched for all",
        "file size": "rlimit",
        "open files": "rlimit",
        "disk": f"watched every {TICK_SECONDS * 1000:.0f} ms",
        "temporary files": "sized tmpfs",
    }
