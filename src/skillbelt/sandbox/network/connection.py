"""One client of the proxy, from its first byte to its last."""

from __future__ import annotations

import selectors
import socket
import time
from contextlib import suppress
from typing import NamedTuple, Protocol

from skillbelt.hosts import Address
from skillbelt.sandbox.network.policy import Gate, Unreachable
from skillbelt.sandbox.network.relay import Overrun, Relay
from skillbelt.sandbox.network.request import Refused, Request, parse_request
from skillbelt.text import one_line
from skillbelt.values import Limits

# The head of a request through the proxy; web servers refuse about 8 to 16 KiB.
MAX_NETWORK_HEADER_BYTES = 32 * 2**10
# Until the head of a request is complete, so that a silent client frees its slot.
NETWORK_HEADER_SECONDS = 10.0
# Until the remote host answers.
NETWORK_CONNECT_SECONDS = 15.0
# A connection without traffic is closed after this.
NETWORK_IDLE_SECONDS = 120.0

_LINGER_SECONDS = 1.0


class Connection(NamedTuple):
    """One thing that was asked of the proxy, and what came of it; told when it is over.

    `limit` names the limit that ended it.
    """

    host: str
    port: int
    address: str
    allowed: bool
    reason: str = ""
    bytes_sent: int = 0
    bytes_received: int = 0
    limit: str = ""


class Exhausted(Refused):
    """A limit was reached, which is named."""

    def __init__(self, reason: str, limit: str) -> None:
        super().__init__(f"{reason} ({limit})")
        self.limit = limit


class Desk(Protocol):
    """What the clients of one proxy share."""

    def hold(self, end: socket.socket) -> None:
        """Have the socket closed when the proxy is; Refused when it is already."""

    def release(self, end: socket.socket) -> None:
        """Close the socket now."""

    def spend(self, count: int) -> None:
        """Count bytes; Exhausted when they are too many, Refused when the run is over."""


class Visit:
    """The client, what it asks for, and in `result` what came of it."""

    def __init__(
        self,
        client: socket.socket,
        gate: Gate,
        limits: Limits,
        desk: Desk,
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
        if isinstance(refusal, Exhausted):
            self.result = self.result._replace(limit=refusal.limit)
        _answer(self._client, 502 if isinstance(refusal, Unreachable) else 403, reason)

    def _read_head(self) -> tuple[bytes, bytes]:
        """The head up to its blank line, and what came after; empty when nothing came."""
        data, end = b"", time.monotonic() + NETWORK_HEADER_SECONDS
        while b"\r\n\r\n" not in data:
            left = end - time.monotonic()
            if left <= 0:
                raise Exhausted("the request did not come in time", "network_header_seconds")
            if len(data) > MAX_NETWORK_HEADER_BYTES:
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
        if len(head) > MAX_NETWORK_HEADER_BYTES:
            raise Exhausted(
                f"the head has more than {MAX_NETWORK_HEADER_BYTES} bytes",
                "max_network_header_bytes",
            )
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
        end = time.monotonic() + NETWORK_CONNECT_SECONDS
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
        if time.monotonic() >= end and self.result is not None:
            self.result = self.result._replace(limit="network_connect_seconds")
        raise Unreachable(f"{request.host} can not be reached: {fault}")

    def _carry(self, upstream: socket.socket, request: Request, rest: bytes) -> None:
        most = None if request.tunnel else request.body_bytes
        relay = Relay(self._client, upstream, most)
        relay.waiting[upstream] += request.forward
        relay.receive(self._client, rest)
        fault = limit = ""
        try:
            self._pump(relay)
        except (Refused, Overrun) as error:
            fault, limit = str(error), _limit(error)
        except OSError:
            fault = "the connection broke"
        assert self.result is not None
        self.result = self.result._replace(
            reason=fault,
            bytes_sent=relay.received[self._client],
            bytes_received=relay.received[upstream],
            limit=limit,
        )

    def _pump(self, relay: Relay) -> None:
        """Carry bytes until both are done; Refused says what ended it early."""
        counted = 0
        with selectors.DefaultSelector() as selector:
            while not relay.done:
                moved = sum(relay.received.values())
                self._desk.spend(moved - counted)
                counted = moved
                _watch(selector, relay)
                ready = selector.select(NETWORK_IDLE_SECONDS)
                if not ready:
                    idle = f"nothing came for {NETWORK_IDLE_SECONDS:g} s"
                    raise Exhausted(idle, "network_idle_seconds")
                for key, mask in ready:
                    relay.step(key.data, mask)
        self._desk.spend(sum(relay.received.values()) - counted)


def _limit(error: Exception) -> str:
    return error.limit if isinstance(error, Exhausted) else ""


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
