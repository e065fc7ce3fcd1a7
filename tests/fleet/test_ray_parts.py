"""The private parts of Ray that skillbelt uses."""

from __future__ import annotations

from importlib.util import find_spec
from types import ModuleType

import pytest

from skillbelt.errors import ConfigError
from skillbelt.fleet.join import STARTER
from tests.needs import not_run


def need_ray() -> None:
    if find_spec("ray") is None:
        not_run("needs the extra ray: make setup")


@pytest.fixture
def ray_parts() -> ModuleType:
    # Not while tests are collected: Ray reads its settings when it is imported.
    need_ray()
    from skillbelt.fleet import ray_parts

    return ray_parts


def test_the_installed_ray_has_every_part(ray_parts: ModuleType) -> None:
    """When this fails: find another way to that part, or allow fewer versions in the extra."""
    parts = [(module, name) for module, names in ray_parts.PARTS.items() for name in names or ("",)]
    assert len(parts) > 10
    for module, name in parts:
        assert ray_parts.find_part(module, name) is not None


def test_the_installed_ray_starts_nodes_by_its_module() -> None:
    need_ray()
    assert find_spec(STARTER)


@pytest.mark.parametrize(
    ("module", "names", "told"),
    [
        ("ray._raylet", ("Gone.at_all",), "ray._raylet.Gone.at_all"),
        ("ray.gone", (), "ray.gone"),
    ],
)
def test_a_part_that_is_gone_is_one_readable_error(
    ray_parts: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    names: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.setattr(ray_parts, "PARTS", {module: names})
    with pytest.raises(ConfigError, match=f"^Ray [0-9.]+ has no {told}, which skillbelt needs"):
        ray_parts.check_parts()
