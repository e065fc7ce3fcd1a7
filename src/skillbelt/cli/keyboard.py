"""Read the answer to a question from the terminal, typed by a person after it was shown.

Input from before the question is discarded, and pasted text is not accepted as an answer.
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
from collections.abc import Callable, Sequence
from time import monotonic
from types import FrameType
from typing import Any, Self

from skillbelt.cli.words import width
from skillbelt.records import NamedTuple

# Keys within this time were not typed by hand.
_BURST_SECONDS = 0.01
# Time after a newline for a second line of the same paste to arrive.
_AFTER_LINE_SECONDS = 0.03
# A person needs longer than this to read a question and answer it.
_QUIET_SECONDS = 0.15
_MAX_QUIET_SECONDS = 3.0
_POLL_SECONDS = 0.5
_MAX_CHARS = 1_000
_MAX_WORD_CHARS = 12  # characters of an answer in a menu
_CHUNK = 4096
_PASTE_ON, _PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"
_PASTE_BEGINS, _PASTE_ENDS = b"\x1b[200~", b"\x1b[201~"
# The escape sequence of an arrow or function key.
_KEY = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)
# Arrow keys up and down, as terminals send them in their two modes.
_UP, _DOWN = (b"\x1b[A", b"\x1bOA"), (b"\x1b[B", b"\x1bOB")
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Terminals in raw mode: descriptor -> original state and the sequence that ends raw mode.
_changed: dict[int, tuple[list[Any], bytes]] = {}


class Burst(Exception):
    """Several keys arrived at once: a paste, or a program that types."""


class NoLongerNeeded(Exception):
    """The question needs no answer any more."""


def is_continued(line: str) -> bool:
    """Whether the line ends in a backslash that no other backslash escapes."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def is_dumb() -> bool:
    """Whether the terminal can only print lines."""
    return os.environ.get("TERM", "dumb") in ("", "dumb")


def can_ask() -> bool:
    """Whether a person can be asked; from then on signals restore the terminal.

    Piped standard input means no, even when there is a terminal.
    """
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    if threading.current_thread() is threading.main_thread():
        for number in _ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _restore_and_die)
    return True


def _restore_and_die(number: int, _: FrameType | None) -> None:
    """Restore the terminal, then end by the signal's default action."""
    restore_all()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


@atexit.register
def restore_all() -> None:
    """Restore every terminal that is changed."""
    for handle in reversed(list(_changed)):  # the first entry has the original state
        _restore(handle)


def _restore(handle: int, when: int = termios.TCSAFLUSH) -> None:
    """Restore the terminal; flush, so that the rest of a paste is not read as an answer."""
    state, leave = _changed.pop(handle, ([], b""))
    if state:
        try:
            termios.tcsetattr(handle, when, state)
            os.write(handle, leave)
        except (termios.error, OSError):
            pass  # the terminal was closed


class MenuRow(NamedTuple):
    """A row of a menu: its word, its label, and other words with the same meaning."""

    word: str
    label: str
    others: tuple[str, ...] = ()

    def matches(self, typed: str) -> bool:
        """Whether this was typed: its letter, its word or another word for it."""
        return typed in (self.word, self.word[:1], *self.others)


class Menu:
    """Rows above a prompt. The arrow keys choose one, as does its letter; Enter takes it."""

    def __init__(self, choices: Sequence[MenuRow], usual: str) -> None:
        """Make a menu; `usual` is the word that Enter alone means."""
        self.choices = tuple(choices)
        self._usual = usual

    def find(self, typed: str) -> str:
        """Return the word of the menu that was typed or meant; "" for none."""
        typed = typed.strip().lower()
        if not typed:
            return self._usual
        return next((one.word for one in self.choices if one.matches(typed)), "")

    def step(self, typed: str, by: int) -> str:
        """Return the word of the next row; at first the first row, or backwards the last.

        A key that was meant for something else must not choose a permanent approval.
        """
        words = [one.word for one in self.choices]
        word = self.find(typed) if typed else ""
        if not word:
            return words[0 if by > 0 else -1]
        return words[(words.index(word) + by) % len(words)]

    def rows(self) -> list[str]:
        """Return the rows as they are first drawn."""
        return [f"{self._mark_of(one, '')} {one.word[:1]}  {one.label}" for one in self.choices]

    def marks(self, typed: str) -> str:
        """Return the codes that redraw the mark of each row and restore the cursor."""
        up = len(self.choices)
        drawn = [
            f"\x1b7\x1b[{up - number}A\r{self._mark_of(one, typed)}\x1b8"
            for number, one in enumerate(self.choices)
        ]
        return "".join(drawn)

    def _mark_of(self, choice: MenuRow, typed: str) -> str:
        return ">" if choice.word == self.find(typed) else " "


class Unechoed:
    """The terminal during an answer: keys wait unseen for the next prompt, pastes as one.

    Ctrl-C still sends a signal. Without a terminal it does nothing.
    """

    def __enter__(self) -> Self:
        self._handle = -1
        try:
            self._handle = _terminal()
            _change(self._handle, termios.TCSANOW)
        except (termios.error, OSError):
            self.__exit__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle >= 0:
            _restore(self._handle, termios.TCSANOW)
            os.close(self._handle)
            self._handle = -1


def _change(handle: int, when: int) -> None:
    """Receive each key at once without echo, and distinguish a paste; Ctrl-C sends a signal."""
    state = termios.tcgetattr(handle)
    keys = [*state[:6], list(state[6])]
    keys[0] &= ~termios.ICRNL  # the editor distinguishes Enter from Ctrl-J
    keys[3] &= ~(termios.ICANON | termios.ECHO)
    keys[6][termios.VMIN], keys[6][termios.VTIME] = 1, 0
    dumb = is_dumb()
    _changed[handle] = (state, b"" if dumb else _PASTE_OFF.encode())
    termios.tcsetattr(handle, when, keys)
    if not dumb:
        os.write(handle, _PASTE_ON.encode())


class Keyboard:
    """The terminal in raw mode while questions are asked; restored afterwards.

    EOFError when there is no terminal, or it was closed.
    """

    def __init__(self, settled: Callable[[], bool] = lambda: False) -> None:
        """Prepare it; `settled` returns True once no answer is needed any more."""
        self._settled = settled
        self._menu: Menu | None = None
        self._moves = False

    def __enter__(self) -> Self:
        try:
            self._handle = _terminal()
        except OSError as error:
            raise EOFError from error
        try:
            _change(self._handle, termios.TCSAFLUSH)
        except (termios.error, OSError) as error:
            os.close(self._handle)
            raise EOFError from error
        return self

    def __exit__(self, *_: object) -> None:
        _restore(self._handle)
        os.close(self._handle)

    def say(self, text: str) -> None:
        """Write to the terminal that the answer comes from."""
        encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
        left = memoryview(text.encode(encoding, "backslashreplace"))
        try:
            while left:
                left = left[os.write(self._handle, left) :]
        except OSError as error:
            raise EOFError from error

    def choose(self, prompt: str, menu: Menu) -> str:
        """Show a menu and read one of its words; "" for none of them. Raises like `line`."""
        rows = menu.rows()
        self.say("".join(f"{row}\n" for row in rows))
        # If a row is wrapped, its mark is not at the expected position.
        moves = (
            not is_dumb() and width(sys.stderr) > max(map(len, (prompt, *rows))) + _MAX_WORD_CHARS
        )
        self._menu, self._moves = menu, moves
        try:
            return menu.find(self.line(prompt))
        finally:
            self._menu = None

    def line(self, prompt: str, *, words: bool = False) -> str:
        """Read a line after the prompt. Burst when keys arrive at once, unless `words` are wanted.

        EOFError at the end of the input, NoLongerNeeded when no answer is needed any more.
        """
        self._discard_input()
        self.say(prompt)
        typed, decoder = "", codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            data = self._read_keys()
            if not words and _is_burst(data):
                self._discard_input()
                self.say("\n")
                raise Burst
            typed = self._step(typed, data)
            data = data.replace(_PASTE_BEGINS, b"").replace(_PASTE_ENDS, b"")
            for char in decoder.decode(_KEY.sub(b"", data)):
                if char in "\r\n":
                    return self._end_line(typed, words)
                typed = self._type(typed, char)
            if self._menu and self._moves:
                self.say(self._menu.marks(typed))

    def _step(self, typed: str, data: bytes) -> str:
        """Apply an arrow key to the menu: the line holds the word of the row."""
        if self._menu is None or data not in (*_UP, *_DOWN):
            return typed
        chosen = self._menu.step(typed, -1 if data in _UP else 1)
        self.say("\b \b" * len(typed) + chosen)
        return chosen

    def _end_line(self, typed: str, words: bool) -> str:
        """Return the line; Burst when more input follows at once."""
        more = bool(select.select([self._handle], [], [], _AFTER_LINE_SECONDS)[0])
        self._discard_input() if more else None
        self.say("\n")
        if more and not words:
            raise Burst
        return typed

    def _type(self, typed: str, char: str) -> str:
        """Apply one key to the line and to the screen."""
        if char in "\x7f\b":
            self.say("\b \b" if typed else "")
            return typed[:-1]
        if char == "\x15":
            self.say("\b \b" * len(typed))
            return ""
        if char == "\x04" and not typed:
            self.say("\n")
            raise EOFError
        if not char.isprintable() or len(typed) >= _MAX_CHARS:
            return typed
        self.say(char)
        return typed + char

    def _read_keys(self) -> bytes:
        """Read the next keys: all that arrive at once."""
        while not select.select([self._handle], [], [], _POLL_SECONDS)[0]:
            if self._settled():
                self.say("\n")
                raise NoLongerNeeded
        data = self._read()
        while select.select([self._handle], [], [], _BURST_SECONDS)[0] and len(data) < _CHUNK:
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

    def _discard_input(self) -> None:
        """Discard input until it pauses, for a limited time."""
        until = monotonic() + _MAX_QUIET_SECONDS
        while monotonic() < until:
            if not select.select([self._handle], [], [], _QUIET_SECONDS)[0]:
                break
            self._read()
        try:
            termios.tcflush(self._handle, termios.TCIFLUSH)
        except termios.error as error:
            raise EOFError from error


def _terminal() -> int:
    """Open the terminal of standard input; a new descriptor if it is the controlling one."""
    try:
        os.tcgetpgrp(0)  # fails unless standard input is the controlling terminal
        return os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return os.dup(0)


def _is_burst(data: bytes) -> bool:
    """Whether this is more than one key; a letter and Enter at once are not typed by hand."""
    if _PASTE_BEGINS in data or _PASTE_ENDS in data:
        return True
    if _KEY.fullmatch(data):
        return False
    return len(data.decode("utf-8", "replace").replace("\r\n", "\n")) > 1
