"""Several server processes on one store, behind a balancer that takes them in turn."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from tests.mcp.clients import Http, over_http
from tests.tree import Tree

TOKEN = "the-token-of-all-servers"
HEADERS = {"authorization": f"Bearer {TOKEN}"}


class Balancer(httpx2.AsyncBaseTransport):
    """Sends each request to the next server."""

    def __init__(self, servers: Sequence[Http]) -> None:
        # A server closes a connection that is idle for five seconds. On a busy machine a request
        # could be sent at that moment, and no client may send it again by itself.
        self._inner = httpx2.AsyncHTTPTransport(limits=httpx2.Limits(keepalive_expiry=1))
        self.servers, self.chosen = list(servers), list[int]()
        self._turn = itertools.count()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        number = next(self._turn) % len(self.servers)
        self.chosen.append(number)
        return await self.send_to(self.servers[number], request)

    async def send_to(self, server: Http, request: httpx2.Request) -> httpx2.Response:
        place = urlsplit(server.url)
        request.url = request.url.copy_with(host=place.hostname, port=place.port)
        request.headers["host"] = place.netloc
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


@contextmanager
def servers(tree: Tree, number: int, what: str = "mcp", *options: str) -> Iterator[list[Http]]:
    """That many servers of the project, with one token."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(over_http(tree, "--token", TOKEN, *options, what=what))._replace(
                token=TOKEN
            )
            for _ in range(number)
        ]


@asynccontextmanager
async def mcp_client(
    balancer: httpx2.AsyncBaseTransport, mode: Any, **options: Any
) -> AsyncIterator[Client]:
    """An MCP client whose requests go through the balancer."""
    async with (
        httpx2.AsyncClient(transport=balancer, headers=HEADERS, timeout=500) as http,
        Client(
            streamable_http_client("http://127.0.0.1/mcp", http_client=http), mode=mode, **options
        ) as client,
    ):
        yield client


def api_client(balancer: httpx2.AsyncBaseTransport) -> httpx2.AsyncClient:
    """A client of the JSON API whose requests go through the balancer."""
    return httpx2.AsyncClient(
        transport=balancer, headers=HEADERS, base_url="http://127.0.0.1", timeout=500
    )
