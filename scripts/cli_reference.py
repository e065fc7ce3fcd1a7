"""Write what every command does and takes into the reference, or say that it drifted."""

from __future__ import annotations

import argparse
import re
import runpy
import sys
import textwrap
from pathlib import Path

from skillbelt import cli

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"
BEGIN, END = "<!--generated:commands-->\n", "<!--/generated:commands-->\n"


# Every command takes these; the page says so once.
_COMMON = {"help", "json", "project", "config", "quiet", "verbose"}
_PLAIN = (
    "the skill",
    "the skills",
    "what to do",
    "the shell",
    "what to measure, or init",
    "the artifact",
    "the folder of the skill",
    "the protocol to serve: MCP, or a JSON API over HTTP",
)  # the line of usage says it
# What a command does in more than a sentence stands on other pages, and in its help.
_WHOLE = {"artifacts"}
_SENTENCES = re.compile(r"(?<=[.?]) (?=[A-Z])")
_REPEATED = re.compile(r";? \(?may be repeated\)?")  # the page writes `...` for it


def reference() -> str:
    """Return a section for each command: what it does, its arguments and its own options."""
    said: dict[str, tuple[str, str]] = {}
    return "\n".join(_section(name, said) for name in cli.COMMANDS)


def _section(name: str, said: dict[str, tuple[str, str]]) -> str:
    """Describe one command; `said` has what earlier ones describe in full, by its help."""
    parser = cli.parser(name)
    words = cli.COMMANDS[name].words
    own = [one for one in parser._actions if one.dest not in _COMMON]
    usage = [_spell(one) for one in own if not one.option_strings]
    usage += [f"-- {words}"] if words else []
    lines = [" ".join([f"skillbelt {name}", *usage]), ""] if usage else []
    again: dict[str, list[str]] = {}
    for one in own:
        spelled, help = _spell(one), _help(one)
        where, first = said.get(help, ("", ""))
        if where and first == spelled:
            again.setdefault(where, []).append(one.option_strings[-1])
        elif where and one.option_strings:
            lines.append(f"{spelled}  as {first.split()[0]} of {where}")
        elif help.partition(" (default")[0] not in _PLAIN:
            said[help] = (name, spelled)
            lines += _wrapped(f"{spelled}  {help}")
    for other, options in again.items():
        lines += _wrapped(f"as for {other}: {', '.join(options)}")
    text = "\n".join(lines).rstrip()
    block = f"\n{textwrap.indent(text, '    ')}\n" if text else ""
    return f"### {name}\n\n{_summary(name, parser.description or '')}\n{block}"


def _summary(name: str, description: str) -> str:
    """Return the first sentence, and what the exit codes mean."""
    first, *others = _SENTENCES.split(description)
    kept = [one for one in others if name in _WHOLE or "exit code" in one.lower()]
    return " ".join([first, *kept])


def _spell(one: argparse.Action) -> str:
    """Return an option with its value, or an argument, as a person types it."""
    value = one.metavar or ("|".join(map(str, one.choices)) if one.choices else one.dest.upper())
    if isinstance(value, tuple):
        value = value[0]
    if not one.option_strings:
        many = "..." if one.nargs in ("*", "+") else ""
        return f"[{value}{many}]" if one.nargs in ("?", "*") else f"{value}{many}"
    shown = ", ".join(one.option_strings)
    many = "..." if _REPEATED.search(one.help or "") else ""
    return shown if one.nargs == 0 else f"{shown} {value}{many}"


def _help(one: argparse.Action) -> str:
    """Return what the help says of it; that it may be repeated is in how it is spelled."""
    help = (one.help or "") % {**vars(one), "prog": "skillbelt"}
    return _REPEATED.sub("", " ".join(help.split()))


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
