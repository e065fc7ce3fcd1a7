"""The last result of each evaluation with a model is kept, and can be read back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillbelt.evals.last_results import LastResult, last_results
from skillbelt.evals.read import read_evals
from skillbelt.format.skill import Skill
from tests.openai_server import Answer, Server, called, said, serving
from tests.tree import Tree

FOLDER = "project/.agents/skills/csv-report"
CASES = {
    "skill_name": "csv-report",
    "evals": [
        {"id": "one", "prompt": "Summarise this csv", "expect": {"contains": "rows=3"}},
        {"id": "two", "prompt": "What is in this table?", "expect": {"contains": "rows=3"}},
    ],
}


def answer(request: dict[str, Any]) -> Answer:
    """Use the skill for a csv, where it is offered."""
    if request["messages"][-1]["role"] == "tool":
        return said("rows=3")
    text = json.dumps(request["messages"])
    offered = "csv-report" in json.dumps(request["messages"][0])
    if "this csv" in text and offered:
        return called("skill_load", {"skill": "csv-report"})
    return said("No <b>idea</b>.")


@pytest.fixture
def model() -> Iterator[Server]:
    with serving(answer) as server:
        yield server


@pytest.fixture
def skills(tree: Tree) -> Tree:
    tree.skill(FOLDER, description="Reports on a csv.", text="Count the rows.")
    tree.write(f"{FOLDER}/evals/evals.json", json.dumps(CASES))
    return tree


def measure(tree: Tree, model: Server, action: str, *options: str) -> int:
    named = ("--model", f"tiny@{model.url}")
    return tree.run("eval", action, "csv-report", *named, *options).exit_code


def kept(tree: Tree) -> tuple[LastResult, ...]:
    skill = Skill.from_folder(str(tree.path(FOLDER)))
    return last_results(tree.catalog().settings, skill, read_evals(skill))


def files(tree: Tree) -> list[Path]:
    return sorted(Path(tree.catalog().settings.state_dir, "evals").iterdir())


def test_a_trigger_evaluation_is_kept(skills: Tree, model: Server) -> None:
    measure(skills, model, "trigger", "--repeat", "2")
    [found] = kept(skills)
    assert (found.kind, found.skill, found.model) == ("trigger", "csv-report", f"tiny@{model.url}")
    assert (found.measures["recall"].hits, found.measures["recall"].total) == (2, 4)
    assert (found.outcomes, found.repeats) == ({"passed": 2, "failed": 2}, 2)
    assert (found.wrong[0].id, found.wrong[0].text) == ("two", "What is in this table?")
    assert found.same_cases


def test_a_run_is_kept_with_its_difference(skills: Tree, model: Server) -> None:
    measure(skills, model, "run", "--output", "out")
    [found] = kept(skills)
    assert (found.kind, found.measures["passed"].hits) == ("run", 1)
    assert found.difference is not None
    assert (found.difference.baseline, found.difference.tasks) == ("without_skill", 2)
    assert found.difference.mean == 0.5


def test_the_same_evaluation_takes_the_place_of_the_last(skills: Tree, model: Server) -> None:
    measure(skills, model, "trigger")
    measure(skills, model, "trigger", "--repeat", "3")
    assert [one.repeats for one in kept(skills)] == [3]
    assert len(files(skills)) == 1


def test_each_kind_and_model_has_its_own(skills: Tree, model: Server) -> None:
    measure(skills, model, "trigger", "--model", "offline")
    measure(skills, model, "run", "--output", "out")
    found = {(one.kind, one.model.partition("@")[0]) for one in kept(skills)}
    assert found == {("trigger", "tiny"), ("trigger", "offline"), ("run", "tiny")}


def test_another_content_of_the_skill_has_no_result(skills: Tree, model: Server) -> None:
    measure(skills, model, "trigger")
    skills.skill(FOLDER, description="Reports on tables.")
    assert kept(skills) == ()


def test_results_of_other_cases_say_so(skills: Tree, model: Server) -> None:
    measure(skills, model, "trigger")
    more = CASES | {"evals": [*CASES["evals"], {"id": "three", "prompt": "A new one"}]}
    skills.write(f"{FOLDER}/evals/evals.json", json.dumps(more))
    assert [one.same_cases for one in kept(skills)] == [False]


def test_a_result_that_is_not_complete_is_not_kept(skills: Tree, model: Server) -> None:
    measure(skills, model, "trigger", "--max-tokens", "1", "--jobs", "1")
    assert kept(skills) == ()


@pytest.mark.parametrize(
    "damage",
    ["{", "[]", '{"form": 1}', '{"form": 2}', '{"form": 1, "kind": "trigger", "measures": 3}'],
)
def test_a_damaged_file_is_passed_over(skills: Tree, model: Server, damage: str) -> None:
    measure(skills, model, "trigger")
    [path] = files(skills)
    path.write_text(damage)
    assert kept(skills) == ()


def test_shares_that_cannot_be_are_passed_over(skills: Tree, model: Server) -> None:
    measure(skills, model, "trigger")
    [path] = files(skills)
    document = json.loads(path.read_text())
    document["measures"]["recall"]["hits"] = 10**6
    path.write_text(json.dumps(document))
    assert kept(skills) == ()


def test_texts_of_models_are_one_short_line(skills: Tree, model: Server) -> None:
    long = {"evals": [{"id": "x" * 900, "prompt": "a\n\x1b[31m" + "word " * 500}]}
    skills.write(f"{FOLDER}/evals/evals.json", json.dumps(CASES | long))
    measure(skills, model, "trigger")
    [wrong] = kept(skills)[0].wrong
    assert len(wrong.id) <= 200
    assert len(wrong.text) <= 200
    assert wrong.text.isprintable()


def test_a_state_folder_that_cannot_be_used_is_a_warning(skills: Tree, model: Server) -> None:
    state = Path(skills.catalog().settings.state_dir)
    state.mkdir(parents=True, exist_ok=True)
    (state / "evals").write_text("in the way")
    named = ("--model", f"tiny@{model.url}")
    done = skills.run("eval", "trigger", "csv-report", *named)
    assert done.exit_code == 0
    assert "the result is not kept" in done.stderr


def test_show_has_the_last_results(skills: Tree, model: Server) -> None:
    measure(skills, model, "run", "--output", "out")
    shown = skills.run("show", "csv-report").stdout
    assert f"run with tiny@{model.url}" in shown
    assert "passed 0.50" in shown
    assert "+0.50 (+0.00 to +1.00) against without skill" in shown
    [document] = skills.run("show", "csv-report", "--json").document["evaluations"]
    assert (document["kind"], document["measures"]["passed"]["rate"]) == ("run", 0.5)
