"""Run the attacks against a sandbox, and check the host afterwards."""

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import tty
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal, NamedTuple

from skillbelt.errors import SkillbeltError
from skillbelt.sandbox.linux.identity import (
    current_identity,
    interpreter,
    run_identity,
    trusted_program,
)
from skillbelt.sandbox.protocol import Job, Mount, Outcome, Sandbox, run
from skillbelt.testing.prelude import NOT_THERE, PRELUDE
from skillbelt.testing.probes import PROBES, Probe
from skillbelt.values import Capabilities, Limits

Result = Literal["stopped", "succeeded", "unclear", "not claimed"]
_PATH = "/usr/bin:/bin"
_SECRET = "what only the user may read"
_SHARED = ("/tmp", "/dev/shm", "/var/tmp", "/run", "/dev", "/run/lock")
_MARKER = ("skillbelt-", "marker-7b1d")
_PROCESSES = os.path.isdir("/proc/self")  # where each process shows its arguments
# How much more time the second try of an unclear attack gets.
_PATIENCE = 8.0


class AttackResult(NamedTuple):
    """The result of one attack. `unclear` means that the attack itself could not be run."""

    attack: str
    number: int
    outcome: Result
    detail: str


class Listeners:
    """Sockets of the host that no attack may reach; counts connections and messages."""

    def __init__(self, outside: str, workspace: str) -> None:
        self.reached = 0
        self.tcp = self._open(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        self.udp = self._open(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        name = f"\0skillbelt-{os.getpid()}-{id(self)}"
        self.abstract = self._open(socket.AF_UNIX, socket.SOCK_STREAM, name)
        self.abstract_datagrams = self._open(socket.AF_UNIX, socket.SOCK_DGRAM, f"{name}d")
        self.paths = {
            key: self._open(socket.AF_UNIX, kind, os.path.join(folder, file))
            for key, kind, folder, file in (
                ("socket", socket.SOCK_STREAM, outside, "stream"),
                ("own_socket", socket.SOCK_STREAM, workspace, "stream"),
                ("datagrams", socket.SOCK_DGRAM, outside, "datagrams"),
                ("own_datagrams", socket.SOCK_DGRAM, workspace, "datagrams"),
            )
        }
        self._all = [
            self.tcp,
            self.udp,
            self.abstract,
            self.abstract_datagrams,
            *self.paths.values(),
        ]

    def _open(self, family: int, kind: int, address: object) -> socket.socket:
        end = socket.socket(family, kind)
        end.bind(address)  # type: ignore[arg-type]
        if isinstance(address, str) and not address.startswith("\0"):
            os.chmod(address, 0o777)
        if kind == socket.SOCK_STREAM:
            end.listen(8)
        end.setblocking(False)
        return end

    def visits(self) -> int:
        """Accept pending connections and messages; return how many there were."""
        found = 0
        for end in self._all:
            with suppress(BlockingIOError):
                if end.type == socket.SOCK_STREAM:
                    end.accept()[0].close()
                else:
                    end.recv(64)
                found += 1
        return found

    def close(self) -> None:
        """Close them all."""
        for end in self._all:
            end.close()


class Typing:
    """A terminal of the user with typed text, which an attack that opens it can read."""

    def __init__(self) -> None:
        self._keyboard, self.handle = os.openpty()
        tty.setraw(self.handle)
        os.fchown(self.handle, *current_identity())
        self.path = os.ttyname(self.handle)
        os.set_blocking(self._keyboard, False)
        os.write(self._keyboard, _SECRET.encode())

    def touched(self) -> bool:
        """Whether anything was written to it."""
        with suppress(BlockingIOError):
            return bool(os.read(self._keyboard, 2**16))
        return False

    def close(self) -> None:
        """Close both ends."""
        os.close(self._keyboard)
        os.close(self.handle)


class Scene:
    """A home with a secret, a skill, two workspaces, and the targets on the host."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.home, self.other = self._folder("home"), self._folder("other")
        self.skill, self.workspace = self._folder("skill"), self._folder("workspace")
        self.secret = self._file("home/secret", _SECRET)
        os.mkdir(os.path.join(self.home, ".ssh"))
        self._file("home/.ssh/id_ed25519", _SECRET)
        self._file("other/work", _SECRET)
        self._file("skill/SKILL.md", "---\nname: skill\n---\n")
        self.listeners = Listeners(self._folder("sockets"), self.workspace)
        for folder, names, files in os.walk(root):
            for name in (".", *names, *files):
                os.chown(os.path.join(folder, name), *current_identity())
        self.terminal = Typing()
        self.planted = f"planted-{os.path.basename(root)}"
        self.victim = _victim()
        self._limits, self._before = _limits_of(self.victim.pid), self._state()

    def _folder(self, name: str) -> str:
        path = os.path.join(self.root, name)
        os.mkdir(path)
        os.chmod(path, 0o777)
        return path

    def _file(self, name: str, text: str) -> str:
        path = os.path.join(self.root, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def described(self) -> str:
        """Return the facts that a probe gets."""
        sockets = self.listeners
        return json.dumps(
            {
                "secret": self.secret,
                "home": self.home,
                "other": self.other,
                "skill": self.skill,
                "planted": self.planted,
                "marker": _MARKER,
                "pid": os.getpid(),
                "victim": self.victim.pid,
                "terminal": self.terminal.path,
                "terminal_handle": self.terminal.handle,
                "tcp": sockets.tcp.getsockname()[1],
                "udp": sockets.udp.getsockname()[1],
                "abstract": _name(sockets.abstract),
                "abstract_datagrams": _name(sockets.abstract_datagrams),
                **{key: _name(end) for key, end in sockets.paths.items()},
            }
        )

    def harm(self) -> str:
        """Return what an attack changed on the host; empty for nothing."""
        if self.listeners.visits():
            return "a socket of the host was reached"
        if self.terminal.touched():
            return "a terminal of the host was written to"
        if _is_still_running(self.planted):
            return "a process of the run was alive after its result"
        if self.victim.poll() is not None:
            return self._renew_victim("a process of the host was ended")
        if _limits_of(self.victim.pid) != self._limits:
            return self._renew_victim("a process of the host was held back")
        for folder in _SHARED:
            path = os.path.join(folder, self.planted)
            if os.path.lexists(path):  # removing a missing file fails on a read-only disk
                os.unlink(path)
                return f"a file was left in {folder}"
        if _queue_was_left(self.planted):
            return "a queue of messages was left"
        now = self._state()
        changed = sorted(set(now.items()) ^ set(self._before.items()))
        if changed:
            return f"the host was changed: {changed[0][0]}"
        left = list(_set_id_files(self.workspace))
        return f"a set-id file was left: {left[0]}" if left else ""

    def _renew_victim(self, harm: str) -> str:
        """Return the harm, after replacing the victim for the next attack."""
        _end(self.victim)
        self.victim = _victim()
        return harm

    def _state(self) -> dict[str, str]:
        """Return the state of everything outside the workspace, and one kernel setting."""
        found = {"core_pattern": _read_text("/proc/sys/kernel/core_pattern")}
        for folder in (self.home, self.other, self.skill):
            for place, names, files in os.walk(folder):
                for path in (os.path.join(place, name) for name in (".", *names, *files)):
                    text = _read_text(path) if os.path.isfile(path) else ""
                    found[path] = f"{os.lstat(path).st_mode:o} {text}"
        return found

    def clear(self) -> None:
        """Empty the workspace, except for the sockets."""
        for name in os.listdir(self.workspace):
            if name not in ("stream", "datagrams"):
                _remove(os.path.join(self.workspace, name))

    def close(self) -> None:
        """Stop the victim, and close terminal and sockets."""
        _end(self.victim)
        self.terminal.close()
        self.listeners.close()


@contextmanager
def open_scene() -> Iterator[Scene]:
    """Yield a scene in a folder that the run's user can reach; remove it afterwards."""
    root = tempfile.mkdtemp(prefix="skillbelt-attacks-")
    os.chmod(root, 0o755)
    try:
        scene = Scene(root)
        try:
            yield scene
        finally:
            scene.clear()
            scene.close()
    finally:
        shutil.rmtree(root)


def run_attacks(
    sandbox: Sandbox, probes: Iterable[Probe] = PROBES, *, claimed_only: bool = True
) -> list[AttackResult]:
    """Run each attack and its allowed counterpart. No attack may succeed.

    The sandbox must work here. With `claimed_only`, attacks on protections that the sandbox does
    not claim are not run.
    """
    return list(attack_one_by_one(sandbox, probes, claimed_only=claimed_only))


def attack_one_by_one(
    sandbox: Sandbox, probes: Iterable[Probe] = PROBES, *, claimed_only: bool = True
) -> Iterator[AttackResult]:
    """Do the same as `run_attacks`, and yield each result as it comes."""
    with open_scene() as scene:
        claimed = run(sandbox, _job(scene, "pass", Probe("", (), "", "", processes=False))).enforced
        for probe in probes:
            if claimed_only and claimed.get(probe.claim, "not ").startswith("not "):
                outcome: Result = "not claimed"
                detail = claimed.get(probe.claim, "")
            else:
                outcome, detail = _attack(scene, sandbox, probe)
            for number in probe.numbers:
                yield AttackResult(probe.name, number, outcome, detail)


def _attack(scene: Scene, sandbox: Sandbox, probe: Probe) -> tuple[Result, str]:
    """Carry out an attack, and once more with more time if the first try was unclear.

    On a busy machine a limit may be reached only after the attack's time.
    """
    result, detail = _attack_once(scene, sandbox, probe)
    if result != "unclear":
        return result, detail
    patient = probe._replace(timeout_seconds=probe.timeout_seconds * _PATIENCE)
    return _attack_once(scene, sandbox, patient)


def _attack_once(scene: Scene, sandbox: Sandbox, probe: Probe) -> tuple[Result, str]:
    try:
        outcome = run(sandbox, _job(scene, probe.script, probe))
        harm = scene.harm()
        scene.clear()
        if harm:
            return "succeeded", harm
        result, detail = _judge(probe, outcome)
        if result == "stopped" and probe.allowed:
            return _counterpart(scene, sandbox, probe, detail)
    except SkillbeltError as error:
        return "unclear", str(error)
    return result, detail


def _judge(probe: Probe, outcome: Outcome) -> tuple[Result, str]:
    line = outcome.stdout.data.decode("utf-8", "replace").partition("\n")[0].strip()
    if line.startswith("broke"):
        return "succeeded", line.removeprefix("broke ")
    if probe.ends and not line.startswith(f"held {NOT_THERE}"):
        ended = set(probe.ends) & set(outcome.limits_hit)
        return ("stopped", f"ended: {', '.join(ended)}") if ended else ("unclear", str(outcome))
    if line.startswith("held"):
        return "stopped", line.removeprefix("held").strip()
    if outcome.limits_hit or outcome.exit_code > 128:
        return "stopped", f"ended with {outcome.exit_code} {' '.join(outcome.limits_hit)}".strip()
    return "unclear", f"exit {outcome.exit_code}: {outcome.stderr.data[-300:]!r}"


def _counterpart(scene: Scene, sandbox: Sandbox, probe: Probe, detail: str) -> tuple[Result, str]:
    outcome = run(sandbox, _job(scene, probe.allowed, probe))
    scene.clear()
    if outcome.exit_code == 0:
        return "stopped", detail
    output = (outcome.stderr.data or outcome.stdout.data)[-300:]
    return "unclear", f"what is allowed does not work: exit {outcome.exit_code}: {output!r}"


def _job(scene: Scene, script: str, probe: Probe) -> Job:
    python = interpreter()
    if python is None:
        raise SkillbeltError("there is no Python that can be run in a sandbox")
    limits = Limits(max_stream_bytes=4096)._replace(**{k: int(v) for k, v in probe.limits})
    mounts = [Mount(scene.skill, scene.skill), Mount(scene.workspace, scene.workspace, True)]
    mounts += [Mount(each, each) for each in python.folders]
    return Job(
        argv=(python.path, "-I", "-c", PRELUDE + script, scene.described()),
        env={"PATH": _PATH, "HOME": scene.workspace},
        cwd=scene.workspace,
        mounts=tuple(mounts),
        workspace=scene.workspace,
        capabilities=Capabilities(processes=probe.processes),
        limits=limits,
        timeout_seconds=probe.timeout_seconds,
        terminal=probe.terminal,
    )


def _victim() -> subprocess.Popen[bytes]:
    """Start a process of the same user as the commands, with a token in its environment.

    It waits for EOF on our pipe, so that it ends with us, even if we are killed.
    """
    identity = run_identity()
    prefix: list[str] = []
    if identity is not None:
        prefix = [
            str(trusted_program("setpriv")),
            f"--reuid={identity.uid}",
            f"--regid={identity.gid}",
            "--clear-groups",
            "--",
        ]
    return subprocess.Popen(
        [*prefix, str(trusted_program("cat"))],
        env={"TOKEN": "".join(_MARKER)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def _end(victim: subprocess.Popen[bytes]) -> None:
    victim.kill()
    victim.communicate()


def _limits_of(pid: int) -> tuple[object, ...]:
    """Return the limits and the scheduling priority of the process."""
    return (
        _read_text(f"/proc/{pid}/limits"),
        os.getpriority(os.PRIO_PROCESS, pid),
        os.sched_getaffinity(pid),
        os.sched_getscheduler(pid),
    )


def _is_still_running(mark: str) -> bool:
    """Whether a process with the mark in its arguments still runs; kill it."""
    found = [int(name) for name in os.listdir("/proc") if name.isdigit()] if _PROCESSES else []
    late = [pid for pid in found if mark in _read_text(f"/proc/{pid}/cmdline")]
    for pid in late:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return bool(late)


def _queue_was_left(name: str) -> bool:
    """Whether that message queue exists in this machine's own namespace; remove it."""
    unlink = getattr(ctypes.CDLL(None), "mq_unlink", None)
    return unlink is not None and unlink(f"/{name}".encode()) == 0


def _name(end: socket.socket) -> str:
    name = end.getsockname()
    return os.fsdecode(name) if isinstance(name, bytes) else str(name)


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(2**16)
    except OSError as error:
        return f"unreadable: {error.errno}"


def _set_id_files(folder: str) -> Iterator[str]:
    for place, _, files in os.walk(folder):
        for path in (os.path.join(place, name) for name in files):
            with suppress(OSError):
                if os.lstat(path).st_mode & 0o6000:
                    yield path


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        for place, names, _ in os.walk(path):
            for name in (".", *names):
                with suppress(OSError):
                    os.chmod(os.path.join(place, name), 0o700, follow_symlinks=True)
        os.chmod(path, 0o700)
        shutil.rmtree(path)
    else:
        os.unlink(path)
