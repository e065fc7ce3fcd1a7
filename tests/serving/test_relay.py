"""Requests from server to server through a store, in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from skillbelt.errors import RunRefused, StoreUnavailable
from skillbelt.events import NewEvent
from skillbelt.running.background import Polled
from skillbelt.running.call import RunResult
from skillbelt.running.outputs import OutputFile, Saved
from skillbelt.running.programs.hint import Hint
from skillbelt.serving import relay as module
from skillbelt.serving.answers import HttpRefusal
from skillbelt.serving.relay import SERVING, Relay
from skillbelt.serving.relayed_runs import decode_polled, encode
from skillbelt.store import SessionKey
from skillbelt.store.memory import MemoryStore
from skillbelt.store.protocol import NO_CHANGE


@pytest.fixture
def pair() -> Iterator[tuple[Relay, Relay, MemoryStore]]:
    store = MemoryStore()
    one, two = Relay(lambda: store), Relay(lambda: store)
    yield one, two, store
    one.close()
    two.close()


def double(data: Mapping[str, Any], _is_over: Callable[[], bool]) -> Mapping[str, Any]:
    return {"number": 2 * data["number"]}


def test_an_id_says_which_server_made_it(pair: tuple[Relay, Relay, MemoryStore]) -> None:
    one, two, _ = pair
    assert two.holder_of(one.mark("x")) == one.id
    assert one.holder_of(one.mark("x")) == ""
    for other in ("", "x", "nothing-here", 7, None, f"{one.id}x-y", "-", one.id):
        assert two.holder_of(other) == ""


def test_another_server_answers_and_nothing_stays(pair: tuple[Relay, Relay, MemoryStore]) -> None:
    one, two, store = pair
    two.handle("double", double)
    two.listen()
    assert one.call(two.id, "double", {"number": 4}) == {"number": 8}
    assert store.sessions(SERVING) == []


def test_what_ended_servers_left_goes_by_the_clock_of_the_store(
    pair: tuple[Relay, Relay, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _, store = pair
    store.append(SessionKey(SERVING, "ended", "call"), [NewEvent("call")])
    one._tidy()
    assert len(store.sessions(SERVING)) == 1
    ahead = store.now() + module.KEPT_SECONDS + 60
    monkeypatch.setattr(store, "now", lambda: ahead)
    one._tidy()
    assert store.sessions(SERVING) == []


def test_what_goes_wrong_there_is_said_here(pair: tuple[Relay, Relay, MemoryStore]) -> None:
    one, two, _ = pair

    def refuse(_data: Mapping[str, Any], _is_over: Callable[[], bool]) -> Mapping[str, Any]:
        raise RunRefused("not this one")

    two.handle("refuse", refuse)
    two.listen()
    with pytest.raises(HttpRefusal, match="not this one") as caught:
        one.call(two.id, "refuse", {})
    assert caught.value.kind == "run_refused"
    with pytest.raises(HttpRefusal, match="internal error"):
        one.call(two.id, "unknown", {})


def test_a_server_that_has_ended(
    pair: tuple[Relay, Relay, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, store = pair
    monkeypatch.setattr(module, "RECEIVED_SECONDS", 0.0)
    with pytest.raises(HttpRefusal, match="has ended") as caught:
        one.call(two.id, "double", {"number": 4})
    assert caught.value.kind == "gone"
    assert store.sessions(SERVING) == []


def test_a_request_that_is_given_up_is_noticed(
    pair: tuple[Relay, Relay, MemoryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, _ = pair
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(module, "_WATCH_SECONDS", 0.01)
    begun, noticed = threading.Event(), threading.Event()

    def wait(_data: Mapping[str, Any], is_over: Callable[[], bool]) -> Mapping[str, Any]:
        begun.set()
        while not is_over():
            noticed.wait(0.01)
        noticed.set()
        return {}

    two.handle("wait", wait)
    two.listen()
    with pytest.raises(HttpRefusal, match="given up"):
        one.call(two.id, "wait", {}, begun.is_set)
    assert noticed.wait(150)


def test_a_store_that_fails_for_a_moment_ends_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(module, "_WATCH_SECONDS", 0.01)
    failed, beaten = threading.Event(), threading.Event()

    class Store(MemoryStore):
        """Fails at the first beat of a request, and works again."""

        def append(
            self, key: SessionKey, events: Any, delta: Any = NO_CHANGE, *, lease: str = ""
        ) -> Any:
            if "beat" in delta:
                if not failed.is_set():
                    failed.set()
                    raise StoreUnavailable("away")
                beaten.set()
            return super().append(key, events, delta, lease=lease)

    store = Store()
    one, two = Relay(lambda: store), Relay(lambda: store)

    def wait(_data: Mapping[str, Any], _is_over: Callable[[], bool]) -> Mapping[str, Any]:
        assert beaten.wait(150)
        return {"number": 1}

    two.handle("wait", wait)
    two.listen()
    try:
        assert one.call(two.id, "wait", {}) == {"number": 1}
        assert failed.is_set()
    finally:
        two.close()


def test_the_result_of_a_run_is_the_same_at_another_server() -> None:
    result = RunResult(
        stdout="out",
        stderr="",
        exit_code=1,
        timed_out=False,
        duration_ms=7,
        output_files=(OutputFile("a", "b", "c", "d", 5),),
        primary_output=OutputFile("a", "b", "c", "d", 5, True),
        artifact_files=(Saved("a", 1),),
        warnings=("w",),
        enforced={"files": "x"},
        hints=(Hint("missing_program", "a", "b", install=("c",)),),
    )
    polled = Polled("x", "y", 1, 2, running=False, result=result)
    assert decode_polled(encode(polled)) == polled
