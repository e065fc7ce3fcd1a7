"""A chat in a real terminal: tmux draws what a person would see.

A screen is compared with the text that is kept in `screens/`; times, tokens and names that differ
from run to run are normalised. `WRITE_SCREENS=write` writes the texts anew.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.needs import not_run
from tests.tree import Tree

SCREENS = Path(__file__).parent / "screens"
HANG_SECONDS = 150
NORMAL = (
    (re.compile(r"chat-\d{8}-\d{6}-[0-9a-f]{4}"), "chat-SESSION"),
    (re.compile(r"http://127\.0\.0\.1:\d+/v1"), "http://MODEL/v1"),
    (re.compile(r"\b\d+(?:\.\d)? s\b"), "N s"),
    (re.compile(r"\b[\d,]+ tokens"), "N tokens"),
    (re.compile(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]"), "*"),
    (re.compile(r"sha256:[0-9a-f]+"), "sha256:HASH"),
)


class Terminal:
    """A tmux of its own, with one window."""

    def __init__(self, socket: Path) -> None:
        self._command = ["tmux", "-S", str(socket), "-f", "/dev/null"]

    def tmux(self, *words: str) -> str:
        command = [*self._command, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def screen(self, *options: str) -> str:
        return "\n".join(
            line.rstrip() for line in self.tmux("capture-pane", "-p", *options).split("\n")
        )

    def until(self, shown: str | Callable[[str], bool]) -> str:
        """Wait until the screen shows a text, or is as the function says."""
        is_there = shown if callable(shown) else lambda screen: shown in screen
        seen = ""

        def look() -> bool:
            nonlocal seen
            seen = self.screen()
            return is_there(seen)

        _wait(look, lambda: f"{shown!r} did not come:\n{seen}")
        return seen

    def until_left(self) -> int:
        """Wait until the program has ended; return its exit code.

        tmux misses the end of a child now and then, of any program: it knows that the terminal
        was closed, but does not look for the exit code and never draws "Pane is dead". A signal
        makes it look.
        """
        code = ""

        def look() -> bool:
            nonlocal code
            closed, server, code = self._ask("#{pane_dead}", "#{pid}", "#{pane_dead_status}")
            if closed == "1" and not code:
                os.kill(int(server), signal.SIGCHLD)
            return bool(code)

        _wait(look, lambda: f"the program did not end:\n{self.screen()}")
        return int(code)

    def end(self) -> None:
        """End tmux and wait until the program is gone, which may write into the test's folders."""
        try:
            program = os.pidfd_open(int(*self._ask("#{pane_pid}")))
        except (subprocess.CalledProcessError, ProcessLookupError):
            program = -1  # it never started, or is gone
        subprocess.run([*self._command, "kill-server"], capture_output=True)
        if program >= 0:
            ended = select.select([program], [], [], HANG_SECONDS)[0]
            os.close(program)
            assert ended, "the program goes on without a terminal"

    def _ask(self, *formats: str) -> list[str]:
        return self.tmux("display-message", "-p", "\t".join(formats)).rstrip("\n").split("\t")

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)

    def press(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def paste(self, text: str) -> None:
        """Paste as a terminal does, with brackets where the program asked for them."""
        self.tmux("set-buffer", text)
        self.tmux("paste-buffer", "-p")

    def say(self, line: str) -> None:
        """Type a line at an empty prompt."""
        self.until(at_prompt)
        self.type(line)
        self.until(line[-20:])
        self.press("Enter")


def _wait(is_done: Callable[[], bool], describe: Callable[[], str]) -> None:
    end = time.monotonic() + HANG_SECONDS
    while not is_done():
        assert time.monotonic() < end, describe()
        time.sleep(0.05)


def at_prompt(screen: str) -> bool:
    """Whether the last line is an empty prompt."""
    lines = screen.rstrip().split("\n")
    return lines[-1].startswith("> ") and "/help" in lines[-1]


@contextmanager
def terminal(
    tree: Tree,
    *options: str,
    command: str = "chat",
    columns: int = 80,
    rows: int = 40,
    **environ: str,
) -> Iterator[Terminal]:
    """A chat, or another command, in a terminal of that size; the end of the block ends it."""
    if shutil.which("tmux") is None:
        not_run("needs tmux, which scripts/setup.sh installs")
    made = Terminal(tree.root / "tmux")
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONUTF8": "1", **environ}
    env |= {k: v for k, v in os.environ.items() if k.startswith(("XDG_", "HOME", "SKILLBELT_"))}
    words = [f"{name}={value}" for name, value in env.items()]
    program = [sys.executable, "-m", "skillbelt", command, *options]
    size = ("-x", str(columns), "-y", str(rows))
    try:
        # Set before the program starts, which may end at once.
        made.tmux(
            "start-server", ";", "set-option", "-g", "remain-on-exit", "on", ";",
            "new-session", "-d", *size, "-c", str(tree.project),
            "env", "-i", f"TERM={environ.get('TERM', 'tmux-256color')}", *words, *program,
        )  # fmt: skip
        yield made
    finally:
        made.end()


def check_screen(screen: str, name: str, tree: Tree) -> None:
    """Compare a screen with the text that is kept."""
    text = screen.replace(str(tree.project), "PROJECT").rstrip() + "\n"
    for pattern, said in NORMAL:
        text = pattern.sub(said, text)
    kept = SCREENS / f"{name}.txt"
    if os.environ.get("WRITE_SCREENS") == "write":
        kept.write_text(text, "utf-8")
    assert text == kept.read_text("utf-8")
