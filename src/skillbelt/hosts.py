"""Network hosts: rules that name them, the intersection of two rules, private addresses.

A rule is `example.com`, `*.example.com`, `example.com:8443`, `192.0.2.7` or `[2001:db8::7]:80`.
Without a port it means 443 and 80. The star stands for one or more whole labels at the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from skillbelt.late import Late
from skillbelt.records import NamedTuple

if TYPE_CHECKING:
    import socket
else:
    socket = Late("socket")  # cost: 4 ms, only to resolve a name

Address = IPv4Address | IPv6Address
Resolver = Callable[[str, int], Iterable[str]]
PORTS = frozenset((80, 443))
_MAX_NAME = 253
_MAX_LABEL = 63
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")
# Cloud machines serve their credentials here without authentication; one address is public.
_METADATA = frozenset(
    map(ip_address, ("169.254.169.254", "fd00:ec2::254", "168.63.129.16", "100.100.100.200"))
)
_UNICAST = IPv6Network("2000::/3")
# Obsolete tunnels, and documentation; Python classifies them differently by version.
_UNUSED = (IPv6Network("2002::/16"), IPv6Network("2001::/32"), IPv6Network("3fff::/20"))
_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))


class HostRule(NamedTuple):
    """The hosts and ports that one entry of a list allows."""

    name: str
    below: bool = False  # `*.name`
    ports: frozenset[int] = PORTS

    def covers(self, host: str, port: int) -> bool:
        """Whether the rule allows the host, as `host_name` spells it, at that port."""
        return port in self.ports and self._covers_name(host)

    def _covers_name(self, host: str) -> bool:
        return host.endswith(f".{self.name}") if self.below else host == self.name

    def common(self, other: HostRule) -> HostRule | None:
        """Return the intersection of two rules; None when it is empty."""
        ports = self.ports & other.ports
        narrow, wide = sorted((self, other), key=_width)
        same = narrow.name == wide.name and narrow.below == wide.below
        within = wide.below and narrow.name.endswith(f".{wide.name}")
        return HostRule(narrow.name, narrow.below, ports) if ports and (same or within) else None

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        star = "*." if self.below else ""
        port = "" if self.ports == PORTS else f":{min(self.ports)}"
        return f"{star}{name}{port}"


def _width(rule: HostRule) -> tuple[bool, int]:
    return rule.below, -len(rule.name)


def parse_rule(text: str) -> HostRule:
    """Parse a rule; ValueError says what is wrong with it."""
    below = text.startswith("*.")
    host, port = split_port(text[2:] if below else text)
    name = host_name(_ascii(host))
    if below and (address_of(name) or "." not in name):
        raise ValueError("a star must come before a name of two or more labels")
    return HostRule(name, below, PORTS if port is None else frozenset((port,)))


def names_host(texts: Iterable[str], host: str) -> bool:
    """Whether one of the texts, rules or URLs, names the host; ports are ignored."""
    for text in texts:
        plain = text.removeprefix("https://").removeprefix("http://").partition("/")[0]
        try:
            rule = parse_rule(plain)
        except ValueError:
            continue
        if host == rule.name or (rule.below and host.endswith(f".{rule.name}")):
            return True
    return False


def origin(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port, which identify an origin; port -1 if it is not a number."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    return parts.scheme, parts.hostname or "", port or (443 if parts.scheme == "https" else 80)


def split_port(text: str) -> tuple[str, int | None]:
    """Split `host[:port]`, with an IPv6 address in brackets; ValueError for any other form."""
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed or ":" not in host or (rest and not rest.startswith(":")):
            raise ValueError("write an IPv6 address in brackets, and the port after them")
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
    """Return the canonical spelling of a host's name or address; ValueError when it is neither.

    Short forms that some resolvers take for an address (`127.1`, `0x7f000001`) are refused.
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
    """Parse an IP address; None for anything else, and for an address with a zone."""
    try:
        return None if "%" in text else ip_address(text)
    except ValueError:
        return None


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host, as this machine resolves names."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Private:
    """The private addresses that may be reached; ValueError for an invalid entry.

    An entry is an address or a network. A metadata service needs an entry of exactly its address.
    """

    def __init__(self, entries: tuple[str, ...] = ()) -> None:
        self._networks = [ip_network(entry) for entry in entries]

    def fault(self, address: Address, *, named: bool = False) -> str:
        """Return why the address is refused; "" if it is not. `named`: a rule names the address."""
        inner = [address, *_embedded_addresses(address)]
        if any(one in _METADATA for one in inner):
            return "" if self._is_entry(address) else "is a metadata service"
        if named or any(address in network for network in self._networks):
            return ""
        return next((fault for one in inner if (fault := _fault(one))), "")

    def _is_entry(self, address: Address) -> bool:
        return any(network.num_addresses == 1 and address in network for network in self._networks)


def _embedded_addresses(address: Address) -> list[Address]:
    """Return the IPv4 addresses that packets to this address may be routed to."""
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
        (_is_not_public(address), "is in a private range"),
    )
    return next((text for is_so, text in kinds if is_so), "")


def _is_not_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not address.is_global or address.is_reserved
    if address in _NAT64[0]:  # the embedded IPv4 address is checked separately
        return False
    unused = any(address in network for network in _UNUSED)
    return unused or address not in _UNICAST or not address.is_global


def is_this_machine(host: str) -> bool:
    """Whether the host, with or without a port, is a name that always means this machine."""
    name = split_port(host)[0].rpartition(".")[2]
    return name == "localhost"


def leads_inside(host: str) -> bool:
    """Whether the host, with or without a port, is an address that is not public."""
    address = address_of(split_port(host)[0].strip("[]"))
    return address is not None and bool(_PUBLIC_ONLY.fault(address))


_PUBLIC_ONLY = Private()
