"""Who uses the console: a name, a role, and the file that says who has which."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

from skillbelt.errors import ConfigError
from skillbelt.serving.tokens import Holder
from skillbelt.settings import read_toml_file

# From the least to the most: each role may do what those before it may.
Role = Literal["viewer", "approver", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
MAX_NAME_CHARS = 200
_TABLES: Mapping[str, Mapping[str, type]] = {
    "proxy": {"header": str, "from": list},
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
_SCOPES = ("email", "profile")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_NO_ROLES: Mapping[str, Role] = MappingProxyType({})


class Person(NamedTuple):
    """Someone who is signed in."""

    name: str
    role: Role

    def may(self, role: Role) -> bool:
        """Whether the person has this role or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)


class TrustedProxy(NamedTuple):
    """A proxy that signs people in: the header with their name, and the addresses it calls from."""

    header: str
    addresses: tuple[str, ...]

    def trusts(self, address: str) -> bool:
        """Whether a request from this address may name a person."""
        try:
            found = ipaddress.ip_address(address)
            return any(found in ipaddress.ip_network(one, strict=False) for one in self.addresses)
        except ValueError:
            return False


class OidcProvider(NamedTuple):
    """An OpenID provider, and what of its words says who a person is."""

    issuer: str
    client_id: str
    client_secret: str = ""
    name_claim: str = "email"
    groups_claim: str = "groups"
    scopes: tuple[str, ...] = _SCOPES


class AccessRules(NamedTuple):
    """How people sign in besides tokens, and the role of each; "" for a stranger is no access.

    `groups` are roles by the groups that an OpenID provider names.
    """

    roles: Mapping[str, Role] = _NO_ROLES
    default_role: Role | Literal[""] = ""
    proxy: TrustedProxy | None = None
    oidc: OidcProvider | None = None
    groups: Mapping[str, Role] = _NO_ROLES

    def admit(self, name: str, groups: Iterable[str] = ()) -> Person | None:
        """Return the person of that name; None if it has no role here.

        A role by name counts alone; else it is the highest of those of the groups, and of all.
        """
        fits = 0 < len(name) <= MAX_NAME_CHARS and name.isprintable()
        given = [*map(self.groups.get, groups), self.default_role]
        roles = [role for role in ROLES if role in given]
        role = self.roles.get(name) or (roles[-1] if roles else None)
        return Person(name, role) if role and fits else None


def admit_holder(holder: Holder) -> Person | None:
    """Return the person who holds a token; None for one that is bound to a user or an app.

    The console shows what belongs to all of them.
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
    if rules.proxy is None and rules.oidc is None:
        raise ConfigError(f"{path}: says how no one signs in; add [proxy] or [oidc]")
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
    if not table.get("header"):
        raise ConfigError(f"{path}: proxy.header names the header with the user's name")
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
    return TrustedProxy(table["header"].lower(), tuple(map(str, addresses)))


def _read_oidc(table: Mapping[str, Any] | None, path: str) -> OidcProvider | None:
    if table is None:
        return None
    for key in ("issuer", "client_id"):
        if not table.get(key):
            raise ConfigError(f"{path}: oidc.{key} is missing; the provider tells it")
    issuer, scopes = table["issuer"], table.get("scopes", list(_SCOPES))
    if not is_safe_address(issuer):
        raise ConfigError(f"{path}: oidc.issuer takes an https address, not {issuer!r}")
    if not all(isinstance(one, str) and one.isprintable() and " " not in one for one in scopes):
        raise ConfigError(f"{path}: oidc.scopes takes words")
    return OidcProvider(
        issuer=issuer,
        client_id=table["client_id"],
        client_secret=_read_secret(table.get("client_secret_file", ""), path),
        name_claim=table.get("name_claim") or "email",
        groups_claim=table.get("groups_claim") or "groups",
        scopes=tuple(scopes),
    )


def _read_secret(file: str, path: str) -> str:
    """Return the secret of the client; "" where no file is named."""
    if not file:
        return ""
    try:
        with open(os.path.join(os.path.dirname(path), file), encoding="utf-8") as opened:
            secret = opened.read(_MAX_SECRET_CHARS).strip()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: oidc.client_secret_file: {error}") from error
    if not secret:
        raise ConfigError(f"{path}: oidc.client_secret_file is empty")
    return secret


def is_safe_address(address: object) -> bool:
    """Whether no one between can read what is sent there: https, or this machine."""
    if not isinstance(address, str):
        return False
    try:
        found = urlsplit(address)
    except ValueError:
        return False
    return bool(found.hostname) and (
        found.scheme == "https" or (found.scheme == "http" and found.hostname in _LOOPBACK)
    )
