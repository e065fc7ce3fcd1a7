from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.store.protocol import changes, decoded, encoded, scope

# Surrogates included: hypothesis leaves them out unless told.
TEXT = st.text(st.characters(codec=None, exclude_categories=()))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(TEXT, JSON, max_size=4))
def test_data_survives_its_encoding(data: dict[str, object]) -> None:
    assert decoded(encoded(data)) == data


def test_two_surrogates_side_by_side_stay_two() -> None:
    data = {"\ud83d\ude00": "\ud83d\ude00"}
    assert decoded(encoded(data)) == data != {"😀": "😀"}


@pytest.mark.parametrize(
    ("key", "who"),
    [
        ("app:a", "app"),
        ("app:", "app"),
        ("user:a", "user"),
        ("user:app:a", "user"),
        ("app", "session"),
        ("App:a", "session"),
        (" app:a", "session"),
        ("temp:skill:loaded:pdf", "session"),
        ("", "session"),
    ],
)
def test_the_prefix_says_who_shares_a_key(key: str, who: str) -> None:
    assert scope(key) == who
    assert list(changes({key: None})) == [(who, key, None)]


@pytest.mark.parametrize("bad", [{"a": 1}, {"a": b"x"}, {1: "a"}, {None: None}])
def test_state_is_text_by_text(bad: dict[str, str]) -> None:
    with pytest.raises(TypeError, match="state is text by text"):
        list(changes(bad))
