"""Draw the pictures of the concept pages: plain SVG with selectable text, for light and dark."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
FIGURES = ROOT / "benchmarks" / "figures.md"
STYLE = """
    .page { fill: #ffffff; }
    .box { fill: #f3f5f9; stroke: #54607a; stroke-width: 1.5; }
    .safe { fill: #e4f3e8; stroke: #2e7d4f; stroke-width: 1.5; }
    .stop { fill: #fbe9e7; stroke: #b3402e; stroke-width: 1.5; }
    .line { stroke: #54607a; stroke-width: 1.5; fill: none; }
    .head { fill: #54607a; }
    text { font: 14px system-ui, "Segoe UI", Roboto, sans-serif; fill: #1d2433; }
    .title { font-weight: 600; }
    .note { font-size: 12.5px; fill: #465068; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #161a23; }
      .box { fill: #232937; stroke: #8e9ab5; }
      .safe { fill: #1b3325; stroke: #63b985; }
      .stop { fill: #3a211d; stroke: #e0806f; }
      .line { stroke: #8e9ab5; }
      .head { fill: #8e9ab5; }
      text { fill: #e8ebf2; }
      .note { fill: #b3bccf; }
    }
"""


class Box(NamedTuple):
    """A rectangle with a title and lines of notes."""

    x: int
    y: int
    width: int
    height: int
    title: str
    notes: tuple[str, ...] = ()
    kind: str = "box"


class Arrow(NamedTuple):
    """A straight line with a head, and a word beside its middle."""

    x1: int
    y1: int
    x2: int
    y2: int
    word: str = ""


def draw(title: str, width: int, height: int, parts: list[Box | Arrow]) -> str:
    """Return a picture as the text of an SVG file."""
    drawn = "\n".join(_box(part) if isinstance(part, Box) else _arrow(part) for part in parts)
    return frame(title, width, height, drawn)


def frame(title: str, width: int, height: int, drawn: str) -> str:
    """Return an SVG file with what was drawn, on a page for light and dark."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{escape(title)}">\n'
        f"  <title>{escape(title)}</title>\n  <style>{STYLE}  </style>\n"
        f'  <rect class="page" width="{width}" height="{height}" rx="10"/>\n{drawn}\n</svg>\n'
    )


def _box(box: Box) -> str:
    lines = [
        f'  <rect class="{box.kind}" x="{box.x}" y="{box.y}" width="{box.width}" '
        f'height="{box.height}" rx="8"/>',
        f'  <text class="title" x="{box.x + 12}" y="{box.y + 23}">{escape(box.title)}</text>',
    ]
    lines += [
        f'  <text class="note" x="{box.x + 12}" y="{y}">{escape(note)}</text>'
        for y, note in zip(range(box.y + 43, 9999, 18), box.notes, strict=False)
    ]
    return "\n".join(lines)


def _arrow(arrow: Arrow) -> str:
    x1, y1, x2, y2, word = arrow
    across, sign = x1 != x2, 1 if (x2 - x1) + (y2 - y1) > 0 else -1
    back = 9 * sign
    head = (
        f"{x2},{y2} {x2 - back},{y2 - 5} {x2 - back},{y2 + 5}"
        if across
        else f"{x2},{y2} {x2 - 5},{y2 - back} {x2 + 5},{y2 - back}"
    )
    text = f'  <line class="line" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>\n'
    text += f'  <polygon class="head" points="{head}"/>'
    if word:
        at = ((x1 + x2) // 2 - 20, y1 - 7) if across else (x1 + 9, (y1 + y2) // 2 + 4)
        text += f'\n  <text class="note" x="{at[0]}" y="{at[1]}">{escape(word)}</text>'
    return text


ROW = re.compile(r"^\| (.+?) \| ([\d.]+) \| ([\d,]+) \| (\d+) \|$", re.MULTILINE)
LABELS, BARS = 226, 176  # how wide the names of readers are, and the longest bar


def chart() -> str:
    """Draw the table of readers in benchmarks/figures.md: a bar for each, and what it found."""
    table = FIGURES.read_text("utf-8").partition("<!-- bench:peers -->")[2]
    rows = [(name, float(time), found) for name, time, found, _ in ROW.findall(table)]
    longest = max(time for _, time, _ in rows)
    found_at = LABELS + BARS + 104
    lines = [
        f'  <text class="note" x="{LABELS}" y="24">time, x floor</text>',
        f'  <text class="note" text-anchor="end" x="{found_at}" y="24">found</text>',
    ]
    for y, (name, time, found) in zip(range(34, 9999, 21), rows, strict=False):
        kind = "safe" if name.startswith("skillbelt") else "box"
        width = max(2, round(time / longest * BARS))
        shown = re.sub(r" \(strict tree\)$", " *", name.replace("skills-adapters", "skills"))
        lines += [
            f'  <text class="note" text-anchor="end" x="{LABELS - 8}" y="{y + 12}">'
            f"{escape(shown)}</text>",
            f'  <rect class="{kind}" x="{LABELS}" y="{y}" width="{width}" height="14" rx="3"/>',
            f'  <text class="note" x="{LABELS + width + 6}" y="{y + 12}">{time:.1f}</text>',
            f'  <text class="note" text-anchor="end" x="{found_at}" y="{y + 12}">{found}</text>',
        ]
    title = "How long readers of skills take for 10,000 skills, and how many they find"
    return frame(title, 520, 34 + 21 * len(rows) + 12, "\n".join(lines))


PICTURES = {
    "readers.svg": chart(),
    "data.svg": draw(
        "The way of the data: from sources to a result",
        520,
        560,
        [
            Box(
                20,
                20,
                480,
                64,
                "Sources",
                ("folders of some sixty clients, archives, sites, MCP servers",),
            ),
            Arrow(150, 84, 150, 112, "scan"),
            Box(
                20,
                112,
                480,
                64,
                "Catalogue",
                ("one skill per name; everything skipped is reported",),
            ),
            Arrow(150, 176, 150, 204, "names and descriptions, within a budget"),
            Box(
                20,
                204,
                480,
                64,
                "Model",
                ("your loop, a framework, an MCP client, skillbelt chat",),
            ),
            Arrow(150, 268, 150, 296, "tool call: load, read or run"),
            Box(
                20,
                296,
                480,
                64,
                "Permission",
                ("rules, remembered answers, then a question to you",),
                "stop",
            ),
            Arrow(150, 360, 150, 388, "only what was allowed"),
            Box(
                20,
                388,
                480,
                64,
                "Sandbox",
                ("a copy of the skill, its packages, the inputs, no network",),
                "safe",
            ),
            Arrow(150, 452, 150, 480, "output, files, what was enforced"),
            Box(20, 480, 232, 60, "Result", ("goes back to the model",)),
            Box(268, 480, 232, 60, "Store and audit log", ("session, artifacts, decisions",)),
        ],
    ),
    "tiers.svg": draw(
        "The three tiers in which a model sees a skill",
        520,
        372,
        [
            Box(
                20,
                20,
                480,
                82,
                "1. Overview",
                (
                    "name and description of every skill",
                    "always in the system prompt, within a token budget",
                ),
            ),
            Arrow(260, 102, 260, 145, "the model calls skill_load"),
            Box(
                60,
                145,
                440,
                82,
                "2. Body",
                ("the text of SKILL.md", "when a task needs it; gone again after the turn"),
            ),
            Arrow(260, 227, 260, 270, "the model asks for a file"),
            Box(
                100,
                270,
                400,
                82,
                "3. Documents",
                ("single files of the skill, a section or some lines", "only what was asked for"),
            ),
        ],
    ),
    "permission.svg": draw(
        "How a permission request is decided",
        520,
        500,
        [
            Box(
                20,
                20,
                480,
                64,
                "Request",
                ("load a skill, run a command, reach a host, install, use a secret",),
            ),
            Arrow(260, 84, 260, 112),
            Box(
                20,
                112,
                480,
                64,
                "Rules",
                ("the last rule that matches decides; no match means ask",),
            ),
            Arrow(90, 176, 90, 420, "allow"),
            Arrow(430, 176, 430, 420, "deny"),
            Arrow(260, 176, 260, 208, "ask"),
            Box(150, 208, 220, 64, "Remembered answer?", ("same call, same content",)),
            Arrow(260, 272, 260, 304, "no"),
            Box(
                150,
                304,
                220,
                82,
                "You are asked",
                ("once, always or reject", "no one there means no"),
            ),
            Arrow(150, 240, 95, 240, "yes"),
            Arrow(150, 345, 95, 345, "yes"),
            Arrow(370, 345, 425, 345, "no"),
            Box(20, 420, 230, 60, "It happens", ("and the log says why",), "safe"),
            Box(270, 420, 230, 60, "It is refused", ("with a reason for the model",), "stop"),
        ],
    ),
    "sandbox.svg": draw(
        "What a sandbox holds, and what stays outside",
        520,
        470,
        [
            Box(20, 20, 480, 246, "Inside the sandbox", (), "safe"),
            Box(40, 52, 210, 62, "skills/NAME", ("a copy, read-only",)),
            Box(270, 52, 210, 62, "work/ and out/", ("the workspace, writable",)),
            Box(40, 124, 210, 62, "/usr, /bin, /lib", ("programs, read-only",)),
            Box(270, 124, 210, 62, "/tmp and HOME", ("empty, of this run alone",)),
            Box(
                40,
                196,
                440,
                58,
                "The command",
                ("no root, listed system calls only, limits on every resource",),
            ),
            Arrow(400, 266, 400, 300, "proxy"),
            Box(330, 300, 170, 62, "Hosts", ("only those you allow",)),
            Box(
                20,
                300,
                290,
                150,
                "Outside",
                (
                    "your home, keys and environment",
                    "other projects and conversations",
                    "other processes, devices, the terminal",
                    "private networks and cloud metadata",
                    "the skill's original files",
                ),
                "stop",
            ),
        ],
    ),
}


def main() -> int:
    """Write the pictures; without --write, return 1 when a file differs."""
    stale = [name for name, text in PICTURES.items() if _read(name) != text]
    if "--write" in sys.argv[1:]:
        FOLDER.mkdir(exist_ok=True)
        for name in stale:
            (FOLDER / name).write_text(PICTURES[name], "utf-8")
        return 0
    for name in stale:
        print(
            f"docs/pictures/{name} differs from scripts/drawings.py; run `make docs`",
            file=sys.stderr,
        )
    return 1 if stale else 0


def _read(name: str) -> str:
    path = FOLDER / name
    return path.read_text("utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
