"""The names that a completion offers: skills from the index, and sessions of this machine."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator
from contextlib import closing

from skillbelt.cli.output import CLI_SESSION
from skillbelt.discovery.catalog import Catalog
from skillbelt.errors import SkillbeltError
from skillbelt.settings import Settings, load_settings
from skillbelt.store import open_store
from skillbelt.store.protocol import list_sessions

_MAX_SESSIONS = 50


def find_names(kind: str, project: str | None, config: str | None) -> list[tuple[str, str]]:
    """Return names with descriptions: of a `skill`, a `disabled` one, or a `session`.

    None on an error: the command itself reports it.
    """
    try:
        settings = load_settings(project, config=config)
        found = _sessions(settings) if kind == "session" else _skills(settings, kind)
        return list(found)
    except (SkillbeltError, OSError):
        return []


def _skills(settings: Settings, kind: str) -> Iterator[tuple[str, str]]:
    """Yield the skills of the folders; no server is contacted or started."""
    catalog = Catalog(
        settings=settings._replace(
            urls=(),
            client_urls=(),
            mcp_commands=(),
            paths=tuple(path for path in settings.paths if "://" not in path),
            client_paths=tuple(one for one in settings.client_paths if "://" not in one[1]),
            skills_root="" if "://" in settings.skills_root else settings.skills_root,
        )
    )
    catalog.discover()
    disabled = (skill for skill, _ in catalog.snapshot.disabled.values())
    for skill in disabled if kind == "disabled" else catalog.values():
        yield skill.name, skill.description


def _sessions(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the last used sessions; a remote database may be slow and is not queried."""
    if settings.store or not os.path.isdir(settings.state_dir):
        return
    with closing(open_store(settings)) as store:
        found = list_sessions(store, app=CLI_SESSION[0])
        for info in heapq.nlargest(_MAX_SESSIONS, found, key=lambda one: one.updated):
            yield "/".join(info.key), ""
