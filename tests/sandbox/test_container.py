"""The sandbox of containers holds every promise, with either engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skillbelt.sandbox.conformance import SandboxConformance
from skillbelt.sandbox.container import ContainerSandbox
from skillbelt.settings import Settings
from tests.sandbox.engines import engine as engine


@pytest.fixture(scope="module")
def sandbox(engine: str) -> Iterator[ContainerSandbox]:
    made = ContainerSandbox(Settings(container_engine=engine))
    yield made
    made.close()


class TestContainer(SandboxConformance):
    pass
