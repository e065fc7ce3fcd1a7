"""Log messages for clients: what happened, to whoever asked to hear of it from some level on.

A client of the older protocol says once for its connection from which level on. One of the newer
protocol says it with each request, and hears of that request alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from mcp_types import (
    LOG_LEVEL_META_KEY,
    EmptyResult,
    LoggingLevel,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
    SetLevelRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from skillbelt.mcp.requests import Context
from skillbelt.mcp.sessions import Sessions
from skillbelt.mcp.uris import sendable
from skillbelt.text import one_line, shorten

LOGGER = "skillbelt"
LEVELS: tuple[LoggingLevel, ...] = get_args(LoggingLevel)  # from the least on
_SHOWN = 500


class Logs:
    """Who wants to hear what. Nobody hears anything before they said so."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._levels: dict[str, LoggingLevel] = {}

    async def set_level(self, ctx: Context, params: SetLevelRequestParams) -> EmptyResult:
        """Answer `logging/setLevel`."""
        name = self._sessions.name(ctx)
        if name not in self._levels:
            self._sessions.at_end(ctx, lambda: self._levels.pop(name, None))
        self._levels[name] = params.level
        return EmptyResult()

    async def tell(self, ctx: Context, level: LoggingLevel, texts: Iterable[str]) -> None:
        """Tell of a request to whoever made it."""
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            wanted = (ctx.meta or {}).get(LOG_LEVEL_META_KEY)
        else:
            wanted = self._levels.get(self._sessions.name(ctx))
        if _counts(level, wanted):
            for text in texts:
                await ctx.session.send_notification(message(level, text), ctx.request_id)

    def wanted(self, name: str, level: LoggingLevel) -> bool:
        """Whether the connection of that name wants to hear of such."""
        return _counts(level, self._levels.get(name))


def message(level: LoggingLevel, text: str) -> LoggingMessageNotification:
    """The notification of one thing that happened."""
    data = sendable(shorten(one_line(text), _SHOWN))
    params = LoggingMessageNotificationParams(level=level, logger=LOGGER, data=data)
    return LoggingMessageNotification(params=params)


def _counts(level: LoggingLevel, wanted: object) -> bool:
    return wanted in LEVELS and LEVELS.index(level) >= LEVELS.index(wanted)
