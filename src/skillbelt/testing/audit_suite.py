"""The promises of an audit log, as tests. See docs/how-to/observe.md."""

import threading
import time
from collections.abc import Iterable

from skillbelt.artifacts.conformance import THREADS, together
from skillbelt.permission.audit_events import AuditEvent, AuditStore

# Texts that logs are known to fold, cut or refuse.
TEXTS = (
    " ", "a", "A", "a ", "é", "e\u0301", "日本", "😀", "\0", "a\0b", "\r\n", "'\"\\", "%_*", "1",
    "null", "\ud800", "\udfff\ud800", "\u2028", "\ufeff", "x" * 10_000,
)  # fmt: skip
EVENT = AuditEvent(
    time=1_700_000_000.5,
    type="decision",
    project="/work/project",
    user="ada",
    session="app/ada/chat-1",
    agent="root",
    initiator="model",
    skill="pdf",
    hash="sha256:00",
    data={"patterns": ["git add ."], "allowed": False, "rule": {"line": 3, "path": None}},
)
EACH = 25
_SECONDS = 0.01


class AuditConformance:
    """Every promise of `AuditStore`. Give a `log` fixture: an empty log for each test."""

    def test_a_new_log_is_empty(self, log: AuditStore) -> None:
        """Reading and checking it is not an error."""
        assert list(log.read()) == []
        assert log.verify()[:3] == (0, 0, 0)

    def test_events_come_back_as_they_were_given(self, log: AuditStore) -> None:
        """In order, with every field."""
        given = [EVENT, EVENT._replace(time=1.0, data={}), AuditEvent(time=2.0, type="load")]
        fill(log, *given)
        assert kept(log) == given

    def test_any_text_comes_back_as_it_is(self, log: AuditStore) -> None:
        """In a field, in the data, and in a filter."""
        given = [
            AuditEvent(time=1.0, type="run", session=text, skill=text, data={"text": text})
            for text in TEXTS
        ]
        fill(log, *given)
        assert kept(log) == given
        for event in given:
            found = [*log.read(session=event.session), *log.read(skill=event.skill, limit=5)]
            assert [one._replace(machine="") for one in found] == [event, event]

    def test_filters_are_combined(self, log: AuditStore) -> None:
        """Each filter leaves only what it names."""
        one = AuditEvent(time=1.0, type="run", session="s", skill="pdf")
        others = [
            one._replace(type="load"),
            one._replace(session="S"),
            one._replace(skill="pdf2"),
            one._replace(time=0.5),
        ]
        fill(log, *others, one, *others)
        found = list(log.read(type="run", session="s", skill="pdf", since=1.0))
        assert [event._replace(machine="") for event in found] == [one]

    def test_a_limit_leaves_the_newest_in_order(self, log: AuditStore) -> None:
        """Counted after the filters."""
        fill(log, *(numbered(number, "ab"[number % 2]) for number in range(10)))
        assert numbers(log.read(limit=3)) == [7, 8, 9]
        assert numbers(log.read(limit=2, session="a")) == [6, 8]
        assert numbers(log.read(limit=0)) == []
        assert numbers(log.read(limit=100)) == list(range(10))

    def test_older_events_come_page_by_page(self, log: AuditStore) -> None:
        """Newer events do not count towards the limit."""
        fill(log, *(numbered(number, "ab"[number % 2]) for number in range(10)))
        assert numbers(log.read(limit=3, until=6.0)) == [4, 5, 6]
        assert numbers(log.read(limit=2, until=6.5, session="b")) == [3, 5]
        assert numbers(log.read(until=2.0)) == [0, 1, 2]
        assert numbers(log.read(limit=9, until=-1.0)) == []

    def test_a_tenant_has_its_own_conversations_only(self, log: AuditStore) -> None:
        """No spelling of another name leads to them."""
        sessions = ["app/ada/1", "app/bob/1", "app2/ada/1", "app/ada/b/1", "app/ad/a", "app//1",
                    "/ada/1", "app/ada", "", "app/ADA/1", "app/ada%2F/1", "//1"]  # fmt: skip
        fill(log, *(numbered(number, text) for number, text in enumerate(sessions)))
        assert numbers(log.read(tenant=("app", "ada"))) == [0]
        assert numbers(log.read(tenant=("app", "ada"), limit=5)) == [0]
        assert numbers(log.read(tenant=("app", "ada"), session="app/bob/1")) == []
        assert numbers(log.read(tenant=("app", "%"))) == []
        assert numbers(log.read(tenant=("app", ""))) == [5]
        assert numbers(log.read(tenant=("", ""))) == [11]

    def test_data_that_is_not_json_is_kept_as_text(self, log: AuditStore) -> None:
        """No event is lost because of its data."""
        deep: list[object] = []
        for _ in range(500):
            deep = [deep]
        fill(log, *(numbered(1)._replace(data={"it": it}) for it in (float("nan"), deep, {1, 2})))
        assert len(kept(log)) == 3

    def test_an_event_that_is_too_long_is_cut(self, log: AuditStore) -> None:
        """The event is marked as cut."""
        fill(log, numbered(1)._replace(data={"text": "x" * 3_000_000}))
        [event] = kept(log)
        assert isinstance(event.data["cut"], int)
        assert event.data["cut"] > 3_000_000
        assert event.type == "run"

    def test_a_time_that_is_none_is_kept(self, log: AuditStore) -> None:
        """It is stored as time 0."""
        fill(log, AuditEvent(time=float("inf"), type="run"))
        assert [event.time for event in kept(log)] == [0.0]

    def test_threads_lose_nothing(self, log: AuditStore) -> None:
        """Each one's events stay in its order, and the chain holds."""

        def work(thread: int) -> None:
            for number in range(EACH):
                log.append(numbered(number, str(thread)))

        together(work)
        for thread in range(THREADS):
            assert numbers(log.read(session=str(thread))) == list(range(EACH))
        assert log.verify()[:3] == (THREADS * EACH, 0, 0)

    def test_following_gives_the_old_and_then_the_new(self, log: AuditStore) -> None:
        """Each once, and only what the filters leave."""
        fill(log, *map(numbered, range(3)))
        following = log.follow(limit=2, type="run", seconds=_SECONDS)
        assert [next(following).time for _ in range(2)] == [1, 2]
        fill(log, AuditEvent(time=3.0, type="load"), numbered(4), numbered(5))
        assert [next(following).time for _ in range(2)] == [4, 5]
        fill(log, numbered(6))
        assert next(following).time == 6
        following.close()

    def test_following_misses_nothing_while_many_write(self, log: AuditStore) -> None:
        """No event is missing or repeated."""
        stop, got = threading.Event(), list[tuple[str, float]]()

        def follow() -> None:
            for event in log.follow(stop=stop, seconds=_SECONDS):
                got.append((event.session, event.time))
                if len(got) >= THREADS * EACH:
                    stop.set()

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()

        def write(thread: int) -> None:
            for number in range(EACH):
                log.append(numbered(number, str(thread)))

        together(write)
        follower.join(60)
        assert sorted(got) == [(str(one), float(n)) for one in range(THREADS) for n in range(EACH)]

    def test_stopping_ends_what_follows(self, log: AuditStore) -> None:
        """Also while no event comes."""
        stop = threading.Event()
        follower = threading.Thread(target=lambda: list(log.follow(stop=stop, seconds=_SECONDS)))
        follower.start()
        stop.set()
        follower.join(60)
        assert not follower.is_alive()

    def test_what_was_appended_is_checked(self, log: AuditStore) -> None:
        """An untouched log has no fault."""
        fill(log, *map(numbered, range(20)))
        assert log.verify()[:3] == (20, 0, 0)

    def test_events_have_the_time_they_were_given(self, log: AuditStore) -> None:
        """Not the time of the append."""
        now = time.time()
        fill(log, AuditEvent(time=now, type="run"), AuditEvent(time=now - 1e6, type="run"))
        assert [event.time for event in kept(log)] == [now, now - 1e6]


def numbered(number: float, session: str = "s") -> AuditEvent:
    """Return an event that is identified by its time."""
    return AuditEvent(time=float(number), type="run", session=session)


def fill(log: AuditStore, *events: AuditEvent) -> None:
    """Append each of the events."""
    for event in events:
        log.append(event)


def kept(log: AuditStore) -> list[AuditEvent]:
    """Return all events without the machine, which a shared log adds."""
    return [event._replace(machine="") for event in log.read()]


def numbers(events: Iterable[AuditEvent]) -> list[float]:
    """Return the times of the events."""
    return [event.time for event in events]
