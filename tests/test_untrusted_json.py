from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.untrusted_json import BadJson, read_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


@given(VALUES)
def test_a_document_is_read_as_it_was_written(value: object) -> None:
    text = json.dumps(value)
    assert read_json(text) == read_json(text.encode()) == value


@given(st.text() | st.binary())
def test_anything_else_is_one_error(data: str | bytes) -> None:
    try:
        read_json(data)
    except BadJson as error:
        assert str(error)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("1 2", "Extra data"),
        ("NaN", "NaN is not JSON"),
        ('{"a": [-Infinity]}', "-Infinity is not JSON"),
        (b"\xff", "is not UTF-8: byte 0"),
        ("9" * 5000, "integer string conversion"),
    ],
)
def test_an_error_says_what_is_wrong(data: str | bytes, reason: str) -> None:
    with pytest.raises(BadJson, match=reason) as caught:
        read_json(data)
    assert not caught.value.deep


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting_is_an_error(opening: str) -> None:
    with pytest.raises(BadJson, match="nested too deeply") as caught:
        read_json(opening * 100_000)
    assert caught.value.deep


def test_a_bound_is_kept() -> None:
    assert read_json("[1]", most=3) == [1]
    with pytest.raises(BadJson, match="longer than 2 bytes"):
        read_json("[1]", most=2)


def test_of_equal_keys_the_last_wins() -> None:
    assert read_json('{"a": 1, "a": 2}') == {"a": 2}


def test_a_byte_order_mark_is_skipped() -> None:
    assert read_json(b"\xef\xbb\xbf[]") == []


def test_what_this_process_wrote_may_hold_constants() -> None:
    assert read_json("[Infinity]", constants=True) == [float("inf")]
