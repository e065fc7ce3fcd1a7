from __future__ import annotations

import json
from pathlib import Path

from skillbelt.evals.cases import TaskCase
from skillbelt.evals.checks import Grade
from skillbelt.evals.conversation import EvalConversation, read_conversation
from skillbelt.evals.outcome import Bar, CaseOutcome, EvalReport, MeasuredSkill, judge_bars
from skillbelt.evals.reports import render_markdown
from skillbelt.evals.statistics import rate_of
from skillbelt.evals.task import TaskRun, report_tasks
from skillbelt.evals.workspace import iteration_folder, write_workspace
from skillbelt.format.skill import Skill
from tests.tree import Tree


def run_of(files: dict[str, str], **more: object) -> TaskRun:
    talk = EvalConversation("answer", answer="Done", files=files, input_tokens=5, output_tokens=2)
    grades = (Grade("good", True, "seen"), Grade("nice", None, "not graded"))
    run = TaskRun(
        case=TaskCase("one", "Do it", "pdf"),
        number=1,
        eval_id=1,
        model="m",
        configuration="with_skill",
        talk=talk,
        grades=grades,
    )
    return run._replace(**more)  # type: ignore[arg-type]


def test_names_of_outputs_stay_in_their_folder(tree: Tree) -> None:
    skill = tree.skill("project/.agents/skills/pdf")
    names = ["../../../evil", "out/a/b.txt", "..", "/etc/x", "a\0b", "c\nd", ".hidden", "answer.md"]
    run = run_of(dict.fromkeys(names, "text"))
    folder = iteration_folder(str(tree.path("project/work")))
    described = Skill.from_folder(str(skill))
    write_workspace(folder, described, [run], report_tasks(described, [run], 1))
    outputs = Path(folder) / "eval-1" / "with_skill" / "run-1" / "outputs"
    found = {one.name for one in outputs.iterdir()}
    assert {"answer.md", "out-answer.md", "a__b.txt"} <= found
    assert all(one.is_file() for one in outputs.iterdir())
    assert (outputs / "answer.md").read_text() == "Done"
    assert all(outputs in one.parents for one in tree.root.rglob("*evil*"))


def test_outputs_with_long_or_similar_names_are_all_written(tree: Tree) -> None:
    """After everything was paid for, no name that a run chose may end the command."""
    described = Skill.from_folder(str(tree.skill("project/.agents/skills/pdf")))
    names = ["\U00020000" * 63 + f"/{'x' * at}" for at in (200, 250)]
    run = run_of({name: name for name in [*names, "a/b", "a__b"]})
    folder = iteration_folder(str(tree.path("project/work")))
    write_workspace(folder, described, [run], report_tasks(described, [run], 1))
    outputs = Path(folder) / "eval-1" / "with_skill" / "run-1" / "outputs"
    found = {one.read_text() for one in outputs.iterdir() if one.name != "answer.md"}
    assert found == {*names, "a/b", "a__b"}


def test_a_run_that_nothing_graded_is_in_no_figure_of_skill_creator(tree: Tree) -> None:
    described = Skill.from_folder(str(tree.skill("project/.agents/skills/pdf")))
    failed = run_of({}, talk=EvalConversation("error", error="no\nmodel"), eval_id=2)
    runs = [run_of({}), failed]
    folder = iteration_folder(str(tree.path("project/work")))
    write_workspace(folder, described, runs, report_tasks(described, runs, 1))
    files = {one.name for one in (Path(folder) / "eval-2" / "with_skill" / "run-1").iterdir()}
    assert {"not-graded.json", "timing.json"} <= files
    assert "grading.json" not in files
    benchmark = json.loads((Path(folder) / "benchmark.json").read_text())
    assert [one["eval_id"] for one in benchmark["runs"]] == [1]
    assert benchmark["run_summary"]["with_skill"]["tokens"]["mean"] == 7
    assert benchmark["notes"] == ["eval 2, with_skill, run 1 is not counted: no model"]


def test_numbers_that_end_the_count_do_not_end_the_search_for_a_free_one(tree: Tree) -> None:
    """A checkout can have them, and then it went on for ever, after everything was paid for."""
    for name in ("iteration-999999", "iteration-1000000"):
        tree.write(f"project/work/{name}/kept", "kept")
    described = Skill.from_folder(str(tree.skill("project/.agents/skills/pdf")))
    folder = iteration_folder(str(tree.path("project/work")))
    run = run_of({})
    made = write_workspace(folder, described, [run], report_tasks(described, [run], 1))
    assert Path(made) == tree.path("project/work/iteration-1000001")


def test_what_is_not_graded_is_no_expectation(tree: Tree) -> None:
    skill = tree.skill("project/.agents/skills/pdf")
    described = Skill.from_folder(str(skill))
    folder = iteration_folder(str(tree.path("project/work")))
    run = run_of({})
    write_workspace(folder, described, [run], report_tasks(described, [run], 1))
    place = Path(folder) / "eval-1" / "with_skill" / "run-1" / "grading.json"
    grading = json.loads(place.read_text())
    assert [one["text"] for one in grading["expectations"]] == ["good"]
    assert grading["summary"]["total"] == 1
    assert [one["text"] for one in grading["not_graded"]] == ["nice"]


def test_errors_are_in_no_rate_and_no_difference(tree: Tree) -> None:
    skill = tree.skill("project/.agents/skills/pdf")
    described = Skill.from_folder(str(skill))
    failed = run_of({}, talk=EvalConversation("error", error="no"), configuration="without_skill")
    report = report_tasks(described, [run_of({}), failed], 1)
    rates = {one.baseline: one.measures["passed"] for one in report.skills}
    assert (rates[""].rate, rates["without_skill"].rate) == (1.0, None)
    assert (report.facts["differences"], report.facts["errors"]) == ([], 1)


def test_a_conversation_is_kept_and_read_again() -> None:
    talk = run_of({"a": "b"}).talk
    assert read_conversation(json.loads(json.dumps(talk.document()))) == talk
    assert read_conversation({"ended": "answer"}) is None


def test_markdown_fits_into_a_comment() -> None:
    rates = [rate_of(number % 3, 3) for number in range(400)]
    report = EvalReport(
        kind="route",
        skills=tuple(MeasuredSkill(f"s{at}", {"hit@1": one}) for at, one in enumerate(rates)),
        overall={"hit@1": rate_of(1, 2)},
        cases=tuple(
            CaseOutcome(id=str(at), skill="s", group="positive", text="w" * 500, outcome="failed",
                        detail="d" * 500)
            for at in range(2_000)
        ),
        warnings=("w" * 5_000,) * 50,
    )  # fmt: skip
    text = render_markdown(judge_bars(report, [Bar("", 1.0)]))
    assert 10_000 < len(text) < 65_536
    assert "`s0` | 0.00" in text  # the worst come first
    assert "more" in text
