"""The example skill `code-review`: built from its source, and of use on real code."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from skillbelt import Skill
from skillbelt.running.build.make import check
from skillbelt.sandbox.protocol import Outcome, run
from skillbelt.sandbox.wasm.sandbox import WasmSandbox
from skillbelt.testing.sandbox_suite import Place
from tests.sandbox.guests import hosts
from tests.sandbox.wasm_guests.conftest import place as place
from tests.sandbox.wasm_guests.conftest import sandbox as sandbox
from tests.tree import Tree

FOLDER = Path(__file__).parents[1] / "examples" / "skills" / "code-review"
SOURCE = Path(__file__).parents[1] / "src" / "skillbelt"

PYTHON = """\
import os, sys
import subprocess
from typing import Optional

API_KEY = "sk9Fq2x8Lm3Zw71p"
password = "changeme"

def run(name, found=[]):
    subprocess.run("ls " + name, shell=True)
    subprocess.run("ls", shell=True)
    os.system(f"rm {name}")
    try:
        value = eval(name)
    except:
        pass
    model.eval()
    if value is "a":
        return "eval(x)"  # eval(x)
    cursor.execute(f"SELECT * FROM t WHERE id = {name}")
    cursor.execute("SELECT * FROM t WHERE id = %s", (name,))
    # TODO mend this
    # TODO(ada): mend that
    assert (value, "message")

async def fetch(): ...

async def main():
    fetch()
    await fetch()
"""
SCRIPT = """\
import { used, unused, type Kind } from "./lib";
const token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
async function load(): Promise<void> {}
export async function work(kind: Kind) {
  load();
  load().catch(() => used());
  if (kind == 1 || kind == null) console.log("x");
  try { used(); } catch (error) {}
  db.query(`SELECT * FROM t WHERE id = ${kind}`);
  db.query(sql`SELECT * FROM t WHERE id = ${kind}`);
  const pattern = /a == b/.test("eval(x)");
  eval(kind); // review: ignore
}
"""


def executed(sandbox: WasmSandbox, place: Place, given: object) -> Outcome:
    path = os.path.join(place.folder, "skill.wasm")
    shutil.copyfile(FOLDER / "wasm" / "skill.wasm", path)
    os.chmod(path, 0o644)
    return run(sandbox, place.job("./skill.wasm", stdin=json.dumps(given).encode()))


def reviewed(sandbox: WasmSandbox, place: Place, given: object) -> dict[str, Any]:
    outcome = executed(sandbox, place, given)
    assert (outcome.exit_code, outcome.stderr.data) == (0, b""), outcome
    answer: dict[str, Any] = json.loads(outcome.stdout.data)
    return answer


def rules(answer: dict[str, Any]) -> list[tuple[int, str]]:
    return [(each["line"], each["rule"]) for each in answer["findings"]]


@pytest.mark.long
def test_the_component_is_what_the_source_gives() -> None:
    assert check(Skill.from_folder(FOLDER), hosts()).current


def test_python_is_reviewed(sandbox: WasmSandbox, place: Place) -> None:
    answer = reviewed(sandbox, place, {"files": [{"path": "a.py", "content": PYTHON}]})
    assert rules(answer) == [
        (1, "unused-import"), (3, "unused-import"), (5, "hard-coded-secret"),
        (8, "mutable-default"), (9, "shell-injection"), (11, "shell-injection"), (13, "eval"),
        (14, "bare-except"), (17, "is-literal"), (19, "sql-injection"),
        (21, "todo-without-owner"), (23, "assert-tuple"), (28, "missing-await"),
    ]  # fmt: skip


def test_typescript_is_reviewed(sandbox: WasmSandbox, place: Place) -> None:
    answer = reviewed(sandbox, place, {"files": [{"path": "a.ts", "content": SCRIPT}]})
    assert rules(answer) == [
        (1, "unused-import"), (2, "hard-coded-secret"), (5, "missing-await"),
        (7, "leftover-debugging"), (7, "loose-equality"), (8, "swallowed-error"),
        (9, "sql-injection"),
    ]  # fmt: skip
    assert answer["summary"] == {"files": 1, "findings": 7, "high": 3, "medium": 1, "low": 3}


def test_a_secret_is_not_repeated(sandbox: WasmSandbox, place: Place) -> None:
    outcome = executed(sandbox, place, {"files": [{"path": "a.ts", "content": SCRIPT}]})
    assert b"ghp_" not in outcome.stdout.data


def test_a_text_and_its_file_are_reviewed(sandbox: WasmSandbox, place: Place) -> None:
    answer = reviewed(sandbox, place, {"code": "eval(x)\n", "file": "src/main.py"})
    assert [(each["path"], each["rule"]) for each in answer["findings"]] == [
        ("src/main.py", "eval")
    ]


def test_files_can_be_given_by_their_paths(sandbox: WasmSandbox, place: Place) -> None:
    for name in ("a.py", "b.py"):
        Path(place.folder, name).write_text("eval(x)\n")
    given = {"text": "eval(x)\n", "path": "a.py", "files": ["a.py", "b.py"]}
    answer = reviewed(sandbox, place, given)
    assert [each["path"] for each in answer["findings"]] == ["a.py", "b.py"]


def test_a_folder_is_reviewed(sandbox: WasmSandbox, place: Place) -> None:
    for name, text in (("p/a.py", "eval(x)\n"), ("p/node_modules/b.js", "eval(x)"), ("p/c", "")):
        path = Path(place.folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    answer = reviewed(sandbox, place, {"path": "p"})
    assert [(each["path"], each["rule"]) for each in answer["findings"]] == [("p/a.py", "eval")]
    assert answer["summary"]["files"] == 1


def test_a_question_with_a_file_is_answered_by_a_review(open_tree: Tree) -> None:
    open_tree.setenv("SKILLBELT_CACHE_DIR", hosts().cache_dir)
    shutil.copytree(FOLDER, open_tree.path("project/.agents/skills/code-review"))
    open_tree.write("project/bad.py", "eval(x)\n")
    done = open_tree.run("ask", "Can you review my code?", "--file", "bad.py", "--yes")
    assert (done.exit_code, done.stderr) == (0, "")
    assert '"path": "inputs/bad.py"' in done.stdout
    assert '"rule": "eval"' in done.stdout


def test_a_question_without_the_file_says_what_to_do(open_tree: Tree) -> None:
    open_tree.setenv("SKILLBELT_CACHE_DIR", hosts().cache_dir)
    shutil.copytree(FOLDER, open_tree.path("project/.agents/skills/code-review"))
    done = open_tree.run("ask", "Can you review my code?", "--yes")
    assert done.exit_code == 1
    assert "attach one to the question" in done.stdout


def test_what_is_wanted_can_be_narrowed(sandbox: WasmSandbox, place: Place) -> None:
    files = [{"path": "a.py", "content": PYTHON}]
    only = reviewed(sandbox, place, {"files": files, "rules": ["eval"]})
    high = reviewed(sandbox, place, {"files": files, "min_severity": "high", "ignore": ["eval"]})
    assert rules(only) == [(13, "eval")]
    assert {each["severity"] for each in high["findings"]} == {"high"}
    assert "eval" not in {each["rule"] for each in high["findings"]}


def test_few_things_are_said_about_good_code(sandbox: WasmSandbox, place: Place) -> None:
    """The runtime's own modules: nothing is said that is not so."""
    files = [
        {"path": name, "content": (SOURCE / name).read_text("utf-8")}
        for name in (
            "files/contain.py",
            "settings.py",
            "permission/audit.py",
            "hosts.py",
            "sandbox/process/run.py",
        )
    ]
    assert rules(reviewed(sandbox, place, {"files": files})) == []


@pytest.mark.parametrize(
    "given,message",
    [
        (None, "must be a JSON object"),
        ({}, "give {"),
        ({"files": [{"path": 1}]}, "files[0] needs a path"),
        ({"code": "eval(x)"}, "code needs a file"),
        ({"path": "absent"}, "ENOENT"),
        ({"files": [], "rules": ["none"]}, "no rule is named none"),
        ({"files": [], "min_severity": "worst"}, "min_severity can be"),
    ],
)
def test_wrong_input_is_said(
    given: object, message: str, sandbox: WasmSandbox, place: Place
) -> None:
    outcome = executed(sandbox, place, given)
    assert outcome.exit_code == 2
    assert outcome.stderr.data.decode().startswith("code-review: ")
    assert message in outcome.stderr.data.decode()
