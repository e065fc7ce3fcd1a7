"""What the pages on migrating name on our side exists: options, settings, calls, tools."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import skillbelt
from skillbelt import Agent, Runtime, RuntimeSession, SkillSettings, load_settings
from skillbelt.check.rules import RULES
from skillbelt.cli import COMMANDS, parser
from skillbelt.permission.rules import TYPES
from skillbelt.settings import DEFAULTS
from skillbelt.tools.definitions import DEFINITIONS

FOLDER = Path(__file__).parents[1] / "docs" / "migrating"
PAGES = sorted(FOLDER.glob("*.md"))
OWNERS = {"session": RuntimeSession, "belt": Runtime}
VARIABLES = {"SKILLS_ROOT", "TRPC_AGENT_SKILL_RUN_..."}  # tests/test_settings.py reads them
TABLES = {"[permission]", "[agent.NAME.permission]"}  # tests/permission reads them
# Paths, and programs and words that are not ours.
OTHERS = {"npx skills", "cp -r", "skills", "requirements.txt", "/name arguments"} | {
    "work/", "out/", "inputs/", "$RUN_DIR/", "work/data.csv",
}  # fmt: skip


def tables(page: Path) -> Iterator[list[list[str]]]:
    """The rows of each table that has a column for skillbelt, without that of the other tool."""
    for match in re.finditer(r"(?:^\|.*\n)+", page.read_text("utf-8"), re.MULTILINE):
        rows = [
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
            for line in match[0].splitlines()
        ]
        assert rows[0][1] == "skillbelt", f"{page.name}: {rows[0]}"
        yield [row[1:] for row in rows[2:]]


def named(page: Path) -> list[str]:
    """Everything in backticks on our side of the tables of a page."""
    cells = [cell for rows in tables(page) for row in rows for cell in row]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def options() -> set[str]:
    return {word for name in COMMANDS for word in parser(name)._option_string_actions}


def fields_of(owner: object) -> set[str]:
    return set(inspect.signature(owner).parameters)  # type: ignore[arg-type]


def check_command(text: str) -> None:
    """`skillbelt COMMAND --option`, or an option by itself."""
    words = text.removeprefix("skillbelt ").split()
    if text.startswith("skillbelt "):
        assert words[0] in COMMANDS, text
        assert {word for word in words if word.startswith("--")} <= set(
            parser(words[0])._option_string_actions
        ), text
    else:
        assert words[0] in options(), text


def check_setting(text: str) -> None:
    """`name = value` as a skillbelt.toml has it."""
    load_settings(overrides=tomllib.loads(text), environ={})


def check_call(call: ast.Call) -> None:
    """A call of a public name, with arguments that it takes; those in it too."""
    text = ast.unparse(call)
    if isinstance(call.func, ast.Attribute):
        assert isinstance(call.func.value, ast.Name), text
        owner = getattr(OWNERS[call.func.value.id], call.func.attr)
        known = fields_of(owner)
    else:
        assert isinstance(call.func, ast.Name) and call.func.id in skillbelt.__all__, text
        known = fields_of(getattr(skillbelt, call.func.id))
        known |= DEFAULTS.keys() if call.func.id == "Runtime" else set()
    assert {word.arg for word in call.keywords} <= known, text
    inner = [one for child in ast.iter_child_nodes(call) for one in ast.walk(child)]
    for one in inner:
        if isinstance(one, ast.Call):
            check_call(one)


def check_name(text: str) -> None:
    """A setting, command, tool or its argument, field, type of permission, or check rule."""
    arguments = {word for one in DEFINITIONS.values() for word in one.properties}
    known = {*DEFAULTS, *COMMANDS, *DEFINITIONS, *RULES, *TYPES, *skillbelt.__all__}
    assert text in known | arguments | fields_of(SkillSettings) | fields_of(Agent), text


def check(text: str) -> None:
    if text in VARIABLES | OTHERS | TABLES:
        return
    if text.startswith(("skillbelt ", "--")):
        check_command(text)
    elif re.fullmatch(r"\w+ = .+", text):
        check_setting(text)
    elif re.fullmatch(r"[\w-]+", text):
        check_name(text)
    elif re.fullmatch(r"\w+=.+", text):
        check_call(ast.parse(f"Runtime({text})", mode="eval").body)  # type: ignore[arg-type]
    elif re.fullmatch(r'"\w+"', text):
        assert any(text in page.read_text("utf-8") for page in PAGES)
    else:
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call), text
        check_call(call)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_table_names_on_our_side_exists(page: Path) -> None:
    names = named(page)
    assert len(names) >= 7
    for name in names:
        check(name)


@pytest.mark.parametrize(
    "name",
    ["skillbelt instal", "--clinet NAME", 'tool_profil = "x"', "max_dept", "Runtime(gide=1)",
     "session.declair([1])", "Rune()", "session.declare([LoadRequst(name)])", "paht=[1]"],
)  # fmt: skip
def test_a_name_that_does_not_exist_is_found(name: str) -> None:
    with pytest.raises((AssertionError, AttributeError, skillbelt.ConfigError)):
        check(name)


def test_there_is_a_page_for_each_tool() -> None:
    assert [page.stem for page in PAGES] == [
        "claude-code", "deepagents", "npx-skills", "opencode", "trpc-agent-go",
    ]  # fmt: skip


def test_the_lines_for_deepagents_use_what_there_is() -> None:
    """Its package is not installed here, so the lines are read, not run."""
    text = (FOLDER / "deepagents.md").read_text("utf-8")
    [after] = re.findall(r"middleware=\[(SkillMiddleware\(.*\))\]\)  # after$", text, re.MULTILINE)
    call = ast.parse(after, mode="eval").body
    assert isinstance(call, ast.Call)
    [inner] = call.args
    assert isinstance(inner, ast.Call)
    check_call(inner)
