"""The way from inside a sandbox to the proxy: a port in there that the proxy outside listens at.

Run as `python3 -I -S -c TEXT DOOR FILTER COMMAND...` by any Python from 3.9 on; it needs nothing
else of the product. It opens the port, hands it out through the socket DOOR, and is replaced by the
command; it starts no process. FILTER is a program for system calls that the command gets, as
hexadecimal digits; `-` is none.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

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
_PATIENCE_SECONDS = 10.0
_SET_SECCOMP, _FILTER_MODE = 22, 2
_UNUSABLE = 125  # what `env` and `timeout` give when they themselves fail


def open_port(door: str) -> int:
    """The number of a port on this machine at which the proxy behind the door now listens."""
    with socket.socket(socket.AF_INET) as listener, socket.socket(socket.AF_UNIX) as way:
        listener.bind(("127.0.0.1", 0))
        listener.listen(_BACKLOG)
        way.settimeout(_PATIENCE_SECONDS)
        way.connect(door)
        socket.send_fds(way, [TAKEN], [listener.fileno()])
        if way.recv(1) != TAKEN:
            raise ConnectionError(None, "the proxy does not take the port")
        return int(listener.getsockname()[1])


def _environment(port: int) -> dict[str, str]:
    proxy = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "NO_PROXY": "", "no_proxy": "", "NODE_USE_ENV_PROXY": "1"}
    environment.update(dict.fromkeys(PROXY_VARIABLES, proxy))
    return environment


def _load_filter(program: bytes) -> None:
    import ctypes

    text = ctypes.create_string_buffer(program, len(program))
    # The number of its instructions, and where they are.
    header = (len(program) // 8).to_bytes(8, sys.byteorder)
    header += ctypes.addressof(text).to_bytes(8, sys.byteorder)
    words = [ctypes.c_ulong(one) for one in (_SET_SECCOMP, _FILTER_MODE)]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(*words, header, ctypes.c_ulong(0), ctypes.c_ulong(0)):
        raise OSError(ctypes.get_errno(), "the filter for system calls is not accepted")


def _become(argv: list[str], environment: dict[str, str]) -> int:
    # Python ignores these two for itself; the command must find them as any program does.
    for number in (signal.SIGPIPE, getattr(signal, "SIGXFSZ", signal.SIGPIPE)):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(argv[0], argv, environment)
    except (FileNotFoundError, NotADirectoryError):
        sys.stderr.write(f"{argv[0]}: command not found\n")
        return 127
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        return 126


def main(arguments: list[str]) -> int:
    """Open the port and become the command. Returns only when that fails."""
    if len(arguments) < 3:
        sys.stderr.write("usage: bridge.py DOOR FILTER COMMAND...\n")
        return _UNUSABLE
    door, program, *argv = arguments
    try:
        port = open_port(door)
        if program != "-":
            _load_filter(bytes.fromhex(program))
    except (OSError, ValueError) as error:
        sys.stderr.write(
            f"skillbelt: no way to the network: {getattr(error, 'strerror', '') or error}\n"
        )
        return _UNUSABLE
    return _become(argv, _environment(port))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
