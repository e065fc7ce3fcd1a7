"""The secret store: a private file, or the keyring of the system."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from types import SimpleNamespace

import pytest

from skillbelt import ConfigError
from skillbelt.running import keyrings
from skillbelt.running.keyrings import find_keyring
from skillbelt.running.secret_store import MAX_VALUE_BYTES, SecretStore, refuse_name
from tests import needs
from tests.tree import Tree

VALUE = "s3cr3t-value"


@pytest.fixture
def store(tree: Tree) -> SecretStore:
    return SecretStore(tree.settings(secrets_store="file"))


class Ring:
    """A keyring in memory."""

    name, priority = "Ring in memory", 5.0

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, key: str) -> str | None:
        return self.held.get((service, key))

    def set_password(self, service: str, key: str, value: str) -> None:
        self.held[service, key] = value

    def delete_password(self, service: str, key: str) -> None:
        del self.held[service, key]


class LockedRing(Ring):
    def get_password(self, service: str, key: str) -> str | None:
        raise RuntimeError(f"locked: {VALUE}")


class PlaintextRing(Ring):
    pass


class WaitingRing(Ring):
    def __init__(self) -> None:
        super().__init__()
        self.unlocked = threading.Event()

    def get_password(self, service: str, key: str) -> str | None:
        self.unlocked.wait()
        return None


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> Ring:
    made = Ring()
    install(monkeypatch, made)
    return made


def install(monkeypatch: pytest.MonkeyPatch, ring: object) -> None:
    monkeypatch.setitem(sys.modules, "keyring", SimpleNamespace(get_keyring=lambda: ring))


# The file


def test_a_secret_is_kept_and_found_again(store: SecretStore) -> None:
    made = store.set("A_TOKEN", VALUE)
    assert (made.name, made.skill, made.kept) == ("A_TOKEN", "", "file")
    assert store.entries() == [made]
    found = store.find("A_TOKEN", "any")
    assert found == made
    assert store.value(made) == VALUE


def test_nothing_is_kept_at_first(store: SecretStore) -> None:
    assert store.entries() == []
    assert store.find("A_TOKEN", "one") is None
    assert not os.path.exists(store.folder)


def test_what_is_for_one_skill_comes_before_what_is_for_all(store: SecretStore) -> None:
    everyones, own = store.set("A_TOKEN", VALUE), store.set("A_TOKEN", "its-own-value", "one")
    assert store.find("A_TOKEN", "one") == own
    assert store.find("A_TOKEN", "two") == everyones
    assert store.value(own) == "its-own-value"


def test_only_the_user_can_read_the_file_whatever_the_umask(store: SecretStore) -> None:
    before = os.umask(0)
    try:
        store.set("A_TOKEN", VALUE)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(os.stat(path).st_mode) for path in (store.folder, store.path)]
    assert modes == [0o700, 0o600]


def test_a_folder_that_others_can_read_is_closed(store: SecretStore) -> None:
    os.makedirs(store.folder)
    os.chmod(store.folder, 0o755)
    store.set("A_TOKEN", VALUE)
    assert stat.S_IMODE(os.stat(store.folder).st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_file_that_others_can_reach_is_not_used(store: SecretStore, mode: int) -> None:
    made = store.set("A_TOKEN", VALUE)
    os.chmod(store.path, mode)
    for use in (store.entries, lambda: store.value(made), lambda: store.set("B_TOKEN", VALUE)):
        with pytest.raises(ConfigError, match=r"by other users; .*chmod 600"):
            use()


def test_a_link_in_its_place_is_not_followed(store: SecretStore, tree: Tree) -> None:
    store.set("A_TOKEN", VALUE)
    os.rename(store.path, tree.path("elsewhere"))
    os.symlink(tree.path("elsewhere"), store.path)
    with pytest.raises(ConfigError, match="cannot be read"):
        store.entries()


@needs.root
def test_a_file_of_another_user_is_not_used(store: SecretStore) -> None:
    store.set("A_TOKEN", VALUE)
    os.chown(store.path, 61_999, 61_999)
    with pytest.raises(ConfigError, match="belongs to another user"):
        store.entries()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 2, "secrets": []}', '{"version": 1, "secrets": [{}]}']
)
def test_a_damaged_file_is_an_error_that_quotes_nothing_of_it(
    store: SecretStore, text: str
) -> None:
    store.set("A_TOKEN", VALUE)
    with open(store.path, "w", encoding="ascii") as file:
        file.write(text and text + f'"{VALUE}')
    with pytest.raises(ConfigError, match="is damaged") as caught:
        store.entries()
    assert VALUE not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_writer_that_was_killed_leaves_what_was_there(store: SecretStore) -> None:
    made = store.set("A_TOKEN", VALUE)
    with open(f"{store.path}.part", "w", encoding="ascii") as file:
        file.write('{"version": 1, "secr')
    assert store.entries() == [made]
    store.set("B_TOKEN", VALUE)
    assert [one.name for one in store.entries()] == ["A_TOKEN", "B_TOKEN"]
    assert sorted(os.listdir(store.folder)) == ["secrets.json", "secrets.json.lock"]


def test_secrets_that_are_set_at_once_are_all_kept(tree: Tree) -> None:
    def add(number: int) -> None:
        # The lock is one of files: each store here is as one of another process.
        SecretStore(tree.settings(secrets_store="file")).set(f"TOKEN_{number}", VALUE)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(24)))
    assert len(SecretStore(tree.settings()).entries()) == 24


def test_a_new_value_is_the_same_secret_and_a_removed_one_is_not(store: SecretStore) -> None:
    first, second = store.set("A_TOKEN", VALUE), store.set("A_TOKEN", "another-value")
    assert first.id == second.id
    assert store.value(first) == "another-value"
    assert store.remove("A_TOKEN") == second
    assert store.remove("A_TOKEN") is None
    assert store.value(second) is None
    assert store.set("A_TOKEN", VALUE).id != first.id


def test_removing_is_for_one_skill_or_for_all(store: SecretStore) -> None:
    everyones, own = store.set("A_TOKEN", VALUE), store.set("A_TOKEN", VALUE, "one")
    assert store.remove("A_TOKEN", "two") is None
    assert store.remove("A_TOKEN", "one") == own
    assert store.entries() == [everyones]


# Names and values


@pytest.mark.parametrize(
    "name",
    ["LD_PRELOAD", "PATH", "PYTHONPATH", "BASH_ENV", "NODE_OPTIONS", "HOME", "https_proxy",
     "HTTPS_PROXY", "SSL_CERT_FILE", "SKILL_NAME", "SKILLBELT_SANDBOX", "GIT_SSH_COMMAND", "IFS",
     "LC_ALL"],
)  # fmt: skip
def test_a_variable_that_steers_programs_is_no_secret(store: SecretStore, name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} is a variable that decides"):
        store.set(name, VALUE)
    assert store.entries() == []


@pytest.mark.parametrize("name", ["", "A-B", "1A", "A B", "A=s3cr3t-value", "Ä_KEY", "A" * 129])
def test_what_is_no_name_is_refused_and_not_repeated(store: SecretStore, name: str) -> None:
    with pytest.raises(ConfigError, match="is not the name of a variable") as caught:
        store.set(name, VALUE)
    assert VALUE not in str(caught.value)


@pytest.mark.parametrize("name", ["GITHUB_TOKEN", "openai_key", "NODE_AUTH_TOKEN", "_X", "DB_URL"])
def test_other_names_may_be_secrets(name: str) -> None:
    assert refuse_name(name) == ""


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("", "empty"),
        (" \n ", "empty"),
        ("12345", "fewer than 6 characters"),
        ("x" * (MAX_VALUE_BYTES + 1), "longer than"),
        ("abc\0defg", "control character"),
        ("\x1b[200~abcdef", "control character"),
        ("abcdef\udc80", "not valid text"),
        ("abcdef\u200b", "control character"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused(store: SecretStore, value: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as caught:
        store.set("A_TOKEN", value)
    assert "nothing was kept" in str(caught.value)
    assert store.entries() == []


def test_a_key_of_several_lines_is_kept_as_it_is(store: SecretStore) -> None:
    key = "-----BEGIN KEY-----\nabcdef\tghi\r\n-----END KEY-----\n"
    assert store.value(store.set("A_KEY", key)) == key


# The keyring


def test_where_there_is_a_keyring_the_file_holds_no_value(tree: Tree, ring: Ring) -> None:
    store = SecretStore(tree.settings())
    made = store.set("A_TOKEN", VALUE, "one")
    assert made.kept == "keyring"
    assert (list(ring.held.values()), store.value(made)) == ([VALUE], VALUE)
    with open(store.path, encoding="ascii") as file:
        text = file.read()
    assert VALUE not in text
    assert json.loads(text)["secrets"][0]["name"] == "A_TOKEN"
    assert store.place("keyring") == "Ring in memory"
    store.remove("A_TOKEN", "one")
    assert ring.held == {}


def test_two_state_folders_do_not_share_a_secret(tree: Tree, ring: Ring) -> None:
    one = SecretStore(tree.settings(state_dir=str(tree.path("one"))))
    two = SecretStore(tree.settings(state_dir=str(tree.path("two"))))
    first, second = one.set("A_TOKEN", "first-value"), two.set("A_TOKEN", "second-value")
    assert (one.value(first), two.value(second)) == ("first-value", "second-value")


def test_a_keyring_that_is_locked_is_an_error_without_the_value(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, ring: Ring
) -> None:
    store = SecretStore(tree.settings())
    made = store.set("A_TOKEN", VALUE)
    install(monkeypatch, LockedRing())
    with pytest.raises(ConfigError, match="unlock it") as caught:
        store.value(made)
    assert VALUE not in f"{caught.value}{caught.value.__cause__}"


def test_a_keyring_that_waits_for_a_password_is_not_waited_for_in_vain(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, ring: Ring
) -> None:
    store = SecretStore(tree.settings())
    made = store.set("A_TOKEN", VALUE)
    install(monkeypatch, waiting := WaitingRing())
    monkeypatch.setattr(keyrings, "WAIT_SECONDS", 0.01)
    with pytest.raises(ConfigError, match="it did not answer"):
        store.value(made)
    waiting.unlocked.set()


def test_a_keyring_that_is_gone_does_not_keep_a_secret_listed(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, ring: Ring
) -> None:
    store = SecretStore(tree.settings())
    made = store.set("A_TOKEN", VALUE)
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(ConfigError, match='secrets_store = "file"'):
        store.value(made)
    assert "not there" in store.place("keyring")
    again = SecretStore(tree.settings()).set("A_TOKEN", VALUE)
    assert (again.kept, store.value(again)) == ("file", VALUE)


def test_a_file_may_be_chosen_where_there_is_a_keyring(tree: Tree, ring: Ring) -> None:
    made = SecretStore(tree.settings(secrets_store="file")).set("A_TOKEN", VALUE)
    assert (made.kept, ring.held) == ("file", {})


def test_a_keyring_that_is_chosen_and_missing_is_an_error(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    store = SecretStore(tree.settings(secrets_store="keyring"))
    with pytest.raises(ConfigError, match="there is no keyring"):
        store.set("A_TOKEN", VALUE)
    assert store.entries() == []


def test_a_keyring_that_keeps_plain_text_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, PlaintextRing())
    assert find_keyring() is None


def test_a_keyring_that_is_not_recommended_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    weak = Ring()
    weak.priority = 0.5
    install(monkeypatch, weak)
    assert find_keyring() is None


@needs.keyring
@pytest.mark.parametrize("backend", ["null", "fail"])
def test_the_package_without_a_keyring_is_none(
    monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", f"keyring.backends.{backend}.Keyring")
    monkeypatch.setattr(import_module("keyring.core"), "_keyring_backend", None)
    assert find_keyring() is None


@needs.keyring
def test_the_package_with_a_keyring_is_used(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    base = import_module("keyring.backend").KeyringBackend
    real = type("Real", (Ring, base), {"__init__": Ring.__init__})()
    chainer = import_module("keyring.backends.chainer").ChainerBackend
    monkeypatch.setattr(chainer, "backends", [PlaintextRing(), real])
    monkeypatch.setattr(import_module("keyring.core"), "_keyring_backend", chainer())
    store = SecretStore(tree.settings())
    made = store.set("A_TOKEN", VALUE)
    assert (made.kept, store.value(made), len(real.held)) == ("keyring", VALUE, 1)
