"""Connect a sandbox to the proxy outside: open a port inside, on which the proxy accepts.

Run as `python3 -I -S -c TEXT DOOR FILTER COMMAND...`. It opens the port, passes it out through the
Unix socket DOOR, and becomes the command; it starts no process. FILTER is the seccomp filter of the
command, in hexadecimal; `-` for none.
"""

from __future__ import annotations

import os
import socket
import sys

from skillbelt.sandbox.inside.command import FAILED, become, load_filter, reset_signals

PROXY_VARIABLES = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
)
TAKEN = b"1"
_BACKLOG = 64
_TIMEOUT_SECONDS = 10.0


def open_port(door: str) -> int:
    """Open a local port on which the proxy behind the door accepts; return its number."""
    with socket.socket(socket.AF_INET) as listener, socket.socket(socket.AF_UNIX) as way:
        listener.bind(("127.0.0.1", 0))
        listener.listen(_BACKLOG)
        way.settimeout(_TIMEOUT_SECONDS)
        way.connect(door)
        socket.send_fds(way, [TAKEN], [listener.fileno()])
        if way.recv(1) != TAKEN:
            raise ConnectionError(None, "the proxy does not take the port")
        return int(listener.getsockname()[1])


def proxied(environment: dict[str, str], port: int) -> dict[str, str]:
    """Return the environment with the variables that point clients to the proxy."""
    proxy = dict.fromkeys(PROXY_VARIABLES, f"http://127.0.0.1:{port}")
    return {**environment, **proxy, "NO_PROXY": "", "no_proxy": "", "NODE_USE_ENV_PROXY": "1"}


def main(arguments: list[str]) -> int:
    """Open the port and become the command. Returns only when that fails."""
    if len(arguments) < 3:
        sys.stderr.write("usage: bridge.py DOOR FILTER COMMAND...\n")
        return FAILED
    door, program, *argv = arguments
    try:
        port = open_port(door)
        if program != "-":
            load_filter(bytes.fromhex(program))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", "") or error
        sys.stderr.write(f"skillbelt: no way to the network: {reason}\n")
        return FAILED
    reset_signals()
    return become(argv, proxied(dict(os.environ), port))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
