"""What a source gives, and which sources have to be pulled at all."""

import os
from typing import NamedTuple

from skillbelt.values import Diagnostic, Origin, OriginKind

MCP = ("mcp+http://", "mcp+https://")
MCP_COMMAND = "mcp+stdio://"
MAX_LABEL_CHARS = 32
MAX_MADE_LABEL_CHARS = 48
_SCHEMES = ("http://", "https://", "file://", *MCP)
ARCHIVE_ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz")


class Located(NamedTuple):
    """A local folder to be scanned for skills, and where it came from."""

    folder: str
    origin: Origin


class Pulled(NamedTuple):
    """What one source gave: no folder at all when there is neither a new nor an earlier copy."""

    located: tuple[Located, ...]
    diagnostics: tuple[Diagnostic, ...]


def is_remote(source: str) -> bool:
    """Whether the source must be pulled: a URL, or the path of an archive; not a plain folder."""
    lowered = source.strip().lower()
    if lowered.startswith(_SCHEMES):
        return True
    return lowered.endswith(ARCHIVE_ENDINGS) and not os.path.isdir(at_home(source))


def is_mcp(source: str) -> bool:
    """Whether the source is an MCP server, by its address or by its command."""
    return source.strip().lower().startswith((*MCP, MCP_COMMAND))


def is_label(text: str) -> bool:
    """Whether an MCP server can be called so."""
    return text.isascii() and text.replace("-", "").isalnum() and len(text) <= MAX_LABEL_CHARS


def label_of(source: str) -> str:
    """What an MCP server is called here: as the user named it, or its address in one word.

    Empty for a source that is none, and for an address that can not be read.
    """
    source = source.strip()
    if source.lower().startswith(MCP_COMMAND):
        return source[len(MCP_COMMAND) :].partition("?")[0]
    if not is_mcp(source):
        return ""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(source[len("mcp+") :])
    except ValueError:
        return ""
    words = [parts.netloc.rpartition("@")[2].lower()]
    words += parts.path.removesuffix("/").removesuffix("/mcp").split("/")
    own = "-".join(slug for word in words if (slug := slug_of(word)))
    return parts.fragment.partition("&")[0] or own[:MAX_MADE_LABEL_CHARS] or "mcp"


def slug_of(text: str) -> str:
    """The text as a part of a skill's id."""
    import re

    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-_")


def command_source(label: str, command: str) -> str:
    """The source that a command stands for; empty when it has no plain name or no word."""
    if not (command and is_label(label)):
        return ""
    from urllib.parse import quote

    return f"{MCP_COMMAND}{label}?{quote(command, safe='')}"


def origin_of(kind: OriginKind, url: str) -> Origin:
    """Where a skill came from, as it is shown and trusted: without user names and commands."""
    if kind != "mcp":
        return Origin(kind, url)
    if url.lower().startswith(MCP_COMMAND):
        return Origin(kind, url[len("mcp+") :])
    return Origin(kind, url[len("mcp+") :].partition("#")[0])


def at_home(path: str) -> str:
    """The path with `~` expanded; one that no user's name can stand in is left as it is."""
    try:
        return os.path.expanduser(path)
    except ValueError:
        return path
