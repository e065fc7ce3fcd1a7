"""The addresses of skills and their files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.mcp.protocol import sendable
from skillbelt.mcp.published import split_uri, uri_of

PART = st.text(min_size=1, max_size=20).filter(
    lambda text: text not in (".", "..") and not set("/\0") & set(text) and text.isprintable()
)


@given(st.lists(PART, min_size=1, max_size=5))
def test_an_address_leads_back_to_what_it_was_made_of(parts: list[str]) -> None:
    assert split_uri(uri_of("/".join(parts))) == parts


def test_an_address_is_plain_where_the_name_is() -> None:
    assert uri_of("pdf", "SKILL.md") == "skill://pdf/SKILL.md"
    assert uri_of("pdf", "a b/ü?.md") == "skill://pdf/a%20b/%C3%BC%3F.md"
    assert split_uri(uri_of("pdf", "not-utf-8-\udcff")) == ["pdf", "not-utf-8-\udcff"]


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "pdf/SKILL.md",
        "file:///etc/passwd",
        "skill://",
        "skill:///etc/passwd",
        "skill://pdf/",
        "skill://pdf//SKILL.md",
        "skill://pdf/../notes/SKILL.md",
        "skill://pdf/%2e%2e/notes/SKILL.md",
        "skill://pdf/..%2fnotes/SKILL.md",
        "skill://pdf/%2fetc%2fpasswd",
        "skill://pdf/./SKILL.md",
        "skill://pdf/SKILL.md%00.png",
        "skill://pdf\\..\\notes/SKILL.md",
        "skill://pdf/SKILL.md?x=1",
        "skill://pdf/SKILL.md#x",
        "SKILL://pdf/SKILL.md",
        "skill://" + "a/" * 4_000 + "b",
    ],
)
def test_what_could_lead_elsewhere_is_no_address(uri: str) -> None:
    assert split_uri(uri) is None


def test_what_is_no_text_is_made_one() -> None:
    assert sendable("plain \u00fc") == "plain \u00fc"
    assert sendable("odd\udcff") == "odd?"


def test_an_address_is_unescaped_once() -> None:
    assert split_uri("skill://pdf/%252e%252e") == ["pdf", "%2e%2e"]
