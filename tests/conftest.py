from __future__ import annotations

import gc
import itertools
import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import is_hypothesis_test

from skillbelt import Runtime
from skillbelt.store import Store
from skillbelt.store.memory import MemoryStore
from skillbelt.store.sqlite import SqliteStore
from tests import warm
from tests.benches import Bench
from tests.bounds import restored
from tests.examples import MANY, load_profile
from tests.outputs import workspace as workspace
from tests.postgres import own_postgres as own_postgres
from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
from tests.tree import Tree, sheltered
from tests.workers import take_over

load_profile()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Share the work among processes."""
    # A shell starts what runs in the background with Ctrl-C ignored, nohup with a hang-up ignored,
    # and programs inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    take_over(config)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Start what all workers share; look for no garbage in what is imported, since it stays."""
    gc.disable()
    config = session.config
    everything = config.args == config.getini("testpaths") and not config.option.collectonly
    if everything and config.pluginmanager.hasplugin("forked-workers"):
        warm.begin()


HERE = Path(__file__).parent
# What the slow files take, as `scripts/measure_tests.py --record` wrote it.
SECONDS: dict[str, float] = json.loads((HERE / "module_seconds.json").read_text("utf-8"))[
    "long" if MANY else "short"
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slowest files; mark the tests that `make test-all` tries with more examples.

    A worker that gets a slow file last is waited for.
    """
    items.sort(key=lambda item: -SECONDS.get(item.nodeid.partition("::")[0], 0.0))
    for item in items:
        if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
            item.add_marker("property")


def pytest_collection_finish() -> None:
    """Leave what was collected out of every later look for garbage, and look less often."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()


_NUMBERS = itertools.count(1)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new folder, as pytest's own, which finds its number among thousands of earlier ones."""
    name = re.sub(r"\W", "_", request.node.name)[:24]  # no longer path: sockets have short ones
    folder = tmp_path_factory.getbasetemp() / f"{name}-{next(_NUMBERS)}"
    folder.mkdir(0o700)
    return folder


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    """An empty project and an empty home."""
    if os.getuid() == 0:
        # Commands run as another user then, who must get to their workspaces through here.
        for folder in (tmp_path, *tmp_path.parents):
            if folder.stat().st_mode & 0o011 != 0o011:
                folder.chmod(folder.stat().st_mode | 0o011)
    with sheltered(tmp_path):
        yield Tree(tmp_path, monkeypatch)


@pytest.fixture
def open_tree(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    """A tree that any user can reach; pytest's own folders are closed to others."""
    root = Path(tempfile.mkdtemp(prefix="skillbelt-"))
    root.chmod(0o755)
    with sheltered(root):
        yield Tree(root, monkeypatch)
    for folder, names, _ in os.walk(root):
        for path in (os.path.join(folder, name) for name in names):
            if not os.path.islink(path):
                os.chmod(path, 0o755)
    shutil.rmtree(root)


@pytest.fixture
def bench(open_tree: Tree) -> Bench:
    """A skill whose commands may run, in the sandbox of this machine."""
    return Bench(open_tree)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of either kind."""
    if request.param == "memory":
        yield MemoryStore()
        return
    with closing(SqliteStore(str(tmp_path / "state.sqlite3"))) as store:
        yield store


@pytest.fixture
def closed_runtimes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every runtime is closed again: who listens has a thread that would outlive the test."""
    made: list[Runtime] = []
    begin = Runtime.__init__

    def noted(self: Runtime, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        made.append(self)

    monkeypatch.setattr(Runtime, "__init__", noted)
    yield
    for belt in made:
        belt.close()


@pytest.fixture(autouse=True)
def _own_bounds() -> Iterator[None]:
    """Bounds that a test sets hold for that test."""
    with restored():
        yield
