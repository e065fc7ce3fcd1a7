"""The JSON API as a process on real sockets: a client that leaves, its end, tokens, a trace."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.benches import alive
from tests.mcp.clients import Http, over_http
from tests.serving.clients import error_of, fill
from tests.test_tracing import REPORT, SET_UP
from tests.tree import Tree

ROOT = Path(__file__).parents[2]
S = "/v1/sessions/chat"
EVENTS = {"accept": "text/event-stream"}


@pytest.fixture
def server(open_tree: Tree) -> Iterator[Http]:
    with over_http(fill(open_tree), what="http") as server:
        yield server


def client(server: Http) -> httpx2.Client:
    return httpx2.Client(base_url=server.url, headers=server.headers, timeout=500)


def test_output_is_there_while_the_command_runs_and_who_leaves_ends_it(server: Http) -> None:
    command = {"skill": "pdf", "command": "sleep 6018"}
    with client(server) as http:
        with http.stream("POST", f"{S}/runs", json=command, headers=EVENTS) as answer:
            assert answer.status_code == 200
            while not alive("6018"):
                time.sleep(0.02)
        while alive("6018"):
            time.sleep(0.02)
        assert http.get("/v1/skills").status_code == 200


def test_every_call_is_answered_when_the_server_ends(server: Http) -> None:
    got = list[httpx2.Response]()

    def run() -> None:
        with client(server) as http:
            got.append(http.post(f"{S}/runs", json={"skill": "pdf", "command": "sleep 6019"}))

    thread = threading.Thread(target=run)
    thread.start()
    while not alive("6019"):
        time.sleep(0.02)
    code, told = server.end(signal.SIGTERM)
    thread.join(150)
    assert (code, told) == (0, "")
    assert error_of(got[0])["kind"] == "shutting_down"
    assert not alive("6019")


def test_a_file_of_tokens_binds_users(open_tree: Tree) -> None:
    text = '[[token]]\ntoken = "the-token-of-ada-1"\napp = "shop"\nuser = "ada"\n'
    path = fill(open_tree).write("tokens.toml", text)
    with over_http(open_tree, "--tokens", str(path), what="http") as server:
        ada = server._replace(token="the-token-of-ada-1")
        with client(ada) as http:
            assert http.get(S).json() == {"session": "chat", "loaded": []}
            assert http.get(S, headers={"skillbelt-user": "bob"}).status_code == 403
        with client(server._replace(token="the-token-of-eve-1")) as http:
            assert http.get(S).status_code == 401


def test_a_name_of_a_balancer_is_accepted(open_tree: Tree) -> None:
    named = ("--host-name", "Skills.example")
    with over_http(fill(open_tree), *named, what="http") as server, client(server) as http:
        for name, status in (("skills.example", 200), ("evil.example", 421)):
            assert http.get("/v1/skills", headers={"host": name}).status_code == status


def test_the_trace_of_a_request_reaches_the_command(open_tree: Tree) -> None:
    fill(open_tree)
    trace = "0af7651916cd43dd8448eb211c80319c"
    code = f"""
import anyio, sys
sys.path.insert(0, {str(ROOT)!r})
from skillbelt import Runtime
from tests.serving.clients import api

async def main():
    with Runtime({str(open_tree.project)!r}) as belt:
        async with api(belt) as client:
            headers = {{"traceparent": "00-{trace}-b7ad6b7169203331-01"}}
            run = {{"skill": "pdf", "command": "echo hello"}}
            answer = await client.post("{S}/runs", json=run, headers=headers)
            assert answer.status_code == 200, answer.text

anyio.run(main)
"""
    done = open_tree.python("-c", f"{SET_UP}\n{code}\n{REPORT}")
    assert done.exit_code == 0, done.stderr
    found = {one["name"]: one for one in json.loads(done.stdout)}
    served, ran = found["serve POST /v1/sessions/{session}/runs"], found["workspace.run"]
    assert served["parent_id"] == "0xb7ad6b7169203331"
    assert served["attributes"]["http.response.status_code"] == 200
    called = found["execute_tool skill_run"]
    assert called["parent_id"] == served["context"]["span_id"]
    assert called["attributes"]["gen_ai.skill.name"] == "pdf"
    assert {one["context"]["trace_id"] for one in (served, called, ran)} == {f"0x{trace}"}
