"""A git server over HTTP on this machine: `git http-backend` behind a small server."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit


class GitServer:
    """Serves every repository below a folder. `moved` redirects: an old path to an address.

    With `error` the server answers every request with that error of git's protocol.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.moved: dict[str, str] = {}
        self.error = ""
        self.requests: list[str] = []
        handler = type("OwnGitHandler", (GitHandler,), {"desk": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def serve(self) -> None:
        self._http.serve_forever(poll_interval=0.01)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


class GitHandler(BaseHTTPRequestHandler):
    """Passes a request on to git as a web server does."""

    desk: GitServer

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            self._answer(b"".join(self._chunks()))
        else:
            self._answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))))

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _answer(self, body: bytes) -> None:
        self.desk.requests.append(f"{self.command} {self.path}")
        parts = urlsplit(self.path)
        for old, new in self.desk.moved.items():
            if parts.path.startswith(old):
                self.send_response(301)
                self.send_header("Location", new + self.path.removeprefix(old))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
        if self.desk.error:
            self._refuse(f"ERR {self.desk.error}".encode())
            return
        environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "GIT_PROJECT_ROOT": str(self.desk.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "PATH_INFO": parts.path,
            "QUERY_STRING": parts.query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(
            ["git", "http-backend"], env=environment, input=body, capture_output=True, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _refuse(self, line: bytes) -> None:
        said = b"001e# service=git-upload-pack\n0000" + b"%04x" % (len(line) + 4) + line + b"0000"
        self.send_response(200)
        self.send_header("Content-Type", "application/x-git-upload-pack-advertisement")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(folder: Path) -> Iterator[GitServer]:
    """A server for as long as the block lasts."""
    server = GitServer(folder)
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()
