"""Frames arrive whole, however the engine cuts them; other data is not a frame."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.sandbox.container.channel import ContainerChannel, ContainerLost
from skillbelt.sandbox.inside.container import HEADER


@pytest.fixture
def ends() -> Iterator[tuple[ContainerChannel, socket.socket]]:
    ours, theirs = socket.socketpair()
    channel = ContainerChannel(ours)
    yield channel, theirs
    channel.close()
    theirs.close()


def wrapped(data: bytes, stream: int = 1) -> bytes:
    """The data that a container writes, wrapped as an engine sends it."""
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


def frame(kind: bytes, data: bytes = b"") -> bytes:
    return HEADER.pack(kind, len(data)) + data


@given(
    st.lists(st.tuples(st.sampled_from([b"1", b"2", b"D"]), st.binary(max_size=300)), min_size=1),
    st.lists(st.integers(1, 40), min_size=1),
    st.lists(st.integers(1, 40), min_size=1),
)
def test_frames_survive_any_cut(
    frames: list[tuple[bytes, bytes]], parts: list[int], reads: list[int]
) -> None:
    """By the engine into its own pieces, and by the socket."""
    stream = b"".join(frame(*one) for one in frames)
    engine = b"".join(wrapped(piece) for piece in cut(stream, parts))
    ours, theirs = socket.socketpair()
    channel = ContainerChannel(ours)
    with theirs:
        for piece in cut(engine, reads):
            theirs.sendall(piece)
            channel.receive()
    channel.close()
    assert list(channel.frames) == frames


def cut(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    at = number = 0
    while at < len(data):
        size = sizes[number % len(sizes)]
        yield data[at : at + size]
        at, number = at + size, number + 1


def test_what_is_said_on_the_side_is_kept_for_the_error(
    ends: tuple[ContainerChannel, socket.socket],
) -> None:
    channel, theirs = ends
    theirs.sendall(wrapped(b"it is broken\n" + b"x" * 10_000, stream=2))
    theirs.close()
    channel.receive()
    with pytest.raises(ContainerLost, match="it is broken"):
        channel.receive()
    assert len(channel.stderr_text) < 5_000


def test_the_end_is_told(ends: tuple[ContainerChannel, socket.socket]) -> None:
    channel, theirs = ends
    theirs.close()
    with pytest.raises(ContainerLost, match="has exited"):
        channel.receive()
    with pytest.raises(ContainerLost):
        channel.send(b"J", b"x")


def test_a_frame_without_end_is_refused(ends: tuple[ContainerChannel, socket.socket]) -> None:
    """It would fill the memory of the runtime."""
    channel, theirs = ends
    theirs.sendall(wrapped(HEADER.pack(b"1", 2**31)))
    with pytest.raises(ContainerLost, match="is too long"):
        channel.receive()


def test_nothing_to_read_is_no_end(ends: tuple[ContainerChannel, socket.socket]) -> None:
    channel, _ = ends
    channel.receive()
    assert not channel.frames


def test_what_is_expected_comes_and_the_rest_stays(
    ends: tuple[ContainerChannel, socket.socket],
) -> None:
    channel, theirs = ends
    theirs.sendall(wrapped(frame(b"S") + frame(b"1", b"early")))
    assert channel.expect((b"S", b"F"), 5) == (b"S", b"")
    assert list(channel.frames) == [(b"1", b"early")]
    with pytest.raises(ContainerLost, match="unexpected frame"):
        channel.expect((b"S",), 5)


def test_silence_is_not_waited_for_without_end(
    ends: tuple[ContainerChannel, socket.socket],
) -> None:
    with pytest.raises(ContainerLost, match="no answer from"):
        ends[0].expect((b"S",), 0.05)


def test_what_is_not_taken_at_once_is_sent_later(
    ends: tuple[ContainerChannel, socket.socket],
) -> None:
    channel, theirs = ends
    data = bytes(range(256)) * 2**14
    channel.send(b"I", data)
    assert channel.sending
    got = b""
    while len(got) < HEADER.size + len(data):
        got += theirs.recv(2**20)
        channel.flush()
    assert got == frame(b"I", data)
    assert not channel.sending
