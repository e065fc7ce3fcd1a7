"""Who uses the console: a name, a role, and the file that says who has which."""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

from skillbelt.errors import ConfigError
from skillbelt.serving.tokens import Holder

# From the least to the most: each role may do what those before it may.
Role = Literal["viewer", "approver", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
MAX_NAME_CHARS = 200
_MAX_FILE_BYTES = 2**20
_TABLES: Mapping[str, Mapping[str, type]] = {
    "proxy": {"header": str, "from": list},
}
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


class AccessRules(NamedTuple):
    """How people sign in besides tokens, and the role of each; "" for a stranger is no access."""

    roles: Mapping[str, Role] = _NO_ROLES
    default_role: Role | Literal[""] = ""
    proxy: TrustedProxy | None = None

    def admit(self, name: str) -> Person | None:
        """Return the person of that name; None if it has no role here."""
        role = self.roles.get(name) or self.default_role
        fits = 0 < len(name) <= MAX_NAME_CHARS and name.isprintable()
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
    try:
        with open(path, "rb") as file:
            found = tomllib.loads(file.read(_MAX_FILE_BYTES).decode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from error
    known = ("default_role", "roles", *_TABLES)
    for key in found:
        if key not in known:
            raise ConfigError(f"{path}: {key!r} is unknown; there are: {', '.join(known)}")
    said = found.get("default_role", "")
    rules = AccessRules(
        roles=_read_roles(found.get("roles", {}), path),
        default_role=_read_role(said, f"{path}: default_role") if said else "",
        proxy=_read_proxy(_table(found, "proxy", path), path),
    )
    if rules.proxy is None:
        raise ConfigError(f"{path}: says how no one signs in; add [proxy]")
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


def _read_roles(table: object, path: str) -> Mapping[str, Role]:
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: write roles as a table: [roles], then NAME = ROLE")
    return {name: _read_role(role, f"{path}: roles.{name}") for name, role in
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
