"""Clients for the MCP server: in this process, and to real ones over pipes and sockets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal, NamedTuple

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    ElicitRequestFormParams,
    ElicitResult,
    PaginatedRequestParams,
    Request,
    RequestParams,
    Result,
)

from mcp import Client, StdioServerParameters
from skillbelt import Runtime
from skillbelt.mcp.server import SkillServer
from tests import warm
from tests.tree import Tree

SERVE = ["-m", "skillbelt", "serve", "mcp"]


class Anything(Result, extra="allow"):
    """A result of any shape."""


class UriParams(PaginatedRequestParams):
    uri: str


class ListSkills(Request[PaginatedRequestParams, Literal["skills/list"]]):
    method: Literal["skills/list"] = "skills/list"
    params: PaginatedRequestParams


class GetSkill(Request[UriParams, Literal["skills/get"]]):
    method: Literal["skills/get"] = "skills/get"
    params: UriParams


class ReadFolder(Request[UriParams, Literal["resources/directory/read"]]):
    method: Literal["resources/directory/read"] = "resources/directory/read"
    params: UriParams


class Unknown(Request[RequestParams, Literal["skills/steal"]]):
    method: Literal["skills/steal"] = "skills/steal"
    params: RequestParams = RequestParams()


async def send(client: Client, request: Request[Any, Any]) -> dict[str, Any]:
    """Return the result of any request, as it came."""
    found = await client.session.send_request(request, Anything)
    return found.model_dump(by_alias=True, exclude_none=True)


async def list_skills(client: Client, cursor: str | None = None) -> dict[str, Any]:
    return await send(client, ListSkills(params=PaginatedRequestParams(cursor=cursor)))


async def get_skill(client: Client, uri: str) -> dict[str, Any]:
    return await send(client, GetSkill(params=UriParams(uri=uri)))


async def read_folder(client: Client, uri: str, cursor: str | None = None) -> dict[str, Any]:
    return await send(client, ReadFolder(params=UriParams(uri=uri, cursor=cursor)))


def text_of(result: Any) -> str:
    """The text of a tool's result."""
    [content] = result.content
    assert isinstance(content.text, str)
    return content.text


class Person:
    """The person at a client: gives the same answer every time, and records the questions."""

    def __init__(self, **content: Any) -> None:
        self.content, self.asked = content, list[str]()

    async def __call__(self, _context: Any, params: Any) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        self.asked.append(params.message)
        if not self.content:
            return ElicitResult(action="cancel")
        return ElicitResult(action="accept", content=self.content)


@asynccontextmanager
async def connected(belt: Runtime, mode: Any = "auto", **options: Any) -> AsyncIterator[Client]:
    """A client of a server in this process."""
    served = SkillServer(belt)
    try:
        async with Client(served.server, mode=mode, **options) as client:
            yield client
    finally:
        served.close()


def over_stdio(tree: Tree, *options: str, mode: Any = "auto", **more: Any) -> Client:
    """A client that starts the server as its own process."""
    arguments = [*SERVE, *options]
    started = StdioServerParameters(
        command=sys.executable, args=arguments, cwd=tree.project, env=dict(os.environ)
    )
    return Client(started, mode=mode, **more)


class Place(NamedTuple):
    """A project that several tests share, and the environment of its servers."""

    tree: Tree
    environ: dict[str, str]


class Http(NamedTuple):
    """A server process that listens."""

    process: subprocess.Popen[bytes]
    url: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    @asynccontextmanager
    async def client(self, mode: Any = "auto", **options: Any) -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(headers=self.headers, timeout=500) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode, **options) as one,
        ):
            yield one

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; return the exit code, and the text on stderr."""
        self.process.send_signal(number)
        _, told = self.process.communicate(timeout=500)
        return self.process.returncode, told.decode()


@contextmanager
def over_http(
    tree: Tree, *options: str, env: dict[str, str] | None = None, what: str = "mcp"
) -> Iterator[Http]:
    """A server process on its own port."""
    process = warm.Popen[bytes](
        [sys.executable, *SERVE[:-1], what, "--http", "127.0.0.1:0", "--json", *options],
        cwd=tree.project,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        told = b""
        while not told.endswith(b"}\n"):
            line = process.stdout.readline()
            assert line, process.communicate()[1].decode()
            told += line
        facts = json.loads(told)
        yield Http(process, facts["url"], facts.get("token", ""))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
