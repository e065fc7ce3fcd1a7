"""Pages of long lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError
from mcp_types import PaginatedRequestParams

from skillbelt.mcp.protocol import page_of, refuse_cursor


@given(st.sets(st.text(min_size=1)), st.integers(1, 5))
def test_pages_together_are_the_whole_list(names: set[str], most: int) -> None:
    wanted, found, cursor = sorted(names), list[str](), None
    while True:
        page = page_of(wanted, cursor, most)
        assert len(page.names) <= most
        found += page.names
        cursor = page.cursor
        if cursor is None:
            break
    assert found == wanted


def test_nothing_is_given_twice_or_missed_when_others_come_and_go() -> None:
    first = page_of(["b", "d", "f"], None, 2)
    assert first.names == ["b", "d"]
    assert page_of(["a", "b", "e", "f"], first.cursor, 2).names == ["e", "f"]


@pytest.mark.parametrize("cursor", ["", "!", "YQ", "ü", "a" * 5_000, "Y Q = ="])
def test_a_cursor_of_somebody_else_is_refused(cursor: str) -> None:
    if cursor == "":
        assert page_of(["a"], cursor).names == ["a"]
        return
    with pytest.raises(MCPError, match="cursor"):
        page_of(["a"], cursor)


def test_a_list_of_one_page_gives_no_cursor_and_takes_none() -> None:
    refuse_cursor(None)
    refuse_cursor(PaginatedRequestParams())
    with pytest.raises(MCPError, match="cursor"):
        refuse_cursor(PaginatedRequestParams(cursor=""))
