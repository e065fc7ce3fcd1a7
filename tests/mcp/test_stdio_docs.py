"""The commands in docs/how-to/mcp.md start, and the examples run."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from mcp import Client, StdioServerParameters
from tests import warm
from tests.examples import first_one
from tests.tree import Tree

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "mcp.md").read_text("utf-8")
SAYS = {
    "client.py": "loaded: [Loaded] log-triage",
    "host.py": "(Text of the MCP server stdio://team",
}


def servers() -> list[dict[str, Any]]:
    """Every server of the page's settings for clients."""
    documents = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]
    documents += [tomllib.loads(text) for text in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)]
    named = ("mcpServers", "servers", "mcp_servers", "context_servers", "mcp")
    return [
        one["skillbelt"] for document in documents for key in named if (one := document.get(key))
    ]


def words(server: dict[str, Any]) -> list[str]:
    """The command with its arguments, which some clients take in one list."""
    command = server["command"]
    return command if isinstance(command, list) else [command, *server["args"]]


def test_the_page_names_one_command_by_its_path_and_by_uvx() -> None:
    told = [words(one) for one in servers() if "command" in one]
    serve, at = ["skillbelt", "serve", "mcp"], ["--project", "/path/to/project"]
    by_path = ["/path/to/.venv/bin/skillbelt", *serve[1:], *at]
    assert told == [by_path]
    assert '`/path/to/uvx`, and `args` begins with `"--from", "/path/to/skillbelt[mcp]"' in PAGE


@pytest.mark.anyio
async def test_the_command_of_the_page_serves(skills: Tree) -> None:
    folder = skills.path("bin")
    folder.mkdir()
    program = folder / "skillbelt"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m skillbelt "$@"\n')
    program.chmod(0o755)
    here = {"/path/to/.venv/bin/skillbelt": program, "/path/to/project": skills.project}
    command, *args = [str(here.get(word, word)) for word in words(servers()[0])]
    started = StdioServerParameters(command=command, args=args, env=dict(os.environ))
    async with Client(started) as client:
        assert len((await client.list_tools()).tools) == 7


@pytest.mark.parametrize(
    "script", first_one(*sorted((ROOT / "examples" / "mcp").glob("*.py"))), ids=str
)
def test_every_example_runs(script: Path, tree: Tree) -> None:
    shutil.copytree(ROOT / "examples" / "skills", tree.project / ".agents" / "skills")
    done = warm.run(
        [sys.executable, str(script)],
        cwd=tree.project,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert SAYS[script.name] in done.stdout
