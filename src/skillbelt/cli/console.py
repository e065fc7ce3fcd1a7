"""`skillbelt console`."""

from __future__ import annotations

import argparse
import html
import os
import sys
import webbrowser
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import quote

import anyio

from skillbelt.cli.output import print_json
from skillbelt.errors import ConfigError, MissingExtra
from skillbelt.files.handles import raise_limit
from skillbelt.files.private import make_folder, replace_file
from skillbelt.permission.audit import user_name
from skillbelt.runtime.runtime import Runtime
from skillbelt.serving.tokens import TokenBook, new_token
from skillbelt.settings import load_settings

if TYPE_CHECKING:
    from types import ModuleType

    from skillbelt.console.people import AccessRules

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
        help="a file that says which proxy signs people in, and their roles",
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
        serve = import_module("skillbelt.console.serve")
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
        anyio.run(_serve, belt, serve, access, args)
    return 0


def read_rules(path: str | None) -> AccessRules:
    """Read the access file, if one is named."""
    people = import_module("skillbelt.console.people")
    found: AccessRules = people.read_access(path) if path else people.AccessRules()
    return found


async def _serve(
    belt: Runtime, serve: ModuleType, access: AccessRules, args: argparse.Namespace
) -> None:
    api, listening = (import_module(f"skillbelt.serving.{one}") for one in ("api", "listening"))
    opened = listening.open_socket(listening.ListenAddress(args.host.lower(), args.port))
    port, token, sign_ins = opened.getsockname()[1], new_token(), serve.SignIns()
    tokens = TokenBook.of(token)
    served = serve.Served(
        host=args.host.lower(), port=port, origins=tuple(args.origin), access=access
    )
    build = partial(serve.build_console, belt=belt, tokens=tokens, sign_ins=sign_ins, served=served)
    url = f"http://{args.host}:{port}"
    person = import_module("skillbelt.console.people").Person(user_name(), "admin")
    link = f"{url}/sign-in?token={sign_ins.make_link_token(person)}"
    ready = partial(_announce, link, url, token, belt.settings.state_dir, args)
    await api.serve_api(
        belt,
        opened,
        args.host.lower(),
        tokens,
        origins=args.origin,
        ready=ready,
        endpoints=serve.ALL_ENDPOINTS,
        beside=build,
    )


def _open(link: str, state_dir: str) -> None:
    """Open the link through a file: every user sees the words that a program is started with."""
    page = os.path.join(state_dir, "console.html")
    text = f'<!doctype html><meta http-equiv="refresh" content="0;url={html.escape(link)}">'
    make_folder(state_dir)
    replace_file(page, text.encode())
    webbrowser.open(f"file://{quote(page)}")


def _announce(link: str, url: str, token: str, state_dir: str, args: argparse.Namespace) -> None:
    """Print the link that signs in once; this is the only place that shows it."""
    if args.json:
        print_json({"url": url, "link": link, "token": token})
        sys.stdout.flush()
    else:
        print(f"skillbelt: the console is at {link}", file=sys.stderr)
        if not args.quiet:
            print(
                "skillbelt: the link signs in once; programs send Authorization: Bearer "
                f"{token} to {url}/api/v1; Ctrl-C stops it",
                file=sys.stderr,
            )
        sys.stderr.flush()
    if args.open:
        _open(link, state_dir)
