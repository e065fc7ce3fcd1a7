"""Background runs, in the real sandbox."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt import Answer, PermissionDenied, Rule
from skillbelt.errors import RunRefused
from skillbelt.running.background import (
    MAX_BACKGROUND_BYTES,
    MAX_SESSION_ENDED,
    MAX_SESSION_RUNS,
    Background,
    Polled,
    Tail,
)
from skillbelt.running.call import Asker, RunCall
from skillbelt.store import SessionKey
from tests import needs
from tests.bench import KEY, ME, Bench
from tests.bounds import bounds
from tests.tree import Tree

linux = needs.linux
OTHER = SessionKey("app", "me", "two")


class Desk:
    """The background of a workbench, and short ways to use it."""

    def __init__(self, tree: Tree) -> None:
        self.bench = Bench(tree)
        self.workbench = self.bench.make()
        self.background = Background(self.workbench)

    def start(self, command: str, who: Asker = ME, **call: Any) -> str:
        skill = self.bench.belt.get_skill("echo")
        return self.background.start(skill, RunCall(command, **call), who)

    def poll(self, id: str, **more: Any) -> Polled:
        return self.background.poll(KEY, id, **more)

    def until(self, id: str, met: Callable[[Polled], object]) -> Polled:
        """Poll from the beginning until something is there."""
        deadline = time.monotonic() + 150
        while not met(polled := self.poll(id)):
            assert time.monotonic() < deadline, polled
            time.sleep(0.01)
        return polled

    def ended(self, id: str) -> Polled:
        return self.until(id, lambda polled: not polled.running)


@pytest.fixture
def desk(open_tree: Tree) -> Iterator[Desk]:
    desk = Desk(open_tree)
    yield desk
    desk.background.close()
    desk.bench.close()


# --- reading -------------------------------------------------------------------------------------


@linux
def test_a_run_goes_on_while_it_is_read(desk: Desk) -> None:
    id = desk.start("echo one; read line; echo two; exit 3")
    first = desk.poll(id, wait_seconds=30)
    assert (first.stdout, first.running, first.result) == ("one\n", True, None)
    desk.background.write(KEY, id, "\n")
    second = desk.poll(id, stdout_offset=first.stdout_offset, wait_seconds=30)
    assert (second.stdout, second.stdout_offset) == ("two\n", 8)
    result = desk.ended(id).result
    assert result is not None
    assert (result.exit_code, result.stdout) == (3, "one\ntwo\n")


@linux
def test_the_two_streams_have_their_own_offsets(desk: Desk) -> None:
    desk.ended(id := desk.start("echo out; echo error >&2"))
    polled = desk.poll(id, stdout_offset=4)
    assert (polled.stdout, polled.stderr) == ("", "error\n")
    assert (polled.stdout_offset, polled.stderr_offset) == (4, 6)


@linux
def test_what_is_read_again_is_the_same(desk: Desk) -> None:
    desk.ended(id := desk.start("echo same"))
    assert desk.poll(id) == desk.poll(id)


@linux
def test_a_poll_gives_so_much_at_once_and_says_that_there_is_more(desk: Desk) -> None:
    desk.ended(id := desk.start("for i in $(seq 8000); do printf €; done"))
    text, offset, more = "", 0, True
    while more:
        polled = desk.poll(id, stdout_offset=offset)
        assert 0 < len(polled.stdout.encode()) <= 16 * 1024
        text, offset, more = text + polled.stdout, polled.stdout_offset, polled.more
    assert text == "€" * 8000


@linux
def test_of_a_flood_the_end_is_kept_and_the_loss_is_said(desk: Desk) -> None:
    desk.ended(id := desk.start("head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end"))
    polled = desk.poll(id)
    total = 3_000_005
    assert (polled.stdout_dropped, polled.more) == (total - MAX_BACKGROUND_BYTES, True)
    last = desk.poll(id, stdout_offset=total - 8)
    assert (last.stdout, last.stdout_dropped, last.more) == ("xxx\nend\n", 0, False)


@linux
@pytest.mark.parametrize("offset", [-1, 5])
def test_an_offset_that_no_poll_gave_is_refused(desk: Desk, offset: int) -> None:
    desk.ended(id := desk.start("printf abcd"))
    for name in ("stdout_offset", "stderr_offset"):
        with pytest.raises(RunRefused, match=name):
            desk.poll(id, **{name: offset})


@linux
def test_waiting_ends_with_the_run(desk: Desk) -> None:
    id = desk.start("sleep 0.2")
    polled = desk.poll(id, wait_seconds=30)
    assert not polled.running and polled.result is not None


@given(st.text(max_size=200), st.integers(4, 12), st.integers(4, 9), st.lists(st.integers(0, 6)))
def test_pieces_of_a_stream_join_without_a_broken_character(
    text: str, keep: int, most: int, sizes: list[int]
) -> None:
    whole = text.encode("utf-8", "replace")
    tail, read, offset, dropped, fed = Tail(keep), "", 0, 0, 0
    pieces = itertools.cycle([*sizes, 5])
    while fed < len(whole) or offset < len(whole):
        size = next(pieces)
        tail.add(whole[fed : fed + size])
        fed = min(fed + size, len(whole))
        ended = fed == len(whole)
        piece = tail.read(offset, most, ended)
        read, offset, dropped = read + piece.text, piece.offset, dropped + piece.dropped
    assert "\ufffd" not in read or "\ufffd" in text
    assert len(read.encode()) + dropped == len(whole)


@given(st.lists(st.binary(max_size=30)), st.integers(1, 20))
def test_the_end_of_any_stream_is_kept_and_the_rest_counted(pieces: list[bytes], keep: int) -> None:
    tail, whole = Tail(keep), b"".join(pieces)
    for piece in pieces:
        tail.add(piece)
    assert tail.total == len(whole)
    found = tail.read(0, 1000, True)
    assert found.offset == len(whole)
    assert found.text == whole[found.dropped :].decode("utf-8", "replace")
    assert 0 <= found.dropped - max(0, len(whole) - keep) <= 3


# --- answering -----------------------------------------------------------------------------------


@linux
def test_input_can_be_given_until_it_is_closed(desk: Desk) -> None:
    id = desk.start("cat; echo done", stdin=b"first ")
    desk.background.write(KEY, id, "sécond ")
    desk.background.write(KEY, id, "third ", close=True)
    assert desk.ended(id).stdout == "first sécond third done\n"
    with pytest.raises(RunRefused, match="no more input"):
        desk.background.write(KEY, id, "x")


@linux
def test_no_input_is_taken_after_its_end(desk: Desk) -> None:
    id = desk.start("cat > /dev/null; sleep 60")
    desk.background.write(KEY, id, close=True)
    with pytest.raises(RunRefused, match="no more input"):
        desk.background.write(KEY, id, "x")


@linux
def test_a_command_that_ends_before_it_reads_is_no_error(desk: Desk) -> None:
    result = desk.ended(desk.start("true", stdin=b"x" * 200_000)).result
    assert result is not None and result.exit_code == 0


@linux
def test_input_is_bounded_however_it_comes(desk: Desk) -> None:
    bounds(max_stdin_bytes=10)
    workbench = desk.bench.make()
    background, skill = Background(workbench), desk.bench.belt.get_skill("echo")
    with pytest.raises(RunRefused, match="max_stdin_bytes"):
        background.start(skill, RunCall("cat", stdin=b"x" * 11), ME)
    id = background.start(skill, RunCall("cat", stdin=b"12345"), ME)
    background.write(KEY, id, "12345")
    with pytest.raises(RunRefused, match="max_stdin_bytes"):
        background.write(KEY, id, "6")
    background.close()


@linux
def test_a_terminal_is_talked_to(desk: Desk) -> None:
    id = desk.start("test -t 0 && read -p 'name? ' name && echo hello $name", terminal=True)
    desk.until(id, lambda polled: "name? " in polled.stdout)
    desk.background.write(KEY, id, "ada\n")
    assert "hello ada" in desk.ended(id).stdout


# --- ending --------------------------------------------------------------------------------------


@linux
def test_a_killed_run_is_over_and_keeps_what_it_said(desk: Desk) -> None:
    id = desk.start("echo begun; setsid sleep 300 & sleep 300")
    desk.until(id, lambda polled: polled.stdout)
    desk.background.kill(KEY, id)
    polled = desk.poll(id)
    assert polled.result is not None and polled.result.cancelled
    assert (polled.running, polled.stdout) == (False, "begun\n")
    desk.background.kill(KEY, id)


@linux
def test_all_runs_of_a_conversation_are_ended_at_once(desk: Desk) -> None:
    mine, others = desk.start("sleep 60"), desk.start("sleep 60", ME._replace(key=OTHER))
    desk.background.end(KEY)
    assert not desk.poll(mine).running
    assert desk.background.poll(OTHER, others).running
    desk.background.end(SessionKey("app", "me", "nobody"))


@linux
def test_the_deadline_counts_in_the_background_too(desk: Desk) -> None:
    """Case 63."""
    polled = desk.ended(desk.start("sleep 300", timeout_seconds=0.3))
    assert polled.result is not None and polled.result.timed_out


@linux
def test_a_run_nobody_looks_at_is_collected_and_recorded_once(desk: Desk) -> None:
    desk.start("echo hi > out/a", output_files=("out/a",))
    (listed,) = desk.background.list(KEY)
    deadline = time.monotonic() + 150
    while desk.background.list(KEY)[0].running:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert len(desk.bench.events("run")) == 1
    for _ in range(2):
        result = desk.poll(listed.id).result
        assert result is not None and result.output_files[0].content == "hi\n"
    assert len(desk.bench.events("run")) == 1


@linux
def test_the_workspace_is_in_use_as_long_as_the_run_is(desk: Desk) -> None:
    id = desk.start("cat")
    assert not desk.workbench.forget(KEY)
    desk.background.kill(KEY, id)
    assert desk.workbench.forget(KEY)


@linux
def test_a_run_that_can_not_be_recorded_says_so(desk: Desk) -> None:
    id = desk.start("read line")
    log = Path(desk.bench.belt.settings.state_dir, "audit", "log.jsonl")
    log.unlink()
    log.mkdir()
    desk.background.write(KEY, id, "\n")
    polled = desk.ended(id)
    log.rmdir()
    assert polled.result is None and "audit log" in polled.error


# --- starting ------------------------------------------------------------------------------------


@linux
def test_what_is_not_allowed_is_not_started(desk: Desk) -> None:
    workbench = desk.bench.make((Rule("run", "*", "ask"),), lambda _: Answer("reject", "no"))
    background = Background(workbench)
    with pytest.raises(PermissionDenied, match="no"):
        background.start(desk.bench.belt.get_skill("echo"), RunCall("true"), ME)
    assert background.list(KEY) == []


@linux
def test_a_call_that_is_refused_leaves_nothing(desk: Desk) -> None:
    for call in ({"timeout_seconds": -1}, {"inputs": [{"from": "http://x"}]}):
        with pytest.raises(RunRefused):
            desk.start("true", **call)
    assert desk.background.list(KEY) == []


@linux
def test_a_run_belongs_to_its_conversation(desk: Desk) -> None:
    id = desk.start("cat")
    background = desk.background
    for attempt in (
        lambda: background.poll(OTHER, id),
        lambda: background.kill(OTHER, id),
        lambda: background.write(OTHER, id, "x"),
        lambda: background.poll(KEY, id[:-1] + "g"),
    ):
        with pytest.raises(RunRefused, match="there is no run"):
            attempt()
    assert background.list(OTHER) == []
    assert desk.poll(id).running


@linux
def test_runs_are_listed_with_their_commands(desk: Desk) -> None:
    first, second = desk.start("echo a"), desk.start("cat")
    desk.ended(first)
    listed = desk.background.list(KEY)
    assert [(one.id, one.skill, one.command, one.running) for one in listed] == [
        (first, "echo", "echo a", False),
        (second, "echo", "cat", True),
    ]


@linux
def test_so_many_runs_go_on_at_once_and_no_more(desk: Desk) -> None:
    ids = [desk.start("cat") for _ in range(MAX_SESSION_RUNS)]
    assert len(set(ids)) == MAX_SESSION_RUNS
    with pytest.raises(RunRefused, match="end one of them first"):
        desk.start("cat")
    desk.start("cat", Asker(OTHER))
    desk.background.kill(KEY, ids[0])
    desk.start("cat")


@linux
def test_no_user_takes_the_places_of_others(desk: Desk) -> None:
    """Not with any number of conversations, nor with what has ended."""
    bounds(MAX_BACKGROUND_RUNS=8, MAX_ENDED=4)
    greedy = [Asker(SessionKey("app", "greedy", str(number))) for number in range(8)]
    with pytest.raises(RunRefused, match="4 of this user, 4 in all"):
        for who in greedy:
            desk.start("cat", who)
    mine = desk.start("cat")
    desk.background.kill(KEY, mine)
    for who in greedy:
        for id in [one.id for one in desk.background.list(who.key)]:
            desk.background.kill(who.key, id)
    for who in greedy:
        desk.background.kill(who.key, desk.start("cat", who))
    assert mine in [one.id for one in desk.background.list(KEY)]
    kept = sum(len(desk.background.list(who.key)) for who in greedy)
    assert kept == 4  # three, and the last one that began


@linux
def test_of_what_has_ended_the_last_are_kept(desk: Desk) -> None:
    ids = [desk.start(f"echo {number}") for number in range(MAX_SESSION_ENDED + 2)][:1]
    for one in desk.background.list(KEY):
        desk.ended(one.id)
    last = desk.start("echo last")
    desk.ended(last)
    kept = [one.id for one in desk.background.list(KEY)]
    assert len(kept) == MAX_SESSION_ENDED + 1
    assert ids[0] not in kept and last in kept


# --- leaving -------------------------------------------------------------------------------------


def threads() -> set[str]:
    return {one.name for one in threading.enumerate() if one.name != "skillbelt-spawn"}


@linux
def test_nothing_is_left_after_closing(open_tree: Tree) -> None:
    desk = Desk(open_tree)
    desk.bench.run("true", bench=desk.workbench)
    handles, going = set(os.listdir("/proc/self/fd")), threads()
    ids = [desk.start("setsid sleep 300 & cat", terminal=number % 2 == 0) for number in range(4)]
    desk.background.close()
    assert all(desk.poll(id).result for id in ids)
    assert threads() <= going  # a thread of an earlier test may still end
    assert set(os.listdir("/proc/self/fd")) <= handles
    assert desk.workbench.forget(KEY)
    with pytest.raises(RunRefused, match="closed"):
        desk.start("true")
    desk.bench.close()


@linux
def test_closing_while_somebody_is_asked_leaves_nothing_running(desk: Desk) -> None:
    asked, answer = threading.Event(), threading.Event()

    def ask(_: object) -> Answer:
        asked.set()
        answer.wait(150)
        return Answer("once")

    workbench = desk.bench.make((Rule("run", "*", "ask"),), ask)
    background, skill = Background(workbench), desk.bench.belt.get_skill("echo")
    found: list[str] = []
    starter = threading.Thread(
        target=lambda: found.append(background.start(skill, RunCall("sleep 300"), ME))
    )
    starter.start()
    assert asked.wait(150)
    closer = threading.Thread(target=background.close)
    closer.start()
    answer.set()
    for thread in (starter, closer):
        thread.join(150)
    polled = background.poll(KEY, found[0])
    assert polled.result is not None and polled.result.cancelled
