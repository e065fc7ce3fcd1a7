from __future__ import annotations

import asyncio
import hashlib
import socket
import threading

import pytest

from skillbelt.discovery.sources.bounds import Deadline, Refusal
from skillbelt.discovery.sources.failure import OutOfTime, SourceFailure
from skillbelt.discovery.sources.http import (
    HttpClient,
    HttpResponse,
    Validators,
    redirect_target,
)
from skillbelt.discovery.sources.source_hosts import SourceHosts
from skillbelt.values import Limits
from tests.discovery.sources.server import Reply, Server, running

LIMITS = Limits(http_timeout_seconds=5)


def get(
    url: str,
    *,
    most: int = 10**6,
    limits: Limits = LIMITS,
    seconds: float = 20,
    known: Validators | None = None,
    same_origin: bool = False,
    private: tuple[str, ...] = (),
) -> tuple[HttpResponse, bytes]:
    body = bytearray()

    async def run() -> HttpResponse:
        http = HttpClient(limits, Deadline(url, seconds), SourceHosts(url, private))
        try:
            async with asyncio.timeout(seconds):
                return await http.get(
                    url, body.extend, most=most, known=known, same_origin=same_origin
                )
        finally:
            await http.close()

    return asyncio.run(run()), bytes(body)


def failure(url: str, **options: object) -> SourceFailure:
    with pytest.raises(SourceFailure) as caught:
        get(url, **options)  # type: ignore[arg-type]
    return caught.value


def test_the_body_and_its_digest(server: Server) -> None:
    headers = {"Last-Modified": "Sun, 01 Nov 2026 00:00:00 GMT", "Content-Type": "text/a; q=1"}
    server.pages["/a"] = Reply(b"hello", etag='"1"', headers=headers)
    answer, body = get(f"{server.url}/a")
    assert body == b"hello"
    assert answer.sha256 == hashlib.sha256(b"hello").hexdigest()
    assert (answer.etag, answer.modified) == ('"1"', headers["Last-Modified"])
    assert (answer.content_type, answer.encoding, answer.unchanged) == ("text/a", "", False)
    assert server.headers[0]["accept-encoding"] == "identity"


def test_what_did_not_change_is_not_sent_again(server: Server) -> None:
    server.pages["/a"] = Reply(b"hello", etag='"1"')
    answer, body = get(f"{server.url}/a", known=Validators('"1"', "ignored"))
    assert answer.unchanged and body == b""
    answer, body = get(f"{server.url}/a", known=Validators("", "Sun, 01 Nov 2026 00:00:00 GMT"))
    assert server.headers[1]["if-modified-since"] == "Sun, 01 Nov 2026 00:00:00 GMT"
    assert "if-none-match" not in server.headers[1] and body == b"hello"


def test_not_modified_without_a_question_is_a_failure(server: Server) -> None:
    server.pages["/a"] = Reply(status=304)
    assert failure(f"{server.url}/a").status == 304


@pytest.mark.parametrize("status", [204, 206, 401, 403, 404, 410, 500, 503])
def test_any_other_status_is_a_failure(server: Server, status: int) -> None:
    server.pages["/a"] = Reply(b"", status=status)
    found = failure(f"{server.url}/a")
    assert (found.code, found.status) == ("remote-status", status)
    assert found.source == f"{server.url}/a"


@pytest.mark.parametrize("length", [None, 10])
def test_bytes_are_counted_while_they_come(server: Server, length: int | None) -> None:
    """With any Content-Length: the true one, or less."""
    server.pages["/a"] = Reply(b"x" * 2000, length=length)
    if length is None:
        assert failure(f"{server.url}/a", most=1999).code == "remote-too-large"
        assert get(f"{server.url}/a", most=2000)[1] == b"x" * 2000
    else:
        assert get(f"{server.url}/a", most=1999)[1] == b"x" * 10


def test_a_body_without_an_end_is_cut_off(server: Server) -> None:
    server.pages["/a"] = Reply(b"x" * 4_000_000, headers={"Connection": "close"}, length=10**12)
    assert failure(f"{server.url}/a", most=1_000_000).code == "remote-too-large"


def test_a_body_that_breaks_off_is_a_failure(server: Server) -> None:
    server.pages["/a"] = Reply(b"x" * 10, length=100, headers={"Connection": "close"})
    assert failure(f"{server.url}/a").code == "remote-unreachable"


def test_redirects_are_followed_so_far(server: Server) -> None:
    for i in range(8):
        server.pages[f"/{i}"] = Reply(status=302, headers={"Location": f"{i + 1}"})
    server.pages["/5"] = b"end"
    answer, body = get(f"{server.url}/0")
    assert (answer.url, body) == (f"{server.url}/5", b"end")
    server.pages["/5"] = Reply(status=302, headers={"Location": "/6"})
    assert failure(f"{server.url}/0").code == "remote-redirect"


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://a/b", "gopher:x", "data:,x", ""])
def test_a_redirect_leads_only_to_the_web(server: Server, target: str) -> None:
    server.pages["/a"] = Reply(status=301, headers={"Location": target})
    assert failure(f"{server.url}/a").code in ("remote-redirect", "remote-unreachable")
    assert server.requests == ["/a"]


def test_a_redirect_to_another_host_carries_no_password(server: Server) -> None:
    with running() as other:
        target = other.url.replace("127.0.0.1", "localhost")
        server.pages["/a"] = Reply(status=302, headers={"Location": f"{target}/b"})
        server.pages["/c"] = Reply(status=302, headers={"Location": "/a"})
        other.pages["/b"] = b"end"
        url = server.url.replace("http://", "http://me:secret@")
        assert get(f"{url}/c", private=("localhost",))[1] == b"end"
        assert all("authorization" in headers for headers in server.headers)
        assert "authorization" not in other.headers[0]
        assert "secret" not in str(other.headers)


def test_the_same_origin_may_be_demanded(server: Server) -> None:
    with running() as other:
        other.pages["/b"] = b"end"
        server.pages["/a"] = Reply(status=302, headers={"Location": f"{other.url}/b"})
        found = failure(f"{server.url}/a", same_origin=True)
        assert found.code == "remote-redirect"
        assert other.requests == []


def test_a_server_that_says_nothing_is_given_up(server: Server) -> None:
    server.pages["/a"] = Reply(b"x", stall=30)
    found = failure(f"{server.url}/a", limits=Limits(http_timeout_seconds=0.2))
    assert isinstance(found, OutOfTime)
    assert "0.2 s (read)" in found.reason


def test_a_body_that_trickles_ends_with_the_deadline(server: Server) -> None:
    server.pages["/a"] = Reply(b"x" * 100_000, chunk=1, pause=0.05)  # more than an hour
    with pytest.raises((OutOfTime, TimeoutError)):
        get(f"{server.url}/a", seconds=0.5)


def test_headers_that_trickle_end_with_the_deadline() -> None:
    """No read ever times out, and no byte of the body ever comes."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def drip() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            try:
                while not over.wait(0.02):
                    peer.sendall(b"x")
            except OSError:
                return

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        with pytest.raises(TimeoutError):
            get(f"http://127.0.0.1:{listener.getsockname()[1]}/", seconds=0.5)
    finally:
        over.set()
        thread.join()
        listener.close()


def test_a_closed_port_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/a"
    found = failure(url)
    assert found.code == "remote-unreachable"
    assert found.reason and found.remedy


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a/b",
        "http://",
        "http:///x",
        "http://[::1",
        "http://a\0b/",
        "http://a:99999/",
        "x",
        "",
    ],
)
def test_a_bad_address_is_a_failure(url: str) -> None:
    assert failure(url).code in ("remote-address", "remote-unreachable")


def test_garbage_is_a_failure() -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(4096)
            peer.sendall(b"\x00\xff" * 100)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        assert failure(url).code == "remote-unreachable"
    finally:
        thread.join()
        listener.close()


def test_what_the_writer_raises_passes_through(server: Server) -> None:
    server.pages["/a"] = b"hello"

    def write(data: bytes) -> None:
        raise Refusal(f"{len(data)} bytes")

    async def run() -> None:
        http = HttpClient(LIMITS, Deadline("x", 20), SourceHosts(server.url))
        try:
            await http.get(f"{server.url}/a", write, most=100)
        finally:
            await http.close()

    with pytest.raises(Refusal, match="5 bytes"):
        asyncio.run(run())


def test_a_redirect_does_not_leave_tls() -> None:
    with pytest.raises(SourceFailure, match="is redirected to"):
        redirect_target("https://a.example/x", "http://a.example/x")
    assert redirect_target("http://a.example/x", "https://a.example/y") == "https://a.example/y"
    assert redirect_target("https://a.example/x", "/y") == "https://a.example/y"
