"""A proxy that has its port, what there is to reach, and ways to ask for it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from skillbelt.sandbox.inside.bridge import open_port
from skillbelt.sandbox.network.proxy import Egress
from tests.discovery.sources.server import Server

NAMES = {
    "example.com": ["127.0.0.1"],
    "other.example.com": ["127.0.0.1"],
    "evil.net": ["127.0.0.1"],
    "metadata.example.com": ["169.254.169.254"],
    "metadata6.example.com": ["fd00:ec2::254"],
    "inside.example.com": ["10.0.0.1"],
    "mapped.example.com": ["::ffff:10.0.0.1"],
    "mixed.example.com": ["127.0.0.1", "192.168.0.1"],
    "zone.example.com": ["fe80::1%lo"],
    "odd.example.com": ["nonsense"],
    "empty.example.com": [],
}


def lookup(host: str, port: int) -> list[str]:
    if host not in NAMES:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return NAMES[host]


def port_of(server: Server) -> int:
    return int(server.url.rpartition(":")[2])


class Proxy(Egress):
    """A proxy that has its port already."""

    def __init__(self, *hosts: str, **options: object) -> None:
        given = {"allow_private": ["127.0.0.1"], "resolver": lookup, **options}
        super().__init__(hosts, **given)  # type: ignore[arg-type]
        self.port = open_port(self.socket_path)


def connect(egress: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", egress.port), 30)


def read_all(client: socket.socket) -> bytes:
    pieces = []
    while piece := client.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def ask(egress: Proxy, request: str) -> str:
    with connect(egress) as client:
        client.sendall(request.encode("latin-1"))
        return read_all(client).decode()


def get(egress: Proxy, url: str, *headers: str) -> str:
    return ask(egress, "\r\n".join([f"GET {url} HTTP/1.1", *headers, "", ""]))


def tunnel(egress: Proxy, target: str) -> str:
    return ask(egress, f"CONNECT {target} HTTP/1.1\r\n\r\n")


def refusal(answer: str) -> str:
    head, _, body = answer.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 403 Forbidden"), answer
    return body


@contextmanager
def plain_server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server for one connection."""

    def once(listener: socket.socket) -> None:
        try:
            peer, _ = listener.accept()
        except OSError:
            return
        with peer:
            serve(peer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=once, args=(listener,))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
