"""Draw the pictures of a terminal from real ones: run.svg, question.svg and chat.svg.

Commands run in a temporary project, and the chat in tmux, whose colours are taken over. What
differs each time, the folder and the name of the conversation, is replaced by a fixed text.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.sax.saxutils import escape

from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
QUESTION = "How many words has this sentence?"
HANG_SECONDS = 120
# The colours of a terminal, as the style of the picture has them.
COLOURS = {"color(2)": "prompt", "color(1)": "error", "color(102)": "faint"}
COLUMNS, LINE, CHARACTER = 78, 20, 8.4
SALES = "month,total\nMay,12\nJune,\n"
COMMANDS = (
    'skillbelt search "which columns have gaps" --limit 2',
    "skillbelt run csv-report -- git push",
    "skillbelt run csv-report --yes --input sales.csv"
    " -- python3 scripts/report.py inputs/sales.csv",
)
STYLE = """
    .screen { fill: #161a23; stroke: #8e9ab5; }
    text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #e8ebf2; }
    .prompt { fill: #7fd6a0; }
    .error { fill: #f0998b; }
    .faint { fill: #97a1b7; }
"""


Line = list[tuple[str, str]]  # pieces of text, each with its style


@contextmanager
def project() -> Iterator[tuple[Path, dict[str, str]]]:
    """Make a project with the example skills, and the environment for it."""
    with tempfile.TemporaryDirectory(prefix="sb-") as folder:
        made = Path(folder, "project")
        shutil.copytree(
            ROOT / "examples" / "skills",
            made / ".agents" / "skills",
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        (made / "sales.csv").write_text(SALES)
        programs = Path(sys.executable).parent
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        yield made, {"PATH": path, "HOME": folder, "LANG": "C.UTF-8", "COLUMNS": str(COLUMNS)}


def run(commands: tuple[str, ...] = COMMANDS) -> list[Line]:
    """Return the screen of commands and what they print."""
    lines: list[Line] = []
    with project() as (folder, environ):
        for command in commands:
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=folder,
                env=environ,
                capture_output=True,
                text=True,
                check=False,
            )
            lines += [[(line, "prompt")] for line in _wrap(f"$ {command}")]
            lines += [[(line, "")] for out in done.stdout.splitlines() for line in _cut(out)]
            lines += [[(line, "error")] for out in done.stderr.splitlines() for line in _wrap(out)]
            lines.append([])
    return lines[:-1]


def chat(until: str, *, allowed: bool) -> list[Line]:
    """Return the screen of a chat, once it shows a text after one question of the user's."""
    with project() as (folder, environ):
        if allowed:
            allow = ["skillbelt", "permissions", "allow", "python3 scripts/*", "--type", "run"]
            subprocess.run(allow, cwd=folder, env=environ, capture_output=True, check=True)
        tmux = ["tmux", "-S", str(folder.parent / "tmux"), "-f", "/dev/null"]

        def ask(*words: str) -> str:
            return subprocess.run(
                [*tmux, *words], cwd=folder, env=environ, capture_output=True, text=True, check=True
            ).stdout

        ask("new-session", "-d", "-x", "80", "-y", "40", "skillbelt chat")
        try:
            _wait(lambda: "/help" in ask("capture-pane", "-p").rstrip().rpartition("\n")[2])
            ask("send-keys", "-l", QUESTION)
            _wait(lambda: QUESTION in ask("capture-pane", "-p"))
            ask("send-keys", "Enter")
            _wait(lambda: until in ask("capture-pane", "-p"))
            screen = ask("capture-pane", "-p", "-e")
        finally:
            subprocess.run([*tmux, "kill-server"], capture_output=True, check=False)
        screen = screen.replace(str(folder.parent), "/home/ada")
        screen = re.sub(r"chat-\d{8}-\d{6}-[0-9a-f]{4}", "chat-20260301-093000-4f2a", screen)
        return [_pieces(line) for line in screen.rstrip().split("\n")]


def _wait(is_there: Callable[[], bool]) -> None:
    end = time.monotonic() + HANG_SECONDS
    while not is_there():
        if time.monotonic() > end:
            raise SystemExit("the terminal does not show what it should")
        time.sleep(0.05)


def _pieces(line: str) -> Line:
    """Return a line of a terminal as pieces, each with the style for its colour."""
    text = Text.from_ansi(line)
    styles = [""] * len(text.plain)
    for span in text.spans:
        colour = getattr(span.style, "color", None)
        for at in range(span.start, span.end):
            styles[at] = COLOURS.get(colour.name, "") if colour else styles[at]
    pieces: Line = []
    for character, style in zip(text.plain, styles, strict=True):
        if pieces and pieces[-1][1] == style:
            pieces[-1] = (pieces[-1][0] + character, style)
        else:
            pieces.append((character, style))
    return pieces


def draw(lines: list[Line], title: str) -> str:
    """Return the lines as the text of an SVG file, each line selectable."""
    longest = max(sum(len(text) for text, _ in line) for line in lines)
    width = round(max(COLUMNS, longest) * CHARACTER) + 40
    height = len(lines) * LINE + 36
    rows = "\n".join(_row(line, 30 + LINE * number) for number, line in enumerate(lines))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{escape(title)}">\n'
        f"  <title>{escape(title)}</title>\n  <style>{STYLE}  </style>\n"
        f'  <rect class="screen" width="{width}" height="{height}" rx="10"/>\n{rows}\n</svg>\n'
    )


def _row(line: Line, y: int) -> str:
    if len(line) < 2:
        text, style = line[0] if line else ("", "")
        inner = escape(text)
    else:
        style = ""
        inner = "".join(
            f'<tspan class="{style}">{escape(text)}</tspan>' if style else escape(text)
            for text, style in line
        )
    place = f'class="{style or "plain"}" x="20" y="{y}"'
    return f'  <text xml:space="preserve" {place}>{inner}</text>'


def _cut(line: str) -> list[str]:
    line = line.replace("\t", "  ")
    return [line if len(line) <= COLUMNS else line[: COLUMNS - 1] + "…"]


def _wrap(line: str) -> list[str]:
    """Break a line at blanks, and continue it with two blanks."""
    lines, words = [], line.split(" ")
    now = words[0]
    for word in words[1:]:
        if len(now) + 1 + len(word) > COLUMNS:
            lines.append(now)
            now = "  " + word
        else:
            now += " " + word
    return [*lines, now]


def main() -> None:
    """Write every picture anew."""
    made = {
        "run.svg": (run(), "A run of skillbelt at a terminal"),
        "question.svg": (
            chat("Your answer", allowed=False),
            "skillbelt chat asks for permission to run a script",
        ),
        "chat.svg": (
            chat("exit code 0", allowed=True),
            "skillbelt chat answers with a skill, without a language model",
        ),
    }
    for name, (lines, title) in made.items():
        (PICTURES / name).write_text(draw(lines, title), "utf-8")


if __name__ == "__main__":
    main()
