"""`skillbelt mcp`: add the server to the settings of MCP clients, and remove it."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from typing import NamedTuple

from skillbelt.cli.keyboard import Burst, Keyboard, Menu, MenuRow, can_ask
from skillbelt.cli.output import print_json, print_table, say
from skillbelt.errors import (
    ConfigError,
    MissingExtra,
    PermissionDenied,
    SkillbeltError,
    UsageError,
)
from skillbelt.files.contain import inside
from skillbelt.mcp.client_edits import CannotEdit, drop_entry, find_entry, read_settings
from skillbelt.mcp.client_files import (
    ClientFile,
    read_client_file,
    show_changes,
    write_client_file,
)
from skillbelt.mcp.clients import (
    CLIENTS,
    ConfigScope,
    McpClient,
    find_command,
    find_file,
    find_spot,
    group_snippets,
    make_snippet,
    put_server,
    server_words,
)
from skillbelt.settings import Settings, load_settings
from skillbelt.text import exact, one_line

SCOPES: tuple[ConfigScope, ...] = ("user", "project")
_YES = MenuRow("yes", "change the file", ("y",))
_NO = MenuRow("no", "leave it as it is")


class ClientTarget(NamedTuple):
    """A client's file in one scope. `fence` is the folder that nothing may lead out of."""

    client: McpClient
    scope: ConfigScope
    path: str
    fence: str


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mcp`."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=("clients", "install", "uninstall"),
        default="clients",
        help="what to do (default: clients)",
    )
    parser.add_argument(
        "client",
        nargs="?",
        metavar="CLIENT",
        choices=tuple(CLIENTS),
        help=f"the client: {', '.join(CLIENTS)}",
    )
    parser.add_argument(
        "--scope",
        choices=SCOPES,
        help="your own file of the client, or that of the project (default: user)",
    )
    parser.add_argument(
        "--command",
        metavar="CMD",
        help="the program that the client starts (default: this one, by its absolute path)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done, and change nothing"
    )
    parser.add_argument("--yes", action="store_true", help="change the file without a question")


def run(args: argparse.Namespace) -> int:
    """List the clients, or change the file of one."""
    settings = load_settings(args.project, config=args.config, leave_strangers=True)
    if args.action == "clients":
        return _list(settings, args)
    if args.client is None:
        raise UsageError(f"mcp {args.action} needs a CLIENT: {', '.join(CLIENTS)}")
    target = _find_target(args.client, args.scope, settings)
    if args.action == "uninstall":
        return _change(target, settings, args, None)
    command, problem = find_command()
    if args.command is not None:
        command, problem = [args.command], ""
    if problem:
        say(f"skillbelt: {one_line(command[0])}: {problem}", args)
    if not args.dry_run and importlib.util.find_spec("mcp") is None:
        raise MissingExtra("mcp", "the server that the client starts")
    return _change(target, settings, args, server_words(command, target.scope, settings))


def _find_target(name: str, scope: ConfigScope | None, settings: Settings) -> ClientTarget:
    client, scope = CLIENTS[name], scope or "user"
    path = find_file(client, scope, settings)
    if not path:
        raise UsageError(
            f"{client.title} has no separate file for a project; --scope user takes the "
            "user's (`skillbelt mcp clients` lists the files)"
        )
    return ClientTarget(client, scope, path, _fence(scope, settings))


def _fence(scope: ConfigScope, settings: Settings) -> str:
    return (settings.worktree or settings.project) if scope == "project" else ""


def _change(
    target: ClientTarget, settings: Settings, args: argparse.Namespace, words: list[str] | None
) -> int:
    """Add the server with these words as its command; remove it if there are none."""
    client = target.client
    file = read_client_file(target.path, target.fence)
    document = read_settings(file.text, client.format, target.path)
    spot = find_spot(client, document)
    there = find_entry(document, spot) is not None
    try:
        if words is None:
            text = drop_entry(file.text, client.format, spot)
        else:
            text = put_server(file.text, client, words)
    except CannotEdit:
        raise _cannot(target, words) from None
    changed = text != file.text
    action = ("removed" if words is None else "updated" if there else "added") if changed else ""
    diff = show_changes(file, text)
    if changed:
        _say_where(file, settings, args)
        _show(diff, args)
        if not args.dry_run:
            _ask(target, args)
            write_client_file(file, text, target.fence)
    _report(target, action, diff, args)
    return 0


def _cannot(target: ClientTarget, words: list[str] | None) -> ConfigError:
    error = ConfigError(
        f"{one_line(target.path)}: is valid, but written in a way that cannot be changed here "
        "without losing something; it was left as it is"
    )
    snippet = make_snippet(target.client, words) if words else "the entry `skillbelt`"
    error.remedy = f"{'add' if words else 'remove'} by hand: {snippet}"
    if words:
        print(f"Add this by hand:\n{snippet}", file=sys.stderr)
    return error


def _say_where(file: ClientFile, settings: Settings, args: argparse.Namespace) -> None:
    """Report the target of a link, and whether it is outside the user's home."""
    if file.exists and os.path.islink(file.path):
        outside = "" if inside(file.real, settings.home) else ", outside your home folder"
        say(f"{one_line(file.path)} is a link to {one_line(file.real)}{outside}", args)


def _show(diff: str, args: argparse.Namespace) -> None:
    """Print the difference; with --json it is a key, and goes to the terminal for a question."""
    if args.json and (args.yes or args.dry_run or not can_ask()):
        return
    stream = sys.stderr if args.json else sys.stdout
    for line in diff.split("\n"):
        print(exact(line.replace("\t", "    ")), file=stream)
    stream.flush()


def _ask(target: ClientTarget, args: argparse.Namespace) -> None:
    """Return if the user wants the change; PermissionDenied otherwise."""
    if args.yes:
        return
    path = one_line(target.path)
    if not can_ask():
        error = PermissionDenied(path, "without a terminal to ask at it is not changed")
        error.remedy = "add --yes"
        raise error
    try:
        with Keyboard() as keyboard:
            answer = keyboard.choose("Change the file (Enter for no)? ", Menu([_YES, _NO], "no"))
    except (EOFError, Burst):
        answer = "no"
    if answer != "yes":
        error = PermissionDenied(path, "you said no, so it was left as it is")
        error.remedy = "run the command again to change it"
        raise error


def _report(target: ClientTarget, action: str, diff: str, args: argparse.Namespace) -> None:
    client = target.client
    written = bool(action) and not args.dry_run
    if args.json:
        print_json(
            {
                "client": client.name,
                "scope": target.scope,
                "path": target.path,
                "action": action or "none",
                "written": written,
                "diff": diff,
            }
        )
    elif not action:
        done = "has it already" if args.action == "install" else "does not have it"
        say(f"{client.title} {done}: {one_line(target.path)}", args)
    elif written:
        where = "from" if action == "removed" else "in"
        say(f"{client.title}: {action} {where} {one_line(target.path)}; {client.restart}", args)


def _list(settings: Settings, args: argparse.Namespace) -> int:
    if args.client is not None:
        raise UsageError(
            "mcp clients takes no CLIENT; `skillbelt mcp install CLIENT` changes its file"
        )
    files = [
        _describe(ClientTarget(client, scope, path, _fence(scope, settings)))
        for client in CLIENTS.values()
        for scope in SCOPES
        if (path := find_file(client, scope, settings))
    ]
    if args.json:
        print_json({"clients": [one._asdict() for one in files]})
        return 0
    rows = [(one.client, one.scope, one.state, _shorten_path(one.path, settings)) for one in files]
    print_table(("client", "scope", "skillbelt", "file"), rows, wrap=True)
    for one in files:
        if one.problem:
            say(f"{one.client}: {one_line(one.problem)}", args)
    return 0


class ClientState(NamedTuple):
    """Whether a client's file has the server: `installed`, `no`, `no file` or `unreadable`."""

    client: str
    title: str
    scope: str
    path: str
    state: str
    problem: str


def _describe(target: ClientTarget) -> ClientState:
    client, problem = target.client, ""
    try:
        file = read_client_file(target.path, target.fence)
        document = read_settings(file.text, client.format, target.path)
        there = find_entry(document, find_spot(client, document)) is not None
        state = "installed" if there else "no" if file.exists else "no file"
    except SkillbeltError as error:
        state, problem = "unreadable", str(error)
    return ClientState(
        client=client.name,
        title=client.title,
        scope=target.scope,
        path=target.path,
        state=state,
        problem=problem,
    )


def print_snippets(args: argparse.Namespace) -> None:
    """Explain `serve mcp`, and print the settings that each client needs to start it."""
    settings = load_settings(args.project, config=args.config, leave_strangers=True)
    words = server_words(find_command()[0], "user", settings)
    if args.json:
        print_json(
            {
                "clients": [
                    {
                        "name": client.name,
                        "title": client.title,
                        "path": find_file(client, "user", settings),
                        "project_path": find_file(client, "project", settings),
                        "snippet": snippet,
                    }
                    for clients, snippet in group_snippets(words)
                    for client in clients
                ]
            }
        )
        return
    print(
        "This is an MCP server. A client starts it and talks to it over standard input\n"
        "and output. `skillbelt mcp install CLIENT` configures one. By hand, it needs\n"
        "these lines:\n"
    )
    for clients, snippet in group_snippets(words):
        for client in clients:
            paths = [find_file(client, scope, settings) for scope in SCOPES]
            shown = " or ".join(one_line(_shorten_path(path, settings)) for path in paths if path)
            print(f"{client.title}: {shown}")
        print(f"\n{_indent(snippet)}\n")
    print("To serve at this terminal anyway: --stdio. To serve over HTTP: --http.")


def _shorten_path(path: str, settings: Settings) -> str:
    project = os.path.join(settings.worktree or settings.project, "")
    home = os.path.join(settings.home, "")
    if path.startswith(project):
        return path.removeprefix(project)
    return "~/" + path.removeprefix(home) if path.startswith(home) else path


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.rstrip("\n").split("\n"))
