"""The normal form of a host and of a path, in requests and in rules.

A text that cannot be parsed with certainty becomes `unclear: ...`; no rule about one host or one
path allows it.
"""

from __future__ import annotations

import os
import posixpath
from typing import TYPE_CHECKING
from urllib.parse import unquote

from skillbelt.format.allowed_tools import host_of
from skillbelt.hosts import PORTS, address_of, parse_rule
from skillbelt.permission.rules import UNCLEAR

if TYPE_CHECKING:
    from skillbelt.hosts import HostRule

_WILD = frozenset("*?")


def host_text(address: str) -> str:
    """Return the host of an address in normal form, with a port that is not the usual one."""
    try:
        return _format_host(_parse_host(host_of(address)))
    except ValueError:
        return UNCLEAR + address


def host_pattern(pattern: str) -> str:
    """Return the pattern of a rule in that same form; ValueError when it can match no host."""
    plain = pattern.strip().lower()
    if pattern.startswith(UNCLEAR) or _WILD.intersection(plain.removeprefix("*.")):
        return pattern if pattern.startswith(UNCLEAR) else plain
    star = "*." if plain.startswith("*.") else ""
    return star + _format_host(_parse_host(plain.removeprefix("*.")))


def _parse_host(text: str) -> HostRule:
    host, colon, port = text.rpartition(":")
    if not (colon and port.isdigit()):
        host, colon, port = text, "", ""
    return parse_rule(f"{host.removesuffix('.')}{colon}{port}")


def _format_host(rule: HostRule) -> str:
    address = address_of(rule.name)
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        rule = rule._replace(name=str(mapped))
    # The usual ports are the same for a rule.
    return str(rule._replace(ports=PORTS) if rule.ports <= PORTS else rule)


def path_texts(path: str, home: str, folder: str) -> tuple[str, ...]:
    """Return a path as rules are matched against it: as written, and with links resolved."""
    whole = at_home(_local(path), home)
    if "\0" in whole or whole.startswith(UNCLEAR):
        return (UNCLEAR + path,)
    if whole.startswith(("~", "$")) or "${" in whole or "$(" in whole:
        return (UNCLEAR + path,)
    if not whole.startswith("/"):
        if not folder:
            return (UNCLEAR + path,)
        whole = f"{folder}/{whole}"
    written = plain_path(whole)
    return tuple(dict.fromkeys((written, os.path.realpath(written))))


def is_file_url(text: str) -> bool:
    """Whether the text is the URL of a file."""
    return text[:5].lower() == "file:"


def _local(path: str) -> str:
    """Return the path of a file URL; one on another machine is unclear."""
    if not is_file_url(path):
        return path
    rest = path[5:]
    if rest.startswith("//"):
        host, slash, below = rest[2:].partition("/")
        if host.lower() not in ("", "localhost", "127.0.0.1"):
            return UNCLEAR + path
        rest = slash + below
    return unquote(rest.partition("#")[0].partition("?")[0])


def path_pattern(pattern: str, home: str) -> str:
    """Return the pattern of a rule in that same form."""
    whole = at_home(pattern[7:] if pattern.startswith("file:///") else pattern, home)
    if not whole.startswith("/") or whole.startswith(UNCLEAR):
        return whole
    folder, slash, rest = whole.partition("*")
    before, _, last = folder.rpartition("/") if slash else (folder, "", "")
    if not slash:
        return plain_path(folder)
    return f"{plain_path(before or '/').rstrip('/')}/{last}{slash}{rest}"


def at_home(path: str, home: str) -> str:
    """Replace a prefix that means the home folder."""
    for name in ("~", "$HOME", "${HOME}"):
        if home and (path == name or path.startswith(f"{name}/")):
            return home.rstrip("/") + path[len(name) :]
    return path


def plain_path(path: str) -> str:
    """Return an absolute path without double slashes, dots and a slash at its end."""
    return posixpath.normpath(f"/{path.lstrip('/')}")
