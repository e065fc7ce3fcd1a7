"""Bearer tokens: their holders, and the apps and users that each holder may act for."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from skillbelt.errors import ConfigError
from skillbelt.runtime.runtime import APP
from skillbelt.settings import read_toml_file

_MIN_TOKEN_CHARS = 16
_MAX_NAME_CHARS = 200
# Questions that no tenant decides: a file of the machine may be another tenant's, or hold tokens.
_UNBOUND = ("host_file",)
_SHA256 = re.compile("[0-9a-f]{64}")
_FIELDS = {"token": str, "sha256": str, "app": str, "user": str, "answers": bool}


class Holder(NamedTuple):
    """The rights of the holder of a token.

    An empty `user` means that a request names the user it is for. `answers` lets the holder see and
    answer permission questions: those of its user or its app, or all of them when it is bound to
    neither.
    """

    app: str = APP
    user: str = ""
    answers: bool = False

    @property
    def is_bound(self) -> bool:
        """Whether it acts for one user or one app, and not for the operator of the server."""
        return bool(self.user) or self.app != APP

    def covers(self, tenant: object) -> bool:
        """Whether it may act for a tenant, which is an app and a user."""
        if not self.is_bound:
            return True
        app, user = tenant if isinstance(tenant, list) and len(tenant) == 2 else ("", "")
        return app == self.app and self.user in ("", user)

    def may_answer(self, tenant: object, kind: str) -> bool:
        """Whether it may see and answer a permission question of this kind that a tenant has."""
        return self.answers and self.covers(tenant) and not (self.is_bound and kind in _UNBOUND)


class TokenBook:
    """The tokens that a server accepts, kept as digests."""

    def __init__(self, holders: Mapping[str, Holder]) -> None:
        """Take the holders by the SHA-256 of each token in hexadecimal digits."""
        self._holders = dict(holders)

    @classmethod
    def of(cls, token: str) -> TokenBook:
        """Return a book with one token, whose holder operates the server and may do everything."""
        return cls({hash_token(token): Holder(answers=True)})

    def find(self, token: str) -> Holder | None:
        """Return the holder of the token, in constant time.

        A token that is too short is never found: a file of hashes cannot show that it has such a
        token.
        """
        given, found = hash_token(token), None
        for digest, holder in self._holders.items():
            if hmac.compare_digest(digest, given):
                found = holder
        return found if len(token) >= _MIN_TOKEN_CHARS else None

    @property
    def answers(self) -> bool:
        """Whether anyone may answer permission questions."""
        return any(holder.answers for holder in self._holders.values())

    def may_answer(self, tenant: object, kind: str) -> bool:
        """Whether anyone may answer a permission question of this kind that a tenant has."""
        return any(holder.may_answer(tenant, kind) for holder in self._holders.values())

    @property
    def secret(self) -> bytes:
        """Return bytes that only servers with the same tokens know."""
        return hashlib.sha256("\0".join(sorted(self._holders)).encode()).digest()


def hash_token(token: str) -> str:
    """Return the SHA-256 of a token, as a tokens file may hold it."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def new_token() -> str:
    """Return a random token."""
    return secrets.token_urlsafe(32)


def check_token(token: str) -> str:
    """Return the token if it fits a header and is long enough; ConfigError if not."""
    if len(token) < _MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable():
        raise ConfigError(
            f"a token needs at least {_MIN_TOKEN_CHARS} printable ASCII characters; "
            "leave it out to get a new one"
        )
    if " " in token:
        raise ConfigError("a token must not contain spaces")
    return token


def read_tokens(path: str) -> TokenBook:
    """Read a file of tokens; ConfigError names the file, the entry and the remedy."""
    found = read_toml_file(path)
    entries = found.pop("token", None)
    if found or not isinstance(entries, list) or not entries:
        raise ConfigError(f"{path}: write one [[token]] for each token, and nothing else")
    holders: dict[str, Holder] = {}
    for number, entry in enumerate(entries, 1):
        digest, holder = _read_entry(entry, f"{path}: token {number}")
        if digest in holders:
            raise ConfigError(f"{path}: token {number}: this token is there already; remove one")
        holders[digest] = holder
    return TokenBook(holders)


def _read_entry(entry: object, place: str) -> tuple[str, Holder]:
    if not isinstance(entry, dict):
        raise ConfigError(f"{place}: write it as a table, [[token]]")
    for name, value in entry.items():
        if name not in _FIELDS or not isinstance(value, _FIELDS[name]):
            known = ", ".join(_FIELDS)
            raise ConfigError(
                f"{place}: {name!r} is unknown or of a wrong type; there are: {known}"
            )
    if ("token" in entry) == ("sha256" in entry):
        raise ConfigError(f"{place}: give either token or sha256")
    if "sha256" in entry and not _SHA256.fullmatch(entry["sha256"]):
        raise ConfigError(f"{place}: sha256 takes 64 hexadecimal digits in lower case")
    if "token" in entry:
        check_token(entry["token"])
    for name in ("app", "user"):
        if name in entry:
            check_name(entry[name], f"{place}: {name}")
    holder = Holder(
        entry.get("app", APP), entry.get("user", ""), answers=entry.get("answers", False)
    )
    return entry.get("sha256") or hash_token(entry["token"]), holder


def check_name(name: str, what: str) -> str:
    """Return the name of an app, a user or a session; ConfigError if it is not valid.

    Names with a colon are reserved for the product's own records.
    """
    if not name or len(name) > _MAX_NAME_CHARS or {*":/"} & {*name} or not name.isprintable():
        raise ConfigError(
            f"{what}: takes 1 to {_MAX_NAME_CHARS} printable characters without a colon or a slash"
        )
    return name


def choose_user(holder: Holder, named: Iterable[str], default: str = "") -> str:
    """Return the user that a request is for; ConfigError unless the token allows it.

    `named` are the values of the header that names a user.
    """
    given = list(named)
    if len(given) > 1:
        raise ConfigError("name one user")
    if holder.user:
        if given and given[0] != holder.user:
            raise ConfigError("this token is bound to another user")
        return holder.user
    return check_name(given[0] if given else default, "the user")
