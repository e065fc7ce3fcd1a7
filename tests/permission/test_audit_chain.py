"""The chain of the log: every later change of the files is detected, with its place."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.errors import ConfigError
from skillbelt.permission.audit import AuditEvent, AuditLog, HeadFile, read_head
from skillbelt.permission.audit_events import NONE, Check, Head, hash_of, link_of
from tests import warm

PATIENCE = 150
APPENDS = """
import sys
from skillbelt.permission.audit import AuditEvent, AuditLog
log = AuditLog(sys.argv[1], max_bytes=int(sys.argv[3]), max_files=int(sys.argv[4]))
for number in range(int(sys.argv[2])):
    log.append(AuditEvent(number, "run", data={"text": "x" * (number * 37 % 500)}))
    print(number, flush=True)
"""
Lines = list[bytes]


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    return AuditLog(str(tmp_path / "state" / "audit"))


@pytest.fixture
def filled(log: AuditLog) -> AuditLog:
    fill(log, 10)
    assert log.verify() == (10, 0, 0, ())
    return log


def fill(log: AuditLog, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        log.append(AuditEvent(float(number), "load", data={"number": number}))


def file(log: AuditLog, name: str = "log.jsonl") -> Path:
    return Path(log.folder, name)


def change(log: AuditLog, how: Callable[[Lines], object]) -> None:
    lines = file(log).read_bytes().splitlines(keepends=True)
    how(lines)
    file(log).write_bytes(b"".join(lines))


def faults(log: AuditLog) -> list[tuple[int, str]]:
    """Return the line and the beginning of the message of each fault."""
    found = log.verify()
    assert found.broken == len(found.faults)
    assert all(fault.path.startswith(log.folder) for fault in found.faults)
    return [(fault.line, fault.message) for fault in found.faults]


def start(log: AuditLog, count: int, max_bytes: int, files: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", APPENDS, log.folder, *map(str, (count, max_bytes, files))]
    return warm.Popen[bytes](command, stdout=subprocess.PIPE)


# What shows


def test_no_log_is_whole(log: AuditLog) -> None:
    assert log.verify() == (0, 0, 0, ())


def test_each_record_has_the_hash_of_the_one_before(filled: AuditLog) -> None:
    before = NONE
    for number, line in enumerate(file(filled).read_bytes().splitlines(), 1):
        link = link_of(line)
        assert link is not None
        assert (link.seq, link.prev) == (number, before)
        before = hash_of(line)
    head = read_head(filled.head_path)
    assert head is not None
    assert (head.seq, head.hash) == (10, before)
    assert os.stat(filled.head_path).st_mode & 0o777 == 0o600


@pytest.mark.parametrize("at", range(10))
def test_a_changed_record_shows_where_it_is(filled: AuditLog, at: int) -> None:
    def how(lines: Lines) -> None:
        lines[at] = lines[at].replace(b'"load"', b'"lood"')

    change(filled, how)
    [(line, message)] = faults(filled)
    assert line == at + 1
    assert message.startswith("is not what was written")


@pytest.mark.parametrize("at", range(9))
def test_a_removed_record_shows(filled: AuditLog, at: int) -> None:
    change(filled, lambda lines: lines.pop(at))
    assert faults(filled) == [(at + 1, f"1 records are missing before this one (number {at + 2})")]


@pytest.mark.parametrize("left", range(10))
def test_an_end_that_was_cut_off_shows(filled: AuditLog, left: int) -> None:
    change(filled, lambda lines: lines.__delitem__(slice(left, None)))
    [(line, message)] = faults(filled)
    assert line == left
    assert message.startswith(f"the last {10 - left} records are missing")


def test_it_still_shows_when_more_was_written(filled: AuditLog) -> None:
    change(filled, lambda lines: lines.__delitem__(slice(7, None)))
    fill(filled, 3, 10)
    assert faults(filled) == [(8, "3 records are missing before this one (number 11)")]


def test_records_in_another_order_show(filled: AuditLog) -> None:
    change(filled, lambda lines: lines.insert(3, lines.pop(5)))
    assert [line for line, _ in faults(filled)] == [4, 5, 7]


@pytest.mark.parametrize("line", [b"x\n", b"{}\n", b'{"time":1.0,"type":"run"}\n', b"\n"])
@pytest.mark.parametrize("at", [1, 5, 10])
def test_a_line_that_was_added_shows(filled: AuditLog, line: bytes, at: int) -> None:
    change(filled, lambda lines: lines.insert(at, line))
    assert faults(filled) == [(at + 1, "is not a record of this log: it was changed or added")]


def test_a_record_that_is_there_twice_shows(filled: AuditLog) -> None:
    change(filled, lambda lines: lines.insert(4, lines[4]))
    assert faults(filled)[0] == (6, "record 5 is in the wrong place, after 5")


def test_a_file_that_is_gone_shows(log: AuditLog) -> None:
    small = AuditLog(log.folder, max_bytes=400, max_files=9)
    fill(small, 12)
    file(log, "log.1.jsonl").unlink()
    [fault] = log.verify().faults
    assert fault.path == str(file(log))
    assert "records are missing before this one" in fault.message


def test_a_folder_that_is_gone_shows(filled: AuditLog) -> None:
    for name in os.listdir(filled.folder):
        file(filled, name).unlink()
    assert faults(filled) == [
        (0, "the last 10 records are missing after this: the end was cut off")
    ]


@pytest.mark.parametrize("content", [None, b"", b"0", b"x" * 200])
def test_a_head_that_is_gone_shows(filled: AuditLog, content: bytes | None) -> None:
    Path(filled.head_path).unlink()
    if content is not None:
        Path(filled.head_path).write_bytes(content)
    assert [line for line, _ in faults(filled)] == [0]
    fill(filled, 2)
    assert [message[:24] for _, message in faults(filled)] == ["a new chain begins here:"]


def test_very_many_faults_are_counted(log: AuditLog) -> None:
    fill(log, 220)
    change(log, lambda lines: lines.__delitem__(slice(0, None, 2)))
    found = log.verify()
    assert found.broken == 110
    assert len(found.faults) == 100


@pytest.mark.parametrize("older", [0, 1])
def test_a_line_that_was_put_before_the_first_record_shows(log: AuditLog, older: int) -> None:
    os.makedirs(log.folder)
    line = b'{"time":1.0,"type":"run"}\n'
    file(log).write_bytes(line * older)
    fill(log, 3)
    assert log.verify() == (3, older, 0, ())
    change(log, lambda lines: lines.insert(0, line))
    assert faults(log) == [(older + 1, "was added before the first record of the log")]


def test_a_head_that_counted_no_older_lines_is_still_one(filled: AuditLog) -> None:
    head = Path(filled.head_path)
    head.write_bytes(head.read_bytes()[: -len(" 00000000000000000000\n")] + b"\n")
    assert filled.verify() == (10, 0, 0, ())
    fill(filled, 1)
    assert filled.verify() == (11, 0, 0, ())


# What is no fault


def test_records_from_before_there_was_a_chain_are_counted(log: AuditLog) -> None:
    os.makedirs(log.folder)
    file(log).write_bytes(b'{"time":1.0,"type":"run"}\n{"time":2.0,"type":"r')
    assert log.verify() == (0, 2, 0, ())
    fill(log, 3)
    assert log.verify() == (3, 2, 0, ())
    assert [event.time for event in log.read()] == [1.0, 0.0, 1.0, 2.0]
    change(log, lambda lines: lines.pop(3))
    assert faults(log) == [(4, "1 records are missing before this one (number 3)")]


@pytest.mark.parametrize("files", [1, 2, 3, 50])
def test_what_was_let_go_by_rotation_is_not_missing(log: AuditLog, files: int) -> None:
    small = AuditLog(log.folder, max_bytes=400, max_files=files)
    for number in range(20):
        fill(small, 1, number)
        assert small.verify().faults == ()
    fewer = AuditLog(log.folder, max_bytes=400, max_files=1)
    fill(fewer, 5)
    assert fewer.verify().faults == ()
    lines = file(log).read_bytes().splitlines(keepends=True)
    if len(lines) > 1:
        file(log).write_bytes(b"".join(lines[1:]))
        assert [fault.line for fault in fewer.verify().faults] == [1]


def test_a_writer_that_was_ended_before_it_moved_the_head(filled: AuditLog) -> None:
    before = Path(filled.head_path).read_bytes()
    fill(filled, 1, 10)
    Path(filled.head_path).write_bytes(before)
    assert filled.verify() == (11, 0, 0, ())
    fill(filled, 2, 11)
    assert filled.verify() == (13, 0, 0, ())


def test_more_than_one_such_record_is_somebody_elses(filled: AuditLog) -> None:
    before = Path(filled.head_path).read_bytes()
    fill(filled, 2, 10)
    Path(filled.head_path).write_bytes(before)
    assert [line for line, _ in faults(filled)] == [12]


@pytest.mark.parametrize("cut", [1, 20, 90, 130])
@pytest.mark.parametrize("max_bytes", [2**20, 600])
def test_half_a_record_that_a_crash_left_breaks_nothing(
    log: AuditLog, cut: int, max_bytes: int
) -> None:
    log = AuditLog(log.folder, max_bytes=max_bytes)
    fill(log, 4)
    before = Path(log.head_path).read_bytes()
    size = file(log).stat().st_size
    with file(log).open("ab") as half:
        half.write(b'{"seq":5,"prev":"' + b"0" * 200)
        half.truncate(size + cut)
    assert Path(log.head_path).read_bytes() == before
    assert log.verify().faults == ()
    fill(log, 2)
    assert log.verify().faults == ()
    assert log.verify().records == 6


def test_half_a_record_within_the_log_is_no_excuse_for_another(filled: AuditLog) -> None:
    with file(filled).open("ab") as half:
        half.write(b'{"seq":11,"pr')
    fill(filled, 1)
    change(filled, lambda lines: lines.insert(10, b"x\n"))
    assert [line for line, _ in faults(filled)] == [11]


# Many writers, and none that can write


@pytest.mark.parametrize(("max_bytes", "files"), [(2**30, 4), (20_000, 100), (2_000, 2)])
def test_many_processes_make_one_chain(log: AuditLog, max_bytes: int, files: int) -> None:
    children = [start(log, 60, max_bytes, files) for _ in range(4)]
    for child in children:
        child.communicate(timeout=PATIENCE)
        assert child.returncode == 0
    found = log.verify()
    assert found.faults == ()
    assert found.records == 240 or files == 2
    head = read_head(log.head_path)
    assert head is not None
    assert head.seq == 240


def test_killed_writers_leave_a_chain(log: AuditLog) -> None:
    for _ in range(6):
        child = start(log, 10**6, 5_000, 3)
        assert child.stdout is not None
        for _ in range(5):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=PATIENCE)
        assert log.verify().faults == ()


def test_a_disk_without_room_is_told_and_leaves_the_chain_whole(log: AuditLog) -> None:
    """A limit on the file size simulates a full disk: the write is cut short."""
    fill(log, 3)
    size = file(log).stat().st_size
    code = f"""
import resource, sys
from skillbelt.permission.audit import AuditEvent, AuditLog
resource.setrlimit(resource.RLIMIT_FSIZE, ({size + 40}, {resource.RLIM_INFINITY}))
AuditLog({log.folder!r}).append(AuditEvent(1.0, "run", data={{"a": "x" * 500}}))
"""
    done = warm.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert "ConfigError" in done.stderr
    assert "the audit log cannot be written: File too large" in done.stderr
    assert file(log).stat().st_size == size
    fill(log, 2)
    assert log.verify() == (5, 0, 0, ())


def test_a_head_that_can_not_be_written_leaves_no_record(
    filled: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(HeadFile, "write", full)
        with pytest.raises(ConfigError, match="No space left on device"):
            fill(filled, 1)
    assert filled.verify() == (10, 0, 0, ())


def test_a_link_in_the_heads_place_is_not_followed(log: AuditLog, tmp_path: Path) -> None:
    os.makedirs(log.folder)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    os.symlink(victim, log.head_path)
    with pytest.raises(ConfigError, match="cannot be written"):
        fill(log, 1)
    assert victim.read_text() == "mine"


@given(st.lists(st.binary(max_size=40), max_size=8), st.booleans())
def test_a_check_of_any_lines_comes_to_an_end(lines: list[bytes], has_head: bool) -> None:
    check = Check(Head() if has_head else None, "head")
    for number, line in enumerate(lines, 1):
        check.take("log", number, line)
    assert check.end().records == 0
