"""The command line as somebody at a terminal meets it: a real pseudo-terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tests import warm
from tests.tree import Tree

_STYLE = re.compile(r"\x1b\[(?:[0-9;]*m|\?2004[hl])")
_LINE_START = re.compile(r"[^\n]*\r\x1b\[K")  # progress that was wiped away again


class Paste(str):
    """What is typed all at once, though it is a letter and Enter."""


class Screen(NamedTuple):
    """What a command wrote, and what of it is left to read without colours."""

    exit_code: int
    written: str

    @property
    def lines(self) -> list[str]:
        plain = _STYLE.sub("", self.written.replace("\r\n", "\n"))
        return [line.rstrip() for line in _LINE_START.sub("", plain).splitlines()]


HANG_SECONDS = 500
CHOICE = "(Enter for no)? "
REASON = "Enter for none)? "


def on_terminal(
    tree: Tree,
    *arguments: str,
    columns: int = 100,
    ahead: str = "",
    answers: Iterable[tuple[str, str]] = (),
    program: tuple[str, ...] = ("-m", "skillbelt"),
    **environ: str,
) -> Screen:
    """Run the command line on a terminal of that width.

    Somebody types `ahead` before it starts, and each of `answers` once its text is on the screen:
    of a letter and Enter, the second once the first is there.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    before = termios.tcgetattr(theirs)
    os.write(ours, ahead.encode())
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
    child = warm.Popen[bytes](
        [sys.executable, *program, *arguments],
        terminal=True,
        cwd=tree.project,
        env={**env, "TERM": "xterm-256color", "PYTHONUTF8": "1", **environ},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    try:
        written = b"".join(_talk(ours, answers))
        written += _until_the_end(ours, child)
        assert termios.tcgetattr(theirs) == before, "the terminal is not as it was"
        return Screen(child.wait(HANG_SECONDS), written.decode("utf-8", "replace"))
    finally:
        child.kill()
        child.wait()
        os.close(theirs)
        os.close(ours)


def _talk(handle: int, answers: Iterable[tuple[str, str]]) -> Iterator[bytes]:
    """Type each answer when what it waits for has come; give what was read meanwhile."""
    pending = b""
    for awaited, typed in (key for answer in answers for key in _keys(*answer)):
        while awaited.encode() not in pending:
            assert select.select([handle], [], [], HANG_SECONDS)[0], pending
            chunk = os.read(handle, 65536)
            pending += chunk
            yield chunk
        pending = pending[pending.index(awaited.encode()) + len(awaited.encode()) :]
        os.write(handle, typed.encode())


def _keys(awaited: str, typed: str) -> list[tuple[str, str]]:
    if len(typed) == 2 and typed[0].isalpha() and not isinstance(typed, Paste):
        return [(awaited, typed[0]), (typed[0], typed[1])]
    return [(awaited, typed)]


def _until_the_end(handle: int, child: subprocess.Popen[bytes]) -> bytes:
    data = b""
    end = time.monotonic() + HANG_SECONDS
    while time.monotonic() < end:
        over = child.poll() is not None
        if select.select([handle], [], [], 0 if over else 0.05)[0]:
            data += os.read(handle, 65536)
        elif over:
            return data
    raise AssertionError(f"it did not end: {data!r}")
