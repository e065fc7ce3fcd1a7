"""Classify paths: credentials, autostart entries, agent files, system folders."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from skillbelt.text import Lazy

PlaceClass = Literal[
    "", "credential", "service", "settings", "history", "persistence", "agent", "system"
]

_TABLE: tuple[tuple[PlaceClass, str], ...] = (
    # Keys with wide access, wallets, browsers, keychains.
    (
        "credential",
        r"(?:^|/)\.ssh(?:/(?!config|known_hosts|authorized_keys|.{0,200}\.pub)|$)|(?:^|/)id_(?:rsa|dsa"
        r"|ecdsa|ed25519)\b(?!\.pub)"
        r"|\.gnupg\b|\.password-store|/etc/shadow|/etc/sudoers"
        r"|login\s?data\b|cookies(?:\.sqlite|\.binarycookies)|key[34]\.db|logins\.json"
        r"|(?:google.?chrome|chromium|firefox|brave-browser|microsoft.?edge|\bopera\b|vivaldi"
        r"|arc)/(?:user data|default|profile)"
        r"|(?:google/chrome|mozilla/firefox|bravesoftware)(?!/nativemessaginghosts)"
        r"|chromium/default"
        r"|library/keychains|\.keychain(?:-db)?\b|keychain-db|local state$"
        r"|wallet\.dat|\.bitcoin\b|\.ethereum\b|\.electrum\b|\.solana\b|solana/id\.json"
        r"|\bexodus\b|metamask"
        r"|keystore/utc--|atomic/local storage|ledger live|phantom|\.monero"
        r"|nkbihfbeogaeaoehlefnkodbefgpgknn"
        r"|\.1password|1password/|\.bitwarden|\.keepass|\.kdbx\b|lastpass"
        r"|/proc/(?:self|\d+|\*)/environ|telegram desktop/tdata|discord/local storage"
        r"|slack/(?:storage|cookies)",
    ),
    # Credentials of one service; its own tools read them.
    (
        "service",
        r"\.aws/(?:credentials|config)|\.aws\b|\.azure\b|\.config/gcloud|gcloud/(?:credentials"
        r"|application_default)|application_default_credentials"
        r"|\.pypirc\b|\.netrc\b|\.git-credentials|\.config/gh/hosts"
        r"|\.config/(?:hub|op|anthropic|openai)|\.openclaw/credentials"
        r"|\.claude/\.credentials|\.codex/auth|\.gemini/oauth|\.cursor/.{0,200}token"
        r"|\.terraform\.d/credentials|\.vault-token"
        r"|\.boto\b|\.s3cfg|\.pgpass|\.my\.cnf"
        r"|serviceaccount/token|\.cargo/credentials|\.gem/credentials|service.?account.{0,200}\.json"
        r"|\.wakatime\.cfg",
    ),
    # Settings that may hold a key; ordinary setup steps read them too.
    (
        "settings",
        r"\.renviron\b|\.kube/config|\.docker/config\.json|\.npmrc\b|\.clawdbot/|\.openclaw/(?:\.env"
        r"|openclaw\.json)|\.moltbot|\.claude\.json|\.huggingface/token|cache/huggingface/token",
    ),
    (
        "history",
        r"\.(?:bash|zsh|python|psql|mysql|node_repl|sqlite)_history|consolehost_history"
        r"|fish_history",
    ),
    # Started automatically.
    (
        "persistence",
        r"(?:^|/)\.(?:bashrc|bash_profile|bash_login|zshrc|zprofile|zshenv|zlogin|profile|xinitrc"
        r"|xsession|inputrc)\b"
        r"|config\.fish|/etc/(?:profile|bash\.bashrc|zshrc|rc\.local|environment|ld\.so\.preload"
        r"|init\.d|cron)"
        r"|cron\.(?:d|daily|hourly)|/var/spool/cron|crontabs?/|launch(?:agents|daemons)"
        r"|library/startupitems|loginwindow"
        # A file of variables beside the units starts nothing.
        r"|systemd/(?:system|user)(?!/[\w-]{1,80}\.(?:conf|env)$)|\.config/autostart|/etc/xdg/autostart"
        r"|start menu/programs/startup|startup folder"
        r"|currentversion/run|\.git/hooks/|/hooks/(?:pre-commit|post-commit|post-checkout"
        r"|pre-push|post-merge)\b"
        r"|\.ssh/(?:authorized_keys|rc)|sitecustomize\.py|usercustomize\.py|site-packages/.{0,200}\.pth"
        r"|powershell_profile\.ps1|\$profile\b"
        r"|/etc/(?:hosts|passwd|pam\.d|ssh/sshd_config)",
    ),
    # Instructions and settings that an agent loads in every conversation.
    (
        "agent",
        r"(?:^|/)(?:claude|agents|gemini|soul|memory|heartbeat|identity|tools|user|bootstrap|qwen"
        r"|crush)\.md\b"
        r"|\.claude/(?:settings|claude\.md|hooks|agents|commands|plugins)|\.claude/skills/"
        r"|\.(?:agents|codex|openclaw|clawdbot|gemini|cursor|opencode|goose|windsurf)/(?:skills?"
        r"|rules|config|settings|mcp|memory|agents|hooks)"
        r"|\.cursorrules|\.windsurfrules|copilot-instructions\.md|\.github/copilot|\.clinerules"
        r"|\.mcp\.json|mcp_config\.json|claude_desktop_config"
        r"|\.openclaw/workspace|mcp_settings\.json|opencode\.json",
    ),
    ("system", r"^/(?:etc|usr|bin|sbin|boot|lib|sys|dev)/|^/system/|c:/windows"),
)
_FORMS = tuple((kind, Lazy(form, re.IGNORECASE)) for kind, form in _TABLE)
_PATH = Lazy(
    r"(?:~|\$\{?HOME\}?|%[A-Za-z]+%|\.{1,2})?/(?:[\w.@*\ufffc+-]+/?)+"
    r"|(?<![\w/])\.[a-z][\w.-]{2,40}(?:/[\w.*-]+)*"
)
_MAX_PATH = 300


@lru_cache(maxsize=4096)
def place_class(path: str) -> PlaceClass:
    """Return the class of a path; "" for an ordinary one."""
    text = path[:_MAX_PATH].replace("\\", "/")
    return next((kind for kind, form in _FORMS if form.search(text)), "")


def find_named_place(path: str) -> tuple[PlaceClass, str]:
    """Return the class of a path and the part that says so."""
    text = path[:_MAX_PATH].replace("\\", "/")
    for kind, form in _FORMS:
        if (match := form.search(text)) is not None:
            return kind, match[0]
    return "", ""


def find_paths(text: str, most: int = 200) -> list[tuple[str, int]]:
    """Return the paths that a text names, with their places."""
    found: list[tuple[str, int]] = []
    for match in _PATH.finditer(text):
        if len(match[0]) > 2:
            found.append((match[0].rstrip("."), match.start()))
        if len(found) >= most:
            break
    return found


_PRINTS_TOKEN = Lazy(
    r"gh auth (?:token|status \S{0,20}(?:-t|--show-token))|glab auth status \S{0,20}-t"
    r"|gcloud auth (?:application-default )?print-\w{1,10}-token|az account get-access-token"
    r"|aws configure (?:get|export-credentials)|op (?:read|item get)\b|pass show\b"
    r"|bw (?:get|export|list)\b|vault (?:read|kv get|print token)|doppler secrets"
)


# The hosts of services whose own programs print a token.
_HOSTS_OF = {
    "gcloud": "googleapis google", "gh": "github", "glab": "gitlab", "aws": "amazonaws",
    "az": "azure microsoft",
}  # fmt: skip


def service_of(command: str) -> str:
    """Return words of the hosts to which the token that a command prints belongs."""
    return _HOSTS_OF.get(command.split(" ", 1)[0], "")


def prints_token(command: str) -> bool:
    """Whether a command is that of a service's own program that prints the user's token."""
    return bool(_PRINTS_TOKEN.match(command))


_ENV_FILE = Lazy(r"(?:^|/)\.env(?:\*|\.(?!example|sample|template|dist)\w+)?$")


def is_env_file(path: str) -> bool:
    """Whether a path is that of a file with a project's variables."""
    return bool(_ENV_FILE.search(path))
