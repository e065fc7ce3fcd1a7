"""The Ray executor, with a real cluster of one small node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skillbelt import load_settings
from skillbelt.running.executors import Executor
from skillbelt.testing import ExecutorConformance
from tests.fleet.cluster import SmallCluster, open_cluster

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SmallCluster]:
    with open_cluster() as made:
        yield made


@pytest.fixture(scope="module")
def executor(cluster: SmallCluster) -> Executor:
    from skillbelt.fleet.executor import RayExecutor

    settings = load_settings("/", overrides={"executor": "ray", "ray_address": cluster.address})
    return RayExecutor(settings)


class TestRay(ExecutorConformance):
    """Everything that an executor promises."""
