"""Shared by all answers: text that JSON can express, and long lists in pages.

A cursor names the last entry of a page, so changes between two pages do no harm.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, PaginatedRequestParams

PAGE_SIZE = 100
_MAX_CURSOR_CHARS = 4_096
_BAD_CURSOR = "unknown cursor; ask for the first page without one"


def sendable(text: str) -> str:
    """Replace characters that UTF-8 cannot encode: a file name may not be valid text."""
    return text.encode("utf-8", "replace").decode("utf-8")


class ListPage(NamedTuple):
    """Sorted names, and the cursor of the next page; None on the last page."""

    names: list[str]
    cursor: str | None


def page_of(names: Sequence[str], cursor: str | None, most: int = PAGE_SIZE) -> ListPage:
    """Return the page after the cursor of sorted names; MCPError for an unknown cursor."""
    start = bisect_right(names, _decode(cursor)) if cursor is not None else 0
    found = list(names[start : start + most])
    more = start + most < len(names)
    return ListPage(found, cursor_after(found[-1]) if more else None)


def refuse_cursor(params: PaginatedRequestParams | None) -> None:
    """Raise MCPError for a cursor: a list of one page has none."""
    if params is not None and params.cursor is not None:
        raise MCPError(INVALID_PARAMS, _BAD_CURSOR)


def cursor_after(name: str) -> str:
    """Return the cursor of the page that begins after this name."""
    return urlsafe_b64encode(name.encode("utf-8", "surrogateescape")).decode("ascii")


def _decode(cursor: str) -> str:
    try:
        if len(cursor) > _MAX_CURSOR_CHARS:
            raise ValueError("too long")
        data = urlsafe_b64decode(cursor.encode("ascii"))
        if cursor_after(name := data.decode("utf-8", "surrogateescape")) != cursor:
            raise ValueError("not ours")
        return name
    except (ValueError, binascii.Error) as error:
        raise MCPError(INVALID_PARAMS, _BAD_CURSOR) from error
