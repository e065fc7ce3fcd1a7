"""Other clients: the TypeScript one, which verifies every file itself, and the inspector.

They come from npm, pinned by a lock, and are installed once. Without Node.js they are not
available, and the tests say so.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.clients import SERVE, Http
from tests.mcp.npm_packages import CLIENT, HERE, INSPECTOR, installed
from tests.tree import Tree

# Missing packages are installed first. The Python client is in the shorter tests.
pytestmark = [pytest.mark.long]
PDF = ["SKILL.md", "forms/a%20b.md", "guide.md", "logo.png", "scripts/say.sh"]


@pytest.fixture(scope="session")
def clients() -> Path:
    return installed()


def node(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["node", *arguments], cwd=cwd, capture_output=True, text=True, timeout=500, check=False
    )


def check(found: dict[str, Any]) -> None:
    """Return the findings of the TypeScript client in the project of the fixture."""
    assert found["supported"] is True
    assert found["names"] == ["notes", "pdf"]
    assert found["files"] == dict.fromkeys(
        ["skill://notes/SKILL.md", *(f"skill://pdf/{path}" for path in PDF)], True
    )
    assert found["folder"] == ["pdf", "forms", "guide.md", "logo.png", "scripts"]
    assert found["got"] == "skill://pdf/SKILL.md"
    assert "skill_run" in found["tools"]
    assert found["prompts"] == ["notes", "pdf"]
    assert "The body of pdf." in found["loaded"]
    assert found["ran"]["stdout"] == "one\ntwo\n"
    assert found["progress"][-2:] == ["one\n", "two\n"]
    assert len(found["asked"]) == 1
    assert found["wrong"] is True
    assert found["outside"] == -32602


@pytest.mark.parametrize("era", ["auto", "legacy"])
def test_the_typescript_client_over_stdio(clients: Path, skills: Tree, era: str) -> None:
    command = [sys.executable, *SERVE]
    done = node(str(clients / CLIENT), era, "--", *command, cwd=skills.project)
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout))


@pytest.mark.parametrize("era", ["auto", "legacy"])
def test_the_typescript_client_over_http(clients: Path, server: Http, era: str) -> None:
    done = node(str(clients / CLIENT), era, server.url, server.token, cwd=clients)
    assert done.returncode == 0, done.stderr
    check(json.loads(done.stdout))


def inspect(clients: Path, *options: str, cwd: Path = HERE) -> dict[str, Any]:
    done = node(str(clients / INSPECTOR), "--cli", *options, cwd=cwd)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_inspector_over_stdio(clients: Path, skills: Tree) -> None:
    serve = skills.write("serve", f"#!/bin/sh\nexec {shlex.join([sys.executable, *SERVE])}\n")
    serve.chmod(0o755)
    call = ["--method", "tools/call", "--tool-name", "skill_load", "--tool-arg", "skill=pdf"]
    [content] = inspect(clients, str(serve), *call, cwd=skills.project)["content"]
    assert "The body of pdf." in content["text"]


@pytest.fixture
def without(clients: Path, server: Http) -> Iterator[subprocess.Popen[str]]:
    """An inspector without the token, which runs beside the test and ends with it."""
    http = [server.url, "--transport", "http"]
    with subprocess.Popen(
        ["node", str(clients / INSPECTOR), "--cli", *http, "--method", "tools/list"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


def test_the_inspector_over_http(
    clients: Path, server: Http, without: subprocess.Popen[str]
) -> None:
    http = [server.url, "--transport", "http"]
    with_token = [*http, "--header", f"Authorization: Bearer {server.token}"]

    def asked(method: str, *options: str) -> list[dict[str, Any]]:
        [found] = inspect(clients, *with_token, "--method", method, *options).values()
        listed: list[dict[str, Any]] = found
        return listed

    assert [tool["name"] for tool in asked("tools/list")][:2] == ["skill_load", "skill_list_docs"]
    assert [prompt["name"] for prompt in asked("prompts/list")] == ["notes", "pdf"]
    [content] = asked("resources/read", "--uri", "skill://pdf/guide.md")
    assert content["text"] == "The guide of pdf.\n"
    stderr = without.communicate(timeout=500)[1]
    assert without.returncode != 0
    assert "401" in stderr or "bearer token" in stderr
