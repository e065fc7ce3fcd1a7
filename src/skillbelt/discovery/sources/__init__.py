"""Where skills come from besides plain folders: archives, single files and published lists.

Each source is brought to a local folder. Every command imports this module, so the work is done
in modules that are loaded only when a source is pulled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skillbelt.discovery.sources.located import (
    MCP_COMMAND,
    Located,
    Pulled,
    command_source,
    is_remote,
)

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from skillbelt.values import Limits

__all__ = [
    "MCP_COMMAND",
    "Located",
    "Pulled",
    "command_source",
    "is_remote",
    "pull",
    "pull_all",
]


def pull(
    source: str,
    *,
    cache_dir: str,
    limits: Limits,
    refresh: bool = False,
    offline: bool = False,
    private: Sequence[str] = (),
) -> Pulled:
    """The source as a local folder, from the network or the cache. Never raises.

    Takes at most `bounds.SOURCE_TIMEOUT_SECONDS`. When nothing new can be had, the last good copy
    is given with a diagnostic. `refresh` asks the server even if the copy is recent; `offline`
    asks nobody. `private` names what it may lead to on this machine and its networks.
    """
    [pulled] = pull_all(
        [source],
        cache_dir=cache_dir,
        limits=limits,
        refresh=refresh,
        offline=offline,
        private=private,
    )
    return pulled


def pull_all(
    sources: Sequence[str],
    *,
    cache_dir: str,
    limits: Limits,
    refresh: bool = False,
    offline: bool = False,
    private: Sequence[str] = (),
    strangers: Container[str] = (),
) -> list[Pulled]:
    """Every source at once, results in the order given; a slow one delays and hides no other.

    Those among the `strangers` were not named by the user, so they may not lie inside.
    """
    if not sources:
        return []
    from skillbelt.discovery.sources.remote import Job, run

    jobs = [
        Job(
            source=source,
            cache_dir=cache_dir,
            limits=limits,
            refresh=refresh,
            offline=offline,
            private=tuple(private),
            named=source not in strangers,
        )
        for source in sources
    ]
    return run(jobs)
