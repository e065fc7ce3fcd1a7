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
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from tests import warm
from tests.needs import not_run
from tests.tree import Tree

SCREENS = Path(__file__).parent / "screens"
HANG_SECONDS = 500
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
    starts: bool = False,
    **environ: str,
) -> Iterator[Terminal]:
    """A chat, or another command, in a terminal of that size; the end of the block ends it.

    With `starts` it is a new process, else one that is forked where everything is imported.
    """
    if shutil.which("tmux") is None:
        not_run("needs tmux, which scripts/setup.sh installs")
    made = Terminal(tree.root / "tmux")
    env = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONUTF8": "1", **environ}
    env |= {k: v for k, v in os.environ.items() if k.startswith(("XDG_", "HOME", "SKILLBELT_"))}
    env["TERM"] = environ.get("TERM", "tmux-256color")
    program = [sys.executable, "-m", "skillbelt", command, *options]
    size = ("-x", str(columns), "-y", str(rows))
    words = ["env", "-i", *(f"{name}={value}" for name, value in env.items()), *program]
    with nullcontext(words) if starts else _forked(tree, program, env) as shown:
        try:
            # Set before the program starts, which may end at once.
            made.tmux(
                "start-server", ";", "set-option", "-g", "remain-on-exit", "on", ";",
                "new-session", "-d", *size, "-c", str(tree.project), *shown,
            )  # fmt: skip
            yield made
        finally:
            made.end()


# Gives its terminal away, to a program that it stands for: it ends as that does.
_STAND_IN = """
import fcntl, signal, socket, sys, termios
signal.signal(signal.SIGHUP, signal.SIG_IGN)
fcntl.ioctl(0, termios.TIOCNOTTY)
with socket.socket(socket.AF_UNIX) as door:
    door.connect(sys.argv[1])
    socket.send_fds(door, [b"x"], [0, 1, 2])
    sys.exit(int(door.recv(10)))
"""


@contextmanager
def _forked(tree: Tree, program: list[str], env: Mapping[str, str]) -> Iterator[list[str]]:
    """Give what is started in a terminal so that the program, which is forked, has it."""

    def fork() -> None:
        with suppress(OSError), door.accept()[0] as asker:  # or nobody comes
            streams = socket.recv_fds(asker, 1, 3)[1]
            with warm.Popen[bytes](
                program,
                terminal=True,
                cwd=tree.project,
                env=env,
                **dict(zip(("stdin", "stdout", "stderr"), streams, strict=True)),
            ) as process:
                for stream in streams:
                    os.close(stream)
                asker.send(str(process.wait() & 0xFF).encode())

    path = str(tree.root / "door")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen()
        thread = threading.Thread(target=fork)
        thread.start()
        try:
            yield [sys.executable, "-I", "-S", "-c", _STAND_IN, path]
        finally:
            with suppress(OSError):
                door.shutdown(socket.SHUT_RDWR)
            thread.join()


def check_screen(screen: str, name: str, tree: Tree) -> None:
    """Compare a screen with the text that is kept."""
    text = screen.replace(str(tree.project), "PROJECT").rstrip() + "\n"
    for pattern, said in NORMAL:
        text = pattern.sub(said, text)
    kept = SCREENS / f"{name}.txt"
    if os.environ.get("WRITE_SCREENS") == "write":
        kept.write_text(text, "utf-8")
    assert text == kept.read_text("utf-8")
