"""The conformance tool of the protocol, against the server and against the client.

The scenarios are those that need no tools, prompts or resources made for them. A check that the
tool calls untestable for want of such a tool says nothing about the server.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from skillbelt import Runtime
from skillbelt.mcp.http import make_app
from skillbelt.mcp.server import SkillServer
from skillbelt.serving.guard import guarded
from skillbelt.serving.sockets import ListenAddress, open_socket
from skillbelt.serving.tokens import TokenBook, new_token
from tests.mcp.conftest import filled
from tests.mcp.npm_packages import CONFORMANCE, installed, newer_node
from tests.tree import Tree

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(300),  # missing packages are installed first
]

BASE = {
    "2025-11-25": (
        "server-initialize",
        "server-session-lifecycle",
        "logging-set-level",
        "ping",
        "tools-list",
        "server-sse-multiple-streams",
        "resources-list",
        "prompts-list",
        "dns-rebinding-protection",
    ),
    "2026-07-28": (
        "server-stateless",
        "tools-list",
        "server-sse-multiple-streams",
        "resources-list",
        "sep-2164-resource-not-found",
        "prompts-list",
        "dns-rebinding-protection",
        "caching",
        "http-header-validation",
        "input-required-result-missing-input-response",
        "input-required-result-unsupported-methods",
        "input-required-result-ignore-extra-params",
        "input-required-result-validate-input",
    ),
}
# The number of checks that each has: fewer would mean that some were not made.
SKILLS = {
    "sep-2640-skills-directory": 7,
    "sep-2640-skills-enumeration": 32,
    "sep-2640-skills-manifest": 6,
}
HOST = (
    "sep-2640-client-no-prefetch",
    "sep-2640-client-verify-digest",
    "sep-2640-client-verify-size",
    "sep-2640-client-verify-frontmatter",
)
CLIENT = ("initialize", "request-metadata", "http-standard-headers", "sse-retry")


class WithToken:
    """Adds the token, which the tool cannot send."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._header = app, (b"authorization", f"Bearer {token}".encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], self._header]}
        await self._app(scope, receive, send)


class Quiet(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a server with all its guards, for which the tool has the token."""
    token, listening = new_token(), open_socket(ListenAddress("127.0.0.1", 0))
    port = listening.getsockname()[1]
    started, servers = threading.Event(), list[Quiet]()

    async def serve(belt: Runtime) -> None:
        served = SkillServer(belt)
        app = guarded(make_app(served), tokens=TokenBook.of(token), host="127.0.0.1", port=port)
        server = Quiet(uvicorn.Config(WithToken(app, token), log_level="error", ws="none"))
        servers.append(server)
        served.start()
        started.set()
        await server.serve([listening])
        served.close()

    with pytest.MonkeyPatch.context() as patch:
        tree = filled(Tree(tmp_path_factory.mktemp("conformance"), patch))
        # The tool looks at the first skill, and at a folder in it.
        tree.write("project/.agents/skills/notes/forms/blank.md", "Nothing yet.\n")
        belt = Runtime(tree.project)
    with belt:
        thread = threading.Thread(target=lambda: asyncio.run(serve(belt)))
        thread.start()
        started.wait()
        yield f"http://127.0.0.1:{port}/mcp"
        servers[0].should_exit = True
        thread.join()


class Tool:
    """The conformance tool, and its findings."""

    def __init__(self, output: Path) -> None:
        self._folder, self._output = installed(), output

    def run(self, *arguments: str) -> None:
        command = [newer_node(self._folder), str(self._folder / CONFORMANCE), *arguments]
        done = subprocess.run(
            [*command, "--timeout", "120000", "-o", str(self._output)],
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        # It ends with an error after any failed check, so also for a scenario that is not wanted.
        assert self._output.exists(), done.stdout + done.stderr

    def checks(self, scenario: str) -> list[dict[str, Any]]:
        [file] = self._output.rglob(f"*{scenario}-2*/checks.json")
        found: list[dict[str, Any]] = json.loads(file.read_text())
        return found


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path / "results")


def failed(checks: list[dict[str, Any]]) -> list[str]:
    """Return the failures, except for lack of a tool that only a test server has."""
    return [
        f"{one['id']}: {one['status']} {one.get('errorMessage')}"
        for one in checks
        if one["status"] == "FAILURE" and not (one.get("details") or {}).get("untestable")
    ]


def succeeded(checks: list[dict[str, Any]]) -> int:
    return sum(one["status"] == "SUCCESS" for one in checks)


@pytest.mark.parametrize("version", sorted(BASE))
def test_the_server_keeps_to_the_protocol(tool: Tool, url: str, version: str) -> None:
    tool.run("server", "--url", url, "--suite", "all", "--spec-version", version)
    found = {name: tool.checks(name) for name in BASE[version]}
    assert {name: wrong for name, checks in found.items() if (wrong := failed(checks))} == {}
    assert all(map(succeeded, found.values()))


def test_the_server_serves_skills_as_the_extension_says(tool: Tool, url: str) -> None:
    for name in SKILLS:
        tool.run("server", "--url", url, "--scenario", name)
    found = {name: tool.checks(name) for name in SKILLS}
    others = [one for checks in found.values() for one in checks if one["status"] != "SUCCESS"]
    assert others == []
    assert {name: succeeded(checks) for name, checks in found.items()} == SKILLS


@pytest.mark.parametrize(
    "scenario",
    [HOST[0], *(pytest.param(name, marks=pytest.mark.long) for name in (*HOST[1:], *CLIENT))],
)
def test_the_client_keeps_to_the_protocol(tool: Tool, scenario: str) -> None:
    client = Path(__file__).with_name("conformance_client.py")
    command = shlex.join([sys.executable, str(client)])
    tool.run("client", "--command", command, "--scenario", scenario)
    checks = tool.checks(scenario)
    assert failed(checks) == []
    assert succeeded(checks)
    # Some checks of the others are about actions that a host of skills never does.
    if scenario in HOST:
        assert not [one for one in checks if one["status"] == "SKIPPED"]
