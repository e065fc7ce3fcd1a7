"""Lists what users rely on: public names, commands with their options, and JSON documents.

`tests/test_public_interface.py` compares the list with the one that was recorded. A change that is
meant is recorded with `python scripts/public_interface.py --write`.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from skillbelt import cli
from skillbelt.settings import Settings

HERE = Path(__file__).parents[1]
RECORD = HERE / "tests" / "public_interface.json"
MODULES = (
    "skillbelt",
    "skillbelt.agent",
    "skillbelt.artifacts",
    "skillbelt.integrations.functions",
    "skillbelt.integrations.google_adk",
    "skillbelt.integrations.langchain",
    "skillbelt.integrations.openai_agents",
    "skillbelt.integrations.pydantic_ai",
    "skillbelt.testing",
)
SKILL = "code-review"
# Each gives one document, without a model and without asking anybody.
DOCUMENTS = {
    "artifacts": ("artifacts",),
    "check": ("check", "."),
    "completion": ("completion", "bash"),
    "config": ("config",),
    "doctor": ("doctor",),
    "exec": (
        "exec",
        SKILL,
        "--yes",
        "--input",
        '{"files": [{"path": "a.py", "content": "x = 1"}]}',
    ),
    "list": ("list",),
    "load": ("load", SKILL),
    "log": ("log",),
    "mcp": ("mcp",),
    "mcp install": ("mcp", "install", "cursor", "--dry-run"),
    "permissions": ("permissions",),
    "permissions why": ("permissions", "why", SKILL),
    "prompt": ("prompt",),
    "read": ("read", SKILL, "SKILL.md"),
    "refresh": ("refresh",),
    "run": ("run", SKILL, "--yes", "--", "true"),
    "search": ("search", "review code"),
    "secrets": ("secrets",),
    "sessions": ("sessions",),
    "show": ("show", SKILL),
    "trust": ("trust",),
    "try": ("try", SKILL, "--yes"),
    "where": ("where", SKILL),
}
# What stands under these keys differs from machine to machine.
_OPEN = {"enforced", "frontmatter", "roots", "sandboxes", "diagnostics", "requires", "files"}


def names() -> dict[str, dict[str, str]]:
    """Every public name by its module, with the names that may be used of it."""
    return {module: _names_of(module) for module in MODULES}


def _names_of(module: str) -> dict[str, str]:
    there = importlib.import_module(module)
    listed = getattr(there, "__all__", None) or [
        name
        for name, value in vars(there).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module
    ]
    return {name: _described(getattr(there, name)) for name in sorted(listed)}


def _described(value: object) -> str:
    """The parameters of a function; of a class also its public members."""
    if inspect.isclass(value):
        return f"class({_parameters(value)}) {' '.join(sorted(_members(value)))}"
    if callable(value):
        return f"function({_parameters(value)})"
    return type(value).__name__


def _members(value: type) -> set[str]:
    """The public members of a class that it has from us, not from another package."""
    return {
        name
        for base in value.__mro__
        if base.__module__.partition(".")[0] == "skillbelt"
        for name in (*vars(base), *inspect.get_annotations(base))
        if not name.startswith("_")
    }


def _parameters(value: Any) -> str:
    try:
        given = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return "..."
    return ", ".join(
        f"{'*' if item.kind is item.KEYWORD_ONLY else ''}{item.name}"
        f"{'' if item.default is item.empty else '='}"
        for item in given
    )


def commands() -> dict[str, list[str]]:
    """Every command with its options and arguments, also those of commands below it."""
    found: dict[str, list[str]] = {}
    for name in cli.COMMANDS:
        _collect(name, cli.parser(name), found)
    return found


def _collect(name: str, parser: argparse.ArgumentParser, found: dict[str, list[str]]) -> None:
    words: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below, inner in action.choices.items():
                _collect(f"{name} {below}", inner, found)
        else:
            words.append("/".join(action.option_strings) or str(action.metavar or action.dest))
    found[name] = sorted(words)


def documents() -> dict[str, Any]:
    """The shape of the JSON document of each command that can be asked for one here."""
    with tempfile.TemporaryDirectory(prefix="skillbelt-") as root:
        os.chmod(root, 0o755)
        project = os.path.join(root, "project")
        shutil.copytree(HERE / "examples" / "skills", os.path.join(project, ".agents", "skills"))
        home = os.path.join(root, "home")
        os.mkdir(home)
        kept = {"PATH": os.environ["PATH"], "HOME": home, "LANG": "C.UTF-8"}
        return {name: _shape(_document(words, project, kept)) for name, words in DOCUMENTS.items()}


def _document(words: tuple[str, ...], project: str, environment: dict[str, str]) -> Any:
    """Return the shape of what a command prints with --json."""
    command, rest = words[0], words[1:]
    answer = subprocess.run(
        [sys.executable, "-m", "skillbelt", command, "--json", "--project", project, *rest],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if not answer.stdout:
        raise SystemExit(f"{command} gave no document: {answer.stderr}")
    return json.loads(answer.stdout)


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: "..." if key in _OPEN else _shape(inner) for key, inner in sorted(value.items())
        }
    if isinstance(value, list):
        return [_shape(value[0])] if value else []
    return type(value).__name__


def settings() -> list[str]:
    """The names of the settings."""
    return sorted(Settings._fields)


def interface() -> dict[str, Any]:
    """All of it, as one document."""
    return {
        "names": names(),
        "commands": commands(),
        "settings": settings(),
        "documents": documents(),
    }


def main() -> int:
    """0 when the record is right (or is now), 1 when the interface differs from it."""
    text = json.dumps(interface(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if "--write" in sys.argv[1:]:
        RECORD.write_text(text, "utf-8")
    elif text != RECORD.read_text("utf-8"):
        print(f"{RECORD} differs; run {sys.argv[0]} --write if that is meant", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
