"""A real MCP server on this machine that misbehaves on request."""

from __future__ import annotations

import base64
import hashlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    BlobResourceContents,
    ListResourcesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    RequestParams,
    TextResourceContents,
)


class SkillParams(RequestParams):
    uri: str


TEXT = b"---\nname: pdf\ndescription: Reads PDF files.\n---\nThe body of pdf.\n"


def listed(uri: str, data: bytes) -> dict[str, Any]:
    """A file as an entry lists it."""
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return {"uri": uri, "digest": digest, "size": len(data)}


def entry(
    files: Mapping[str, bytes] | None = None, name: str = "pdf", prefix: str = "", **front: Any
) -> dict[str, Any]:
    """A skill as a server lists it, with all of its files."""
    base = f"skill://{prefix}{name}/"
    contents = {"SKILL.md": TEXT, **(files or {})}
    return {
        "uri": f"{base}SKILL.md",
        "frontmatter": {"name": name, "description": "Reads PDF files.", **front},
        "resources": [listed(f"{base}{path}", data) for path, data in contents.items()],
    }


class McpServer:
    """Lists `entries` and serves `files` by address; every request is in `requests`."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.listing: Any = None  # instead of the entries
        self.files: dict[str, bytes] = {}
        self.unlisted: dict[str, Any] = {}
        self.requests: list[str] = []
        self.page = 100
        self.endless = False
        self.extension = True
        self.delay = 0.0
        self.headers: list[dict[str, str]] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.url = f"mcp+http://127.0.0.1:{self._socket.getsockname()[1]}/mcp"
        config = uvicorn.Config(
            self._app(), log_config=None, access_log=False, timeout_graceful_shutdown=1
        )
        self._http = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._http.run, args=([self._socket],))

    def add(
        self, files: Mapping[str, bytes] | None = None, name: str = "pdf", prefix: str = ""
    ) -> dict[str, Any]:
        """Add a skill that is listed and served as it is."""
        made = entry(files, name, prefix)
        base = made["uri"].removesuffix("SKILL.md")
        text = TEXT.replace(b"name: pdf", f"name: {name}".encode())
        contents = {"SKILL.md": text, **(files or {})}
        made["resources"] = [listed(f"{base}{path}", data) for path, data in contents.items()]
        self.files |= {f"{base}{path}": data for path, data in contents.items()}
        self.entries.append(made)
        return made

    def start(self) -> None:
        self._thread.start()
        while not self._http.started:
            time.sleep(0.01)

    def close(self) -> None:
        self._http.should_exit = True
        self._thread.join()
        self._socket.close()

    def _app(self) -> Any:
        server: Server[Any] = Server(
            "hostile",
            version="1",
            on_list_resources=self._resources,
            on_read_resource=self._read,
        )
        server.extensions["io.modelcontextprotocol/skills"] = {}
        server.add_request_handler("skills/list", PaginatedRequestParams, self._list)
        server.add_request_handler("skills/get", SkillParams, self._get)
        return server.streamable_http_app(host="127.0.0.1")

    async def _resources(self, _ctx: Any, _params: Any) -> ListResourcesResult:
        return ListResourcesResult(resources=[])

    async def _list(self, ctx: Any, params: PaginatedRequestParams) -> dict[str, Any]:
        import anyio

        self.requests.append("skills/list")
        self.headers.append(dict(ctx.request.headers))
        await anyio.sleep(self.delay)
        if not self.extension:
            raise MCPError(-32601, "Method not found")
        start = int(params.cursor or 0)
        found = self.entries if self.endless else self.entries[start : start + self.page]
        result: dict[str, Any] = {"resultType": "complete", "ttlMs": 0}
        result["skills"] = found if self.listing is None else self.listing
        if self.endless or start + self.page < len(self.entries):
            result["nextCursor"] = str(start + self.page)
        return {**result, "cacheScope": "private"}

    async def _get(self, _ctx: Any, params: SkillParams) -> dict[str, Any]:
        self.requests.append(f"skills/get {params.uri}")
        if params.uri not in self.unlisted:
            raise MCPError(INVALID_PARAMS, "no such skill")
        found = self.unlisted[params.uri]
        return {"resultType": "complete", "skill": found, "ttlMs": 0, "cacheScope": "private"}

    async def _read(self, _ctx: Any, params: ReadResourceRequestParams) -> ReadResourceResult:
        self.requests.append(params.uri)
        data = self.files.get(params.uri)
        if data is None:
            raise MCPError(INVALID_PARAMS, "no such resource")
        found: TextResourceContents | BlobResourceContents
        try:
            found = TextResourceContents(uri=params.uri, text=data.decode())
        except UnicodeDecodeError:
            found = BlobResourceContents(uri=params.uri, blob=base64.b64encode(data).decode())
        return ReadResourceResult(contents=[found])


@contextmanager
def serving() -> Iterator[McpServer]:
    """A server for as long as the block lasts."""
    server = McpServer()
    server.start()
    try:
        yield server
    finally:
        server.close()
