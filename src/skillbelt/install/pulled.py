"""Sources that the catalogue fetches too: archives, well-known sites, MCP servers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from skillbelt.discovery.listed_files import ListedFiles
from skillbelt.discovery.sources import pull_all
from skillbelt.discovery.sources.address import (
    MAX_LABEL_CHARS,
    MCP_COMMAND,
    is_mcp,
    read_command,
)
from skillbelt.discovery.sources.cache import CachedSource
from skillbelt.discovery.sources.failure import SourceFailure, redact
from skillbelt.errors import FileUnreadable
from skillbelt.format.skill import Skill
from skillbelt.install.find_skills import FoundSkill
from skillbelt.install.source_tree import FolderTree, SourceTree
from skillbelt.install.values import SourceReference
from skillbelt.settings import Settings
from skillbelt.text import one_line
from skillbelt.values import Origin


class PulledSource(NamedTuple):
    """The downloaded folder of a source, and the digests of its skills by folder.

    `reference` is its reference in the lock.
    """

    reference: SourceReference
    folder: str
    digests: Mapping[str, str]


def pull_source(reference: SourceReference, settings: Settings, into: str) -> PulledSource:
    """Fetch a source into a folder below `into`; raises SourceFailure."""
    cache = os.path.join(into, "pulled")
    pulled = pull_all(
        [_address(reference.url, settings)],
        cache_dir=cache,
        limits=settings.limits,
        refresh=True,
        private=settings.private_sources,
    )[0]
    if not pulled.folders:
        problem = next(iter(pulled.diagnostics), None)
        raise SourceFailure(
            reference.source,
            problem.message if problem else "nothing was found there",
            code=problem.code if problem else "remote-no-skills",
            remedy=problem.remedy if problem else "check the address",
        )
    folder = pulled.folders[0].folder
    kind = pulled.folders[0].origin.kind
    if reference.kind == "well-known" and kind in ("archive", "url"):
        reference = reference._replace(kind="download", source=reference.url)
    digests = _published_digests(cache, reference.url) if kind == "well-known" else {}
    return PulledSource(reference=reference, folder=folder, digests=digests)


def _address(url: str, settings: Settings) -> str:
    """Return what is pulled. A command and a token come from the settings, never from a source."""
    if url.lower().startswith(MCP_COMMAND):
        wanted = url[len(MCP_COMMAND) :]
        for label, made in map(read_command, settings.mcp_commands):
            if made and label == wanted:
                return made
        raise SourceFailure(
            url,
            "your settings have no command of that name",
            code="mcp-command-wrong",
            remedy=f"write {one_line(wanted)[:MAX_LABEL_CHARS]}=COMMAND into mcp_commands",
        )
    if is_mcp(url):
        here = url.partition("#")[0]
        for known in settings.urls:
            if is_mcp(known) and redact(known).partition("#")[0] == here:
                return known.partition("#")[0] + url[len(here) :]
    return url


def fetch_listed(tree: SourceTree, skill: FoundSkill, source: str) -> str:
    """Return a folder with every file that an MCP server lists for a skill, each verified."""
    assert isinstance(tree, FolderTree)
    made = Skill.from_folder(os.path.join(tree.folder, skill.folder))
    listed = ListedFiles(made._replace(origin=Origin("mcp", source)))
    try:
        return listed.whole_folder()[0]
    except FileUnreadable as error:
        reason = f"{error.path}: {error.reason}"
        remedy = "ask the operator of the server"
        raise SourceFailure(source, reason, code="mcp-failed", remedy=remedy) from error


def _published_digests(cache: str, url: str) -> dict[str, str]:
    """Return the digest that a published list gives each skill, by its folder."""
    cached = CachedSource(cache, url)
    state = cached.read()
    entries = cached.entries(state) if state else {}
    return {
        name: str(entry.get("key", "")).rpartition(" ")[2]
        for name, entry in entries.items()
        if isinstance(entry, dict) and "sha256:" in str(entry.get("key", ""))
    }
