"""The entries of `allowed-tools`: the name of a tool, and the pattern in its parentheses."""

from __future__ import annotations

from typing import Literal

Kind = Literal["read", "write", "network", "processes"]
KINDS: dict[str, Kind] = {
    "Read": "read",
    "Grep": "read",
    "Glob": "read",
    "LS": "read",
    "Write": "write",
    "Edit": "write",
    "WebSearch": "network",
    "Fetch": "network",
    "WebFetch": "network",
    "Bash": "processes",
    "Terminal": "processes",
}
_FOLDED = {name.lower(): name for name in KINDS}


def tool_name(tool: str) -> str:
    """Return the tool's name in its usual spelling: `Bash(git add *)` -> `Bash`."""
    name = tool.partition("(")[0].strip()
    return _FOLDED.get(name.lower(), name)


def tool_pattern(tool: str) -> str:
    """Return the tool's pattern: `Bash(git add *)` -> `git add *`; empty if there is none."""
    _, opened, rest = tool.partition("(")
    return rest.strip().removesuffix(")").strip() if opened else ""


def host_of(pattern: str) -> str:
    """Return the host of `domain:example.com`, `https://example.com/*` or `example.com`."""
    pattern = pattern.removeprefix("domain:").strip()
    _, scheme, rest = pattern.partition("://")
    return (rest if scheme else pattern).partition("/")[0]
