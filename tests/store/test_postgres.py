from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from skillbelt.errors import ConfigError, StoreUnavailable
from skillbelt.events import NewEvent
from skillbelt.store import SessionKey, Store
from skillbelt.store.postgres.database import Database
from skillbelt.store.postgres.store import PostgresStore
from skillbelt.testing.suites import StoreConformance

KEY = SessionKey("app", "ada", "chat")


class TestPostgresStore(StoreConformance):
    @pytest.fixture
    def store(self, postgres_url: str) -> Iterator[Store]:
        with closing(PostgresStore(postgres_url)) as store:
            yield store


def test_a_server_that_is_away_is_a_clear_error_after_a_bounded_time(tmp_path: Path) -> None:
    url = f"postgresql://ada:hunter2@/belt?host={tmp_path}"
    store = PostgresStore(Database(url, patience=0.1, first_patience=0.1))
    with closing(store), pytest.raises(StoreUnavailable) as raised:
        store.append(KEY, [NewEvent("a")])
    text = str(raised.value)
    assert text.startswith(f"postgresql://ada@{tmp_path}/belt: the server cannot be reached (")
    assert "nothing was changed" in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "url", ["postgresql://ada:hunter2/x@db/belt", "postgresql://ada@db/belt?hunter2=1"]
)
def test_an_error_does_not_quote_a_wrong_url(url: str) -> None:
    with pytest.raises(ConfigError, match="store: is not a URL of PostgreSQL") as raised:
        PostgresStore(url)
    assert "hunter2" not in "".join(traceback.format_exception(raised.value))
