"""The program before a command, run as it is, outside of any sandbox."""

from __future__ import annotations

import errno
import os
import resource
import signal
import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from skillbelt.sandbox.inside.entry import LOCKED_WORDS, WORDS, paths_of, program
from skillbelt.sandbox.linux import seccomp
from skillbelt.sandbox.process.run import ANSWER, READY
from tests.sandbox.test_linux_seccomp import answer

Started = subprocess.CompletedProcess[bytes]
Start = Callable[..., Started]
FILES = (resource.RLIMIT_NOFILE, (50, 60))
CORE = (resource.RLIMIT_CORE, (0, 0))
PATHS = ("/bin/sh",)


def _no_new_privileges() -> None:
    """Set no_new_privs, as bubblewrap does: without it only root may load a filter."""
    import ctypes

    ctypes.CDLL(None).prctl(38, *(ctypes.c_ulong(each) for each in (1, 0, 0, 0)))


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def started(
        *command: str,
        paths: Sequence[str] = PATHS,
        limits: Sequence[tuple[int, tuple[int, int]]] = (),
        given: bytes = ANSWER,
        waits: bool = True,
        stays: bool = False,
        locked: bool = False,
    ) -> Started:
        lock = (seccomp.alone() if stays else seccomp.lock()) if locked else b""
        made = program(tuple(paths), tuple(limits), waits=waits, stays=stays, lock=lock)
        file = tmp_path / "program"
        file.write_bytes(made)
        file.chmod(0o755)
        return subprocess.run(
            [*(LOCKED_WORDS if locked else WORDS), *command],
            executable=str(file), input=given, capture_output=True, check=False,
            cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "WORD": "x"},
            preexec_fn=_no_new_privileges,
        )  # fmt: skip

    return started


def test_it_becomes_the_command_with_all_that_it_was_given(start: Start) -> None:
    script = 'read -r line; echo "$line $1 $WORD"; exit 3'
    done = start("sh", "-c", script, "sh", "a b", given=ANSWER + b"input\n")
    assert (done.returncode, done.stdout, done.stderr) == (3, READY + b"input a b x\n", b"")


@pytest.mark.parametrize("given", [b"", b"g", ANSWER[:-1]])
def test_without_an_answer_nothing_is_started(start: Start, given: bytes) -> None:
    done = start("sh", "-c", "echo started", given=given)
    assert (done.returncode, done.stdout) == (125, READY)


def test_when_nobody_listens_nothing_is_started(start: Start, tmp_path: Path) -> None:
    start("sh", "-c", "")
    read, write = os.pipe()
    os.close(read)
    words = [*WORDS, "sh", "-c", "touch made"]
    with subprocess.Popen(
        words, executable=str(tmp_path / "program"), stdin=subprocess.PIPE, stdout=write,
        cwd=tmp_path,
    ) as process:  # fmt: skip
        os.close(write)
        process.communicate(ANSWER)
    assert process.returncode == -signal.SIGPIPE
    assert not (tmp_path / "made").exists()


def test_the_limits_are_set(start: Start) -> None:
    done = start("sh", "-c", "ulimit -n; ulimit -H -n; ulimit -c", limits=(FILES, CORE))
    assert done.stdout == READY + b"50\n60\n0\n"


def test_a_limit_that_can_not_be_set_is_the_end(start: Start) -> None:
    wrong = (resource.RLIMIT_NOFILE, (60, 50))
    done = start("sh", "-c", "echo started", limits=(CORE, wrong))
    assert (done.returncode, done.stdout) == (125, READY)


def test_the_first_that_is_there_is_started(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    there = f"{tmp_path}/there"
    os.symlink("/bin/sh", there)
    paths = (f"{tmp_path}/none", "file/sh", "file", "folder", "there", "/bin/false")
    assert start("sh", "-c", "echo it", paths=paths).stdout == READY + b"it\n"


def test_a_script_without_a_first_line_is_not_passed_over(start: Start, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('echo "mine $1"\n')
    script.chmod(0o755)
    done = start("./script", "a", paths=("./script", "/bin/false"))
    assert (done.returncode, done.stdout) == (0, READY + b"mine a\n")


def test_what_can_not_be_started_is_told_as_a_shell_does(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = start("no-such", paths=("/bin/no-such",))
    assert done.returncode == 127 and b"no-such: not found" in done.stderr
    done = start("./file", paths=("./file",))
    assert done.returncode == 126 and b"denied" in done.stderr
    assert start("no-such", paths=()).returncode == 127


def test_it_need_not_wait(start: Start) -> None:
    done = start("sh", "-c", "read -r line; echo $line", waits=False, given=b"input\n")
    assert (done.returncode, done.stdout) == (0, b"input\n")


def test_a_locked_command_has_all_that_it_was_given(start: Start) -> None:
    script = 'read -r line; echo "$line $1 $WORD"; ulimit -n; exit 3'
    given = ANSWER + b"input\n"
    done = start("sh", "-c", script, "sh", "a b", given=given, limits=(FILES,), locked=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, READY + b"input a b x\n50\n", b"")


def test_the_first_that_is_there_is_locked(start: Start, tmp_path: Path) -> None:
    paths = (f"{tmp_path}/none", "/bin/sh")
    done = start("sh", "-c", "exec /bin/echo other", paths=paths, locked=True)
    assert done.returncode == 126 and done.stdout == READY


_TRIES = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
execve, execveat = {"x86_64": (59, 322), "aarch64": (221, 281)}[os.uname().machine]
argv = (ctypes.c_char_p * 2)(b"/bin/true", None)
tried = [lambda: os.execv("/bin/true", ["true"])]
tried += [lambda: os.execve(os.open("/bin/true", os.O_RDONLY), ["true"], {})]
for number in (0, 1, 2**32, 2**63, 2**64 - 1):
    wide = ctypes.c_ulong(number)
    tried.append(lambda: libc.syscall(execve, b"/bin/true", argv, None, wide))
    tried.append(lambda: libc.syscall(execveat, -100, b"/bin/true", argv, wide, wide))
for one in tried:
    try:
        assert one() == -1 and ctypes.get_errno() == 13
    except PermissionError:
        pass
print("still here", len(tried))
"""


def test_a_locked_command_stays_itself(start: Start) -> None:
    paths = ("/usr/bin/python3",)
    done = start("python3", "-I", "-S", "-c", _TRIES, paths=paths, locked=True)
    assert (done.returncode, done.stdout) == (0, READY + b"still here 12\n"), done.stderr


def test_a_locked_command_that_can_not_be_started_is_told(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = start("no-such", paths=("/bin/no-such",), locked=True)
    assert done.returncode == 127 and b"no-such: not found" in done.stderr
    done = start("./file", paths=("./file",), locked=True)
    assert done.returncode == 126 and b"denied" in done.stderr


# Above the command


def test_it_stays_above_a_command_that_has_all_that_it_was_given(start: Start) -> None:
    script = 'read -r line; echo "$line $1 $WORD"; ulimit -n; exit 3'
    given = ANSWER + b"input\n"
    done = start("sh", "-c", script, "sh", "a b", given=given, limits=(FILES,), stays=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, READY + b"input a b x\n50\n", b"")


def test_it_ends_as_the_command_does(start: Start) -> None:
    assert start("sh", "-c", "exit 255", stays=True).returncode == 255
    assert start("sh", "-c", "kill -9 $$", stays=True).returncode == 137
    done = start("no-such", paths=("/bin/no-such",), stays=True)
    assert done.returncode == 127 and b"no-such: not found" in done.stderr


def test_what_is_above_holds_no_stream_and_has_the_limits(start: Start) -> None:
    """Only root may open its handles, so other users count none."""
    script = """
until [ "$(ls /proc/$PPID/fd 2>/dev/null | wc -l)" = 0 ]; do :; done
diff /proc/$PPID/limits /proc/$$/limits
"""
    done = start("sh", "-c", script, stays=True, limits=(FILES,))
    assert (done.returncode, done.stdout) == (0, READY), done


def test_a_command_alone_starts_nothing_and_neither_does_what_is_above(start: Start) -> None:
    code = """
import os, threading
thread = threading.Thread(target=print, args=("thread",), kwargs={"flush": True})
thread.start()
thread.join()
for way in (os.fork, lambda: os.execv("/bin/true", ["true"])):
    try:
        way()
    except PermissionError as error:
        print(error.errno, flush=True)
def filters(pid):
    with open(f"/proc/{pid}/status") as lines:
        return [line for line in lines if "Seccomp" in line]
while filters(os.getppid()) != filters("self"):
    pass
"""
    paths = ("/usr/bin/python3",)
    done = start("python3", "-I", "-S", "-c", code, paths=paths, stays=True, locked=True)
    assert (done.returncode, done.stdout) == (0, READY + b"thread\n1\n13\n"), done


CALLS = {
    "x86_64": {"clone": 56, "forks": (57, 58), "execve": 59, "execveat": 322, "read": 0},
    "aarch64": {"clone": 220, "forks": (), "execve": 221, "execveat": 281, "read": 63},
}


@pytest.mark.parametrize("processor", CALLS)
def test_who_is_alone_starts_threads_and_nothing_else(processor: str) -> None:
    calls, filter_program = CALLS[processor], seccomp.alone(processor)

    def asked(number: object, *arguments: int) -> int:
        assert isinstance(number, int)
        return answer(filter_program, number, *arguments, arch=0)

    assert asked(calls["clone"], 0x00010F00) == 0
    assert asked(calls["clone"], 17) == errno.EPERM
    assert isinstance(calls["forks"], tuple)
    assert [asked(each) for each in calls["forks"]] == [errno.EPERM] * len(calls["forks"])
    assert asked(calls["execve"], 1, 2, 3, 0) == 0  # before a program writes a number
    assert asked(calls["execve"], 1, 2, 3, 2**32) == errno.EACCES
    assert asked(calls["execveat"], 1, 2, 3, 0) == errno.EACCES
    assert asked(calls["read"]) == 0


@pytest.mark.parametrize(
    ("word", "path", "paths"),
    [
        ("a", "/x:/y", ("/x/a", "/y/a")),
        ("a", ":/y:", ("a", "/y/a", "a")),
        ("./a", "/x", ("./a",)),
        ("/b/a", "", ("/b/a",)),
        ("a", "", ()),
        ("", "/x", ()),
    ],
)
def test_where_a_command_is_looked_for(word: str, path: str, paths: tuple[str, ...]) -> None:
    assert paths_of(word, path) == paths


@pytest.mark.parametrize(("processor", "mark"), [("x86_64", 62), ("aarch64", 183)])
def test_it_is_marked_for_its_processor(processor: str, mark: int) -> None:
    made = program(PATHS, (), processor)
    assert struct.unpack_from("<H", made, 18) == (mark,)


@pytest.mark.parametrize("processor", ["x86_64", "aarch64"])
def test_a_word_that_is_no_text_is_passed_on(processor: str) -> None:
    made = program((os.fsdecode(b"/x/\xff"),), (), processor)
    assert b"/x/\xff\0" in made
