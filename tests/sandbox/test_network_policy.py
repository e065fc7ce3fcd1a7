"""The hosts and addresses that a proxy allows, without a connection."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from skillbelt.hosts import resolve
from skillbelt.sandbox.network.policy import HostPolicy, Unreachable
from skillbelt.sandbox.network.request import ProxyRefused


def gate(*addresses: str, hosts: tuple[str, ...] = ("example.com",)) -> HostPolicy:
    return HostPolicy(hosts, (), lambda host, port: addresses)


def test_every_address_of_a_host_is_given_in_its_order() -> None:
    found = gate("8.8.8.8", "2606:4700::1111").addresses("example.com", 443)
    assert found == [ip_address("8.8.8.8"), ip_address("2606:4700::1111")]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_address_inside_spoils_the_others(place: int) -> None:
    """Attack 49."""
    addresses = ["8.8.8.8", "1.1.1.1"]
    addresses.insert(place, "127.0.0.1")
    with pytest.raises(ProxyRefused, match=r"has the address 127\.0\.0\.1, which is this machine"):
        gate(*addresses).addresses("example.com", 443)


def test_an_address_that_is_named_is_not_looked_up() -> None:
    named = gate("10.9.9.9", hosts=("10.0.0.5",))
    named.check("10.0.0.5", 80)
    assert named.addresses("10.0.0.5", 80) == [ip_address("10.0.0.5")]


def test_what_no_rule_names_is_refused_with_the_rules() -> None:
    with pytest.raises(
        ProxyRefused, match=r"^evil\.net is not among .* \(example\.com, \*\.a\.org\)$"
    ):
        gate(hosts=("example.com", "*.a.org")).check("evil.net", 443)


def test_a_resolver_that_gives_nothing_usable_is_no_refusal() -> None:
    for answer in ((), ("nonsense",)):
        with pytest.raises(Unreachable, match=r"^example\.com has no address"):
            gate(*answer).addresses("example.com", 443)


def test_this_machine_resolves_its_own_name() -> None:
    assert set(resolve("localhost", 80)) & {"127.0.0.1", "::1"}
