"""The container sandbox: hardened containers of Docker or Podman, reused between runs.

A container has no capabilities, no network, a read-only root, sized tmpfs for temporary files,
limits on memory and processes, and our own seccomp filter. Its first process starts one command
after another, and cleans up after each before the next.
"""

from __future__ import annotations

import os
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any

from skillbelt.errors import RunRefused, SandboxUnavailable
from skillbelt.late import made_once
from skillbelt.sandbox.container.channel import ContainerChannel, ContainerLost
from skillbelt.sandbox.container.counters import ContainerWatch, limits_enforced
from skillbelt.sandbox.container.engine import TEMPORARY_FOLDERS, ContainerEngine, ContainerShape
from skillbelt.sandbox.container.image import ContainerImage, find_image, system_mounts
from skillbelt.sandbox.container.mounts import exposed, identities, with_submounts
from skillbelt.sandbox.container.pool import Container, ContainerPool
from skillbelt.sandbox.container.run import ContainerRun
from skillbelt.sandbox.inside import container as first_process
from skillbelt.sandbox.inside.source import source_of
from skillbelt.sandbox.linux import bubblewrap, seccomp
from skillbelt.sandbox.linux.identity import blocking_folder, current_identity, run_identity
from skillbelt.sandbox.process.limits import process_limits, programs_enforced
from skillbelt.sandbox.process.mounts import mounts_of
from skillbelt.sandbox.process.run import START_SECONDS
from skillbelt.sandbox.protocol import Job, Listener, Mount, Running, refusal
from skillbelt.settings import Settings, process_environment
from skillbelt.untrusted_json import read_json
from skillbelt.values import Limits

# Containers at the same time; each holds memory and a network namespace.
MAX_CONTAINERS = 8
# Age of an unused container; a conversation rarely pauses longer.
CONTAINER_IDLE_SECONDS = 600.0

TEMPORARY = TEMPORARY_FOLDERS[0]
_QUEUES = "/dev/mqueue"
_PATIENCE_SECONDS = 30.0  # how long a run waits for a container at the limit
_UNBOUNDED = 2**62
_USUAL_RUNTIMES = ("", "runc", "crun", "io.containerd.runc.v2")
_PROBED, _PROBE = "/run/check", "import sys; open(sys.argv[1], 'x')"
# The engines that were probed, and whether files have the same inode numbers inside and outside.
_probed: dict[tuple[str, str, str, int], bool] = {}


class ContainerSandbox:
    """Runs commands in containers of a Docker or Podman engine on this machine."""

    name = "container"
    level = 2
    remaps = True

    def __init__(
        self, settings: Settings | None = None, progress: Callable[[str], None] | None = None
    ) -> None:
        """Create the sandbox; `progress` receives messages about slow steps."""
        self._settings = settings or Settings()
        self._progress = progress or (lambda text: None)
        self._probing, self._same_inodes = False, True
        self._lock = threading.Lock()
        self._pool = ContainerPool(
            MAX_CONTAINERS, CONTAINER_IDLE_SECONDS, self._settings.container_reuse
        )

    def unavailable(self) -> str | None:
        """Return why it cannot be used here, with the remedy; None when it can."""
        return refusal(self._preflight)

    def start(self, job: Job, listener: Listener | None = None) -> Running:
        """Start the command; raises SandboxUnavailable when the sandbox itself cannot start."""
        bubblewrap.check_environment(job)
        self._preflight()
        return self._start(job, listener, self._pool)

    def close(self) -> None:
        """Remove the idle containers. The sandbox can be used again."""
        self._pool.close()
        if "_engine" in self.__dict__:
            self._engine.close()

    @made_once
    def _engine(self) -> ContainerEngine:
        chosen = self._settings
        return ContainerEngine(
            chosen.container_engine, process_environment(), chosen.container_runtime
        )

    @made_once
    def _image(self) -> ContainerImage:
        return find_image(self._engine, self._settings.container_image, self._progress)

    def _preflight(self) -> None:
        """Run a program that writes to a folder of ours, until that has worked once."""
        with self._lock:
            self._probe()

    def _probe(self) -> None:
        chosen = self._settings
        mark = (self._engine.url, chosen.container_image, chosen.container_runtime, os.getuid())
        if mark in _probed:
            self._same_inodes = _probed[mark]
            return
        if not seccomp.supported():
            raise SandboxUnavailable(
                f"there is no seccomp filter for this processor ({os.uname().machine})"
            )
        _ = self._engine.client
        self._engine.check()
        self._engine.sweep(time.time())
        self._probing = True
        try:
            self._run_probe()
        finally:
            self._probing = False
        _probed[mark] = self._same_inodes

    def _run_probe(self) -> None:
        limits = Limits(max_workspace_bytes=_UNBOUNDED, max_workspace_files=_UNBOUNDED)
        token = os.urandom(8).hex()
        with tempfile.TemporaryDirectory(prefix="skillbelt-") as folder:
            os.chown(folder, *current_identity())
            os.chmod(folder, 0o755)
            argv = (self._image.python, "-I", "-S", "-c", _PROBE, token)
            mounts = (Mount(folder, _PROBED, True),)
            job = Job(
                argv=argv, env={}, cwd=_PROBED, mounts=mounts, workspace=folder, limits=limits
            )
            outcome = self._start(job, None, ContainerPool(1, 0.0, reuse=False)).wait()
            seen = os.listdir(folder)
        assert outcome is not None
        if seen != [token]:
            said = outcome.stderr.data.decode("utf-8", "replace").strip()
            raise SandboxUnavailable(
                "a container starts, but a file created in it does not appear here; the engine "
                f"must run on this machine: {said or 'it has mounted another folder'}"
            )

    def _start(self, job: Job, listener: Listener | None, pool: ContainerPool) -> Running:
        shape = self._shape(job)
        key = (shape, identities(shape.mounts))
        make = partial(self._start_container, job, shape, key)
        container = pool.take(key, make, _PATIENCE_SECONDS)
        try:
            enforced = self._describe_enforced(job, container)
            watch = ContainerWatch(job, TEMPORARY, container.group, container.pid)
            task = _task(job, shape, self._engine.rootless)
        except BaseException:
            pool.discard(container)
            raise
        return ContainerRun(
            job=job,
            task=task,
            container=container,
            pool=pool,
            enforced=enforced,
            watch=watch,
            listener=listener,
        )

    def _shape(self, job: Job) -> ContainerShape:
        mounts = {mount.target: mount for mount in self._system(bool(job.bridge))}
        mounts |= {os.path.normpath(mount.target): mount for mount in _mounts(job)}
        limits = job.limits
        return ContainerShape(
            mounts=tuple(with_submounts(mounts.values())),
            network=bool(job.bridge),
            memory_bytes=limits.max_memory_bytes,
            processes=limits.max_processes,
            temporary_bytes=limits.max_temporary_bytes,
        )

    def _system(self, network: bool) -> tuple[Mount, ...]:
        return system_mounts(network) if self._image.system else ()

    def _start_container(self, job: Job, shape: ContainerShape, key: Hashable) -> Container:
        places = [mount.target for mount in shape.mounts]
        text = source_of("container").encode()
        start = first_process.START.format(size=len(text))
        command = [self._image.python, "-I", "-S", "-c", start, *places]
        try:
            made = self._engine.make(self._image.id, shape, command, list(self._image.volumes))
        except SandboxUnavailable as error:
            reason = f"{error}{self._remedy()}"
            self.__dict__.pop("_image", None)  # it may be gone from the engine
            raise SandboxUnavailable(reason) from error
        container = Container(self._engine, made, ContainerChannel(made.end), key)
        try:
            container.channel.send_raw(text)
            self._check(job, key, self._hello(container.channel))
            container.find_processes(self._same_inodes)
        except BaseException:
            container.discard()
            raise
        return container

    def _hello(self, channel: ContainerChannel) -> dict[str, Any]:
        """Read the status of the first process; no code of a skill has run there yet."""
        try:
            _, data = channel.expect((first_process.HELLO,), START_SECONDS)
            return dict(read_json(data))
        except (ContainerLost, ValueError) as error:
            text = f"the container does not start: {error}{self._remedy()}"
            raise SandboxUnavailable(text) from error

    def _check(self, job: Job, key: Hashable, found: dict[str, Any]) -> None:
        """Raise SandboxUnavailable or RunRefused unless the container is as requested."""
        # Another runtime may have its own kernel, which does not report all of this; the command's
        # own filter is loaded there too.
        silent = () if self._engine.runtime in _USUAL_RUNTIMES else ("", "0")
        faults = list(_faults(found, silent))
        if faults:
            raise SandboxUnavailable(f"the engine did not apply: {', '.join(faults)}")
        self._check_places(job, key, tuple(tuple(one) for one in found["places"]))

    def _check_places(self, job: Job, key: Hashable, seen: Hashable) -> None:
        """Compare the mounts: the engine follows links with rights that the command lacks."""
        assert isinstance(key, tuple)
        if seen == key[1]:
            return
        if not self._probing and (self._same_inodes or exposed(mounts_of(job))):
            raise RunRefused("the engine mounted something else than requested: it followed a link")
        self._same_inodes = False

    def _remedy(self) -> str:
        if self._image.system:
            return ""
        return "; the image (container_image) needs python3, 3.9 or newer"

    def _describe_enforced(self, job: Job, container: Container) -> dict[str, str]:
        network = bool(job.bridge)
        changed = ", changed from root" if run_identity() else ""
        return {
            "files": "container",
            "file modes": "container",
            "time": "everything is ended at the deadline",
            "network": "network namespace, proxy only" if network else "none: network namespace",
            "other processes": "pid namespace",
            "system calls": seccomp.described(job.capabilities.processes, network, listens=True),
            **programs_enforced(job.capabilities.processes, not network),
            "user": f"uid {current_identity().uid}{changed}, no capabilities",
            **limits_enforced(job.limits, container.group, container.pid, self._engine.rootless),
        }


def _faults(found: dict[str, Any], silent: tuple[str, ...]) -> Iterator[str]:
    """Yield the settings that are not as requested."""
    identity = current_identity()
    for name, number in (("Uid", identity.uid), ("Gid", identity.gid)):
        if found.get(name, "").split() != [str(number)] * 4:
            yield name
    for name in ("CapPrm", "CapEff", "CapBnd"):
        if int(found.get(name) or "1", 16):
            yield name
    for name, value in (("NoNewPrivs", "1"), ("Seccomp", "2")):
        if found.get(name, "") not in (value, *silent):
            yield name
    ours = [first_process.namespace(name) for name in first_process.NAMESPACES]
    for name, inside, outside in zip(
        first_process.NAMESPACES, found["namespaces"], ours, strict=True
    ):
        if inside == outside or (not inside and not silent):
            yield f"namespace {name}"


def _mounts(job: Job) -> Iterator[Mount]:
    """Yield the job's mounts.

    Refuse one that only the engine, not the user of commands, can reach.
    """
    for mount in mounts_of(job):
        folder = blocking_folder(mount.source) or blocking_folder(os.path.realpath(mount.source))
        if folder is not None:
            raise SandboxUnavailable(
                f"{mount.source} cannot be mounted: {folder} is closed to uid "
                f"{current_identity().uid}, which runs commands; keep it in a folder that others "
                "can pass through"
            )
        yield mount


def _task(job: Job, shape: ContainerShape, own_users: bool) -> dict[str, object]:
    """Return the task for the first process; `own_users`: in its own user namespace."""
    network, processes = bool(job.bridge), job.capabilities.processes
    taken = {os.path.normpath(mount.target) for mount in shape.mounts}
    followed = seccomp.FOLLOWED if network or not processes else ()
    argv = job.argv
    if job.bridge:
        # The bridge itself needs a named socket; the command behind it must not have one.
        last = seccomp.program(processes, network=True, named_sockets=False)
        argv = (*job.bridge, last.hex(), *job.argv)
    return {
        "argv": argv,
        "env": {**job.env, "PWD": job.env.get("PWD", job.cwd)},
        "cwd": job.cwd,
        "terminal": job.terminal,
        "temporary": [place for place in (*TEMPORARY_FOLDERS, _QUEUES) if place not in taken],
        "limits": [
            one
            for one in process_limits(job.limits, 1)
            if own_users or one[0] != resource.RLIMIT_NPROC
        ],
        "filter": seccomp.program(processes, network, more=followed, listens=True).hex(),
        # The bridge still has to exec the command.
        "lock": None if processes or network else seccomp.lock_task(),
    }
