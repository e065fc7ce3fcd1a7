"""The files of a new skill, which passes every check from the beginning."""

from __future__ import annotations

import json
from typing import Literal, get_args

from skillbelt.check.check import reserved_word
from skillbelt.errors import ConfigError
from skillbelt.text import Lazy
from skillbelt.values import SKILL_FILE

ScriptKind = Literal["none", "python", "shell", "node"]
SCRIPT_KINDS: tuple[ScriptKind, ...] = get_args(ScriptKind)
_NAME = Lazy(r"[a-z0-9](?:-?[a-z0-9]){0,63}")
_LICENSE = Lazy(r"[A-Za-z0-9][A-Za-z0-9 .+()-]{0,99}")
_PYTHON = '''#!/usr/bin/env python3
# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""Print a greeting."""

import argparse


def main() -> None:
    parser = argparse.ArgumentParser(description="Print a greeting.")
    parser.add_argument("name", nargs="?", default="world", help="who is greeted")
    print(f"Hello, {parser.parse_args().name}!")


if __name__ == "__main__":
    main()
'''
_SHELL = """#!/bin/sh
# Print a greeting: greet.sh [NAME]
if [ "$1" = "--help" ]; then
    echo "usage: greet.sh [NAME]"
    exit 0
fi
echo "Hello, ${1:-world}!"
"""
_NODE = """#!/usr/bin/env node
// Print a greeting: greet.mjs [NAME]
const [name] = process.argv.slice(2);
if (name === "--help") {
  console.log("usage: greet.mjs [NAME]");
} else {
  console.log(`Hello, ${name ?? "world"}!`);
}
"""
_SCRIPTS: dict[ScriptKind, tuple[str, str, str]] = {
    "python": ("scripts/greet.py", "python scripts/greet.py NAME", _PYTHON),
    "shell": ("scripts/greet.sh", "sh scripts/greet.sh NAME", _SHELL),
    "node": ("scripts/greet.mjs", "node scripts/greet.mjs NAME", _NODE),
}


def check_name(name: str) -> str:
    """Return the name of a new skill; ConfigError for one that the format does not allow."""
    if len(name) > 64 or not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name[:80]!r} is not a skill name: use lower-case letters, digits, single hyphens"
        )
    if reserved := reserved_word(name):
        raise ConfigError(f"{name!r} uses the reserved word {reserved!r}; choose another name")
    return name


def new_skill(
    name: str,
    *,
    description: str = "",
    script: ScriptKind = "none",
    tests: bool = False,
    license: str = "",
) -> dict[str, bytes]:
    """Return the files of a new skill by path; those that begin with `#!` are to be executable."""
    check_name(name)
    if license and not _LICENSE.fullmatch(license):
        raise ConfigError("a license is a short name such as MIT or Apache-2.0")
    title = name.replace("-", " ").capitalize()
    about = " ".join(description.split()) or (
        f"Does what {name} is for. Use when the user asks for {name.replace('-', ' ')}."
    )
    head = [f"name: {name}", f"description: {json.dumps(about, ensure_ascii=False)}"]
    head += [f"license: {license}"] if license else []
    body = [f"# {title}", "", "1. Say what the first step is.", "2. Say how to see that it worked."]
    files: dict[str, bytes] = {}
    if script != "none":
        path, command, text = _SCRIPTS[script]
        files[path] = text.encode()
        body += ["", "## Script", "", f"[`{path}`]({path}) prints a greeting:", ""]
        body += ["```sh", command, "```"]
    if tests:
        files["evals/evals.json"] = _make_tests(name)
    text = "\n".join(["---", *head, 'metadata:\n  version: "0.1.0"', "---", "", *body, ""])
    return {SKILL_FILE: text.encode(), **files}


def _make_tests(name: str) -> bytes:
    words = name.replace("-", " ")
    document = {
        "skill_name": name,
        "evals": [
            {
                "id": 1,
                "prompt": f"Please do {words} for me.",
                "expected_output": "Say what a good answer has.",
                "files": [],
            }
        ],
    }
    return (json.dumps(document, indent=2) + "\n").encode()
