from __future__ import annotations

import json
from pathlib import Path

import pytest

from skillbelt import Catalog
from tests.terminal import on_terminal
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
    assert done == (0, "pdf-merge\tdescription\tJoins PDF files.\tstrong\n", "")


def test_json_has_all_there_is_to_say(skills: Tree) -> None:
    done = skills.run("search", "qpdf", "--json")
    (found,) = json.loads(done.stdout)["results"]
    assert found.pop("score") > 0
    assert 0.6 <= found.pop("confidence") < 1.0
    assert found == {
        "name": "pdf-merge",
        "description": "Joins PDF files.",
        "location": str(skills.path(f"{SKILLS}/pdf-merge/SKILL.md")),
        "field": "text",
        "snippet": "Use qpdf for pages.",
        "variants": [],
        "strength": "strong",
    }


def test_nothing_found_is_a_no(skills: Tree) -> None:
    done = skills.run("search", "seismology")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "No skill matches" in done.stderr
    assert json.loads(skills.run("search", "seismology", "--json").stdout) == {"results": []}


MORE = {
    "docker-debug": "Finds out why a container keeps crashing or does not start.",
    "letters": "Writes letters. Keeps a list of addresses.",
    "images": "Resizes images and keeps their colours.",
    "calendar": "Plans meetings and keeps a calendar.",
}


@pytest.fixture
def more(tree: Tree) -> Tree:
    for name, about in MORE.items():
        tree.skill(f"{SKILLS}/{name}", description=about)
    return tree


def test_noise_is_left_out_unless_asked_for(more: Tree) -> None:
    query = ("search", "my container keeps crashing")
    done = more.run(*query)
    assert done.stdout.split("\t")[::3] == ["docker-debug", "strong\n"]
    assert "3 results that hardly fit left out; --all" in done.stderr
    every = json.loads(more.run(*query, "--all", "--json").stdout)["results"]
    assert [one["strength"] for one in every] == ["strong", *["noise"] * 3]
    assert len(json.loads(more.run(*query, "--json").stdout)["results"]) == 1


def test_only_noise_is_a_no(more: Tree) -> None:
    done = more.run("search", "bake a chocolate cake and serve it")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "No skill matches" in done.stderr


def test_only_results_that_are_sure_enough(more: Tree) -> None:
    query = ("search", "my container keeps crashing", "--json", "--min-confidence")
    (found,) = json.loads(more.run(*query, "0.6").stdout)["results"]
    assert (found["name"], found["strength"]) == ("docker-debug", "strong")
    assert 0.6 <= found["confidence"] <= 1.0
    assert len(json.loads(more.run(*query, "0").stdout)["results"]) == 4
    none = more.run(*query, "1")
    assert none.exit_code == 1
    assert "4 results below 1 left out, the first with 0." in none.stderr
    assert "a lower --min-confidence shows more" in none.stderr
    for wrong in ("2", "-1", "nan", "much"):
        done = more.run(*query, wrong)
        assert done.exit_code == 2
        assert "from 0 to 1" in done.stdout + done.stderr


def test_a_skill_that_the_query_rules_out_comes_last(more: Tree) -> None:
    query = (
        "search",
        "which skill plans my day, and why is it not docker-debug?",
        "--all",
        "--json",
    )
    names = [one["name"] for one in json.loads(more.run(*query).stdout)["results"]]
    assert "docker-debug" not in names[:1]


def test_on_a_terminal_how_sure_it_is_comes_second(more: Tree) -> None:
    screen = on_terminal(more, "search", "my container keeps crashing", columns=80)
    assert screen.lines[0].split() == ["name", "match", "found", "in", "why"]
    assert screen.lines[1].split()[:3] == ["docker-debug", "strong", "description"]
    assert "\x1b[32mstrong" in screen.written
    wide = on_terminal(more, "search", "my container keeps crashing", "--wide", columns=60)
    assert "…" not in "".join(wide.lines)


def test_no_right_answer_of_the_set_that_ships_is_noise(tree: Tree) -> None:
    tree.setenv("SKILLS_ROOT", EXAMPLES / "skills")
    catalog = Catalog(settings=tree.settings())
    for line in (EXAMPLES / "search.jsonl").read_text("utf-8").splitlines():
        labelled = json.loads(line)
        found = {one.skill.name: one.strength for one in catalog.search(labelled["query"])}
        assert "noise" not in [found[name] for name in labelled["relevant"]], line


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
