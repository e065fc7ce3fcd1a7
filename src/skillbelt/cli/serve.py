"""`skillbelt serve`."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

import anyio

from skillbelt.cli.console import read_rules
from skillbelt.cli.mcp import print_snippets
from skillbelt.cli.output import print_json
from skillbelt.errors import ConfigError, MissingExtra
from skillbelt.files.handles import raise_limit
from skillbelt.runtime.runtime import Runtime
from skillbelt.serving.sockets import DEFAULT, open_socket, parse_address
from skillbelt.serving.tokens import TokenBook, check_token, new_token, read_tokens
from skillbelt.settings import CHOICES, load_settings

_MAX_TOKEN_BYTES = 4_096
Serving = Callable[[], Awaitable[None]]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `serve`."""
    parser.add_argument(
        "what",
        metavar="mcp|http",
        choices=["mcp", "http"],
        help="the protocol to serve: MCP, or a JSON API over HTTP",
    )
    parser.add_argument(
        "--profile",
        choices=CHOICES["tool_profile"],
        help="the tools that clients are offered (default: the setting tool_profile)",
    )
    parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        nargs="?",
        const=DEFAULT,
        help="the address to serve over HTTP; `serve mcp` uses standard input and output without "
        f"it (default address: {DEFAULT})",
    )
    parser.add_argument(
        "--stdio",
        action="store_true",
        help="serve MCP on standard input and output, even if that is a terminal",
    )
    parser.add_argument(
        "--token",
        metavar="T",
        help="the token that clients must send, or @FILE with the token (default: a new one)",
    )
    parser.add_argument(
        "--tokens",
        metavar="FILE",
        help="with `serve http`: a file of tokens, each for an app and a user",
    )
    parser.add_argument(
        "--access",
        metavar="FILE",
        help="with `serve http`: who may sign in to the pages below /console without a token",
    )
    parser.add_argument(
        "--host-name",
        metavar="NAME",
        action="append",
        default=[],
        help="a host name, with its port, by which clients reach the HTTP server; may be repeated",
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
    if args.what == "http" and args.http is None:
        args.http = DEFAULT
    if args.http is None and (args.token is not None or args.origin or args.host_name):
        raise ConfigError("--token, --origin and --host-name are for HTTP; add --http")
    if args.stdio and args.http is not None:
        raise ConfigError("--stdio serves on standard input and output; leave out --http")
    if args.tokens is not None and (args.what != "http" or args.token is not None):
        raise ConfigError("--tokens is in place of --token: `skillbelt serve http --tokens FILE`")
    if args.access is not None and args.what != "http":
        raise ConfigError("--access is for pages: `skillbelt serve http --access FILE`")
    if args.http is not None:
        return _serve(args, partial(_prepare_http, args=args))
    if not args.stdio and sys.stdin is not None and sys.stdin.isatty():
        # No client types at a terminal: explain to a person what this command is for.
        print_snippets(args)
        return 0
    # Before the server is imported, so that no import can write to the client.
    with take_over_stdio() as (read_fd, write_fd):
        return _serve(args, partial(_prepare_stdio, read_fd=read_fd, write_fd=write_fd))


def _serve(args: argparse.Namespace, prepare: Callable[[Runtime], Serving]) -> int:
    raise_limit()
    chosen = {} if args.profile is None else {"tool_profile": args.profile}
    reload = partial(load_settings, args.project, config=args.config, overrides=chosen)
    with Runtime(settings=reload(), reload=reload) as belt:
        if belt.settings.skills:
            belt.look()  # a client must not learn later that a required skill is missing
        if belt.settings.objects:  # in parallel: the object store may not answer for minutes
            forget = belt.workbench.forget_deleted
            threading.Thread(target=forget, name="skillbelt-forget", daemon=True).start()
        try:
            serving = prepare(belt)
        except ImportError as error:
            raise MissingExtra(args.what, f"`skillbelt serve {args.what}`") from error
        anyio.run(serving)
    return 0


def _prepare_stdio(belt: Runtime, *, read_fd: int, write_fd: int) -> Serving:
    from skillbelt.mcp.stdio import serve_stdio  # extra: mcp

    return partial(serve_stdio, belt, read_fd, write_fd)


def _prepare_http(belt: Runtime, args: argparse.Namespace) -> Serving:
    address = parse_address(args.http)
    origins = [_parse_origin(text) for text in args.origin]
    tokens, shown = _find_tokens(args)
    opened = open_socket(address)
    bound = address._replace(port=opened.getsockname()[1])
    if args.what == "mcp":
        from skillbelt.mcp import http  # extra: mcp

        return partial(
            http.serve_http,
            belt,
            opened,
            bound.host,
            tokens,
            origins=origins,
            hosts=args.host_name,
            ready=partial(_announce, bound.url + http.PATH, shown, args),
        )
    # The pages too: they are for holders of a token that is not bound to a user.
    from skillbelt.console import serve as console  # extra: http

    served = console.Served(
        host=bound.host,
        port=bound.port,
        origins=tuple(origins),
        hosts=tuple(args.host_name),
        access=read_rules(args.access),
        root=console.MOUNTED,
        listens=False,
    )
    ready = partial(_announce, bound.url, shown, args)
    return partial(console.serve_with_console, belt, opened, tokens, served, ready=ready)


def _find_tokens(args: argparse.Namespace) -> tuple[TokenBook, str]:
    """Return the tokens to accept, and a new one to show."""
    if args.tokens is not None:
        return read_tokens(args.tokens), ""
    given = _read_token(args.token) if args.token is not None else ""
    token = check_token(given) if args.token is not None else new_token()
    return TokenBook.of(token), "" if given else token


@contextmanager
def take_over_stdio() -> Iterator[tuple[int, int]]:
    """Yield exclusive descriptors of standard input and output.

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
        what = "MCP" if args.what == "mcp" else "skills"
        print(f"skillbelt: serving {what} at {url}; Ctrl-C stops it", file=sys.stderr)
    if token:
        print(f"skillbelt: clients send Authorization: Bearer {token}", file=sys.stderr)
    sys.stderr.flush()
