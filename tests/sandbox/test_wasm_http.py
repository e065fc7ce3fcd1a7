"""The network of a guest: asked for, made by the runtime, through the proxy of the run alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from skillbelt.sandbox.linux.identity import current_identity
from skillbelt.sandbox.network.proxy import Egress, bridge
from skillbelt.sandbox.protocol import Mount, Outcome, run
from skillbelt.sandbox.wasm.http import GuestFetcher, proxy_socket
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.testing.sandbox_suite import Place
from skillbelt.values import Capabilities
from tests.bounds import bounds
from tests.handles import no_handle_left
from tests.sandbox import guests

SOON = 30.0


class Handler(BaseHTTPRequestHandler):
    """Says what it was asked."""

    seen: ClassVar[list[tuple[str, str, dict[str, str], bytes]]] = []
    over: ClassVar[threading.Event] = threading.Event()

    def answer(self) -> None:
        size = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(size)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.seen.append((self.command, self.path, headers, body))
        if self.path == "/slow":
            self.over.wait()
        moved = self.path == "/moved"
        self.send_response(302 if moved else 200)
        if moved:
            self.send_header("Location", "/other")
        self.send_header("X-One", "1")
        self.end_headers()
        large = b"x" * 3_000_000 if self.path == "/large" else b"A" + body
        with suppress(ConnectionError):
            self.wfile.write(b"" if self.path == "/empty" else large)

    do_GET = do_POST = do_PUT = answer

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        thread = threading.Thread(target=web.serve_forever, args=(0.05,))
        thread.start()
        yield web.server_port
        Handler.over.set()
        web.shutdown()
        thread.join()


@pytest.fixture
def fetcher(server: int) -> Iterator[GuestFetcher]:
    Handler.seen.clear()
    with Egress([f"127.0.0.1:{server}"], allow_private=["127.0.0.1"]) as egress:
        yield GuestFetcher(egress.socket_path, 2**20)


def ask(fetcher: GuestFetcher, url: str, method: str = "GET", **more: Any) -> Any:
    asked = {"method": method, "url": url, "headers": more.get("headers", [])}
    return fetcher.fetch(asked, more.get("body", b""), time.monotonic() + more.get("left", SOON))


def test_a_request_is_made(fetcher: GuestFetcher, server: int) -> None:
    headers = [["X-Mine", "a"], ["X-Mine", "b"], ["Host", "evil"], ["Content-Length", "999"]]
    url = f"http://127.0.0.1:{server}/a?b=c"
    answer = ask(fetcher, url, "POST", headers=headers, body=b"body")
    assert (answer.head["status"], answer.body) == (200, b"Abody")
    assert ("x-one", "1") in answer.head["headers"]
    method, path, sent, body = Handler.seen[0]
    assert (method, path, body) == ("POST", "/a?b=c", b"body")
    assert sent["x-mine"] == "a, b"
    assert sent["host"] == f"127.0.0.1:{server}" and sent["content-length"] == "4"


def test_a_second_request_goes_the_same_way(fetcher: GuestFetcher, server: int) -> None:
    for _ in range(3):
        assert ask(fetcher, f"http://127.0.0.1:{server}/").body == b"A"


def test_a_redirect_is_given_not_followed(fetcher: GuestFetcher, server: int) -> None:
    answer = ask(fetcher, f"http://127.0.0.1:{server}/moved")
    assert answer.head["status"] == 302
    assert len(Handler.seen) == 1


def test_a_host_that_was_not_granted_is_not_reached(fetcher: GuestFetcher, server: int) -> None:
    """Attacks 46 and 49: the proxy refuses any request of the guest."""
    for url in ("http://127.0.0.1:1/", "http://169.254.169.254/", "http://localhost/"):
        answer = ask(fetcher, url)
        assert answer.head.get("status") == 403 or "error" in answer.head
    assert "error" in ask(fetcher, f"https://127.0.0.1:{server}/").head  # no TLS there
    assert "error" in ask(fetcher, "https://example.com/").head
    assert Handler.seen == []


@pytest.mark.parametrize(
    ("method", "url"),
    [
        ("GET", "ftp://127.0.0.1/"),
        ("GET", "file:///etc/passwd"),
        ("GET", "http://user:word@127.0.0.1/"),
        ("GET", "http:///x"),
        ("GET", "http://127.0.0.1/a b"),
        ("GET", "http://127.0.0.1/\r\nX: y"),
        ("GET", "http://127.0.0.1/é"),
        ("GET", "http://127.0.0.1:99999/"),
        ("GET", "http://[::1/"),
        ("GET", "http://127.0.0.1/" + "x" * 10000),
        ("CONNECT", "http://127.0.0.1/"),
        ("GE T", "http://127.0.0.1/"),
        ("", ""),
    ],
)
def test_what_is_no_request_is_an_error(fetcher: GuestFetcher, method: str, url: str) -> None:
    assert "error" in ask(fetcher, url, method).head
    assert Handler.seen == []


@pytest.mark.parametrize(
    "headers", [[["a b", "c"]], [["a", "b\r\nc: d"]], [["a", "\0"]], [["", "x"]], [["one"]], [[1]]]
)
def test_headers_that_would_be_more_than_headers_are_refused(
    fetcher: GuestFetcher, server: int, headers: list[list[object]]
) -> None:
    assert "error" in ask(fetcher, f"http://127.0.0.1:{server}/", headers=headers).head
    assert Handler.seen == []


def test_an_answer_that_is_too_long_is_an_error(fetcher: GuestFetcher, server: int) -> None:
    answer = ask(fetcher, f"http://127.0.0.1:{server}/large")
    assert "more than 1,048,576 bytes" in answer.head["error"]


def test_the_time_of_the_run_is_kept(fetcher: GuestFetcher, server: int) -> None:
    assert "error" in ask(fetcher, f"http://127.0.0.1:{server}/slow", left=0.3).head


def test_closing_ends_what_is_going_on(fetcher: GuestFetcher, server: int) -> None:
    found: list[Any] = []
    url = f"http://127.0.0.1:{server}/slow"
    thread = threading.Thread(target=lambda: found.append(ask(fetcher, url)))
    thread.start()
    while not Handler.seen:
        time.sleep(0.01)
    fetcher.close()
    thread.join(SOON)
    assert "error" in found[0].head
    assert "the run is over" in ask(fetcher, url).head["error"]


def test_the_door_is_found_on_the_host(place: Place) -> None:
    mounts = (Mount("/somewhere/net", "/run/net"), Mount("/other", "/run"))
    job = place.job("x", mounts=mounts, bridge=bridge("/run/net/proxy.sock"))
    assert proxy_socket(job) == "/somewhere/net/proxy.sock"
    assert proxy_socket(job._replace(bridge=())) == ""
    assert proxy_socket(job._replace(bridge=bridge("/elsewhere/proxy.sock"))) == ""


# --- with a real guest ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sandbox() -> Iterator[WasmSandbox]:
    made = WasmSandbox()
    yield made
    made.close()


def fetched(sandbox: WasmSandbox, place: Place, host: str, data: bytes, **fields: Any) -> Outcome:
    owner = current_identity().uid
    with Egress([host], allow_private=["127.0.0.1"], owner=owner) as egress:
        job = guests.job(place, data, bridge=bridge("/run/net/proxy.sock"), **fields)
        mounts = (*job.mounts, Mount(egress.folder, "/run/net"))
        return run(sandbox, job._replace(mounts=mounts, capabilities=Capabilities(hosts=(host,))))


def test_a_guest_gets_what_it_may_reach(sandbox: WasmSandbox, place: Place, server: int) -> None:
    host = f"127.0.0.1:{server}"
    for path, code in (("/", ord("A")), ("/empty", 201), ("/large", ord("x"))):
        outcome = fetched(sandbox, place, host, guests.fetching(f"http://{host}{path}"))
        assert outcome.exit_code == code, outcome
    assert outcome.enforced["network"] == "single requests, proxy only"
    posted = guests.fetching(f"http://{host}/", "POST", "body")
    assert fetched(sandbox, place, host, posted).exit_code == ord("A")
    assert Handler.seen[-1][3] == b"body"


def test_a_guest_does_not_get_what_it_may_not(
    sandbox: WasmSandbox, place: Place, server: int
) -> None:
    """Neither another host, nor anything without a grant."""
    url = f"http://127.0.0.1:{server}/"
    refused = fetched(sandbox, place, "example.com", guests.fetching(url))
    assert refused.exit_code != ord("A")
    none = run(sandbox, guests.job(place, guests.fetching(url)))
    assert none.exit_code == 200
    assert none.enforced["network"].startswith("none")


def test_a_guest_that_waits_for_an_answer_is_ended(
    sandbox: WasmSandbox, place: Place, server: int
) -> None:
    host = f"127.0.0.1:{server}"
    data = guests.fetching(f"http://{host}/slow")
    assert fetched(sandbox, place, host, data, timeout_seconds=0.5).timed_out


def test_an_answer_is_bounded(sandbox: WasmSandbox, place: Place, server: int) -> None:
    host = f"127.0.0.1:{server}"
    limits = bounds(max_fetched_bytes=1000)
    data = guests.fetching(f"http://{host}/large")
    assert fetched(sandbox, place, host, data, limits=limits).exit_code == 200


def test_no_port_and_no_handle_stays_behind(
    sandbox: WasmSandbox, place: Place, server: int
) -> None:
    host = f"127.0.0.1:{server}"
    data = guests.fetching(f"http://{host}/")
    fetched(sandbox, place, host, data)
    with no_handle_left():
        for _ in range(3):
            fetched(sandbox, place, host, data)
