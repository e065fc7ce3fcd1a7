"""A pool of running containers: one for each current run, reused for the next."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Hashable

from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox.container.channel import ContainerChannel, ContainerLost
from skillbelt.sandbox.container.counters import ContainerCgroup, in_group
from skillbelt.sandbox.container.engine import ContainerEngine, StartedContainer

_FINISHING_SECONDS = 0.1  # longest wait for a cleanup; after that a new container is faster


class Container:
    """A container whose first process is ready; runs with the same `key` can use it."""

    def __init__(
        self,
        engine: ContainerEngine,
        made: StartedContainer,
        channel: ContainerChannel,
        key: Hashable,
    ) -> None:
        self._engine, self._made, self.channel, self.key = engine, made, channel, key
        self.pid, self.group = 0, ContainerCgroup(0)
        self.idle_since = 0.0

    def find_processes(self, same_machine: bool) -> None:
        """Watch its processes from outside, if the pid is valid on this machine."""
        if same_machine or in_group(self._made.pid, self._made.id):
            self.pid, self.group = self._made.pid, ContainerCgroup(self._made.pid)

    def alive(self) -> bool:
        """Whether it is still running, with no unexpected frame."""
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        if not poll.poll(0):
            return True
        try:
            self.channel.receive()
        except ContainerLost:
            return False
        return not self.channel.frames

    def kill(self) -> None:
        """Let the engine kill everything in it."""
        self._engine.kill(self._made.id)

    def close(self) -> None:
        """Close the connection: its first process exits, and the engine removes it."""
        self.channel.close()

    def discard(self) -> None:
        """Remove it in the background."""
        self.channel.close()
        remove = self._engine.remove
        threading.Thread(target=remove, args=(self._made.id,), daemon=True).start()


class ContainerPool:
    """At most `most` containers; idle ones expire."""

    def __init__(self, most: int, idle_seconds: float, reuse: bool) -> None:
        self._most, self._idle_seconds, self._reuse = max(1, most), idle_seconds, reuse
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._idle: list[Container] = []
        self._busy: set[Container] = set()
        self._finishing: set[Container] = set()
        self._closing: set[Container] = set()
        self._creating = 0
        self._expiry: threading.Thread | None = None
        self._owner = os.getpid()

    def take(self, key: Hashable, make: Callable[[], Container], patience: float) -> Container:
        """Return an idle container for the key, or a new one; SandboxUnavailable at the limit."""
        if self._owner != os.getpid():
            self._reset_after_fork()
        until = time.monotonic() + patience
        while True:
            with self._changed:
                found = self._choose(key, until)
            if found is None:
                return self._create(make)
            if found.alive():
                return found
            self.discard(found)

    def _choose(self, key: Hashable, until: float) -> Container | None:
        """Return an idle container; None when a new one may be created."""
        self._changed.wait_for(lambda: not self._cleanup_pending(key), _FINISHING_SECONDS)
        while True:
            for container in reversed(self._idle):
                if container.key == key:
                    self._idle.remove(container)
                    self._busy.add(container)
                    return container
            if len(self._idle) + len(self._busy) + self._creating < self._most:
                self._creating += 1
                return None
            if self._idle:
                self._drop(self._idle[0])
            elif not self._changed.wait(max(0.0, until - time.monotonic())):
                raise SandboxUnavailable(
                    f"all {self._most} containers are in use (max_containers); wait for a run to "
                    "end, or raise the limit"
                )

    def _cleanup_pending(self, key: Hashable) -> bool:
        """Whether one is being cleaned up and none is idle."""
        ready = any(container.key == key for container in self._idle)
        return not ready and any(container.key == key for container in self._finishing)

    def _create(self, make: Callable[[], Container]) -> Container:
        container = None
        try:
            container = make()
        finally:
            with self._changed:
                self._creating -= 1
                if container is not None:
                    self._busy.add(container)
                self._changed.notify_all()
        return container

    def finishing(self, container: Container) -> None:
        """Record that the command has exited; `give_back` follows after the cleanup."""
        with self._changed:
            self._finishing.add(container)

    def give_back(self, container: Container) -> None:
        """Return a clean container to the pool."""
        with self._changed:
            if not self._reuse or container in self._closing or container not in self._busy:
                self._drop(container)
                return
            self._busy.discard(container)
            self._finishing.discard(container)
            container.idle_since = time.monotonic()
            self._idle.append(container)
            if self._expiry is None:
                self._expiry = threading.Thread(
                    target=self._expire, name="skillbelt-containers", daemon=True
                )
                self._expiry.start()
            self._changed.notify_all()

    def discard(self, container: Container) -> None:
        """Remove a container that must not be reused."""
        with self._changed:
            self._drop(container)
        container.discard()

    def _drop(self, container: Container) -> None:
        if container in self._idle:
            self._idle.remove(container)
        for kept in (self._busy, self._finishing, self._closing):
            kept.discard(container)
        container.close()
        self._changed.notify_all()

    def _expire(self) -> None:
        """Remove containers that were idle for long, in a thread that ends with the last one."""
        with self._changed:
            while self._idle:
                left = self._idle[0].idle_since + self._idle_seconds - time.monotonic()
                if left <= 0:
                    self._drop(self._idle[0])
                else:
                    self._changed.wait(left)
            self._expiry = None

    def close(self) -> None:
        """Remove the idle containers; those in use are removed after their runs."""
        with self._changed:
            for container in tuple(self._idle):
                self._drop(container)
            self._closing |= self._busy

    def _reset_after_fork(self) -> None:
        """Drop all in a forked process: the containers belong to the parent."""
        for container in (*self._idle, *self._busy):
            container.close()
        self._reset()
