"""Keeping secrets that a run was given out of what it says."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.running.secrets import (
    RedactingListener,
    Redactor,
    redacted,
    redacted_chunks,
    secrets_of,
)


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


# --- spelled otherwise ---------------------------------------------------------------------------

ENCODINGS: dict[str, Callable[[str], str]] = {
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "HEX": lambda text: text.encode().hex().upper(),
    "JSON": json.dumps,
    "JSON as it is": lambda text: json.dumps(text, ensure_ascii=False),
    "a URL": quote,
    "a part of a URL": lambda text: quote(text, safe=""),
    "a form": quote_plus,
    "HTML": html.escape,
}
VALUE = 'p/ss w"rd+é&<123>'


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(before=st.text(max_size=9), after=st.text(max_size=9))
def test_an_encoded_secret_is_seen_wherever_it_stands(
    encoding: str, before: str, after: str
) -> None:
    told = redacted(ENCODINGS[encoding](f"{before}{VALUE}{after}"), {"A_KEY": VALUE})
    assert "[A_KEY]" in told


@pytest.mark.parametrize("width", [64, 76])
def test_base64_in_lines_is_seen(width: int) -> None:
    value = "0123456789abcdef" * 20
    text = base64.b64encode(value.encode() + b"\n").decode()
    lines = "\n".join(text[at : at + width] for at in range(0, len(text), width))
    assert "[A_KEY]" in redacted(lines, {"A_KEY": value})
    assert text[100:140] not in redacted(lines, {"A_KEY": value})


def test_each_line_of_a_key_is_a_secret_and_its_frame_is_none() -> None:
    lines = ["-----BEGIN X-----", "MIIEvQIBADANBgkqhkiG9w0", "BAQEFAASCBKcwggSjAgEAAo", "short"]
    key = "\n".join([*lines, "-----END X-----", ""])
    told = redacted("> MIIEvQIBADANBgkqhkiG9w0\n> -----BEGIN X-----\n> short", {"A_KEY": key})
    assert told == "> [A_KEY]\n> -----BEGIN X-----\n> short"
    assert redacted(key.replace("\n", "\r\n"), {"A_KEY": key}) == "[A_KEY]\r\n"


def test_a_text_in_chunks_is_redacted_across_them() -> None:
    chunks = ["é a ", "secr", "et-val", "ue é", " secret-va"]
    told = list(redacted_chunks(chunks, {"A_KEY": "secret-value"}))
    assert "".join(told) == "é a [A_KEY] é secret-va"
    assert list(redacted_chunks(chunks, {})) == chunks


@pytest.mark.long
def test_output_that_begins_a_long_secret_again_and_again_is_no_burden() -> None:
    """One step for each beginning, not one for each byte of each."""
    value = "ab" * 8_000
    stream = Redactor({"A_KEY": value})
    for _ in range(20):
        stream.more(b"ab" * 7_999 + b"c")
    assert stream.end() == b""


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
