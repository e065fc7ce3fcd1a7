"""`skillbelt console`."""

from __future__ import annotations

import argparse
from functools import partial

import anyio

from skillbelt.console.people import AccessFile, ReadAccess, admit_tokens_only
from skillbelt.errors import ConfigError, MissingExtra
from skillbelt.files.handles import raise_limit
from skillbelt.runtime.runtime import Runtime
from skillbelt.settings import load_settings

PORT = 8766


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `console`."""
    parser.add_argument(
        "--port",
        type=_port,
        default=PORT,
        metavar="N",
        help=f"the port to listen on; 0 takes any that is free (default: {PORT})",
    )
    parser.add_argument("--open", action="store_true", help="open the link in a browser")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="the address to listen on (default: 127.0.0.1)",
    )
    parser.add_argument(
        "--access",
        metavar="FILE",
        help="a file with the ways to sign in, and the roles of people",
    )
    parser.add_argument(
        "--origin",
        metavar="URL",
        action="append",
        default=[],
        help="the address of a proxy before the console, such as https://skills.example; may be "
        "repeated",
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Serve the console until a signal arrives."""
    try:
        from skillbelt.cli.console_server import serve_console  # extra: http
    except ModuleNotFoundError as error:
        raise MissingExtra("http", "`skillbelt console`") from error
    raise_limit()
    access = read_rules(args.access)
    if args.host not in ("127.0.0.1", "localhost", "::1", "[::1]") and not args.access:
        raise ConfigError(
            f"--host {args.host}: other machines could reach the console; name who may sign in "
            "with --access FILE, or leave --host out"
        )
    reload = partial(load_settings, args.project, config=args.config)
    with Runtime(settings=reload(), reload=reload) as belt:
        belt.look()
        anyio.run(serve_console, belt, access, args)
    return 0


def read_rules(path: str | None) -> ReadAccess:
    """Return the access rules, read at each request from the file if one is named."""
    return AccessFile(path) if path else admit_tokens_only
