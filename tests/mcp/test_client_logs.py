"""Log messages reach the clients that asked for them, from their level on."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import (
    EmptyResult,
    LoggingMessageNotification,
    Request,
    SetLevelRequestParams,
)

from skillbelt import Runtime
from skillbelt.mcp.notifications import log_message
from tests.mcp.clients import connected, send

pytestmark = pytest.mark.anyio


class SetLevel(Request[SetLevelRequestParams, Any]):
    method: Any = "logging/setLevel"
    params: SetLevelRequestParams


class Heard(list[tuple[str, object]]):
    async def __call__(self, message: Any) -> None:
        if isinstance(message, LoggingMessageNotification):
            self.append((message.params.level, message.params.data))


WRONG = ("warning", "skill_load: unknown skill: nothing")


async def calls(client: Any) -> None:
    await client.call_tool("skill_list_docs", {"skill": "pdf"})
    await client.call_tool("skill_load", {"skill": "nothing"})


@pytest.mark.parametrize(
    ("level", "told"),
    [(None, []), ("debug", [("info", "skill_list_docs: done"), WRONG]), ("warning", [WRONG]),
     ("error", [])],
)  # fmt: skip
async def test_with_each_request_of_the_newer_protocol(
    belt: Runtime, level: Any, told: list[tuple[str, str]]
) -> None:
    heard = Heard()
    async with connected(belt, message_handler=heard, log_level=level) as client:
        await calls(client)
    assert heard == told


async def test_once_for_a_connection_of_the_older_one(belt: Runtime) -> None:
    heard = Heard()
    async with connected(belt, "legacy", message_handler=heard) as client:
        assert client.server_capabilities.logging is not None
        await calls(client)
        assert heard == []
        for level in ("error", "info"):
            wanted = SetLevel(params=SetLevelRequestParams(level=level))
            await client.session.send_request(wanted, EmptyResult)
            await calls(client)
    assert [level for level, _ in heard] == ["info", "warning"]


async def test_a_level_that_is_none_is_refused(belt: Runtime) -> None:
    params = SetLevelRequestParams.model_construct(level="loud")
    async with connected(belt, "legacy") as client:
        with pytest.raises(Exception, match="Invalid"):
            await send(client, SetLevel(params=params))


def test_a_message_is_one_line_with_an_end() -> None:
    data = log_message("info", "a\nb\x1b" + "x" * 10_000).params.data
    assert isinstance(data, str)
    assert "\n" not in data
    assert "\x1b" not in data
    assert len(data) <= 500
