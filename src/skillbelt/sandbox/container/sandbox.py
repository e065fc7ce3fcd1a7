"""The sandbox of containers: Docker or Podman, hardened, kept ready between runs.

A container has no capabilities, no network, a root that can not be written, sized places for
temporary files, limits on memory and processes, and our own filter for system calls. Its first
process starts one command after another, and lets nothing of one be there for the next.
"""

from __future__ import annotations

import os
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from functools import cached_property, partial
from typing import Any

from skillbelt.errors import RunRefused, SandboxUnavailable
from skillbelt.sandbox.container.channel import Channel, Lost
from skillbelt.sandbox.container.counters import ContainerWatch, limits_enforced
from skillbelt.sandbox.container.engine import ROOMS, Engine, Shape
from skillbelt.sandbox.container.image import Image, find_image, system_mounts
from skillbelt.sandbox.container.mounts import exposed, identities, with_submounts
from skillbelt.sandbox.container.pool import Container, Pool
from skillbelt.sandbox.container.run import ContainerRun
from skillbelt.sandbox.inside import container as keeper
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

TEMPORARY = ROOMS[0]
_QUEUES = "/dev/mqueue"
_PATIENCE_SECONDS = 30.0  # how long a run waits for another to end when there may be no more
_UNBOUNDED = 2**62
_USUAL_RUNTIMES = ("", "runc", "crun", "io.containerd.runc.v2")
_PROBED, _PROBE = "/run/check", "import sys; open(sys.argv[1], 'x')"
# What was tried already, and whether files inside have the numbers that they have outside.
_tried: dict[tuple[str, str, str, int], bool] = {}


class ContainerSandbox:
    """Runs commands in containers of a Docker or Podman engine on this machine."""

    name = "container"
    level = 2
    remaps = True

    def __init__(
        self, settings: Settings | None = None, progress: Callable[[str], None] | None = None
    ) -> None:
        """`progress` is told what takes long."""
        self._settings = settings or Settings()
        self._progress = progress or (lambda text: None)
        self._probing, self._same_numbers = False, True
        self._lock = threading.Lock()
        self._pool = Pool(MAX_CONTAINERS, CONTAINER_IDLE_SECONDS, self._settings.container_reuse)

    def unavailable(self) -> str | None:
        """Why it can not be used here, with the remedy; None when it can."""
        return refusal(self._preflight)

    def start(self, job: Job, listener: Listener | None = None) -> Running:
        """Start the command; SandboxUnavailable when the sandbox itself can not be brought up."""
        bubblewrap.check_environment(job)
        self._preflight()
        return self._start(job, listener, self._pool)

    def close(self) -> None:
        """Let go of the containers that are kept ready; it can be used again all the same."""
        self._pool.close()
        if "_engine" in self.__dict__:
            self._engine.close()

    @cached_property
    def _engine(self) -> Engine:
        chosen = self._settings
        return Engine(chosen.container_engine, process_environment(), chosen.container_runtime)

    @cached_property
    def _image(self) -> Image:
        return find_image(self._engine, self._settings.container_image, self._progress)

    def _preflight(self) -> None:
        """Run a program that reads a folder of ours; once it has worked, it is not tried again."""
        with self._lock:
            self._try()

    def _try(self) -> None:
        chosen = self._settings
        mark = (self._engine.url, chosen.container_image, chosen.container_runtime, os.getuid())
        if mark in _tried:
            self._same_numbers = _tried[mark]
            return
        if not seccomp.supported():
            raise SandboxUnavailable(
                f"there is no filter for system calls for this processor ({os.uname().machine})"
            )
        _ = self._engine.client
        self._engine.check()
        self._engine.sweep(time.time())
        self._probing = True
        try:
            self._try_once()
        finally:
            self._probing = False
        _tried[mark] = self._same_numbers

    def _try_once(self) -> None:
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
            outcome = self._start(job, None, Pool(1, 0.0, reuse=False)).wait()
            seen = os.listdir(folder)
        assert outcome is not None
        if seen != [token]:
            said = outcome.stderr.data.decode("utf-8", "replace").strip()
            raise SandboxUnavailable(
                "a container starts, but a file that is made in it is not made here; the engine "
                f"must run on this very machine: {said or 'there is another folder'}"
            )

    def _start(self, job: Job, listener: Listener | None, pool: Pool) -> Running:
        shape = self._shape(job)
        key = (shape, identities(shape.mounts))
        make = partial(self._make, job, shape, key)
        container = pool.take(key, make, _PATIENCE_SECONDS)
        try:
            enforced = self._enforced(job, container)
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

    def _shape(self, job: Job) -> Shape:
        mounts = {mount.target: mount for mount in self._system(bool(job.bridge))}
        mounts |= {os.path.normpath(mount.target): mount for mount in _mounts(job)}
        limits = job.limits
        return Shape(
            mounts=tuple(with_submounts(mounts.values())),
            network=bool(job.bridge),
            memory_bytes=limits.max_memory_bytes,
            processes=limits.max_processes,
            temporary_bytes=limits.max_temporary_bytes,
        )

    def _system(self, network: bool) -> tuple[Mount, ...]:
        return system_mounts(network) if self._image.system else ()

    def _make(self, job: Job, shape: Shape, key: Hashable) -> Container:
        places = [mount.target for mount in shape.mounts]
        text = source_of("container").encode()
        start = keeper.START.format(size=len(text))
        command = [self._image.python, "-I", "-S", "-c", start, *places]
        try:
            made = self._engine.make(self._image.id, shape, command, list(self._image.volumes))
        except SandboxUnavailable as error:
            reason = f"{error}{self._remedy()}"
            self.__dict__.pop("_image", None)  # it may be gone from the engine
            raise SandboxUnavailable(reason) from error
        container = Container(self._engine, made, Channel(made.end), key)
        try:
            container.channel.send_raw(text)
            self._check(job, key, self._hello(container.channel))
            container.find_processes(self._same_numbers)
        except BaseException:
            container.discard()
            raise
        return container

    def _hello(self, channel: Channel) -> dict[str, Any]:
        """What the first process says of itself; nothing of a skill has run there yet."""
        try:
            _, data = channel.expect((keeper.HELLO,), START_SECONDS)
            return dict(read_json(data))
        except (Lost, ValueError) as error:
            text = f"the container does not start: {error}{self._remedy()}"
            raise SandboxUnavailable(text) from error

    def _check(self, job: Job, key: Hashable, found: dict[str, Any]) -> None:
        """SandboxUnavailable or RunRefused unless the engine did what was asked."""
        # Another runtime may have a kernel of its own, which neither says nor needs all of this;
        # the filter of the command itself is loaded there too.
        silent = () if self._engine.runtime in _USUAL_RUNTIMES else ("", "0")
        faults = list(_faults(found, silent))
        if faults:
            raise SandboxUnavailable(f"the engine does not hold back: {', '.join(faults)}")
        self._check_places(job, key, tuple(tuple(one) for one in found["places"]))

    def _check_places(self, job: Job, key: Hashable, seen: Hashable) -> None:
        """The engine follows links with rights that the command does not have."""
        assert isinstance(key, tuple)
        if seen == key[1]:
            return
        if not self._probing and (self._same_numbers or exposed(mounts_of(job))):
            raise RunRefused("what the engine has mounted is not what was to be: a link was made")
        self._same_numbers = False

    def _remedy(self) -> str:
        if self._image.system:
            return ""
        return "; the image (container_image) needs python3, 3.9 or newer"

    def _enforced(self, job: Job, container: Container) -> dict[str, str]:
        network = bool(job.bridge)
        changed = ", changed from root" if run_identity() else ""
        return {
            "files": "container",
            "file modes": "container",
            "time": "everything is ended at the deadline",
            "network": "network namespace, proxy only" if network else "none: network namespace",
            "other processes": "pid namespace",
            "system calls": seccomp.described(job.capabilities.processes, network),
            **programs_enforced(job.capabilities.processes, not network),
            "user": f"uid {current_identity().uid}{changed}, no capabilities",
            **limits_enforced(job.limits, container.group, container.pid, self._engine.rootless),
        }


def _faults(found: dict[str, Any], silent: tuple[str, ...]) -> Iterator[str]:
    """What is not as it was asked for."""
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
    ours = [keeper.namespace(name) for name in keeper.NAMESPACES]
    for name, inside, outside in zip(keeper.NAMESPACES, found["namespaces"], ours, strict=True):
        if inside == outside or (not inside and not silent):
            yield f"namespace {name}"


def _mounts(job: Job) -> Iterator[Mount]:
    """What the job shows. The engine could reach what the user of commands can not."""
    for mount in mounts_of(job):
        folder = blocking_folder(mount.source) or blocking_folder(os.path.realpath(mount.source))
        if folder is not None:
            raise SandboxUnavailable(
                f"{mount.source} can not be mounted: {folder} is closed to uid "
                f"{current_identity().uid}, which runs commands; keep it in a folder that others "
                "can pass through"
            )
        yield mount


def _task(job: Job, shape: Shape, own_users: bool) -> dict[str, object]:
    """What the first process is told; with `own_users` a container counts its processes alone."""
    network, processes = bool(job.bridge), job.capabilities.processes
    taken = {os.path.normpath(mount.target) for mount in shape.mounts}
    followed = seccomp.FOLLOWED if network or not processes else ()
    argv = job.argv
    if job.bridge:
        # The bridge itself needs a socket with a name; the command behind it must not have one.
        last = seccomp.program(processes, network=True, named_sockets=False)
        argv = (*job.bridge, last.hex(), *job.argv)
    return {
        "argv": argv,
        "env": {**job.env, "PWD": job.env.get("PWD", job.cwd)},
        "cwd": job.cwd,
        "terminal": job.terminal,
        "temporary": [place for place in (*ROOMS, _QUEUES) if place not in taken],
        "limits": [
            one
            for one in process_limits(job.limits, 1)
            if own_users or one[0] != resource.RLIMIT_NPROC
        ],
        "filter": seccomp.program(processes, network, more=followed).hex(),
        # A bridge must become the command yet.
        "lock": None if processes or network else seccomp.lock_task(),
    }
