"""Keeping secrets that a run was given out of what it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.redact import quiet, redacted, secrets_of


@pytest.mark.parametrize(
    "name", ["API_KEY", "OPENAI_API_KEY", "GITHUB_TOKEN", "db_password", "AWS_SECRET_ACCESS_KEY"]
)
def test_a_name_says_that_a_value_is_secret(name: str) -> None:
    assert secrets_of({name: "s3cr3t-value"}) == {name: "s3cr3t-value"}


@pytest.mark.parametrize("name", ["PATH", "KEYBOARD", "MONKEY", "TOKENIZER", "LANG"])
def test_other_values_are_none(name: str) -> None:
    assert secrets_of({name: "s3cr3t-value"}) == {}


def test_a_value_that_is_too_short_is_not_looked_for() -> None:
    assert secrets_of({"TOKEN": "abc"}) == {}


def test_the_longer_secret_is_taken_out_first() -> None:
    secrets = {"A_KEY": "secret", "B_KEY": "secret-and-more"}
    assert redacted("x secret-and-more secret", secrets) == "x [B_KEY] [A_KEY]"


@given(st.text(), st.text(min_size=6, alphabet="abcdef123"), st.text())
def test_no_secret_is_left(before: str, value: str, after: str) -> None:
    assert value not in redacted(before + value + after, {"N": value})


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_whoever_follows_a_run_is_told_everything_but_the_secrets(size: int) -> None:
    secrets = {"API_KEY": "s3cret-käy"}
    said = "before s3cret-käy after, s3cret-kä almost, s3cret-käy".encode() + b"\xff"
    told: list[bytes] = []
    with quiet(lambda _stream, data: told.append(data), secrets) as listener:
        assert listener is not None
        for start in range(0, len(said), size):
            listener("stdout", said[start : start + size])
    assert b"".join(told) == (
        "before [API_KEY] after, s3cret-kä almost, [API_KEY]".encode() + b"\xff"
    )


def test_without_secrets_nothing_stands_between() -> None:
    def listener(_stream: str, _data: bytes) -> None:
        """Told everything."""

    with quiet(listener, {}) as same:
        assert same is listener
    with quiet(None, {"API_KEY": "s3cret"}) as nobody:
        assert nobody is None
