"""Reading what a client asks of the proxy."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.sandbox.network.request import ProxyRefused, ProxyRequest, parse_request


def asked(first: str, *headers: str) -> ProxyRequest:
    return parse_request("\r\n".join([first, *headers]).encode("latin-1"))


def reason(first: str, *headers: str) -> str:
    with pytest.raises(ProxyRefused) as caught:
        asked(first, *headers)
    return str(caught.value)


def test_connect_asks_for_a_tunnel() -> None:
    request = asked("CONNECT Example.com:443 HTTP/1.1", "Host: example.com:443")
    assert request == ProxyRequest("example.com", 443, b"", 0)
    assert request.tunnel


def test_connect_to_an_address_of_version_six() -> None:
    assert asked("CONNECT [2001:DB8::7]:443 HTTP/1.1").host == "2001:db8::7"


def test_a_plain_request_is_made_the_only_one_of_its_connection() -> None:
    request = asked(
        "POST http://example.com:8080/a?b=c HTTP/1.1",
        "Host: example.com:8080",
        "Content-Length: 3",
        "Connection: keep-alive, X-Secret",
        "X-Secret: 1",
        "Proxy-Authorization: Basic eA==",
        "Upgrade: websocket",
        "Accept: */*",
    )
    assert request.forward.decode().split("\r\n") == [
        "POST /a?b=c HTTP/1.1",
        "host: example.com:8080",
        "content-length: 3",
        "accept: */*",
        "connection: close",
        "",
        "",
    ]
    assert (request.host, request.port, request.body_bytes) == ("example.com", 8080, 3)


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("http://example.com", "GET / HTTP/1.1"),
        ("http://example.com?q=/@x", "GET /?q=/@x HTTP/1.1"),
        ("HTTP://EXAMPLE.com:80//x", "GET //x HTTP/1.1"),
    ],
)
def test_the_path_is_what_follows_the_host(target: str, line: str) -> None:
    request = asked(f"GET {target} HTTP/1.1")
    assert request.forward.decode().split("\r\n")[:2] == [line, "host: example.com"]
    assert (request.host, request.port) == ("example.com", 80)


def test_a_header_that_bounds_the_body_can_not_be_left_out() -> None:
    request = asked(
        "POST http://example.com/ HTTP/1.1", "Content-Length: 3", "Connection: content-length, host"
    )
    assert b"content-length: 3" in request.forward
    assert b"host: example.com" in request.forward


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("example.com", "port is missing"),
        ("user@example.com:443", "user name"),
        ("example.com.:443", "end with a dot"),
        ("example.com:443.", "port"),
        ("example.com:0443x", "port"),
        ("exam%70le.com:443", "not a host name"),
        ("example.com%00.evil.net:443", "not a host name"),
        ("[::1", "brackets"),
        ("::1:443", "port is missing"),
        ("[fe80::1%25eth0]:443", "not a host"),
        ("0x7f000001:443", "plain form"),
        ("127.1:443", "plain form"),
        ("2130706433:443", "plain form"),
        ("http://example.com:443", "not a host"),
        ("b\xfccher.example:443", "escaped"),
        ("example.com:443\\@evil.net", "user name"),
        ("*.example.com:443", "not a host name"),
    ],
)
def test_a_tunnel_to_what_is_no_plain_host_is_refused(target: str, said: str) -> None:
    """Attack 49."""
    assert said in reason(f"CONNECT {target} HTTP/1.1")


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("GET / HTTP/1.1", "a proxy request must be"),
        ("GET https://example.com/ HTTP/1.1", "a proxy request must be"),
        ("GET ftp://example.com/ HTTP/1.1", "a proxy request must be"),
        ("GET http://user:word@example.com/ HTTP/1.1", "user name"),
        ("GET http://example.com:80@evil.net/ HTTP/1.1", "user name"),
        ("GET http://example.com./ HTTP/1.1", "dot"),
        ("GET http:///x HTTP/1.1", "not a host"),
        ("GET http://example.com/#x HTTP/1.1", "fragment"),
        ("GET http://example.com\\@evil.net/ HTTP/1.1", "user name"),
        ("TRACE http://example.com/ HTTP/1.1", "TRACE"),
        ("GET http://example.com/ HTTP/2.0", "HTTP/1.1"),
        ("GET http://example.com/", "HTTP/1.1"),
        ("GET  http://example.com/ HTTP/1.1", "HTTP/1.1"),
        ("GET http://example.com/a b HTTP/1.1", "HTTP/1.1"),
        ("G(T http://example.com/ HTTP/1.1", "method"),
        ("GET http://example.com/\x01 HTTP/1.1", "escaped"),
        ("\x16\x03\x01", "HTTP/1.1"),
        ("", "HTTP/1.1"),
    ],
)
def test_a_request_line_that_is_not_plain_is_refused(first: str, said: str) -> None:
    assert said in reason(first)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        (["Host: evil.net"], "another host"),
        (["Host: example.com:81"], "another host"),
        (["Host: example.com", "Host: example.com"], "more than one Host"),
        (["Host: example.com", "host: evil.net"], "more than one Host"),
        (["Host: user@example.com"], "user name"),
        (["Host:"], "not a host"),
        (["Transfer-Encoding: chunked"], "in chunks"),
        (["Transfer-Encoding: xchunked", "Content-Length: 3"], "in chunks"),
        (["Content-Length: 3", "Content-Length: 4"], "one number"),
        (["Content-Length: 3, 3"], "one number"),
        (["Content-Length: +3"], "one number"),
        (["Content-Length: 0x3"], "one number"),
        (["Content-Length: "], "one number"),
        (["Content-Length: " + "9" * 16], "too large"),
        (["Content-Length : 3"], "Name: value"),
        ([" folded: x"], "Name: value"),
        (["no colon"], "Name: value"),
        (["X: a\nTransfer-Encoding: chunked"], "control character"),
        (["X: a\rb"], "control character"),
        (["X: a\0b"], "control character"),
        ([f"X-{number}: x" for number in range(101)], "more than 100 headers"),
    ],
)
def test_headers_that_two_readers_could_differ_about_are_refused(
    headers: list[str], said: str
) -> None:
    """Attack 49: smuggling, and the name of another host behind the same address."""
    assert said in reason("POST http://example.com/ HTTP/1.1", *headers)


def test_the_host_header_of_a_tunnel_may_leave_the_port_out_but_not_name_another() -> None:
    assert asked("CONNECT example.com:443 HTTP/1.1", "Host: EXAMPLE.com").port == 443
    assert "another host" in reason("CONNECT example.com:443 HTTP/1.1", "Host: evil.net:443")


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_refusal(head: bytes) -> None:
    for prefix in (b"", b"GET http://example.com/ HTTP/1.1\r\n", b"CONNECT "):
        try:
            request = parse_request(prefix + head)
        except ProxyRefused:
            continue
        assert request.forward.count(b"\r\n\r\n") == (not request.tunnel)
