"""Hosts on the network: what a rule names, what two rules have in common, which addresses are safe.

A rule is `example.com`, `*.example.com`, `example.com:8443`, `192.0.2.7` or `[2001:db8::7]:80`.
Without a port it means 443 and 80. The star stands for one or more whole labels in front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple

Address = IPv4Address | IPv6Address
Resolver = Callable[[str, int], Iterable[str]]
PORTS = frozenset((80, 443))
_MAX_NAME = 253
_MAX_LABEL = 63
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")
# Machines of the cloud give their secrets to whoever asks these; one lies in a public range.
_METADATA = frozenset(
    map(ip_address, ("169.254.169.254", "fd00:ec2::254", "168.63.129.16", "100.100.100.200"))
)
_UNICAST = IPv6Network("2000::/3")
# Tunnels nobody uses any more, and documentation; what Python says of them differs by version.
_UNUSED = (IPv6Network("2002::/16"), IPv6Network("2001::/32"), IPv6Network("3fff::/20"))
_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))


class Rule(NamedTuple):
    """Which hosts and ports one entry of a list means."""

    name: str
    below: bool = False  # `*.name`
    ports: frozenset[int] = PORTS

    def covers(self, host: str, port: int) -> bool:
        """Whether the host, in the form `host_name` gives, may be reached at that port."""
        return port in self.ports and self._covers_name(host)

    def _covers_name(self, host: str) -> bool:
        return host.endswith(f".{self.name}") if self.below else host == self.name

    def common(self, other: Rule) -> Rule | None:
        """The rule for what both mean; None when that is nothing."""
        ports = self.ports & other.ports
        narrow, wide = sorted((self, other), key=_width)
        same = narrow.name == wide.name and narrow.below == wide.below
        within = wide.below and narrow.name.endswith(f".{wide.name}")
        return Rule(narrow.name, narrow.below, ports) if ports and (same or within) else None

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        star = "*." if self.below else ""
        port = "" if self.ports == PORTS else f":{min(self.ports)}"
        return f"{star}{name}{port}"


def _width(rule: Rule) -> tuple[bool, int]:
    return rule.below, -len(rule.name)


def parse_rule(text: str) -> Rule:
    """The rule that is written there; ValueError says what is wrong with it."""
    below = text.startswith("*.")
    host, port = split_port(text[2:] if below else text)
    name = host_name(_ascii(host))
    if below and (address_of(name) or "." not in name):
        raise ValueError("a star stands before a name of two or more labels")
    return Rule(name, below, PORTS if port is None else frozenset((port,)))


def split_port(text: str) -> tuple[str, int | None]:
    """Host and port of `host[:port]`, an IPv6 address in brackets; ValueError when it is not so."""
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed or ":" not in host or (rest and not rest.startswith(":")):
            raise ValueError("an IPv6 address stands in brackets, the port behind them")
        return host, _port(rest[1:]) if rest else None
    if text.count(":") > 1:
        return text, None
    host, colon, port = text.partition(":")
    return host, _port(port) if colon else None


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 0 < int(text) < 65536):
        raise ValueError("the port is not a number from 1 to 65535")
    return int(text)


def host_name(text: str) -> str:
    """The one spelling of a host's name or address; ValueError when it is neither.

    What some resolvers take for an address without being written as one (`127.1`, `0x7f000001`) is
    no name.
    """
    name = text.lower()
    literal = address_of(name)
    if literal:
        return str(literal)
    labels = name.split(".")
    if not name or len(name) > _MAX_NAME or not all(map(_is_label, labels)):
        raise ValueError("not a host name")
    if labels[-1].isdigit() or labels[-1].startswith("0x"):
        raise ValueError("not an address in its plain form")
    return name


def _is_label(label: str) -> bool:
    edges = label[:1] + label[-1:]
    return 0 < len(label) <= _MAX_LABEL and _LETTERS.issuperset(label) and "-" not in edges


def _ascii(name: str) -> str:
    try:
        return name if name.isascii() else name.encode("idna").decode("ascii")
    except UnicodeError as error:
        raise ValueError("not a host name") from error


def address_of(text: str) -> Address | None:
    """The address that is written there; None for anything else, a zone included."""
    try:
        return None if "%" in text else ip_address(text)
    except ValueError:
        return None


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, as this machine resolves names."""
    import socket

    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Private:
    """The addresses inside that may be reached all the same; ValueError for a wrong entry.

    An entry is an address or a network. A metadata service is reached only when its very address
    is an entry.
    """

    def __init__(self, entries: tuple[str, ...] = ()) -> None:
        self._networks = [ip_network(entry) for entry in entries]

    def fault(self, address: Address, *, named: bool = False) -> str:
        """Why the address may not be connected to; empty when it may. `named`: a rule names it."""
        inner = [address, *_embedded(address)]
        if any(one in _METADATA for one in inner):
            return "" if self._is_entry(address) else "is a metadata service"
        if named or any(address in network for network in self._networks):
            return ""
        return next((fault for one in inner if (fault := _fault(one))), "")

    def _is_entry(self, address: Address) -> bool:
        return any(network.num_addresses == 1 and address in network for network in self._networks)


def _embedded(address: Address) -> list[Address]:
    """The IPv4 addresses that packets to this one may end at."""
    if isinstance(address, IPv4Address):
        return []
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _NAT64) or int(address) >> 32 == 0:
        found.append(IPv4Address(int(address) & 0xFFFF_FFFF))
    return [one for one in found if one is not None]


def _fault(address: Address) -> str:
    kinds = (
        (address.is_unspecified, "is unspecified"),
        (address.is_loopback, "is this machine"),
        (address.is_link_local, "is link-local"),
        (address.is_multicast, "is multicast"),
        (_inside(address), "is in a private range"),
    )
    return next((text for is_so, text in kinds if is_so), "")


def _inside(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not address.is_global or address.is_reserved
    if address in _NAT64[0]:  # what it stands for is looked at by itself
        return False
    unused = any(address in network for network in _UNUSED)
    return unused or address not in _UNICAST or not address.is_global


def leads_inside(host: str) -> bool:
    """Whether the host, with or without a port, is an address that is not public."""
    address = address_of(split_port(host)[0].strip("[]"))
    return address is not None and bool(_PUBLIC_ONLY.fault(address))


_PUBLIC_ONLY = Private()
