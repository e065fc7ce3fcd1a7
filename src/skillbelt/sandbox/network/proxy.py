"""The network of a sandbox: an HTTP proxy that connects to the allowed hosts and to nothing else.

The bridge inside a sandbox opens a listening port there and passes its descriptor through a Unix
socket in a private folder; the socket accepts one port and is removed. The proxy accepts on that
port. Each connection requests one host: its name is matched with the rules and resolved here, every
address is checked, and the connection goes to a checked address, so that a second answer of the
resolver (DNS rebinding) has no effect.

The proxy cannot read a TLS tunnel. A host that serves other names too, selected by SNI inside TLS,
can be asked for those: allow only hosts that you trust with that.
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
from typing import Protocol, Self

from skillbelt.errors import SandboxUnavailable
from skillbelt.hosts import Resolver, resolve
from skillbelt.sandbox.inside.bridge import TAKEN
from skillbelt.sandbox.inside.source import source_of
from skillbelt.sandbox.network.connection import (
    NETWORK_HEADER_SECONDS,
    ClientConnection,
    Connection,
    LimitReached,
    ProxyShared,
)
from skillbelt.sandbox.network.policy import HostPolicy
from skillbelt.sandbox.network.request import ProxyRefused
from skillbelt.values import Limits

# Parallel connections of one run; each takes a thread. Others wait.
MAX_NETWORK_CONNECTIONS = 64

SOCKET_NAME = "proxy.sock"
_MAX_REPORTED = 1000
_CLOSING_SECONDS = 5.0
_LIMITS = Limits()


class Network(Protocol):
    """The network of one run; its record is complete once the command has ended."""

    folder: str

    @property
    def connections(self) -> tuple[Connection, ...]: ...  # noqa: D102

    @property
    def limits_hit(self) -> tuple[str, ...]: ...  # noqa: D102

    def close(self) -> None:
        """Close every connection; those that were open are reported."""


class Egress:
    """The proxy of one run, until it is closed. `socket_path` is the Unix socket for `bridge`.

    `owner` is the user who may connect to it, when that is not the current user. `allow_private`
    names private addresses and networks that may be reached. `handler` makes the object that
    serves each client.
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
        handler: Callable[
            [socket.socket, HostPolicy, Limits, ProxyShared], ClientConnection
        ] = ClientConnection,
    ) -> None:
        self._handler = handler
        self._policy = HostPolicy(hosts, allow_private, resolver)
        self._limits, self._listener = limits, listener
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._slots = threading.Semaphore(MAX_NETWORK_CONNECTIONS)
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._reports: list[Connection] = []
        self._limits_hit: set[str] = set()
        self._bytes = 0
        self._socket = socket.socket(socket.AF_UNIX)
        self.folder = tempfile.mkdtemp(prefix="skillbelt-net-")
        self.socket_path = os.path.join(self.folder, SOCKET_NAME)
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
        """Return the finished connections so far, at most the first thousand."""
        with self._lock:
            return tuple(self._reports)

    @property
    def limits_hit(self) -> tuple[str, ...]:
        """Return the names of the limits that ended a connection so far."""
        with self._lock:
            return tuple(sorted(self._limits_hit))

    def _bind(self, owner: int | None) -> None:
        try:
            self._socket.bind(self.socket_path)
            os.chmod(self.socket_path, 0o600)
            if owner is not None:
                for path in (self.socket_path, self.folder):
                    os.chown(path, owner, -1)
        except OSError as error:
            raise SandboxUnavailable(
                f"cannot start the network proxy at {self.socket_path}: {error}"
            ) from error
        self._socket.listen(1)

    def close(self) -> None:
        """Close every connection and remove the folder; open connections are reported first."""
        with self._lock:
            self._closing.set()
            threads = [self._server, *self._threads]
            for end in (self._socket, *self._open):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self._slots.release()
        # A thread waiting for the resolver cannot be woken; it will find everything closed.
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
        """Receive the one listening port and remove the socket; None when the sandbox is gone."""
        listener = None
        try:
            peer, _ = self._socket.accept()
            with peer:
                peer.settimeout(NETWORK_HEADER_SECONDS)
                listener = _receive_port(peer)
                self.hold(listener)
                peer.sendall(TAKEN)
            return listener
        except (OSError, ProxyRefused):
            if listener is not None:
                self.release(listener)
            return None
        finally:
            with suppress(OSError):
                os.unlink(self.socket_path)
            self.release(self._socket)

    def _accept(self, listener: socket.socket) -> None:
        """Accept connections up to the limit; further ones wait in the backlog."""
        while self._slots.acquire() and not self._closing.is_set():
            try:
                client, _ = listener.accept()
            except OSError:
                # Out of descriptors: they are freed when connections end.
                self._closing.wait(0.05)
                self._slots.release()
            else:
                self._start_client(client)

    def _start_client(self, client: socket.socket) -> None:
        thread = threading.Thread(target=self._serve_client, args=(client,), daemon=True)
        try:
            self.hold(client)
            with self._lock:
                thread.start()
                self._threads.add(thread)
        except (ProxyRefused, RuntimeError):  # RuntimeError: no more threads
            self.release(client)
            self._slots.release()

    def _serve_client(self, client: socket.socket) -> None:
        connection = self._handler(client, self._policy, self._limits, self)
        try:
            connection.serve()
            self._report(connection.result)
        finally:
            self.release(client)
            with self._lock:
                self._threads.discard(threading.current_thread())
            self._slots.release()

    def hold(self, end: socket.socket) -> None:
        """Close the socket when the proxy closes; raises ProxyRefused when it already has."""
        with self._lock:
            if self._closing.is_set():
                raise ProxyRefused("the run is over")
            self._open.add(end)

    def release(self, end: socket.socket) -> None:
        """Close the socket now."""
        with self._lock:
            self._open.discard(end)
            end.close()

    def spend(self, count: int) -> None:
        """Count bytes; raises LimitReached beyond the limit, ProxyRefused when the run is over."""
        with self._lock:
            self._bytes += count
            if self._closing.is_set():
                raise ProxyRefused("the run is over")
            if self._bytes > self._limits.max_network_bytes:
                most = self._limits.max_network_bytes
                raise LimitReached(f"more than {most} bytes in all", "max_network_bytes")

    def _report(self, result: Connection | None) -> None:
        if result is None:
            return
        with self._lock:
            self._limits_hit.update(filter(None, (result.limit,)))
            if len(self._reports) < _MAX_REPORTED:
                self._reports.append(result)
        if self._listener:
            self._listener(result)


def _receive_port(peer: socket.socket) -> socket.socket:
    """Receive a listening TCP port as a descriptor; raises OSError for anything else."""
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    _, handles, _, _ = socket.recv_fds(peer, 1, 1, flags)
    if not handles:
        raise OSError("no descriptor was passed")
    os.set_inheritable(handles[0], False)
    listener = socket.socket(fileno=handles[0])
    listens = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if listener.family != socket.AF_INET or not listens:
        listener.close()
        raise OSError("the descriptor is not a listening port")
    listener.setblocking(True)
    return listener


def bridge(socket_path: str, python: str = "/usr/bin/python3") -> tuple[str, ...]:
    """Return the program that a sandbox runs before a command, so that it finds the proxy.

    `socket_path` is a path inside. The command's seccomp filter (`-` for none) and the command
    follow. The program is passed as text: the user inside may not be able to read its file.
    """
    return (python, "-I", "-S", "-c", source_of("bridge"), socket_path)
