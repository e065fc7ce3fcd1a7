"""Rules for hosts, and which addresses are inside."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.hosts import (
    HostRule,
    Private,
    host_name,
    leads_inside,
    origin,
    parse_rule,
    split_port,
)


@pytest.mark.parametrize(
    ("rule", "host", "port", "covered"),
    [
        ("example.com", "example.com", 443, True),
        ("example.com", "example.com", 80, True),
        ("example.com", "example.com", 8443, False),
        ("example.com:8443", "example.com", 8443, True),
        ("example.com:8443", "example.com", 443, False),
        ("example.com", "www.example.com", 443, False),
        ("example.com", "evilexample.com", 443, False),
        ("example.com", "example.com.evil.net", 443, False),
        ("*.example.com", "a.example.com", 443, True),
        ("*.example.com", "a.b.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "evilexample.com", 443, False),
        ("EXAMPLE.com", "example.com", 443, True),
        ("192.0.2.7", "192.0.2.7", 80, True),
        ("[2001:DB8:0::7]:80", "2001:db8::7", 80, True),
        ("2001:db8::7", "2001:db8::7", 443, True),
        ("bücher.example", "xn--bcher-kva.example", 443, True),
    ],
)
def test_a_rule_covers_what_it_names_and_nothing_else(
    rule: str, host: str, port: int, covered: bool
) -> None:
    assert parse_rule(rule).covers(host_name(host), port) is covered


@pytest.mark.parametrize(
    "text",
    ["", "*", "*.", "*.com", "a*.example.com", "*example.com", "a.*.com", "*.*.example.com",
     "example.com.", ".example.com", "a..b", "example.com:", "example.com:0", "example.com:65536",
     "example.com:+80", "example.com:٣", "user@example.com", "example.com/x", "http://example.com",
     "exa mple.com", "a%2e.com", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "1.2.3.4.5",
     "*.127.0.0.1", "[::1", "[::1]x", "[example.com]", "fe80::1%eth0", "-a.com", "a-.com",
     "x" * 64 + ".com", "a." * 127 + "com", "exa\nmple.com", "exa\0mple.com", "☃" * 80],
)  # fmt: skip
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_rule(text)


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        ("a.example.com", "*.example.com", "a.example.com"),
        ("*.b.example.com", "*.example.com", "*.b.example.com"),
        ("*.example.com", "*.example.com", "*.example.com"),
        ("example.com", "example.com:443", "example.com:443"),
        ("example.com:8443", "example.com:8443", "example.com:8443"),
        ("example.com:8443", "example.com", None),
        ("example.com", "*.example.com", None),
        ("evilexample.com", "*.example.com", None),
        ("a.example.com", "b.example.com", None),
        ("*.a.com", "*.b.com", None),
    ],
)
def test_what_two_rules_have_in_common(one: str, other: str, common: str | None) -> None:
    there, back = (
        parse_rule(one).common(parse_rule(other)),
        parse_rule(other).common(parse_rule(one)),
    )
    assert there == back
    assert (there and str(there)) == common


LABELS = st.lists(st.sampled_from("ab"), min_size=2, max_size=4).map(".".join)
RULES = st.builds(
    HostRule, LABELS, st.booleans(), st.sampled_from([frozenset((80, 443)), frozenset((8443,))])
)


@given(RULES, RULES, LABELS, st.sampled_from([80, 8443]))
def test_the_common_rule_covers_exactly_what_both_do(
    one: HostRule, other: HostRule, host: str, port: int
) -> None:
    common = one.common(other)
    both = one.covers(host, port) and other.covers(host, port)
    assert (common is not None and common.covers(host, port)) is both


@given(RULES)
def test_a_rule_reads_as_it_is_written(rule: HostRule) -> None:
    assert parse_rule(str(rule)) == rule


@given(st.text(max_size=30))
def test_no_text_raises_anything_but_a_value_error(text: str) -> None:
    for function in (parse_rule, host_name, split_port):
        try:
            function(text)
        except ValueError:
            continue


INSIDE = [
    "0.0.0.0", "127.0.0.1", "127.255.0.9", "10.0.0.1", "172.16.0.1", "172.31.255.255",
    "192.168.1.1", "169.254.1.1", "100.64.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1",
    "192.0.2.1", "198.18.0.1", "::", "::1", "::7f00:1", "fe80::1", "fc00::1", "fd12::1", "ff02::1",
    "fec0::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::", "2002:a00:1::1",
    "64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b:1::a00:1", "2001:0:7f00:1::1", "2001:db8::1",
    "100::1", "4000::1", "2002:808:808::1", "3fff::1",
]  # fmt: skip
METADATA = [
    "169.254.169.254", "fd00:ec2::254", "168.63.129.16", "100.100.100.200",
    "::ffff:169.254.169.254", "2002:a9fe:a9fe::", "64:ff9b::a9fe:a9fe",
]  # fmt: skip


@pytest.mark.parametrize("address", [*INSIDE, *METADATA])
def test_an_address_inside_may_not_be_connected_to(address: str) -> None:
    assert Private().fault(ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "64:ff9b::808:808"])
def test_a_public_address_may_be_connected_to(address: str) -> None:
    assert Private().fault(ip_address(address)) == ""


def test_an_entry_opens_its_addresses_alone() -> None:
    private = Private(("10.1.0.0/16", "::1"))
    assert private.fault(ip_address("10.1.2.3")) == private.fault(ip_address("::1")) == ""
    assert private.fault(ip_address("10.2.0.1"))
    assert private.fault(ip_address("127.0.0.1"))


def test_a_named_address_may_be_connected_to() -> None:
    assert Private().fault(ip_address("10.0.0.5"), named=True) == ""


@pytest.mark.parametrize("address", METADATA)
def test_a_metadata_service_needs_its_very_address(address: str) -> None:
    it = ip_address(address)
    assert Private(("0.0.0.0/0", "::/0")).fault(it, named=True) == "is a metadata service"
    assert Private((address,)).fault(it) == ""


def test_a_wrong_entry_is_refused() -> None:
    with pytest.raises(ValueError, match="intranet"):
        Private(("intranet",))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:5432", "[::1]:80", "10.0.0.1", "169.254.169.254"]
)
def test_addresses_that_are_not_public_lead_inside(host: str) -> None:
    assert leads_inside(host)


@pytest.mark.parametrize("host", ["example.com", "1.1.1.1", "1.1.1.1:443", "[2606:4700::1]"])
def test_names_and_public_addresses_do_not(host: str) -> None:
    assert not leads_inside(host)


def test_origin_knows_the_default_ports() -> None:
    assert origin("https://a/x") == origin("https://a:443/y?z")
    assert origin("http://a") != origin("https://a")
    assert origin("http://a") != origin("http://a:8080")
    assert origin("http://a:x") != origin("http://a")
