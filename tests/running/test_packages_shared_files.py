"""Machines share files of packages: only what has a hash of the lock is used."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillbelt.errors import RunRefused
from skillbelt.objects.remote import open_store
from skillbelt.permission.packages import Lock
from skillbelt.running.packages.environments import provide
from skillbelt.running.packages.fetched import BodyChunks, Fetched, KeptPages, NotFetched
from skillbelt.running.packages.installation import EnvironmentPlan
from skillbelt.running.packages.shared_files import SharedFiles
from tests import needs
from tests.discovery.sources.server import running
from tests.registries import GREETING, list_wheel, publish, source, tarball, wheel_bytes
from tests.running.test_packages_environments import _made_removable as _made_removable
from tests.running.test_packages_environments import says
from tests.running.test_packages_environments_hostile import Market

pytestmark = [needs.linux]
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


# --- Sources, and npm's archives -----------------------------------------------------------------


def made_by_npm(market: Market, objects: Path, lock: Lock | None = None) -> EnvironmentPlan:
    found = market.plan("node", "nicepkg@1.3.0", objects=f"file://{objects}", locked=lock)
    return found._replace(tools=found.tools._replace(kept=KeptPages()))


@pytest.mark.long
@needs.npm
def test_a_machine_with_the_lock_asks_no_registry_for_what_npm_installs(
    market: Market, objects: Path
) -> None:
    publish(market.index, "nicepkg")
    plan = made_by_npm(market, objects)
    provide(plan)
    [kept] = wheels(objects)
    market.root, market.index.requests[:] = market.root.parent / "two", []
    made = provide(made_by_npm(market, objects, plan.lock))
    assert Path(made.modules, "nicepkg", "index.js").read_text() == GREETING
    assert market.index.requests == []
    # Another content under the same hash is not used: the registry's is.
    kept.write_bytes(tarball({"package.json": "{}", "index.js": "evil"}))
    market.root = market.root.parent / "three"
    made = provide(made_by_npm(market, objects, plan.lock))
    assert Path(made.modules, "nicepkg", "index.js").read_text() == GREETING
    assert kept.read_bytes() == market.index.pages["/nicepkg.tgz"]
    # And without the registry, nothing is installed.
    kept.write_bytes(b"short")
    market.index.pages.clear()
    market.root = market.root.parent / "four"
    with pytest.raises(RunRefused, match=r"nicepkg@1\.3\.0"):
        provide(made_by_npm(market, objects, plan.lock))


def test_archives_that_wait_on_this_machine_are_bounded_together(objects: Path) -> None:
    shared = SharedFiles.from_url(f"file://{objects}")

    def fetch() -> Fetched:
        return Fetched("", "", None, BodyChunks(io.BytesIO(b"x" * 60)))

    wrong = "sha512:" + "0" * 128
    assert shared.pass_on(wrong, "one", 100, fetch).whole(100) == b"x" * 60
    with pytest.raises(NotFetched, match="more than 100 bytes"):
        shared.pass_on(wrong, "two", 100, fetch)
    assert not objects.exists() or wheels(objects) == []


def test_a_source_is_fetched_once_and_built_on_each_machine(
    market: Market, objects: Path, tmp_path: Path
) -> None:
    source(tmp_path, "made")
    data = (tmp_path / "made-1.0.tar.gz").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    link = f'<a href="/files/made-1.0.tar.gz#sha256={digest}">made-1.0.tar.gz</a>'
    market.index.pages["/files/made-1.0.tar.gz"] = data
    market.index.pages["/simple/made/"] = f"<html><body>{link}</body></html>".encode()

    def planned(lock: Lock | None = None) -> EnvironmentPlan:
        found = market.plan(
            "python", "made", objects=f"file://{objects}", allow_builds=True, locked=lock
        )
        return found._replace(tools=found.tools._replace(kept=KeptPages()))

    plan = planned()
    provide(plan)
    [kept] = wheels(objects)
    assert kept.read_bytes() == data
    market.root, market.index.requests[:] = market.root.parent / "two", []
    del market.index.pages["/files/made-1.0.tar.gz"]
    made = provide(planned(plan.lock))
    assert says(made, "import made; print(made.word)") == "built made\n"
    # No hash verifies the result of a build: no file of it is shared.
    assert wheels(objects) == [kept]
