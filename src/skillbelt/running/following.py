"""Follow a run: its output for a callback, an event loop or a terminal, and its end.

A sandbox reports output from its own thread, in pieces that may end within a character.
"""

from __future__ import annotations

import codecs
import io
import sys
import threading
from collections.abc import Callable
from typing import NamedTuple

from skillbelt.sandbox.protocol import Listener, Running, Stream
from skillbelt.text import hidden, one_line


class Watch(NamedTuple):
    """Callbacks for a run: `listener` gets its output, `started` the command once it runs.

    `is_over` says right before the start whether the call was cancelled.
    """

    listener: Listener | None = None
    started: Callable[[Running], None] | None = None
    is_over: Callable[[], bool] | None = None


UNWATCHED = Watch()


class Follower:
    """Follows the commands of one call and kills them, from any thread; pass its `watch` on.

    `take` gets their output. When it raises, the commands are killed and `check` raises the error.
    """

    def __init__(self, take: Listener | None = None) -> None:
        self._take = take
        self._lock = threading.Lock()
        self._running: list[Running] = []
        self._error: BaseException | None = None
        self.killed = False
        listener = self._listen if take else None
        self.watch = Watch(listener, self._note_start, lambda: self.killed)

    def kill(self) -> bool:
        """Kill the commands, now or as soon as they start; return whether any was started."""
        with self._lock:
            self.killed, running = True, list(self._running)
        for one in running:
            one.kill()
        return bool(running)

    def check(self) -> None:
        """Raise the exception that `take` raised."""
        if self._error is not None:
            raise self._error

    def _note_start(self, running: Running) -> None:
        with self._lock:
            self._running.append(running)
            killed = self.killed
        if killed:
            running.kill()

    def _listen(self, stream: Stream, data: bytes) -> None:
        if self._take is None or self._error is not None:
            return
        try:
            self._take(stream, data)
        except BaseException as error:  # it would end a thread of the sandbox
            self._error = error
            self.kill()


class Decoder:
    """A listener that gives both streams to `take` as text, in whole characters."""

    def __init__(self, take: Callable[[Stream, str], object]) -> None:
        self._take = take
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": make("replace"), "stderr": make("replace")}

    def __call__(self, stream: Stream, data: bytes, final: bool = False) -> None:
        """Decode more of a stream."""
        text = self._decoders[stream].decode(data, final)
        if text:
            self._take(stream, text)

    def end(self) -> None:
        """Pass on the rest of a truncated character."""
        for stream in ("stdout", "stderr"):
            self(stream, b"", final=True)


class TerminalOutput:
    """A listener that writes to this process's own streams.

    A pipe gets the bytes unchanged. On a terminal, control characters are shown as escapes.
    """

    def __init__(self) -> None:
        make = codecs.getincrementaldecoder("utf-8")
        # Progress bars return to the start of the line; here each update is a line.
        self._decoders = {
            stream: io.IncrementalNewlineDecoder(make("replace"), translate=True)
            for stream in ("stdout", "stderr")
        }

    def __call__(self, stream: Stream, data: bytes) -> None:
        """Write more of a stream; OSError when that is no longer possible."""
        target = sys.stdout if stream == "stdout" else sys.stderr
        if target.isatty():
            target.write(visible(self._decoders[stream].decode(data)))
        else:
            target.buffer.write(data)
        target.flush()


def visible(text: str) -> str:
    """Return the text with characters that could move the cursor or hide words as escapes."""
    for mark in set(hidden(text)):
        text = text.replace(mark, one_line(f"a{mark}b")[1:-1].strip())
    return text
