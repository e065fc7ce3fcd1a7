from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.cli import console_server
from skillbelt.console import serve, sign_in
from skillbelt.console.people import Person
from skillbelt.console.sign_in import SESSION_SECONDS, Signer, SignIns
from skillbelt.store.memory import MemoryStore

ADA = Person("ada", "admin")


def test_a_link_signs_in_once() -> None:
    signs = SignIns()
    token = signs.make_link_token(ADA)
    assert signs.use_link_token(token) == ADA
    assert signs.use_link_token(token) is None


def test_a_cookie_says_who_it_is() -> None:
    signs = SignIns(b"secret")
    session = signs.find(signs.begin(ADA))
    assert session is not None
    assert session.person == ADA


def test_servers_with_one_secret_share_cookies() -> None:
    assert SignIns(b"secret").find(SignIns(b"secret").begin(ADA)) is not None
    assert SignIns(b"other").find(SignIns(b"secret").begin(ADA)) is None


@given(st.text())
def test_no_other_text_is_a_cookie(text: str) -> None:
    assert SignIns(b"secret").find(text) is None


def test_a_changed_cookie_is_none() -> None:
    signs = SignIns(b"secret")
    body, _, mark = signs.begin(Person("bob", "viewer")).partition(".")
    other = signs.begin(ADA).partition(".")[0]
    assert signs.find(f"{other}.{mark}") is None
    assert signs.find(f"{body}.{mark[:-1]}x") is None


def test_what_was_signed_for_another_purpose_is_no_cookie() -> None:
    signs = SignIns(b"secret")
    assert signs.find(Signer(b"secret").sign("form", ["id", "ada", "admin", 9e9])) is None


def test_a_session_ends_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    signs = SignIns()
    cookie, began = signs.begin(ADA), sign_in.now()
    monkeypatch.setattr(sign_in, "now", lambda: began + SESSION_SECONDS + 1)
    assert signs.find(cookie) is None


def test_a_session_ends_when_its_person_signs_out() -> None:
    signs = SignIns()
    cookie, other = signs.begin(ADA), signs.begin(ADA)
    session = signs.find(cookie)
    assert session is not None
    signs.end(session)
    assert signs.find(cookie) is None
    assert signs.find(other) is not None


def test_a_form_belongs_to_one_session() -> None:
    signs = SignIns()
    one, two = (signs.find(signs.begin(ADA)) for _ in range(2))
    assert one is not None
    assert two is not None
    assert signs.accepts_form(one, signs.form_token(one))
    assert not signs.accepts_form(two, signs.form_token(one))
    assert not signs.accepts_form(one, "")
    assert not signs.accepts_form(one, "\udcff")


def test_a_link_ends_after_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    signs = SignIns()
    token, made = signs.make_link_token(ADA), sign_in.now()
    monkeypatch.setattr(sign_in, "now", lambda: made + 601)
    assert signs.use_link_token(token) is None


def test_a_sign_out_lasts_however_many_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "_MAX_ENDED", 2)
    signs = SignIns()
    cookies = [signs.begin(ADA) for _ in range(5)]
    for cookie in cookies:
        session = signs.find(cookie)
        assert session is not None
        signs.end(session)
    assert [signs.find(cookie) for cookie in cookies] == [None] * 5


def test_servers_that_share_a_store_share_a_key_that_no_token_tells() -> None:
    ours, theirs = MemoryStore(), MemoryStore()
    key = serve._shared_key(ours)
    assert serve._shared_key(ours) == key
    assert serve._shared_key(theirs) != key


def test_a_browser_is_started_without_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr("webbrowser.open", started.append)
    console_server._open("http://127.0.0.1:1/sign-in?token=secret", str(tmp_path / "state"))
    page = tmp_path / "state/console.html"
    assert started == [f"file://{page}"]
    assert page.stat().st_mode & 0o777 == 0o600
    assert "sign-in?token=secret" in page.read_text("utf-8")
