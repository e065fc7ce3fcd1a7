"""The writes of a step: the step sees them at once, the store when it is complete."""

from __future__ import annotations

from skillbelt.agent.transaction import Journal
from skillbelt.events import NewEvent
from skillbelt.store import SessionKey
from skillbelt.store.memory import MemoryStore

KEY = SessionKey("app", "ada", "chat")
OTHER = SessionKey("app", "ada", "other")


def test_what_is_written_is_read_at_once_and_kept_later() -> None:
    store = MemoryStore()
    journal = Journal(store, KEY)
    page = journal.new_writes()
    page.append(KEY, [NewEvent("one")], {"a": "1"})
    assert [event.type for event in page.events(KEY)] == ["one"]
    assert page.state(KEY) == {"a": "1"}
    assert (store.events(KEY), store.state(KEY)) == ([], {})
    journal.commit(page.events_written, [page])
    assert [event.type for event in store.events(KEY)] == ["one"]
    assert store.state(KEY) == {"a": "1"}


def test_what_is_dropped_was_never_there() -> None:
    store = MemoryStore()
    store.append(KEY, [NewEvent("before")], {"a": "0"})
    journal = Journal(store, KEY)
    journal.new_writes().append(KEY, [NewEvent("one")], {"a": None})
    journal.drop()
    assert journal.state() == {"a": "0"}
    assert [event.type for event in journal.events()] == ["before"]


def test_events_are_numbered_as_they_will_be() -> None:
    store = MemoryStore()
    store.append(KEY, [NewEvent("before")])
    page = Journal(store, KEY).new_writes()
    [first] = page.append(KEY, [NewEvent("one")])
    [second] = page.append(KEY, [NewEvent("two")])
    assert (first.seq, second.seq) == (2, 3)
    assert [event.seq for event in page.events(KEY, after=1)] == [2, 3]


def test_only_the_parts_that_are_named_are_kept() -> None:
    store = MemoryStore()
    journal = Journal(store, KEY)
    good, bad = journal.new_writes(), journal.new_writes()
    good.append(KEY, [NewEvent("good")], {"good": "1"})
    bad.append(KEY, [NewEvent("bad")], {"bad": "1"})
    journal.commit(good.events_written, [good])
    assert store.state(KEY) == {"good": "1"}
    assert [event.type for event in store.events(KEY)] == ["good"]


def test_of_two_changes_of_a_key_the_later_is_kept() -> None:
    store = MemoryStore()
    journal = Journal(store, KEY)
    first, second = journal.new_writes(), journal.new_writes()
    second.append(KEY, [], {"a": "second"})
    first.append(KEY, [], {"a": "first"})
    journal.commit([], [first, second])
    assert store.state(KEY) == {"a": "first"}


def test_who_writes_after_the_step_is_over_changes_nothing() -> None:
    store = MemoryStore()
    journal = Journal(store, KEY)
    late = journal.new_writes()
    journal.drop()
    late.append(KEY, [NewEvent("late")], {"late": "1"})
    page = journal.new_writes()
    page.append(KEY, [NewEvent("one")], {"one": "1"})
    assert journal.commit(page.events_written, [page])
    assert store.state(KEY) == {"one": "1"}


def test_a_step_that_is_over_can_not_be_kept() -> None:
    store = MemoryStore()
    journal = Journal(store, KEY)
    page = journal.new_writes()
    page.append(KEY, [NewEvent("one")], {"one": "1"})
    journal.drop()
    assert not journal.commit(page.events_written, [page])
    assert store.sessions() == []


def test_what_others_add_meanwhile_is_seen_in_the_next_step() -> None:
    store = MemoryStore()
    journal = Journal(store, KEY)
    journal.new_writes().append(KEY, [], {"a": "1"})
    store.append(KEY, [NewEvent("other")], {"b": "2"})
    journal.drop()
    assert journal.state() == {"b": "2"}
    assert [event.type for event in journal.events()] == ["other"]


def test_another_session_is_the_store_itself() -> None:
    store = MemoryStore()
    page = Journal(store, KEY).new_writes()
    page.append(OTHER, [NewEvent("one")], {"a": "1"})
    assert store.state(OTHER) == page.state(OTHER) == {"a": "1"}
    assert page.events(OTHER) == store.events(OTHER)
    assert [info.key for info in page.sessions()] == [OTHER]
    assert page.delete(OTHER)
    assert page.expire(0.0) == 0


def test_nothing_is_written_for_nothing() -> None:
    store = MemoryStore()
    Journal(store, KEY).commit([], [])
    assert store.sessions() == []
