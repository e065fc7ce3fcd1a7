"""The trusted origins: the user's own, and those that all machines of a team share."""

from __future__ import annotations

from skillbelt.errors import MissingExtra
from skillbelt.settings import Settings
from skillbelt.trust import Trust


def open_trust(settings: Settings) -> Trust:
    """Return the trust of this machine, with the origins in the database of the setting `store`."""
    if not settings.store:
        return Trust(settings.state_dir)
    try:
        from skillbelt.store.postgres.origins import open_origins  # extra: postgres
    except ImportError as error:
        raise MissingExtra("postgres", "a store in PostgreSQL") from error
    return Trust(settings.state_dir, open_origins(settings.store))
