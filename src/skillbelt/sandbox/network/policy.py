"""Who may be reached: the rules for names, and the check of every address behind one."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from skillbelt.errors import ConfigError
from skillbelt.hosts import Address, Private, Resolver, Rule, address_of, parse_rule
from skillbelt.sandbox.network.request import Refused
from skillbelt.text import shorten


class Unreachable(Refused):
    """It may be reached, but does not answer."""


class Gate:
    """The rules of one proxy. `allow_private` names what inside may be reached all the same."""

    def __init__(
        self, hosts: Iterable[str], allow_private: Iterable[str], resolver: Resolver
    ) -> None:
        self._rules = tuple(_rule(host) for host in hosts)
        self._resolve = resolver
        try:
            self._private = Private(tuple(allow_private))
        except ValueError as error:
            raise ConfigError(f"allow_private: {error}; write an address or a network") from error

    def check(self, host: str, port: int) -> None:
        """Raise Refused unless a rule names the host at that port."""
        if any(rule.covers(host, port) for rule in self._rules):
            return
        if any(rule.covers(host, one) for rule in self._rules for one in rule.ports):
            raise Refused(f"port {port} of {host} is not among those this run may reach")
        known = ", ".join(map(str, self._rules)) or "none"
        raise Refused(f"{host} is not among the hosts this run may reach ({shorten(known, 200)})")

    def addresses(self, host: str, port: int) -> list[Address]:
        """Every address of the host, all of them safe to connect to; else Refused."""
        literal = address_of(host)
        found = [literal] if literal else self._resolved(host, port)
        for address in found:
            fault = self._private.fault(address, named=bool(literal))
            if fault:
                raise Refused(f"{host} has the address {address}, which {fault}")
        return found

    def _resolved(self, host: str, port: int) -> list[Address]:
        try:
            found = [ip_address(text) for text in self._resolve(host, port)]
        except (OSError, ValueError) as error:
            raise Unreachable(f"{host} has no address: {error}") from error
        if not found:
            raise Unreachable(f"{host} has no address")
        return found


def _rule(text: str) -> Rule:
    try:
        return parse_rule(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is not a host: {error}") from error
