"""The proxy through which an installer reaches the package index, and nothing else."""

from __future__ import annotations

import socket
from contextlib import closing, suppress
from functools import partial

from skillbelt.running.packages.fetched import HOST, IndexPage, NotFetched, PackageIndex, page_of
from skillbelt.sandbox.network.connection import NETWORK_IDLE_SECONDS, ClientConnection, ProxyShared
from skillbelt.sandbox.network.policy import HostPolicy
from skillbelt.sandbox.network.proxy import Egress
from skillbelt.sandbox.network.request import ProxyRefused, ProxyRequest
from skillbelt.text import one_line
from skillbelt.values import Limits


def open_index(index: PackageIndex, limits: Limits, owner: int | None) -> Egress:
    """Return a proxy through which that user reaches only the index."""
    return Egress((HOST,), limits=limits, owner=owner, handler=partial(_IndexConnection, index))


class _IndexConnection(ClientConnection):
    """A connection of an installer, which can read only pages of the package index."""

    def __init__(
        self,
        index: PackageIndex,
        client: socket.socket,
        policy: HostPolicy,
        limits: Limits,
        proxy: ProxyShared,
    ) -> None:
        super().__init__(client, policy, limits, proxy)
        self._index = index

    def handle(self, request: ProxyRequest, rest: bytes) -> None:
        """Answer with a page of the index; raises ProxyRefused for any other host."""
        if request.tunnel or request.host != HOST:
            raise ProxyRefused(
                f"{request.host} is not the package index, which is the only host to reach"
            )
        method, path, _ = request.forward.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if method not in ("GET", "HEAD") or rest:
            raise ProxyRefused(
                f"the package index is read-only, and this is {one_line(method)[:20]}"
            )
        try:
            self._send(self._index.page(path), method == "HEAD")
        except NotFetched as missing:
            status = missing.status if missing.status in (403, 404) else 502
            data = f"{one_line(str(missing))}\n".encode("utf-8", "replace")
            self._send(page_of(status, "text/plain; charset=utf-8", data))

    def _send(self, page: IndexPage, head: bool = False) -> None:
        with closing(page.pieces):
            self._write(page, head)

    def _write(self, page: IndexPage, head: bool) -> None:
        size = "" if page.size is None else f"Content-Length: {page.size}\r\n"
        self._client.settimeout(NETWORK_IDLE_SECONDS)
        self._client.sendall(
            f"HTTP/1.1 {page.status} Answer\r\nContent-Type: {page.type}\r\n{size}"
            "Connection: close\r\n\r\n".encode("latin-1")
        )
        if head:
            return
        with suppress(NotFetched):  # the client sees a truncated response
            for piece in page.pieces:
                self._proxy.spend(len(piece))
                self._client.sendall(piece)
