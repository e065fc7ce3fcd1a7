"""Sources of skills besides plain folders: archives, single files, published lists, MCP servers.

Each source is copied to a local folder. Every command imports this package, so the modules that do
the work are imported only when a source is pulled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skillbelt.discovery.sources.address import (
    MCP_COMMAND,
    Pulled,
    SourceFolder,
    command_source,
    is_remote,
    read_command,
)

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from skillbelt.values import Limits

__all__ = [
    "MCP_COMMAND",
    "Pulled",
    "SourceFolder",
    "command_source",
    "is_remote",
    "pull_all",
    "read_command",
]


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
    """Pull every source in parallel, results in the order given. Never raises.

    Each takes at most `bounds.SOURCE_TIMEOUT_SECONDS`. When nothing new can be fetched, the last
    good copy is returned with a diagnostic. `refresh` asks the server even if the copy is recent;
    `offline` makes no request. `private` names the private hosts and networks that may be reached.
    The `strangers` were not named by the user, so they may not be on a private network.
    """
    if not sources:
        return []
    from skillbelt.discovery.sources.pull import PullJob, run  # cost: 25 ms, only to pull

    jobs = [
        PullJob(
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
