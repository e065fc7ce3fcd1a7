"""The table of MCP clients: the file of each with its servers, and the format of an entry."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from skillbelt.mcp.client_edits import Format, Spot, find_entry, put_entry, read_settings
from skillbelt.settings import Settings

ConfigScope = Literal["user", "project"]
SERVER = "skillbelt"
Words = Sequence[str]
# The command of the server, in the format of each client.
_OURS = ("type", "command", "args", "cmd")
# Where uv keeps the programs that `uvx` runs; it may be deleted at any time.
_FLEETING = ("archive-v", "environments-v")


def _split(words: Words) -> dict[str, object]:
    return {"command": words[0], "args": list(words[1:])}


def _vscode(words: Words) -> dict[str, object]:
    return {"type": "stdio", **_split(words)}


def _opencode(words: Words) -> dict[str, object]:
    return {"type": "local", "command": list(words), "enabled": True}


def _zed(words: Words) -> dict[str, object]:
    return {**_split(words), "env": {}}


def _goose(words: Words) -> dict[str, object]:
    return {
        "enabled": True,
        "type": "stdio",
        "name": SERVER,
        "description": "Agent Skills",
        "cmd": words[0],
        "args": list(words[1:]),
        "envs": {},
        "timeout": 300,
    }


class McpClient(NamedTuple):
    """A client: its files, by system, and the format of a server's entry.

    In a path `~` is the home folder, `$CONFIG` the user's folder of settings, `$APPDATA` that of
    Windows. A client without a `project` has one file for all projects.
    """

    name: str
    title: str
    linux: str
    macos: str = ""  # "": the same as on Linux
    windows: str = ""
    project: str = ""
    keys: tuple[str, ...] = ("mcpServers",)
    format: Format = "json"
    write: Callable[[Words], dict[str, object]] = _split
    restart: str = "start it again"


# Compared with the documentation of each client in November 2026.
CLIENTS: dict[str, McpClient] = {
    client.name: client
    for client in (
        McpClient(
            name="claude-code",
            title="Claude Code",
            linux="~/.claude.json",
            project=".mcp.json",
        ),
        McpClient(
            name="claude-desktop",
            title="Claude Desktop",
            linux="$CONFIG/Claude/claude_desktop_config.json",
            macos="~/Library/Application Support/Claude/claude_desktop_config.json",
            windows="$APPDATA/Claude/claude_desktop_config.json",
            restart="quit it and start it again",
        ),
        McpClient(
            name="cursor",
            title="Cursor",
            linux="~/.cursor/mcp.json",
            project=".cursor/mcp.json",
        ),
        McpClient(
            name="vscode",
            title="VS Code",
            linux="$CONFIG/Code/User/mcp.json",
            macos="~/Library/Application Support/Code/User/mcp.json",
            windows="$APPDATA/Code/User/mcp.json",
            project=".vscode/mcp.json",
            keys=("servers",),
            write=_vscode,
        ),
        McpClient(
            name="opencode",
            title="OpenCode",
            linux="$CONFIG/opencode/opencode.json",
            macos="~/.config/opencode/opencode.json",
            windows="~/.config/opencode/opencode.json",
            project="opencode.json",
            keys=("mcp",),
            write=_opencode,
        ),
        McpClient(
            name="codex",
            title="Codex",
            linux="~/.codex/config.toml",
            project=".codex/config.toml",
            keys=("mcp_servers",),
            format="toml",
        ),
        McpClient(
            name="zed",
            title="Zed",
            linux="$CONFIG/zed/settings.json",
            macos="~/.config/zed/settings.json",
            windows="$APPDATA/Zed/settings.json",
            project=".zed/settings.json",
            keys=("context_servers",),
            write=_zed,
        ),
        McpClient(
            name="windsurf",
            title="Windsurf",
            linux="~/.codeium/windsurf/mcp_config.json",
            restart="refresh its MCP servers",
        ),
        McpClient(
            name="gemini",
            title="Gemini CLI",
            linux="~/.gemini/settings.json",
            project=".gemini/settings.json",
        ),
        McpClient(
            name="goose",
            title="goose",
            linux="$CONFIG/goose/config.yaml",
            macos="~/.config/goose/config.yaml",
            windows="$APPDATA/Block/goose/config/config.yaml",
            keys=("extensions",),
            format="yaml",
            write=_goose,
        ),
    )
}


def find_file(client: McpClient, scope: ConfigScope, settings: Settings) -> str:
    """Return the file of a client; "" when it has none in that scope.

    OpenCode also reads `opencode.jsonc`, which is used if only that exists.
    """
    if scope == "project":
        path = client.project and os.path.join(
            settings.worktree or settings.project, client.project
        )
    else:
        path = _expand(client, settings)
    if client.name == "opencode" and os.path.exists(f"{path}c") and not os.path.exists(path):
        path += "c"
    return path


def _expand(client: McpClient, settings: Settings) -> str:
    """Return the user's file; the variables that move a client's folder count."""
    home = settings.client_homes.get(client.name.partition("-")[0], "")
    if home and client.name in ("claude-code", "codex", "opencode"):
        return os.path.join(home, os.path.basename(client.linux))
    platform: str = sys.platform
    elsewhere = {"darwin": client.macos, "win32": client.windows}
    path = elsewhere.get(platform) or client.linux
    path = path.replace("$CONFIG", settings.config_home)
    path = path.replace("$APPDATA", os.path.join(settings.home, "AppData", "Roaming"))
    return path.replace("~", settings.home, 1) if path.startswith("~") else path


def find_spot(client: McpClient, document: Mapping[str, object]) -> Spot:
    """Return the position of the server's entry; OpenCode 2 has one more level."""
    keys = client.keys
    servers = document.get("mcp")
    if client.name == "opencode" and isinstance(servers, Mapping):
        inner = servers.get("servers")
        if isinstance(inner, Mapping) and "type" not in inner:
            keys = ("mcp", "servers")
    return Spot(keys, SERVER)


def find_command() -> tuple[list[str], str]:
    """Return the command that starts this program from any folder, and the problem with it."""
    called = shutil.which(sys.argv[0]) if os.path.basename(sys.argv[0]) == SERVER else None
    beside = os.path.join(os.path.dirname(sys.executable), SERVER)
    words = [sys.executable, "-m", SERVER]
    for path in (called, beside):
        if path and os.access(path, os.X_OK):
            words = [os.path.abspath(path)]
            break
    fleeting = any(part.startswith(_FLEETING) for part in words[0].split(os.sep))
    return words, "it is in a cache of uvx, which may be deleted; install it" if fleeting else ""


def server_words(command: Words, scope: ConfigScope, settings: Settings) -> list[str]:
    """Return the whole command of the server; in a project's file it names the project."""
    words = [*command, "serve", "mcp"]
    if scope == "project":
        words += ["--project", settings.worktree or settings.project]
    return words


def put_server(text: str, client: McpClient, words: Words) -> str:
    """Return the text of a client's file with the server in it; CannotEdit if that is impossible.

    Of an existing entry only the command changes: the rest is the user's.
    """
    document = read_settings(text, client.format, "the file")
    spot = find_spot(client, document)
    entry, there = client.write(words), find_entry(document, spot)
    if isinstance(there, Mapping):
        entry = {key: value for key, value in entry.items() if key in _OURS or key not in there}
    return put_entry(text, client.format, spot, entry)


def make_snippet(client: McpClient, words: Words) -> str:
    """Return the lines for an empty file of the client."""
    return put_entry("", client.format, Spot(client.keys, SERVER), client.write(words))


def group_snippets(words: Words) -> list[tuple[list[McpClient], str]]:
    """Return each snippet with the clients that share it."""
    found: dict[str, list[McpClient]] = {}
    for client in CLIENTS.values():
        found.setdefault(make_snippet(client, words), []).append(client)
    return [(clients, snippet) for snippet, clients in found.items()]
