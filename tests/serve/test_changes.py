"""Clients are told when skills come, go or change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged
from mcp_types import (
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)

from skillbelt import Runtime
from skillbelt.serve.server import SkillServer
from tests.serve.conftest import SKILLS
from tests.tree import Tree

pytestmark = pytest.mark.anyio


@pytest.fixture
def belt(skills: Tree) -> Iterator[Runtime]:
    with Runtime(skills.project, watch_seconds=0.1) as belt:
        belt.look()
        yield belt


async def test_a_client_of_the_older_protocol_is_told_on_its_connection(
    belt: Runtime, skills: Tree
) -> None:
    told: list[str] = []

    async def note(message: Any) -> None:
        told.append(type(message).__name__)

    served = SkillServer(belt)
    served.start()
    wanted = {
        ToolListChangedNotification.__name__,
        ResourceListChangedNotification.__name__,
        PromptListChangedNotification.__name__,
    }
    try:
        async with Client(served.server, mode="legacy", message_handler=note) as client:
            capabilities = client.server_capabilities
            assert capabilities.tools is not None
            assert capabilities.tools.list_changed
            skills.skill(f"{SKILLS}/added", "Came later.")
            with anyio.fail_after(30):
                while not wanted <= {*told}:
                    await anyio.sleep(0.02)
            [loader, *_] = (await client.list_tools()).tools
            assert "Came later." in (loader.description or "")
    finally:
        served.close()


async def test_a_client_of_the_newer_protocol_hears_what_it_listens_for(
    belt: Runtime, skills: Tree
) -> None:
    served = SkillServer(belt)
    served.start()
    uri, heard = "skill://pdf/SKILL.md", list[Any]()
    try:
        async with Client(served.server) as client:
            listening = client.listen(tools_list_changed=True, resource_subscriptions=[uri])
            async with listening as events:
                skills.skill(f"{SKILLS}/pdf", "Reads them all.", text="Changed.\n")
                with anyio.fail_after(30):
                    async for event in events:
                        heard.append(event)
                        if {ToolsListChanged(), ResourceUpdated(uri=uri)} <= {*heard}:
                            break
    finally:
        served.close()
    assert {*heard} == {ToolsListChanged(), ResourceUpdated(uri=uri)}


async def test_the_oldest_client_is_forgotten_when_there_are_too_many(belt: Runtime) -> None:
    served = SkillServer(belt)
    watcher = served.watcher
    watcher._most = 1
    try:
        async with Client(served.server, mode="legacy"), Client(served.server, mode="legacy"):
            assert len(watcher._connected) == 1
    finally:
        served.close()
