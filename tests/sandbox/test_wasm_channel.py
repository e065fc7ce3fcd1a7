"""The messages of a worker are bounded, and believed about itself alone."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator

import pytest

from skillbelt.sandbox.wasm.engine import (
    EngineGone,
    EngineProcess,
    Worker,
    WorkerChannel,
    WorkerProtocolError,
)
from skillbelt.sandbox.wasm.pool import WasmPool
from skillbelt.values import Limits


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def packed(head: bytes, body: bytes = b"") -> bytes:
    return struct.pack("<II", len(head), len(body)) + head + body


def test_a_message_may_come_in_pieces(ends: tuple[socket.socket, socket.socket]) -> None:
    channel = WorkerChannel(ends[0], 100)
    data = packed(b'{"a": 1}', b"body") + packed(b"{}")
    for place in range(len(data)):
        assert channel.receive() == -1
        ends[1].send(data[place : place + 1])
        assert channel.receive() == 1
        found = channel.message()
        if place == len(data) - 11:
            assert found == ({"a": 1}, b"body")
        elif place == len(data) - 1:
            assert found == ({}, b"")
        else:
            assert found is None
    ends[1].close()
    assert channel.receive() == 0


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<II", 2**20 + 1, 0),
        struct.pack("<II", 2, 101),
        packed(b"[]"),
        packed(b"1"),
        packed(b'{"a'),
        packed(b"\xff\xff"),
        packed(b"[" * 200_000),
    ],
)
def test_what_is_no_message_is_told(ends: tuple[socket.socket, socket.socket], data: bytes) -> None:
    channel = WorkerChannel(ends[0], 100)
    ends[1].sendall(data)
    with pytest.raises(WorkerProtocolError):
        while channel.receive() > 0:
            channel.message()


def test_what_is_sent_is_what_a_worker_reads(ends: tuple[socket.socket, socket.socket]) -> None:
    from skillbelt.sandbox.wasm import worker

    WorkerChannel(ends[0], 0).send({"status": 200}, b"body")
    assert worker.read_frame(ends[1]) == ({"status": 200}, b"body")
    ends[1].sendall(worker.frame({"result": {}}, b"x"))
    channel = WorkerChannel(ends[0], 1)
    channel.receive()
    assert channel.message() == ({"result": {}}, b"x")


def test_an_engine_that_is_gone_is_told() -> None:
    """At once, not after a time."""
    engine = EngineProcess(60.0)
    engine.stop(wait=True)
    with pytest.raises(EngineGone):
        Worker(engine, {"do": "run"}, [], 0)


def test_a_message_of_the_engine_has_the_worker_with_it() -> None:
    pool = WasmPool(Limits())
    engine = pool.engine()
    assert json.loads(engine.flavour)["version"]
    pool.close()
    assert not engine.alive
