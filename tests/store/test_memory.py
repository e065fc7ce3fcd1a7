from __future__ import annotations

import pytest

from skillbelt.events import NewEvent
from skillbelt.store import SessionKey, Store
from skillbelt.store.memory import MemoryStore
from skillbelt.testing.suites import StoreConformance


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore()


def test_each_store_is_a_world_of_its_own() -> None:
    key = SessionKey("app", "ada", "chat")
    one, other = MemoryStore(), MemoryStore()
    one.append(key, [NewEvent("a")], {"app:a": "1"})
    assert (other.events(key), other.state(key), other.sessions()) == ([], {}, [])
