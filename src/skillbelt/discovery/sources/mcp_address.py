"""The address of an MCP server: its label, and how to connect to it."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from skillbelt.discovery.sources.address import MAX_LABEL_CHARS, MCP_COMMAND, is_label, is_mcp
from skillbelt.discovery.sources.failure import SourceFailure

_MAX_DERIVED_LABEL_CHARS = 48


class McpServer(NamedTuple):
    """A configured MCP server: its label, and its URL or its command."""

    label: str
    url: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    command: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()  # skills to ask for although the server may not list them


def label_of(source: str) -> str:
    """Return the label of an MCP server: the user's own, or one derived from the address.

    Empty if the source is not an MCP server, and for an address that cannot be parsed.
    """
    source = source.strip()
    if source.lower().startswith(MCP_COMMAND):
        return source[len(MCP_COMMAND) :].partition("?")[0]
    if not is_mcp(source):
        return ""
    try:
        parts = urlsplit(source[len("mcp+") :])
    except ValueError:
        return ""
    words = [parts.netloc.rpartition("@")[2].lower()]
    words += parts.path.removesuffix("/").removesuffix("/mcp").split("/")
    derived = "-".join(slug for word in words if (slug := id_slug(word)))
    return parts.fragment.partition("&")[0] or derived[:_MAX_DERIVED_LABEL_CHARS] or "mcp"


def id_slug(text: str) -> str:
    """Return the text as a part of a skill's id."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_")


def parse_server(source: str) -> McpServer:
    """Parse the source of an MCP server; raises SourceFailure when it is malformed."""
    if source.lower().startswith(MCP_COMMAND):
        label, _, command = source[len(MCP_COMMAND) :].partition("?")
        try:
            words = tuple(shlex.split(unquote(command)))
        except ValueError as error:
            raise _failure(source, f"the command cannot be parsed: {error}") from error
        return McpServer(_check_label(label, source), command=words)
    parts = urlsplit(source[len("mcp+") :])
    if not parts.hostname:
        raise _failure(source, "is not the address of a server")
    token = unquote(parts.username or "")
    if parts.password is not None:
        raise _failure(source, "a server takes a token, not a user name and a password")
    netloc = parts.netloc.rpartition("@")[2]
    plain = urlunsplit(parts._replace(netloc=netloc, fragment=""))
    headers = (("Authorization", f"Bearer {token}"),) if token else ()
    named, *unlisted = parts.fragment.split("&")
    label = _check_label(named, source) if named else label_of(source)
    return McpServer(label, plain, headers, unlisted=tuple(map(unquote, unlisted)))


def _check_label(label: str, source: str) -> str:
    if not is_label(label):
        reason = f"the label must be at most {MAX_LABEL_CHARS} letters, digits and hyphens"
        raise _failure(source, reason)
    return label


def _failure(source: str, reason: str) -> SourceFailure:
    return SourceFailure(source, reason, code="remote-address", remedy="fix the address")
