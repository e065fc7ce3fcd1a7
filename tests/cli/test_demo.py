"""`skillbelt demo`: every stage really happens, with nothing but the package itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from skillbelt.cli.demo import examples
from tests.sandbox.guests import hosts
from tests.tree import Done, Tree

# A package is fetched and a module compiled when nobody has done so before.
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def demo(open_tree: Tree) -> Tree:
    open_tree.setenv("SKILLBELT_CACHE_DIR", hosts().cache_dir)
    return open_tree


def shown(tree: Tree, *options: str) -> Done:
    done = tree.run("demo", *options)
    assert done.exit_code == 0, done.stdout + done.stderr
    return done


def test_it_goes_from_discovery_to_result(demo: Tree) -> None:
    found = json.loads(shown(demo, "--json").stdout)
    discover, disclose, _, review, _, extract, forbid = found["stages"]
    assert {"code-review", "pdf-text"} <= set(discover["skills"])
    assert disclose["overview_tokens"] < disclose["full_tokens"]
    rules = {one["rule"] for one in review["output"]["findings"]}
    assert {"eval", "shell-injection", "hard-coded-secret"} <= rules
    assert review["sandbox"] == "wasm"
    assert "34 metres tall" in extract["output_files"][0]["content"]
    assert extract["artifact_files"] and extract["enforced"]["network"].startswith("none")
    assert [line.partition(":")[0] for line in forbid["attempts"]] == ["stopped"] * 4
    assert len(found["next"]) == 3


def test_people_are_told_the_same(demo: Tree) -> None:
    said = shown(demo).stdout
    for text in ("1. Discover", "tokens", "hard-coded-secret", "which held:", "out/lighthouse.txt"):
        assert text in said
    assert "GOT IN" not in said


def test_after_once_it_needs_no_network(demo: Tree) -> None:
    shown(demo)
    demo.setenv("SKILLBELT_OFFLINE", "1")
    demo.setenv("UV_OFFLINE", "1")
    shown(demo)


def test_it_leaves_nothing_behind(demo: Tree) -> None:
    before = set(os.listdir("/tmp"))
    shown(demo)
    assert not [one for one in set(os.listdir("/tmp")) - before if one.startswith("skillbelt-demo")]
    assert not (demo.home / ".local").exists()


def test_the_skills_come_from_the_package_or_the_checkout() -> None:
    found: Any = Path(examples())
    assert (found / "pdf-text" / "SKILL.md").is_file()
