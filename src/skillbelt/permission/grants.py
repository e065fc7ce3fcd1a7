"""From a skill's `allowed-tools` to the capabilities of a run: one table for every sandbox.

A skill declares, the host grants; a run gets only what is in both.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from skillbelt.errors import ConfigError
from skillbelt.files.contain import inside
from skillbelt.format.allowed_tools import KINDS, Kind, host_of, tool_name, tool_pattern
from skillbelt.hosts import parse_rule
from skillbelt.values import Capabilities

if TYPE_CHECKING:
    from collections.abc import Iterable

    from skillbelt.hosts import HostRule

_WILD = "*?[{"
_ANY_HOST = ("", "*", "domain:*")


class Grants(NamedTuple):
    """The most that the host's policy grants. Roots are absolute; hosts are rules (`hosts`)."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    processes: bool = True


_NO_GRANTS = Grants()


class ToolHosts(NamedTuple):
    """The hosts that a network tool asks for; `fault` says why it asks for none."""

    tool: str
    hosts: tuple[str, ...] = ()
    fault: str = ""


def hosts_by_tool(
    tools: Iterable[str], listed: tuple[str, ...] = (), only: tuple[str, ...] | None = None
) -> list[ToolHosts]:
    """Return the hosts of each network tool: the one it names, or `listed` if it names none.

    If the settings name hosts for a skill, `only` these count, with or without a tool.
    """
    network = [tool for tool in tools if KINDS.get(tool_name(tool)) == "network"]
    if only is not None:
        hosts = tuple(dict.fromkeys(str(_granted_rule(text)) for text in only))
        return [ToolHosts(tool, hosts) for tool in network or ("hosts",)]
    return [_hosts_of(tool, listed) for tool in network]


def _hosts_of(tool: str, listed: tuple[str, ...]) -> ToolHosts:
    pattern = tool_pattern(tool)
    if pattern in _ANY_HOST:
        missing = (
            "it names no host, and the setting fetch_hosts lists none; "
            "set fetch_hosts, or declare WebFetch(domain:example.com)"
        )
        hosts = tuple(dict.fromkeys(str(_granted_rule(text)) for text in listed))
        return ToolHosts(tool, hosts, "" if hosts else missing)
    try:
        return ToolHosts(tool, (str(parse_rule(host_of(pattern))),))
    except ValueError as error:
        return ToolHosts(tool, (), f"{host_of(pattern)!r} names no host: {error}")


def named_hosts(
    tools: Iterable[str], listed: tuple[str, ...] = (), only: tuple[str, ...] | None = None
) -> tuple[str, ...]:
    """Return the hosts that the tools ask for, each once."""
    found = hosts_by_tool(tools, listed, only)
    return tuple(dict.fromkeys(host for one in found for host in one.hosts))


def capabilities_of(tools: Iterable[str], grants: Grants = _NO_GRANTS) -> Capabilities:
    """Return the capabilities of a run: the intersection of declared tools and grants.

    Without tools it may open nothing. ConfigError when a granted host is not a rule.
    """
    patterns: dict[Kind, list[str]] = {}
    for tool in tools:
        if kind := KINDS.get(tool_name(tool)):
            patterns.setdefault(kind, []).append(tool_pattern(tool))
    return Capabilities(
        read=_roots(patterns.get("read", ()), grants.read),
        write=_roots(patterns.get("write", ()), grants.write),
        hosts=_hosts(patterns.get("network", ()), grants.hosts),
        processes="processes" in patterns and grants.processes,
    )


def _roots(patterns: Iterable[str], granted: tuple[str, ...]) -> tuple[str, ...]:
    """Return every granted root for a bare tool, else the parts that its pattern names."""
    found: dict[str, None] = {}
    for pattern in patterns:
        found.update(dict.fromkeys(granted if not pattern else _roots_below(pattern, granted)))
    return tuple(found)


def _roots_below(pattern: str, granted: tuple[str, ...]) -> list[str]:
    """Return the parts of the roots below the pattern's literal prefix.

    A relative pattern means the workspace, which needs no grant. Links are resolved, so that a link
    in a root opens nothing outside it.
    """
    folder = _literal_folder(pattern)
    if not folder.startswith("/"):
        return []
    try:
        real = os.path.realpath(folder)
    except ValueError:  # a NUL, or not Unicode
        return []
    roots = [root for root in granted if inside(root, real)]
    if not roots and any(inside(real, root) for root in granted):
        roots = [real]
    return roots


def _literal_folder(pattern: str) -> str:
    """Return the literal folders before the first wildcard: `/a/b/*.txt` -> `/a/b`."""
    parts = pattern.split("/")
    wild = next((at for at, part in enumerate(parts) if set(part) & set(_WILD)), len(parts))
    fixed = "/".join(parts[:wild])
    return f"/{fixed.lstrip('/')}" if pattern.startswith("/") else fixed


def _hosts(patterns: Iterable[str], granted: tuple[str, ...]) -> tuple[str, ...]:
    patterns = list(patterns)
    if not patterns or not granted:
        return ()
    rules: dict[HostRule, None] = {}
    wide = [_granted_rule(text) for text in granted]
    for pattern in patterns:
        if pattern in _ANY_HOST:
            rules.update(dict.fromkeys(wide))
            continue
        try:
            narrow = parse_rule(host_of(pattern))
        except ValueError:
            continue  # an invalid host opens nothing
        rules.update(dict.fromkeys(both for rule in wide if (both := narrow.common(rule))))
    return tuple(map(str, rules))


def _granted_rule(text: str) -> HostRule:
    try:
        return parse_rule(text)
    except ValueError as error:
        message = f"hosts: {text!r} is not a host that can be granted: {error}"
        raise ConfigError(f"{message}; write a name, *.name or an address, with :port") from error
