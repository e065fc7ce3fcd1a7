from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from skillbelt.discovery.sources import Pulled, pull_all
from skillbelt.values import Limits
from tests.bounds import bounds
from tests.discovery.sources.archives import tree_of
from tests.discovery.sources.server import Server, running

QUICK = Limits(http_timeout_seconds=5)


class Pull(Protocol):
    def __call__(self, source: str, **options: object) -> Pulled: ...


@pytest.fixture(autouse=True)
def no_waiting() -> None:
    bounds(source_timeout_seconds=15)


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def fetch(cache: Path) -> Pull:
    """Call `pull` with the test's cache and short timeouts."""

    def fetch(source: str, **options: object) -> Pulled:
        limits = options.pop("limits", QUICK)
        assert isinstance(limits, Limits)
        return pull_all([source], cache_dir=str(cache), limits=limits, **options)[0]  # type: ignore[arg-type]

    return fetch


@pytest.fixture
def files() -> Callable[[Pulled], dict[str, bytes]]:
    """Return the files of the one folder that a pull gave."""

    def files(pulled: Pulled) -> dict[str, bytes]:
        [located] = pulled.folders
        return tree_of(located.folder)

    return files
