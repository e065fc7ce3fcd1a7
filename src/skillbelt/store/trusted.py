"""What the user trusts, together with what all machines of a team trust."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skillbelt.store import open_postgres
from skillbelt.trust import Trust

if TYPE_CHECKING:
    from skillbelt.settings import Settings
    from skillbelt.store.postgres.origins import PostgresOrigins

# One for each database and process, which remembers that the server is away.
_ORIGINS: dict[str, PostgresOrigins] = {}


def open_trust(settings: Settings) -> Trust:
    """Return what this machine trusts, with the origins in the database of the setting `store`."""
    if not settings.store:
        return Trust(settings.state_dir)
    if settings.store not in _ORIGINS:
        database = open_postgres(settings.store).database
        from skillbelt.store.postgres.origins import PostgresOrigins  # extra: postgres

        _ORIGINS.setdefault(settings.store, PostgresOrigins(database))
    return Trust(settings.state_dir, _ORIGINS[settings.store])
