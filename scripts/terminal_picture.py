"""Draw docs/pictures/run.svg from a real run: commands typed in a temporary project."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "run.svg"
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
"""


def run(commands: tuple[str, ...] = COMMANDS) -> list[tuple[str, str]]:
    """Return each line of the screen with its style: "prompt", "error" or ""."""
    lines: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory(prefix="skillbelt-picture-") as folder:
        project = Path(folder, "project")
        shutil.copytree(ROOT / "examples" / "skills", project / ".agents" / "skills")
        (project / "sales.csv").write_text(SALES)
        programs = Path(sys.executable).parent
        environ = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": folder,
            "COLUMNS": str(COLUMNS),
        }
        for command in commands:
            done = subprocess.run(
                ["sh", "-c", command],
                cwd=project,
                env=environ,
                capture_output=True,
                text=True,
                check=False,
            )
            lines += [(line, "prompt") for line in _wrap(f"$ {command}")]
            lines += [(line, "") for out in done.stdout.splitlines() for line in _cut(out)]
            lines += [(line, "error") for out in done.stderr.splitlines() for line in _wrap(out)]
            lines.append(("", ""))
    return lines[:-1]


def draw(lines: list[tuple[str, str]]) -> str:
    """Return the lines as the text of an SVG file, each line selectable."""
    width, height = round(COLUMNS * CHARACTER) + 40, len(lines) * LINE + 36
    rows = "\n".join(
        f'  <text xml:space="preserve" class="{style or "plain"}" x="20" '
        f'y="{30 + LINE * number}">{escape(line)}</text>'
        for number, (line, style) in enumerate(lines)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="A run of skillbelt">\n'
        f"  <title>A run of skillbelt at a terminal</title>\n  <style>{STYLE}  </style>\n"
        f'  <rect class="screen" width="{width}" height="{height}" rx="10"/>\n{rows}\n</svg>\n'
    )


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


if __name__ == "__main__":
    PICTURE.write_text(draw(run()), "utf-8")
