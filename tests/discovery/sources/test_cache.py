from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
from pathlib import Path

import pytest

from skillbelt.discovery.sources.bounds import Deadline
from skillbelt.discovery.sources.cache import READY, CachedSource, CopyState, link_tree
from skillbelt.discovery.sources.failure import OutOfTime
from skillbelt.values import Diagnostic
from tests.discovery.sources.archives import tree_of

URL = "https://example.org/a.zip"


@pytest.fixture
def entry(cache: Path) -> CachedSource:
    return CachedSource(str(cache), URL)


def publish(entry: CachedSource, text: str) -> CopyState:
    with entry.locked(Deadline(URL, 20)), entry.stage() as stage:
        part = stage.part()
        Path(part, "SKILL.md").write_text(text)
        stage.adopt(part, "pdf")
        return entry.publish(stage, CopyState(URL, "archive", checked=1.5), {"pdf": {"key": text}})


def text(entry: CachedSource, ready: CopyState) -> str:
    return Path(entry.folder(ready), "pdf", "SKILL.md").read_text()


def test_an_entry_is_named_by_the_hash_of_its_url(entry: CachedSource, cache: Path) -> None:
    """SHA-256 of the URL, so that other programs can compute it."""
    assert entry.path == str(cache / hashlib.sha256(URL.encode()).hexdigest())
    assert CachedSource(str(cache), "\ud800").path != entry.path


def test_the_marker_is_there_only_after_all_the_rest(entry: CachedSource) -> None:
    """Case 26."""
    with entry.locked(Deadline(URL, 20)), entry.stage() as stage:
        stage.adopt(stage.part(), "pdf")
        assert entry.read() is None
        assert not os.path.exists(os.path.join(entry.path, READY))
        ready = entry.publish(stage, CopyState(URL, "archive"), {})
        assert os.path.exists(os.path.join(entry.path, READY))
    assert entry.read() == ready


def test_what_is_published_is_read_back(entry: CachedSource) -> None:
    ready = publish(entry, "one")
    assert entry.read() == ready
    assert ready.checked == 1.5
    assert text(entry, ready) == "one"
    assert entry.entries(ready) == {"pdf": {"key": "one"}}


def test_problems_are_remembered(entry: CachedSource) -> None:
    publish(entry, "one")
    problem = Diagnostic(code="x", severity="error", path="p", line=None, message="m", remedy="r")
    with entry.locked(Deadline(URL, 20)):
        old = entry.read()
        assert old
        entry.write(old._replace(problems=(problem,) * 500))
    read = entry.read()
    assert read and set(read.problems) == {problem}
    assert len(read.problems) < 500


def test_the_generation_before_stays_and_older_ones_go(entry: CachedSource) -> None:
    first, second, third = (publish(entry, name) for name in ("one", "two", "three"))
    assert text(entry, second) == "two"
    assert text(entry, third) == "three"
    with entry.locked(Deadline(URL, 20)):
        assert not os.path.exists(entry.folder(first))
        assert os.path.exists(entry.folder(second))


def test_everything_is_private(entry: CachedSource, cache: Path) -> None:
    publish(entry, "one")
    for base, _, names in os.walk(entry.path):
        assert stat.S_IMODE(os.stat(base).st_mode) == 0o700
        own = [name for name in names if name != "SKILL.md"]
        assert all(stat.S_IMODE(os.stat(f"{base}/{name}").st_mode) == 0o600 for name in own)


def test_a_stage_that_was_not_published_is_gone(entry: CachedSource) -> None:
    publish(entry, "one")
    before = tree_of(entry.path)
    with pytest.raises(RuntimeError), entry.locked(Deadline(URL, 20)), entry.stage() as stage:
        Path(stage.part(), "x").write_text("x")
        raise RuntimeError
    assert tree_of(entry.path) == before


def test_an_entry_without_a_copy_leaves_no_trace(entry: CachedSource, cache: Path) -> None:
    with entry.locked(Deadline(URL, 20)), entry.stage() as stage:
        Path(stage.part(), "x").write_text("x")
    assert list(cache.iterdir()) == []


def test_rubbish_of_a_killed_writer_goes(entry: CachedSource) -> None:
    ready = publish(entry, "one")
    before = tree_of(entry.path)
    for name in ("new-1234/parts/1/x", "gabcd/skills/y", "new-.ready"):
        path = Path(entry.path, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("rubbish")
    entry.tidy(ready)
    assert tree_of(entry.path) == before
    assert entry.read() == ready


def test_tidying_leaves_a_writer_at_work_alone(entry: CachedSource) -> None:
    ready = publish(entry, "one")
    with entry.locked(Deadline(URL, 20)), entry.stage() as stage:
        part = stage.part()
        entry.tidy(ready)
        assert os.path.isdir(part)


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps({"url": URL, "kind": "archive", "problems": []}).encode(),
        json.dumps({**CopyState(URL, "archive", "../x")._asdict()}).encode(),
        json.dumps({**CopyState(URL, "archive", "g1", etag=None)._asdict()}).encode(),  # type: ignore[arg-type]
        json.dumps({**CopyState(URL, "archive", "g1")._asdict(), "problems": [[1]]}).encode(),
        json.dumps({**CopyState(URL, "archive", "g1")._asdict(), "future": 1}).encode(),
        json.dumps({**CopyState(URL, "archive", "gone")._asdict()}).encode(),
    ],
)
def test_a_state_that_can_not_be_understood_is_no_copy(entry: CachedSource, state: bytes) -> None:
    publish(entry, "one")
    os.makedirs(os.path.join(entry.path, "g1", "skills"))
    Path(entry.path, READY).write_bytes(state)
    assert entry.read() is None
    assert text(entry, publish(entry, "two")) == "two"


def test_a_state_that_can_not_be_read_now_is_not_swept_away(entry: CachedSource) -> None:
    """Too many open files, a disk error: the copy may be fine."""
    ready = publish(entry, "one")
    state = Path(entry.path, READY)
    content = state.read_bytes()
    state.unlink()
    state.symlink_to(READY)  # a loop
    assert entry.read() is None
    with pytest.raises(OSError), entry.locked(Deadline(URL, 20)):
        pass
    state.unlink()
    state.write_bytes(content)
    assert entry.read() == ready and text(entry, ready) == "one"


def test_one_at_a_time(entry: CachedSource) -> None:
    order: list[str] = []
    inside = threading.Event()

    def second() -> None:
        inside.wait(150)
        with entry.locked(Deadline(URL, 20)):
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with entry.locked(Deadline(URL, 20)):
        inside.set()
        with pytest.raises(OutOfTime, match="another process"), entry.locked(Deadline(URL, 0.2)):
            order.append("never")
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_many_that_vacate_and_enter_never_meet(entry: CachedSource, cache: Path) -> None:
    """Removing a lock file under a waiting process must not let two in."""
    inside = 0
    most = 0

    def enter() -> None:
        nonlocal inside, most
        for _ in range(20):
            with entry.locked(Deadline(URL, 50)):
                inside += 1
                most = max(most, inside)
                os.stat(entry.path)
                inside -= 1

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert list(cache.iterdir()) == []


def test_a_download_is_gone_when_it_is_closed(entry: CachedSource) -> None:
    with entry.locked(Deadline(URL, 20)), entry.stage() as stage:
        with stage.spool() as spool:
            spool.write(b"data")
            spool.seek(0)
            assert spool.read() == b"data"
        assert tree_of(stage.path) == {}


def test_a_tree_is_linked_whole(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "x").write_bytes(b"12345")
    (tmp_path / "a" / "y").write_bytes(b"1")
    assert link_tree(str(tmp_path / "a"), str(tmp_path / "c")) == 6
    assert tree_of(tmp_path / "c") == {"b/x": b"12345", "y": b"1"}
    assert os.path.samefile(tmp_path / "a" / "y", tmp_path / "c" / "y")
