"""The hosts that a run may reach: rules for names, and a check of every address of a name."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address

from skillbelt.errors import ConfigError
from skillbelt.hosts import Address, HostRule, Private, Resolver, address_of, parse_rule
from skillbelt.sandbox.network.request import ProxyRefused
from skillbelt.text import shorten


class Unreachable(ProxyRefused):
    """The host is allowed, but does not respond."""


class HostPolicy:
    """The rules of one proxy. `allow_private` names private addresses that may be reached too."""

    def __init__(
        self, hosts: Iterable[str], allow_private: Iterable[str], resolver: Resolver
    ) -> None:
        self._rules = tuple(_parse(host) for host in hosts)
        self._resolve = resolver
        try:
            self._private = Private(tuple(allow_private))
        except ValueError as error:
            raise ConfigError(f"allow_private: {error}; write an address or a network") from error

    def check(self, host: str, port: int) -> None:
        """Raise ProxyRefused unless a rule allows the host at that port."""
        if any(rule.covers(host, port) for rule in self._rules):
            return
        if any(rule.covers(host, one) for rule in self._rules for one in rule.ports):
            raise ProxyRefused(f"port {port} of {host} is not among those this run may reach")
        known = ", ".join(map(str, self._rules)) or "none"
        raise ProxyRefused(
            f"{host} is not among the hosts this run may reach ({shorten(known, 200)})"
        )

    def addresses(self, host: str, port: int) -> list[Address]:
        """Resolve the host; raises ProxyRefused unless every address may be connected to."""
        literal = address_of(host)
        found = [literal] if literal else self._lookup(host, port)
        for address in found:
            fault = self._private.fault(address, named=bool(literal))
            if fault:
                raise ProxyRefused(f"{host} has the address {address}, which {fault}")
        return found

    def _lookup(self, host: str, port: int) -> list[Address]:
        try:
            found = [ip_address(text) for text in self._resolve(host, port)]
        except (OSError, ValueError) as error:
            raise Unreachable(f"{host} has no address: {error}") from error
        if not found:
            raise Unreachable(f"{host} has no address")
        return found


def _parse(text: str) -> HostRule:
    try:
        return parse_rule(text)
    except ValueError as error:
        raise ConfigError(f"{text!r} is not a host: {error}") from error
