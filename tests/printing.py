"""A command that goes on, and whose lines are read as they come."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.tree import Tree

PATIENCE = 150  # a guard against hanging, not a measure


class Printing:
    """A command of the command line under way."""

    def __init__(self, tree: Tree, *arguments: str, **environ: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=tree.project,
            env={**os.environ, **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.child.stdout and self.child.stderr
        self.out, self.err = self.child.stdout, self.child.stderr
        self._rest = b""

    def line(self) -> str:
        """The next line on stdout."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.out, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                assert selector.select(PATIENCE), "nothing was printed"
                chunk = os.read(self.out.fileno(), 65536)
                assert chunk, "the command ended"
                self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()

    def begun(self) -> str:
        """The first line on stderr."""
        return self.err.readline().decode()

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """The exit code after a signal, and what was left on stderr."""
        self.child.send_signal(number)
        code = self.child.wait(PATIENCE)
        return code, self.err.read().decode()


@contextmanager
def printing(tree: Tree, *arguments: str, **environ: str) -> Iterator[Printing]:
    """Python with these arguments, in the project of the tree; it ends with the block."""
    command = Printing(tree, *arguments, **environ)
    try:
        yield command
    finally:
        command.child.kill()
        command.child.wait(PATIENCE)
        command.out.close()
        command.err.close()
