"""Clients of the proxy, with real sockets: the hosts they reach, and those they do not."""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from skillbelt.values import Limits
from tests.bounds import bounds
from tests.discovery.sources.server import Reply, Server, eventually, running
from tests.sandbox.proxied import (
    Proxy,
    ask,
    connect,
    get,
    plain_server,
    port_of,
    read_all,
    refusal,
    tunnel,
)


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        server.pages["/"] = b"hello"
        yield server


# --- what works ----------------------------------------------------------------------------------


def test_a_star_reaches_the_hosts_below_a_name(server: Server) -> None:
    port = port_of(server)
    with Proxy(f"*.example.com:{port}") as egress:
        assert get(egress, f"http://other.example.com:{port}/").endswith("hello")
        assert "example.com is not among" in refusal(get(egress, f"http://example.com:{port}/"))


def test_a_tunnel_carries_bytes_both_ways(server: Server) -> None:
    port = port_of(server)
    with Proxy(f"example.com:{port}") as egress, connect(egress) as client:
        client.sendall(f"CONNECT example.com:{port} HTTP/1.1\r\n\r\n".encode())
        assert client.recv(100) == b"HTTP/1.1 200 Connection established\r\n\r\n"
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert read_all(client).endswith(b"hello")


def test_bytes_that_follow_a_connect_at_once_are_carried(server: Server) -> None:
    port = port_of(server)
    with Proxy(f"example.com:{port}") as egress:
        early = f"CONNECT example.com:{port} HTTP/1.1\r\n\r\nGET / HTTP/1.0\r\n\r\n"
        assert ask(egress, early).endswith("hello")


def test_tls_goes_through_a_tunnel_from_end_to_end(tmp_path: Path) -> None:
    with tls_server(tmp_path) as (port, certificate):
        context = ssl.create_default_context(cafile=str(certificate))
        with Proxy(f"example.com:{port}") as egress, connect(egress) as client:
            client.sendall(f"CONNECT example.com:{port} HTTP/1.1\r\n\r\n".encode())
            assert client.recv(100).startswith(b"HTTP/1.1 200")
            with context.wrap_socket(client, server_hostname="example.com") as secured:
                secured.sendall(b"x" * 300_000)
                secured.unwrap()


@contextmanager
def tls_server(folder: Path) -> Iterator[tuple[int, Path]]:
    """Takes 300,000 bytes over TLS as example.com, then ends the session."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=example.com", "-addext", "subjectAltName=DNS:example.com", "-keyout", str(key),
         "-out", str(certificate)],
        check=True, capture_output=True, timeout=500,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=take_secured, args=(listener, context))
        thread.start()
        yield listener.getsockname()[1], certificate
        thread.join()


def take_secured(listener: socket.socket, context: ssl.SSLContext) -> None:
    plain, _ = listener.accept()
    with context.wrap_socket(plain, server_side=True) as secured:
        left = 300_000
        while left:
            left -= len(secured.recv(65536))
        secured.unwrap()


def test_a_large_body_goes_up_and_a_large_answer_comes_down() -> None:
    """Both at once, beyond what the buffers on the way can hold."""
    size = 8 * 2**20

    def echo(peer: socket.socket) -> None:
        while data := peer.recv(65536):
            peer.sendall(data)

    with (
        plain_server(echo) as port,
        Proxy(f"example.com:{port}") as egress,
        connect(egress) as client,
    ):
        client.sendall(f"CONNECT example.com:{port} HTTP/1.1\r\n\r\n".encode())
        assert client.recv(39).endswith(b"\r\n\r\n")
        sender = threading.Thread(target=send_and_end, args=(client, b"x" * size))
        sender.start()
        assert len(read_all(client)) == size
        sender.join()


def send_and_end(client: socket.socket, data: bytes) -> None:
    client.sendall(data)
    client.shutdown(socket.SHUT_WR)


def test_a_connection_that_breaks_is_ended_and_told() -> None:
    def reset(peer: socket.socket) -> None:
        peer.recv(1)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with plain_server(reset) as port, Proxy(f"example.com:{port}") as egress:
        request = f"CONNECT example.com:{port} HTTP/1.1\r\n\r\nx"
        assert ask(egress, request).startswith("HTTP/1.1 200")
        eventually(lambda: bool(egress.connections))
    assert egress.connections[0].reason == "the connection broke"


# --- what is refused -----------------------------------------------------------------------------


def test_an_empty_list_means_no_host_at_all(server: Server) -> None:
    """Attack 49."""
    with Proxy() as egress:
        body = refusal(get(egress, f"{server.url}/"))
        assert body == "skillbelt: 127.0.0.1 is not among the hosts this run may reach (none)\n"
        assert "example.com" in refusal(tunnel(egress, "example.com:443"))
    assert server.requests == []
    assert [seen.allowed for seen in egress.connections] == [False, False]


@pytest.mark.parametrize(
    "host",
    ["evil.net", "evilexample.com", "example.com.evil.net", "notexample.com", "127.0.0.1",
     "[::1]", "[::ffff:127.0.0.1]", "sub.example.com", "localhost", "xn--exmple-cua.com"],
)  # fmt: skip
def test_a_host_that_is_only_like_a_named_one_is_refused(host: str, server: Server) -> None:
    """Attack 49."""
    port = port_of(server)
    with Proxy(f"example.com:{port}", "example.com") as egress:
        for answer in (get(egress, f"http://{host}:{port}/"), tunnel(egress, f"{host}:{port}")):
            assert "is not among the hosts this run may reach" in refusal(answer)
    assert server.requests == []


@pytest.mark.parametrize("port", [22, 25, 8080, 6379])
def test_a_tunnel_to_another_port_is_refused(port: int) -> None:
    """Attack 49."""
    with Proxy("example.com") as egress:
        said = refusal(tunnel(egress, f"example.com:{port}"))
    assert said == f"skillbelt: port {port} of example.com is not among those this run may reach\n"


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("metadata.example.com", "169.254.169.254, which is a metadata service"),
        ("metadata6.example.com", "fd00:ec2::254, which is a metadata service"),
        ("inside.example.com", "10.0.0.1, which is in a private range"),
        ("mapped.example.com", "which is in a private range"),
        ("mixed.example.com", "192.168.0.1, which is in a private range"),
        ("zone.example.com", "which is link-local"),
    ],
)
def test_a_named_host_with_an_address_inside_is_refused(host: str, said: str) -> None:
    """Attacks 44 and 46: every address counts, also the second."""
    with Proxy("*.example.com") as egress:
        for answer in (get(egress, f"http://{host}/"), tunnel(egress, f"{host}:443")):
            assert said in refusal(answer)


def test_loopback_is_refused_unless_it_is_allowed(server: Server) -> None:
    port = port_of(server)
    with Proxy(f"example.com:{port}", allow_private=()) as egress:
        assert "is this machine" in refusal(get(egress, f"http://example.com:{port}/"))
    with Proxy(f"127.0.0.1:{port}", allow_private=()) as egress:
        assert get(egress, f"http://127.0.0.1:{port}/").endswith("hello")


@pytest.mark.parametrize("address", ["169.254.169.254", "[fd00:ec2::254]"])
def test_a_metadata_service_is_refused_even_by_its_own_rule(address: str) -> None:
    """Attack 46."""
    with Proxy(address, allow_private=("169.254.0.0/16", "fd00::/8")) as egress:
        assert "is a metadata service" in refusal(get(egress, f"http://{address}/latest"))


def test_a_redirect_to_the_metadata_service_ends_at_the_Proxy(server: Server) -> None:
    """Attack 46: the client follows, and is refused as if it had asked first."""
    port = port_of(server)
    target = "http://metadata.example.com/latest"
    server.pages["/go"] = Reply(b"", status=302, headers={"Location": target})
    with Proxy(f"example.com:{port}", "metadata.example.com") as egress:
        assert f"Location: {target}" in get(egress, f"http://example.com:{port}/go")
        assert "metadata service" in refusal(get(egress, target))


def test_a_second_answer_of_the_resolver_has_no_effect(server: Server) -> None:
    """Attack 49: rebinding. Only what was checked is connected to, and one question is asked."""
    port = port_of(server)
    answers = iter([["127.0.0.1"], ["10.0.0.1"], ["10.0.0.1"]])

    def rebinding(host: str, port: int) -> list[str]:
        return next(answers)

    with Proxy(f"example.com:{port}", resolver=rebinding) as egress:
        assert get(egress, f"http://example.com:{port}/").endswith("hello")
        assert "private range" in refusal(get(egress, f"http://example.com:{port}/"))
    assert sorted(seen.address for seen in egress.connections) == ["", "127.0.0.1"]


def test_the_name_of_another_host_is_not_carried_to_a_named_one(server: Server) -> None:
    """Attack 49: fronting."""
    port = port_of(server)
    with Proxy(f"example.com:{port}") as egress:
        answer = get(egress, f"http://example.com:{port}/", "Host: evil.net")
    assert "names another host" in refusal(answer)
    assert server.requests == []


def test_a_second_request_on_a_connection_is_not_carried() -> None:
    """Attack 49: smuggling behind a checked request."""
    seen: list[bytes] = []

    def collect(peer: socket.socket) -> None:
        while data := peer.recv(65536):
            seen.append(data)

    smuggled = "GET / HTTP/1.1\r\nHost: evil.net\r\n\r\n"
    with plain_server(collect) as port, Proxy(f"example.com:{port}") as egress:
        first = f"POST http://example.com:{port}/ HTTP/1.1\r\nContent-Length: 4\r\n\r\n"
        assert "more data than one request" in refusal(ask(egress, f"{first}body{smuggled}"))
        with connect(egress) as client:
            client.sendall(f"{first}bo".encode())
            eventually(lambda: b"".join(seen).endswith(b"\r\n\r\nbo"))
            client.sendall(b"dy")
            eventually(lambda: b"".join(seen).endswith(b"body"))
            client.sendall(smuggled.encode())
            assert read_all(client) == b""
    assert b"".join(seen).endswith(b"\r\n\r\nbody")
    assert egress.connections[-1].reason == "more data than the one request that was announced"


def test_chunks_are_refused_with_the_remedy() -> None:
    with Proxy("example.com") as egress:
        request = "POST http://example.com/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        assert "must come with its Content-Length" in refusal(ask(egress, request))


@pytest.mark.parametrize("host", ["odd.example.com", "empty.example.com", "unknown.example.com"])
def test_a_name_without_an_address_is_said_to_have_none(host: str) -> None:
    with Proxy("*.example.com") as egress:
        answer = get(egress, f"http://{host}/")
    assert answer.startswith("HTTP/1.1 502 Bad Gateway")
    assert f"{host} has no address" in answer


def test_a_host_that_does_not_answer_is_said_to_be_out_of_reach() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Proxy(f"example.com:{port}") as egress:
        answer = tunnel(egress, f"example.com:{port}")
    assert answer.startswith("HTTP/1.1 502") and "cannot be reached" in answer


# --- bounds --------------------------------------------------------------------------------------


def test_a_host_that_does_not_answer_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        limits = bounds(network_connect_seconds=0.2)
        with socket.create_connection(("127.0.0.1", port)), socket.socket() as waiting:
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))  # no process accepts, so the queue is full
            with Proxy(f"example.com:{port}", limits=limits) as egress:
                assert "cannot be reached" in tunnel(egress, f"example.com:{port}")
    assert egress.limits_hit == ("network_connect_seconds",)


def test_a_head_without_end_is_refused() -> None:
    with Proxy("example.com", limits=bounds(max_network_header_bytes=1000)) as egress:
        said = refusal(ask(egress, "GET http://example.com/ HTTP/1.1\r\nX: " + "x" * 5000))
        assert "more than 1000 bytes (max_network_header_bytes)" in said
    assert egress.limits_hit == ("max_network_header_bytes",)


def test_a_head_that_does_not_come_is_not_waited_for() -> None:
    with Proxy("example.com", limits=bounds(network_header_seconds=0.2)) as egress:
        assert "did not arrive in time" in refusal(ask(egress, "GET "))
    assert egress.limits_hit == ("network_header_seconds",)


def test_a_client_that_says_nothing_is_no_connection() -> None:
    with Proxy("example.com") as egress:
        connect(egress).close()
        with connect(egress) as client:
            client.sendall(b"GET ")
            client.shutdown(socket.SHUT_WR)
            assert "ends inside its head" in refusal(read_all(client).decode())
    assert len(egress.connections) == 1


def test_a_connection_on_which_nothing_comes_is_ended() -> None:
    def wait(peer: socket.socket) -> None:
        peer.recv(1)

    limits = bounds(network_idle_seconds=0.2)
    with plain_server(wait) as port, Proxy(f"example.com:{port}", limits=limits) as egress:
        assert tunnel(egress, f"example.com:{port}").startswith("HTTP/1.1 200")
        eventually(lambda: bool(egress.connections))
    assert egress.connections[0].reason == "no data for 0.2 s (network_idle_seconds)"
    assert egress.limits_hit == ("network_idle_seconds",)


def test_all_connections_share_one_allowance_of_bytes(server: Server) -> None:
    port = port_of(server)
    server.pages["/big"] = b"x" * 100_000
    with Proxy(f"example.com:{port}", limits=Limits(max_network_bytes=150_000)) as egress:
        assert get(egress, f"http://example.com:{port}/big").endswith("x" * 100_000)
        assert len(get(egress, f"http://example.com:{port}/big")) < 100_000
        eventually(lambda: len(egress.connections) == 2)
    assert egress.connections[1].reason == "more than 150000 bytes in all (max_network_bytes)"
    assert egress.limits_hit == ("max_network_bytes",)


def test_connections_beyond_the_limit_wait_for_their_turn(server: Server) -> None:
    port = port_of(server)
    with Proxy(f"example.com:{port}", limits=bounds(max_network_connections=2)) as egress:
        held = [connect(egress) for _ in range(2)]
        with connect(egress) as third:
            third.sendall(f"GET http://example.com:{port}/ HTTP/1.1\r\n\r\n".encode())
            third.settimeout(0.2)
            with pytest.raises(TimeoutError):
                third.recv(1)
            held.pop().close()
            third.settimeout(30)
            assert read_all(third).endswith(b"hello")
        held.pop().close()
