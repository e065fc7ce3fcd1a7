"""The sandbox for macOS: a generated profile that denies everything it does not name.

No Mac has run the attack list against it yet, and its results say so. A profile contains only text
from this module: every path of a job is a parameter, so no path can add a rule. Of two rules that
match, the later one counts.
"""

import fcntl
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from skillbelt.errors import RunRefused, SandboxUnavailable
from skillbelt.files.contain import FOLLOW_FILE, NEW_FILE
from skillbelt.sandbox.inside.bridge import open_port, proxied
from skillbelt.sandbox.linux.identity import current_identity, run_identity
from skillbelt.sandbox.process.portable import Chain, PortableRun
from skillbelt.sandbox.process.run import check_job, try_start
from skillbelt.sandbox.protocol import Job, Keepless, Listener, Mount, Running

PROGRAM = "/usr/bin/sandbox-exec"
SYSTEM = ("/System", "/usr/lib", "/usr/bin", "/usr/sbin", "/usr/libexec", "/usr/share", "/bin",
          "/sbin", "/Library/Apple", "/Library/Developer/CommandLineTools", "/private/etc/ssl",
          "/private/var/db/timezone", "/private/var/select")  # fmt: skip
SYSTEM_FILES = ("/", "/private/etc/localtime", "/dev/null", "/dev/zero", "/dev/random",
                "/dev/urandom")  # fmt: skip
TEMPORARY = ("/private/tmp", "/tmp")
_LINKS = ("/tmp", "/var", "/etc", "/private", "/private/var", "/private/etc")
_UNVERIFIED = "Seatbelt profile, not verified"
NOT_VERIFIED = "the sandbox seatbelt is not verified: no Mac has run the attacks against it"
_FIRST_LINE = 512
_MAX_PATH = 1024
_MAX_ATTEMPTS = 10_000
_attempts = count()


class Profile(NamedTuple):
    """The text of a profile, and the value of each parameter in it."""

    text: str
    parameters: Mapping[str, str]


class _Names:
    """Assigns a parameter name to each path."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def __call__(self, path: str) -> str:
        name = self._names.setdefault(path, f"PATH_{len(self._names)}")
        self.values[name] = path
        return f'(param "{name}")'


def profile(job: Job, programs: Iterable[str] = (), proxy_port: int | None = None) -> Profile:
    """Return the profile for a job with canonical paths; `programs` may run without `processes`.

    Nothing is read from the system: the same job gives the same profile everywhere.
    """
    name = _Names()
    places = _visible_mounts(job)
    rules = [
        "(version 1)",
        "(deny default)",
        "(allow sysctl-read)",
        "(allow process-info* (target same-sandbox))",
        "(allow signal (target same-sandbox))",
        '(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))',
        *_system_rules(),
        *_place_rules(places, name),
        *_program_rules(job, tuple(programs), places, name),
        *_network_rules(proxy_port),
        # Last, so that no other rule overrides them.
        *_anchor_rules(places, name),
        "(deny file-write-setugid)",
        # Temporary files are shared: a run must not change the profile of the next one.
        r'(deny file-write* (regex #"/openskills-seatbelt-[0-9]+-[0-9]+\.sb$"))',
    ]
    return Profile("\n".join(rules) + "\n", name.values)


def _visible_mounts(job: Job) -> list[Mount]:
    """Return the visible paths beside the system, outer folders first, so that inner rules win."""
    wanted: dict[str, Mount] = {}
    for mount in sorted(job.mounts, key=lambda mount: mount.writable):
        wanted.setdefault(mount.source, mount)
    for path in job.capabilities.read:
        wanted.setdefault(path, Mount(path, path))
    for path in job.capabilities.write:
        wanted.setdefault(path, Mount(path, path, True))
    return sorted(wanted.values(), key=lambda mount: mount.source.count("/"))


def _system_rules() -> Iterator[str]:
    folders = " ".join(f'(subpath "{path}")' for path in SYSTEM)
    files = " ".join(f'(literal "{path}")' for path in SYSTEM_FILES)
    temporary = " ".join(f'(subpath "{path}")' for path in TEMPORARY)
    links = " ".join(f'(literal "{path}")' for path in _LINKS)
    yield f"(allow file-read* {folders} {files})"
    yield f"(allow file-read-metadata {links})"
    yield f"(allow file-map-executable {folders})"
    yield '(allow file-write-data (literal "/dev/null") (literal "/dev/zero"))'
    yield f"(allow file-read* file-write* {temporary})"


def _place_rules(places: list[Mount], name: Callable[[str], str]) -> Iterator[str]:
    for path in sorted({above for place in places for above in _parents_of(place.source)}):
        yield f"(allow file-read-metadata (literal {name(path)}))"
    for place in places:
        path = name(place.source)
        yield f"(allow file-read* (subpath {path}))"
        yield f"({'allow' if place.writable else 'deny'} file-write* (subpath {path}))"


def _program_rules(
    job: Job, programs: tuple[str, ...], places: list[Mount], name: Callable[[str], str]
) -> Iterator[str]:
    free = job.capabilities.processes
    mapped = [place.source for place in places if free or not place.writable]
    for path in dict.fromkeys((*mapped, *(os.path.dirname(program) for program in programs))):
        yield f"(allow file-map-executable (subpath {name(path)}))"
    for program in programs:
        yield f"(allow file-read* (literal {name(program)}))"
        yield f"(allow file-map-executable (literal {name(program)}))"
    if free:
        yield "(allow process-fork)"
        yield "(allow process-exec)"
    else:
        yield from (f"(allow process-exec (literal {name(path)}))" for path in programs)


def _network_rules(proxy_port: int | None) -> Iterator[str]:
    if proxy_port is not None:
        yield f'(allow network-outbound (remote tcp "localhost:{int(proxy_port)}"))'


def _anchor_rules(places: list[Mount], name: Callable[[str], str]) -> Iterator[str]:
    """Keep the paths that rules name, and the folders above them, from being moved."""
    writable = [os.path.join(place.source, "") for place in places if place.writable]
    writable += [os.path.join(path, "") for path in TEMPORARY]
    fixed = {place.source for place in places}
    for place in places:
        fixed |= {
            path for path in _parents_of(place.source) if f"{path}/".startswith(tuple(writable))
        }
    for path in sorted(fixed):
        yield f"(deny file-write-unlink (literal {name(path)}))"


def _parents_of(path: str) -> Iterator[str]:
    """Yield every folder above the path, except the root."""
    path = os.path.dirname(path)
    while path not in ("/", ""):
        yield path
        path = os.path.dirname(path)


class SeatbeltSandbox(Keepless):
    """Runs commands in sandbox-exec."""

    name = "seatbelt"
    level = 1
    remaps = False

    def __init__(self, program: str = PROGRAM, platform: str = sys.platform) -> None:
        self._program, self._platform = program, platform

    def unavailable(self) -> str | None:
        """Return why it cannot be used here, with the remedy; None when it can."""
        if self._platform != "darwin":
            return "this system is not macOS"
        if not os.access(self._program, os.X_OK):
            return f"there is no {self._program}, which belongs to macOS"
        return _preflight(self._program)

    def start(self, job: Job, listener: Listener | None = None) -> Running:
        """Start the command; SandboxUnavailable when the sandbox itself cannot be set up."""
        reason = self.unavailable()
        if reason is not None:
            raise SandboxUnavailable(reason)
        return _start(self._program, job, listener)


@lru_cache(maxsize=4)
def _preflight(program: str) -> str | None:
    """Run `true` with a profile as a real run has it."""
    with tempfile.TemporaryDirectory(prefix="skillbelt-") as folder:
        os.chown(folder, *current_identity())
        mounts = (Mount(folder, folder, True),)
        try:
            try_start(lambda job: _start(program, job, None), folder, folder, mounts)
        except SandboxUnavailable as error:
            return str(error)
    return None


def _start(program: str, job: Job, listener: Listener | None) -> Running:
    check_job(job)
    job = canonical(job)
    if job.terminal:
        raise RunRefused("seatbelt cannot give a command a terminal")
    found = look_up(job.argv[0], job)
    if found is None:
        return PortableRun(
            Chain((), {}, _describe_enforced(job, None), missing=job.argv[0]), job, listener
        )
    port, env = _open_proxy_port(job) if job.bridge else (None, job.env)
    made = profile(job, needed_programs(found, job), port)
    file = write_profile(made.text)
    words = [word for pair in made.parameters.items() for word in ("-D", "=".join(pair))]
    argv = (program, "-f", file, *words, "--", found, *job.argv[1:])
    chain = Chain(argv, env, _describe_enforced(job, port), lambda: _forget(file))
    return PortableRun(chain, job, listener)


def canonical(job: Job) -> Job:
    """Return the job with canonical paths, such as /private/tmp for /tmp."""
    for mount in job.mounts:
        if os.path.normpath(mount.source) != os.path.normpath(mount.target):
            raise SandboxUnavailable("seatbelt cannot show a folder at another place than its own")
    mounts = []
    for mount in job.mounts:
        path = _canonical_path(mount.source)
        mounts.append(Mount(path, path, mount.writable))
    granted = job.capabilities._replace(
        read=tuple(map(_canonical_path, job.capabilities.read)),
        write=tuple(map(_canonical_path, job.capabilities.write)),
    )
    return job._replace(mounts=tuple(mounts), capabilities=granted)


def _canonical_path(path: str) -> str:
    if "\0" in path:
        raise RunRefused(f"{path[:200]!r} cannot be a place for a mount")
    found = _disk_case(os.path.realpath(path))
    if found == "/":
        raise RunRefused(f"{path[:200]!r} cannot be a place for a mount")
    return found


def _disk_case(path: str) -> str:
    """Return the path in the case of the disk, since rules are case-sensitive."""
    ask = getattr(fcntl, "F_GETPATH", None)  # macOS alone
    if ask is None:
        return path
    try:
        handle = os.open(path, FOLLOW_FILE)
    except OSError:
        return path
    try:
        answer: bytes = fcntl.fcntl(handle, ask, bytes(_MAX_PATH))
    finally:
        os.close(handle)
    return os.fsdecode(answer.rstrip(b"\0"))


def look_up(name: str, job: Job) -> str | None:
    """Return the path of a program; links are not resolved, as a program may depend on its name."""
    folders = [""] if "/" in name else job.env.get("PATH", "").split(":")
    for folder in folders:
        path = os.path.join(job.cwd, folder, name)
        if (folder or "/" in name) and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def needed_programs(program: str, job: Job) -> tuple[str, ...]:
    """Return all programs that are executed to start this one."""
    found = os.path.realpath(program)
    words = [look_up(word, job) for word in _first_line(found)]
    wanted = [found, *_framework(found), *(os.path.realpath(word) for word in words if word)]
    return tuple(dict.fromkeys(wanted))


def _framework(program: str) -> Iterator[str]:
    """Yield the real program of a framework Python, which its launcher executes."""
    version, mark, _ = program.partition("/bin/")
    if mark and ".framework/Versions/" in version:
        yield os.path.join(version, "Resources/Python.app/Contents/MacOS/Python")


def _first_line(program: str) -> list[str]:
    """Return the words of `#!/usr/bin/env python3`; none for a binary."""
    try:
        with open(program, "rb") as file:
            line = file.read(_FIRST_LINE).partition(b"\n")[0]
    except OSError:
        return []
    return os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []


def _open_proxy_port(job: Job) -> tuple[int, dict[str, str]]:
    """Return a port on which the proxy accepts, and the environment that names it."""
    try:
        port = open_port(job.bridge[-1])
    except OSError as error:
        raise SandboxUnavailable(f"no way to the network: {error.strerror or error}") from error
    return port, proxied(dict(job.env), port)


def write_profile(text: str) -> str:
    """Write a new file with the profile that the user of the run can read; return its path."""
    for _ in range(_MAX_ATTEMPTS):
        name = f"openskills-seatbelt-{os.getpid()}-{next(_attempts)}.sb"
        path = os.path.join(tempfile.gettempdir(), name)
        with suppress(FileExistsError):
            handle = os.open(path, NEW_FILE, 0o444)
            with open(handle, "w", encoding="ascii") as file:
                file.write(text)
            return path
    raise SandboxUnavailable(f"there is no name left for a profile in {tempfile.gettempdir()}")


def _forget(path: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(path)


def _describe_enforced(job: Job, port: int | None) -> dict[str, str]:
    free = job.capabilities.processes
    uid = current_identity().uid
    return {
        "files": _UNVERIFIED,
        "file modes": _UNVERIFIED,
        "network": f"{_UNVERIFIED}, proxy only" if port else f"none: {_UNVERIFIED}",
        "other processes": f"{_UNVERIFIED}: no signals; they can be seen",
        "system calls": "not enforced: macOS has no filter for them",
        "child processes": "allowed" if free else f"none: {_UNVERIFIED}",
        "other programs": "allowed" if free else f"none: {_UNVERIFIED}",
        "user": f"uid {uid}" + (", changed from root" if run_identity() else ""),
        "time": "not enforced for a process that leaves its group and its parent"
        if free
        else "the command is ended at the deadline",
        "memory": "not enforced: macOS keeps no limit of it",
        "memory beside processes": "not enforced: macOS keeps no limit of it",
        "kernel memory": "not enforced: macOS keeps no limit of it",
        "files without a name": "not enforced: only files with a name are counted",
        "process count": "rlimit, counted with the user's others",
        "cpu": "rlimit for each process",
        "file size": "rlimit",
        "open files": "rlimit",
        "disk": "watched, the workspace alone",
        "temporary files": "not enforced: /tmp is shared with all users",
    }
