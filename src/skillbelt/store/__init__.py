"""Stores for sessions: a file that all processes share, PostgreSQL, or memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from skillbelt.errors import MissingExtra
from skillbelt.late import Late
from skillbelt.store.sqlite import SqliteStore
from skillbelt.store.values import SessionInfo, SessionKey

if TYPE_CHECKING:
    from skillbelt.settings import Settings
    from skillbelt.store.postgres.store import PostgresStore
    from skillbelt.store.protocol import OpenedStore, Store
__all__ = ["STATE_FILE", "SessionInfo", "SessionKey", "Store", "open_store"]

# cost: 4 ms, since it imports `typing`; only those who write a store need it.
_CONTRACT = Late("skillbelt.store.protocol")
STATE_FILE = "state.sqlite3"
# One for each database and process: a gate opens the store for every decision.
_OPENED: dict[str, PostgresStore] = {}


def __getattr__(name: str) -> object:
    if name == "Store":
        return _CONTRACT.Store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def open_store(settings: Settings) -> OpenedStore:
    """Return the store in the state folder, or in the database that the setting `store` names.

    Nothing is opened or created before it is needed.
    """
    if settings.store:
        return open_postgres(settings.store)
    return SqliteStore(os.path.join(settings.state_dir, STATE_FILE))


def open_postgres(url: str) -> PostgresStore:
    """Return the store in the PostgreSQL database at the URL: the same one each time.

    A closed store opens itself again.
    """
    if url in _OPENED:
        return _OPENED[url]
    try:
        from skillbelt.store.postgres.store import PostgresStore  # extra: postgres
    except ImportError as error:
        raise MissingExtra("postgres", "a store in PostgreSQL") from error
    return _OPENED.setdefault(url, PostgresStore(url))
