"""Shows the output of a run while it lasts, and before that its progress."""

from __future__ import annotations

import signal
import threading

from skillbelt.cli.output import show_progress
from skillbelt.running.following import TerminalOutput
from skillbelt.sandbox.protocol import Stream


class Live:
    """A listener for a run. As a context it ends the run when its output cannot be written.

    The OSError of that write is raised then.
    """

    def __init__(self) -> None:
        self._output = TerminalOutput()
        self._begun = self._said = False
        self._fault: OSError | None = None

    def __enter__(self) -> Live:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._wipe()
        if kind in (None, KeyboardInterrupt) and self._fault is not None:
            raise self._fault

    def progress(self, text: str) -> None:
        """Say what goes on, as long as there is nothing else to show."""
        if not self._begun:
            self._said = True
            show_progress(text)

    def _wipe(self) -> None:
        if self._said:
            show_progress("")
        self._said = False

    def __call__(self, stream: Stream, data: bytes) -> None:
        """Show more of a stream."""
        if self._fault is not None:
            return
        self._begun = True
        self._wipe()
        try:
            self._output(stream, data)
        except OSError as fault:
            self._fault = fault
            # Whoever waits for the run is another thread, which only a signal can reach.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
