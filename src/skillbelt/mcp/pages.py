"""Long lists in pages. A cursor names the last one given, so that changes in between do no harm."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, PaginatedRequestParams

PAGE = 100
_MAX_CHARS = 4_096
_WRONG = "the cursor is none that a page gave; ask for the first page without one"


class Page(NamedTuple):
    """Some names in order, and where to go on; None at the end."""

    names: list[str]
    cursor: str | None


def page_of(names: Sequence[str], cursor: str | None, most: int = PAGE) -> Page:
    """The names after the cursor, which must be sorted; MCPError for a cursor of no page."""
    start = bisect_right(names, _decoded(cursor)) if cursor is not None else 0
    found = list(names[start : start + most])
    more = start + most < len(names)
    return Page(found, cursor_of(found[-1]) if more else None)


def only_page(params: PaginatedRequestParams | None) -> None:
    """Refuse the cursor of a list that has one page, since none was given for it."""
    if params is not None and params.cursor is not None:
        raise MCPError(INVALID_PARAMS, _WRONG)


def cursor_of(name: str) -> str:
    """Where to go on after this one."""
    return urlsafe_b64encode(name.encode("utf-8", "surrogateescape")).decode("ascii")


def _decoded(cursor: str) -> str:
    try:
        if len(cursor) > _MAX_CHARS:
            raise ValueError("too long")
        data = urlsafe_b64decode(cursor.encode("ascii"))
        if cursor_of(name := data.decode("utf-8", "surrogateescape")) != cursor:
            raise ValueError("not ours")
        return name
    except (ValueError, binascii.Error) as error:
        raise MCPError(INVALID_PARAMS, _WRONG) from error
