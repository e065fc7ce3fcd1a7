"""Where a source may lead: to public addresses, and inside only to what the user named.

Each request and each redirect is looked at by itself. The name is resolved here, every address it
has is checked as the proxy of a sandbox checks it, and the connection goes to one that was checked,
so that a second answer of the resolver has no effect. Behind a proxy of the user's, which resolves
names itself, what can be told here is told before it is asked.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from ipaddress import ip_address
from typing import NoReturn
from urllib.parse import urlsplit

import httpcore2
import httpx2

from skillbelt.discovery.sources.failure import SourceFailure
from skillbelt.hosts import PORTS, Address, Private, Resolver, Rule, address_of, parse_rule, resolve

# Names that no resolver outside answers for, so that nobody there can turn them to this machine.
_LOCAL = (".localhost", ".local", ".lan", ".internal", ".home.arpa")


class Door:
    """Which hosts one source may be brought from.

    `private` names hosts, addresses and networks inside that may be reached; `named` says that the
    user named the source, and not a project: then it may lie inside itself. A public name that has
    an address inside is refused all the same, as its owner could turn it to any machine here.
    """

    def __init__(
        self,
        source: str,
        private: Iterable[str] = (),
        *,
        named: bool = True,
        resolver: Resolver = resolve,
    ) -> None:
        self.source, self._named, self._resolve = source, named, resolver
        self._home = _plain(_host_of(source))
        networks, self._rules = _parted(source, private)
        self._private = Private(networks)

    async def addresses(self, host: str, port: int) -> list[Address]:
        """Every address of the host, all of which may be connected to; else SourceFailure."""
        literal = address_of(host.strip("[]"))
        found = [literal] if literal else await self._resolved(host, port)
        self._check(host, port, found)
        return found

    async def check_proxied(self, host: str, port: int) -> None:
        """SourceFailure for a host that is known to lie inside; a proxy may know more names."""
        try:
            await self.addresses(host, port)
        except httpx2.ConnectError:
            return

    def _check(self, host: str, port: int, found: Iterable[Address]) -> None:
        expected = self._expected(_plain(host), port)
        for address in found:
            fault = self._private.fault(address, named=expected)
            if fault:
                self._refuse(host, address, fault)

    def _expected(self, host: str, port: int) -> bool:
        if any(_covers(rule, host, port) for rule in self._rules):
            return True
        own = self._named and host == self._home
        return own and bool(address_of(host) or "." not in host or host.endswith(_LOCAL))

    def _refuse(self, host: str, address: Address, fault: str) -> NoReturn:
        where = host if str(address) == host else f"{host} has the address {address}, which"
        raise SourceFailure(
            self.source,
            f"leads to this machine or network: {where} {fault}",
            code="remote-private",
            remedy=f"if you mean it, add {host!r} to private_sources in your own config file",
        )

    async def _resolved(self, host: str, port: int) -> list[Address]:
        try:
            texts = await asyncio.to_thread(self._resolve, host, port)
            found = [ip_address(text) for text in texts]
        except (OSError, ValueError) as error:
            raise httpx2.ConnectError(f"{host} has no address: {error}") from error
        if not found:
            raise httpx2.ConnectError(f"{host} has no address")
        return found


def _host_of(source: str) -> str:
    try:
        return urlsplit(source.strip().removeprefix("mcp+")).hostname or ""
    except ValueError:
        return ""


def _plain(host: str) -> str:
    """The one spelling of a host; what is no name is compared as it stands."""
    host = host.strip("[]").removesuffix(".").lower()
    return str(address_of(host) or host)


def _parted(source: str, private: Iterable[str]) -> tuple[tuple[str, ...], tuple[Rule, ...]]:
    """The addresses and networks among the entries, and the names."""
    networks: list[str] = []
    rules: list[Rule] = []
    for entry in private:
        try:
            Private((entry,))
            networks.append(entry)
        except ValueError:
            rules.append(_rule(source, entry))
    return tuple(networks), tuple(rules)


def _rule(source: str, entry: str) -> Rule:
    try:
        return parse_rule(entry)
    except ValueError as error:
        raise SourceFailure(
            source,
            f"private_sources has {entry!r}: {error}",
            code="remote-private",
            remedy="write a host, *.domain, an address or a network",
        ) from error


def _covers(rule: Rule, host: str, port: int) -> bool:
    return rule.covers(host, min(rule.ports)) and (rule.ports == PORTS or port in rule.ports)


def proxied(url: str) -> bool:
    """Whether a proxy of the user's environment is asked for that address."""
    from urllib.request import getproxies, proxy_bypass

    parts, proxies = urlsplit(url), getproxies()
    if not (proxies.get(parts.scheme) or proxies.get("all")):
        return False
    return not proxy_bypass(parts.hostname or "")


class Pinned(httpx2.AsyncHTTPTransport):
    """Connections that go only where the door lets them, to the very address that was checked."""

    def __init__(self, door: Door, trusted: ssl.SSLContext) -> None:
        super().__init__(verify=trusted)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=trusted,
            max_connections=100,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=_Backend(door),
        )


class _Backend(httpcore2.AsyncNetworkBackend):
    def __init__(self, door: Door) -> None:
        self._door, self._inner = door, httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        *others, last = await self._door.addresses(host, port)
        share = timeout / (len(others) + 1) if timeout else timeout
        for address in others:
            try:
                return await self._inner.connect_tcp(
                    str(address), port, share, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                continue
        return await self._inner.connect_tcp(str(last), port, share, local_address, socket_options)

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)
