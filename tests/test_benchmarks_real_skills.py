"""The share of real scripts that start is measured as it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import outside, real_skills
from benchmarks.real_skills import draw, summarize

from skillbelt.format.skill import Skill
from skillbelt.running.trial.scripts import scripts_of
from skillbelt.running.trial.trial import ScriptTrial
from tests import needs
from tests.tree import Tree

pytestmark = needs.linux
HELP = "import argparse\nargparse.ArgumentParser().parse_args()\n"


@pytest.fixture
def folder(open_tree: Tree) -> Path:
    for name in ("one", "two", "three"):
        open_tree.write(open_tree.skill(f"pool/first/{name}") / "run.py", HELP)
    lacking = open_tree.skill("pool/second/four")
    open_tree.write(lacking / "run.py", "import no_such_module_anywhere as x\nx.run()\n")
    open_tree.skill("pool/second/text-only")
    return open_tree.path("pool")


def test_a_draw_is_the_same_for_the_same_seed_and_bounds_each_collection(folder: Path) -> None:
    drawn = draw(str(folder), 3, seed=7, most=2)
    assert drawn == draw(str(folder), 3, seed=7, most=2)
    assert len(drawn) == 3 and sum("/first/" in one for one in drawn) == 2
    assert not any("text-only" in one for one in drawn)


def test_a_measurement_goes_on_where_it_ended(
    folder: Path, open_tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, figures = open_tree.path("rows.jsonl"), open_tree.path("figures.json")
    words = [str(folder), "--out", str(rows), "--json", str(figures), "--bar", "0.9"]
    assert real_skills.main(words) == 1
    counted = json.loads(figures.read_text())["figures"]["counted"]
    assert (counted["scripts"], counted["started"], counted["share"]) == (4, 3, 0.75)
    assert counted["failed_by"] == {"module": 1}
    assert "75.0%" in capsys.readouterr().out
    kept = rows.read_text()
    assert real_skills.main(words) == 1
    assert rows.read_text() == kept


def test_a_script_that_starts_nowhere_does_not_count() -> None:
    row = {"language": "python", "started": False, "how": "program", "lacked": [], "line": ""}
    good = {**row, "started": True, "how": "help"}
    rows = [{**row, "outside": {"started": False}}, {**row, "outside": {"started": True}}, good]
    counted = summarize(rows)["counted"]
    assert isinstance(counted, dict)
    assert (counted["can_start"], counted["started"], counted["share"]) == (2, 1, 0.5)
    assert counted["outside_too"] == {"program": 1}


@pytest.mark.skipif(bool(outside.why_not()), reason=outside.why_not() or "it works")
def test_outside_is_harmless(open_tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script sees neither the caller's files nor a network, and is not the caller."""
    secret = open_tree.write("home/secret", "mine")
    skill = open_tree.skill("pool/curious")
    # Only a script that fails inside is started outside: this one does, by where it is.
    code = (
        "import os, socket, sys\n"
        "assert not os.getcwd().startswith('/workspace')\n"
        f"assert os.getuid() == {outside.USER}\n"
        f"assert not os.path.exists({str(secret)!r})\n"
        "assert os.listdir('/tmp') in ([], [os.environ['HOME'].split('/')[2]])\n"
        "assert [name for _, name in socket.if_nameindex()] == ['lo']\n"
        "assert set(os.environ) <= {'PATH', 'HOME', 'LANG', 'PYTHONDONTWRITEBYTECODE', 'PWD',\n"
        "    'NODE_PATH', 'RUN_AS', 'SHLVL', 'OLDPWD', '_', 'LC_CTYPE'}, os.environ\n"
    )
    open_tree.write(skill / "run.py", code)
    monkeypatch.setenv("ACME_TOKEN", "secret")
    words = [str(open_tree.path("pool")), "--out", str(open_tree.path("rows.jsonl")), "--outside"]
    words += ["--cache", str(open_tree.path("cache"))]
    real_skills.main(words)
    (row,) = json.loads(open_tree.path("rows.jsonl").read_text())["scripts"]
    assert (row["outside"]["how"], row["outside"]["line"]) == ("ran", "")


def test_what_is_not_measured_is_counted_apart(folder: Path, open_tree: Tree) -> None:
    """Neither a skill with a package as large as PyTorch, nor what its skill had no time for."""
    open_tree.write(open_tree.skill("pool/second/large") / "run.py", "import torch\n")
    figures = open_tree.path("figures.json")
    words = [str(folder), "--out", str(open_tree.path("rows.jsonl")), "--json", str(figures)]
    real_skills.main([*words, "--seconds", "-1"])
    counted = json.loads(figures.read_text())["figures"]["counted"]
    assert (counted["scripts"], counted["too_heavy"], counted["late"]) == (5, 1, 4)
    assert (counted["can_start"], counted["share"]) == (0, None)


@pytest.mark.skipif(bool(outside.why_not()), reason=outside.why_not() or "it works")
def test_what_does_not_end_outside_is_ended(
    open_tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all that it started: a server may keep the streams open."""
    monkeypatch.setattr(outside, "SECONDS", 2.0)
    skill = open_tree.skill("pool/server")
    open_tree.write(skill / "run.py", "import os, time\nos.fork()\ntime.sleep(600)\n")
    one = Skill.from_folder(str(skill))
    (script,) = scripts_of(one)
    tried = ScriptTrial(path="run.py", language="python", started=False, how="package")
    verdict = outside.start_outside(one, script, tried, str(open_tree.project))
    assert verdict.how == "waits"
