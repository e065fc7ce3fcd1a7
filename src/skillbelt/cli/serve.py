"""`skillbelt serve`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from skillbelt.errors import ConfigError, MissingExtra
from skillbelt.runtime.runtime import Runtime
from skillbelt.settings import load_settings

if TYPE_CHECKING:
    from skillbelt.mcp.streams import Wire

_DEFAULT = "127.0.0.1:8765"
_MAX_TOKEN_BYTES = 4_096
Serving = Callable[[], Awaitable[None]]


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of `serve`."""
    parser.add_argument("what", choices=["mcp"], help="what to serve")
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        nargs="?",
        const=_DEFAULT,
        help=f"serve over HTTP (there: {_DEFAULT}) and not over standard input and output",
    )
    parser.add_argument(
        "--token",
        metavar="T",
        help="the token that clients must send, or @FILE that holds it (default: a new one)",
    )
    parser.add_argument(
        "--origin",
        metavar="URL",
        action="append",
        default=[],
        help="let pages of this origin call the HTTP server from a browser; may be repeated",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until the input ends or a signal comes."""
    if args.http is None and (args.token is not None or args.origin):
        raise ConfigError("--token and --origin are for HTTP; give --http too")
    if args.http is not None:
        return _serve(args, partial(_http, args=args))
    from skillbelt.mcp.streams import taken

    with taken() as wire:
        return _serve(args, partial(_stdio, wire=wire))


def _serve(args: argparse.Namespace, serving: Callable[[Runtime], Serving]) -> int:
    _need_extra()
    import anyio

    with Runtime(settings=load_settings(args.project, config=args.config)) as belt:
        anyio.run(serving(belt))
    return 0


def _need_extra() -> None:
    try:
        import mcp  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise MissingExtra("mcp", "`skillbelt serve mcp`") from error


def _stdio(belt: Runtime, wire: Wire) -> Serving:
    from skillbelt.mcp.stdio import serve_stdio

    return partial(serve_stdio, belt, wire)


def _http(belt: Runtime, args: argparse.Namespace) -> Serving:
    from skillbelt.mcp.http import Address, address_of, check_token, new_token, open_socket
    from skillbelt.mcp.http import serve_http as serve

    given = _read(args.token) if args.token is not None else ""
    token = check_token(given) if args.token is not None else new_token()
    address = address_of(args.http)
    listening = open_socket(address)
    found = Address(address.host, listening.getsockname()[1])
    ready = partial(_tell, found.url, "" if given else token, args)
    origins = [_origin(text) for text in args.origin]
    return partial(serve, belt, listening, found.host, token, origins=origins, ready=ready)


def _read(token: str) -> str:
    if not token.startswith("@"):
        return token
    try:
        with open(token[1:], "rb") as file:
            return file.read(_MAX_TOKEN_BYTES).decode("utf-8", "replace").strip()
    except OSError as error:
        raise ConfigError(f"{token[1:]}: can not be read: {error.strerror}") from error


def _origin(text: str) -> str:
    scheme, mark, rest = text.rstrip("/").partition("://")
    if scheme not in ("http", "https") or not mark or not rest or "/" in rest:
        raise ConfigError(f"--origin takes an origin as in https://app.example, not {text!r}")
    return f"{scheme}://{rest.lower()}"


def _tell(url: str, token: str, args: argparse.Namespace) -> None:
    """Where the server is, and a token that nobody knows yet: once, and nowhere else."""
    if args.json:
        from skillbelt.cli.output import print_json

        print_json({"url": url, "token": token} if token else {"url": url})
        sys.stdout.flush()
        return
    if not args.quiet:
        print(f"skillbelt: serving MCP at {url}; Ctrl-C ends", file=sys.stderr)
    if token:
        print(f"skillbelt: clients send Authorization: Bearer {token}", file=sys.stderr)
    sys.stderr.flush()
