"""The first process of a container, as one: in a pid namespace of its own, spoken to in frames."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillbelt.sandbox.inside import container as first_process
from skillbelt.sandbox.inside.container import HEADER, START, RunningCommand, Unstartable, clear
from skillbelt.sandbox.inside.source import source_of
from skillbelt.sandbox.linux import seccomp
from skillbelt.sandbox.linux.identity import trusted_program
from tests import needs

HANG_SECONDS = 500.0
TEXT = source_of("container").encode()
PATH = "/usr/bin:/bin"
# Not all of the root: bubblewrap mounts again what is below, and containers beside it come and go.
SYSTEM = [
    word
    for folder in ("/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64")
    if os.path.isdir(folder)
    for word in ("--ro-bind", folder, folder)
]


class First:
    """The keeper as the first process of bubblewrap."""

    def __init__(self, *places: str) -> None:
        bwrap = trusted_program("bwrap")
        if bwrap is None:
            needs.not_run("needs bubblewrap: apt install bubblewrap")
        self._process = subprocess.Popen(
            [
                *(bwrap, "--unshare-pid", "--as-pid-1", "--die-with-parent", *SYSTEM),
                *("--tmpfs", "/tmp", "--dev", "/dev", "--proc", "/proc", "--uid", "62000"),
                *("--gid", "62000", "--unshare-user", "--"),
                *("/usr/bin/python3", "-I", "-S", "-c", START.format(size=len(TEXT)), *places),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._said = b""
        self.write(TEXT)

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)

    def send(self, kind: bytes, data: bytes = b"") -> None:
        self.write(HEADER.pack(kind, len(data)) + data)

    def start(self, *argv: str, **fields: object) -> None:
        task = {
            "argv": argv, "env": {"PATH": PATH}, "cwd": "/", "terminal": False, "limits": [],
            "temporary": ["/tmp"],
            "lock": None, "filter": seccomp.program(True, False).hex(), **fields,
        }  # fmt: skip
        self.send(first_process.JOB, json.dumps(task).encode())

    def next(self) -> tuple[bytes, bytes]:
        """The next frame."""
        while len(self._said) < HEADER.size or len(self._said) < self._size():
            self._read()
        size = self._size()
        kind, data = self._said[:1], self._said[HEADER.size : size]
        self._said = self._said[size:]
        return kind, data

    def _size(self) -> int:
        return int(HEADER.unpack_from(self._said)[1]) + HEADER.size

    def _read(self) -> None:
        assert self._process.stdout is not None
        ready = select.select([self._process.stdout], [], [], HANG_SECONDS)[0]
        assert ready, "it says nothing"
        data = self._process.stdout.read(2**16)
        assert data, self._process.stderr and self._process.stderr.read()
        self._said += data

    def ended(self) -> dict[str, Any]:
        """Everything up to the end of the command, by kind; and how it ended."""
        found: dict[str, Any] = {"1": b"", "2": b""}
        while (frame := self.next())[0] != first_process.DONE:
            key = frame[0].decode()
            found[key] = found.get(key, b"") + frame[1]
        return {**found, **json.loads(frame[1])}

    def close(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(HANG_SECONDS)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        return code


@pytest.fixture
def first() -> Iterator[First]:
    made = First()
    assert made.next()[0] == first_process.HELLO
    yield made
    made.close()


def test_it_says_what_holds_it() -> None:
    """And what it sees at the places it is asked about."""
    made = First("/usr", "/tmp")
    kind, data = made.next()
    made.close()
    hello = json.loads(data)
    usr = os.stat("/usr")
    assert kind == first_process.HELLO
    assert hello["places"][0] == [usr.st_dev, usr.st_ino]
    assert hello["Uid"].split() == ["62000"] * 4
    assert hello["NoNewPrivs"] == "1"
    assert all(hello["namespaces"])


def test_it_ends_with_its_input(first: First) -> None:
    first.start("sleep", "1000")
    assert first.next()[0] == first_process.STARTED
    assert first.close() == 0


def test_it_ends_when_the_program_itself_does_not_come() -> None:
    made = subprocess.run(
        ["/usr/bin/python3", "-I", "-S", "-c", START.format(size=100)],
        input=b"half of it", timeout=HANG_SECONDS, check=False,
    )  # fmt: skip
    assert made.returncode == 125


def test_one_command_after_another(first: First) -> None:
    for number in range(3):
        first.start("sh", "-c", f"echo {number}; echo e >&2; exit {number}")
        assert first.next()[0] == first_process.STARTED
        done = first.ended()
        assert (done["code"], done["1"], done["2"]) == (number, b"%d\n" % number, b"e\n")
        assert first.next()[0] == first_process.CLEAN


def test_input_is_counted_as_it_is_taken(first: First) -> None:
    first.start("head", "-c", "5")
    assert first.next()[0] == first_process.STARTED
    first.send(first_process.INPUT, b"12345")
    assert first.next() == (first_process.TAKEN, (5).to_bytes(4, "big"))
    assert first.ended()["1"] == b"12345"


def test_input_that_nobody_reads_any_more_is_told(first: First) -> None:
    first.start("sh", "-c", "exec 0<&-; echo shut; sleep 1000")
    assert [first.next()[0], first.next()[0]] == [first_process.STARTED, first_process.OUTPUT]
    first.send(first_process.INPUT, bytes(1000))
    assert first.next()[0] == first_process.BROKEN
    first.send(first_process.KILL)
    assert first.ended()["code"] == 137


def test_everything_is_ended_on_demand(first: First) -> None:
    script = "trap '' TERM; (setsid sleep 1000 &); echo up; while :; do sleep 60; done"
    first.start("sh", "-c", script)
    assert [first.next(), first.next()] == [
        (first_process.STARTED, b""),
        (first_process.OUTPUT, b"up\n"),
    ]
    first.send(first_process.KILL)
    assert first.ended()["code"] == 128 + signal.SIGKILL
    first.start("sh", "-c", "ls /proc | grep -c '^[0-9]'")
    assert first.next()[0] == first_process.CLEAN
    assert first.next()[0] == first_process.STARTED
    # Itself, the shell, and the two of the pipe.
    assert int(first.ended()["1"]) <= 4


def test_what_can_not_be_set_up_is_no_outcome(first: First) -> None:
    first.start("true", cwd="/no/such/folder")
    kind, data = first.next()
    assert (kind, b"/no/such/folder" in data) == (first_process.REFUSED, True)
    first.start("true")
    assert first.next()[0] == first_process.STARTED


def test_processor_time_of_everything_is_counted(first: First) -> None:
    spin = "import os, time\nif os.fork(): os.wait()\nwhile time.process_time() < 0.3: pass"
    first.start("python3", "-c", spin)
    assert first.next()[0] == first_process.STARTED
    assert first.ended()["cpu"] >= 0.6


def test_orphans_are_waited_for(first: First) -> None:
    """Attack 32: else they would use up the number of processes."""
    code = """
import os, time
for _ in range(50):
    if os.fork() == 0:
        os._exit(0 if os.fork() else 0)
    os.wait()
def dead(pid):
    try:
        return open(f"/proc/{pid}/stat").read().split()[2] == "Z"
    except OSError:
        return False
while any(dead(name) for name in os.listdir("/proc") if name.isdigit()):
    time.sleep(0.01)
print("none")
"""
    first.start("python3", "-c", code)
    assert first.next()[0] == first_process.STARTED
    assert first.ended()["1"] == b"none\n"


def test_nothing_else_may_end_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside a container that would be all of the machine."""
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("it was about to"))
    command = RunningCommand.__new__(RunningCommand)
    with pytest.raises(Unstartable, match="only the first process"):
        command.sweep()


def test_a_folder_is_emptied_of_everything(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_text("x")
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "broken").symlink_to("/no/such")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "a" / "b").chmod(0)
    assert clear([str(tmp_path), "/no/such/folder"], set())
    assert os.listdir(tmp_path) == []
    assert os.path.exists("/etc/passwd")


def test_a_folder_that_stays_is_told(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    try:
        for _ in range(700):
            os.mkdir("d", dir_fd=here)
            below = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
    finally:
        os.close(here)
    assert not clear([str(tmp_path)], set())
    subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)


def test_nothing_is_removed_where_something_of_the_host_is(tmp_path: Path) -> None:
    """Even if the runtime asks for it."""
    (tmp_path / "kept").write_text("x")
    assert clear([str(tmp_path)], {os.stat(tmp_path).st_dev})
    assert (tmp_path / "kept").exists()


def test_what_is_mounted_below_is_left_alone(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root to mount: sudo make test")
    place = tmp_path / "around" / "mounted"
    place.mkdir(parents=True)
    os.chown(tmp_path / "around", 12345, -1)
    subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
    try:
        (place / "kept").write_text("x")
        assert clear([str(tmp_path)], set())
        assert (place / "kept").exists()
    finally:
        subprocess.run(["umount", place], check=True)
