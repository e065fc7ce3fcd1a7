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
import selectors
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple, Self

from skillbelt.errors import SandboxUnavailable
from skillbelt.hosts import Address
from skillbelt.sandbox.bridge import TAKEN
from skillbelt.sandbox.gate import Gate, Resolver, Unreachable, resolve
from skillbelt.sandbox.relay import Overrun, Relay
from skillbelt.sandbox.request import Refused, Request, parse_request
from skillbelt.text import one_line

_MAX_REPORTED = 1000
_CLOSING_SECONDS = 5.0
_LINGER_SECONDS = 1.0
_BRIDGE = os.path.join(os.path.dirname(__file__), "bridge.py")


class Connection(NamedTuple):
    """One thing that was asked of the proxy, and what came of it; told when it is over."""

    host: str
    port: int
    address: str
    allowed: bool
    reason: str = ""
    bytes_sent: int = 0
    bytes_received: int = 0


class EgressLimits(NamedTuple):
    """The bounds of one proxy, with their units; the bytes are of all connections together."""

    max_connections: int = 64
    max_header_bytes: int = 32 * 2**10
    max_bytes: int = 2 * 2**30
    header_seconds: float = 10.0
    connect_seconds: float = 15.0
    idle_seconds: float = 120.0


_LIMITS = EgressLimits()


class Egress:
    """The proxy of one run, until it is closed. `door` is where it takes its port, for `bridge`.

    `owner` is the user who may bring one, when that is another than the one who runs this.
    `allow_private` names addresses and networks inside that may be reached all the same.
    """

    def __init__(
        self,
        hosts: Iterable[str],
        *,
        allow_private: Iterable[str] = (),
        listener: Callable[[Connection], None] | None = None,
        limits: EgressLimits = _LIMITS,
        owner: int | None = None,
        resolver: Resolver = resolve,
    ) -> None:
        self._gate = Gate(hosts, allow_private, resolver)
        self._limits, self._tell = limits, listener
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._slots = threading.Semaphore(limits.max_connections)
        self._open: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._reports: list[Connection] = []
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
            ends, threads = [self._socket, *self._open], [self._server, *self._threads]
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._slots.release()
        # A thread that waits for the resolver can not be woken; it finds everything closed.
        deadline = time.monotonic() + _CLOSING_SECONDS
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))
        self._socket.close()
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
                way.settimeout(self._limits.header_seconds)
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
            self._socket.close()

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
        with self._lock:
            if self._closing.is_set():
                client.close()
                return
            self._open.add(client)
            self._threads.add(thread)
            thread.start()

    def _attend(self, client: socket.socket) -> None:
        visit = Visit(client, self._gate, self._limits, self)
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
        """Count bytes; Refused when they are too many, or the run is over."""
        with self._lock:
            self._bytes += count
            if self._closing.is_set():
                raise Refused("the run is over")
            if self._bytes > self._limits.max_bytes:
                raise Refused(f"more than {self._limits.max_bytes} bytes in all")

    def _report(self, result: Connection | None) -> None:
        if result is None:
            return
        with self._lock:
            if len(self._reports) < _MAX_REPORTED:
                self._reports.append(result)
        if self._tell:
            self._tell(result)


# --- one connection ------------------------------------------------------------------------------


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


class Visit:
    """One client of the proxy, from its first byte to its last."""

    def __init__(
        self,
        client: socket.socket,
        gate: Gate,
        limits: EgressLimits,
        desk: Egress,
    ) -> None:
        self._client, self._gate, self._limits, self._desk = client, gate, limits, desk
        self.result: Connection | None = None

    def serve(self) -> None:
        """Do what is asked, or answer why not."""
        try:
            head, rest = self._read_head()
            if head:
                self._do(parse_request(head), rest)
        except Refused as refusal:
            self._refuse(refusal)
        except OSError:
            return

    def _refuse(self, refusal: Refused) -> None:
        reason = str(refusal)
        self.result = (self.result or Connection("", 0, "", False))._replace(
            allowed=isinstance(refusal, Unreachable), reason=reason
        )
        _answer(self._client, 502 if isinstance(refusal, Unreachable) else 403, reason)

    def _read_head(self) -> tuple[bytes, bytes]:
        """The head up to its blank line, and what came after; empty when nothing came."""
        data, end = b"", time.monotonic() + self._limits.header_seconds
        while b"\r\n\r\n" not in data:
            left = end - time.monotonic()
            if left <= 0:
                raise Refused("the request did not come in time")
            if len(data) > self._limits.max_header_bytes:
                break
            self._client.settimeout(left)
            try:
                piece = self._client.recv(8192)
            except TimeoutError:
                continue
            if not piece and not data:
                return b"", b""
            if not piece:
                raise Refused("the request ends before its head does")
            data += piece
        head, _, rest = data.partition(b"\r\n\r\n")
        if len(head) > self._limits.max_header_bytes:
            raise Refused(f"the head has more than {self._limits.max_header_bytes} bytes")
        return head, rest

    def _do(self, request: Request, rest: bytes) -> None:
        self.result = Connection(request.host, request.port, "", False)
        self._gate.check(request.host, request.port)
        if not request.tunnel and len(rest) > request.body_bytes:
            raise Refused("more came than one request")
        addresses = self._gate.addresses(request.host, request.port)
        upstream = self._connect(request, addresses)
        try:
            address = str(upstream.getpeername()[0])
            self.result = self.result._replace(allowed=True, address=address)
            if request.tunnel:
                self._client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            self._carry(upstream, request, rest)
        finally:
            self._desk.release(upstream)

    def _connect(self, request: Request, addresses: list[Address]) -> socket.socket:
        """A connection to one of the addresses themselves; no name is looked up again."""
        end = time.monotonic() + self._limits.connect_seconds
        fault = "no answer in time"
        for address in addresses:
            upstream = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET)
            try:
                self._desk.hold(upstream)
                upstream.settimeout(max(end - time.monotonic(), 0.01))
                upstream.connect((str(address), request.port))
                return upstream
            except OSError as error:
                fault = error.strerror or str(error)
            except BaseException:
                self._desk.release(upstream)
                raise
            self._desk.release(upstream)
        raise Unreachable(f"{request.host} can not be reached: {fault}")

    def _carry(self, upstream: socket.socket, request: Request, rest: bytes) -> None:
        most = None if request.tunnel else request.body_bytes
        relay = Relay(self._client, upstream, most)
        relay.waiting[upstream] += request.forward
        relay.receive(self._client, rest)
        try:
            fault = self._pump(relay)
        except (Refused, Overrun) as error:
            fault = str(error)
        except OSError:
            fault = "the connection broke"
        assert self.result is not None
        self.result = self.result._replace(
            reason=fault,
            bytes_sent=relay.received[self._client],
            bytes_received=relay.received[upstream],
        )

    def _pump(self, relay: Relay) -> str:
        """Carry bytes until both are done; the text says what ended it early."""
        counted = 0
        with selectors.DefaultSelector() as selector:
            while not relay.done:
                moved = sum(relay.received.values())
                self._desk.spend(moved - counted)
                counted = moved
                _watch(selector, relay)
                ready = selector.select(self._limits.idle_seconds)
                if not ready:
                    return f"nothing came for {self._limits.idle_seconds:g} s"
                for key, mask in ready:
                    relay.step(key.data, mask)
        self._desk.spend(sum(relay.received.values()) - counted)
        return ""


def _watch(selector: selectors.BaseSelector, relay: Relay) -> None:
    for end in relay.ends:
        known = selector.get_map().get(end)
        mask = relay.wants(end)
        if known and known.events != mask:
            selector.unregister(end)
            known = None
        if mask and not known:
            selector.register(end, mask, end)


def _answer(client: socket.socket, status: int, reason: str) -> None:
    words = {403: "Forbidden", 502: "Bad Gateway"}
    body = f"skillbelt: {one_line(reason)}\n".encode("utf-8", "replace")
    head = (
        f"HTTP/1.1 {status} {words[status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with suppress(OSError):
        client.settimeout(_LINGER_SECONDS)
        client.sendall(head.encode() + body)
        client.shutdown(socket.SHUT_WR)
        # Closing with bytes unread would reset the connection before the answer is seen.
        end = time.monotonic() + _LINGER_SECONDS
        while client.recv(65536) and time.monotonic() < end:
            pass


# --- inside --------------------------------------------------------------------------------------


def bridge(
    door: str, *, processes: bool = True, python: str = "/usr/bin/python3"
) -> tuple[str, ...]:
    """What stands before a command inside, so that it finds the proxy; `door` is as inside.

    Without `processes` the command can start none. The program is handed over as text: it may lie
    where the user inside can not read.
    """
    from skillbelt.sandbox import seccomp

    filtered = "-" if processes else seccomp.program(processes=False, network=True).hex()
    with open(_BRIDGE, encoding="utf-8") as file:
        return (python, "-I", "-S", "-c", file.read(), door, filtered)
