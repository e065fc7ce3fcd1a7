from __future__ import annotations

from pathlib import Path

import pytest

from skillbelt.console.people import (
    AccessRules,
    Person,
    TrustedProxy,
    admit_holder,
    read_access,
)
from skillbelt.errors import ConfigError
from skillbelt.serving.tokens import Holder


def read(folder: Path, text: str) -> AccessRules:
    path = folder / "access.toml"
    path.write_text(text, "utf-8")
    return read_access(str(path))


def test_roles_include_those_before_them() -> None:
    assert Person("ada", "admin").may("approver")
    assert Person("ada", "approver").may("approver")
    assert not Person("ada", "viewer").may("approver")


def test_a_file_names_a_proxy_and_roles(tmp_path: Path) -> None:
    rules = read(
        tmp_path,
        'default_role = "viewer"\n[roles]\n"ada@x.example" = "admin"\n'
        '[proxy]\nheader = "X-User"\nfrom = ["10.0.0.0/8"]\n',
    )
    assert rules.proxy == TrustedProxy("x-user", ("10.0.0.0/8",))
    assert rules.admit("ada@x.example") == Person("ada@x.example", "admin")
    assert rules.admit("bob") == Person("bob", "viewer")


def test_a_stranger_has_no_role_by_default() -> None:
    assert AccessRules(roles={"ada": "viewer"}).admit("bob") is None


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 201, "a\u202eb"])
def test_a_name_that_cannot_be_shown_is_refused(name: str) -> None:
    assert AccessRules(default_role="viewer").admit(name) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "names no way to sign in"),
        ("x = 1", "'x' is unknown"),
        ("[proxy]\n", "proxy.header"),
        ('[proxy]\nheader = "x"', "proxy.from lists the addresses"),
        ('[proxy]\nheader = "x"\nfrom = ["nowhere"]', "proxy.from takes addresses"),
        ("[proxy]\nheader = 1", "proxy.header is unknown or of a wrong type"),
        ('default_role = "boss"\n[proxy]\nheader = "x"', "default_role: takes one of viewer"),
        ('[roles]\nada = "boss"\n[proxy]\nheader = "x"', "roles.ada"),
        ("[", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=r"access\.toml") as caught:
        read(tmp_path, text)
    assert told in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_access(str(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    ("address", "trusted"),
    [("127.0.0.1", True), ("::1", True), ("10.0.0.1", False), ("", False), ("x", False)],
)
def test_a_proxy_calls_from_its_addresses(address: str, trusted: bool) -> None:
    assert TrustedProxy("x", ("127.0.0.0/8", "::1")).trusts(address) == trusted


def test_tokens_of_users_open_no_console() -> None:
    assert admit_holder(Holder(answers=True)) == Person("token", "admin")
    assert admit_holder(Holder()) == Person("token", "viewer")
    assert admit_holder(Holder(user="ada", answers=True)) is None
    assert admit_holder(Holder(app="other", answers=True)) is None
