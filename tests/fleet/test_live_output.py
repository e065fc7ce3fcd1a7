"""How much live output of a run is under way at most."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from skillbelt.fleet.live_output import OutputFeed, OutputWindow

WAIT_SECONDS = 300.0


def enter_in_thread(window: OutputWindow, size: int) -> tuple[threading.Thread, list[bool]]:
    """Enter from another thread; what came of it is in the list when the thread has ended."""
    found = list[bool]()
    thread = threading.Thread(target=lambda: found.append(window.enter(size)))
    thread.start()
    return thread, found


def test_output_waits_until_what_was_sent_is_taken() -> None:
    window = OutputWindow(10)
    assert window.enter(10)
    thread, found = enter_in_thread(window, 1)
    thread.join(0.05)
    assert found == []
    window.note_taken(1)
    thread.join(WAIT_SECONDS)
    assert found == [True]


def test_a_piece_that_is_larger_than_the_window_goes_alone() -> None:
    window = OutputWindow(10)
    assert window.enter(1_000)
    window.end_after(0)
    assert not window.enter(1)
    window.note_taken(1_000)
    assert window.enter(1_000)


def test_a_run_that_is_to_end_does_not_wait() -> None:
    window = OutputWindow(10)
    assert window.enter(10)
    thread, found = enter_in_thread(window, 1)
    window.end_after(0)
    window.end_after(WAIT_SECONDS)  # the command starts only now
    thread.join(WAIT_SECONDS)
    assert found == [False]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(-5, 200))))
def test_no_more_is_under_way_than_the_window_holds(steps: list[tuple[int, int]]) -> None:
    """For any number that a server reports."""
    window, sent, taken = OutputWindow(30), 0, 0
    window.end_after(0)
    for size, told in steps:
        if window.enter(size):
            assert sent == taken or sent + size - taken <= 30
            sent += size
        window.note_taken(told)
        taken = max(taken, min(told, sent))


def test_a_feed_keeps_the_beginning_until_it_is_followed() -> None:
    feed = OutputFeed()
    feed.listen("stdout", b"a" * 2**18)
    feed.listen("stdout", b"lost")
    feed.listen("stderr", b"kept")
    feed.follow()
    feed.listen("stdout", b"live")
    feed.end(7)
    assert [(name, data[-4:] if name != "end" else data) for name, data in feed.pieces()] == [
        ("stdout", b"aaaa"),
        ("stderr", b"kept"),
        ("stdout", b"live"),
        ("end", 7),
    ]
