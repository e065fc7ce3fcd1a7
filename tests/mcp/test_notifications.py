"""Notifications to clients when skills are added, removed or changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, cast

import anyio
import pytest
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    EmptyResult,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ResourceUpdatedNotification,
    SetLevelRequestParams,
    SubscribeRequest,
    SubscribeRequestParams,
    ToolListChangedNotification,
    UnsubscribeRequest,
    UnsubscribeRequestParams,
)

from mcp import Client
from skillbelt import Runtime
from skillbelt.mcp import notifications
from skillbelt.mcp.notifications import NotificationQueue
from skillbelt.mcp.server import SkillServer
from tests.mcp.conftest import SKILLS
from tests.mcp.test_client_logs import Heard, SetLevel
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
            with anyio.fail_after(150):
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
                with anyio.fail_after(150):
                    async for event in events:
                        heard.append(event)
                        if {ToolsListChanged(), ResourceUpdated(uri=uri)} <= {*heard}:
                            break
    finally:
        served.close()
    assert {*heard} == {ToolsListChanged(), ResourceUpdated(uri=uri)}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_who_subscribed_hears_of_a_file_beside_the_body(
    belt: Runtime, skills: Tree, mode: Any
) -> None:
    uri, told = "skill://pdf/guide.md", list[str]()

    async def note(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            told.append(message.params.uri)

    served = SkillServer(belt)
    served.start()
    try:
        async with Client(served.server, mode=mode, message_handler=note) as client:
            async with AsyncExitStack() as stack, anyio.create_task_group() as group:
                if mode == "legacy":
                    await subscribe(client, "skill://pdf/SKILL.md")
                    await subscribe(client, uri)
                else:
                    listening = client.listen(resource_subscriptions=[uri])
                    events = await stack.enter_async_context(listening)
                    group.start_soon(hear, events, told)
                skills.write(f"{SKILLS}/pdf/guide.md", "Another.\n")
                with anyio.fail_after(150):
                    while not told:
                        await anyio.sleep(0.02)
                group.cancel_scope.cancel()
            if mode == "legacy":
                await unsubscribe(client, uri)
                assert uri not in served.notifier._subscriptions.of(served_name(served))
        assert served.notifier._subscriptions._digests == {}, "who goes takes them along"
    finally:
        served.close()
    assert {*told} == {uri}


async def subscribe(client: Client, uri: str) -> None:
    request = SubscribeRequest(params=SubscribeRequestParams(uri=uri))
    await client.session.send_request(request, EmptyResult)


async def unsubscribe(client: Client, uri: str) -> None:
    request = UnsubscribeRequest(params=UnsubscribeRequestParams(uri=uri))
    await client.session.send_request(request, EmptyResult)


async def hear(events: Any, told: list[str]) -> None:
    async for event in events:
        told.append(event.uri)


def served_name(served: SkillServer) -> str:
    [name] = served.notifier._clients
    return name


async def test_nobody_subscribes_to_what_is_not_there_or_to_too_much(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "MAX_SUBSCRIPTIONS", 1)
    served = SkillServer(belt)
    try:
        async with Client(served.server, mode="legacy") as client:
            for uri in ("skill://pdf/none.md", "skill://../etc", "file:///etc/passwd", ""):
                with pytest.raises(MCPError, match="no such resource"):
                    await subscribe(client, uri)
            await subscribe(client, "skill://pdf/guide.md")
            with pytest.raises(MCPError, match="at most"):
                await subscribe(client, "skill://pdf/SKILL.md")
    finally:
        served.close()


async def test_what_changed_and_what_is_wrong_is_logged_to_who_asked(
    belt: Runtime, skills: Tree
) -> None:
    heard = Heard()
    served = SkillServer(belt)
    served.start()
    try:
        async with Client(served.server, mode="legacy", message_handler=heard) as client:
            level = SetLevelRequestParams(level="info")
            await client.session.send_request(SetLevel(params=level), EmptyResult)
            skills.write(f"{SKILLS}/odd/SKILL.md", "---\nname: Odd One\n---\n")
            with anyio.fail_after(150):
                while len(heard) < 2:
                    await anyio.sleep(0.02)
    finally:
        served.close()
    told = dict(heard)
    assert told["info"] == "the skills changed: 1 new, 0 changed, 0 gone"
    assert "problems with skills; `skillbelt doctor` shows them" in str(told["warning"])
    assert "odd" not in str(heard).lower(), "it may not be for this client"


async def test_who_never_reads_keeps_nobody_else_from_hearing(belt: Runtime, skills: Tree) -> None:
    heard = anyio.Event()

    class Deaf:
        async def send_notification(self, _told: Any) -> None:
            await anyio.sleep_forever()

    async def note(message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            heard.set()

    served = SkillServer(belt)
    served.notifier._clients["deaf"] = NotificationQueue(cast(ServerSession, Deaf()))
    served.start()
    try:
        async with Client(served.server, mode="legacy", message_handler=note):
            skills.skill(f"{SKILLS}/added", "Came later.")
            with anyio.fail_after(150):
                await heard.wait()
    finally:
        served.notifier._clients["deaf"].close()
        served.close()


async def test_the_oldest_client_is_forgotten_when_there_are_too_many(belt: Runtime) -> None:
    served = SkillServer(belt)
    notifier = served.notifier
    notifier._most = 1
    try:
        async with Client(served.server, mode="legacy"), Client(served.server, mode="legacy"):
            assert len(notifier._clients) == 1
    finally:
        served.close()
