"""Keeping secrets that a run was given out of what it says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.running.secrets import RedactingListener, Redactor, redacted, secrets_of


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


def test_a_text_that_was_cut_within_a_secret_shows_nothing_of_it() -> None:
    secrets = {"A_KEY": "secret-value"}
    assert redacted("x secret-val", secrets, cut=True) == "x "
    assert redacted("x secret-val", secrets) == "x secret-val"


def test_a_text_that_is_no_unicode_is_redacted_too() -> None:
    assert redacted("\ud800 secret-value", {"A_KEY": "secret-value"}) == "\ud800 [A_KEY]"


# --- in pieces -----------------------------------------------------------------------------------


def streamed(secrets: dict[str, str], pieces: list[bytes]) -> bytes:
    stream = Redactor(secrets)
    return b"".join([*map(stream.more, pieces), stream.end()])


def test_a_secret_that_comes_in_pieces_is_seen() -> None:
    secrets = {"A_KEY": "abcabd"}
    assert streamed(secrets, [b"xab", b"c", b"", b"abdy"]) == b"x[A_KEY]y"
    assert streamed(secrets, [bytes([one]) for one in b"abcabcabdabcabd"]) == b"abc[A_KEY][A_KEY]"


def test_nothing_waits_but_what_may_begin_a_secret() -> None:
    stream = Redactor({"A_KEY": "secret-value"})
    assert stream.more(b"name? ") == b"name? "
    assert stream.more(b"this is secret") == b"this is "
    assert stream.more(b"s are kept") == b"secrets are kept"
    assert stream.more(b"a secret-value") == b"a [A_KEY]"


def test_a_secret_that_may_be_a_longer_one_waits() -> None:
    secrets = {"A_KEY": "secret", "B_KEY": "secret-and-more", "C_KEY": "cret-and"}
    assert streamed(secrets, [b"secret", b"-and-more"]) == b"[B_KEY]"
    assert streamed(secrets, [b"secret", b"-and-less"]) == b"[A_KEY]-and-less"
    assert streamed(secrets, [b"secret"]) == b"[A_KEY]"


LETTERS = st.text(alphabet="ab", max_size=30)
VALUES = st.lists(st.text(alphabet="ab", min_size=6, max_size=9), min_size=1, max_size=3)


@given(st.lists(LETTERS), VALUES)
def test_the_pieces_make_no_difference(pieces: list[str], values: list[str]) -> None:
    secrets = {f"{number}_KEY": value for number, value in enumerate(values)}
    shown = streamed(secrets, [piece.encode() for piece in pieces]).decode()
    assert shown == redacted("".join(pieces), secrets)
    assert not any(value in shown for value in values)


@given(st.lists(st.binary()))
def test_what_holds_no_secret_is_passed_on_to_the_byte(pieces: list[bytes]) -> None:
    assert streamed({"A_KEY": "no such secret"}, pieces) == b"".join(pieces)


def test_a_listener_hears_each_stream_without_secrets_and_to_its_end() -> None:
    heard: list[tuple[str, bytes]] = []
    listener = RedactingListener(
        lambda stream, data: heard.append((stream, data)), {"A_KEY": "secret-value"}
    )
    listener("stdout", b"secret-")
    listener("stderr", b"value")
    listener("stdout", b"value")
    listener("stderr", b" sec")
    listener.end()
    assert heard == [
        ("stderr", b"value"),
        ("stdout", b"[A_KEY]"),
        ("stderr", b" "),
        ("stderr", b"sec"),
    ]
