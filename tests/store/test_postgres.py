from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from skillbelt.store import Store
from skillbelt.store.postgres.store import PostgresStore
from skillbelt.testing.suites import StoreConformance


class TestPostgresStore(StoreConformance):
    @pytest.fixture
    def store(self, postgres_url: str) -> Iterator[Store]:
        with closing(PostgresStore(postgres_url)) as store:
            yield store
