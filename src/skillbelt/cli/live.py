"""What a skill's program prints, shown while it prints it."""

from __future__ import annotations

import codecs
import io
import signal
import sys
import threading

from skillbelt.cli.output import show_progress
from skillbelt.sandbox.protocol import Stream
from skillbelt.text import hidden, one_line


class Live:
    """A listener for a run. A pipe gets the very bytes; a terminal is not let to be played with.

    A run in its context ends when its output can not be written any more, and an OSError says so.
    """

    def __init__(self) -> None:
        self._texts = {"stdout": _Text(), "stderr": _Text()}
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
            self._show(stream, data)
        except OSError as fault:
            self._fault = fault
            # Whoever waits for the run is another thread, which only a signal can reach.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _show(self, stream: Stream, data: bytes) -> None:
        target = sys.stdout if stream == "stdout" else sys.stderr
        if target.isatty():
            target.write(self._texts[stream].more(data))
        else:
            target.buffer.write(data)
        target.flush()


class _Text:
    """The text of a stream that comes in pieces, which may end within a character."""

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # Programs that show progress go back to the start of a line; here each is a line.
        self._decoder = io.IncrementalNewlineDecoder(decoder, translate=True)

    def more(self, data: bytes) -> str:
        return visible(self._decoder.decode(data))


def visible(text: str) -> str:
    """The text with whatever could move the cursor or hide words shown as escapes."""
    for mark in set(hidden(text)):
        text = text.replace(mark, one_line(f"a{mark}b")[1:-1].strip())
    return text
