from __future__ import annotations

import os
import random
import select
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from skillbelt.errors import ConfigError
from skillbelt.events import NewEvent
from skillbelt.store import SessionKey, Store, sqlite
from skillbelt.store.protocol import list_sessions
from skillbelt.store.sqlite import SqliteStore
from skillbelt.testing.suites import StoreConformance
from tests import warm
from tests.tree import Tree

KEY = SessionKey("app", "ada", "chat")
PROCESSES = 8
KILLS = 20
BATCH = 3


class TestSqliteStore(StoreConformance):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        with closing(SqliteStore(str(tmp_path / "state.sqlite3"))) as store:
            yield store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "state.sqlite3"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(str(path))) as store:
        yield store


def child(code: str, path: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """A process with a store on the file, which begins after a line on its stdin."""
    begin = (
        "import sys\n"
        "from skillbelt.events import NewEvent\n"
        "from skillbelt.store import SessionKey\n"
        "from skillbelt.store.sqlite import SqliteStore\n"
        f"KEY = SessionKey{tuple(KEY)!r}\n"
        "store = SqliteStore(sys.argv[1])\n"
        "sys.stdin.readline()\n"
    )
    return warm.Popen[bytes](
        [sys.executable, "-W", "error", "-c", begin + code, str(path), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def go(*children: subprocess.Popen[bytes]) -> None:
    for process in children:
        assert process.stdin
        process.stdin.write(b"\n")
        process.stdin.close()
        process.stdin = None


def finished(process: subprocess.Popen[bytes]) -> str:
    """The output of a child that succeeded."""
    try:
        out, _ = process.communicate(timeout=500)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
    assert process.returncode == 0, out.decode()
    return out.decode()


def raw(path: Path, statement: str) -> list[tuple[object, ...]]:
    """The answer of SQLite itself about the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        return db.execute(statement).fetchall()


def test_what_was_kept_is_there_when_opened_again(path: Path) -> None:
    with closing(SqliteStore(str(path))) as one:
        events = one.append(KEY, [NewEvent("a", "root", {"x": ["é"]})], {"a": "1", "app:b": "2"})
        listed = one.sessions()
    with closing(SqliteStore(str(path))) as other:
        assert other.events(KEY) == events
        assert other.state(KEY) == {"a": "1", "app:b": "2"}
        assert other.sessions() == listed


def test_two_stores_on_one_file_see_each_other(store: SqliteStore, path: Path) -> None:
    with closing(SqliteStore(str(path))) as other:
        store.append(KEY, [NewEvent("a")])
        other.append(KEY, [NewEvent("b")], {"a": "1"})
        assert [(event.seq, event.type) for event in store.events(KEY)] == [(1, "a"), (2, "b")]
        assert store.state(KEY) == {"a": "1"}


def test_a_closed_store_opens_again(store: SqliteStore) -> None:
    store.append(KEY, [NewEvent("a")])
    store.close()
    store.close()
    assert [event.seq for event in store.append(KEY, [NewEvent("b")])] == [2]


def test_reading_makes_no_file(store: SqliteStore, path: Path) -> None:
    assert (store.events(KEY), store.state(KEY), store.sessions()) == ([], {}, [])
    assert (store.delete(KEY), store.expire(time.time())) == (False, 0)
    assert not path.parent.exists()


def test_files_are_for_the_user_alone(store: SqliteStore, path: Path) -> None:
    before = os.umask(0)
    try:
        store.append(KEY, [NewEvent("a")])
    finally:
        os.umask(before)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert modes == dict.fromkeys((path.name, f"{path.name}-wal", f"{path.name}-shm"), 0o600)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_folder_that_exists_keeps_its_mode(store: SqliteStore, path: Path) -> None:
    path.parent.mkdir(mode=0o755)
    path.parent.chmod(0o755)
    store.append(KEY, [NewEvent("a")])
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755


def test_commits_are_written_through(store: SqliteStore, path: Path) -> None:
    """A commit waits for the disk (FULL is 2), so that a power cut takes nothing either."""
    store.append(KEY, [NewEvent("a")])
    assert store._db
    assert store._db.execute("PRAGMA synchronous").fetchall() == [(2,)]
    assert raw(path, "PRAGMA journal_mode") == [("wal",)]
    store.close()
    store.events(KEY)
    assert store._db.execute("PRAGMA synchronous").fetchall() == [(2,)]


def test_deleted_text_is_not_left_in_the_file(store: SqliteStore, path: Path) -> None:
    secret = "do-not-keep-me-" * 500
    store.append(KEY, [NewEvent("a", "", {"x": secret})], {"k": secret})
    store.append(KEY._replace(session="other"), [NewEvent("a")])
    store.close()
    assert secret[:100].encode() in path.read_bytes()
    assert store.delete(KEY)
    store.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert b"do-not-keep" not in path.read_bytes()


def test_an_unclosed_store_does_not_warn(path: Path) -> None:
    """Warnings are errors in the child, and one in a finalizer is printed."""
    code = (
        "import gc\n"
        "store.append(KEY, [NewEvent('a')])\n"
        "other = SqliteStore(sys.argv[1])\n"
        "other.events(KEY)\n"
        "del store\n"
        "gc.collect()\n"
    )
    process = child(code, path)
    go(process)
    assert finished(process) == ""


def test_a_store_can_be_used_on_both_sides_of_a_fork(path: Path) -> None:
    code = (
        "import os\n"
        "store.append(KEY, [NewEvent('before')])\n"
        "child = os.fork()\n"
        "for n in range(20):\n"
        "    store.append(KEY, [NewEvent('parent' if child else 'child')])\n"
        "sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else 0)\n"
    )
    process = child(code, path)
    go(process)
    finished(process)
    with closing(SqliteStore(str(path))) as store:
        events = store.events(KEY)
    assert [event.seq for event in events] == list(range(1, 42))
    assert sorted(event.type for event in events) == ["before"] + ["child"] * 20 + ["parent"] * 20


def test_a_fork_while_another_thread_writes_does_not_hang(path: Path) -> None:
    code = (
        "import os, threading, time\n"
        "stop = threading.Event()\n"
        "def write():\n"
        "    while not stop.is_set():\n"
        "        store.append(KEY, [NewEvent('thread')])\n"
        "        time.sleep(0.001)\n"
        "thread = threading.Thread(target=write)\n"
        "thread.start()\n"
        "codes = []\n"
        "for n in range(5):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        store.append(KEY, [NewEvent('child')])\n"
        "        os._exit(0)\n"
        "    codes.append(os.waitpid(child, 0)[1])\n"
        "stop.set()\n"
        "thread.join()\n"
        "sys.exit(any(codes))\n"
    )
    # Python warns of any fork beside threads; this is about what we do then.
    process = child("import warnings; warnings.simplefilter('ignore')\n" + code, path)
    go(process)
    finished(process)
    with closing(SqliteStore(str(path))) as store:
        types = [event.type for event in store.events(KEY)]
    assert types.count("child") == 5


def test_processes_append_at_once_without_gaps(path: Path) -> None:
    """The file does not exist when they begin, so they also race to make it."""
    code = (
        "for turn in range(25):\n"
        "    batch = [NewEvent(sys.argv[2], '', {'turn': turn, 'n': n}) for n in range(2)]\n"
        "    store.append(KEY, batch, {sys.argv[2]: str(turn), 'app:last': sys.argv[2]})\n"
        "store.close()\n"
    )
    children = [child(code, path, str(number)) for number in range(PROCESSES)]
    go(*children)
    assert [finished(process) for process in children] == [""] * PROCESSES
    with closing(SqliteStore(str(path))) as store:
        events, state = store.events(KEY), store.state(KEY)
    assert [event.seq for event in events] == list(range(1, PROCESSES * 50 + 1))
    assert [event.data["n"] for event in events] == [0, 1] * (PROCESSES * 25)
    for number in map(str, range(PROCESSES)):
        turns = [event.data["turn"] for event in events if event.type == number]
        assert turns == [turn for turn in range(25) for _ in range(2)]
        assert state[number] == "24"
    assert state["app:last"] == events[-1].type


def test_a_file_that_another_process_is_making_is_not_foreign(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at the mark, the other makes the file, it looks at the tables."""
    others: list[subprocess.Popen[bytes]] = []

    class Interrupted(sqlite3.Connection):
        def execute(self, statement: str, values: Any = (), /) -> sqlite3.Cursor:
            if statement == "PRAGMA user_version" and not others:
                others.append(child("store.append(KEY, [NewEvent('other')])", path))
                go(*others)
                with suppress(subprocess.TimeoutExpired):
                    others[0].wait(1)
            return super().execute(statement, values)

    connect = partial(sqlite3.connect, factory=Interrupted)
    monkeypatch.setattr("skillbelt.store.sqlite.sqlite3.connect", connect)
    store.append(KEY, [NewEvent("own")])
    assert [finished(other) for other in others] == [""]
    assert sorted(event.type for event in store.events(KEY)) == ["other", "own"]


def test_what_was_reported_survives_a_kill(path: Path) -> None:
    """Killed at random moments, it never loses a committed batch nor keeps a part of one."""
    code = (
        "first = int(sys.argv[2])\n"
        "filler = 'x' * 20_000\n"
        "for batch in range(first, first + 1_000_000):\n"
        f"    data = [{{'n': n, 'filler': filler}} for n in range({BATCH})]\n"
        "    events = [NewEvent(str(batch), '', one) for one in data]\n"
        "    store.append(KEY, events, {'last': str(batch), 'user:last': str(batch)})\n"
        "    sys.stdout.write(f'{batch}\\n')\n"
        "    sys.stdout.flush()\n"
    )
    reported: list[int] = []
    for turn in range(KILLS):
        process = child(code, path, str(turn * 1_000_000))
        go(process)
        reported += killed(process)
        with closing(SqliteStore(str(path))) as store:
            assert_whole(store, reported)
    assert raw(path, "PRAGMA integrity_check") == [("ok",)]
    assert len({batch // 1_000_000 for batch in reported}) == KILLS


def killed(process: subprocess.Popen[bytes]) -> list[int]:
    """Kill the child a little after its first report; everything that it reported."""
    assert process.stdout
    with process.stdout as out:
        assert select.select([out], [], [], 50)[0]
        time.sleep(random.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        lines = out.read().split(b"\n")
    assert process.wait(150) == -signal.SIGKILL
    # The last line may be half a one.
    return [int(line) for line in lines[:-1]]


def assert_whole(store: SqliteStore, reported: list[int]) -> None:
    events = store.events(KEY)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.data["n"] for event in events] == list(range(BATCH)) * (len(events) // BATCH)
    batches = [int(event.type) for event in events[::BATCH]]
    assert [int(event.type) for event in events] == [b for b in batches for _ in range(BATCH)]
    assert set(reported) <= set(batches)
    assert store.state(KEY) == {"last": str(batches[-1]), "user:last": str(batches[-1])}


def test_a_full_disk_keeps_what_was_there(path: Path) -> None:
    """A limit on the size of files stands for the full disk."""
    code = (
        "import resource, signal\n"
        "from skillbelt.errors import ConfigError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))\n"
        "try:\n"
        "    for n in range(1000):\n"
        "        store.append(KEY, [NewEvent('a', '', {'x': 'x' * 9_000})] * 3, {'n': str(n)})\n"
        "        print(n, flush=True)\n"
        "except ConfigError as error:\n"
        "    print(error)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
        "store.append(KEY, [NewEvent('after')])\n"
    )
    process = child(code, path)
    go(process)
    *numbers, message = finished(process).splitlines()
    assert message.startswith(f"{path}: ")
    assert "nothing of this change was kept" in message
    with closing(SqliteStore(str(path))) as store:
        assert len(store.events(KEY)) == 3 * len(numbers) + 1
        assert store.state(KEY) == {"n": numbers[-1]}


def test_a_newer_file_is_left_alone(store: SqliteStore, path: Path) -> None:
    events = store.append(KEY, [NewEvent("a")])
    store.close()
    raw(path, "PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"newer skillbelt \(format 99.*upgrade skillbelt"):
        store.events(KEY)
    with pytest.raises(ConfigError, match=r"newer skillbelt \(format 99.*upgrade skillbelt"):
        store.append(KEY, [NewEvent("b")])
    assert path.read_bytes() == before
    raw(path, f"PRAGMA user_version = {len(sqlite._MIGRATIONS)}")
    assert store.events(KEY) == events


def test_a_file_of_the_first_format_is_brought_up_to_date(store: SqliteStore, path: Path) -> None:
    events = store.append(KEY, [NewEvent("a")])
    store.close()
    raw(path, "DROP INDEX session_order")
    raw(path, "DROP TABLE lease")
    raw(path, "PRAGMA user_version = 1")
    assert store.events(KEY) == events
    assert [info.key for info in store.sessions(limit=1)] == [KEY]
    store.close()
    with closing(sqlite3.connect(path)) as db:
        [plan] = [
            row[3]
            for row in db.execute(
                f"EXPLAIN QUERY PLAN SELECT * FROM session WHERE ({sqlite._ORDER}) > ('', '', '')"
                f" ORDER BY {sqlite._ORDER} LIMIT 1"
            )
        ]
    assert "session_order" in plan


@pytest.mark.parametrize("mark", ["CREATE TABLE notes (a)", "PRAGMA application_id = 7"])
def test_another_programs_database_is_left_alone(store: SqliteStore, path: Path, mark: str) -> None:
    path.parent.mkdir()
    raw(path, mark)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"another program's database; set state_dir"):
        store.append(KEY, [NewEvent("a")])
    assert path.read_bytes() == before
    assert raw(path, "PRAGMA journal_mode") == [("delete",)]


def test_an_empty_file_is_filled(store: SqliteStore, path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    assert store.sessions() == []
    assert [event.seq for event in store.append(KEY, [NewEvent("a")])] == [1]


def damaged(kind: str, data: bytes) -> bytes:
    if kind == "garbage":
        return b"this is not a database" * 100
    if kind == "cut":
        return data[: len(data) // 2 + 100]
    page = 4096
    return data[:page] + b"\xa5" * (len(data) - page)


@pytest.mark.parametrize("kind", ["garbage", "cut", "pages"])
def test_a_broken_file_is_told_and_left_alone(store: SqliteStore, path: Path, kind: str) -> None:
    for number in range(50):
        key = KEY._replace(session=f"{number}")
        store.append(key, [NewEvent("a", "", {"x": "y" * 500})], {"a": "1"})
    store.close()
    path.write_bytes(damaged(kind, path.read_bytes()))
    before = path.read_bytes()
    for call in (
        lambda: [store.events(info.key) for info in store.sessions()],
        lambda: store.append(KEY, [NewEvent("b")]),
    ):
        with pytest.raises(ConfigError, match="move it away together with its -wal") as caught:
            call()
        assert str(path) in str(caught.value)
    store.close()
    assert path.read_bytes() == before


def test_the_remedy_for_a_broken_file_works(store: SqliteStore, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is not a database" * 100)
    with pytest.raises(ConfigError):
        store.append(KEY, [NewEvent("a")])
    path.rename(path.with_name("away"))
    assert [event.seq for event in store.append(KEY, [NewEvent("a")])] == [1]


def test_data_that_is_not_json_is_told(store: SqliteStore, path: Path) -> None:
    store.append(KEY, [NewEvent("a")])
    raw(path, "UPDATE event SET data = '{'")
    with pytest.raises(ConfigError, match="an event is not JSON"):
        store.events(KEY)


def test_a_place_that_can_not_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for place in ("file/state.sqlite3", "folder"):
        store = SqliteStore(str(tmp_path / place))
        with pytest.raises(ConfigError, match="set state_dir to a folder") as caught:
            store.append(KEY, [NewEvent("a")])
        assert str(tmp_path / place) in str(caught.value)


def test_a_file_that_another_holds_is_told(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers go on; a writer says so when it waited in vain, and can go on afterwards."""
    store.append(KEY, [NewEvent("a")])
    store.close()
    monkeypatch.setattr("skillbelt.store.sqlite._BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert len(store.events(KEY)) == 1
        with pytest.raises(ConfigError, match="another process holds it"):
            store.append(KEY, [NewEvent("b")])
        other.execute("ROLLBACK")
    assert [event.seq for event in store.append(KEY, [NewEvent("c")])] == [2]


def test_a_writer_waits_for_another(store: SqliteStore, path: Path) -> None:
    store.append(KEY, [NewEvent("a")])
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.2, lambda: other.execute("ROLLBACK"))
        timer.start()
        assert [event.seq for event in store.append(KEY, [NewEvent("b")])] == [2]
        timer.join()


def test_an_exception_in_a_write_leaves_no_lock(store: SqliteStore, path: Path) -> None:
    store.append(KEY, [NewEvent("a")])
    with pytest.raises(AttributeError):
        store.append(KEY, [NewEvent(5)])  # type: ignore[arg-type]
    with closing(SqliteStore(str(path))) as other:
        assert [event.seq for event in other.append(KEY, [NewEvent("b")])] == [2]


def test_a_relative_path_stays_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(SqliteStore("state.sqlite3")) as store:
        monkeypatch.chdir("/")
        store.append(KEY, [NewEvent("a")])
    assert (tmp_path / "state.sqlite3").is_file()


@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_what_is_appended_is_at_the_path_when_the_file_goes(
    store: SqliteStore, path: Path, how: str
) -> None:
    store.append(KEY, [NewEvent("before")] * 2)
    if how == "removed":
        shutil.rmtree(path.parent)
    else:
        path.rename(path.with_name("away"))
    if how == "replaced":
        with closing(SqliteStore(str(path))) as other:
            other.append(KEY, [NewEvent("other")])
    store.append(KEY, [NewEvent("after")])
    with closing(SqliteStore(str(path))) as other:
        found = [event.type for event in other.events(KEY)]
    assert found == (["other", "after"] if how == "replaced" else ["after"])
    assert [event.type for event in store.events(KEY)] == found
    if how == "moved":
        with closing(SqliteStore(str(path.with_name("away")))) as moved:
            assert [event.type for event in moved.events(KEY)] == ["before"] * 2


def test_a_file_that_goes_during_a_change_gets_the_change_anew(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = sqlite._append

    def slow(*given: Any) -> Any:
        monkeypatch.setattr(sqlite, "_append", append)
        path.rename(path.with_name("away"))
        return append(*given)

    monkeypatch.setattr(sqlite, "_append", slow)
    store.append(KEY, [NewEvent("a")])
    with closing(SqliteStore(str(path))) as other:
        assert [event.type for event in other.events(KEY)] == ["a"]


def test_a_full_disk_can_be_read(store: SqliteStore, path: Path) -> None:
    store.append(KEY, [NewEvent("a")], {"user:x": "1"})
    store.close()
    code = (
        "import resource\n"
        # Less than the file that SQLite makes beside a database.
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8_192, resource.RLIM_INFINITY))\n"
        "print([event.type for event in store.events(KEY)], store.state(KEY))\n"
        "print(len(store.sessions()))\n"
    )
    process = child(code, path)
    go(process)
    assert finished(process).splitlines() == ["['a'] {'user:x': '1'}", "1"]


@pytest.mark.parametrize("log", ["none", "left by a process that was killed"])
def test_a_place_that_cannot_be_written_can_be_read(
    store: SqliteStore, path: Path, open_tree: Tree, log: str
) -> None:
    store.append(KEY, [NewEvent("a")])
    if log == "none":
        store.close()
    folder = open_tree.path("closed")
    folder.mkdir()
    for end in ("", "-wal"):
        with suppress(FileNotFoundError):
            shutil.copy(f"{path}{end}", f"{folder}/{path.name}{end}")
    code = (
        "from skillbelt.store import SessionKey\n"
        "from skillbelt.store.sqlite import SqliteStore\n"
        f"os.chmod({str(folder)!r}, 0o500)\n"
        f"for name in os.listdir({str(folder)!r}):\n"
        f"    os.chmod(f'{folder}/{{name}}', 0o400)\n"
        f"store = SqliteStore({str(folder / path.name)!r})\n"
        f"print([event.type for event in store.events(SessionKey(*{tuple(KEY)!r}))])\n"
    )
    assert open_tree.as_user(code) == "['a']\n"


def test_a_folder_that_cannot_be_entered_is_not_an_empty_store(open_tree: Tree) -> None:
    folder = open_tree.path("home/state")
    folder.mkdir()
    code = (
        "from skillbelt.errors import ConfigError\n"
        "from skillbelt.store.sqlite import SqliteStore\n"
        f"os.chmod({str(folder)!r}, 0)\n"
        "try:\n"
        f"    print(SqliteStore({str(folder / 'state.sqlite3')!r}).sessions())\n"
        "except ConfigError as error:\n"
        "    print(error)\n"
    )
    assert f"{folder}/state.sqlite3: Permission denied" in open_tree.as_user(code)


def test_a_damaged_entry_is_named_and_the_others_are_listed(
    store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.append(KEY, [NewEvent("a")])
    store.append(KEY._replace(session="other"), [NewEvent("a")])
    raw(path, "UPDATE session SET created = 'x' WHERE name = 'other'")
    assert [info.key for info in store.sessions()] == [KEY]
    assert f"{path}: the entry of session" in caplog.text
    assert "'other'" in caplog.text


@pytest.mark.parametrize("damage", ["created = 'x'", "name = x'ff'"])
def test_damaged_entries_do_not_end_a_list_early(
    store: SqliteStore, path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    keys = [KEY._replace(session=f"s{number}") for number in range(9)]
    for key in keys:
        store.append(key, [])
    raw(path, f"UPDATE session SET {damage} WHERE name = 's4'")
    raw(path, "UPDATE session SET last = 'x' WHERE name IN ('s2', 's3', 's5')")
    good = [key for key in keys if key.session not in ("s2", "s3", "s4", "s5")]
    assert [info.key for info in store.sessions(limit=3)] == good[:3]
    assert [info.key for info in store.sessions(after=keys[1], limit=2)] == good[2:4]
    assert [info.key for info in list_sessions(store, page=2)] == good
    assert "is damaged; it is left out" in caplog.text


@pytest.mark.parametrize("damage", ["seq = 'x'", "time = 'x'", "type = NULL", "data = 7"])
def test_an_event_of_the_wrong_types_is_told(store: SqliteStore, path: Path, damage: str) -> None:
    store.append(KEY, [NewEvent("a"), NewEvent("b")])
    raw(path, f"UPDATE event SET {damage} WHERE seq = 1")
    with pytest.raises(ConfigError, match="an event is not JSON"):
        store.events(KEY)
    assert [event.type for event in store.first_events(KEY, 9)] == ["b"]


def test_an_entry_of_the_state_that_is_no_text_is_told(store: SqliteStore, path: Path) -> None:
    store.append(KEY, [], {"a": "b"})
    raw(path, "UPDATE state SET value = 7")
    with pytest.raises(ConfigError, match="in place of a text"):
        store.state(KEY)
