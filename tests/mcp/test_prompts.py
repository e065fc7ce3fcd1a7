"""Skills that a user may call, as prompts."""

from __future__ import annotations

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent

from skillbelt import Rule, Runtime
from skillbelt.mcp.prompts import arguments_text
from skillbelt.values import Frontmatter
from tests.mcp.clients import connected
from tests.mcp.conftest import SKILLS
from tests.tree import Tree

pytestmark = pytest.mark.anyio


async def test_prompts_are_what_a_user_may_call(skills: Tree) -> None:
    skills.skill(f"{SKILLS}/hers", disable_model_invocation=True)
    skills.skill(f"{SKILLS}/models", user_invocable=False)
    skills.skill(f"{SKILLS}/fill", arguments=["form", "name"])
    skills.skill(f"{SKILLS}/hint", argument_hint="FILE PAGES")
    with Runtime(skills.project) as belt:
        async with connected(belt) as client:
            listed = {prompt.name: prompt for prompt in (await client.list_prompts()).prompts}
            tools = (await client.list_tools()).model_dump_json()
    assert sorted(listed) == ["fill", "hers", "hint", "notes", "pdf"]
    assert [one.name for one in listed["fill"].arguments or ()] == ["form", "name"]
    [whole] = listed["hint"].arguments or []
    assert (whole.name, whole.description) == ("arguments", "FILE PAGES")
    assert "hers" not in tools, "it is the user's alone"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_prompt_is_the_skill_with_its_arguments(belt: Runtime, mode: str) -> None:
    async with connected(belt, mode) as client:
        given = await client.get_prompt("notes", {"arguments": "milk and 'bread'"})
    [message] = given.messages
    assert message.role == "user"
    assert isinstance(message.content, TextContent)
    assert "Write milk and 'bread' down." in message.content.text


async def test_named_arguments_stand_where_the_skill_names_them(skills: Tree) -> None:
    skills.skill(f"{SKILLS}/fill", arguments=["form", "name"], text="Form $form for $name!\n")
    with Runtime(skills.project) as belt:
        async with connected(belt) as client:
            given = await client.get_prompt("fill", {"name": "Ada Lovelace; rm -rf /"})
    [message] = given.messages
    assert isinstance(message.content, TextContent)
    assert "Form  for Ada Lovelace; rm -rf /!" in message.content.text


async def test_a_wrong_prompt_or_argument_is_refused(belt: Runtime) -> None:
    async with connected(belt) as client:
        for name, arguments, told in (
            ("nothing", {}, "there is no prompt 'nothing'"),
            ("../pdf", {}, "there is no prompt"),
            ("pdf", {"wrong": "x"}, "unknown argument 'wrong'; known: arguments"),
        ):
            with pytest.raises(MCPError, match=told):
                await client.get_prompt(name, arguments)


async def test_a_rule_can_deny_a_prompt(skills: Tree) -> None:
    with Runtime(skills.project, rules=[Rule("skill", "pdf", "deny")]) as belt:
        async with connected(belt) as client:
            with pytest.raises(MCPError, match="is denied by the host's rules"):
                await client.get_prompt("pdf")


def test_arguments_are_written_as_a_user_would() -> None:
    head = Frontmatter(arguments=("a", "b", "c"))
    assert arguments_text(head, {}) == ""
    assert arguments_text(head, {"b": "two words"}) == "'' 'two words'"
    assert arguments_text(Frontmatter(), {"arguments": "as 'it is'"}) == "as 'it is'"
