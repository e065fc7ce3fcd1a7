"""The Ray executor, with a real cluster of one small node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillbelt import RunRefused, Runtime, load_settings
from skillbelt.permission.rules import Rule
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


@pytest.fixture(scope="module")
def belt(cluster: SmallCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    project = tmp_path_factory.mktemp("project")
    skill = project / ".agents" / "skills" / "echo"
    skill.mkdir(parents=True)
    skill.joinpath("SKILL.md").write_text("---\nname: echo\ndescription: Says things.\n---\n")
    more: Any = {"executor": "ray", "ray_address": cluster.address, "host_roots": [str(project)]}
    with Runtime(project, rules=[Rule("*", "*", "allow")], **more) as made:
        yield made


def test_a_file_that_stays_on_its_node_is_named_with_the_remedy(belt: Runtime) -> None:
    script = "truncate -s 257M $OUTPUT_DIR/large; echo x > $OUTPUT_DIR/small"
    done = belt.run_sync("echo", ["sh", "-c", script], outputs=["out/*"])
    assert [one.name for one in done.output_files] == ["out/small"]
    [told] = done.warnings
    assert told.startswith("out/large stays on the node, and is not in the result: it has more")
    assert "256 MiB" in told


def test_a_file_that_cannot_be_sent_is_named_and_nothing_runs(belt: Runtime) -> None:
    large = Path(belt.settings.project, "large")
    with open(large, "wb") as file:
        file.truncate(257 * 2**20)
    with pytest.raises(RunRefused, match="work/inputs/large is not sent to a node"):
        belt.run_sync("echo", "echo ran", inputs=[f"host://{large}"])
