"""Origins that every machine trusts, in PostgreSQL; two state folders are two machines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from skillbelt.errors import ConfigError
from skillbelt.store.postgres.database import Database
from skillbelt.store.postgres.origins import PostgresOrigins
from skillbelt.trust import Trust, TrustEntry
from skillbelt.values import Origin
from tests.postgres import Server

URL = "https://skills.example/team"
BELOW = Origin("archive", f"{URL}/pdf.zip")


@pytest.fixture
def database(postgres_url: str) -> Iterator[Database]:
    with closing(Database(postgres_url)) as database:
        yield database


@pytest.fixture
def machines(database: Database, tmp_path: Path) -> tuple[Trust, Trust]:
    one, other = (Trust(str(tmp_path / name), PostgresOrigins(database)) for name in "ab")
    return one, other


def test_an_origin_is_trusted_on_every_machine(machines: tuple[Trust, Trust]) -> None:
    one, other = machines
    added = one.add(URL)
    assert other.origin(BELOW)
    [entry] = other.entries()
    assert entry == added
    assert entry.place.startswith("postgresql://")
    assert "@" in entry.by
    assert not Path(one.path).exists()
    assert one.add(f"{URL}/") == added


def test_what_is_removed_is_trusted_nowhere(machines: tuple[Trust, Trust], tmp_path: Path) -> None:
    one, other = machines
    Trust(str(tmp_path / "a")).add(URL)
    one.add(URL)
    assert len(one.entries()) == 2
    assert one.remove(URL)
    assert (one.origin(BELOW), other.origin(BELOW)) == (False, False)
    assert one.remove(URL) is None


def test_a_folder_is_trusted_on_its_own_machine(
    machines: tuple[Trust, Trust], tmp_path: Path
) -> None:
    """The same path may be anything elsewhere."""
    one, other = machines
    folder = tmp_path / "project"
    folder.mkdir()
    entry = one.add(str(folder))
    assert (one.project(str(folder)), other.project(str(folder))) == (True, False)
    assert entry.place == ""


def test_a_file_of_this_machine_stays_its_own(
    machines: tuple[Trust, Trust], tmp_path: Path
) -> None:
    one, other = machines
    archive = tmp_path / "skills.zip"
    archive.touch()
    one.add(str(archive))
    origin = Origin("archive", archive.as_uri())
    assert (one.origin(origin), other.origin(origin)) == (True, False)


def test_a_change_that_cannot_be_recorded_is_not_made(machines: tuple[Trust, Trust]) -> None:
    one, other = machines

    def refuse(entry: TrustEntry) -> None:
        raise ConfigError("the disk is full")

    with pytest.raises(ConfigError, match="the disk is full"):
        one.add(URL, refuse)
    assert other.entries() == []
    one.add(URL)
    with pytest.raises(ConfigError, match="the disk is full"):
        one.remove(URL, refuse)
    assert other.origin(BELOW)


@pytest.mark.parametrize("url", ["https://", "", "HTTPS://skills.example", "https://a.example/../"])
def test_a_row_that_no_machine_wrote_does_not_count(
    machines: tuple[Trust, Trust], postgres_url: str, url: str
) -> None:
    one, _ = machines
    assert one.entries() == []
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("INSERT INTO skillbelt.trust VALUES ('x', %s, 0, '')", [url])
    assert one.entries() == []
    assert not one.origin(BELOW)


def test_while_the_server_is_away_no_shared_origin_is_trusted(
    own_postgres: Server, tmp_path: Path
) -> None:
    with closing(Database(own_postgres.url("postgres"), patience=0.3)) as database:
        Trust(str(tmp_path)).add("https://mine.example")
        trust = Trust(str(tmp_path), PostgresOrigins(database))
        trust.add(URL)
        assert trust.origin(BELOW)
        own_postgres.stop()
        assert not trust.origin(BELOW)
        assert trust.origin(Origin("archive", "https://mine.example/a.zip"))
        [said] = trust.diagnostics
        assert said.code == "trust-unusable"
        assert "cannot be reached" in said.message
        with pytest.raises(ConfigError):
            trust.add("https://other.example")
        own_postgres.start()
        again = Trust(str(tmp_path), PostgresOrigins(database))
        assert again.origin(BELOW)
