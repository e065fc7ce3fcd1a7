from __future__ import annotations

import os

import pytest

from skillbelt.sandbox.process.streams import Feed, Sink


def test_a_sink_keeps_the_head_and_counts_all() -> None:
    read, write = os.pipe()
    heard: list[tuple[str, bytes]] = []
    sink = Sink(read, "stderr", 4, lambda stream, data: heard.append((stream, data)))
    os.write(write, b"abc")
    assert sink.take()
    os.write(write, b"def")
    assert sink.take() and sink.take()  # the second finds nothing, which is not the end
    os.close(write)
    assert not sink.take()
    assert sink.captured() == (b"abcd", 6)
    assert heard == [("stderr", b"abc"), ("stderr", b"def")]
    os.close(read)


def test_a_sink_does_not_wait_for_a_stranger() -> None:
    read, write = os.pipe()
    sink = Sink(read, "stdout", 100, None)
    os.write(write, b"left")
    sink.drain()
    assert sink.captured().data == b"left"
    os.close(read)
    os.close(write)


def test_a_terminal_that_nobody_holds_is_at_its_end() -> None:
    ours, theirs = os.openpty()
    sink = Sink(ours, "stdout", 100, None)
    os.write(theirs, b"x")
    os.close(theirs)
    assert sink.take()
    assert not sink.take()
    os.close(ours)


def test_a_feed_gives_as_much_as_is_taken() -> None:
    read, write = os.pipe()
    data = os.urandom(300_000)
    feed = Feed(write, data, terminal=False)
    found = b""
    while feed.waiting:
        feed.write()
        found += os.read(read, 50_000)
    assert feed.finished() and not feed.finished()
    os.close(write)
    while piece := os.read(read, 2**20):
        found += piece
    assert found == data
    os.close(read)


def test_a_feed_drops_what_nobody_reads() -> None:
    read, write = os.pipe()
    feed = Feed(write, None, terminal=False)
    feed.add(b"x")
    os.close(read)
    feed.write()
    assert feed.over and not feed.waiting
    with pytest.raises(BrokenPipeError):
        feed.add(b"y")
    os.close(write)


def test_a_feed_takes_nothing_after_its_end() -> None:
    read, write = os.pipe()
    feed = Feed(write, None, terminal=False)
    assert not feed.finished()
    feed.add(b"x")
    feed.end()
    assert not feed.finished()  # there is still something to write
    with pytest.raises(BrokenPipeError):
        feed.add(b"y")
    feed.write()
    assert feed.finished()
    os.close(read)
    os.close(write)
