"""`skillbelt serve`: what it takes, what it says, and what it says when it can not."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys

import httpx2
import pytest

from skillbelt.mcp.clients import CLIENTS, find_command
from tests import warm
from tests.mcp.clients import SERVE
from tests.terminal import on_terminal
from tests.tree import Tree

TOKEN = re.compile(r"Authorization: Bearer (\S+)\n")


def begun(tree: Tree, *options: str) -> tuple[subprocess.Popen[str], str]:
    """A server over HTTP, and what it has said so far."""
    process = warm.Popen[str](
        [sys.executable, *SERVE, "--http", "127.0.0.1:0", *options],
        cwd=tree.project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    told = process.stderr.readline()
    if "serving MCP" in told and not options:
        told += process.stderr.readline()
    return process, told


def test_a_new_token_is_told_once_and_nowhere_else(tree: Tree) -> None:
    process, told = begun(tree)
    try:
        [url] = re.findall(r"serving MCP at (\S+);", told)
        [token] = TOKEN.findall(told)
        assert len(token) >= 32
        for given, code in ((token, 400), ("x" * 40, 401)):
            headers = {"authorization": f"Bearer {given}"}
            assert httpx2.post(url, headers=headers, timeout=500).status_code == code
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=500)
    assert process.returncode == 0
    assert (out, err) == ("", "")


def test_on_a_terminal_it_shows_what_each_client_needs(tree: Tree) -> None:
    screen = on_terminal(tree, "serve", "mcp")
    assert screen.exit_code == 0
    text = "\n".join(screen.lines)
    assert "skillbelt mcp install CLIENT" in text
    for client in CLIENTS.values():
        assert f"{client.title}: " in text
    assert f"{find_command()[0][0]}" in text
    assert "--stdio" in screen.lines[-1]


def test_on_a_terminal_it_serves_if_that_is_wanted(tree: Tree) -> None:
    request = (
        '{"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"protocolVersion": '
        '"2025-06-18", "capabilities": {}, "clientInfo": {"name": "me", "version": "1"}}}'
    )
    answers = [("", f"{request}\n"), ('"serverInfo"', "\x04")]
    screen = on_terminal(tree, "serve", "mcp", "--stdio", answers=answers)
    assert screen.exit_code == 0
    assert '"id":7' in screen.written.replace(" ", "")


def test_a_token_of_yours_is_not_told(tree: Tree) -> None:
    tree.write("token", "the-token-of-the-file\n")
    process, told = begun(tree, "--token", f"@{tree.path('token')}")
    try:
        [url] = re.findall(r"serving MCP at (\S+);", told)
        headers = {"authorization": "Bearer the-token-of-the-file"}
        assert httpx2.post(url, headers=headers, timeout=500).status_code == 400
    finally:
        process.send_signal(signal.SIGINT)
        rest = process.communicate(timeout=500)
    assert "the-token" not in told + "".join(rest)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "the following arguments are required: mcp|http"),
        (["ftp"], "invalid choice: 'ftp'"),
        (["mcp", "--token", "x" * 20], "--token, --origin and --host-name are for HTTP"),
        (["mcp", "--stdio", "--http"], "--stdio serves on standard input"),
        (["mcp", "--http", "--tokens", "x"], "`skillbelt serve http --tokens FILE`"),
        (["http", "--tokens", "missing"], "missing: cannot be read"),
        (["mcp", "--http", "nonsense:port"], "--http takes HOST:PORT"),
        (["mcp", "--http", "--token", "short"], "a token needs at least 16"),
        (["mcp", "--http", "--token", "@missing"], "missing: cannot be read"),
        (["mcp", "--http", "127.0.0.1:0", "--origin", "app.example"], "--origin takes an origin"),
    ],
)
def test_wrong_usage(tree: Tree, options: list[str], told: str) -> None:
    done = tree.run("serve", *options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert told in done.stderr


def test_an_address_in_use(tree: Tree) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = tree.run("serve", "mcp", "--http", f":{port}")
    assert done.exit_code == 2
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr


def test_without_its_extra_it_says_how_to_get_it(tree: Tree) -> None:
    code = """
import sys
sys.modules["mcp"] = None
from skillbelt.cli import main
sys.exit(main(["serve", "mcp"]))
"""
    done = tree.python("-c", code)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "pip install 'skillbelt[mcp]'" in done.stderr


def test_a_wrong_setting_is_told_before_anything_is_served(tree: Tree) -> None:
    tree.write("project/skillbelt.toml", "nonsense = 1\n")
    done = tree.run("serve", "mcp")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "unknown setting 'nonsense'" in done.stderr


def test_others_get_no_input_and_write_to_stderr_while_stdio_is_taken_over(tree: Tree) -> None:
    code = """
import os, subprocess, sys
from skillbelt.cli.serve import take_over_stdio
with take_over_stdio() as (_, write_fd):
    os.write(write_fd, b"message\\n")
    print("stray", flush=True)
    subprocess.run(["echo", "child"], check=True)
    print(repr(sys.stdin.read()), flush=True)
print("after", flush=True)
"""
    done = tree.python("-c", code)
    assert done.exit_code == 0
    assert done.stdout == "message\nafter\n"
    assert done.stderr == "stray\nchild\n''\n"


def test_the_server_is_imported_after_stdio_is_taken_over(tree: Tree) -> None:
    code = "import sys, skillbelt.cli.serve; print([m for m in sys.modules if m[:3] == 'mcp'])"
    assert tree.python("-c", code).stdout == "[]\n"
