from __future__ import annotations

import hashlib
import json
import math
import os
import pwd
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skillbelt.errors import ConfigError
from skillbelt.permission import audit
from skillbelt.permission.audit import TYPES, AuditEvent, AuditLog, open_audit, user_name
from skillbelt.permission.audit_events import decode_event
from skillbelt.testing.suites import AuditConformance
from tests import needs, warm
from tests.examples import examples
from tests.handles import no_handle_left
from tests.tree import Tree

BOUND = len('"seq":1,"prev":"",') + 64  # the keys that link a record to the one before
PATIENCE = 150  # a guard against hanging, not a measure
APPENDS = """
import sys
from skillbelt.permission.audit import AuditEvent, AuditLog
folder, name, count, max_bytes = sys.argv[1:]
log = AuditLog(folder, max_bytes=int(max_bytes), max_files=1000)
for number in range(int(count)):
    text = "x" * (number * 37 % 3000)
    log.append(AuditEvent(number, "run", session=name, data={"number": number, "text": text}))
    if number % 100 == 0:
        print(number, flush=True)
"""
DECISION = AuditEvent(
    time=1700000000.5,
    type="decision",
    project="/work/project",
    user="ada",
    session="chat-1",
    agent="root",
    initiator="model",
    skill="pdf",
    hash="sha256:00",
    data={
        "type": "run",
        "patterns": ["git add ."],
        "allowed": False,
        "by": "rule",
        "rule": {"type": "run", "pattern": "git *", "action": "deny", "path": "/x", "line": 3},
    },
    machine="vm-1",
)


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    return AuditLog(str(tmp_path / "state" / "audit"))


class TestAuditLog(AuditConformance):
    """Every promise of an audit log, kept in files."""


def events(*numbers: int, type: str = "load") -> list[AuditEvent]:
    return [AuditEvent(float(number), type) for number in numbers]


def fill(log: AuditLog, *given: AuditEvent) -> None:
    for event in given:
        log.append(event)


def file(log: AuditLog, name: str = "log.jsonl") -> Path:
    return Path(log.folder, name)


def start(log: AuditLog, name: str, count: int, max_bytes: int = 2**30) -> subprocess.Popen[bytes]:
    return warm.Popen[bytes](
        [sys.executable, "-c", APPENDS, log.folder, name, str(count), str(max_bytes)],
        stdout=subprocess.PIPE,
    )


def finish(child: subprocess.Popen[bytes]) -> None:
    child.communicate(timeout=PATIENCE)
    assert child.returncode == 0


# One event


def test_what_is_appended_is_read_back(log: AuditLog) -> None:
    plain = AuditEvent(1.0, "load")
    fill(log, DECISION, plain)
    assert list(log.read()) == [DECISION, plain]


def test_a_line_is_one_json_object(log: AuditLog) -> None:
    fill(log, DECISION, *events(2))
    first, second = file(log).read_text("ascii").splitlines()
    bound = {"seq": 2, "prev": hashlib.sha256(first.encode()).hexdigest()}
    assert json.loads(first) == {"seq": 1, "prev": "0" * 64, **DECISION._asdict()}
    assert json.loads(second) == {**bound, "time": 2.0, "type": "load"}


def test_nothing_was_logged_yet(log: AuditLog, tmp_path: Path) -> None:
    assert list(log.read()) == []
    assert list(log.read(limit=3)) == []
    assert not (tmp_path / "state").exists()


def test_hostile_text_stays_on_its_line(log: AuditLog) -> None:
    text = 'a\n{"time":0,"type":"run"}\r\x1b[2J\u2028\u202e\x00\x85\ud800 ü'
    fill(log, AuditEvent(1.0, "run", skill=text, data={text: text}), *events(2))
    raw = file(log).read_bytes()
    assert raw.count(b"\n") == 2
    assert not set(raw) - {10, *range(32, 127)}
    [found, _] = log.read()
    assert (found.skill, found.data) == (text, {text: text})


@pytest.mark.parametrize(
    "data",
    [
        {"a": math.nan},
        {"a": {1, 2}},
        {"a": object()},
        {("a", 1): 1},
        {"a": b"\xff"},
        {"a": Path("/x")},
    ],
    ids=["nan", "set", "object", "key", "bytes", "path"],
)
def test_what_json_can_not_hold_is_logged_as_text(log: AuditLog, data: dict[str, object]) -> None:
    log.append(AuditEvent(1.0, "run", data=data))
    [found] = log.read()
    assert found.type == "run"
    assert found.data
    json.dumps(dict(found.data), allow_nan=False)


@pytest.mark.parametrize("depth", [100, 100_000])
def test_data_nested_deeply_is_logged_all_the_same(log: AuditLog, depth: int) -> None:
    data: object = "x"
    for _ in range(depth):
        data = [data]
    log.append(AuditEvent(1.0, "run", data={"a": data}))
    [found] = log.read()
    assert found.data.keys() == {"text"}


@pytest.mark.parametrize("text", ["[" * 99, "\\" * 99 + '"' * 99 + "{" * 99, '["\\' * 99])
def test_brackets_in_text_nest_nothing(log: AuditLog, text: str) -> None:
    log.append(AuditEvent(1.0, "run", data={"text": text}))
    assert [found.data for found in log.read()] == [{"text": text}]


@pytest.mark.parametrize("time", [math.nan, math.inf, -math.inf])
def test_a_time_that_is_none_is_the_beginning_of_time(log: AuditLog, time: float) -> None:
    log.append(AuditEvent(time, "run"))
    assert list(log.read()) == events(0, type="run")


def test_an_event_of_megabytes_is_cut(log: AuditLog) -> None:
    long = AuditEvent(1.0, "run", session="s" * 5_000, data={"text": "x" * 3_000_000})
    log.append(long)
    assert file(log).stat().st_size < 50_000
    [found] = log.read()
    assert found.session == "s" * 4_000
    assert isinstance(found.data["cut"], int)
    assert found.data["cut"] > 3_000_000
    assert str(found.data["head"]).startswith('{"time":1.0,"type":"run","session":"sss')


# Which events


MANY = [
    AuditEvent(float(number), TYPES[number % 3], session=f"s{number % 2}", skill=f"k{number % 5}")
    for number in range(60)
]


@pytest.mark.parametrize("limit", [None, 0, 1, 3, 7, 1000])
@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"session": "s1"},
        {"type": "run"},
        {"skill": "k4"},
        {"since": 31.0},
        {"since": 31.5, "type": "load", "session": "s0"},
        {"session": ""},
    ],
    ids=str,
)
def test_filters_and_limit(tmp_path: Path, wanted: dict[str, object], limit: int | None) -> None:
    """Over several files, the newest that match, oldest first."""
    log = AuditLog(str(tmp_path), max_bytes=500, max_files=100)
    fill(log, *MANY)
    assert len(os.listdir(tmp_path)) > 5
    expected = [
        event
        for event in MANY
        if event.time >= wanted.get("since", 0)  # type: ignore[operator]
        and all(getattr(event, key) == value for key, value in wanted.items() if key != "since")
    ]
    if limit is not None:
        expected = expected[len(expected) - limit :] if limit < len(expected) else expected
    assert list(log.read(limit=limit, **wanted)) == expected  # type: ignore[arg-type]


@contextmanager
def log_folder() -> Iterator[str]:
    """Give a folder for one example; the head of the log lies beside it."""
    with tempfile.TemporaryDirectory() as around:
        folder = os.path.join(around, "audit")
        os.mkdir(folder)
        yield folder


@given(st.lists(st.integers(0, 200_000), max_size=6), st.integers(0, 8))
@settings(max_examples=examples(30))
def test_lines_of_any_length_are_read_backward_too(sizes: list[int], limit: int) -> None:
    with log_folder() as folder:
        log = AuditLog(folder)
        fill(log, *(AuditEvent(float(n), "run", data={"t": "x" * s}) for n, s in enumerate(sizes)))
        found = [int(event.time) for event in log.read(limit=limit)]
        assert found == list(range(len(sizes)))[max(len(sizes) - limit, 0) :]


# Permissions, and what cannot be written


def test_a_folder_that_is_removed_while_the_log_is_in_use_is_made_again(log: AuditLog) -> None:
    log.append(DECISION)
    shutil.rmtree(log.folder)
    log.append(DECISION)
    assert list(log.read()) == [DECISION]
    assert stat.S_IMODE(os.stat(log.folder).st_mode) == 0o700


def test_files_and_folders_are_private(log: AuditLog, tmp_path: Path) -> None:
    small = AuditLog(log.folder, max_bytes=50)
    before = os.umask(0)
    try:
        fill(small, *events(1, 2, 3))
    finally:
        os.umask(before)
    for folder in (tmp_path / "state", Path(log.folder)):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in Path(log.folder).iterdir()}
    assert modes == dict.fromkeys(("lock", "log.jsonl", "log.1.jsonl", "log.2.jsonl"), 0o600)


@pytest.mark.parametrize("way", ["file for folder", "folder", "link", "pipe", "lock is a link"])
def test_what_can_not_be_written_is_an_error(log: AuditLog, tmp_path: Path, way: str) -> None:
    """An action without a record is not allowed."""
    os.makedirs(os.path.dirname(log.folder))
    other = tmp_path / "other"
    other.write_text("mine")
    if way == "file for folder":
        Path(log.folder).write_text("")
    else:
        os.mkdir(log.folder)
    match way:
        case "folder":
            file(log).mkdir()
        case "link":
            file(log).symlink_to(other)
        case "pipe":
            os.mkfifo(file(log))
        case "lock is a link":
            file(log, "lock").symlink_to(other)
    with pytest.raises(ConfigError, match=r"audit log cannot be written: .*set state_dir"):
        log.append(DECISION)
    assert other.read_text() == "mine"


def test_a_full_disk_leaves_no_half_line(log: AuditLog) -> None:
    """A limit on the file size simulates a full disk."""
    log.append(DECISION)
    whole = file(log).read_bytes()
    code = f"""
import resource, signal
from skillbelt.permission.audit import AuditEvent, AuditLog
from skillbelt.errors import ConfigError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({len(whole) + 20}, {len(whole) + 20}))
try:
    AuditLog({log.folder!r}).append(AuditEvent(1.0, "run", data={{"text": "x" * 1000}}))
except ConfigError as error:
    print(error)
"""
    done = warm.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "File too large" in done.stdout
    assert file(log).read_bytes() == whole


# Crashes and foreign bytes


@pytest.mark.parametrize("cut", [1, 2, 30])
def test_a_torn_line_is_ended_and_skipped(log: AuditLog, cut: int) -> None:
    fill(log, *events(1), DECISION)
    os.truncate(file(log), file(log).stat().st_size - cut)
    whole = [*events(1), DECISION] if cut == 1 else events(1)
    assert list(log.read()) == whole
    assert list(log.read(limit=9)) == whole
    fill(log, *events(2))
    assert list(log.read()) == [*whole, *events(2)]
    assert list(log.read(limit=9)) == [*whole, *events(2)]
    assert file(log).read_bytes().count(b"\n") == 3


FOREIGN = [
    b"",
    b"\n\n",
    b"text",
    b"[]",
    b"null",
    b"{}",
    b'{"time":1}',
    b'{"type":"run"}',
    b'{"time":"1","type":"run"}',
    b'{"time":true,"type":"run","more":1}',
    b'{"time":1e999,"type":"run"}',
    b'{"time":NaN,"type":"run"}',
    b'{"time":1,"type":"run","data":[]}',
    b'{"time":1,"type":"run","data":{"a":Infinity}}',
    b'{"time":1,"type":"run","skill":null}',
    b'{"time":1,"type":"run","data":{"a":' + b"[" * 5000 + b"]" * 5000 + b"}}",
    b"[" * 100_000,
    b'{"time":' + b"9" * 5000 + b',"type":"run"}',
    b"\xff\xfe{\0",
    b"\0" * 4096,
]


@pytest.mark.parametrize("line", FOREIGN, ids=lambda line: line[:20].decode("latin-1"))
def test_a_line_of_somebody_else_is_skipped(log: AuditLog, line: bytes) -> None:
    fill(log, *events(1))
    with file(log).open("ab") as opened:
        opened.write(line + b"\n")
    fill(log, *events(2))
    assert list(log.read()) == events(1, 2)
    assert list(log.read(limit=5)) == events(1, 2)


@given(st.binary(max_size=300), st.binary(max_size=300))
@example(b'{"time":1,"type":"run"}\n', b'{"time":2,"type":"run"}')
@settings(deadline=None)
def test_any_bytes_are_a_log(old: bytes, new: bytes) -> None:
    """Every event that is read can be written again; forward and backward give the same."""
    with log_folder() as folder:
        Path(folder, "log.1.jsonl").write_bytes(old)
        Path(folder, "log.jsonl").write_bytes(new)
        log = AuditLog(folder)
        found = list(log.read())
        assert found == list(log.read(limit=1000))
        log.append(DECISION)
        assert list(log.read()) == [*found, DECISION]


pieces = st.sampled_from(
    [b'{"time":', b"1", b'"type":', b'"run"', b",", b"}", b"\n", b'"data":{', b"NaN", b"\xff", b"["]
)


@given(st.lists(pieces, max_size=40).map(b"".join))
@settings(deadline=None)
def test_bytes_that_are_nearly_a_log(content: bytes) -> None:
    with log_folder() as folder:
        Path(folder, "log.jsonl").write_bytes(content)
        log = AuditLog(folder)
        for event in log.read():
            assert isinstance(event.type, str)
            json.dumps(event._asdict(), allow_nan=False)
        assert list(log.read()) == list(log.read(limit=1000))


def test_other_files_in_the_folder_are_left_alone(log: AuditLog) -> None:
    fill(log, *events(1))
    others = ("x", "-1", "²", "", "0", "01", "00", "1.jsonl.gz")
    for name in ("notes", "log", "1", *(f"log.{other}.jsonl" for other in others)):
        file(log, name).write_text('{"time":9,"type":"run"}\n')
    assert list(log.read()) == events(1)
    small = AuditLog(log.folder, max_bytes=1)
    fill(small, *events(2, 3, 4, 5, 6, 7))
    assert file(log, "notes").exists()
    assert list(log.read()) == events(4, 5, 6, 7)


# Rotation


def test_a_full_file_is_put_aside_and_the_oldest_goes(log: AuditLog) -> None:
    one = BOUND + len('{"time":1.0,"type":"load"}\n')
    small = AuditLog(log.folder, max_bytes=2 * one, max_files=3)
    fill(small, *events(1, 2, 3, 4, 5))
    names = {name for name in os.listdir(log.folder) if name != "lock"}
    assert names == {"log.jsonl", "log.1.jsonl", "log.2.jsonl"}
    assert list(small.read()) == events(1, 2, 3, 4, 5)
    assert all(file(log, name).stat().st_size <= 2 * one for name in names)
    fill(small, *events(6, 7))
    assert list(small.read()) == events(3, 4, 5, 6, 7)
    assert list(small.read(limit=4)) == events(4, 5, 6, 7)


def test_one_file_alone(log: AuditLog) -> None:
    fill(AuditLog(log.folder, max_bytes=1, max_files=1), *events(1, 2))
    assert list(log.read()) == events(2)


def test_fewer_files_than_before(log: AuditLog) -> None:
    fill(AuditLog(log.folder, max_bytes=1, max_files=9), *events(1, 2, 3, 4, 5, 6))
    fill(AuditLog(log.folder, max_bytes=1, max_files=2), *events(7))
    assert list(log.read()) == events(6, 7)


def test_a_rotation_that_was_cut_short_loses_nothing_more(log: AuditLog) -> None:
    fill(log, *events(1))
    os.rename(file(log), file(log, "log.2.jsonl"))
    fill(AuditLog(log.folder, max_bytes=1), *events(2, 3))
    assert list(log.read()) == events(1, 2, 3)


def test_an_event_larger_than_a_file_has_one_of_its_own(log: AuditLog) -> None:
    small = AuditLog(log.folder, max_bytes=10)
    fill(small, DECISION, *events(1))
    assert list(small.read()) == [DECISION, *events(1)]


# Many at once


def numbers(log: AuditLog) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for event in log.read(type="run"):
        found.setdefault(event.session, []).append(event.data["number"])
    return found


def lines(log: AuditLog) -> list[bytes]:
    return [
        line
        for name in os.listdir(log.folder)
        if name != "lock"
        for line in file(log, name).read_bytes().splitlines()
    ]


def test_eight_processes_write_whole_lines(log: AuditLog) -> None:
    for child in [start(log, str(name), 500) for name in range(8)]:
        finish(child)
    assert len(lines(log)) == 4_000
    assert numbers(log) == {str(name): list(range(500)) for name in range(8)}


def test_rotation_by_two_processes_loses_nothing(log: AuditLog) -> None:
    for child in [start(log, name, 400, max_bytes=20_000) for name in "ab"]:
        finish(child)
    assert len(os.listdir(log.folder)) > 20
    assert numbers(log) == {name: list(range(400)) for name in "ab"}


def test_threads_share_a_log(log: AuditLog) -> None:
    small = AuditLog(log.folder, max_bytes=2_000, max_files=1000)

    def work(name: str) -> None:
        for number in range(100):
            small.append(AuditEvent(1.0, "run", session=name, data={"number": number}))

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert numbers(log) == {name: list(range(100)) for name in "abcd"}


def test_killed_processes_leave_at_most_a_torn_line_each(log: AuditLog) -> None:
    """A process that continues beside them loses nothing."""
    steady = start(log, "steady", 1000, max_bytes=200_000)
    dice = random.Random(7)
    for round in range(6):
        child = start(log, f"killed {round}", 1_000_000, max_bytes=200_000)
        assert child.stdout
        for _ in range(dice.randint(1, 5)):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=PATIENCE)
    finish(steady)
    log.append(DECISION)
    found = numbers(log)
    assert found.pop("steady") == list(range(1000))
    for rest in found.values():
        assert rest == list(range(len(rest)))
    whole = sum(1 for _ in log.read())
    assert len(lines(log)) - whole <= 6


def test_reading_while_others_write_and_rotate(log: AuditLog) -> None:
    """Each reading has every event up to some moment, once and in order."""
    child = start(log, "a", 1500, max_bytes=30_000)
    seen = 0
    while child.poll() is None:
        now = numbers(log).get("a", [])
        assert now == list(range(len(now)))
        assert len(now) >= seen
        seen = len(now)
        newest = [int(event.time) for event in log.read(limit=5)]
        assert newest == list(range(newest[0], newest[0] + len(newest))) if newest else not seen
    finish(child)
    assert numbers(log) == {"a": list(range(1500))}


def test_a_reader_keeps_its_moment(log: AuditLog) -> None:
    small = AuditLog(log.folder, max_bytes=60 + 2 * BOUND, max_files=2)
    fill(small, *events(1, 2, 3, 4))
    reading = small.read()
    first = next(reading)
    fill(small, *events(5, 6, 7, 8, 9))
    assert [first, *reading] == events(1, 2, 3, 4)


# Following


def test_following_gives_the_old_and_then_the_new(log: AuditLog) -> None:
    fill(log, *events(1, 2, 3))
    following = log.follow(limit=2, seconds=0.01)
    assert [next(following), next(following)] == events(2, 3)
    fill(log, *events(4, 5))
    assert [next(following), next(following)] == events(4, 5)
    fill(log, *events(6, type="run"))
    assert next(following) == events(6, type="run")[0]
    following.close()


def test_following_a_log_that_does_not_exist_yet(log: AuditLog) -> None:
    stop = threading.Event()
    got: list[AuditEvent] = []

    def follow() -> None:
        for event in log.follow(type="run", stop=stop, seconds=0.01):
            got.append(event)
            stop.set()

    thread = threading.Thread(target=follow)
    thread.start()
    fill(log, *events(1), *events(2, type="run"))
    thread.join(PATIENCE)
    assert got == events(2, type="run")


def test_following_through_rotations_loses_nothing(log: AuditLog) -> None:
    child = start(log, "a", 800, max_bytes=10_000)
    got = []
    for event in log.follow(seconds=0.005):
        got.append(event.data["number"])
        if len(got) == 800:
            break
    finish(child)
    assert got == list(range(800))


def test_following_a_log_that_outran_the_follower(log: AuditLog) -> None:
    """Records that were rotated away are lost; the others come once."""
    small = AuditLog(log.folder, max_bytes=1, max_files=2)
    fill(small, *events(1))
    following = small.follow(seconds=0.01)
    assert next(following) == events(1)[0]
    fill(small, *events(2, 3, 4, 5))
    assert [next(following), next(following)] == events(4, 5)
    following.close()


def test_following_leaves_no_handle_open(log: AuditLog) -> None:
    fill(log, *events(1))
    with no_handle_left():
        following = log.follow(seconds=0.01)
        next(following)
        fill(log, *events(2))
        next(following)
        following.close()


# Where and who


def test_the_log_lies_in_the_state_folder(tree: Tree) -> None:
    given = tree.settings()
    log = open_audit(given)
    assert isinstance(log, AuditLog)
    assert log.folder == os.path.join(given.state_dir, "audit")


def test_the_user_has_a_name() -> None:
    assert user_name() == pwd.getpwuid(os.getuid()).pw_name


@needs.root
def test_a_user_without_a_name_is_a_number(open_tree: Tree) -> None:
    code = "import os, pwd; from skillbelt.permission.audit import user_name; os.setuid(54321)\n"
    assert open_tree.python("-c", f"{code}print(user_name())").stdout == "54321\n"


def decoded_lines(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """A list of the lines that are decoded from now on."""
    decode, seen = decode_event, list[bytes]()

    def noted(line: bytes) -> AuditEvent | None:
        seen.append(line)
        return decode(line)

    monkeypatch.setattr(audit, "decode_event", noted)
    return seen


@pytest.mark.parametrize("wanted", [{"since": 60.0}, {"limit": 2}, {"since": 55.0, "limit": 2}])
def test_the_beginning_of_a_long_log_is_not_read(
    log: AuditLog, wanted: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, *events(*range(1, 61)))
    monkeypatch.setattr(audit, "_OLDER_IN_A_ROW", 5)
    seen = decoded_lines(monkeypatch)
    found = list(log.read(**wanted))  # type: ignore[arg-type]
    assert [event.time for event in found] == [60.0] if wanted == {"since": 60.0} else [59.0, 60.0]
    assert len(set(seen)) < 20


def test_events_are_given_while_they_are_read(
    log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, *events(*range(1, 51)))
    seen = decoded_lines(monkeypatch)
    reading = log.read()
    assert next(reading).time == 1.0
    assert len(seen) == 1
    reading.close()  # type: ignore[attr-defined]


def test_a_few_wrong_times_do_not_hide_what_comes_before(log: AuditLog) -> None:
    times = [100.0, 101.0, 1.0, 2.0, 102.0]
    fill(log, *(AuditEvent(time, "load") for time in times))
    assert [event.time for event in log.read(since=100.0)] == [100.0, 101.0, 102.0]
