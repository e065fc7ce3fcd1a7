"""People who use the console: names, roles, and the access file that grants the roles."""

from __future__ import annotations

import ipaddress
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

from skillbelt.errors import ConfigError
from skillbelt.serving.answers import HttpRefusal
from skillbelt.serving.tokens import Holder
from skillbelt.settings import read_toml_file

logger = logging.getLogger(__name__)
# In increasing order: each role includes those before it.
Role = Literal["viewer", "approver", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
MAX_NAME_CHARS = 200
_TABLES: Mapping[str, Mapping[str, type]] = {
    "proxy": {"header": str, "from": list, "client_header": str},
    "oidc": {
        "issuer": str,
        "client_id": str,
        "client_secret_file": str,
        "name_claim": str,
        "groups_claim": str,
        "scopes": list,
    },
}
_MAX_SECRET_CHARS = 4_096
_MAX_COMPARED_BYTES = 2**21  # an access file must be shorter
_SCOPES = ("email", "profile")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_NO_ROLES: Mapping[str, Role] = MappingProxyType({})


class Person(NamedTuple):
    """A person who is signed in."""

    name: str
    role: Role

    def may(self, role: Role) -> bool:
        """Whether the person has this role or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)


class TrustedProxy(NamedTuple):
    """A proxy whose headers are trusted: its addresses, and the headers it sets.

    `header` has the name of a person, if it signs people in. `client_header` has the address of
    its client, as `X-Forwarded-For` does, if it sets that itself.
    """

    header: str
    addresses: tuple[str, ...]
    client_header: str = ""

    def trusts(self, address: str) -> bool:
        """Whether headers of a request from this address are trusted."""
        try:
            found = ipaddress.ip_address(address)
            return any(found in ipaddress.ip_network(one, strict=False) for one in self.addresses)
        except ValueError:
            return False

    def find_client(self, address: str, given: Sequence[str]) -> str:
        """Return the address of the client by the header; the peer itself without one.

        This is the last address that is not a trusted proxy: the client can write anything before
        it.
        """
        if not self.client_header or not self.trusts(address):
            return address
        for one in reversed([part.strip() for value in given for part in value.split(",")]):
            if not is_address(one):
                return address
            address = one
            if not self.trusts(one):
                break
        return address


class OidcProvider(NamedTuple):
    """An OpenID provider, and the claims with the name and the groups of a person."""

    issuer: str
    client_id: str
    client_secret: str = ""
    secret_file: str = ""
    name_claim: str = "email"
    groups_claim: str = "groups"
    scopes: tuple[str, ...] = _SCOPES


class AccessRules(NamedTuple):
    """The ways to sign in besides tokens, and the roles; "" for everyone else means no access.

    `groups` are roles by the groups that an OpenID provider names.
    """

    roles: Mapping[str, Role] = _NO_ROLES
    default_role: Role | Literal[""] = ""
    proxy: TrustedProxy | None = None
    oidc: OidcProvider | None = None
    groups: Mapping[str, Role] = _NO_ROLES

    def admit(self, name: str, groups: Iterable[str] = ()) -> Person | None:
        """Return the person of that name; None if they have no role.

        A role by name wins; otherwise it is the highest role of the groups and of everyone.
        """
        fits = 0 < len(name) <= MAX_NAME_CHARS and name.isprintable()
        given = [*map(self.groups.get, groups), self.default_role]
        roles = [role for role in ROLES if role in given]
        role = self.roles.get(name) or (roles[-1] if roles else None)
        return Person(name, role) if role and fits else None


# Returns the current rules; HttpRefusal while they are not known.
ReadAccess = Callable[[], AccessRules]


def admit_tokens_only() -> AccessRules:
    """Return the rules of a console that is opened by tokens and links only."""
    return AccessRules()


class AccessFile:
    """The current rules of an access file, so that a revoked role is gone at once.

    Contents are compared, not modification times: two changes may have the same time.
    """

    def __init__(self, path: str) -> None:
        """Read the file; ConfigError if it is wrong."""
        self._path = path
        self._files: tuple[str, ...] = (path,)
        self._seen: tuple[bytes, ...] | None = None
        self._rules: AccessRules | None = self._read()

    def __call__(self) -> AccessRules:
        """Return the rules; HttpRefusal while the file is wrong, because then no one has a role."""
        found = tuple(map(_read_file, self._files))
        if found != self._seen:
            try:
                self._rules = self._read()
            except ConfigError as error:
                self._rules, self._seen = None, found
                logger.warning("no one is let in by the access file: %s", error)
        if self._rules is None:
            raise HttpRefusal("not_ready", "the access file is wrong; see the log of the server")
        return self._rules

    def _read(self) -> AccessRules:
        before = _read_file(self._path)
        rules = read_access(self._path)
        secret = rules.oidc.secret_file if rules.oidc is not None else ""
        self._files = (self._path, secret) if secret else (self._path,)
        self._seen = (before, *map(_read_file, self._files[1:]))
        return rules


def _read_file(path: str) -> bytes:
    """Return the content of a file; empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_COMPARED_BYTES)
    except OSError:
        return b""


def admit_holder(holder: Holder) -> Person | None:
    """Return the person for a token; None if it is bound to a user or an app.

    The console shows data of all users.
    """
    if holder.is_bound:
        return None
    return Person("token", "admin" if holder.answers else "viewer")


def read_access(path: str) -> AccessRules:
    """Read an access file; ConfigError names the file, the key and the remedy."""
    found = read_toml_file(path)
    known = ("default_role", "roles", "groups", *_TABLES)
    for key in found:
        if key not in known:
            raise ConfigError(f"{path}: {key!r} is unknown; there are: {', '.join(known)}")
    said = found.get("default_role", "")
    rules = AccessRules(
        roles=_read_roles(found.get("roles", {}), path, "roles"),
        groups=_read_roles(found.get("groups", {}), path, "groups"),
        default_role=_read_role(said, f"{path}: default_role") if said else "",
        proxy=_read_proxy(_table(found, "proxy", path), path),
        oidc=_read_oidc(_table(found, "oidc", path), path),
    )
    if rules.oidc is None and not (rules.proxy is not None and rules.proxy.header):
        raise ConfigError(f"{path}: names no way to sign in; add [oidc], or [proxy] with a header")
    if rules.groups and rules.oidc is None:
        raise ConfigError(f"{path}: only an OpenID provider names groups; add [oidc]")
    return rules


def _table(found: Mapping[str, Any], name: str, path: str) -> Mapping[str, Any] | None:
    if name not in found:
        return None
    table, fields = found[name], _TABLES[name]
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: write {name} as a table, [{name}]")
    for key, value in table.items():
        if key not in fields or not isinstance(value, fields[key]):
            raise ConfigError(
                f"{path}: {name}.{key} is unknown or of a wrong type; there are: "
                f"{', '.join(fields)}"
            )
    return table


def _read_roles(table: object, path: str, key: str) -> Mapping[str, Role]:
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: write {key} as a table: [{key}], then NAME = ROLE")
    return {name: _read_role(role, f"{path}: {key}.{name}") for name, role in
            table.items()}  # fmt: skip


def _read_role(given: object, place: str) -> Role:
    if given not in ROLES:
        raise ConfigError(f"{place}: takes one of {', '.join(ROLES)}, not {given!r}")
    return given


def _read_proxy(table: Mapping[str, Any] | None, path: str) -> TrustedProxy | None:
    if table is None:
        return None
    if not (table.get("header") or table.get("client_header")):
        raise ConfigError(
            f"{path}: proxy.header names the header with the user's name, proxy.client_header the "
            "one with the client's address; give one of them"
        )
    if not table.get("from"):
        raise ConfigError(
            f"{path}: proxy.from lists the addresses that the proxy calls from; every program "
            "there can name any person"
        )
    addresses: Sequence[object] = table["from"]
    for one in addresses:
        try:
            ipaddress.ip_network(one if isinstance(one, str) else "", strict=False)
        except ValueError as error:
            raise ConfigError(f"{path}: proxy.from takes addresses, not {one!r}") from error
    return TrustedProxy(
        header=table.get("header", "").lower(),
        addresses=tuple(map(str, addresses)),
        client_header=table.get("client_header", "").lower(),
    )


def _read_oidc(table: Mapping[str, Any] | None, path: str) -> OidcProvider | None:
    if table is None:
        return None
    for key in ("issuer", "client_id"):
        if not table.get(key):
            raise ConfigError(f"{path}: oidc.{key} is missing; ask the provider for it")
    issuer, scopes = table["issuer"], table.get("scopes", list(_SCOPES))
    if not is_safe_address(issuer):
        raise ConfigError(f"{path}: oidc.issuer takes an https address, not {issuer!r}")
    if not all(isinstance(one, str) and one.isprintable() and " " not in one for one in scopes):
        raise ConfigError(f"{path}: oidc.scopes takes words")
    named = table.get("client_secret_file", "")
    secret_file = os.path.join(os.path.dirname(path), named) if named else ""
    return OidcProvider(
        issuer=issuer,
        client_id=table["client_id"],
        client_secret=_read_secret(secret_file, path),
        secret_file=secret_file,
        name_claim=table.get("name_claim") or "email",
        groups_claim=table.get("groups_claim") or "groups",
        scopes=tuple(scopes),
    )


def _read_secret(file: str, path: str) -> str:
    """Return the client secret; "" if no file is named."""
    if not file:
        return ""
    try:
        with open(file, encoding="utf-8") as opened:
            secret = opened.read(_MAX_SECRET_CHARS).strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: oidc.client_secret_file: {error}") from error
    if not secret:
        raise ConfigError(f"{path}: oidc.client_secret_file is empty")
    return secret


def is_address(text: str) -> bool:
    """Whether a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_safe_address(address: object) -> bool:
    """Whether the connection is private: https, or this machine."""
    if not isinstance(address, str):
        return False
    try:
        found = urlsplit(address)
    except ValueError:
        return False
    return bool(found.hostname) and (
        found.scheme == "https" or (found.scheme == "http" and found.hostname in _LOOPBACK)
    )
