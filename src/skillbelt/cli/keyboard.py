"""A person at the terminal: what they type to a question that is on the screen, and nothing else.

What was typed or pasted before the question is thrown away. What comes all at once is no answer.
"""

from __future__ import annotations

import atexit
import codecs
import os
import re
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable
from time import monotonic
from types import FrameType
from typing import Any, Self

# No finger is as quick as that: what comes within it came at once.
_AT_ONCE_SECONDS = 0.01
# After a line end, so long that a second line of the same paste is there.
_AFTER_LINE_SECONDS = 0.03
# Nobody has read a question and answered it within this time.
_QUIET_SECONDS = 0.15
_QUIET_AT_MOST_SECONDS = 3.0
_LOOK_SECONDS = 0.5
_MOST_CHARS = 1_000
_CHUNK = 4096
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
_PASTE_BEGINS, _PASTE_ENDS = b"\x1b[200~", b"\x1b[201~"
# An arrow or another key that is no letter.
_KEY = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Terminals whose state is not the one they were found in: their handle, that state, how to leave.
_changed: dict[int, tuple[list[Any], bytes]] = {}


class Burst(Exception):
    """Several keys came at once: a paste, or something that types in somebody's place."""


class Gone(Exception):
    """The question needs no answer any more."""


def somebody_is_there() -> bool:
    """Whether a person can be asked here; from then on the terminal is restored at the end.

    Input that a pipe feeds is nobody, even where there is a terminal beside it.
    """
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    if threading.current_thread() is threading.main_thread():
        for number in _ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end)
    return True


def _end(number: int, _: FrameType | None) -> None:
    """End as the signal would have ended it, with the terminal as it was."""
    _restore_all()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


@atexit.register
def _restore_all() -> None:
    for handle in list(_changed):
        _restore(handle)


def _restore(handle: int) -> None:
    state, leave = _changed.pop(handle, ([], b""))
    if state:
        try:
            # What is left of a paste is nobody's answer either.
            termios.tcsetattr(handle, termios.TCSAFLUSH, state)
            os.write(handle, leave)
        except (termios.error, OSError):
            pass  # there is no such terminal any more


class Keyboard:
    """The terminal while questions are asked there; afterwards it is as it was.

    EOFError where there is none, or none any more.
    """

    def __init__(self, gone: Callable[[], bool] = lambda: False) -> None:
        """`gone` says whether nobody waits for an answer any more."""
        self._gone = gone

    def __enter__(self) -> Self:
        try:
            self._handle = _terminal()
        except OSError as error:
            raise EOFError from error
        try:
            self._take()
        except (termios.error, OSError) as error:
            os.close(self._handle)
            raise EOFError from error
        return self

    def __exit__(self, *_: object) -> None:
        _restore(self._handle)
        os.close(self._handle)

    def _take(self) -> None:
        """Get each key as it comes. An interrupt stays one."""
        state = termios.tcgetattr(self._handle)
        keys = [*state[:6], list(state[6])]
        keys[3] &= ~(termios.ICANON | termios.ECHO)
        keys[6][termios.VMIN], keys[6][termios.VTIME] = 1, 0
        dumb = os.environ.get("TERM", "dumb") in ("", "dumb")
        _changed[self._handle] = (state, b"" if dumb else _PASTE_OFF.encode())
        termios.tcsetattr(self._handle, termios.TCSAFLUSH, keys)
        if not dumb:
            self.say(_PASTE_ON)

    def say(self, text: str) -> None:
        """Write on the terminal that the answer comes from."""
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        left = memoryview(text.encode(encoding, "backslashreplace"))
        try:
            while left:
                left = left[os.write(self._handle, left) :]
        except OSError as error:
            raise EOFError from error

    def line(self, prompt: str, *, words: bool = False) -> str:
        """What is typed after the prompt. Burst, when keys come at once and it is no `words`.

        EOFError at the end of the input, Gone when nobody waits for it any more.
        """
        self._settle()
        self.say(prompt)
        typed, decoder = "", codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            data = self._keys()
            if not words and _at_once(data):
                self._settle()
                self.say("\n")
                raise Burst
            data = data.replace(_PASTE_BEGINS, b"").replace(_PASTE_ENDS, b"")
            for char in decoder.decode(_KEY.sub(b"", data)):
                if char in "\r\n":
                    return self._ended(typed, words)
                typed = self._typed(typed, char)

    def _ended(self, typed: str, words: bool) -> str:
        """The line, unless another one came along with it."""
        more = bool(select.select([self._handle], [], [], _AFTER_LINE_SECONDS)[0])
        self._settle() if more else None
        self.say("\n")
        if more and not words:
            raise Burst
        return typed

    def _typed(self, typed: str, char: str) -> str:
        """The line with one key more, and the screen too."""
        if char in "\x7f\b":
            self.say("\b \b" if typed else "")
            return typed[:-1]
        if char == "\x15":
            self.say("\b \b" * len(typed))
            return ""
        if char == "\x04" and not typed:
            self.say("\n")
            raise EOFError
        if not char.isprintable() or len(typed) >= _MOST_CHARS:
            return typed
        self.say(char)
        return typed + char

    def _keys(self) -> bytes:
        """The next keys: all that come at once."""
        while not select.select([self._handle], [], [], _LOOK_SECONDS)[0]:
            if self._gone():
                self.say("\n")
                raise Gone
        data = self._read()
        while select.select([self._handle], [], [], _AT_ONCE_SECONDS)[0] and len(data) < _CHUNK:
            data += self._read()
        return data

    def _read(self) -> bytes:
        try:
            data = os.read(self._handle, _CHUNK)
        except OSError as error:
            raise EOFError from error
        if not data:
            raise EOFError
        return data

    def _settle(self) -> None:
        """Throw away what comes until nothing does; what goes on for long is no person."""
        until = monotonic() + _QUIET_AT_MOST_SECONDS
        while monotonic() < until:
            if not select.select([self._handle], [], [], _QUIET_SECONDS)[0]:
                break
            self._read()
        try:
            termios.tcflush(self._handle, termios.TCIFLUSH)
        except termios.error as error:
            raise EOFError from error


def _terminal() -> int:
    """A handle of the terminal that standard input is, of our own where it is ours alone."""
    try:
        os.tcgetpgrp(0)  # fails unless it is the one that controls this process
        return os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return os.dup(0)


def _at_once(data: bytes) -> bool:
    """Whether it is more than one key: a letter with its Enter comes from no finger."""
    if _PASTE_BEGINS in data or _PASTE_ENDS in data:
        return True
    if _KEY.fullmatch(data):
        return False
    return len(data.decode("utf-8", "replace").replace("\r\n", "\n")) > 1
