"""A file of tokens: what it may say, and that anything else is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillbelt.errors import ConfigError
from skillbelt.serving.tokens import Holder, TokenBook, choose_user, hash_token, read_tokens

TOKEN = "a-token-of-the-test"


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    return str(path)


def test_tokens_are_found_by_themselves_and_by_their_hash(tmp_path: Path) -> None:
    other = hash_token("another-token-here")
    text = (
        f'[[token]]\ntoken = "{TOKEN}"\napp = "shop"\nuser = "ada"\n'
        f'[[token]]\nsha256 = "{other}"\nanswers = true\n'
    )
    book = read_tokens(write(tmp_path, text))
    assert book.find(TOKEN) == Holder("shop", "ada", answers=False)
    assert book.find("another-token-here") == Holder("skillbelt", "", answers=True)
    assert book.find(other) is None
    assert book.find("") is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "write one [[token]]"),
        ("x = 1", "write one [[token]]"),
        ('token = "x"', "write one [[token]]"),
        ("[[token]]", "token 1: give either token or sha256"),
        (f'[[token]]\ntoken = "{TOKEN}"\nsha256 = "x"', "give either token or sha256"),
        ('[[token]]\ntoken = "short"', "at least 16"),
        ('[[token]]\nsha256 = "ABC"', "64 hexadecimal digits"),
        (f'[[token]]\ntoken = "{TOKEN}"\nusers = "ada"', "'users' is unknown"),
        (f'[[token]]\ntoken = "{TOKEN}"\nuser = 1', "'user' is unknown or of a wrong type"),
        (f'[[token]]\ntoken = "{TOKEN}"\nuser = ""', "user: takes 1 to 200"),
        (f'[[token]]\ntoken = "{TOKEN}"\napp = "skillbelt:permission"', "without a colon"),
        (f'[[token]]\ntoken = "{TOKEN}"\n' * 2, "token 2: this token is there already"),
        ("[[token", "not valid TOML"),
    ],
)
def test_what_a_file_cannot_say(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=r"tokens\.toml|at least 16") as caught:
        read_tokens(write(tmp_path, text))
    assert told in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_a_file_that_is_too_large_is_refused_and_not_cut(tmp_path: Path) -> None:
    text = f'[[token]]\ntoken = "{TOKEN}"\n' + "# what follows would not count\n" * 2**16
    with pytest.raises(ConfigError, match=r"tokens\.toml: is larger than"):
        read_tokens(write(tmp_path, text))


@pytest.mark.parametrize("weak", ["", "test", "fifteen-letters"])
def test_a_hash_does_not_make_a_short_token_good(tmp_path: Path, weak: str) -> None:
    book = read_tokens(write(tmp_path, f'[[token]]\nsha256 = "{hash_token(weak)}"\n'))
    assert book.find(weak) is None


def test_a_token_covers_its_user_or_its_app_or_everyone() -> None:
    ada, bob, other = ["shop", "ada"], ["shop", "bob"], ["bank", "ada"]
    for holder, covered in (
        (Holder("shop", "ada"), [ada]),
        (Holder("shop"), [ada, bob]),
        (Holder(), [ada, bob, other, None]),
    ):
        known = [one for one in (ada, bob, other, None, ["shop"]) if holder.covers(one)]
        assert [one for one in known if one != ["shop"]] == covered


def test_a_user_is_named_where_the_token_allows_it() -> None:
    assert choose_user(Holder(user="ada"), []) == "ada"
    assert choose_user(Holder(user="ada"), ["ada"]) == "ada"
    assert choose_user(Holder(), ["bob"]) == "bob"
    for holder, named in ((Holder(user="ada"), ["bob"]), (Holder(), []), (Holder(), ["a", "a"])):
        with pytest.raises(ConfigError):
            choose_user(holder, named)


def test_servers_with_the_same_tokens_share_a_secret() -> None:
    assert TokenBook.of(TOKEN).secret == TokenBook.of(TOKEN).secret
    assert TokenBook.of(TOKEN).secret != TokenBook.of("another-token-here").secret
