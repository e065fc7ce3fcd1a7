"""The address of a server, and the socket that listens on it."""

from __future__ import annotations

import errno
import logging
import socket
import time
from typing import Any, NamedTuple

from skillbelt.errors import ConfigError

DEFAULT = "127.0.0.1:8765"
# No handle or no memory for a connection.
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_SECONDS = 0.01
_LOG_SECONDS = 60.0
_log = logging.getLogger("skillbelt")


class ListenAddress(NamedTuple):
    """The address to listen on; an IPv6 address is in brackets."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """Return the URL of the server, without a path."""
        return f"http://{self.host}:{self.port}"


def parse_address(text: str) -> ListenAddress:
    """Parse `HOST:PORT`, `HOST` or `:PORT`; ConfigError for anything else."""
    default, _, port_text = DEFAULT.rpartition(":")
    host, mark, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not mark:
        host, port = (text, port_text) if not text.isdecimal() else (default, text)
    if not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise ConfigError(f"--http takes HOST:PORT, not {text!r}; for instance {DEFAULT}")
    return ListenAddress((host or default).lower(), int(port))


def open_socket(address: ListenAddress) -> socket.socket:
    """Listen on the address; ConfigError when that fails."""
    host = address.host.removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, address.port), family=family, backlog=512)
        # Accepted sockets inherit it. Without it Nagle's algorithm delays each answer by 40 ms.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return PatientSocket(fileno=made.detach())
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {address.host}:{address.port}: {error.strerror or error}; "
            "give another address with --http HOST:PORT"
        ) from error


class PatientSocket(socket.socket):
    """A listening socket that leaves clients in the backlog while the process is out of handles.

    asyncio would log each failure with a traceback and multiply its attempts.
    """

    _logged_at = -float("inf")

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; BlockingIOError when there is none, or no handle for it."""
        try:
            return super().accept()
        except OSError as error:
            if error.errno not in _SHORTAGES:
                raise
            if time.monotonic() - self._logged_at > _LOG_SECONDS:
                self._logged_at = time.monotonic()
                _log.warning("a connection waits: %s (see ulimit -n)", error.strerror)
            # asyncio would retry at once: the connection stays in the backlog.
            time.sleep(_PAUSE_SECONDS)
            raise BlockingIOError(errno.EAGAIN, error.strerror) from error
