"""Containers that are kept ready: one for each run that goes on, used again for the next."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Hashable

from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox.container.channel import Channel, Lost
from skillbelt.sandbox.container.counters import Group, in_group
from skillbelt.sandbox.container.engine import Engine, Made

_FINISHING_SECONDS = 0.1  # what emptying may take before a new container is the quicker way


class Container:
    """A container with its first process ready; `key` says for which runs it can be used."""

    def __init__(self, engine: Engine, made: Made, channel: Channel, key: Hashable) -> None:
        self._engine, self._made, self.channel, self.key = engine, made, channel, key
        self.pid, self.group = 0, Group(0)
        self.idle_since = 0.0

    def find_processes(self, same_machine: bool) -> None:
        """Look at its processes from outside, if the number is theirs on this very machine."""
        if same_machine or in_group(self._made.pid, self._made.id):
            self.pid, self.group = self._made.pid, Group(self._made.pid)

    def alive(self) -> bool:
        """Whether nothing has happened to it since its last run."""
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        if not poll.poll(0):
            return True
        try:
            self.channel.receive()
        except Lost:
            return False
        return not self.channel.frames

    def kill(self) -> None:
        """End everything in it, by the engine."""
        self._engine.kill(self._made.id)

    def close(self) -> None:
        """Let go of it: its first process ends then, and the engine removes it."""
        self.channel.close()

    def discard(self) -> None:
        """Have it gone, whatever was done to it; that is not waited for."""
        self.channel.close()
        remove = self._engine.remove
        threading.Thread(target=remove, args=(self._made.id,), daemon=True).start()


class Pool:
    """At most `most` containers; those that nobody uses are gone after a while."""

    def __init__(self, most: int, idle_seconds: float, reuse: bool) -> None:
        self._most, self._idle_seconds, self._reuse = max(1, most), idle_seconds, reuse
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._idle: list[Container] = []
        self._busy: set[Container] = set()
        self._finishing: set[Container] = set()
        self._closing: set[Container] = set()
        self._coming = 0
        self._expiry: threading.Thread | None = None
        self._owner = os.getpid()

    def take(self, key: Hashable, make: Callable[[], Container], patience: float) -> Container:
        """One for the key: kept ready, or made now; SandboxUnavailable when none gets free."""
        if self._owner != os.getpid():
            self._forget()
        until = time.monotonic() + patience
        while True:
            with self._changed:
                found = self._choose(key, until)
            if found is None:
                return self._made(make)
            if found.alive():
                return found
            self.discard(found)

    def _choose(self, key: Hashable, until: float) -> Container | None:
        """A container that is ready; None when there is room for another."""
        self._changed.wait_for(lambda: not self._soon(key), _FINISHING_SECONDS)
        while True:
            for container in reversed(self._idle):
                if container.key == key:
                    self._idle.remove(container)
                    self._busy.add(container)
                    return container
            if len(self._idle) + len(self._busy) + self._coming < self._most:
                self._coming += 1
                return None
            if self._idle:
                self._drop(self._idle[0])
            elif not self._changed.wait(max(0.0, until - time.monotonic())):
                raise SandboxUnavailable(
                    f"all {self._most} containers are in use (max_containers); wait for a run to "
                    "end, or allow more"
                )

    def _soon(self, key: Hashable) -> bool:
        """Whether one is just being emptied, and none is ready yet."""
        ready = any(container.key == key for container in self._idle)
        return not ready and any(container.key == key for container in self._finishing)

    def _made(self, make: Callable[[], Container]) -> Container:
        container = None
        try:
            container = make()
        finally:
            with self._changed:
                self._coming -= 1
                if container is not None:
                    self._busy.add(container)
                self._changed.notify_all()
        return container

    def finishing(self, container: Container) -> None:
        """The command is gone; the container will be back in a moment."""
        with self._changed:
            self._finishing.add(container)

    def give_back(self, container: Container) -> None:
        """It is as good as new."""
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
        """It must not be used again."""
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
        """The thread that lets go of what was not used for long; it ends with the last of them."""
        with self._changed:
            while self._idle:
                left = self._idle[0].idle_since + self._idle_seconds - time.monotonic()
                if left <= 0:
                    self._drop(self._idle[0])
                else:
                    self._changed.wait(left)
            self._expiry = None

    def close(self) -> None:
        """Let go of all that are ready; those in use go after their runs."""
        with self._changed:
            for container in tuple(self._idle):
                self._drop(container)
            self._closing |= self._busy

    def _forget(self) -> None:
        """In a process that was forked off: they go on for the other."""
        for container in (*self._idle, *self._busy):
            container.close()
        self._reset()
