"""A real server process on real pipes: both protocols, hostile input, and its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from mcp_types import JSONRPCResponse

from skillbelt.mcp.stdio import MAX_REQUEST_BYTES, _encode
from tests import warm
from tests.benches import alive
from tests.examples import first_one
from tests.mcp.clients import (
    SERVE,
    Person,
    Place,
    get_skill,
    list_skills,
    over_stdio,
    text_of,
)
from tests.tree import Tree

anyio_test = pytest.mark.anyio
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "raw", "version": "1"},
}


class Raw:
    """A client that writes any lines."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self.input, self.output = process.stdin, process.stdout

    def write(self, data: bytes) -> None:
        self.input.write(data)
        self.input.flush()

    def ask(self, method: str, id: object = 1, **params: object) -> None:
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        self.write(json.dumps(message).encode() + b"\n")

    def answer(self) -> dict[str, Any]:
        """Return the next message that is not a notification."""
        while True:
            line = self.output.readline()
            assert line, self.process.stderr and self.process.stderr.read().decode()
            message: dict[str, Any] = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            if "method" not in message or "id" in message:
                return message

    def begin(self) -> None:
        self.ask("initialize", "begin", **INITIALIZE)
        self.begun = self.answer()["result"]
        assert self.begun["serverInfo"]["name"] == "skillbelt"
        self.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')

    def end_input(self) -> None:
        self.input.close()
        self.process.stdin = None

    def ended(self) -> tuple[int, str]:
        """Return the exit code and the text on stderr, once the process has ended."""
        _, told = self.process.communicate(timeout=500)
        return self.process.returncode, told.decode()


@contextmanager
def started(tree: Tree, *command: str, env: Mapping[str, str] = os.environ) -> Iterator[Raw]:
    process = warm.Popen[bytes](
        [sys.executable, *(command or SERVE)],
        cwd=tree.project,
        env={**env, "PYTHONWARNINGS": "error"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield Raw(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def shared(place: Place) -> Iterator[Raw]:
    """A running server, for tests that do not end it."""
    with started(place.tree, env=place.environ) as raw:
        raw.begin()
        yield raw


@anyio_test
@pytest.mark.parametrize("mode", first_one("auto", "legacy"))
async def test_the_official_client_uses_everything(skills: Tree, mode: str) -> None:
    person, told = Person(answer="once"), list[str]()

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async with over_stdio(skills, mode=mode, elicitation_callback=person) as client:
        [notes, pdf] = (await list_skills(client))["skills"]
        assert (await get_skill(client, pdf["uri"]))["skill"] == pdf
        assert notes["frontmatter"]["description"] == "Takes notes."
        assert "The body of pdf." in text_of(await client.call_tool("skill_load", {"skill": "pdf"}))
        run = {"skill": "pdf", "command": "echo one; sleep 0.3; echo two"}
        ran = await client.call_tool("skill_run", run, progress_callback=note)
        assert not ran.is_error
        assert ran.structured_content is not None
        assert ran.structured_content["stdout"] == "one\ntwo\n"
        kept = await client.call_tool(
            "skill_run", {"skill": "pdf", "command": "echo kept > $OUTPUT_DIR/x.txt"}
        )
        assert not kept.is_error
        read = await client.call_tool("read_file", {"file_name": "workspace://out/x.txt"})
        assert "kept" in text_of(read), "one connection is one conversation"
    assert told == ["one\n", "two\n"]
    assert len(person.asked) == 2


def test_the_extension_is_declared_in_the_handshake(shared: Raw) -> None:
    declared = shared.begun["capabilities"]
    assert declared["extensions"] == {"io.modelcontextprotocol/skills": {"directoryRead": True}}
    assert declared["experimental"] == declared["extensions"]


def test_nonsense_is_answered_and_harms_nobody(shared: Raw) -> None:
    raw = shared
    for line, code in (
        (b"nonsense\n", -32700),
        (b"{\n", -32700),
        (b"\xff\xfe\x00\n", -32700),
        (b"[]\n", -32600),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]\n', -32600),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}\n', -32600),
        (b'{"jsonrpc": "2.0", "id": [1], "result": {}}\n', -32600),
        (b"[" * 50_000 + b"\n", -32700),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "' + b"x" * MAX_REQUEST_BYTES + b'"}\n', -32600),
    ):
        raw.write(line)
        assert raw.answer()["error"]["code"] == code, line[:40]
    raw.write(b"\n  \n")
    for method, params, code in (
        ("no/such/method", {}, -32601),
        ("tools/call", {"name": 7}, -32602),
        ("tools/call", {}, -32602),
        ("resources/read", {"uri": "skill://../../etc/passwd"}, -32602),
        ("skills/get", {"uri": ["skill://pdf/SKILL.md"]}, -32602),
        ("skills/list", {"cursor": "\u0000"}, -32602),
    ):
        raw.ask(method, method, **params)
        answer = raw.answer()
        assert answer["id"] == method
        assert answer["error"]["code"] == code, method
    raw.ask("ping", "still there")
    assert raw.answer() == {"jsonrpc": "2.0", "id": "still there", "result": {}}


@pytest.mark.parametrize(
    ("id", "told"),
    [
        ('"a"', "a"),
        ("7", 7),
        ("null", None),
        ("true", None),
        ("1.5", None),
        ("9" * 4_000, None),
        ('"\\ud800"', None),
    ],
)
def test_a_request_that_is_none_is_refused_by_its_id(shared: Raw, id: str, told: object) -> None:
    """So that no client waits for its answer."""
    shared.write(f'{{"jsonrpc": "2.0", "id": {id}, "method": "ping", "params": 7}}\n'.encode())
    answer = shared.answer()
    assert (answer["id"], answer["error"]["code"]) == (told, -32600)


@pytest.mark.parametrize(
    "answer",
    [
        {"result": {"action": "decline"}},
        {"result": {"action": "cancel"}},
        {"result": {"action": "accept"}},
        {"result": {"action": "accept", "content": {"answer": "maybe"}}},
        {"result": {"action": "accept", "content": {"answer": {"once": True}}}},
        {"result": {"action": "yes", "content": {"answer": "once"}}},
        {"result": []},
        {"result": None},
        {"error": {"code": -1, "message": "no"}},
        {"error": "no"},
        {},
    ],
    ids=str,
)
def test_whatever_is_answered_but_yes_is_no(shared: Raw, answer: dict[str, object]) -> None:
    """And at once: no other answer of the client is awaited."""
    # What it prints is not in its text, which a refusal repeats.
    command = {"skill": "pdf", "command": "echo happened-$((40+2))"}
    shared.ask("tools/call", "run", name="skill_run", arguments=command)
    question = shared.answer()
    assert question["method"] == "elicitation/create"
    message = {"jsonrpc": "2.0", "id": question["id"], **answer}
    shared.write(json.dumps(message).encode() + b"\n")
    while (found := shared.answer()).get("id") != "run":
        assert found["error"]["code"] == -32600
    assert found["result"]["isError"] is True
    assert "happened-42" not in json.dumps(found["result"])


def test_a_huge_line_is_never_held_whole(shared: Raw) -> None:
    before = memory(shared.process.pid)
    for _ in range(2_000):
        shared.write(b"x" * 100_000)
    shared.write(b"\n")
    assert "max_request_bytes" in shared.answer()["error"]["message"]
    assert memory(shared.process.pid) - before < 50 * 2**20


def memory(pid: int) -> int:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_nothing_but_messages_is_written_to_the_output(skills: Tree) -> None:
    code = """
import os, subprocess, sys, threading, time
from skillbelt.cli import main
def noisy():
    while os.readlink("/proc/self/fd/1") != os.readlink("/proc/self/fd/2"):
        time.sleep(0.01)
    while True:
        print("stray", flush=True)
        subprocess.run(["echo", "stray child"])
        print("read", repr(sys.stdin.read()), file=sys.stderr, flush=True)
        time.sleep(0.02)
threading.Thread(target=noisy).start()
sys.exit(main(["serve", "mcp"]))
"""
    with started(skills, "-c", code) as raw:
        raw.begin()
        for _ in range(20):
            raw.ask("ping")
            assert raw.answer()["result"] == {}
            time.sleep(0.02)
        raw.process.kill()
        told = raw.ended()[1]
    assert "stray\n" in told
    assert "stray child\n" in told
    assert "read ''" in told


def sleeping(raw: Raw, mark: str) -> None:
    """Let the server run a command that does not end by itself."""
    run = {"skill": "pdf", "command": f"sleep {mark}"}
    raw.ask("tools/call", "run", name="skill_run", arguments=run)
    wait(lambda: bool(alive(mark)))


def wait(what: Callable[[], bool]) -> None:
    until = time.monotonic() + 150
    while not what():
        assert time.monotonic() < until, "it never came to that"
        time.sleep(0.02)


@pytest.mark.parametrize("how", ["end of input", signal.SIGTERM, signal.SIGINT], ids=str)
def test_its_end_ends_what_runs(skills: Tree, how: str | signal.Signals) -> None:
    skills.setenv("SKILLBELT_SANDBOX", "auto")
    skills.write("home/.config/skillbelt/config.toml", '[permission]\nrun = "allow"\n')
    mark = str(time.time_ns())
    with started(skills) as raw:
        raw.begin()
        sleeping(raw, mark)
        if isinstance(how, signal.Signals):
            raw.process.send_signal(how)
        else:
            raw.end_input()
        code, told = raw.ended()
    assert (code, told) == (0, "")
    assert alive(mark) == []


def test_a_cancelled_call_ends_its_command_and_nothing_else(shared: Raw) -> None:
    mark = str(time.time_ns())
    sleeping(shared, mark)
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    shared.write(json.dumps({**cancel, "params": {"requestId": "run"}}).encode() + b"\n")
    wait(lambda: not alive(mark))
    shared.ask("tools/list", "after")
    assert shared.answer()["id"] == "after"


def test_a_client_that_does_not_read_does_not_keep_it_from_ending(skills: Tree) -> None:
    with started(skills) as raw:
        raw.begin()
        for number in range(200):
            raw.ask("tools/list", number)
        time.sleep(0.3)
        raw.process.send_signal(signal.SIGTERM)
        raw.process.wait(150)
    assert raw.process.returncode == 0


def test_an_answer_that_no_encoder_takes_is_an_error() -> None:
    good = _encode(JSONRPCResponse(jsonrpc="2.0", id=1, result={"text": "ü"}))
    assert json.loads(good)["result"] == {"text": "ü"}
    bad = json.loads(_encode(JSONRPCResponse(jsonrpc="2.0", id=7, result={"text": "\ud800"})))
    assert (bad["id"], bad["error"]["code"]) == (7, -32603)


def test_a_flood_that_ends_with_a_signal_leaves_no_trace(skills: Tree) -> None:
    with started(skills) as raw:
        raw.begin()
        flood = threading.Thread(target=pour, args=(raw,))
        flood.start()
        time.sleep(0.2)
        raw.process.send_signal(signal.SIGTERM)
        raw.output.read()
        flood.join()
        with suppress(OSError):
            raw.input.close()
        raw.process.stdin = None
        code, told = raw.ended()
    assert (code, told) == (0, "")


def pour(raw: Raw) -> None:
    """Send request after request, and never read an answer."""
    with suppress(OSError):
        while True:
            raw.ask("ping")


def test_what_was_asked_before_the_input_ended_is_answered_or_not_and_it_ends(skills: Tree) -> None:
    with started(skills) as raw:
        raw.begin()
        raw.ask("tools/list", "last")
        raw.end_input()
        assert raw.process.wait(150) == 0


def test_a_secret_that_a_run_was_given_is_not_in_its_progress(shared: Raw) -> None:
    run = {
        "skill": "pdf",
        "command": "printf s3cret-; sleep 0.2; printf token",
        "env": {"API_TOKEN": "s3cret-token"},
    }
    call = {"name": "skill_run", "arguments": run, "_meta": {"progressToken": "p"}}
    shared.ask("tools/call", "secret", **call)
    question = shared.answer()
    assert question["method"] == "elicitation/create"
    answer = {"action": "accept", "content": {"answer": "once"}}
    yes = {"jsonrpc": "2.0", "id": question["id"], "result": answer}
    shared.write(json.dumps(yes).encode() + b"\n")
    told = b""
    while b'"id":"secret"' not in told:
        told += shared.output.readline()
    assert b"notifications/progress" in told
    assert b"s3cret" not in told
    assert told.count(b"[API_TOKEN]") >= 2
