"""The origins that every machine of a team trusts, in PostgreSQL."""

import hashlib
import time
from typing import Any

import psycopg

from skillbelt.errors import ConfigError
from skillbelt.store import open_postgres
from skillbelt.store.postgres.database import Database
from skillbelt.store.postgres.store import decode_text, encode_text
from skillbelt.trust import TrustEntry, normal_url

# After a failed call: how long further calls are answered without asking the server.
_AWAY_SECONDS = 10.0


class PostgresOrigins:
    """The trusted origins in a database. ConfigError when it cannot be used."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.place = database.place
        self._failed: tuple[float, ConfigError] | None = None

    def entries(self) -> list[TrustEntry]:
        """Return the origins in the order they were added, without rows that `add` did not write.

        While the server is away, only one call in ten seconds waits for it.
        """
        if self._failed is not None and time.monotonic() < self._failed[0] + _AWAY_SECONDS:
            raise self._failed[1]
        query = "SELECT url, time, added_by FROM skillbelt.trust ORDER BY time, url"
        try:
            rows = self._database.read(query)
        except ConfigError as error:
            self._failed = time.monotonic(), error
            raise
        self._failed = None
        return [
            TrustEntry(kind="origin", value=url, time=at, place=self.place, by=decode_text(by))
            for url, at, by in rows
            if url and normal_url(url) == url
        ]

    def add(self, entry: TrustEntry) -> None:
        """Trust the origin of the entry on every machine; an existing entry is kept."""
        row = (_digest_url(entry.value), entry.value, entry.time, encode_text(entry.by))

        def work(db: "psycopg.Connection[Any]") -> int:
            query = "INSERT INTO skillbelt.trust VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
            return db.execute(query, row).rowcount

        self._database.write(work)

    def remove(self, url: str) -> None:
        """Stop trusting an origin, on every machine."""

        def work(db: "psycopg.Connection[Any]") -> int:
            return db.execute(
                "DELETE FROM skillbelt.trust WHERE mark = %s", [_digest_url(url)]
            ).rowcount

        self._database.write(work)


# One for each database and process, so that it remembers that the server is away.
_OPENED: dict[str, PostgresOrigins] = {}


def open_origins(url: str) -> PostgresOrigins:
    """Return the trusted origins in the database at the URL: the same ones each time."""
    if url not in _OPENED:
        _OPENED.setdefault(url, PostgresOrigins(open_postgres(url).database))
    return _OPENED[url]


def move_origins(source: Database, target: Database) -> int:
    """Trust the origins of one database in another too, and return how many there are."""
    here, there = PostgresOrigins(source).entries(), PostgresOrigins(target)
    for entry in here:
        there.add(entry)
    lost = {one.value for one in here} - {one.value for one in there.entries()}
    if lost:
        raise ConfigError(f"{target.place}: the trusted origin {min(lost)!r} was not kept there")
    return len(here)


def _digest_url(url: str) -> bytes:
    return hashlib.sha256(url.encode()).digest()
