"""One client connection of the proxy, from its first byte to its last."""

from __future__ import annotations

import selectors
import socket
import time
from contextlib import suppress
from typing import NamedTuple, Protocol

from skillbelt.hosts import Address
from skillbelt.sandbox.network.policy import HostPolicy, Unreachable
from skillbelt.sandbox.network.relay import Overrun, SocketRelay
from skillbelt.sandbox.network.request import ProxyRefused, ProxyRequest, parse_request
from skillbelt.text import one_line
from skillbelt.values import Limits

# The bound on the head of a request to the proxy; web servers refuse about 8 to 16 KiB.
MAX_NETWORK_HEADER_BYTES = 32 * 2**10
# The timeout for the head of a request, so that a silent client frees its slot.
NETWORK_HEADER_SECONDS = 10.0
# The timeout for connecting to the remote host.
NETWORK_CONNECT_SECONDS = 15.0
# The idle timeout of a connection.
NETWORK_IDLE_SECONDS = 120.0

_LINGER_SECONDS = 1.0


class Connection(NamedTuple):
    """One request to the proxy and its outcome, reported when it is over.

    `limit` names the limit that ended it.
    """

    host: str
    port: int
    address: str
    allowed: bool
    reason: str = ""
    limit: str = ""


class LimitReached(ProxyRefused):
    """A limit was reached; `limit` is its name."""

    def __init__(self, reason: str, limit: str) -> None:
        super().__init__(f"{reason} ({limit})")
        self.limit = limit


class ProxyShared(Protocol):
    """The state that the client connections of one proxy share."""

    def hold(self, end: socket.socket) -> None:
        """Close the socket when the proxy closes; raises ProxyRefused when it already has."""

    def release(self, end: socket.socket) -> None:
        """Close the socket now."""

    def spend(self, count: int) -> None:
        """Count bytes; raises LimitReached beyond the limit, ProxyRefused when the run is over."""


class ClientConnection:
    """A client connection with one request; `result` is its outcome."""

    def __init__(
        self,
        client: socket.socket,
        policy: HostPolicy,
        limits: Limits,
        proxy: ProxyShared,
    ) -> None:
        self._client, self._policy, self._limits, self._proxy = client, policy, limits, proxy
        self.result: Connection | None = None

    def serve(self) -> None:
        """Handle the request, or answer with the reason for refusing it."""
        try:
            head, rest = self._read_head()
            if head:
                self.handle(parse_request(head), rest)
        except ProxyRefused as refusal:
            self._refuse(refusal)
        except OSError:
            return  # the client disconnected without a request

    def _refuse(self, refusal: ProxyRefused) -> None:
        reason = str(refusal)
        self.result = (self.result or Connection("", 0, "", False))._replace(
            allowed=isinstance(refusal, Unreachable), reason=reason
        )
        if isinstance(refusal, LimitReached):
            self.result = self.result._replace(limit=refusal.limit)
        _send_error(self._client, 502 if isinstance(refusal, Unreachable) else 403, reason)

    def _read_head(self) -> tuple[bytes, bytes]:
        """Read the head up to its blank line; return it with the bytes after it. Empty at EOF."""
        data, end = b"", time.monotonic() + NETWORK_HEADER_SECONDS
        while b"\r\n\r\n" not in data:
            left = end - time.monotonic()
            if left <= 0:
                raise LimitReached(
                    "the request head did not arrive in time", "network_header_seconds"
                )
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
                raise ProxyRefused("the request ends inside its head")
            data += piece
        head, _, rest = data.partition(b"\r\n\r\n")
        if len(head) > MAX_NETWORK_HEADER_BYTES:
            raise LimitReached(
                f"the head has more than {MAX_NETWORK_HEADER_BYTES} bytes",
                "max_network_header_bytes",
            )
        return head, rest

    def handle(self, request: ProxyRequest, rest: bytes) -> None:
        """Connect to the host and relay; raises ProxyRefused or OSError."""
        self.result = Connection(request.host, request.port, "", False)
        self._policy.check(request.host, request.port)
        if not request.tunnel and len(rest) > request.body_bytes:
            raise ProxyRefused("more data than one request")
        addresses = self._policy.addresses(request.host, request.port)
        upstream = self._connect(request, addresses)
        try:
            address = str(upstream.getpeername()[0])
            self.result = self.result._replace(allowed=True, address=address)
            if request.tunnel:
                self._client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            self._relay(upstream, request, rest)
        finally:
            self._proxy.release(upstream)

    def _connect(self, request: ProxyRequest, addresses: list[Address]) -> socket.socket:
        """Connect to one of the checked addresses; the name is not resolved again."""
        end = time.monotonic() + NETWORK_CONNECT_SECONDS
        fault = "timed out"
        for address in addresses:
            upstream = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET)
            try:
                self._proxy.hold(upstream)
                upstream.settimeout(max(end - time.monotonic(), 0.01))
                upstream.connect((str(address), request.port))
                return upstream
            except OSError as error:
                fault = error.strerror or str(error)
            except BaseException:
                self._proxy.release(upstream)
                raise
            self._proxy.release(upstream)
        if time.monotonic() >= end and self.result is not None:
            self.result = self.result._replace(limit="network_connect_seconds")
        raise Unreachable(f"{request.host} cannot be reached: {fault}")

    def _relay(self, upstream: socket.socket, request: ProxyRequest, rest: bytes) -> None:
        most = None if request.tunnel else request.body_bytes
        relay = SocketRelay(self._client, upstream, most)
        relay.waiting[upstream] += request.forward
        relay.receive(self._client, rest)
        fault = limit = ""
        try:
            self._pump(relay)
        except (ProxyRefused, Overrun) as error:
            fault = str(error)
            limit = error.limit if isinstance(error, LimitReached) else ""
        except OSError:
            fault = "the connection broke"
        assert self.result is not None
        self.result = self.result._replace(reason=fault, limit=limit)

    def _pump(self, relay: SocketRelay) -> None:
        """Relay bytes until both sides are done; raises ProxyRefused when a limit ends it early."""
        counted = 0
        with selectors.DefaultSelector() as selector:
            while not relay.done:
                moved = sum(relay.received.values())
                self._proxy.spend(moved - counted)
                counted = moved
                _update_selector(selector, relay)
                ready = selector.select(NETWORK_IDLE_SECONDS)
                if not ready:
                    idle = f"no data for {NETWORK_IDLE_SECONDS:g} s"
                    raise LimitReached(idle, "network_idle_seconds")
                for key, mask in ready:
                    relay.step(key.data, mask)
        self._proxy.spend(sum(relay.received.values()) - counted)


def _update_selector(selector: selectors.BaseSelector, relay: SocketRelay) -> None:
    for end in relay.ends:
        known = selector.get_map().get(end)
        mask = relay.wants(end)
        if known and known.events != mask:
            selector.unregister(end)
            known = None
        if mask and not known:
            selector.register(end, mask, end)


def _send_error(client: socket.socket, status: int, reason: str) -> None:
    words = {403: "Forbidden", 502: "Bad Gateway"}
    body = f"skillbelt: {one_line(reason)}\n".encode("utf-8", "replace")
    head = (
        f"HTTP/1.1 {status} {words[status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    with suppress(OSError):  # the client may disconnect without reading it
        client.settimeout(_LINGER_SECONDS)
        client.sendall(head.encode() + body)
        client.shutdown(socket.SHUT_WR)
        # Closing with unread bytes would reset the connection before the client reads the answer.
        end = time.monotonic() + _LINGER_SECONDS
        while client.recv(65536) and time.monotonic() < end:
            pass
