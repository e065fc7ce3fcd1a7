from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillbelt.events import NewEvent
from skillbelt.store import SessionKey, Store, open_store
from skillbelt.store.memory import MemoryStore
from skillbelt.store.protocol import list_latest
from skillbelt.store.sqlite import SqliteStore
from tests.examples import examples
from tests.tree import QUICK, Tree


def test_the_default_store_is_a_file_in_the_state_folder(tree: Tree) -> None:
    key = SessionKey("app", "ada", "chat")
    with closing(open_store(tree.settings(state_dir=str(tree.root / "state")))) as store:
        assert not tree.path("state").exists()
        store.append(key, [NewEvent("a")])
        assert tree.path("state/state.sqlite3").is_file()
    with closing(open_store(tree.settings(state_dir=str(tree.root / "state")))) as store:
        assert [info.key for info in store.sessions()] == [key]


# Few parts, so that operations meet on the same session; the odd ones are stored as bytes.
PARTS = st.sampled_from(["a", "b", "", "\udcff"])
KEYS = st.builds(SessionKey, PARTS, PARTS, PARTS)
TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=5)
NAMES = st.sampled_from(["x", "temp:x", "user:x", "app:x", "app:\0", "user:\ud800"]) | TEXT
EVENTS = st.builds(NewEvent, TEXT, TEXT, st.dictionaries(TEXT, TEXT | st.integers(), max_size=2))
DELTAS = st.dictionaries(NAMES, st.none() | TEXT, max_size=3)


class Append(NamedTuple):
    key: SessionKey
    events: list[NewEvent]
    delta: dict[str, str | None]


class Delete(NamedTuple):
    key: SessionKey


class Expire(NamedTuple):
    everything: bool


class Reopen(NamedTuple):
    pass


Step = Append | Delete | Expire | Reopen
APPENDS = st.builds(Append, KEYS, st.lists(EVENTS, max_size=3), DELTAS)
STEPS = st.lists(
    st.one_of(
        APPENDS,
        APPENDS,
        st.builds(Delete, KEYS),
        st.builds(Expire, st.booleans()),
        st.builds(Reopen),
    ),
    max_size=12,
)


def apply(store: Store, step: Step) -> object:
    """The result of the operation, without the times."""
    match step:
        case Append(key, events, delta):
            return [event._replace(time=0) for event in store.append(key, events, delta)]
        case Delete(key):
            return store.delete(key)
        case Expire(everything):
            return store.expire(2.0**40 if everything else 0)
        case Reopen():
            if isinstance(store, SqliteStore):
                store.close()
    return None


def shown(store: Store, keys: list[SessionKey]) -> object:
    """All that can be asked, without the times."""
    return (
        [info._replace(created=0, updated=0) for info in store.sessions()],
        [[event._replace(time=0) for event in store.events(key)] for key in keys],
        [store.state(key) for key in keys],
        [[info.key for info in store.sessions(key.app, key.user)] for key in keys],
    )


@settings(max_examples=examples(150))
@given(STEPS)
def test_both_stores_answer_alike(steps: list[Step]) -> None:
    keys = [step.key for step in steps if isinstance(step, Append | Delete)]
    with tempfile.TemporaryDirectory(dir=QUICK) as folder:
        memory = MemoryStore()
        with closing(SqliteStore(str(Path(folder) / "state.sqlite3"))) as sqlite:
            for step in steps:
                assert apply(memory, step) == apply(sqlite, step)
                assert shown(memory, keys) == shown(sqlite, keys)


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_the_latest_sessions_come_in_pages(tree: Tree, kind: str) -> None:
    store: Store = SqliteStore(str(tree.root / "s.db")) if kind == "sqlite" else MemoryStore()
    names = ["a", "é", "own:x", "\ud800", "b", ""]
    keys = [SessionKey(name, "u", str(at)) for at, name in enumerate(names)]
    for key in keys:
        store.append(key, [NewEvent("x")])
    store.append(keys[0], [NewEvent("y")])
    found: list[SessionKey] = []
    page = list_latest(store, 2, without="own:")
    while page:
        found += [one.key for one in page]
        page = list_latest(store, 2, before=page[-1], without="own:")
    assert found[0] == keys[0]
    assert sorted(found) == sorted(one for one in keys if one.app != "own:x")
    assert len(found) == len(set(found))
