"""The way out of a sandbox: an HTTP proxy that reaches the named hosts and nothing else.

A sandbox hands out a port of its own, through a socket in a private folder that takes one and is
gone then; the proxy listens there. Each connection asks for one host. The name is compared with the
rules, resolved here, every address it has is checked, and the connection goes to an address that
was checked, so that a second answer of the resolver has no effect.

What goes through a tunnel is for the host alone to read. One that serves others too, by the name
inside TLS, can be asked for them: name only hosts that you trust with that.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Self

from skillbelt.errors import SandboxUnavailable
from skillbelt.hosts import Resolver, resolve
from skillbelt.sandbox.inside.bridge import TAKEN
from skillbelt.sandbox.network.connection import (
    NETWORK_HEADER_SECONDS,
    Connection,
    Desk,
    Exhausted,
    Visit,
)
from skillbelt.sandbox.network.policy import Gate
from skillbelt.sandbox.network.request import Refused
from skillbelt.values import Limits

# Connections of one run at one time; each takes a thread. Others wait.
MAX_NETWORK_CONNECTIONS = 64

_MAX_REPORTED = 1000
_CLOSING_SECONDS = 5.0
_BRIDGE = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "inside", "bridge.py"
)
_LIMITS = Limits()


class Egress:
    """The proxy of one run, until it is closed. `door` is where it takes its port, for `bridge`.

    `owner` is the user who may bring one, when that is another than the one who runs this.
    `allow_private` names addresses and networks inside that may be reached all the same. `visits`
    makes what attends to each client.
    """

    def __init__(
        self,
        hosts: Iterable[str],
        *,
        allow_private: Iterable[str] = (),
        listener: Callable[[Connection], None] | None = None,
        limits: Limits = _LIMITS,
        owner: int | None = None,
        resolver: Resolver = resolve,
        visits: Callable[[socket.socket, Gate, Limits, Desk], Visit] = Visit,
    ) -> None:
        self._visits = visits
        self._gate = Gate(hosts, allow_private, resolver)
        self._limits, self._tell = limits, listener
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._slots = threading.Semaphore(MAX_NETWORK_CONNECTIONS)
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._reports: list[Connection] = []
        self._limits_hit: set[str] = set()
        self._bytes = 0
        self.folder = tempfile.mkdtemp(prefix="skillbelt-net-")
        self.door = os.path.join(self.folder, "door")
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._bind(owner)
        except BaseException:
            self._socket.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self._server = threading.Thread(target=self._serve, name="skillbelt-egress", daemon=True)
        self._server.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def connections(self) -> tuple[Connection, ...]:
        """What was asked for so far, in the order it ended; the first thousand."""
        with self._lock:
            return tuple(self._reports)

    @property
    def limits_hit(self) -> tuple[str, ...]:
        """The limits that ended a connection so far, by their names."""
        with self._lock:
            return tuple(sorted(self._limits_hit))

    def _bind(self, owner: int | None) -> None:
        try:
            self._socket.bind(self.door)
            os.chmod(self.door, 0o600)
            if owner is not None:
                for path in (self.door, self.folder):
                    os.chown(path, owner, -1)
        except OSError as error:
            raise SandboxUnavailable(f"no proxy for the network at {self.door}: {error}") from error
        self._socket.listen(1)

    def close(self) -> None:
        """End every connection and remove the folder. What was open is told before it returns."""
        with self._lock:
            self._closing.set()
            threads = [self._server, *self._threads]
            for end in (self._socket, *self._open):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self._slots.release()
        # A thread that waits for the resolver can not be woken; it finds everything closed.
        deadline = time.monotonic() + _CLOSING_SECONDS
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _serve(self) -> None:
        listener = self._take_port()
        if listener is None:
            return
        try:
            self._accept(listener)
        finally:
            self.release(listener)

    def _take_port(self) -> socket.socket | None:
        """The one port that comes through the door, which is closed behind it."""
        listener = None
        try:
            way, _ = self._socket.accept()
            with way:
                way.settimeout(NETWORK_HEADER_SECONDS)
                listener = _received(way)
                self.hold(listener)
                way.sendall(TAKEN)
            return listener
        except (OSError, Refused):
            if listener is not None:
                self.release(listener)
            return None
        finally:
            with suppress(OSError):
                os.unlink(self.door)
            self.release(self._socket)

    def _accept(self, listener: socket.socket) -> None:
        """Take connections while there may be more; the others wait at the port."""
        while self._slots.acquire() and not self._closing.is_set():
            try:
                client, _ = listener.accept()
            except OSError:
                # Without descriptors left: they come back when connections end.
                self._closing.wait(0.05)
                self._slots.release()
            else:
                self._welcome(client)

    def _welcome(self, client: socket.socket) -> None:
        thread = threading.Thread(target=self._attend, args=(client,), daemon=True)
        try:
            self.hold(client)
            with self._lock:
                thread.start()
                self._threads.add(thread)
        except (Refused, RuntimeError):  # RuntimeError: there may be no more threads
            self.release(client)
            self._slots.release()

    def _attend(self, client: socket.socket) -> None:
        visit = self._visits(client, self._gate, self._limits, self)
        try:
            visit.serve()
            self._report(visit.result)
        finally:
            self.release(client)
            with self._lock:
                self._threads.discard(threading.current_thread())
            self._slots.release()

    def hold(self, end: socket.socket) -> None:
        """Have the socket closed when the proxy is; Refused when it is already."""
        with self._lock:
            if self._closing.is_set():
                raise Refused("the run is over")
            self._open.add(end)

    def release(self, end: socket.socket) -> None:
        """Close the socket now."""
        with self._lock:
            self._open.discard(end)
            end.close()

    def spend(self, count: int) -> None:
        """Count bytes; Exhausted when they are too many, Refused when the run is over."""
        with self._lock:
            self._bytes += count
            if self._closing.is_set():
                raise Refused("the run is over")
            if self._bytes > self._limits.max_network_bytes:
                most = self._limits.max_network_bytes
                raise Exhausted(f"more than {most} bytes in all", "max_network_bytes")

    def _report(self, result: Connection | None) -> None:
        if result is None:
            return
        with self._lock:
            self._limits_hit.update(filter(None, (result.limit,)))
            if len(self._reports) < _MAX_REPORTED:
                self._reports.append(result)
        if self._tell:
            self._tell(result)


def _received(way: socket.socket) -> socket.socket:
    """The port that is handed out, which must be one that listens; else OSError."""
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    _, handles, _, _ = socket.recv_fds(way, 1, 1, flags)
    if not handles:
        raise OSError("nothing was handed out")
    os.set_inheritable(handles[0], False)
    listener = socket.socket(fileno=handles[0])
    listens = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if listener.family != socket.AF_INET or not listens:
        listener.close()
        raise OSError("what was handed out is no port")
    listener.setblocking(True)
    return listener


def bridge(door: str, python: str = "/usr/bin/python3") -> tuple[str, ...]:
    """What a sandbox runs before a command, so that it finds the proxy; `door` is as inside.

    The filter for the command's system calls (`-` for none) and the command follow. The program is
    handed over as text: it may lie where the user inside can not read.
    """
    with open(_BRIDGE, encoding="utf-8") as file:
        return (python, "-I", "-S", "-c", file.read(), door)
