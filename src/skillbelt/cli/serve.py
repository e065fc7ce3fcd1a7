"""`skillbelt serve`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

import anyio

from skillbelt.cli.output import print_json
from skillbelt.errors import ConfigError, MissingExtra
from skillbelt.files.handles import raise_limit
from skillbelt.runtime.runtime import Runtime
from skillbelt.settings import CHOICES, load_settings

_DEFAULT = "127.0.0.1:8765"
_MAX_TOKEN_BYTES = 4_096
_ON_TERMINAL = (
    "skillbelt: an MCP server that waits for a client on standard input. MCP clients start it "
    "themselves;\nlet yours run this command, or serve over HTTP with --http. Ctrl-C stops it."
)
Serving = Callable[[], Awaitable[None]]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `serve`."""
    parser.add_argument("what", metavar="mcp", choices=["mcp"], help="the protocol to serve")
    parser.add_argument(
        "--profile",
        choices=CHOICES["tool_profile"],
        help="the tools that clients are offered (default: the setting tool_profile)",
    )
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        nargs="?",
        const=_DEFAULT,
        help=f"serve over HTTP instead of standard input and output (default address: {_DEFAULT})",
    )
    parser.add_argument(
        "--token",
        metavar="T",
        help="the token that clients must send, or @FILE with the token (default: a new one)",
    )
    parser.add_argument(
        "--origin",
        metavar="URL",
        action="append",
        default=[],
        help="let pages of this origin call the HTTP server from a browser; may be repeated",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until the input ends or a signal arrives."""
    if args.http is None and (args.token is not None or args.origin):
        raise ConfigError("--token and --origin are for HTTP; add --http")
    if args.http is not None:
        return _serve(args, partial(_prepare_http, args=args))
    if sys.stdin is not None and sys.stdin.isatty() and not args.quiet:
        print(_ON_TERMINAL, file=sys.stderr, flush=True)
    # Before the server is imported, so that no import can write to the client.
    with take_over_stdio() as (read_fd, write_fd):
        return _serve(args, partial(_prepare_stdio, read_fd=read_fd, write_fd=write_fd))


def _serve(args: argparse.Namespace, prepare: Callable[[Runtime], Serving]) -> int:
    raise_limit()
    chosen = {} if args.profile is None else {"tool_profile": args.profile}
    reload = partial(load_settings, args.project, config=args.config, overrides=chosen)
    with Runtime(settings=reload(), reload=reload) as belt:
        if belt.settings.skills:
            belt.look()  # a client must not find out later that a required skill is missing
        try:
            serving = prepare(belt)
        except ImportError as error:
            raise MissingExtra("mcp", "`skillbelt serve mcp`") from error
        anyio.run(serving)
    return 0


def _prepare_stdio(belt: Runtime, *, read_fd: int, write_fd: int) -> Serving:
    from skillbelt.mcp.stdio import serve_stdio  # extra: mcp

    return partial(serve_stdio, belt, read_fd, write_fd)


def _prepare_http(belt: Runtime, args: argparse.Namespace) -> Serving:
    from skillbelt.mcp import http  # extra: mcp

    given = _read_token(args.token) if args.token is not None else ""
    token = http.check_token(given) if args.token is not None else http.new_token()
    address = http.parse_address(args.http)
    listening = http.open_socket(address)
    bound = address._replace(port=listening.getsockname()[1])
    ready = partial(_announce, bound.url, "" if given else token, args)
    origins = [_parse_origin(text) for text in args.origin]
    return partial(
        http.serve_http, belt, listening, bound.host, token, origins=origins, ready=ready
    )


@contextmanager
def take_over_stdio() -> Iterator[tuple[int, int]]:
    """Give exclusive descriptors of standard input and output.

    Meanwhile other readers in the process get EOF, and other writers write to stderr.
    """
    try:
        read_fd, write_fd = os.dup(0), os.dup(1)
    except OSError as error:
        raise ConfigError(
            "standard input or output is closed: start this from an MCP client, or give --http"
        ) from error
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    try:
        yield read_fd, write_fd
    finally:
        os.dup2(read_fd, 0)
        os.dup2(write_fd, 1)
        # A thread may still read from the other one, so that stays open until the process ends.
        os.close(write_fd)


def _read_token(token: str) -> str:
    if not token.startswith("@"):
        return token
    try:
        with open(token[1:], "rb") as file:
            return file.read(_MAX_TOKEN_BYTES).decode("utf-8", "replace").strip()
    except OSError as error:
        raise ConfigError(f"{token[1:]}: cannot be read: {error.strerror}") from error


def _parse_origin(text: str) -> str:
    scheme, mark, rest = text.rstrip("/").partition("://")
    if scheme not in ("http", "https") or not mark or not rest or "/" in rest:
        raise ConfigError(f"--origin takes an origin as in https://app.example, not {text!r}")
    return f"{scheme}://{rest.lower()}"


def _announce(url: str, token: str, args: argparse.Namespace) -> None:
    """Print the address of the server and a new token; this is the only place that shows it."""
    if args.json:
        print_json({"url": url, "token": token} if token else {"url": url})
        sys.stdout.flush()
        return
    if not args.quiet:
        print(f"skillbelt: serving MCP at {url}; Ctrl-C stops it", file=sys.stderr)
    if token:
        print(f"skillbelt: clients send Authorization: Bearer {token}", file=sys.stderr)
    sys.stderr.flush()
