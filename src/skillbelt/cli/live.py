"""Show the output of a run while it runs."""

from __future__ import annotations

import codecs
import io
import signal
import sys
import threading

from skillbelt.cli.output import show_progress
from skillbelt.sandbox.protocol import Stream
from skillbelt.text import hidden, one_line


class LiveOutput:
    """A listener for a run. A pipe gets the exact bytes, a terminal gets escaped text.

    When the output cannot be written any more, the run is interrupted and OSError raised.
    """

    def __init__(self) -> None:
        self._decoders = {"stdout": _Decoder(), "stderr": _Decoder()}
        self._begun = self._showing = False
        self._fault: OSError | None = None

    def __enter__(self) -> LiveOutput:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._clear_progress()
        if kind in (None, KeyboardInterrupt) and self._fault is not None:
            raise self._fault

    def progress(self, text: str) -> None:
        """Show progress, until there is output."""
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
            self._show(stream, data)
        except OSError as fault:
            self._fault = fault
            # The main thread waits for the run; only a signal reaches it.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _show(self, stream: Stream, data: bytes) -> None:
        target = sys.stdout if stream == "stdout" else sys.stderr
        if target.isatty():
            target.write(self._decoders[stream].decode(data))
        else:
            target.buffer.write(data)
        target.flush()


class _Decoder:
    """Decodes a stream in pieces that may end within a character."""

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        # A carriage return of a progress display becomes a newline.
        self._decoder = io.IncrementalNewlineDecoder(decoder, translate=True)

    def decode(self, data: bytes) -> str:
        return visible(self._decoder.decode(data))


def visible(text: str) -> str:
    """Escape what could move the cursor or hide text."""
    for mark in set(hidden(text)):
        text = text.replace(mark, one_line(f"a{mark}b")[1:-1].strip())
    return text
