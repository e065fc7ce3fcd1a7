"""Targets outside of a sandbox, and attempts to reach them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

from skillbelt.sandbox.linux.identity import current_identity, interpreter
from skillbelt.sandbox.network.proxy import Egress, bridge
from skillbelt.sandbox.protocol import Mount, Outcome, Sandbox, run
from skillbelt.testing.sandbox_suite import Place
from skillbelt.values import Capabilities

THROUGH_THE_PROXY_ALONE = b"from outside\nshut\nshut\nshut\n"
_TRIES = """
import socket, urllib.request
print(urllib.request.urlopen("http://127.0.0.1:{port}/").read().decode())
for call in (
    lambda: socket.create_connection(("127.0.0.1", {port}), 2),
    lambda: socket.socket(socket.AF_UNIX),
    lambda: urllib.request.urlopen("http://127.0.0.1:1/"),
):
    try:
        print("open", call())
    except OSError:
        print("shut")
"""


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"from outside")

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def _server() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), _Handler) as web:
        thread = threading.Thread(target=web.serve_forever, args=(0.05,))
        thread.start()
        yield web.server_port
        web.shutdown()
        thread.join()


def tried(
    sandbox: Sandbox, place: Place, processes: bool, shown: Callable[[str], Mount], door: str
) -> Outcome:
    """Reach a server by its name, then past the proxy, by a socket with a name, and another.

    `shown` says how the folder of the proxy is there inside, and `door` where its socket is then.
    """
    python, owner = interpreter(), current_identity().uid
    assert python is not None
    with (
        _server() as port,
        Egress([host := f"127.0.0.1:{port}"], allow_private=["127.0.0.1"], owner=owner) as egress,
    ):
        mounts = (
            Mount(place.folder, place.target, True),
            shown(egress.folder),
            *(Mount(folder, folder) for folder in python.folders),
        )
        job = place.python(
            _TRIES.format(port=port),
            mounts=mounts,
            bridge=bridge(door, python.path),
            capabilities=Capabilities(hosts=(host,), processes=processes),
        )
        return run(sandbox, job)
