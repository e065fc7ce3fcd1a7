"""The usual executor: this machine."""

from __future__ import annotations

import pytest

from skillbelt.running.executors import Executor, LocalExecutor
from skillbelt.testing import ExecutorConformance
from tests.tree import Tree


@pytest.fixture
def executor(tree: Tree) -> Executor:
    return LocalExecutor(tree.settings())


class TestLocal(ExecutorConformance):
    """Everything that an executor promises."""
