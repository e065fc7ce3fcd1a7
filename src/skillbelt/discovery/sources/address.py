"""The address of a source: its kind, and the result of pulling it.

Every command imports this module, so it imports nothing that takes time.
"""

from __future__ import annotations

import os

from skillbelt.records import NamedTuple
from skillbelt.text import percent_encode
from skillbelt.values import Diagnostic, Origin, OriginKind

MCP = ("mcp+http://", "mcp+https://")
MCP_COMMAND = "mcp+stdio://"
MAX_LABEL_CHARS = 32
_SCHEMES = ("http://", "https://", "file://", *MCP)
ARCHIVE_ENDINGS = (".zip", ".skill", ".tar", ".tar.gz", ".tgz")


class SourceFolder(NamedTuple):
    """A local folder to scan for skills, and where it came from."""

    folder: str
    origin: Origin


class Pulled(NamedTuple):
    """The result of pulling one source; without a folder when there is no copy, new or old."""

    folders: tuple[SourceFolder, ...]
    diagnostics: tuple[Diagnostic, ...]


def is_remote(source: str) -> bool:
    """Whether the source must be pulled: a URL or the path of an archive, not a plain folder."""
    lowered = source.strip().lower()
    if lowered.startswith(_SCHEMES):
        return True
    return lowered.endswith(ARCHIVE_ENDINGS) and not os.path.isdir(expand_home(source))


def is_mcp(source: str) -> bool:
    """Whether the source is an MCP server, given by its address or by its command."""
    return source.strip().lower().startswith((*MCP, MCP_COMMAND))


def is_label(text: str) -> bool:
    """Whether the text is a valid label for an MCP server."""
    return text.isascii() and text.replace("-", "").isalnum() and len(text) <= MAX_LABEL_CHARS


def command_source(label: str, command: str) -> str:
    """Return the source for an MCP command; empty without a valid label or a command."""
    if not (command and is_label(label)):
        return ""
    return f"{MCP_COMMAND}{label}?{percent_encode(command)}"


def read_command(text: str) -> tuple[str, str]:
    """Return the label of an entry of `mcp_commands`, and its source; "" for a wrong entry."""
    label, _, command = text.partition("=")
    return label.strip(), command_source(label.strip(), command.strip())


def origin_of(kind: OriginKind, url: str) -> Origin:
    """Return the origin for display and trust: without user names and commands."""
    if kind != "mcp":
        return Origin(kind, url)
    if url.lower().startswith(MCP_COMMAND):
        return Origin(kind, url[len("mcp+") :])
    return Origin(kind, url[len("mcp+") :].partition("#")[0])


def expand_home(path: str) -> str:
    """Expand `~`; a path with a NUL byte is returned unchanged."""
    try:
        return os.path.expanduser(path)
    except ValueError:
        return path
