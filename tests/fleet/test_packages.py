"""A skill with packages, on a real cluster: what the server was allowed, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import needs
from tests.discovery.sources.server import Server, running
from tests.fleet.clusters import TestCluster, python
from tests.registries import list_wheel
from tests.tree import Tree

pytestmark = [needs.linux, pytest.mark.long, pytest.mark.timeout(900)]

# What the command sees of its packages, without the path that they are at.
SAY = """
import greet, hashlib, importlib.metadata, pathlib, socket, sys
place = pathlib.Path(greet.__file__).parent
for path in sorted(place.rglob("*")):
    if path.is_file() and path.suffix != ".pyc":
        print(path.relative_to(place), hashlib.sha256(path.read_bytes()).hexdigest())
print(greet.word, importlib.metadata.version("greet"))
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
except OSError:
    print("no network")
"""
# Runs the skill where the words after the project say, and prints the result without its times.
RUN = """
import json
from skillbelt import Rule, Runtime
project, port, options = sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
with Runtime(project, rules=[Rule("*", "*", "allow")], **options) as belt:
    done = belt.run_sync("greet", ["python3", "scripts/say.py", port])
print(json.dumps([done.stdout, repr(done._replace(duration_ms=0))]))
"""


@pytest.fixture
def index() -> Iterator[Server]:
    with running() as made:
        yield made


def test_a_node_installs_exactly_what_was_granted(
    index: Server, tree: Tree, tmp_path: Path
) -> None:
    for name in ("greet", "other"):  # the second is needed by no skill
        list_wheel(index, name, {f"{name}.py": f"word = 'hello from {name}'"})
    skill = tree.skill("project/.agents/skills/greet")
    tree.write(skill / "scripts" / "say.py", SAY)
    tree.write(skill / "requirements.txt", "greet==1.0\n")
    objects = tmp_path / "objects"
    cluster = TestCluster(
        UV_DEFAULT_INDEX=f"{index.url}/simple",
        UV_NO_CONFIG="1",
        SKILLBELT_OBJECTS=objects.as_uri(),
    )
    try:
        cluster.start("one", "--processors", "1")
        places = {
            name: str(tree.home / name)
            for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
        }

        def run(**options: str) -> tuple[str, str]:
            words = (str(tree.project), index.url.rpartition(":")[2], json.dumps(options))
            stdout, whole = json.loads(python(cluster, RUN, words, **places).splitlines()[-1])
            return stdout, whole

        here, whole_here = run()
        assert here.splitlines()[-2:] == ["hello from greet 1.0", "no network"]
        # The node takes the wheel from the object store, by the hash that was granted. The index
        # has other content by now under the same name, and nothing else is asked of it either.
        list_wheel(index, "greet", {"greet.py": "word = 'evil'"})
        index.requests.clear()
        there, whole_there = run(executor="ray", ray_address=cluster.address)
        assert (there, whole_there) == (here, whole_here)
        assert index.requests == []
    finally:
        cluster.close()
