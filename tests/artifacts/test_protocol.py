from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.artifacts.protocol import (
    MAX_NAME_BYTES,
    Artifact,
    check_name,
    decoded,
    digest,
    encoded,
    owner,
    parse_reference,
    reference,
)
from skillbelt.errors import ArtifactError
from skillbelt.store import SessionKey

ANY = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("artifact://a.txt", "a.txt", None),
        ("artifact://a.txt@0", "a.txt", 0),
        ("artifact://a.txt@12", "a.txt", 12),
        ("artifact://a.txt@007", "a.txt", 7),
        ("artifact://a@b.txt", "a@b.txt", None),
        ("artifact://a@b@3", "a@b", 3),
        ("artifact://a@3@", "a@3@", None),
        ("artifact://a@-1", "a@-1", None),
        ("artifact://a@1.0", "a@1.0", None),
        ("artifact://a@٣", "a@٣", None),
        ("artifact://a@²", "a@²", None),
        ("artifact://@a", "@a", None),
        ("artifact://out/a b.txt@1", "out/a b.txt", 1),
        ("artifact://user:logo.png@2", "user:logo.png", 2),
        ("artifact://artifact://a@1", "artifact://a", 1),
        ("artifact://a%40b", "a%40b", None),
        ("artifact://../../etc/passwd", "../../etc/passwd", None),
    ],
)
def test_a_reference_is_a_name_and_perhaps_a_number(
    text: str, name: str, version: int | None
) -> None:
    """Case 76."""
    assert parse_reference(text) == (name, version)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.txt",
        "artifact:/a",
        "Artifact://a",
        "http://x",
        "artifact://",
        "artifact://@0",
        "artifact:// @0",
        "artifact://user:",
        "artifact://user:@1",
        "artifact://a\nb",
        "artifact://a\0@1",
        "artifact://\ud800",
        "artifact://" + "a" * (MAX_NAME_BYTES + 1),
        "artifact://a@" + "9" * 5000,
        "artifact://a@" + "9" * 20,
    ],
)
def test_anything_else_is_an_error(text: str) -> None:
    """Case 76: `artifact://@0` names nothing."""
    with pytest.raises(ArtifactError) as refused:
        parse_reference(text)
    assert len(str(refused.value)) < 1000


@given(ANY, st.integers(0, 2**63 - 1))
def test_a_reference_is_read_as_it_was_written(name: str, version: int) -> None:
    try:
        check_name(name)
    except ArtifactError:
        with pytest.raises(ArtifactError):
            parse_reference(reference(name, version))
    else:
        assert parse_reference(reference(name, version)) == (name, version)


@given(ANY)
def test_any_text_is_a_reference_or_refused(text: str) -> None:
    for asked in (text, f"artifact://{text}"):
        try:
            name, version = parse_reference(asked)
        except ArtifactError as error:
            assert str(error)
        else:
            assert asked.startswith(f"artifact://{name}")
            assert version is None or version >= 0


@given(ANY)
def test_a_name_is_taken_as_it_is_or_refused(name: str) -> None:
    try:
        taken = check_name(name)
    except ArtifactError:
        return
    assert taken == name
    assert name.strip()
    assert len(name.encode()) <= MAX_NAME_BYTES
    assert not set(name) & {"\0", "\n", "\r", "\x1b", "\x85", "\u2028"}


@given(st.lists(ANY, max_size=4), st.lists(ANY, max_size=4))
def test_different_texts_have_different_digests(one: list[str], other: list[str]) -> None:
    assert (digest(*one) == digest(*other)) == (one == other)
    assert digest(*one).isalnum()


def test_only_the_prefix_makes_a_name_the_users() -> None:
    key = SessionKey("app", "ada", "chat")
    assert owner(key, "user:a") == ("app", "ada")
    for name in ("user", "User:a", " user:a", "a/user:b"):
        assert owner(key, name) == key


@given(st.text(), st.text())
def test_a_record_comes_back_as_it_was(name: str, mime: str) -> None:
    artifact = Artifact(name=name, version=3, size=5, sha256="0" * 64, mime=mime, time=1.5)
    assert decoded(encoded(artifact)) == artifact


@given(st.binary(max_size=30))
def test_a_damaged_record_is_an_error(data: bytes) -> None:
    with pytest.raises(ArtifactError, match="damaged"):
        decoded(data)


@pytest.mark.parametrize("sha256", ["", "../../etc/passwd", "/" * 64, 1, None, ["0"] * 64])
def test_a_record_without_a_hash_is_an_error(sha256: object) -> None:
    artifact = Artifact(name="a", version=0, size=0, sha256=sha256, mime="", time=0.0)  # type: ignore[arg-type]
    with pytest.raises(ArtifactError, match="damaged"):
        decoded(encoded(artifact))
