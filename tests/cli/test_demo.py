"""`skillbelt demo`: every stage really happens, with nothing but the package itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skillbelt.cli.demo import examples
from tests.sandbox.guests import hosts
from tests.terminal import on_terminal
from tests.tree import Done, Tree

# A package is fetched and a module compiled when nobody has done so before.


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
    discover, disclose, match, review, _, extract, forbid = found["stages"]
    assert {"code-review", "pdf-text"} <= set(discover["skills"])
    assert disclose["overview_tokens"] < match["all_tokens"] < disclose["full_tokens"]
    rules = {one["rule"] for one in review["output"]["findings"]}
    assert {"eval", "shell-injection", "hard-coded-secret"} <= rules
    assert review["sandbox"] == "wasm"
    assert "34 metres tall" in extract["output_files"][0]["content"]
    assert extract["artifact_files"] and extract["enforced"]["network"].startswith("none")
    assert [line.partition(":")[0] for line in forbid["attempts"]] == ["stopped"] * 4
    assert forbid["works_outside"]  # so that it was the sandbox that stopped it
    assert len(found["next"]) == 3


@pytest.mark.long
def test_people_are_told_the_same(demo: Tree) -> None:
    said = shown(demo).stdout
    for text in (
        "1. Discover",
        "tokens",
        "hard-coded-secret",
        "which enforced:",
        "out/lighthouse.txt",
    ):
        assert text in said
    assert "GOT IN" not in said


@pytest.mark.long
def test_after_once_it_needs_no_network(demo: Tree) -> None:
    shown(demo)
    if os.geteuid() == 0:
        done = subprocess.run(
            ["unshare", "-n", sys.executable, "-m", "skillbelt", "demo"],
            cwd=demo.project,
            capture_output=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    demo.setenv("SKILLBELT_OFFLINE", "1")
    shown(demo)


@pytest.mark.long
def test_a_first_run_without_a_network_says_what_is_missing(open_tree: Tree) -> None:
    open_tree.setenv("SKILLBELT_OFFLINE", "1")
    open_tree.setenv("UV_CACHE_DIR", open_tree.home / "uv")
    done = open_tree.run("demo")
    assert done.exit_code == 1
    assert "The first run downloads one package and needs a network" in done.stdout
    assert "Stage 6 failed." in done.stdout
    assert done.stdout.count("stopped: ") == 4


@pytest.mark.long
def test_a_small_terminal_has_room_for_it(demo: Tree) -> None:
    screen = on_terminal(demo, "demo", columns=40)
    assert screen.exit_code == 0
    named = [
        line for line in screen.lines if "skills &&" not in line and "skillbelt ask" not in line
    ]
    assert max(map(len, named)) < 40
    assert any("hard-coded-secret" in line for line in screen.lines)


@pytest.mark.long
def test_a_cache_that_can_not_be_written_to_is_done_without(demo: Tree) -> None:
    demo.setenv("SKILLBELT_CACHE_DIR", demo.write("a-file"))
    done = shown(demo)
    assert "a-file cannot be written to; nothing is cached" in done.stderr


@pytest.mark.long
def test_what_it_says_to_try_next_can_be_tried(demo: Tree) -> None:
    copy, ask, serve = json.loads(shown(demo, "--json").stdout)["next"]
    demo.write("project/README.md", "One two three.\n")
    here = os.path.dirname(sys.executable)
    environ = {**os.environ, "PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
    for command in (copy, f"{ask} --yes", f"{serve} </dev/null"):
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=demo.project,
            env=environ,
            capture_output=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)


def test_it_leaves_nothing_behind(demo: Tree) -> None:
    own = demo.root / "own"  # other processes of this machine use the usual one
    own.mkdir(0o755)
    demo.setenv("TMPDIR", str(own))
    shown(demo)
    assert os.listdir(own) == []
    assert not (demo.home / ".local").exists()


_AS_SOMEBODY = """
import os, sys
from skillbelt.cli import demo
demo.examples = lambda: sys.argv[1]
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
with demo._project() as project:
    staged = os.path.join(project, "state", "skill")
    demo._write(os.path.join(staged, "SKILL.md"), "staged")
    os.chmod(staged, 0o555)
sys.exit(os.path.exists(os.path.dirname(project)))
"""


def test_an_ordinary_user_is_left_nothing_either(open_tree: Tree) -> None:
    """What is staged can not be written to, and so not be removed as it is."""
    skills = open_tree.root / "skills"
    shutil.copytree(examples(), skills)
    done = subprocess.run(
        [sys.executable, "-c", _AS_SOMEBODY, str(skills)],
        cwd="/",
        capture_output=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_skills_come_from_the_package_or_the_checkout() -> None:
    found: Any = Path(examples())
    assert (found / "pdf-text" / "SKILL.md").is_file()


@pytest.mark.long
def test_a_plain_install_skips_what_needs_an_extra(open_tree: Tree) -> None:
    """Neither wasmtime nor uv is there, as after `pip install skillbelt`."""
    open_tree.setenv("PATH", "/usr/bin:/bin")
    code = (
        "import importlib.machinery, os, sys\n"
        "find = importlib.machinery.PathFinder.find_spec\n"
        "def without(name, *others):\n"
        "    return None if name == 'wasmtime' else find(name, *others)\n"
        "importlib.machinery.PathFinder.find_spec = without\n"
        "sys.modules['uv'] = None\n"
        "sys.executable = '/usr/bin/python3'\n"
        "from skillbelt.cli import main\n"
        "sys.exit(main(['demo', *sys.argv[1:]]))\n"
    )
    if shutil.which("uv", path="/usr/bin:/bin"):
        pytest.skip("needs a system without uv in its own folders: this one has it there")
    done = open_tree.python("-c", code, "--json")
    assert done.exit_code == 0, done.stdout + done.stderr
    assert [one.get("skipped") for one in done.document["stages"]] == [
        *(None, None, None, "wasm", None, "packages", None)
    ]
    wasm, uv = done.stderr.splitlines()[:2]
    assert "pip install 'skillbelt[wasm]'" in wasm
    assert "pip install 'skillbelt[packages]'" in uv
