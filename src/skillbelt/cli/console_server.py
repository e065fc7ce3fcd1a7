"""The server of `skillbelt console`; it needs the extra `http`."""

from __future__ import annotations

import argparse
import html
import os
import sys
import webbrowser
from collections.abc import Mapping
from functools import partial
from urllib.parse import quote

from skillbelt.cli.output import print_json
from skillbelt.console.people import Person, ReadAccess
from skillbelt.console.serve import Served, make_private_root, serve_with_console
from skillbelt.console.sign_in import SignIns
from skillbelt.files.private import make_folder, replace_file
from skillbelt.permission.audit import user_name
from skillbelt.runtime.runtime import Runtime
from skillbelt.serving.sockets import ListenAddress, open_socket
from skillbelt.serving.tokens import TokenBook, new_token


async def serve_console(belt: Runtime, access: ReadAccess, args: argparse.Namespace) -> None:
    """Serve the console and the API until a signal arrives."""
    opened = open_socket(ListenAddress(args.host.lower(), args.port))
    port, token, sign_ins = opened.getsockname()[1], new_token(), SignIns()
    tokens = TokenBook.of(token)
    # A private path only if no one else needs to know the address: colleagues, or a provider.
    root = "" if args.access or args.origin else make_private_root()
    served = Served(
        host=args.host.lower(), port=port, origins=tuple(args.origin), access=access, root=root
    )
    base = f"http://{args.host}:{port}"
    url = f"{base}{root}"
    person = Person(user_name(), "admin")
    link = f"{url}/sign-in?token={sign_ins.make_link_token(person)}"
    said = {"url": url, "link": link, "token": token, "api": f"{base}/api/v1"}
    ready = partial(_announce, said, belt.settings.state_dir, args)
    await serve_with_console(belt, opened, tokens, served, sign_ins=sign_ins, ready=ready)


def _open(link: str, state_dir: str) -> None:
    """Open the link through a file, because all users can see the arguments of a program."""
    page = os.path.join(state_dir, "console.html")
    text = f'<!doctype html><meta http-equiv="refresh" content="0;url={html.escape(link)}">'
    make_folder(state_dir)
    replace_file(page, text.encode())
    webbrowser.open(f"file://{quote(page)}")


def _announce(said: Mapping[str, str], state_dir: str, args: argparse.Namespace) -> None:
    """Print the link that signs in once; this is the only place that shows it."""
    if args.json:
        print_json(dict(said))
        sys.stdout.flush()
    else:
        print(f"skillbelt: the console is at {said['link']}", file=sys.stderr)
        if not args.quiet:
            print(
                "skillbelt: the link signs in once; programs send Authorization: Bearer "
                f"{said['token']} to {said['api']}; Ctrl-C stops it",
                file=sys.stderr,
            )
        sys.stderr.flush()
    if args.open:
        _open(said["link"], state_dir)
