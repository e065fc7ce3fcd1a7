"""The life of a proxy: how it gets its port, what it tells, and that nothing is left of it."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from skillbelt.errors import ConfigError, SandboxUnavailable
from skillbelt.sandbox.inside.bridge import open_port
from skillbelt.sandbox.network.connection import Connection
from skillbelt.sandbox.network.proxy import Egress
from tests.discovery.sources.server import Server, eventually, running
from tests.sandbox.proxied import Proxy, connect, get, lookup, plain_server, port_of, read_all


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        server.pages["/"] = b"hello"
        yield server


def test_a_named_host_is_reached_and_reported(server: Server) -> None:
    port = port_of(server)
    told: list[Connection] = []
    with Proxy(f"example.com:{port}", listener=told.append) as egress:
        answer = get(egress, f"http://example.com:{port}/", f"Host: example.com:{port}")
        eventually(lambda: bool(egress.connections))
    assert answer.startswith("HTTP/1.0 200") and answer.endswith("hello")
    assert server.headers[0]["host"] == f"example.com:{port}"
    [seen] = told
    assert seen[:5] == ("example.com", port, "127.0.0.1", True, "")
    assert egress.connections == tuple(told)


def in_use() -> set[object]:
    """The threads and file descriptors of this process; those of earlier tests may still end."""
    with os.scandir("/proc/self/fd") as entries:
        return {*threading.enumerate(), *(entry.name for entry in entries)}


def test_closing_ends_every_connection_and_leaves_nothing(server: Server) -> None:
    def wait(peer: socket.socket) -> None:
        while peer.recv(65536):
            pass

    before = in_use()
    with plain_server(wait) as port:
        egress = Proxy(f"example.com:{port}")
        idle, busy = connect(egress), connect(egress)
        busy.sendall(f"CONNECT example.com:{port} HTTP/1.1\r\n\r\n".encode())
        assert busy.recv(100).startswith(b"HTTP/1.1 200")
        egress.close()
        assert not os.path.exists(egress.folder)
        for client in (idle, busy):
            read_all(client)
            client.close()
    assert [seen.reason for seen in egress.connections if seen.allowed] == ["the run is over"]
    assert in_use() <= before


def test_closing_does_not_wait_for_a_host_that_does_not_answer() -> None:
    asked = threading.Event()

    def noted(host: str, port: int) -> list[str]:
        asked.set()
        return lookup(host, port)

    with blocked_port() as port:
        egress = Proxy(f"example.com:{port}", resolver=noted)
        with connect(egress) as client:
            client.sendall(f"CONNECT example.com:{port} HTTP/1.1\r\n\r\n".encode())
            assert asked.wait(150)
            egress.close()
        assert [seen.host for seen in egress.connections] == ["example.com"]


@contextmanager
def blocked_port() -> Iterator[int]:
    """A port whose queue is full, so that a connection is neither taken nor refused."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
        for filler in fillers:
            filler.close()


def test_a_proxy_that_is_gone_is_no_way_out() -> None:
    """Attack 52."""
    with Proxy("example.com") as egress:
        pass
    with pytest.raises(ConnectionRefusedError):
        connect(egress)
    with pytest.raises(FileNotFoundError):
        open_port(egress.socket_path)


def test_a_proxy_that_never_gets_a_port_ends_all_the_same() -> None:
    before = in_use()
    Egress(["example.com"]).close()
    assert in_use() <= before


def test_only_one_port_is_taken() -> None:
    """Attack 47: a command inside finds no listener at the socket any more."""
    with Proxy() as egress:
        eventually(lambda: not os.path.exists(egress.socket_path))
        with pytest.raises(FileNotFoundError):
            open_port(egress.socket_path)


@pytest.mark.parametrize("kind", ["nothing", "file", "deaf", "unix", "datagram"])
def test_what_is_no_port_is_not_taken(kind: str) -> None:
    with Egress([]) as egress, socket.socket(socket.AF_UNIX) as way, ExitStack() as stack:
        way.settimeout(30)
        way.connect(egress.socket_path)
        handles = [] if kind == "nothing" else [odd(kind, stack)]
        socket.send_fds(way, [b"1"], handles)
        assert way.recv(1) == b""


def odd(kind: str, stack: ExitStack) -> int:
    if kind == "file":
        return stack.enter_context(open("/dev/null", "rb")).fileno()
    family = socket.AF_UNIX if kind == "unix" else socket.AF_INET
    datagram = kind == "datagram"
    made = socket.socket(family, socket.SOCK_DGRAM if datagram else socket.SOCK_STREAM)
    return stack.enter_context(made).fileno()


def test_the_door_is_for_its_owner_alone() -> None:
    with Egress([]) as egress:
        assert stat.S_IMODE(os.stat(egress.folder).st_mode) == 0o700
        assert stat.S_IMODE(os.stat(egress.socket_path).st_mode) == 0o600


def test_a_proxy_that_can_not_be_made_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 120)  # longer than the name of a socket may be
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(SandboxUnavailable, match="cannot start the network proxy"):
        Egress(["example.com"])
    assert list(deep.iterdir()) == []


@pytest.mark.parametrize("host", ["*", "exa mple", "http://example.com", "example.com."])
def test_a_wrong_host_is_a_wrong_setting(host: str) -> None:
    with pytest.raises(ConfigError, match="is not a host"):
        Egress([host])


def test_a_wrong_private_entry_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match="allow_private"):
        Egress([], allow_private=["intranet"])
