"""Attacks that no sandbox can stop by itself: on whoever looks at what a run left."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from skillbelt import Rule
from skillbelt.artifacts.memory import MemoryArtifacts
from tests.benches import SKILL, Bench
from tests.registries import wheel
from tests.running.test_packages_environments import GREET

EVERYTHING = [Rule("*", "*", "allow")]
CONTENT = "what-only-the-user-may-read"
PROGRAMS = (
    "bash",
    "bwrap",
    "cat",
    "git",
    "node",
    "npm",
    "python",
    "python3",
    "setpriv",
    "sh",
    "uv",
)
HOOKS = (".git/hooks/post-checkout", ".git/hooks/pre-commit", ".envrc", ".bashrc", ".profile")
MODULES = ("sitecustomize.py", "usercustomize.py", "conftest.py", "greet.py", "encodings.py")
PLANT = """
for folder in "$WORK_DIR" "$WORK_DIR/inputs" "$OUTPUT_DIR" "$RUN_DIR" "$VIRTUAL_ENV"; do
  mkdir -p "$folder" && cd "$folder" && mkdir -p bin .git/hooks .vscode node_modules/.bin .venv/bin
  for name in %(programs)s; do
    for place in . bin node_modules/.bin .venv/bin; do
      printf '#!/bin/sh\\n: > %(ran)s\\n' > $place/$name; chmod 755 $place/$name
    done
  done
  for name in %(hooks)s; do printf '#!/bin/sh\\n: > %(ran)s\\n' > $name; chmod 755 $name; done
  for name in %(modules)s; do echo 'open("%(ran)s", "w")' > $name; done
  echo 'import os; open("%(ran)s", "w")' > trap.pth
  printf '[core]\\n\\tfsmonitor = ./bash\\n\\thooksPath = .git/hooks\\n' > .git/config
  echo '{"tasks": [{"command": "./bash", "runOptions": {"runOn": "folderOpen"}}]}' \
    > .vscode/tasks.json
  printf 'home = %%s\\n' "$PWD" > pyvenv.cfg
  printf 'script-shell=./bash\\nnode-options=--require ./trap.js\\n' > .npmrc
done
"""


def planted(ran: Path) -> str:
    words = {"programs": PROGRAMS, "hooks": HOOKS, "modules": MODULES}
    return PLANT % {"ran": ran, **{key: " ".join(value) for key, value in words.items()}}


def test_nothing_that_a_run_left_is_run_outside(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attacks 12 and 13. Whatever is done with the workspace, wherever the runtime was started."""
    packages = bench.tree.path("packages")
    packages.mkdir()
    wheel(packages, "greet", GREET)
    for name, value in (("NO_INDEX", 1), ("FIND_LINKS", packages)):
        bench.tree.setenv(f"UV_{name}", value)
    bench.write("scripts/a.py", "# /// script\n# dependencies = ['greet']\n# ///\nimport greet\n")
    bench.runtime = bench.open(rules=EVERYTHING, artifacts=MemoryArtifacts())
    ran = bench.tree.path("ran")
    assert bench.run(planted(ran)).exit_code == 0
    [work] = bench.tree.root.glob("home/.local/state/skillbelt/workspaces/*/work")
    monkeypatch.chdir(work / "bin")
    bench.tree.setenv("PATH", f".:{os.environ['PATH']}")

    outputs = {"globs": ["out/**", "work/**"], "save": True, "inline": True, "max_files": 50}
    assert bench.run("true", outputs=outputs).output_files
    # Packages are installed; what an earlier run planted is not found inside either.
    assert bench.run("python3 scripts/a.py").stderr == ""
    bench.run(".venv/bin/python3 scripts/a.py")  # by its path it runs, inside
    assert bench.run("ls inputs/again", inputs=["workspace://work/bash"]).exit_code == 2
    bench.write("more.txt", "the skill is staged again")
    assert bench.tool("git status; true", terminal=True).data["exit_code"] == 0
    bench.read("workspace://work/bash")
    bench.runtime.close()
    assert not ran.exists()
    subprocess.run(["./bash"], check=True)
    assert ran.exists()  # it would have, had anything of it been run


def test_a_refusal_does_not_tell_what_a_file_holds(bench: Bench) -> None:
    """Attack 66. Neither of what a run points at nor of what it asks for."""
    secret = bench.tree.write("elsewhere/secret.txt", CONTENT)
    bench.runtime = bench.open(
        rules=[Rule("run", "*", "allow"), Rule("host_file", "*", "deny")],
        artifacts=MemoryArtifacts(),
    )
    links = ["out/link.txt", "work/link.txt", "work/inputs/link.txt"]
    bench.run("".join(f"ln -s {secret} {link};" for link in links) + "ln -s / work/root")
    (bench.skill / "requirements.txt").symlink_to(secret)
    save = {"globs": ["out/*", "work/**"], "save": True, "inline": True}
    calls: list[dict[str, object]] = [
        {"inputs": [{"from": f"host://{secret}"}]},
        {"inputs": [{"from": f"host://{secret}/x"}]},
        {"inputs": [{"from": "workspace://work/link.txt"}]},
        {"inputs": [{"from": f"workspace://work/root{secret}"}]},
        {"inputs": [{"from": f"skill://{SKILL}/requirements.txt"}]},
        {"inputs": [{"from": f"artifact://{secret}"}]},
        {"output_files": links},
        {"output_files": [str(secret)]},
        {"outputs": save},
        {"cwd": "work/root"},
        {"cwd": str(secret)},
    ]
    told = [bench.tool("true", **call) for call in calls]
    told += [
        bench.call("read_file", file_name=name)
        for name in (
            "workspace://work/link.txt",
            f"workspace://work/root{secret}",
            f"workspace://../../{secret}",
            f"artifact://{secret}",
            f"skill://{SKILL}/requirements.txt",
        )
    ]
    assert all(CONTENT not in f"{one.text} {one.error} {dict(one.data)}" for one in told)
    assert any(one.error for one in told)


def test_a_refused_file_is_told_the_same_whether_it_is_there_or_not(bench: Bench) -> None:
    """Attack 66. Who may not have a file does not learn from the answer that there is one."""
    there = bench.tree.write("elsewhere/secret.txt", CONTENT)
    rules = [Rule("run", "*", "allow"), Rule("host_file", "*", "deny")]
    bench.runtime = bench.open(rules=rules)
    said = []
    for path in (there, there.with_name("s-none.txt")):
        given = bench.tool("true", inputs=[{"from": f"host://{path}"}])
        said.append(given.error.replace(str(path), "PATH"))
    assert said[0] == said[1] != ""
