"""A client that does not read delays no other."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from mcp.server.session import ServerSession
from mcp_types import (
    ResourceUpdatedNotification,
    ResourceUpdatedNotificationParams,
    ToolListChangedNotification,
)

from skillbelt.mcp import notifications
from skillbelt.mcp.notifications import NotificationQueue

pytestmark = pytest.mark.anyio


class Client:
    """Takes its messages once it is released; the first one fails."""

    def __init__(self) -> None:
        self.got, self.reading = list[Any](), asyncio.Event()

    async def send_notification(self, told: Any) -> None:
        await self.reading.wait()
        self.got.append(told)
        if len(self.got) == 1:
            raise ConnectionError

    @property
    def session(self) -> ServerSession:
        return cast(ServerSession, self)


def updated(number: int) -> ResourceUpdatedNotification:
    return ResourceUpdatedNotification(
        params=ResourceUpdatedNotificationParams(uri=f"skill://a/{number}")
    )


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_who_does_not_read_is_told_once_and_not_waited_for() -> None:
    client = Client()
    box = NotificationQueue(client.session)
    for _ in range(5):
        box.post([ToolListChangedNotification(), updated(1)])
        await settled()
    assert client.got == []
    client.reading.set()
    await settled()
    # The first was already being sent when the others came.
    assert client.got == [ToolListChangedNotification(), updated(1), ToolListChangedNotification()]


async def test_what_waits_has_a_bound_and_goes_with_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(notifications, "MAX_QUEUED", 3)
    client = Client()
    box = NotificationQueue(client.session)
    box.post(updated(number) for number in range(10))
    client.reading.set()
    await settled()
    assert client.got == [updated(0), updated(1), updated(2)]
    client.reading.clear()
    box.post([updated(7)])
    await settled()
    box.close()
    client.reading.set()
    await settled()
    assert len(client.got) == 3
