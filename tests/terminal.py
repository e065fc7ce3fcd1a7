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
    with Terminal(tree, *arguments, columns=columns, program=program, **environ) as terminal:
        terminal.type(typed)
        return Screen(*terminal.end())


class Terminal:
    """The command line on a terminal, for somebody who looks before typing."""

    def __init__(
        self,
        tree: Tree,
        *arguments: str,
        columns: int = 100,
        program: tuple[str, ...] = ("-m", "skillbelt"),
        **environ: str,
    ) -> None:
        self._ours, self._child = _started(tree, arguments, columns, program, environ)
        self._written = b""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait()
        os.close(self._ours)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def until(self, text: str) -> None:
        """Wait until it shows the text."""
        while text.encode() not in self._written:
            chunk = _read(self._ours)
            assert chunk, self._written
            self._written += chunk

    def end(self) -> tuple[int, str]:
        """Wait for its end; the exit code, and all that it wrote."""
        while chunk := _read(self._ours):
            self._written += chunk
        return self._child.wait(50), self._written.decode("utf-8", "replace")


def _started(
    tree: Tree,
    arguments: tuple[str, ...],
    columns: int,
    program: tuple[str, ...],
    environ: dict[str, str],
) -> tuple[int, subprocess.Popen[bytes]]:
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
    return ours, child


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, 65536)
    except OSError:  # Linux says EIO when the other side is gone
        return b""
