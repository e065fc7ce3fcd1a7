"""The command line as somebody at a terminal meets it: a real pseudo-terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from typing import NamedTuple

from tests.tree import Tree

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_LINE_START = re.compile(r"[^\n]*\r\x1b\[K")  # progress that was wiped away again


class Screen(NamedTuple):
    """What a command wrote, and what of it is left to read without colours."""

    exit_code: int
    written: str

    @property
    def lines(self) -> list[str]:
        plain = _STYLE.sub("", self.written.replace("\r\n", "\n"))
        return [line.rstrip() for line in _LINE_START.sub("", plain).splitlines()]


def on_terminal(
    tree: Tree,
    *arguments: str,
    columns: int = 100,
    typed: str = "",
    program: tuple[str, ...] = ("-m", "skillbelt"),
    **environ: str,
) -> Screen:
    """Run the command line on a terminal of that width, with what somebody types there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
    child = subprocess.Popen(
        [sys.executable, *program, *arguments],
        cwd=tree.project,
        env={**env, "TERM": "xterm-256color", "PYTHONUTF8": "1", **environ},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    written = _all(ours)
    os.close(ours)
    return Screen(child.wait(50), written.decode("utf-8", "replace"))


def _all(handle: int) -> bytes:
    data = b""
    while True:
        try:
            chunk = os.read(handle, 65536)
        except OSError:  # Linux says EIO when the other side is gone
            return data
        if not chunk:
            return data
        data += chunk
