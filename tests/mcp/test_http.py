"""A real server process on real sockets: both protocols, many clients, hostile ones, its end."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from skillbelt.errors import ConfigError
from skillbelt.mcp.stdio import MAX_REQUEST_BYTES
from skillbelt.serving.sockets import ListenAddress, open_socket, parse_address
from skillbelt.serving.tokens import check_token, new_token
from tests.benches import alive
from tests.examples import first_one
from tests.mcp.clients import Http, Person, Place, list_skills, over_http, text_of

anyio_test = pytest.mark.anyio
INITIALIZE: dict[str, Any] = {
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}
# Both eras speak to the same server; `make test-all` has all of it for the older one too.
every_era = pytest.mark.parametrize("mode", first_one("auto", "legacy"))
ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
TOKEN = "a-token-of-the-test"
MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}


def post(server: Http, body: bytes | str, **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.post(
        server.url, content=body, headers={**server.headers, **ACCEPT, **named}, timeout=500
    )


@anyio_test
@every_era
async def test_the_official_client_uses_everything(server: Http, mode: str) -> None:
    person, told = Person(answer="once"), list[str]()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async with server.client(mode, elicitation_callback=person) as client:
        [_notes, pdf] = (await list_skills(client))["skills"]
        assert pdf["uri"] == "skill://pdf/SKILL.md"
        loaded = await client.call_tool("skill_load", {"skill": "pdf"})
        assert "The body of pdf." in text_of(loaded)
        run = {"skill": "pdf", "command": "echo one; sleep 0.3; echo two"}
        ran = await client.call_tool("skill_run", run, progress_callback=note)
        assert ran.structured_content is not None
        assert ran.structured_content["stdout"] == "one\ntwo\n"
        begun = {"skill": "pdf", "command": "sleep 60", "background": True}
        started = await client.call_tool("skill_run", begun)
        assert started.structured_content is not None
        run_id = started.structured_content["run_id"]
        ended = await client.call_tool("skill_poll", {"run_id": run_id, "kill": True})
        assert ended.structured_content is not None
        assert ended.structured_content["running"] is False
    assert told == ["one\n", "two\n"]
    assert len(person.asked) == 1


@anyio_test
@every_era
async def test_many_clients_at_once_each_in_its_own_conversation(server: Http, mode: str) -> None:
    """A run of one is none of another's, whose connection it is not."""
    runs = list[str]()

    async def one(number: int) -> None:
        async with server.client(mode) as client:
            assert len((await client.list_tools()).tools) == 9
            begun = {"skill": "pdf", "command": "sleep 0.1", "background": True}
            if number == 0:
                started = await client.call_tool("skill_run", begun)
                assert started.structured_content is not None
                runs.append(str(started.structured_content["run_id"]))

    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(one, number)
    if mode == "legacy":
        async with server.client(mode) as client:
            foreign = await client.call_tool("skill_poll", {"run_id": runs[0]})
            assert "there is no run" in text_of(foreign)


@anyio_test
@every_era
async def test_clients_hear_of_a_new_skill(server: Http, place: Place, mode: str) -> None:
    heard = anyio.Event()

    async def note(message: object) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            heard.set()

    name = f"project/.agents/skills/new-{mode}"
    async with server.client(mode, message_handler=note) as client:
        with anyio.fail_after(150):
            if mode == "auto":
                async with client.listen(tools_list_changed=True) as events:
                    folder = place.tree.skill(name)
                    async for _ in events:
                        break
            # A client gets no notification before it has opened the stream for that.
            number = 0
            while mode == "legacy" and not heard.is_set():
                folder = place.tree.skill(name, f"Version {number}.")
                number += 1
                await anyio.sleep(0.5)
        assert "new-" in (await client.list_tools()).model_dump_json()
    shutil.rmtree(folder)


@anyio_test
@every_era
async def test_who_goes_away_ends_what_it_ran(server: Http, mode: str) -> None:
    mark = str(time.time_ns())
    async with server.client(mode) as client:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                run = {"skill": "pdf", "command": f"sleep {mark}"}
                group.start_soon(client.call_tool, "skill_run", run)
                while not alive(mark):
                    await anyio.sleep(0.02)
                scope.cancel()
        with anyio.fail_after(150):
            while alive(mark):
                await anyio.sleep(0.02)


@pytest.mark.parametrize("version", HANDSHAKE_PROTOCOL_VERSIONS)
def test_the_extension_is_declared_in_the_handshake(server: Http, version: str) -> None:
    params = {**INITIALIZE["params"], "protocolVersion": version}
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    [line] = re.findall(r"^data: (\{.*)", post(server, json.dumps(message)).text, re.MULTILINE)
    result = json.loads(line)["result"]
    assert result["protocolVersion"] == version
    for field in ("extensions", "experimental"):
        assert result["capabilities"][field] == {
            "io.modelcontextprotocol/skills": {"directoryRead": True}
        }


class Session:
    """A client of the older protocol that follows no rules, on plain sockets."""

    def __init__(self, server: Http) -> None:
        self.server = server
        begun = post(server, json.dumps({**INITIALIZE, "jsonrpc": "2.0", "id": 0}))
        self.headers = {"mcp_session_id": begun.headers["mcp-session-id"]}
        self.send("notifications/initialized")

    def send(self, method: str, **more: object) -> httpx2.Response:
        message = {"jsonrpc": "2.0", "method": method, **more}
        return post(self.server, json.dumps(message), **self.headers)

    def open(self, method: str, body: bytes = b"") -> socket.socket:
        """Send a request whose answer is never read."""
        where = urlsplit(self.server.url)
        headers = {
            **self.server.headers,
            **ACCEPT,
            "Host": f"{where.hostname}:{where.port}",
            "Mcp-Session-Id": self.headers["mcp_session_id"],
            "Content-Length": str(len(body)),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        made = socket.create_connection((where.hostname, where.port))
        made.sendall(f"{method} /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body)
        return made

    def end(self) -> int:
        named = {"mcp-session-id": self.headers["mcp_session_id"]}
        return httpx2.delete(
            self.server.url, headers={**self.server.headers, **named}, timeout=500
        ).status_code


def call(command: str, **more: object) -> dict[str, object]:
    arguments = {"skill": "pdf", "command": command, **more}
    return {"id": 1, "params": {"name": "skill_run", "arguments": arguments}}


def until(met: Callable[[], object]) -> None:
    deadline = time.monotonic() + 150
    while not met():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.02)


def test_a_client_that_was_killed_leaves_nothing_that_runs(server: Http) -> None:
    mark = str(time.time_ns())
    body = {"jsonrpc": "2.0", "method": "tools/call", **call(f"sleep {mark}")}
    with Session(server).open("POST", json.dumps(body).encode()):
        until(lambda: alive(mark))
    until(lambda: not alive(mark))


def test_the_end_of_a_session_ends_what_it_ran_in_the_background(server: Http) -> None:
    mark, other = str(time.time_ns()), str(time.time_ns() + 1)
    session, stays = Session(server), Session(server)
    session.send("tools/call", **call(f"sleep {mark}", background=True))
    stays.send("tools/call", **call(f"sleep {other}", background=True))
    assert alive(mark)
    assert session.end() == 200
    until(lambda: not alive(mark))
    assert alive(other), "nobody else is concerned"
    stays.end()
    until(lambda: not alive(other))


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": ""}, 401),
        ({"origin": "https://evil.example"}, 403),
        ({"host": "evil.example"}, 421),
    ],
    ids=["token", "no token", "origin", "host"],
)
def test_who_may_not_come_in_gets_nothing(server: Http, headers: dict[str, str], code: int) -> None:
    for method in ("GET", "POST", "DELETE"):
        sent = {**server.headers, **ACCEPT, **MODERN, **headers}
        answer = httpx2.request(method, server.url, headers=sent, timeout=500)
        assert answer.status_code == code
        assert "skillbelt" not in answer.text


@pytest.mark.parametrize("era", [{}, MODERN], ids=["older", "newer"])
@pytest.mark.parametrize(
    "body",
    [b"", b"nonsense", b"[]", b"{}", b"[" * 50_000, b"\xff\x00", b'{"jsonrpc":"2.0","id":1}'],
)
def test_nonsense_is_refused(server: Http, body: bytes, era: dict[str, str]) -> None:
    answer = post(server, body, **era)
    assert 400 <= answer.status_code < 500
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("era", [{}, MODERN], ids=["older", "newer"])
def test_a_body_has_an_end(server: Http, era: dict[str, str]) -> None:
    assert post(server, b"x" * (MAX_REQUEST_BYTES + 1), **era).status_code == 413

    def endless() -> Iterator[bytes]:
        for _ in range(10):
            yield b"x" * (MAX_REQUEST_BYTES // 8)

    sent = {**server.headers, **ACCEPT, **era}
    assert httpx2.post(server.url, content=endless(), headers=sent, timeout=500).status_code == 413


def test_other_paths_and_methods_are_not_there(server: Http) -> None:
    headers = {**server.headers, **ACCEPT}
    assert httpx2.get(server.url.removesuffix("/mcp") + "/", headers=headers).status_code == 404
    assert httpx2.put(server.url, headers=headers).status_code in (404, 405)


def test_a_session_that_is_not_there_is_not_found(server: Http) -> None:
    body = '{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'
    assert post(server, body, mcp_session_id="made-up").status_code == 404


def test_half_a_request_holds_up_nobody(server: Http) -> None:
    where = urlsplit(server.url)
    with socket.create_connection((where.hostname, where.port)) as slow:
        slow.sendall(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:")
        assert httpx2.post(server.url, timeout=500).status_code == 401


@pytest.mark.parametrize(("number", "mode"), [(signal.SIGTERM, "legacy"), (signal.SIGINT, "auto")])
def test_a_signal_ends_it_and_what_runs(place: Place, number: signal.Signals, mode: str) -> None:
    mark = str(time.time_ns())
    with over_http(place.tree, "--token", TOKEN, env=place.environ) as server:
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade"}
        assert httpx2.get(server.url, headers=upgrade, timeout=500).status_code == 401
        server = server._replace(token=TOKEN)

        async def main() -> None:
            # How a client reacts when the server ends is up to the client.
            with suppress(Exception):
                async with server.client(mode) as client, anyio.create_task_group() as group:
                    run = {"skill": "pdf", "command": f"sleep {mark}"}
                    group.start_soon(client.call_tool, "skill_run", run)
                    while not alive(mark):
                        await anyio.sleep(0.02)
                    ended.append(await anyio.to_thread.run_sync(server.end, number))

        ended = list[tuple[int, str]]()
        anyio.run(main)
    [(code, told)] = ended
    assert code == 0, told
    assert told == "", "nothing is wrong with an end, and no token is ever told"
    assert alive(mark) == []


@every_era
def test_a_signal_leaves_no_call_without_an_answer(place: Place, mode: str) -> None:
    marks = [str(time.time_ns() + number) for number in range(6)]
    told = list[str]()

    async def main(server: Http) -> None:
        async def one(mark: str) -> None:
            async with server.client(mode) as client:
                await client.list_tools()  # or it asks for them when it has the answer
                try:
                    run = {"skill": "pdf", "command": f"sleep {mark}"}
                    done = await client.call_tool("skill_run", run)
                    assert done.structured_content is not None
                    told.append(f"cancelled: {done.structured_content['cancelled']}")
                except MCPError as error:
                    told.append(str(error))

        async with anyio.create_task_group() as group:
            for mark in marks:
                group.start_soon(one, mark)
            while not all(alive(mark) for mark in marks):
                await anyio.sleep(0.02)
            server.process.send_signal(signal.SIGTERM)

    with over_http(place.tree, env=place.environ) as server:
        # A client that cannot say goodbye to an ended server may fail.
        with suppress(Exception):
            anyio.run(main, server)
        assert server.process.wait(150) == 0
    answers = {"cancelled: True", "the server is shutting down"}
    assert len(told) == len(marks)
    assert set(told) <= answers, told


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("127.0.0.1:8000", ("127.0.0.1", 8000)),
        ("Skills.Example:80", ("skills.example", 80)),
        (":9000", ("127.0.0.1", 9000)),
        ("9000", ("127.0.0.1", 9000)),
        ("localhost", ("localhost", 8765)),
        ("[::1]:8000", ("[::1]", 8000)),
        ("[::1]", ("[::1]", 8765)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
    ],
)
def test_what_an_address_means(text: str, meant: tuple[str, int]) -> None:
    assert parse_address(text) == meant


@pytest.mark.parametrize("text", ["a:b", "::1:80", "localhost:70000", "localhost:-1", "a:1:2"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        parse_address(text)


def test_an_address_in_use_is_told() -> None:
    with (
        open_socket(ListenAddress("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1"),
    ):
        open_socket(ListenAddress("127.0.0.1", taken.getsockname()[1]))


@pytest.mark.parametrize(
    "token", ["", "short", "x" * 15, "blank in the middle", "ü" * 20, "a\n" * 20]
)
def test_a_token_that_is_too_simple_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="token"):
        check_token(token)


def test_a_new_token_is_a_good_one() -> None:
    made = {new_token() for _ in range(100)}
    assert len(made) == 100
    assert all(check_token(token) for token in made)


def test_the_probes_and_the_metrics(server: Http) -> None:
    root = server.url.removesuffix("/mcp")
    for path in ("/health", "/ready"):
        assert httpx2.get(root + path, timeout=500).json() == {"status": "ok"}
    assert httpx2.get(f"{root}/metrics", timeout=500).status_code == 401
    found = httpx2.get(f"{root}/metrics", headers=server.headers, timeout=500)
    assert found.headers["content-type"].startswith("text/plain")
    assert "skillbelt_runs_running" in found.text
