from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from skillbelt import Runtime
from skillbelt.files.remove import remove_tree
from skillbelt.running.cleanup import BELONGS
from skillbelt.running.workspace import SHELTERS
from skillbelt.store import Store
from skillbelt.store.memory import MemoryStore
from skillbelt.store.sqlite import SqliteStore
from tests.benches import Bench
from tests.bounds import restored
from tests.outputs import workspace as workspace
from tests.tree import Tree

# How long an example takes says how busy the machine is. With FIXED_EXAMPLES they are the same
# each time; without it every run of the tests looks for new ones.
settings.register_profile(
    "here",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="FIXED_EXAMPLES" in os.environ,
)
settings.load_profile("here")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    """An empty project and an empty home."""
    if os.getuid() == 0:
        # Commands run as another user then, who must get to their workspaces through here.
        for folder in (tmp_path, *tmp_path.parents):
            if folder.stat().st_mode & 0o011 != 0o011:
                folder.chmod(folder.stat().st_mode | 0o011)
    yield Tree(tmp_path, monkeypatch)
    _leave_shelters(tmp_path)


def _leave_shelters(root: Path) -> None:
    """Remove what lies elsewhere for folders of the tree, where commands run as another user."""
    for note in (note for shelter in SHELTERS for note in Path(shelter).glob(f"*/{BELONGS}")):
        with suppress(FileNotFoundError):
            if Path(os.fsdecode(note.read_bytes())).is_relative_to(root.resolve()):
                remove_tree(str(note.parent))


@pytest.fixture
def open_tree(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tree]:
    """A tree that any user can reach; pytest's own folders are closed to others."""
    root = Path(tempfile.mkdtemp(prefix="skillbelt-"))
    root.chmod(0o755)
    yield Tree(root, monkeypatch)
    _leave_shelters(root)
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
