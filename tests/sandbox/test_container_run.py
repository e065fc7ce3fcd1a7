"""A run ends with an outcome, even when its container dies or sends nonsense."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from skillbelt.errors import SandboxUnavailable
from skillbelt.sandbox.container.channel import ContainerChannel
from skillbelt.sandbox.container.counters import ContainerCgroup, ContainerWatch
from skillbelt.sandbox.container.pool import Container, ContainerPool
from skillbelt.sandbox.container.run import ContainerRun, FrameInput, FrameOutput
from skillbelt.sandbox.inside import container as first_process
from skillbelt.sandbox.protocol import Captured, Job, Outcome
from skillbelt.testing.sandbox_suite import Place

HANG_SECONDS = 500.0


class Strange(Container):
    """A container whose first process is a thread of the test."""

    def __init__(self, end: socket.socket, theirs: socket.socket) -> None:
        self.channel, self.key, self.idle_since = ContainerChannel(end), "strange", 0.0
        self._theirs = theirs
        self.killed, self.ended = threading.Event(), threading.Event()

    def kill(self) -> None:
        self.killed.set()
        self._theirs.close()

    def discard(self) -> None:
        self.close()

    def close(self) -> None:
        self.channel.close()
        self.ended.set()


def frame(kind: bytes, data: bytes = b"") -> bytes:
    body = first_process.HEADER.pack(kind, len(data)) + data
    return b"\1\0\0\0" + len(body).to_bytes(4, "big") + body


STARTED = frame(first_process.STARTED)
ENDED = {"code": 0, "cpu": 0.0, "gone": True}
DONE = frame(first_process.DONE, json.dumps(ENDED).encode())


class Stage:
    """Runs a job against what a container says."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.pool = ContainerPool(1, 600.0, reuse=True)
        ours, self.theirs = socket.socketpair()
        self.container = Strange(ours, self.theirs)
        self.pool.take("strange", lambda: self.container, 1.0)

    def start(self, first: bytes, **fields: object) -> ContainerRun:
        job: Job = self._place.job("true", **fields)
        self.theirs.sendall(first)
        watch = ContainerWatch(job, "/tmp", ContainerCgroup(0), os.getpid())
        return ContainerRun(
            job=job,
            task={},
            container=self.container,
            pool=self.pool,
            enforced={"a": "b"},
            watch=watch,
            listener=None,
        )

    def outcome(self, *said: bytes, **fields: object) -> Outcome:
        running = self.start(STARTED, **fields)
        self.theirs.sendall(b"".join(said))
        outcome = running.wait(HANG_SECONDS)
        assert outcome is not None
        return outcome


@pytest.fixture
def stage(place: Place) -> Iterator[Stage]:
    made = Stage(place)
    yield made
    made.theirs.close()
    made.pool.close()
    made.container.close()


def test_a_run_that_goes_well_gives_its_container_back(stage: Stage) -> None:
    outcome = stage.outcome(frame(first_process.OUTPUT, b"a"), DONE, frame(first_process.CLEAN))
    assert (outcome.exit_code, outcome.stdout, outcome.left) == (0, Captured(b"a", 1), False)
    assert stage.pool.take("strange", lambda: pytest.fail("not given back"), HANG_SECONDS)


def test_a_container_that_is_not_clean_is_not_used_again(stage: Stage) -> None:
    assert stage.outcome(DONE, frame(first_process.UNCLEAN)).exit_code == 0
    assert stage.container.ended.wait(HANG_SECONDS)


def test_a_container_with_something_left_is_ended_before_the_result(stage: Stage) -> None:
    left = frame(first_process.DONE, json.dumps({**ENDED, "gone": False}).encode())
    outcome = stage.outcome(left, frame(first_process.UNCLEAN))
    assert (outcome.exit_code, outcome.left) == (0, True)
    assert stage.container.killed.is_set()


@pytest.mark.parametrize(
    "nonsense",
    [
        frame(b"?", b"what"),
        frame(first_process.DONE, b"not json"),
        frame(first_process.DONE, b"[]"),
        frame(first_process.DONE, b'{"code": "x", "cpu": 0, "gone": true}'),
        frame(first_process.DONE, b'{"code": 0, "cpu": 0}'),
        frame(first_process.HELLO),
        b"\1\0\0\0\xff\xff\xff\xff" + first_process.HEADER.pack(b"1", 2**31),
    ],
)
def test_nonsense_ends_the_container(stage: Stage, nonsense: bytes) -> None:
    """It can come only from one that was broken into."""
    outcome = stage.outcome(frame(first_process.OUTPUT, b"kept"), nonsense)
    assert (outcome.exit_code, outcome.stdout.data) == (137, b"kept")
    assert stage.container.killed.is_set()
    assert stage.container.ended.wait(HANG_SECONDS)


def test_a_container_that_is_gone_is_an_outcome(stage: Stage) -> None:
    running = stage.start(STARTED)
    stage.theirs.close()
    outcome = running.wait(HANG_SECONDS)
    assert outcome is not None
    assert (outcome.exit_code, outcome.cancelled, outcome.timed_out) == (137, False, False)


def test_one_that_does_not_end_at_its_time_is_ended_by_the_engine(stage: Stage) -> None:
    """The answer does not wait for it for long."""
    outcome = stage.outcome(timeout_seconds=0.1)
    assert (outcome.exit_code, outcome.timed_out) == (124, True)
    assert stage.container.killed.is_set()


def test_a_command_that_can_not_be_probed_is_told(stage: Stage) -> None:
    with pytest.raises(SandboxUnavailable, match="cannot start the command: no folder"):
        stage.start(frame(first_process.REFUSED, b"no folder"))
    assert stage.container.ended.wait(HANG_SECONDS)


def test_input_goes_as_far_as_it_is_taken(stage: Stage) -> None:
    """Unread input stays here, not in the memory of the container."""
    data = bytes(2**20)
    running = stage.start(STARTED, stdin=data)
    got = _received(stage.theirs)
    assert got < 2**20
    stage.theirs.sendall(frame(first_process.TAKEN, (2**17).to_bytes(4, "big")))
    more = _received(stage.theirs)
    assert 0 < more <= 2**17 + 1000
    stage.theirs.sendall(DONE + frame(first_process.CLEAN))
    assert running.wait(HANG_SECONDS) is not None


def _received(end: socket.socket) -> int:
    """How much comes until nothing comes any more."""
    end.settimeout(0.5)
    count = 0
    with suppress(TimeoutError):
        while True:
            count += len(end.recv(2**20))
    return count


def test_nobody_reads_any_more_is_told_to_who_writes(stage: Stage) -> None:
    running = stage.start(STARTED, stdin=None)
    stage.theirs.sendall(frame(first_process.BROKEN) + frame(first_process.OUTPUT, b"x"))
    for _ in range(200):
        try:
            running.write(b"more")
        except BrokenPipeError:
            break
        threading.Event().wait(0.01)
    else:
        pytest.fail("it goes on taking input")
    running.kill()
    stage.theirs.sendall(DONE + frame(first_process.CLEAN))
    assert running.wait(HANG_SECONDS) is not None


def test_pieces_of_input_are_as_long_as_there_is_room() -> None:
    given = FrameInput(b"12345")
    assert [given.take(2), given.take(10)] == [b"12", b"345"]
    assert not given.waiting and given.finished() and not given.finished()


def test_output_is_kept_to_its_limit() -> None:
    heard = FrameOutput("stdout", 3, None)
    for piece in (b"ab", b"cd", b"ef"):
        heard.add(piece)
    assert heard.captured() == Captured(b"abc", 6)
