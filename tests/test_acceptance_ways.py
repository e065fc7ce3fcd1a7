"""One skill, three ways to run it: what comes back is the same, byte for byte."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from skillbelt import Rule, Runtime
from skillbelt.running.json_call import Execution
from tests.sandbox.engines import engine as engine
from tests.sandbox.guests import hosts
from tests.tree import Tree

FOLDER = "project/.agents/skills/tool"
WAYS = ("bubblewrap", "wasm", "container")
# Everything a script can tell apart that is promised to be the same wherever it runs.
SCRIPT = """
import json, os, pathlib, sys
given = json.load(sys.stdin)
told = {name: os.environ[name] for name in sorted(os.environ) if name.startswith(("SKILL", "WORK",
        "OUTPUT", "RUN_", "TIMEOUT", "LANG", "HOME", "TMPDIR", "VIRTUAL", "PATH"))}
told["RUN_DIR"] = os.path.dirname(told["RUN_DIR"])
pathlib.Path("out/made.txt").write_text("made")
pathlib.Path(os.environ["WORK_DIR"], "kept.txt").write_text("kept")
try:
    open("SKILL.md", "a")
    writable = True
except OSError:
    writable = False
print("on stderr \\u00e9\\u4e2d", file=sys.stderr)
json.dump({"given": given, "told": told, "argv": sys.argv, "cwd": os.getcwd(),
           "files": sorted(os.listdir(".")), "text": pathlib.Path("data/words.txt").read_text(),
           "writable": writable, "out": os.listdir(os.environ["OUTPUT_DIR"]),
           "input": os.environ["SKILL_INPUT"]}, sys.stdout, sort_keys=True)
sys.exit(given["code"])
"""


class Ways:
    """A skill, and how to execute it in each sandbox."""

    def __init__(self, tree: Tree, engine: str) -> None:
        self.tree = tree
        folder = tree.skill(FOLDER, allowed_tools="Read Write")
        tree.write(folder / "scripts/run.py", SCRIPT)
        tree.write(folder / "data/words.txt", "wörter\n")
        options: dict[str, Any] = {"rules": [Rule("run", "*", "allow")], "container_engine": engine}
        self.runtimes = {
            name: Runtime(tree.project, sandbox=name, **options, cache_dir=hosts().cache_dir)
            for name in WAYS
        }

    def execute(self, given: object, **options: Any) -> dict[str, Execution]:
        return {
            name: belt.execute_skill_sync("tool", given, **options)
            for name, belt in self.runtimes.items()
        }

    def close(self) -> None:
        for belt in self.runtimes.values():
            belt.close()


@pytest.fixture
def ways(open_tree: Tree, engine: str) -> Iterator[Ways]:
    made = Ways(open_tree, engine)
    yield made
    made.close()


def same(done: dict[str, Execution]) -> dict[str, Any]:
    """The one document that all of them gave, but for what enforced what."""
    documents = []
    for name, one in done.items():
        found = one.document()
        assert found.pop("sandbox") == name
        assert found.pop("enforced")
        # Each kept what it made in a workspace of its own, and WASM has its programs built in.
        text = re.sub(r"/once-\w+", "/once", json.dumps(found, sort_keys=True))
        documents.append(re.sub(r"/run/programs:", "", text))
    assert documents[1:] == documents[:-1]
    document: dict[str, Any] = json.loads(documents[0])
    return document


@pytest.mark.parametrize("code", [0, 3])
def test_all_three_give_the_same(ways: Ways, code: int) -> None:
    found = same(ways.execute({"code": code, "n": [1, "ä"]}, timeout_ms=20_000))
    assert found["exit_status"] == {"kind": "failed" if code else "success", "code": code}
    assert found["output"]["given"] == {"code": code, "n": [1, "ä"]}
    assert found["output"]["text"] == "wörter\n"
    assert found["output"]["writable"] is False
    assert found["stderr"] == "on stderr é中\n"
    assert found["permissions_used"] == ["Read", "Write"]


def test_all_three_end_what_takes_too_long(ways: Ways) -> None:
    ways.tree.write(
        f"{FOLDER}/scripts/run.py", "import time\nprint('begun', flush=True)\ntime.sleep(60)"
    )
    found = same(ways.execute(None, timeout_ms=3_000))
    assert found["exit_status"] == {"kind": "timeout", "code": 124}
    assert found["stdout"] == "begun\n"
