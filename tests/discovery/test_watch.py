from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import pytest

from skillbelt import Catalog, Changes
from skillbelt.discovery.watch import ticks
from tests.needs import not_run
from tests.tree import Tree

AGENTS = "project/.agents/skills"
HANG_SECONDS = 500


@pytest.fixture(params=["watchfiles", "polling"])
def watcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the extra, and as if it were not installed."""
    if request.param == "polling":
        monkeypatch.setitem(sys.modules, "watchfiles", None)
    elif find_spec("watchfiles") is None:
        not_run("needs the extra watch: make setup")
    return str(request.param)


class Watching:
    """A catalogue that is watched in a thread; `next` waits for its next changes."""

    def __init__(self, catalog: Catalog) -> None:
        self.stop = threading.Event()
        self._changes = catalog.watch(self.stop)
        self._pool = ThreadPoolExecutor(1)

    def next(self) -> Changes | None:
        return self._pool.submit(next, self._changes, None).result(HANG_SECONDS)

    def close(self) -> None:
        self.stop.set()
        self._pool.shutdown()


@pytest.fixture
def watching(tree: Tree, watcher: str) -> Iterator[Watching]:
    tree.skill(f"{AGENTS}/a")
    catalog = tree.catalog(watch_seconds=0.2)
    catalog.all()
    made = Watching(catalog)
    yield made
    made.close()


def test_added_changed_and_removed_skills_are_yielded(tree: Tree, watching: Watching) -> None:
    """Case 22."""
    threading.Timer(0.3, tree.skill, [f"{AGENTS}/b"]).start()
    assert watching.next() == Changes(added=("b",))
    threading.Timer(0.3, tree.skill, [f"{AGENTS}/b", "Something else."]).start()
    assert watching.next() == Changes(changed=("b",))
    threading.Timer(0.3, shutil.rmtree, [tree.path(f"{AGENTS}/b")]).start()
    assert watching.next() == Changes(removed=("b",))


def test_a_root_that_did_not_exist_before_is_noticed(tree: Tree, watching: Watching) -> None:
    threading.Timer(0.3, tree.skill, ["project/.cursor/skills/new"]).start()
    assert watching.next() == Changes(added=("new",))
    threading.Timer(0.3, tree.skill, ["project/.cursor/skills/newer"]).start()
    assert watching.next() == Changes(added=("newer",))


def test_what_changed_before_the_watch_began_is_not_lost(tree: Tree, watching: Watching) -> None:
    tree.skill(f"{AGENTS}/b")
    assert watching.next() == Changes(added=("b",))


def test_watching_ends_when_the_event_is_set(watching: Watching) -> None:
    threading.Timer(0.3, watching.stop.set).start()
    assert watching.next() is None


def test_an_event_that_is_set_already_ends_at_once(tree: Tree, watcher: str) -> None:
    stop = threading.Event()
    stop.set()
    assert list(tree.catalog().watch(stop)) == []


def test_without_any_folder_the_steady_tick_goes_on(watcher: str) -> None:
    stop = threading.Event()
    count = 0
    for _ in ticks(list, 0.01, stop):
        count += 1
        if count == 3:
            stop.set()
    assert count == 3
