"""Write what commands take for the completion of shells, or say that it drifted."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from skillbelt import cli
from skillbelt.cli.completion import TABLE
from skillbelt.cli.help_texts import TOPICS
from skillbelt.discovery.clients import CLIENTS

ROOT = Path(__file__).parents[1]
# What a value is, by its command and name; None: no completion can know it.
KINDS: dict[tuple[str, str], object] = {
    **{(name, "name"): "skill" for name in ("show", "where", "load", "read", "run", "exec")},
    **{(name, "skill"): "skill" for name in ("try", "build", "permissions", "secrets", "log")},
    ("enable", "names"): "disabled",
    **{(name, "names"): "skill" for name in ("disable", "remove", "update", "verify", "outdated")},
    ("add", "source"): "folder",
    ("link", "path"): "folder",
    ("permissions", "subject"): {"why": "skill"},
    ("sessions", "id"): "session",
    ("artifacts", "session"): "session",
    ("list", "client"): [client.name for client in CLIENTS],
    ("read", "path"): None,
    ("run", "cwd"): None,
}
# What a value is, by how the help writes it.
METAVARS = {
    "FILE": "file",
    "F": "file",
    "PATH": "file",
    "FROM[=TO]": "file",
    "FROM TO": "file",
    "DIR": "folder",
    "PATH|ORIGIN": "folder",
}
MAX_TEXT = 60


def make() -> str:
    """Return the table: one line for each command, option and argument, so that changes merge."""
    lines: list[str] = []
    for name in cli.COMMANDS:
        parser = cli.parser(name)
        arguments = [one for one in parser._actions if not one.option_strings]
        options = [
            f"   {json.dumps(spelled)}: {json.dumps([_kind(name, one), _text(one)])}"
            for one in parser._actions
            for spelled in one.option_strings
            if spelled.startswith("--")
        ]
        many = [[_kind(name, one), one.nargs in ("*", "+")] for one in arguments]
        lines.append(
            f" {json.dumps(name)}: {{\n"
            f'  "summary": {json.dumps(cli.COMMANDS[name].summary)},\n'
            f'  "arguments": {json.dumps(many)},\n'
            '  "options": {\n' + ",\n".join(options) + "\n  }\n }"
        )
    topics = json.dumps([[[*cli.COMMANDS, *TOPICS], False]])
    lines.append(
        ' "help": {\n  "summary": "explain a command or a topic",\n'
        f'  "arguments": {topics},\n  "options": {{}}\n }}'
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _kind(command: str, one: argparse.Action) -> Any:
    """Return what the value is; None for an option that takes none, [] where all is possible."""
    if one.nargs == 0:
        return None
    if (command, one.dest) in KINDS:
        return KINDS[command, one.dest] or []
    if one.choices:
        return [str(choice) for choice in one.choices]
    return METAVARS.get(str(one.metavar or ""), [])


def _text(one: argparse.Action) -> str:
    text = " ".join(((one.help or "") % {**vars(one), "prog": "skillbelt"}).split())
    first = text.partition("; ")[0].partition(" (")[0]
    return first if len(first) <= MAX_TEXT else first[: MAX_TEXT - 1].rsplit(" ", 1)[0] + "…"


def main() -> int:
    """0 when the table is right (or is now), 1 when it drifted."""
    made = make()
    if TABLE.exists() and TABLE.read_text("utf-8") == made:
        return 0
    if "--write" in sys.argv[1:]:
        TABLE.write_text(made, "utf-8")
        return 0
    print(f"{TABLE.relative_to(ROOT)} differs from the commands; run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
