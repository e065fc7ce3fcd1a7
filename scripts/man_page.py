"""Write man/skillbelt.1 from the parsers of the commands, or say that it drifted."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from skillbelt import __version__, cli
from skillbelt.cli.help_texts import EXAMPLES, EXIT_CODES

ROOT = Path(__file__).parents[1]
FILE = ROOT / "man" / "skillbelt.1"
# Every command takes these; the page says so once.
COMMON = ("help", "json", "project", "config", "quiet", "verbose")
# In roff these are other characters unless they are escaped.
ESCAPES = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}
_UNSAFE = re.compile(r"[\\\-'`^~]")
_CODE = re.compile(r"`([^`]+)`")
# Of the frame of the page; what is made of the commands is as new as the version.
DATE = "2026-11-16"
WIDTH = 78
FILES = (
    ("~/.config/skillbelt/config.toml", "your settings"),
    ("skillbelt.toml", "the settings of a project"),
    (".agents/skills/NAME/SKILL.md", "a skill of a project"),
)


def escape(text: str) -> str:
    """Return the text for roff: every character of it is printed as it is."""
    return _UNSAFE.sub(lambda found: ESCAPES[found[0]], text)


def prose(text: str) -> str:
    """Return a paragraph, with what stands in backquotes in bold."""
    parts = _CODE.split(" ".join(text.split()))
    marked = "".join(
        f"\\fB{escape(part)}\\fR" if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )
    lines = textwrap.wrap(marked, WIDTH, break_long_words=False, break_on_hyphens=False)
    # A line that begins with a full stop would be a request.
    return "\n".join(f"\\&{line}" if line.startswith(".") else line for line in lines)


def page() -> str:
    """Return the whole page."""
    parser = cli.parser("list")
    common = [one for one in parser._actions if one.dest in COMMON]
    lines = [
        '.\\" Made by scripts/man_page.py from the commands; `make docs` renews it.',
        f'.TH SKILLBELT 1 "{DATE}" "skillbelt {__version__}" "User Commands"',
        ".SH NAME",
        "skillbelt \\- find Agent Skills, show them to models, run them in a sandbox",
        ".SH SYNOPSIS",
        ".B skillbelt",
        "\\fICOMMAND\\fR [\\fIOPTIONS\\fR]",
        ".SH DESCRIPTION",
        prose(
            "An Agent Skill is a folder with a SKILL.md. skillbelt finds the skills of a project "
            "and of its user, shows them to language models, asks before they run, and runs them "
            "in a sandbox. `skillbelt COMMAND --help` prints the part of this page about a command."
        ),
        ".SH OPTIONS",
        "Every command takes these after its name.",
        *(line for one in common for line in _entry(one)),
        ".SH COMMANDS",
        *(line for name in cli.COMMANDS for line in _command(name)),
        ".SH EXIT STATUS",
        *(
            line
            for code, meaning in exit_codes()
            for line in (".TP", f"\\fB{code}\\fR", prose(meaning))
        ),
        ".SH FILES",
        *(
            line
            for name, meaning in FILES
            for line in (".TP", f"\\fI{escape(name)}\\fR", prose(meaning))
        ),
    ]
    return "\n".join(lines) + "\n"


def exit_codes() -> list[tuple[str, str]]:
    """Return each exit code with its meaning, as `skillbelt help exit-codes` lists them."""
    found: list[tuple[str, str]] = []
    for line in EXIT_CODES.splitlines():
        if (match := re.match(r"\s*(\d+)\s+(.+)", line)) is not None:
            found.append((match[1], match[2]))
        elif found and line.startswith(" "):
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
    return found


def _command(name: str) -> Iterator[str]:
    parser = cli.parser(name)
    own = [one for one in parser._actions if one.dest not in COMMON]
    words = cli.COMMANDS[name].words
    yield f".SS skillbelt {escape(name)}"
    usage = [_spell(one) for one in own if not one.option_strings]
    options = "[\\fIOPTIONS\\fR]" if len(usage) < len(own) else ""
    dashes = f"\\-\\- \\fI{escape(words)}\\fR" if words else ""
    yield " ".join(filter(None, [f"\\fBskillbelt {escape(name)}\\fR", options, *usage, dashes]))
    yield ".PP"
    yield prose(parser.description or "")
    for one in own:
        yield from _entry(one)
    for example in EXAMPLES.get(name, ()):
        yield from (".PP", f"{prose(example.about)}:", ".RS 4", ".nf", escape(example.line))
        yield from (".fi", ".RE")


def _entry(one: argparse.Action) -> Iterator[str]:
    yield ".TP"
    yield _spell(one)
    yield prose((one.help or "") % {**vars(one), "prog": "skillbelt"})


def _spell(one: argparse.Action) -> str:
    """Return an option with its value, or an argument: what is typed in bold, the rest italic."""
    choices = "|".join(map(str, one.choices)) if one.choices else one.dest.upper()
    value = one.metavar or choices
    shown = f"\\fI{escape(value[0] if isinstance(value, tuple) else value)}\\fR"
    if not one.option_strings:
        many = "..." if one.nargs in ("*", "+") else ""
        return f"[{shown}{many}]" if one.nargs in ("?", "*") else f"{shown}{many}"
    names = ", ".join(f"\\fB{escape(name)}\\fR" for name in one.option_strings)
    return names if one.nargs == 0 else f"{names} {shown}"


def main() -> int:
    """0 when the page is right (or is now), 1 when it drifted."""
    made = page()
    if FILE.exists() and FILE.read_text("utf-8") == made:
        return 0
    if "--write" in sys.argv[1:]:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(made, "utf-8")
        return 0
    print("man/skillbelt.1 differs from the commands; run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
