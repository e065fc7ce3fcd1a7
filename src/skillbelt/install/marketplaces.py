"""Marketplaces of Claude and Codex: where the plugin of a marketplace is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from skillbelt.discovery.sources.failure import SourceFailure
from skillbelt.install.find_skills import (
    CLAUDE_MARKETPLACE,
    CODEX_MARKETPLACE,
    MAX_MANIFEST_BYTES,
    read_manifest,
)
from skillbelt.install.source_syntax import check_ref, parse_source
from skillbelt.install.source_tree import FolderTree
from skillbelt.install.values import SourceReference
from skillbelt.records import NamedTuple
from skillbelt.settings import Settings
from skillbelt.text import Lazy, one_line
from skillbelt.untrusted_json import read_json

_KNOWN = ".claude/plugins/known_marketplaces.json"
_COMMIT = Lazy(r"[0-9a-f]{40}")


class Marketplace(NamedTuple):
    """A marketplace: its name, the folder it was read from, its document and where it came from."""

    name: str
    folder: str
    document: dict[str, Any]
    source: SourceReference | None = None


class PluginSource(NamedTuple):
    """The location of a plugin, and the commit that the marketplace pins it to."""

    reference: SourceReference
    commit: str = ""


def find_marketplaces(settings: Settings) -> Iterator[Marketplace]:
    """Yield the marketplaces of the user, those that Claude Code knows, and those of the project.

    A checkout gives no other meaning to a name that the user knows.
    """
    places = (CLAUDE_MARKETPLACE, CODEX_MARKETPLACE)
    for place in places:
        yield from _read(settings.home, place, None)
    known = _read_known(os.path.join(settings.home, _KNOWN))
    for entry in known.values() if isinstance(known, dict) else ():
        folder = entry.get("installLocation") if isinstance(entry, dict) else None
        if isinstance(folder, str) and os.path.isabs(folder):
            yield from _read(folder, CLAUDE_MARKETPLACE, _find_origin(entry.get("source")))
    for place in places if settings.project != settings.home else ():
        yield from _read(settings.project, place, None)


def _read(base: str, place: str, source: SourceReference | None) -> Iterator[Marketplace]:
    if not base or not os.path.isdir(base):
        return
    document = read_manifest(FolderTree(base), place)
    if isinstance(document, dict) and isinstance(document.get("name"), str):
        yield Marketplace(document["name"], base, document, source)


def _read_known(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            return read_json(file.read(MAX_MANIFEST_BYTES))
    except (OSError, ValueError):
        return {}


def _find_origin(source: Any) -> SourceReference | None:
    """Return the repository that Claude Code fetched a marketplace from, if any."""
    try:
        return _read_plugin_source(source, "marketplace").reference
    except SourceFailure:
        return None


def resolve_plugin(reference: SourceReference, settings: Settings) -> PluginSource:
    """Return where `plugin@marketplace` is; raises SourceFailure."""
    wanted, marketplace = reference.subpath, reference.url
    known = list(find_marketplaces(settings))
    named = [one for one in known if one.name == marketplace]
    for one in named:
        plugins = one.document.get("plugins")
        for plugin in plugins if isinstance(plugins, list) else ():
            if isinstance(plugin, dict) and plugin.get("name") == wanted:
                return _locate(one, plugin, reference)
    if named:
        reason, remedy = (
            f"the marketplace {marketplace!r} has no plugin {wanted!r}",
            "check the name",
        )
    else:
        names = ", ".join(sorted({one_line(one.name) for one in known})) or "none"
        reason = f"no marketplace is called {marketplace!r} (known: {names})"
        remedy = "give the repository of the marketplace: owner/repo@plugin"
    raise SourceFailure(reference.source, reason, code="marketplace-unknown", remedy=remedy)


def _locate(
    market: Marketplace, plugin: dict[str, Any], reference: SourceReference
) -> PluginSource:
    source = plugin.get("source", "./")
    if isinstance(source, dict) and source.get("source") == "local":
        source = source.get("path")
    if not isinstance(source, str):
        return _read_plugin_source(source, reference.source)
    metadata = market.document.get("metadata")
    root = metadata.get("pluginRoot", "") if isinstance(metadata, dict) else ""
    path = os.path.normpath(os.path.join(str(root), source))
    if os.path.isabs(path) or path.startswith("..") or "\0" in path:
        raise _refuse(reference.source, "its path leads out of the marketplace")
    subpath = "" if path == "." else path
    if market.source is not None:
        return PluginSource(market.source._replace(subpath=subpath, typed=reference.typed))
    folder = os.path.join(market.folder, subpath)
    local = SourceReference(kind="local", source=folder, url=folder, typed=reference.typed)
    return PluginSource(local)


def _read_plugin_source(source: Any, name: str) -> PluginSource:
    kind = source.get("source") if isinstance(source, dict) else None
    texts = {key: value for key, value in (source or {}).items() if isinstance(value, str)}
    if kind == "github" and "repo" in texts:
        found = parse_source(texts["repo"])
    elif kind in ("url", "git", "git-subdir") and "url" in texts:
        found = parse_source(texts["url"])
        if found.kind in ("well-known", "download"):
            found = found._replace(kind="git", source=found.url)
    elif kind == "archive" and "url" in texts:
        found = parse_source(texts["url"])._replace(kind="download")
    else:
        raise _refuse(name, f"a source of the kind {str(kind)[:40]!r} is not fetched")
    if found.kind not in ("github", "gitlab", "git", "download"):
        raise _refuse(name, "its source is neither a repository nor an archive")
    path = os.path.normpath(texts.get("path", "."))
    if os.path.isabs(path) or path.startswith(".."):
        raise _refuse(name, "its path leads out of the repository")
    commit = texts.get("sha", "")
    if commit and not _COMMIT.fullmatch(commit):
        raise _refuse(name, "its commit is not 40 hex digits")
    ref = check_ref(texts.get("ref", found.ref), name)
    return PluginSource(found._replace(ref=ref, subpath="" if path == "." else path), commit)


def _refuse(name: str, reason: str) -> SourceFailure:
    remedy = "ask the owner of the marketplace to publish the plugin in a repository"
    return SourceFailure(name, reason, code="marketplace-refused", remedy=remedy)
