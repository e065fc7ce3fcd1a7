"""The server as a whole: its handshake, and that both protocols see the same."""

from __future__ import annotations

import pytest

from skillbelt import Runtime, __version__
from tests.mcp.clients import connected, list_skills

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_it_says_who_it_is_and_what_it_has(belt: Runtime, mode: str, version: str) -> None:
    async with connected(belt, mode) as client:
        assert client.protocol_version == version
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("skillbelt", __version__)
        capabilities = client.server_capabilities
        for one in (capabilities.tools, capabilities.resources, capabilities.prompts):
            assert one is not None
            assert one.list_changed
        assert client.instructions is not None
        assert "skill_load" in client.instructions


async def test_both_protocols_give_the_same(belt: Runtime) -> None:
    seen = []
    for mode in ("legacy", "auto"):
        async with connected(belt, mode) as client:
            listed = await list_skills(client)
            tools = (await client.list_tools()).tools
            prompts = (await client.list_prompts()).prompts
            seen.append((listed["skills"], tools, prompts))
    assert seen[0] == seen[1]


async def test_many_clients_are_served_at_once(belt: Runtime) -> None:
    import anyio

    found: list[int] = []

    async def one() -> None:
        async with connected(belt) as client:
            found.append(len((await list_skills(client))["skills"]))

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(one)
    assert found == [2] * 20
