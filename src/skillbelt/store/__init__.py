"""Where sessions are kept: in a file that all processes share, or in memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from skillbelt.store.protocol import SessionInfo, SessionKey, Store
from skillbelt.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from skillbelt.settings import Settings
__all__ = ["STATE_FILE", "SessionInfo", "SessionKey", "Store", "open_store"]

STATE_FILE = "state.sqlite3"


def open_store(settings: Settings) -> SqliteStore:
    """The store in the state folder. Nothing is opened or made before it is needed."""
    return SqliteStore(os.path.join(settings.state_dir, STATE_FILE))
