"""Show the output of a run while it runs, and its progress before that."""

from __future__ import annotations

import signal
import threading

from skillbelt.cli.output import show_progress
from skillbelt.running.following import TerminalOutput
from skillbelt.sandbox.protocol import Stream


class LiveOutput:
    """A listener for a run; as a context manager it ends the run when writing fails.

    The OSError of that write is raised at the end.
    """

    def __init__(self) -> None:
        self._output = TerminalOutput()
        self._begun = self._showing = False
        self._fault: OSError | None = None

    def __enter__(self) -> LiveOutput:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._clear_progress()
        if kind in (None, KeyboardInterrupt) and self._fault is not None:
            raise self._fault

    def progress(self, text: str) -> None:
        """Show progress until there is output."""
        if not self._begun:
            self._showing = True
            show_progress(text)

    def _clear_progress(self) -> None:
        if self._showing:
            show_progress("")
        self._showing = False

    def __call__(self, stream: Stream, data: bytes) -> None:
        """Show more of a stream."""
        if self._fault is not None:
            return
        self._begun = True
        self._clear_progress()
        try:
            self._output(stream, data)
        except OSError as fault:
            self._fault = fault
            # The main thread waits for the run; only a signal reaches it.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
