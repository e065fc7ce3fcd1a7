"""Conformance suites for your own back ends, run by pytest.

See docs/how-to/sessions.md, docs/how-to/files.md and docs/security.md.
"""

import threading
import time
from collections.abc import Callable

from skillbelt.artifacts.conformance import (
    ALL,
    KEY,
    OTHER_APP,
    SAME_APP,
    SAME_USER,
    ArtifactStoreConformance,
    together,
)
from skillbelt.errors import LeaseLost
from skillbelt.events import NewEvent
from skillbelt.store.protocol import SessionKey, Store, StoreWatch, lease_topic, list_sessions
from skillbelt.testing.audit_suite import AuditConformance
from skillbelt.testing.executor_suite import ExecutorConformance
from skillbelt.testing.sandbox_suite import SandboxConformance

__all__ = [
    "ArtifactStoreConformance",
    "AuditConformance",
    "ExecutorConformance",
    "SandboxConformance",
    "StoreConformance",
]

# Texts that stores are known to fold, cut or refuse.
TEXTS = (
    "", " ", "a", "A", "a ", "é", "e\u0301", "日本", "😀", "\0", "a\0b", "\r\n", "'\"\\", "%_*",
    "1", "1.0", "null", "\ud800", "\udfff\ud800", "\ud83d\ude00", "\ufeff", "\uffff", "x" * 100_000,
)  # fmt: skip
THREADS = 8
# Generous, for a busy machine: a store that keeps its promise needs no time.
WAIT_SECONDS = 60.0


class StoreConformance:
    """Every promise of `Store`. Give a `store` fixture: an empty one for each test."""

    def test_a_new_store_is_empty(self, store: Store) -> None:
        """Reading a missing session is not an error and creates nothing."""
        assert store.events(KEY) == []
        assert store.state(KEY) == {}
        assert store.delete(KEY) is False
        assert store.expire(time.time() + 1) == 0
        assert store.sessions() == []

    def test_events_come_back_in_order_and_numbered(self, store: Store) -> None:
        """Numbers count from 1 over all appends of the session, without gaps."""
        first = store.append(KEY, [NewEvent("a", "root", {"n": 1}), NewEvent("b")])
        second = store.append(KEY, [NewEvent("c")])
        assert [(event.seq, event.type, event.agent) for event in first + second] == [
            (1, "a", "root"),
            (2, "b", ""),
            (3, "c", ""),
        ]
        assert first[0].data == {"n": 1}
        assert store.events(KEY) == first + second

    def test_each_session_counts_for_itself(self, store: Store) -> None:
        """No two keys share a log, even if they are similar."""
        for _ in range(2):
            for key in ALL:
                store.append(key, [NewEvent("|".join(key))])
        for key in ALL:
            assert [(e.seq, e.type) for e in store.events(key)] == [
                (1, "|".join(key)),
                (2, "|".join(key)),
            ]

    def test_parts_of_a_key_do_not_run_together(self, store: Store) -> None:
        """`a` and `bc` are not `ab` and `c`, with any separator between them."""
        keys = [
            SessionKey(*parts)
            for mark in ("", "/", ":", "\0", "|")
            for parts in (("a", f"b{mark}c", "d"), (f"a{mark}b", "c", "d"), ("a", "b", f"c{mark}d"))
        ]
        for key in keys:
            store.append(key, [NewEvent(repr(key))])
        assert [store.events(key)[-1].type for key in keys] == [repr(key) for key in keys]
        assert [info.key for info in store.sessions()] == sorted(set(keys))

    def test_events_after_a_number(self, store: Store) -> None:
        """Only newer events, so that a reader can continue where it stopped."""
        events = store.append(KEY, [NewEvent(str(n)) for n in range(5)])
        for after in range(7):
            assert store.events(KEY, after=after) == events[after:]
        assert store.events(KEY, after=-3) == events
        assert store.events(KEY, after=2**70) == []

    def test_times_are_of_now(self, store: Store) -> None:
        """Events and sessions carry the time of the append."""
        before = time.time()
        (event,) = store.append(KEY, [NewEvent("a")])
        after = time.time()
        (info,) = store.sessions()
        assert before <= event.time <= after
        assert before <= info.created <= info.updated <= after
        assert abs(store.now() - time.time()) < 60
        assert store.now() <= store.now()

    def test_data_comes_back_as_json_has_it(self, store: Store) -> None:
        """Every kind of JSON value, at any depth."""
        data = {
            "null": None, "yes": True, "no": False, "int": -(2**70), "float": 0.1, "tiny": 5e-324,
            "list": [1, [2, [{}]], {"a": []}], "": {"é\0": "\n"},
        }  # fmt: skip
        (event,) = store.append(KEY, [NewEvent("a", "", data)])
        assert event.data == data
        assert store.events(KEY)[0].data == data
        assert list(store.events(KEY)[0].data) == list(data)

    def test_any_text_comes_back_as_it_is(self, store: Store) -> None:
        """Type, agent, data, state and key are not folded, cut, normalised or refused."""
        for text in TEXTS:
            key = SessionKey(text, text, text)
            store.append(key, [NewEvent(text, text, {text: text})], {text: text, "user:x": text})
        for text in TEXTS:
            key = SessionKey(text, text, text)
            (event,) = store.events(key)
            assert event[2:] == (text, text, {text: text})
            assert store.state(key) == {text: text, "user:x": text}
            assert [info.key for info in store.sessions(text, text)] == [key]
            assert store.delete(key)

    def test_what_is_given_is_copied(self, store: Store) -> None:
        """Changing a value that was given or returned changes nothing in the store."""
        data: dict[str, object] = {"list": [1]}
        delta: dict[str, str | None] = {"a": "1"}
        (given,) = store.append(KEY, [NewEvent("a", "", data)], delta)
        for found in (data, given.data, store.events(KEY)[0].data):
            kept = found["list"]
            assert isinstance(kept, list)
            kept.append(2)
        delta["a"] = "2"
        store.state(KEY)["a"] = "3"
        assert store.events(KEY)[0].data == {"list": [1]}
        assert store.state(KEY) == {"a": "1"}

    def test_what_json_can_not_hold_changes_nothing(self, store: Store) -> None:
        """One bad event: neither the good ones beside it nor the state are stored."""
        deep: list[object] = []
        for _ in range(100_000):
            deep = [deep]
        for bad in (object(), {1, 2}, b"x", float("nan"), float("inf"), deep):
            events = [NewEvent("good"), NewEvent("bad", "", {"x": bad})]
            _expect_refusal(lambda events=events: store.append(KEY, events, {"a": "1"}))  # type: ignore[misc]
        assert (store.events(KEY), store.state(KEY), store.sessions()) == ([], {}, [])

    def test_state_that_is_not_text_changes_nothing(self, store: Store) -> None:
        """State values are text."""
        bad: dict[str, str | None] = {"a": "1", "b": 2}  # type: ignore[dict-item]
        _expect_refusal(lambda: store.append(KEY, [NewEvent("a")], bad))
        assert (store.events(KEY), store.state(KEY)) == ([], {})

    def test_state_is_set_changed_and_deleted(self, store: Store) -> None:
        """A key that a delta does not name stays; None deletes, also a missing key."""
        store.append(KEY, [], {"a": "1", "b": "", "temp:c": "3"})
        store.append(KEY, [NewEvent("x")], {"a": "2", "b": None, "never": None})
        assert store.state(KEY) == {"a": "2", "temp:c": "3"}

    def test_session_state_is_the_sessions_own(self, store: Store) -> None:
        """Every key without a shared prefix, `temp:` and look-alikes included."""
        delta = {"a": "1", "temp:a": "1", "App:a": "1", "user": "1", "application:a": "1"}
        store.append(KEY, [], delta)
        assert store.state(KEY) == delta
        assert [store.state(key) for key in ALL[1:]] == [{}, {}, {}]

    def test_user_state_is_shared_by_the_users_sessions(self, store: Store) -> None:
        """In one app only, and also by sessions that do not exist yet."""
        store.append(KEY, [], {"user:lang": "de"})
        assert store.state(SAME_USER) == {"user:lang": "de"}
        assert store.state(SAME_APP) == store.state(OTHER_APP) == {}
        store.append(SAME_USER, [], {"user:lang": None})
        assert store.state(KEY) == {}

    def test_app_state_is_shared_by_all_users(self, store: Store) -> None:
        """Of that app only."""
        store.append(KEY, [], {"app:version": "1"})
        store.append(SAME_APP, [], {"app:version": "2"})
        assert store.state(KEY) == store.state(SAME_USER) == {"app:version": "2"}
        assert store.state(OTHER_APP) == {}

    def test_scopes_are_shown_together(self, store: Store) -> None:
        """One map of all three."""
        store.append(KEY, [], {"app:a": "1", "user:a": "2", "a": "3"})
        assert store.state(KEY) == {"app:a": "1", "user:a": "2", "a": "3"}

    def test_sessions_are_listed_in_order_with_their_counts(self, store: Store) -> None:
        """By key, in any order of creation."""
        for key in (OTHER_APP, SAME_APP, KEY):
            store.append(key, [NewEvent("a"), NewEvent("b")])
        store.append(SAME_USER, [])
        assert [(info.key, info.events) for info in store.sessions()] == [
            (KEY, 2),
            (SAME_USER, 0),
            (SAME_APP, 2),
            (OTHER_APP, 2),
        ]

    def test_sessions_of_an_app_of_a_user_and_of_both(self, store: Store) -> None:
        """A name is matched whole."""
        for key in ALL:
            store.append(key, [NewEvent("a")])

        def listed(app: str | None = None, user: str | None = None) -> list[SessionKey]:
            return [info.key for info in store.sessions(app, user)]

        assert listed(app="app") == [KEY, SAME_USER, SAME_APP]
        assert listed(user="ada") == [KEY, SAME_USER, OTHER_APP]
        assert listed(app="app", user="ada") == [KEY, SAME_USER]
        assert listed(app="ap") == listed(user="ADA") == listed(app="") == []

    def test_sessions_come_in_pages(self, store: Store) -> None:
        """A page continues after a key, whether or not that session exists."""
        odd = [*sorted({*TEXTS} - {"x" * 100_000}), "x" * 3000]
        keys = sorted(SessionKey("app", user, name) for user in odd for name in ("", "\0", "x"))
        for key in [*keys, OTHER_APP]:
            store.append(key, [NewEvent("a")])
        for app, wanted in ((None, sorted([*keys, OTHER_APP])), ("app", keys)):
            for size in (1, 7, 1000):
                assert [one.key for one in list_sessions(store, app, page=size)] == wanted
        for at, key in enumerate(keys):
            page = store.sessions("app", after=key, limit=2)
            assert [info.key for info in page] == keys[at + 1 : at + 3]
            assert store.sessions("app", key.user, after=key) == [
                info for info in store.sessions("app", key.user) if info.key > key
            ]
        assert store.sessions(after=SessionKey("app", "ada", "a"), limit=0) == []
        between = store.sessions("app", after=SessionKey("app", "a", "a"), limit=1)
        assert [info.key for info in between] == [SessionKey("app", "a", "x")]

    def test_a_watch_hears_of_a_change(self, store: Store) -> None:
        """Also a change before the wait, and only once."""
        watch = store.watch("topic")
        try:
            _settle(watch)
            store.append(KEY, [NewEvent("a")])
            store.wake("topic")
            assert watch.wait(WAIT_SECONDS)
            _settle(watch)
            ready = threading.Event()

            def change(_: int) -> None:
                ready.wait()
                store.append(KEY, [NewEvent("b")])
                store.wake("topic")

            def wait(_: int) -> None:
                ready.set()
                assert watch.wait(WAIT_SECONDS)

            together(lambda n: (change, wait)[n](n), 2)
        finally:
            watch.close()

    def test_a_topic_needs_no_watch(self, store: Store) -> None:
        """Then waking has no effect, for every topic name."""
        for topic in TEXTS:
            store.wake(topic)

    def test_a_session_is_taken_by_one_at_a_time(self, store: Store) -> None:
        """The caller learns the holder; a second call with the same number is the same lease."""
        mine = store.take_lease(KEY, "1", "ada's server", 60)
        assert mine[:2] == ("1", "ada's server")
        assert store.now() < mine.until <= store.now() + 60
        assert store.take_lease(KEY, "2", "other", 60) == mine
        assert store.take_lease(KEY, "1", "ada's server", 60).number == "1"
        assert [store.take_lease(key, "2", "", 60).number for key in ALL[1:]] == ["2"] * 3
        assert store.sessions() == []

    def test_a_lease_is_given_back(self, store: Store) -> None:
        """Only by its number; its appends stay."""
        store.take_lease(KEY, "1", "", 60)
        store.append(KEY, [NewEvent("a")], lease="1")
        store.release_lease(KEY, "2")
        assert store.take_lease(KEY, "2", "", 60).number == "1"
        store.release_lease(KEY, "1")
        assert store.take_lease(KEY, "2", "", 60).number == "2"
        assert [event.type for event in store.events(KEY)] == ["a"]

    def test_who_waits_for_a_session_is_woken(self, store: Store) -> None:
        """When its lease is released."""
        store.take_lease(KEY, "1", "", 60)
        watch = store.watch(lease_topic(KEY))
        try:
            _settle(watch)
            store.release_lease(KEY, "1")
            assert watch.wait(WAIT_SECONDS)
        finally:
            watch.close()

    def test_a_lease_that_ran_out_is_lost_to_the_next(self, store: Store) -> None:
        """From then on it cannot append, be renewed or be released."""
        store.take_lease(KEY, "1", "", 0)
        assert store.take_lease(KEY, "2", "", 60).number == "2"
        assert store.renew_lease(KEY, "1", 60) is False
        _expect_lease_lost(lambda: store.append(KEY, [NewEvent("late")], {"a": "1"}, lease="1"))
        assert (store.events(KEY), store.state(KEY), store.sessions()) == ([], {}, [])
        store.release_lease(KEY, "1")
        store.append(KEY, [NewEvent("next")], lease="2")
        assert [event.type for event in store.events(KEY)] == ["next"]
        store.release_lease(KEY, "2")
        _expect_lease_lost(lambda: store.append(KEY, [NewEvent("late")], lease="1"))

    def test_a_lease_that_no_other_took_goes_on(self, store: Store) -> None:
        """Also after it expired."""
        store.take_lease(KEY, "1", "", 0)
        assert len(store.append(KEY, [NewEvent("a")], lease="1")) == 1
        assert store.renew_lease(KEY, "1", 60) is True
        assert store.take_lease(KEY, "2", "", 60).number == "1"

    def test_an_append_without_a_lease_needs_none(self, store: Store) -> None:
        """Even if another has the session: a lease is for turns."""
        store.take_lease(KEY, "1", "", 60)
        assert len(store.append(KEY, [NewEvent("a")])) == 1

    def test_a_deleted_session_has_no_lease(self, store: Store) -> None:
        """So that a running turn does not create it again."""
        store.take_lease(KEY, "1", "", 60)
        store.append(KEY, [NewEvent("a")], lease="1")
        assert store.delete(KEY)
        _expect_lease_lost(lambda: store.append(KEY, [NewEvent("b")], lease="1"))
        assert store.sessions() == []

    def test_leases_of_long_ago_are_forgotten(self, store: Store) -> None:
        """Expired with the sessions of that time; an active one stays."""
        store.take_lease(KEY, "1", "", 0)
        store.take_lease(SAME_USER, "1", "", 3600)
        assert store.expire(store.now() + 60) == 0
        assert store.renew_lease(KEY, "1", 60) is False
        assert store.renew_lease(SAME_USER, "1", 60) is True

    def test_one_of_many_threads_gets_a_session(self, store: Store) -> None:
        """All ask at once, and get the same holder as the answer."""
        holders: list[str] = []
        together(lambda n: holders.append(store.take_lease(KEY, str(n), "", 60).number), THREADS)
        assert (len(holders), len(set(holders))) == (THREADS, 1)

    def test_each_append_touches_its_session(self, store: Store) -> None:
        """Also one without events; the others stay as they were."""
        store.append(KEY, [NewEvent("a")])
        store.append(SAME_USER, [NewEvent("a")])
        first, other = store.sessions()
        _wait_for_clock(first.updated)
        store.append(KEY, [])
        touched, same = store.sessions()
        assert touched.created == first.created
        assert touched.updated > first.updated
        assert same == other

    def test_delete_takes_events_and_session_state(self, store: Store) -> None:
        """Shared state and other sessions stay; a second time there is nothing."""
        for key in ALL:
            store.append(key, [NewEvent("a")], {"mine": "1"})
        store.append(KEY, [], {"user:a": "2", "app:a": "3"})
        assert store.delete(KEY) is True
        assert store.events(KEY) == []
        assert store.state(KEY) == {"user:a": "2", "app:a": "3"}
        assert [info.key for info in store.sessions()] == [SAME_USER, SAME_APP, OTHER_APP]
        for key in ALL[1:]:
            assert len(store.events(key)) == 1
            assert store.state(key)["mine"] == "1"
        assert store.delete(KEY) is False

    def test_a_deleted_session_can_begin_again(self, store: Store) -> None:
        """With the number 1 and none of its old state."""
        store.append(KEY, [NewEvent("old"), NewEvent("old")], {"a": "1"})
        store.delete(KEY)
        (event,) = store.append(KEY, [NewEvent("new")])
        assert event.seq == 1
        assert store.events(KEY) == [event]
        assert store.state(KEY) == {}

    def test_expire_takes_what_was_not_touched_since(self, store: Store) -> None:
        """A session touched at exactly that time stays; shared state stays."""
        store.append(KEY, [NewEvent("a")], {"mine": "1", "user:a": "2"})
        store.append(SAME_APP, [NewEvent("a")])
        _wait_for_clock(store.sessions()[1].updated)
        store.append(SAME_APP, [NewEvent("b")])
        (_, kept) = store.sessions()
        assert store.expire(kept.updated) == 1
        assert store.sessions() == [kept]
        assert store.events(KEY) == []
        assert store.state(KEY) == {"user:a": "2"}
        assert store.expire(kept.updated) == 0
        assert store.expire(kept.updated + 1) == 1
        assert store.sessions() == []

    def test_threads_append_without_gaps(self, store: Store) -> None:
        """Batches of many threads stay whole, numbered, and in each thread's order."""

        def work(thread: int) -> None:
            for turn in range(10):
                batch = [NewEvent(f"{thread}", "", {"turn": turn, "n": n}) for n in range(3)]
                store.append(KEY, batch, {f"{thread}": f"{turn}"})

        together(work, THREADS)
        events = store.events(KEY)
        assert [event.seq for event in events] == list(range(1, THREADS * 10 * 3 + 1))
        assert [event.data["n"] for event in events] == [0, 1, 2] * (THREADS * 10)
        for thread in range(THREADS):
            turns = [event.data["turn"] for event in events if event.type == str(thread)]
            assert turns == [turn for turn in range(10) for _ in range(3)]
        assert store.state(KEY) == {str(thread): "9" for thread in range(THREADS)}

    def test_a_reader_sees_whole_batches_only(self, store: Store) -> None:
        """While other threads append."""
        seen: list[int] = []

        def work(thread: int) -> None:
            for _ in range(10):
                if thread % 2:
                    store.append(KEY, [NewEvent("a")] * 5)
                else:
                    seen.append(len(store.events(KEY)))

        together(work, THREADS)
        assert [count for count in seen if count % 5] == []
        assert len(store.events(KEY)) == THREADS // 2 * 10 * 5


def _expect_refusal(call: Callable[[], object]) -> None:
    try:
        call()
    except (TypeError, ValueError):
        return
    raise AssertionError("neither TypeError nor ValueError was raised")


def _expect_lease_lost(call: Callable[[], object]) -> None:
    try:
        call()
    except LeaseLost:
        return
    raise AssertionError("LeaseLost was not raised")


def _settle(watch: StoreWatch) -> None:
    """Wait until there are no notifications: a store may send needless ones."""
    while watch.wait(0):
        pass


def _wait_for_clock(than: float) -> None:
    """Wait until the clock has advanced."""
    while time.time() <= than:
        time.sleep(0.001)
