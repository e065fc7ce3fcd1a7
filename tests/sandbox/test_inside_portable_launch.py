from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile

from skillbelt.sandbox.inside import portable_launch
from skillbelt.sandbox.inside.source import source_of

TEXT = source_of("portable_launch")
HANG_SECONDS = 500


class Kept:
    """A command below a launcher, and the end of the sockets that it lives by."""

    def __init__(self, *argv: str, **fields: object) -> None:
        task = {
            "argv": argv, "missing": "", "env": {"A": "b"}, "cwd": "/", "identity": None,
            "processes": True, "limits": [], **fields,
        }  # fmt: skip
        self.hold, theirs = socket.socketpair()
        with tempfile.TemporaryFile() as file, theirs:
            file.write(json.dumps(task).encode())
            file.seek(0)
            handles = (file.fileno(), theirs.fileno())
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", TEXT, *map(str, handles)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=handles,
                env={},
            )

    def end(self) -> tuple[int, bytes, bytes]:
        """The exit code and both streams."""
        out, err = self.process.communicate(timeout=HANG_SECONDS)
        self.hold.close()
        return self.process.returncode, out, err


def test_the_exit_code_and_the_streams_are_those_of_the_command() -> None:
    kept = Kept("/bin/sh", "-c", "echo out $A; echo err >&2; exit 3")
    assert kept.end() == (3, b"out b\n", b"err\n")


def test_a_signal_is_128_and_its_number() -> None:
    assert Kept("/bin/sh", "-c", "kill -TERM $$").end()[0] == 143


def test_what_is_missing_is_told() -> None:
    assert Kept(missing="no-such").end() == (127, b"", b"no-such: not found\n")


def test_what_can_not_be_started_is_told() -> None:
    code, _, said = Kept("/bin/true", cwd="/no/such/folder").end()
    assert code == 125
    assert said.startswith(b"FileNotFoundError: ")


def test_limits_are_those_given_beside_what_the_user_has() -> None:
    import resource

    limits = [(resource.RLIMIT_NOFILE, (99, 99)), (resource.RLIMIT_NPROC, (5, 5))]
    others = sum(user == os.getuid() for _, _, user in portable_launch.processes())
    code, out, _ = Kept("/bin/sh", "-c", "ulimit -n; ulimit -p", limits=limits).end()
    files, count = map(int, out.split())
    assert (code, files) == (0, 99)
    assert abs(count - others - 5) < 50


def test_it_ends_when_the_other_side_is_gone() -> None:
    kept = Kept("/bin/sh", "-c", "sleep 100 & echo started; wait")
    assert kept.process.stdout is not None
    assert kept.process.stdout.readline() == b"started\n"
    kept.hold.close()
    # The streams end only when no process below holds them.
    assert kept.end()[0] == 137


def test_its_handle_is_not_handed_on() -> None:
    kept = Kept("/bin/sh", "-c", "ls /proc/self/fd | wc -l")
    assert kept.end()[1].strip() == b"4"


def test_descendants_are_found_by_their_parents() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 100 & echo $!; wait"], stdout=subprocess.PIPE) as one:
        assert one.stdout is not None
        below = int(one.stdout.readline())
        assert portable_launch.below(one.pid) == [below]
        one.kill()
        os.kill(below, 9)
