"""Connections to MCP servers: what an address means, and commands that misbehave."""

from __future__ import annotations

import gzip
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from skillbelt.discovery.sources import Pulled, command_source
from skillbelt.discovery.sources.mcp_address import parse_server
from skillbelt.errors import SourceError
from tests.benches import alive
from tests.bounds import bounds
from tests.discovery.sources.conftest import QUICK, Pull
from tests.discovery.sources.server import eventually


def command(code: str, *words: str) -> str:
    return command_source("local", " ".join([sys.executable, "-c", f"'{code}'", *words]))


def codes(pulled: Pulled) -> list[str]:
    return [problem.code for problem in pulled.diagnostics]


@pytest.mark.parametrize(
    ("source", "label", "url"),
    [
        ("mcp+https://Docs.Example/mcp", "docs-example", "https://Docs.Example/mcp"),
        ("mcp+https://docs.example:8443/team/mcp/", "docs-example-8443-team",
         "https://docs.example:8443/team/mcp/"),
        ("mcp+http://token@docs.example/mcp?x=1#team", "team", "http://docs.example/mcp?x=1"),
    ],
)  # fmt: skip
def test_what_an_address_means(source: str, label: str, url: str) -> None:
    server = parse_server(source)
    assert (server.label, server.url, server.command) == (label, url, ())
    assert dict(server.headers).get("Authorization", "Bearer token") == "Bearer token"


@pytest.mark.parametrize("label", ["a/../../b", "a%20b", "x" * 33, "a.b"])
def test_an_address_can_not_be_called_anything(label: str) -> None:
    for source in (f"mcp+https://docs.example/mcp#{label}", f"mcp+stdio://{label}?server"):
        with pytest.raises(SourceError, match="letters, digits and hyphens"):
            parse_server(source)


def test_what_a_command_means() -> None:
    server = parse_server(command_source("docs", "npx -y '@acme/my server' --flag=1"))
    assert server.label == "docs"
    assert server.command == ("npx", "-y", "@acme/my server", "--flag=1")
    with pytest.raises(SourceError, match="cannot be parsed"):
        parse_server(command_source("docs", "unclosed 'quote"))


@pytest.mark.parametrize("label", ["", "a b", "../x", "a/b", "ü", "x" * 33, "a.b"])
def test_a_server_has_a_plain_name(label: str) -> None:
    assert command_source(label, "server") == ""
    assert command_source("docs", "") == ""


def test_a_command_is_served_as_an_address_is(fetch: Pull, tmp_path: Path) -> None:
    skill = tmp_path / "project" / ".agents" / "skills" / "pdf"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: pdf\ndescription: Reads.\n---\nBody.\n")
    words = f"{sys.executable} -m skillbelt serve mcp --project {tmp_path / 'project'}"
    pulled = fetch(command_source("own", words))
    assert pulled.diagnostics == ()
    [located] = pulled.folders
    assert str(located.origin) == "mcp:stdio://own"
    assert os.listdir(located.folder) == ["own.pdf"]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("raise SystemExit(3)", "the command ended with 3"),
        ('import sys; sys.exit("no token was given")', "no token was given"),
        ('print("nonsense"); print("{}"); import time; time.sleep(60)', ""),
        ("import time; time.sleep(60)", ""),
        ('while True: print("x" * 10**6, end="")', ""),
        ('import sys\nwhile True: sys.stderr.write("x" * 10**6)', ""),
    ],
    ids=["ends", "says why", "nonsense", "silent", "endless line", "endless errors"],
)
def test_a_command_that_misbehaves_is_a_diagnostic(fetch: Pull, code: str, told: str) -> None:
    mark = str(time.time_ns())
    limits = bounds(
        QUICK,
        http_timeout_seconds=10 if told else 0.7,
        source_timeout_seconds=10 if told else 1,
        max_remote_index_bytes=10**6,
        max_extracted_file_bytes=10**6,
    )
    pulled = fetch(command(code, mark), limits=limits)
    assert pulled.folders == ()
    [problem] = pulled.diagnostics
    assert problem.code in ("mcp-command-failed", "mcp-failed", "remote-timeout")
    assert told in problem.message
    assert problem.path == "mcp+stdio://local", "a command may hold secrets"
    assert alive(mark) == []


def test_a_command_that_is_not_there_is_a_diagnostic(fetch: Pull) -> None:
    pulled = fetch(command_source("local", "/no/such/program"))
    assert codes(pulled) == ["mcp-command-failed"]


def test_what_a_command_starts_ends_with_it(fetch: Pull) -> None:
    mark = str(time.time_ns())
    code = f'import subprocess; subprocess.Popen(["sleep", "{mark}"]); input()'
    fetch(command(code), limits=bounds(QUICK, http_timeout_seconds=1, source_timeout_seconds=2))
    # It was killed; the kernel takes a moment to end what nothing waits for.
    eventually(lambda: alive(mark) == [])


def test_a_command_does_not_get_the_secrets_of_this_process(
    fetch: Pull, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "the-secret")
    seen = tmp_path / "seen"
    fetch(command(f'import os; open("{seen}", "w").write(repr(dict(os.environ)))'))
    assert "PATH" in seen.read_text()
    assert "the-secret" not in seen.read_text()
    assert "'SKILLBELT_MCP_COMMANDS': ''" in seen.read_text(), "it can not start itself in turn"


class Endless(BaseHTTPRequestHandler):
    """Answers with a document that has no end."""

    sent = 0

    def do_POST(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        with suppress(OSError):
            while type(self).sent < 10**9:
                self.wfile.write(b"[" * 2**16)
                type(self).sent += 2**16

    def log_message(self, *_: object) -> None:
        pass


class Quiet(ThreadingHTTPServer):
    """Does not report clients that disconnect, as most of these tests do."""

    def handle_error(self, *_: object) -> None:
        pass


@contextmanager
def answering(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Return the address of an HTTP server that does not support MCP."""
    http = Quiet(("127.0.0.1", 0), handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"mcp+http://127.0.0.1:{http.server_address[1]}/mcp"
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def test_an_answer_without_an_end_is_not_taken(fetch: Pull) -> None:
    limits = bounds(QUICK, max_remote_index_bytes=10**6, max_extracted_file_bytes=10**6)
    with answering(Endless) as url:
        pulled = fetch(url, limits=limits)
    assert codes(pulled) == ["mcp-failed"]
    assert Endless.sent < 100 * 2**20


class Rude(BaseHTTPRequestHandler):
    """Answers in ways that no client should accept."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.asked.append(self.path)
        how = self.path.partition("?")[2]
        self.rfile.read(int(self.headers["content-length"]))
        bodies = {"bomb": gzip.compress(b" " * 10**7), "html": b"<html>", "nonsense": b"\xff["}
        body = bodies.get(how, b"")
        self.send_response({"redirect": 307, "wrong": 500, "refused": 401}.get(how, 200))
        if how == "redirect":
            self.send_header(
                "Location", f"http://localhost:{self.headers['host'].split(':')[1]}/private"
            )
        if how == "bomb":
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", "text/html" if how == "html" else "application/json")
        self.send_header("Content-Length", str(10**6 if how == "drip" else len(body)))
        self.end_headers()
        self.wfile.write(body)
        with suppress(OSError):
            while how == "drip":
                self.wfile.write(b" ")
                time.sleep(0.1)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("how", "code", "told"),
    [
        ("redirect", "mcp-failed", "not followed"),
        ("bomb", "mcp-failed", "compressed"),
        ("html", "mcp-failed", "text/html"),
        ("nonsense", "mcp-failed", "Failed to parse JSON response"),
        ("wrong", "mcp-failed", "error response"),
        ("refused", "mcp-failed", "the server refuses requests without a token (401)"),
        ("drip", "remote-timeout", "no answer"),
    ],
)
def test_an_answer_that_is_none_is_one_diagnostic(
    fetch: Pull, capfd: pytest.CaptureFixture[str], how: str, code: str, told: str
) -> None:
    Rude.asked.clear()
    with answering(Rude) as url:
        seconds = 0.7 if how == "drip" else 30
        limits = bounds(QUICK, http_timeout_seconds=seconds, source_timeout_seconds=2 * seconds)
        pulled = fetch(f"{url}?{how}", limits=limits)
    [problem] = pulled.diagnostics
    assert (problem.code, pulled.folders) == (code, ())
    assert told in problem.message
    assert "\n" not in problem.message
    assert {*Rude.asked} == {f"/mcp?{how}"}, "and nobody else was asked"
    assert capfd.readouterr().err == ""


def test_a_token_that_is_refused_is_told_and_not_shown(fetch: Pull) -> None:
    with answering(Rude) as url:
        [problem] = fetch(url.replace("://", "://the-secret@") + "?refused").diagnostics
    assert "the server refuses the token (401)" in problem.message
    assert "TOKEN@host" in problem.remedy
    assert "the-secret" not in str(problem)
