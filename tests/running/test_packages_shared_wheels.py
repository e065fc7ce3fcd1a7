"""Machines share wheels by the object store: only what has a hash of the lock is used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillbelt.errors import RunRefused
from skillbelt.objects.remote import open_store
from skillbelt.running.packages.environments import provide
from skillbelt.running.packages.index_fetcher import KeptPages
from skillbelt.running.packages.installation import EnvironmentPlan
from tests import needs
from tests.discovery.sources.server import running
from tests.registries import list_wheel, wheel_bytes
from tests.running.test_packages_environments import _made_removable as _made_removable
from tests.running.test_packages_environments import says
from tests.running.test_packages_environments_hostile import Market

pytestmark = [needs.linux, pytest.mark.timeout(180)]
FILE = "greet-1.0-py3-none-any.whl"
PAGE = f"/files/{FILE}"


@pytest.fixture
def objects(tmp_path: Path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
def market(tmp_path: Path) -> Iterator[Market]:
    with running() as index, running() as other:
        list_wheel(index, "greet", {"greet.py": "word = 'hello'"})
        yield Market(tmp_path, index, other)


def planned(market: Market, machine: str, objects: Path) -> EnvironmentPlan:
    """The plan of a machine that has the lock and nothing else."""
    market.root = market.root.parent / machine
    found = market.plan("python", "greet", objects=f"file://{objects}")
    return found._replace(tools=found.tools._replace(kept=KeptPages()))


def wheels(objects: Path) -> list[Path]:
    return [path for path in (objects / "packages").rglob("*") if path.is_file()]


def test_another_machine_needs_no_file_of_the_index(market: Market, objects: Path) -> None:
    provide(planned(market, "one", objects))
    [kept] = wheels(objects)
    assert kept.name == FILE
    plan = planned(market, "two", objects)
    del market.index.pages[PAGE]
    made = provide(plan)
    assert made.path.startswith(str(market.root))
    assert says(made, "import greet; print(greet.word)") == "hello\n"


def test_a_wheel_that_was_replaced_is_not_used(market: Market, objects: Path) -> None:
    provide(planned(market, "one", objects))
    [kept] = wheels(objects)
    kept.write_bytes(wheel_bytes("greet", {"greet.py": "word = 'evil'"}))
    made = provide(planned(market, "two", objects))
    assert says(made, "import greet; print(greet.word)") == "hello\n"
    kept.write_bytes(wheel_bytes("greet", {"greet.py": "word = 'evil'"}))
    plan = planned(market, "three", objects)
    del market.index.pages[PAGE]
    with pytest.raises(RunRefused, match="answered 404"):
        provide(plan)


def test_names_that_are_no_wheel_count_for_nothing(market: Market, objects: Path) -> None:
    provide(planned(market, "one", objects))
    [kept] = wheels(objects)
    data = kept.read_bytes()
    kept.unlink()
    for name in ("greet.whl;rm", "greet-1.0-py3-none-win32.whl", "x"):
        (kept.parent / name).write_bytes(data)
    made = provide(planned(market, "two", objects))
    assert says(made, "import greet; print(greet.word)") == "hello\n"
    assert kept.exists()


def test_a_store_that_fails_is_no_obstacle(market: Market, objects: Path) -> None:
    open_store(f"file://{objects}")
    (objects / "packages").touch()  # no folder can be made there
    made = provide(planned(market, "one", objects))
    assert says(made, "import greet; print(greet.word)") == "hello\n"
    assert os.listdir(objects) == ["packages"]
