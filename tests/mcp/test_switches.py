"""Settings for single skills, as clients see them."""

from __future__ import annotations

import pytest
from mcp.shared.exceptions import MCPError

from skillbelt import Runtime
from tests.mcp.clients import connected
from tests.mcp.conftest import SKILLS
from tests.tree import Tree

pytestmark = pytest.mark.anyio


async def test_a_disabled_skill_is_not_served(skills: Tree) -> None:
    with Runtime(skills.project, skills={"pdf": {"enabled": False}}) as belt:
        async with connected(belt) as client:
            served = [
                (await client.list_prompts()).model_dump_json(),
                (await client.list_tools()).model_dump_json(),
                (await client.list_resources()).model_dump_json(),
            ]
            assert all("pdf" not in text for text in served)
            called = await client.call_tool("skill_load", {"skill": "pdf"})
            assert called.is_error
            for read in (client.read_resource("skill://pdf/SKILL.md"), client.get_prompt("pdf")):
                with pytest.raises(MCPError):
                    await read


async def test_a_manual_skill_is_a_prompt_and_nothing_else(skills: Tree) -> None:
    with Runtime(skills.project, skills={"pdf": {"visible": "manual"}}) as belt:
        async with connected(belt) as client:
            assert "pdf" in [prompt.name for prompt in (await client.list_prompts()).prompts]
            assert "pdf" not in (await client.list_tools()).model_dump_json()
            assert "pdf" not in (await client.list_resources()).model_dump_json()


async def test_a_client_is_told_that_a_required_skill_is_gone(skills: Tree) -> None:
    skills.skill(f"{SKILLS}/must")
    with Runtime(skills.project, skills={"must": {"required": True}}) as belt:
        async with connected(belt) as client:
            await client.list_tools()
            skills.path(f"{SKILLS}/must/SKILL.md").unlink()
            with pytest.raises(MCPError, match="the skill 'must' is required"):
                await client.list_tools()
            with pytest.raises(MCPError, match="the skill 'must' is required"):
                await client.call_tool("skill_load", {"skill": "pdf"})
            skills.skill(f"{SKILLS}/must")
            await client.list_tools()
