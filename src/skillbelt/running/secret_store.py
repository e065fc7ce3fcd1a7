"""The user's secrets: kept in the system's keyring, or in a private file where there is none.

The file lists them all; for those in a keyring it holds everything but the value, since a keyring
cannot list its content.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from skillbelt.errors import ConfigError
from skillbelt.files.contain import READ_FILE
from skillbelt.files.locks import locked
from skillbelt.files.private import make_folder, replace_file
from skillbelt.permission.command_policy import dropped_variables
from skillbelt.running.keyrings import SystemKeyring, find_keyring
from skillbelt.running.secrets import LEAST_CHARS
from skillbelt.settings import Settings
from skillbelt.text import one_line, shorten
from skillbelt.untrusted_json import read_json

FOLDER, FILE = "secrets", "secrets.json"
MAX_VALUE_BYTES = 16 * 2**10
_FORMAT = 1
_MAX_FILE_BYTES = 8 * 2**20
_MAX_NAME_CHARS = 128
_REMEDY = "move it away, and set your secrets again with `skillbelt secrets set`"
# Variables by which a run, a shell or a library finds programs, files and hosts.
_TAKEN = """
ALL_PROXY BROWSER CLAUDE_SKILL_DIR CURL_CA_BUNDLE EDITOR HOME HTTPS_PROXY HTTP_PROXY INPUTS_DIR LANG
LANGUAGE LOGNAME NODE_EXTRA_CA_CERTS NODE_USE_ENV_PROXY NO_PROXY OLDPWD OPENSSL_CONF OUTPUT_DIR
PAGER PATH PWD PYTHONDONTWRITEBYTECODE PYTHONNOUSERSITE REQUESTS_CA_BUNDLE RUN_DIR SHELL SHLVL
SKILLS_DIR SKILL_DIR SKILL_ID SKILL_INPUT SKILL_NAME SKILL_ROOT SKILL_WORKSPACE SSL_CERT_DIR
SSL_CERT_FILE TEMP TERM TIMEOUT_MS TMP TMPDIR TZ USER VIRTUAL_ENV VISUAL WORKSPACE_DIR WORK_DIR
"""
_TAKEN_NAMES = frozenset(_TAKEN.split())
_TAKEN_PREFIXES = ("LC_", "SKILLBELT_", "XDG_")

Place = Literal["keyring", "file"]


class StoredSecret(NamedTuple):
    """A secret without its value. `skill` is the only one it is for; "" means that any may ask.

    `id` is new when a removed secret is set again, so that no earlier answer covers it.
    """

    name: str
    skill: str
    kept: Place
    time: float
    id: str

    @property
    def key(self) -> str:
        """Return the key in the keyring; with the id, since state folders share a keyring."""
        return f"{self.skill or '*'}/{self.name}#{self.id}"


class _Kept(NamedTuple):
    secret: StoredSecret
    value: str  # "" for one in a keyring


class SecretStore:
    """The secrets of one user; each call reads the file. ConfigError when it cannot be used."""

    def __init__(self, settings: Settings) -> None:
        self._choice = settings.secrets_store
        self.folder = os.path.join(os.path.abspath(settings.state_dir), FOLDER)
        self.path = os.path.join(self.folder, FILE)

    def entries(self) -> list[StoredSecret]:
        """Return all secrets, sorted by name, without their values."""
        return [kept.secret for kept in self._read()]

    def find(self, name: str, skill: str) -> StoredSecret | None:
        """Return the secret that the skill would get by this name: its own, or that of all."""
        found = {one.skill: one for one in self.entries() if one.name == name}
        return found.get(skill) or found.get("")

    def value(self, secret: StoredSecret) -> str | None:
        """Return the value of the secret; None if it is gone."""
        if secret.kept == "keyring":
            return self._keyring().get(secret.key)
        values = (kept.value for kept in self._read() if kept.secret.id == secret.id)
        return next(values, None)

    def set(self, name: str, value: str, skill: str = "") -> StoredSecret:
        """Store a value; it replaces the one of the same name for the same skill."""
        check_name(name)
        check_value(value)
        with self._changing() as all_kept:
            old = _find(all_kept, name, skill)
            kept = self._choose()
            made = StoredSecret(
                name=name,
                skill=skill,
                kept=kept,
                time=time.time(),
                id=old.secret.id if old else os.urandom(16).hex(),
            )
            if kept == "keyring":
                self._keyring().set(made.key, value)
            elif old:
                self._forget(old.secret)
            others = [one for one in all_kept if one is not old]
            self._write([*others, _Kept(made, "" if kept == "keyring" else value)])
        return made

    def remove(self, name: str, skill: str = "") -> StoredSecret | None:
        """Remove a secret; None if there is none of that name for that skill."""
        with self._changing() as all_kept:
            old = _find(all_kept, name, skill)
            if old is None:
                return None
            self._forget(old.secret)
            self._write([one for one in all_kept if one is not old])
        return old.secret

    def place(self, kept: Place) -> str:
        """Return where secrets of that kind are, for a person."""
        if kept == "file":
            return self.path
        found = find_keyring()
        return found.name if found else "a keyring that is not there now"

    def _choose(self) -> Place:
        if self._choice == "file":
            return "file"
        if self._choice == "keyring":
            self._keyring()
            return "keyring"
        return "file" if find_keyring() is None else "keyring"

    @staticmethod
    def _keyring() -> SystemKeyring:
        found = find_keyring()
        if found is None:
            raise ConfigError(
                "there is no keyring of the system to use; install the extra `secrets` and start "
                'the keyring of your desktop, or set secrets_store = "file" and the secret again'
            )
        return found

    @staticmethod
    def _forget(secret: StoredSecret) -> None:
        """Remove the value from the keyring; a missing value must not keep the secret listed."""
        found = find_keyring() if secret.kept == "keyring" else None
        if found is not None:
            found.remove(secret.key)

    # The file

    @contextmanager
    def _changing(self) -> Iterator[list[_Kept]]:
        """Yield the stored secrets while a lock keeps other processes from changing them."""
        try:
            make_folder(self.folder)
            if stat.S_IMODE(os.stat(self.folder).st_mode) & 0o077:
                os.chmod(self.folder, 0o700)
            with locked(f"{self.path}.lock"):
                yield self._read()
        except OSError as error:
            raise ConfigError(
                f"{self.path}: cannot be written: {error.strerror or error}; "
                "make its folder writable, or set state_dir to another"
            ) from error

    def _read(self) -> list[_Kept]:
        try:
            handle = os.open(self.path, READ_FILE)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._unusable(f"cannot be read: {error.strerror}") from error
        with open(handle, "rb") as file:
            self._check(os.fstat(handle))
            data = file.read(_MAX_FILE_BYTES + 1)
        try:
            return sorted(_parse(data), key=lambda kept: (kept.secret.name, kept.secret.skill))
        except (ValueError, TypeError, KeyError, AttributeError):
            # The parser's message would quote the file.
            raise self._unusable("is damaged", _REMEDY) from None

    def _check(self, info: os.stat_result) -> None:
        if not stat.S_ISREG(info.st_mode):
            raise self._unusable("is not a file", _REMEDY)
        if info.st_uid != os.geteuid():
            raise self._unusable("belongs to another user", _REMEDY)
        if info.st_mode & 0o077:
            remedy = f"change what it holds, then `chmod 600 {self.path}`"
            raise self._unusable("can be read or written by other users", remedy)

    def _unusable(self, reason: str, remedy: str = "fix that, or set state_dir") -> ConfigError:
        return ConfigError(f"{self.path}: {reason}; {remedy}")

    def _write(self, all_kept: list[_Kept]) -> None:
        listed = [
            {**kept.secret._asdict(), **({"value": kept.value} if kept.value else {})}
            for kept in all_kept
        ]
        document = {"version": _FORMAT, "secrets": listed}
        replace_file(self.path, f"{json.dumps(document, indent=2)}\n".encode("ascii"))


def _parse(data: bytes) -> Iterator[_Kept]:
    document = read_json(data, most=_MAX_FILE_BYTES)
    if document["version"] != _FORMAT:
        raise ValueError("of another version")
    for one in document["secrets"]:
        value, kept = one.get("value", ""), one["kept"]
        texts = (one["name"], one["skill"], one["id"], value)
        if kept not in ("keyring", "file") or not all(isinstance(text, str) for text in texts):
            raise ValueError("not a secret")
        secret = StoredSecret(
            name=one["name"],
            skill=one["skill"],
            kept=kept,
            time=float(one["time"]),
            id=one["id"],
        )
        yield _Kept(secret, value)


def _find(all_kept: list[_Kept], name: str, skill: str) -> _Kept | None:
    wanted = (name, skill)
    return next((one for one in all_kept if (one.secret.name, one.secret.skill) == wanted), None)


# Names and values


def refuse_name(name: str) -> str:
    """Return why no secret can have this name; "" if one can."""
    # It may be a value, given by mistake: never repeat it.
    if not (name.isascii() and name.isidentifier() and len(name) <= _MAX_NAME_CHARS):
        return "is not the name of a variable, such as GITHUB_TOKEN"
    upper = name.upper()
    taken = upper in _TAKEN_NAMES or upper.startswith(_TAKEN_PREFIXES)
    if taken or dropped_variables({name: ""}, policy=True):
        return "is a variable that decides which programs, files or hosts are used"
    return ""


def check_name(name: str) -> None:
    """Raise ConfigError for a name that no secret can have."""
    fault = refuse_name(name)
    if fault:
        shown = one_line(shorten(name, 40)) if name.isidentifier() else "what was given"
        raise ConfigError(f"{shown} {fault}; choose another name")


def check_value(value: str) -> None:
    """Raise ConfigError for a value that cannot be given to a command, or cannot be redacted."""
    size = len(value.encode("utf-8", "surrogatepass"))
    fault = ""
    if not value.strip():
        fault = "the value is empty"
    elif len(value) < LEAST_CHARS:
        fault = (
            f"the value has fewer than {LEAST_CHARS} characters, which occur in too many texts to "
            "be redacted; give it to a run with --env, if everyone may see it"
        )
    elif size > MAX_VALUE_BYTES:
        fault = f"the value is longer than {MAX_VALUE_BYTES} bytes"
    elif any(not char.isprintable() and char not in "\t\r\n" for char in value):
        fault = "the value holds a control character, or is not valid text"
    if fault:
        raise ConfigError(f"{fault}; nothing was kept")
