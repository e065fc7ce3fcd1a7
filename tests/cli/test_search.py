from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tree import Tree

SKILLS = "project/.agents/skills"
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def skills(tree: Tree) -> Tree:
    tree.skill(f"{SKILLS}/pdf-merge", description="Joins PDF files.", text="Use qpdf for pages.")
    tree.skill(f"{SKILLS}/csv-report", description="Makes charts.", text="Reads a table of sales.")
    return tree


def test_the_best_come_first_with_why(skills: Tree) -> None:
    done = skills.run("search", "join pdf pages")
    assert done == (0, "pdf-merge\tdescription\tJoins PDF files.\n", "")


def test_json_has_all_there_is_to_say(skills: Tree) -> None:
    done = skills.run("search", "qpdf", "--json")
    (found,) = json.loads(done.stdout)["results"]
    assert found.pop("score") > 0
    assert found == {
        "name": "pdf-merge",
        "description": "Joins PDF files.",
        "location": str(skills.path(f"{SKILLS}/pdf-merge/SKILL.md")),
        "field": "text",
        "snippet": "Use qpdf for pages.",
        "variants": [],
    }


def test_nothing_found_is_a_no(skills: Tree) -> None:
    done = skills.run("search", "seismology")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "No skill matches" in done.stderr
    assert json.loads(skills.run("search", "seismology", "--json").stdout) == {"results": []}


def test_the_limit(skills: Tree) -> None:
    assert len(skills.run("search", "pdf table charts").stdout.splitlines()) == 2
    assert len(skills.run("search", "pdf table charts", "--limit", "1").stdout.splitlines()) == 1
    assert skills.run("search", "pdf", "--limit", "0").exit_code == 2


def test_a_denied_skill_does_not_surface(skills: Tree) -> None:
    skills.write("home/.config/skillbelt/config.toml", '[permission.skill]\n"pdf-*" = "deny"\n')
    done = skills.run("search", "join pdf pages", "--json")
    assert done.exit_code == 1
    assert "pdf-merge" not in done.stdout + done.stderr


def test_an_agent_finds_what_it_may_use(skills: Tree) -> None:
    skills.skill(f"{SKILLS}/mine", description="Only for PDF.", disable_model_invocation=True)
    assert "mine" in skills.run("search", "pdf").stdout
    assert "mine" not in skills.run("search", "pdf", "--agent", "a").stdout


@pytest.mark.parametrize("arguments", [(), ("x", "--eval", "f"), ("--eval", "none.jsonl")])
def test_wrong_usage(skills: Tree, arguments: tuple[str, ...]) -> None:
    done = skills.run("search", *arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("skillbelt: ")


def test_a_labelled_set_is_measured(skills: Tree) -> None:
    rows = [
        {"query": "join pdf files", "relevant": ["pdf-merge"]},
        {"query": "a chart of sales", "relevant": ["pdf-merge"]},
    ]
    skills.write("project/set.jsonl", "\n".join(map(json.dumps, rows)))
    done = skills.run("search", "--eval", "set.jsonl", "-v")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0].split("\t")[:2] == ["Hit@1", "0.500"]
    assert "missed: a chart of sales: found csv-report" in done.stderr
    report = json.loads(skills.run("search", "--eval", "set.jsonl", "--json").stdout)
    assert report["requests"] == 2
    assert report["measures"]["Hit@1"]["mean"] == 0.5


def test_the_set_that_ships_is_answered(tree: Tree) -> None:
    labelled = EXAMPLES / "search.jsonl"
    tree.setenv("SKILLS_ROOT", EXAMPLES / "skills")
    done = tree.run("search", "--eval", str(labelled), "--json")
    measures = json.loads(done.stdout)["measures"]
    assert measures["Hit@1"]["mean"] >= 0.9
    assert measures["Recall@10"]["mean"] == 1.0
