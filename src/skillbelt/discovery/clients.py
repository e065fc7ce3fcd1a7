"""The table of clients' folders with skills: which of them are searched, in which order."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator

from skillbelt.files.contain import below
from skillbelt.records import NamedTuple
from skillbelt.settings import Settings, resolve, upward
from skillbelt.values import Origin, Scope


class Client(NamedTuple):
    """One program that reads skills: its folders in a project and in a home.

    In `user`, `~/` is the home, `$config/` the user's config folder, `@/` the client's own home as
    its environment variable gives it (`~/<rest of the first folder>` unless set), `+/` the folder
    that the variable adds (none unless set), `*` any folder.
    """

    name: str
    project: tuple[str, ...]
    user: tuple[str, ...]


class Root(NamedTuple):
    """One folder to search, and the facts about the skills in it."""

    path: str
    scope: Scope
    client: str = ""
    origin: Origin = Origin()
    required: bool = False  # the user named this folder, so its absence is reported
    fence: str = ""  # no link in it may lead out of this folder; empty for the user's own
    by_project: bool = False  # the project's own settings name it


def _dot_clients(*names: str) -> tuple[Client, ...]:
    return tuple(Client(name, (f".{name}/skills",), (f"~/.{name}/skills",)) for name in names)


CLIENTS: tuple[Client, ...] = (
    Client(
        "skillbelt",
        (".skillbelt/skill", ".skillbelt/skills"),
        ("~/.skillbelt/skills", "$config/skillbelt/skill", "$config/skillbelt/skills"),
    ),
    Client("agents", (".agents/skills",), ("~/.agents/skills", "$config/agents/skills")),
    Client("claude", (".claude/skills",), ("@.claude/skills", "/etc/claude-code/.claude/skills")),
    Client("codex", (".codex/skills",), ("@.codex/skills", "/etc/codex/skills")),
    Client(
        "opencode",
        (".opencode/skill", ".opencode/skills"),
        ("$config/opencode/skill", "$config/opencode/skills", "~/.opencode/skill",
         "~/.opencode/skills", "+/skill", "+/skills"),
    ),
    Client("copilot", (".github/skills",), ("~/.copilot/skills",)),
    Client("cursor", (".cursor/skills",), ("~/.cursor/skills",)),
    Client("gemini", (".gemini/skills",), ("~/.gemini/skills",)),
    Client("goose", (".goose/skills",), ("$config/goose/skills",)),
    Client("deepagents", (".deepagents/skills",), ("~/.deepagents/*/skills",)),
    Client(
        "openclaw",
        ("skills",),
        ("~/.openclaw/skills", "~/.clawdbot/skills", "~/.moltbot/skills"),
    ),
    Client("windsurf", (".windsurf/skills",), ("~/.codeium/windsurf/skills",)),
    Client("antigravity", (".agent/skills",), ("~/.gemini/antigravity/skills",)),
    Client("crush", (".crush/skills",), ("$config/crush/skills",)),
    Client("devin", (".devin/skills",), ("$config/devin/skills",)),
    Client("pi", (".pi/skills",), ("~/.pi/agent/skills",)),
    Client("tabnine", (".tabnine/agent/skills",), ("~/.tabnine/agent/skills",)),
    Client("cortex", (".cortex/skills",), ("~/.snowflake/cortex/skills",)),
    *_dot_clients(
        "adal", "aider-desk", "augment", "autohand", "bob", "cline", "codeartsdoer", "codebuddy",
        "codemaker", "codestudio", "commandcode", "continue", "factory", "forge", "hermes",
        "iflow", "inferencesh", "jazz", "junie", "kilocode", "kiro", "kode", "lingma", "mcpjam",
        "moxby", "mux", "neovate", "ona", "openhands", "pochi", "qoder", "qwen", "reasonix",
        "roo", "rovodev", "terramind", "tinycloud", "trae", "vibe", "zcode", "zencoder",
    ),
)  # fmt: skip
NATIVE = "skillbelt"
# The precedence of folders in one scope: ours, the shared one, then the one with the most skills.
_CLIENT_ORDER = (NATIVE, "agents", "claude")


def local_roots(settings: Settings, explicit: Iterable[str] = ()) -> list[Root]:
    """Return every local folder to search, strongest scope first; they need not exist."""
    user = list(_user(settings))
    own = {root.path for root in user}
    theirs = {resolve(path, settings) for path in settings.only_by_project("paths")}
    named = [resolve(path, settings) for path in explicit]
    found = {
        "explicit": [
            Root(
                path,
                "explicit",
                required=True,
                fence=_fence_of_named(path, settings, own, theirs),
                by_project=path in theirs,
            )
            for path in named
        ],
        "project": [
            # The home folder may be the project too; its folders are still the user's own.
            root._replace(fence="") if root.path in own else root
            for root in _project(settings)
        ],
        "user": user,
    }
    first: dict[str, Root] = {}
    for scope in settings.scope_order:
        for root in found.get(scope, ()):
            first.setdefault(root.path, root)
    return list(first.values())


def clients(settings: Settings) -> list[Client]:
    """Return the clients whose folders are searched: three first, then in table order."""
    off = settings.disabled_clients
    on = [one for one in CLIENTS if one.name not in off and (one.name == NATIVE or "*" not in off)]
    rank = {name: place for place, name in enumerate(_CLIENT_ORDER)}
    return sorted(on, key=lambda client: rank.get(client.name, len(rank)))


def _project(settings: Settings) -> Iterator[Root]:
    if not settings.project_roots:
        return
    searched = clients(settings)
    for folder in upward(settings.project, settings.worktree):
        for client in searched:
            for name in client.project:
                path = f"{folder.rstrip('/')}/{name}"
                fence = fence_of(path, settings) or folder
                yield Root(path, "project", client.name, fence=fence)


def fence_of(path: str, settings: Settings) -> str:
    """Return the project that contains the path, out of which no link may lead; empty for none.

    A worktree that contains the user's home says nothing about who owns the files in it.
    """
    for folder in (settings.worktree, settings.project):
        if folder and below(path, folder) and not below(settings.home, folder):
            return folder
    return ""


def _fence_of_named(
    path: str, settings: Settings, own: Container[str], theirs: Container[str]
) -> str:
    """Return the fence of a named folder; the folder itself if only a project names it."""
    if path in own:
        return ""
    return fence_of(path, settings) or (path if path in theirs else "")


def _user(settings: Settings) -> Iterator[Root]:
    if not settings.user_roots:
        return
    for client in clients(settings):
        for pattern in client.user:
            for path in expand_folder(pattern, client.name, settings):
                yield Root(path, "user", client.name)


def expand_folder(pattern: str, client: str, settings: Settings) -> list[str]:
    """Return the folders that an entry of `Client.user` expands to; they need not exist."""
    if pattern.startswith("@"):
        own = settings.client_homes.get(client)
        rest = pattern[1:]
        return [f"{own}/{rest.split('/', 1)[1]}" if own else f"{settings.home}/{rest}"]
    if pattern.startswith("+/"):
        added = settings.client_homes.get(client)
        return [resolve(f"{added}{pattern[1:]}", settings)] if added else []
    path = pattern.replace("~/", settings.home + "/").replace(
        "$config/", settings.config_home + "/"
    )
    before, star, after = path.partition("*")
    if not star:
        return [path]
    try:
        return [before + name + after for name in sorted(os.listdir(before))]
    except OSError:
        return []
