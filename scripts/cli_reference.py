"""Write the `--help` text of every command into the reference, or say that it drifted."""

from __future__ import annotations

import argparse
import runpy
import sys
import textwrap
from pathlib import Path

from skillbelt import cli

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"
BEGIN, END = "<!--generated:commands-->\n", "<!--/generated:commands-->\n"


# Every command takes these; the page says so once.
_COMMON = {"help", "json", "project", "config", "quiet", "verbose"}
_PLAIN = ("the skill", "the skills", "what to do")  # the line of usage says it


def reference() -> str:
    """Return a section for each command: what it does, its arguments and its own options."""
    said: dict[str, str] = {}
    return "\n".join(_section(name, said) for name in cli.COMMANDS)


def _section(name: str, said: dict[str, str]) -> str:
    """Describe one command; `said` has the options that an earlier one describes in full."""
    parser = cli.parser(name)
    words = cli.COMMANDS[name].words
    own = [one for one in parser._actions if one.dest not in _COMMON]
    usage = [_spell(one) for one in own if not one.option_strings]
    usage = [f"skillbelt {name}", *(["[options]"] if len(usage) < len(own) else []), *usage]
    lines = [" ".join([*usage, *([f"-- {words}"] if words else [])]), ""]
    again: dict[str, list[str]] = {}
    for one in own:
        described = _lines(one)
        text = normal(" ".join(described))
        if text in said:
            again.setdefault(said[text], []).append(_spell(one))
        elif (one.help or "").partition(" (default")[0] not in _PLAIN:
            said[text] = name
            lines += described
    for other, options in again.items():
        lines += _wrapped(f"as for {other}: {', '.join(options)}")
    text = "\n".join(lines).rstrip()
    return f"### {name}\n\n{parser.description}\n\n```text\n{text}\n```\n"


def _spell(one: argparse.Action) -> str:
    """Return an option with its value, or an argument, as a person types it."""
    value = one.metavar or ("|".join(map(str, one.choices)) if one.choices else one.dest.upper())
    if isinstance(value, tuple):
        value = value[0]
    if not one.option_strings:
        many = "..." if one.nargs in ("*", "+") else ""
        return f"[{value}{many}]" if one.nargs in ("?", "*") else f"{value}{many}"
    shown = ", ".join(one.option_strings)
    return shown if one.nargs == 0 else f"{shown} {value}"


def _lines(one: argparse.Action) -> list[str]:
    spelled = _spell(one)
    help = " ".join(((one.help or "") % {**vars(one), "prog": "skillbelt"}).split())
    return _wrapped(f"{spelled}  {help}")


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, 96, subsequent_indent="      ", break_on_hyphens=False)


def generated(page: str) -> str:
    """The part of the page that this program writes."""
    return page.partition(BEGIN)[2].partition(END)[0]


def normal(text: str) -> str:
    """Return the text without its line ends."""
    return " ".join(text.split())


# What else is made of the commands: who renews the page renews these too.
OTHERS = ("completion_words.py", "man_page.py")


def main() -> int:
    """0 when the page is right (or is now), 1 when it drifted."""
    if "--write" in sys.argv[1:]:
        for name in OTHERS:
            runpy.run_path(str(Path(__file__).with_name(name)))["main"]()
    page = PAGE.read_text("utf-8")
    drifted = normal(generated(page)) != normal(reference())
    if drifted and "--write" in sys.argv[1:]:
        before, _, rest = page.partition(BEGIN)
        text = f"{before}{BEGIN}\n{reference()}\n{END}{rest.partition(END)[2]}"
        PAGE.write_text(text, "utf-8")
    elif drifted:
        print(
            "docs/reference/commands.md differs from the commands' help; run `make docs`",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
