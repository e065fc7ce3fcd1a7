"""Carrying bytes between two sockets."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator

import pytest

from skillbelt.sandbox.network.relay import Overrun, SocketRelay

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Line:
    """Two clients, `left` and `right`, with a relay between them."""

    def __init__(self, most: int | None = None) -> None:
        self.left, inner = socket.socketpair()
        self.right, outer = socket.socketpair()
        self.relay = SocketRelay(inner, outer, most)
        for client in (self.left, self.right):
            client.setblocking(False)

    def move(self, times: int = 1) -> None:
        for _ in range(times):
            for end in self.relay.ends:
                self.relay.step(end, READ)

    def close(self) -> None:
        self.relay.close()
        self.left.close()
        self.right.close()


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.close()


def test_bytes_go_both_ways(line: Line) -> None:
    line.left.send(b"to the right")
    line.right.send(b"to the left")
    line.move()
    assert (line.right.recv(99), line.left.recv(99)) == (b"to the right", b"to the left")
    assert list(line.relay.received.values()) == [12, 11]


def test_one_direction_ends_while_the_other_goes_on(line: Line) -> None:
    line.left.shutdown(socket.SHUT_WR)
    line.move()
    assert line.right.recv(99) == b""
    line.right.send(b"still here")
    line.move()
    assert line.left.recv(99) == b"still here"
    assert not line.relay.done
    line.right.shutdown(socket.SHUT_WR)
    line.move()
    assert line.relay.done


def test_what_is_not_taken_is_kept_and_no_more_is_read_then(line: Line) -> None:
    """Memory is bounded, however much is sent."""
    inner, outer = line.relay.ends
    while line.relay.wants(inner) & READ:
        line.left.send(b"x" * 4096)
        line.move()
    assert line.relay.wants(outer) & WRITE
    assert len(line.relay.waiting[outer]) <= 2 * 64 * 2**10
    sent, got = line.relay.received[inner], 0
    while got < sent:
        got += len(line.right.recv(65536))
        line.relay.step(outer, WRITE)
    assert line.relay.wants(inner) & READ
    assert not line.relay.wants(outer) & WRITE


def test_what_was_sent_before_an_end_still_arrives(line: Line) -> None:
    line.left.send(b"last words")
    line.left.close()
    line.move(2)
    assert line.right.recv(99) == b"last words"
    assert line.right.recv(99) == b""


def test_more_than_was_announced_is_not_passed_on() -> None:
    line = Line(most=4)
    line.left.send(b"body")
    line.move()
    assert line.right.recv(99) == b"body"
    line.left.send(b"more")
    with pytest.raises(Overrun):
        line.move()
    with pytest.raises(BlockingIOError):
        line.right.recv(99)
    line.close()


def test_a_broken_connection_is_an_error(line: Line) -> None:
    line.right.close()
    line.left.send(b"x")
    with pytest.raises(OSError, match="pipe"):
        line.move(2)
