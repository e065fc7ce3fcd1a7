"""The hosts that a source may be fetched from: public ones, and private ones that the user named.

Each request and each redirect is checked separately. The host name is resolved here, every address
is checked by the rules of the sandbox proxy, and the connection goes to a checked address, so that
a second answer of the resolver (DNS rebinding) has no effect. An HTTP proxy of the user
resolves names itself; then only what can be resolved here is checked before the request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from ipaddress import ip_address
from typing import NoReturn
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2

from skillbelt.discovery.sources.failure import SourceFailure
from skillbelt.hosts import (
    PORTS,
    Address,
    HostRule,
    Private,
    Resolver,
    address_of,
    parse_rule,
    resolve,
)

# Names that no public resolver answers for, so that no outsider can point them at this machine.
_LOCAL_SUFFIXES = (".localhost", ".local", ".lan", ".internal", ".home.arpa")


class SourceHosts:
    """The hosts that one source may be fetched from.

    `private` names private hosts, addresses and networks that may be reached; `named` says that the
    user named the source, and not a project: then the source's own host may be private. A public
    name with a private address is refused even so: its owner could point it at any machine here.
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
        self._own_host = _normalize(_host_of(source))
        networks, self._rules = _split_private(source, private)
        self._private = Private(networks)

    async def addresses(self, host: str, port: int) -> list[Address]:
        """Resolve the host; raises SourceFailure unless every address may be connected to."""
        literal = address_of(host.strip("[]"))
        found = [literal] if literal else await self._lookup(host, port)
        self._check(host, port, found)
        return found

    async def check_proxied(self, host: str, port: int) -> None:
        """Raise SourceFailure for a host known to be private; the proxy may know more names."""
        try:
            await self.addresses(host, port)
        except httpx2.ConnectError:
            return  # only the proxy can resolve it

    def _check(self, host: str, port: int, found: Iterable[Address]) -> None:
        named = self._may_be_private(_normalize(host), port)
        for address in found:
            fault = self._private.fault(address, named=named)
            if fault:
                self._refuse(host, address, fault)

    def _may_be_private(self, host: str, port: int) -> bool:
        if any(_covers(rule, host, port) for rule in self._rules):
            return True
        own = self._named and host == self._own_host
        return own and bool(address_of(host) or "." not in host or host.endswith(_LOCAL_SUFFIXES))

    def _refuse(self, host: str, address: Address, fault: str) -> NoReturn:
        where = host if str(address) == host else f"{host} has the address {address}, which"
        raise SourceFailure(
            self.source,
            f"leads to this machine or network: {where} {fault}",
            code="remote-private",
            remedy=f"if that is intended, add {host!r} to private_sources in your own config file",
        )

    async def _lookup(self, host: str, port: int) -> list[Address]:
        try:
            texts = await asyncio.to_thread(self._resolve, host, port)
            found = [ip_address(text) for text in texts]
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", "") or error
            raise httpx2.ConnectError(f"{host} has no address: {why}") from error
        if not found:
            raise httpx2.ConnectError(f"{host} has no address")
        return found


def _host_of(source: str) -> str:
    try:
        return urlsplit(source.strip().removeprefix("mcp+")).hostname or ""
    except ValueError:
        return ""


def _normalize(host: str) -> str:
    """Return the canonical spelling of a host."""
    host = host.strip("[]").removesuffix(".").lower()
    return str(address_of(host) or host)


def _split_private(
    source: str, private: Iterable[str]
) -> tuple[tuple[str, ...], tuple[HostRule, ...]]:
    """Split the entries into addresses and networks, and rules for names."""
    networks: list[str] = []
    rules: list[HostRule] = []
    for entry in private:
        try:
            Private((entry,))
            networks.append(entry)
        except ValueError:
            rules.append(_parse_name(source, entry))
    return tuple(networks), tuple(rules)


def _parse_name(source: str, entry: str) -> HostRule:
    try:
        return parse_rule(entry)
    except ValueError as error:
        raise SourceFailure(
            source,
            f"private_sources has {entry!r}: {error}",
            code="remote-private",
            remedy="write a host, *.domain, an address or a network",
        ) from error


def _covers(rule: HostRule, host: str, port: int) -> bool:
    return rule.covers(host, min(rule.ports)) and (rule.ports == PORTS or port in rule.ports)


def uses_proxy(url: str) -> bool:
    """Whether the environment's HTTP proxy is used for that address."""
    parts, proxies = urlsplit(url), getproxies()
    if not (proxies.get(parts.scheme) or proxies.get("all")):
        return False
    return not proxy_bypass(parts.hostname or "")


class PinnedTransport(httpx2.AsyncHTTPTransport):
    """Connections to allowed hosts only, to exactly the address that was checked."""

    def __init__(self, allowed: SourceHosts, trusted: ssl.SSLContext) -> None:
        super().__init__(verify=trusted)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=trusted,
            max_connections=100,
            max_keepalive_connections=20,
            keepalive_expiry=5.0,
            network_backend=_PinnedBackend(allowed),
        )


class _PinnedBackend(httpcore2.AsyncNetworkBackend):
    def __init__(self, allowed: SourceHosts) -> None:
        self._allowed, self._inner = allowed, httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        *others, last = await self._allowed.addresses(host, port)
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
