"""`skillbelt eval script`, `trigger`, `run`, `diff`: real sandboxes, a real server of a model."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import needs, warm
from tests.benches import FOLDER, SKILL, Bench
from tests.cli.test_evals import commit
from tests.examples import first_one
from tests.openai_server import Answer, Raw, Refused, Server, Slow, called, said, serving
from tests.terminal import on_terminal
from tests.tree import Tree

SKILLS = "project/.agents/skills"
TASKS = {
    "skill_name": "csv-report",
    "evals": [
        {"id": "one", "prompt": "Summarise this csv", "expect": {"contains": "rows=3"}},
        {"id": "two", "prompt": "What is in this table?", "expected_output": "a table",
         "expect": {"contains": "rows=3", "skill_used": "csv-report"}},
        {"id": "three", "query": "hello there", "should_trigger": False},
    ],
}  # fmt: skip
ONE = '[{"query": "a csv", "should_trigger": true}]'


def user_text(request: dict[str, Any]) -> str:
    users = [one for one in request["messages"] if one["role"] == "user"]
    return json.dumps(users[-1]["content"])


def helpful(request: dict[str, Any]) -> Answer:
    """A model that uses the skill for a csv, where it is offered, and answers then."""
    shown = json.dumps(request["messages"][0]["content"])
    if request["messages"][-1]["role"] == "tool":
        return said("Done: rows=3")
    if "Expectations" in user_text(request):
        return said('[{"number": 1, "passed": true, "evidence": "there is one"}]')
    if "csv" in user_text(request) and "csv-report" in shown:
        return called("skill_load", {"skill": "csv-report"})
    return said("I cannot help.")


@pytest.fixture
def model() -> Iterator[Server]:
    with serving(helpful) as server:
        yield server


@pytest.fixture
def skills(tree: Tree) -> Tree:
    tree.skill(f"{SKILLS}/csv-report", description="Reports on a csv.", text="Count the rows.")
    tree.skill(f"{SKILLS}/images", description="Resizes a photo.")
    tree.write(f"{SKILLS}/csv-report/evals/evals.json", json.dumps(TASKS))
    return tree


def evaluate(tree: Tree, model: Server, action: str, *options: str) -> Any:
    done = tree.run(
        "eval", action, "csv-report", "--model", f"tiny@{model.url}", *options, "--json"
    )
    assert done.stdout, done.stderr
    return done.document | {"exit_code": done.exit_code}


def cached_results(tree: Tree) -> list[Path]:
    found = sorted(Path(tree.catalog().settings.cache_dir, "evals").iterdir())
    assert found
    return found


def rates(document: Any) -> dict[str, Any]:
    return {name: one["rate"] for name, one in document["measures"].items()}


# trigger


def test_any_use_of_the_skill_counts(skills: Tree) -> None:
    steps = iter(
        [called("skill_search", {"query": "csv"}), called("skill_load", {"skill": "csv-report"})]
    )
    with serving(lambda _: next(steps, said("No."))) as server:
        skills.write(
            f"{SKILLS}/csv-report/evals/evals.json", '[{"query": "a csv", "should_trigger": true}]'
        )
        document = evaluate(skills, server, "trigger", "--jobs", "1")
    assert rates(document)["recall"] == 1.0
    assert document["cases"][0]["tools"] == ["skill_search", "skill_load"]


def test_positives_and_negatives_apart_with_intervals(skills: Tree, model: Server) -> None:
    document = evaluate(skills, model, "trigger", "--repeat", "2")
    assert rates(document) == {"recall": 0.5, "negatives": 1.0}
    [measured] = document["skills"]
    assert measured["model"].startswith("tiny@")
    assert measured["measures"]["recall"]["total"] == 4
    assert (document["errors"], document["timeouts"], document["complete"]) == (0, 0, True)
    # The model sees the real overview, and the real tools.
    sent = model.requests[0]
    assert "images" in json.dumps(sent["messages"][0])
    assert "skill_load" in [one["function"]["name"] for one in sent["tools"]]


def test_nothing_is_paid_for_twice(skills: Tree, model: Server) -> None:
    evaluate(skills, model, "trigger")
    paid = len(model.requests)
    again = evaluate(skills, model, "trigger")
    assert len(model.requests) == paid
    assert all(one["cached"] for one in again["cases"])
    assert again["tokens"] == 0
    evaluate(skills, model, "trigger", "--fresh")
    assert len(model.requests) == 2 * paid


def test_a_new_description_is_measured_anew(skills: Tree, model: Server) -> None:
    evaluate(skills, model, "trigger")
    paid = len(model.requests)
    skills.skill(f"{SKILLS}/csv-report", description="Reports on tables.")
    assert not any(one["cached"] for one in evaluate(skills, model, "trigger")["cases"])
    assert len(model.requests) > paid


def test_errors_and_timeouts_are_no_answers(skills: Tree) -> None:
    forever, refuses = threading.Event(), True

    def answer(request: dict[str, Any]) -> Answer:
        if "hello" not in user_text(request):
            return helpful(request)
        return Refused(400) if refuses else Slow(said("a", "b"), forever)

    def outcomes(document: Any) -> dict[str, str]:
        return {one["id"]: one["outcome"] for one in document["cases"]}

    with serving(answer) as server:
        first = evaluate(skills, server, "trigger")
        refuses = False
        # The other two are known: only what never answers is asked again.
        second = evaluate(skills, server, "trigger", "--timeout", "1")
    assert outcomes(first) == {"one": "passed", "two": "failed", "three": "error"}
    assert outcomes(second) == {"one": "passed", "two": "failed", "three": "timeout"}
    assert (first["errors"], second["timeouts"]) == (1, 1)
    assert second["measures"]["negatives"]["rate"] is None


def test_a_bar_cannot_be_reached_by_errors(skills: Tree) -> None:
    skills.write(
        f"{SKILLS}/csv-report/evals/evals.json", '[{"query": "csv", "should_trigger": true}]'
    )
    with serving(said("no")) as server:
        url = server.url
    done = skills.run(
        "eval", "trigger", "csv-report", "--model", f"x@{url}", "--min", "0", "--json"
    )
    assert done.exit_code == 1
    assert done.document["errors"] == 1
    assert done.document["complete"] is False


def test_a_bar_counts_a_conversation_without_an_answer_as_missed(skills: Tree) -> None:
    cases = [{"query": f"csv {word}", "should_trigger": True} for word in ("one", "two")]
    skills.write(f"{SKILLS}/csv-report/evals/evals.json", json.dumps(cases))

    def answer(request: dict[str, Any]) -> Answer:
        return Refused(400) if "csv two" in user_text(request) else helpful(request)

    with serving(answer) as server:
        run = ["eval", "trigger", "csv-report", "--model", f"x@{server.url}", "--json"]
        low, high = (skills.run(*run, "--min", least) for least in ("0.5", "0.51"))
    assert low.document["measures"]["recall"] == high.document["measures"]["recall"]
    assert (low.document["measures"]["recall"]["rate"], low.document["errors"]) == (1.0, 1)
    assert [done.document["bars"][0]["rate"] for done in (low, high)] == [0.5, 0.5]
    assert (low.exit_code, high.exit_code) == (0, 1)


def test_a_budget_of_tokens_ends_it_and_a_later_run_goes_on(skills: Tree, model: Server) -> None:
    first = evaluate(skills, model, "trigger", "--max-tokens", "110", "--jobs", "1")
    assert (first["exit_code"], first["complete"], first["spent"]) == (1, False, True)
    assert first["tokens"] == 110
    outcomes = [one["outcome"] for one in first["cases"]]
    assert outcomes == ["passed", "not-run", "not-run"]
    second = evaluate(skills, model, "trigger")
    assert [one["cached"] for one in second["cases"]] == [True, False, False]


def test_a_bound_on_the_cost_needs_a_price(skills: Tree, model: Server) -> None:
    options = ("--model", f"tiny@{model.url}", "--max-cost", "0.001")
    done = skills.run("eval", "trigger", "csv-report", *options)
    assert done.exit_code == 2
    assert "--price IN,OUT" in done.stderr
    # 100 tokens in and 10 out for each request.
    done = skills.run(
        "eval", "trigger", "csv-report", *options, "--price", "10,0", "--jobs", "1", "--json"
    )
    assert (done.exit_code, done.document["cost_usd"]) == (1, 0.001)


def test_a_matrix_over_models(skills: Tree, model: Server) -> None:
    with serving(said("No.")) as other:
        document = evaluate(skills, model, "trigger", "--model", f"dumb@{other.url}")
    recall = {one["model"][:4]: one["measures"]["recall"]["rate"] for one in document["skills"]}
    assert recall == {"tiny": 0.5, "dumb": 0.0}
    assert any("not one of 2 is right" in text for text in document["warnings"])


def test_the_offline_runner_is_a_model_too(skills: Tree) -> None:
    done = skills.run("eval", "trigger", "csv-report", "--model", "offline", "--json")
    assert done.document["measures"]["recall"]["hits"] >= 1
    assert done.document["tokens"] == 0


def test_a_killed_evaluation_goes_on_where_it_was(skills: Tree) -> None:
    waiting, go_on = threading.Event(), threading.Event()

    def answer(request: dict[str, Any]) -> Answer:
        if "hello" in user_text(request) and not go_on.is_set():
            waiting.set()
            return Slow(said("a", "b"), go_on)
        return helpful(request)

    with serving(answer) as server:
        options = ["--model", f"tiny@{server.url}", "--jobs", "1", "--json"]
        command = [sys.executable, "-m", "skillbelt", "eval", "trigger", "csv-report", *options]
        child = warm.Popen[bytes](
            command, cwd=skills.project, env={**os.environ}, stdout=-1, stderr=-1
        )
        assert waiting.wait(150)
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=500)
        go_on.set()
        document = skills.run("eval", "trigger", "csv-report", *options).document
    assert [one["cached"] for one in document["cases"]] == [True, True, False]


def test_a_terminal_shows_how_far_it_is(skills: Tree, model: Server) -> None:
    screen = on_terminal(skills, "eval", "trigger", "csv-report", "--model", f"tiny@{model.url}")
    limit = "3 requests of 1 skill; --max-tokens and --max-cost set a limit"
    assert screen.lines[0] == limit
    assert "0 of 3 cases" in screen.written  # before the first one is done
    assert "3 of 3 cases" in screen.written
    assert "330 tokens" in screen.written


def test_ctrl_c_prints_one_line_in_place_of_the_progress(skills: Tree) -> None:
    forever = threading.Event()
    with serving(lambda _: Slow(said("a", "b"), forever)) as server:
        model = f"tiny@{server.url}"
        typed = [("0 of 3 cases", "\x03")]
        screen = on_terminal(
            skills, "eval", "trigger", "csv-report", "--model", model, answers=typed
        )
        forever.set()
    assert (screen.exit_code, screen.lines[-1]) == (130, "skillbelt: interrupted")
    assert len(screen.lines) == 2


def searching(request: dict[str, Any]) -> Answer:
    """A model that looks at four other skills before it answers."""
    done = sum(one["role"] == "tool" for one in request["messages"])
    return called("skill_load", {"skill": f"other-{done}"}) if done < 4 else said("No.")


def test_a_conversation_that_a_budget_cut_off_resumes(skills: Tree) -> None:
    skills.write(f"{SKILLS}/csv-report/evals/evals.json", ONE)
    with serving(searching) as server:
        for _ in range(2):  # two answers each time
            first = evaluate(skills, server, "trigger", "--max-tokens", "200")
            assert (first["complete"], first["tokens"]) == (False, 220)
        last = evaluate(skills, server, "trigger")
        assert (last["complete"], last["tokens"], len(server.requests)) == (True, 110, 5)
        [case] = last["cases"]
        assert case["input_tokens"] == 500


def test_a_conversation_with_an_error_resumes(skills: Tree) -> None:
    skills.write(f"{SKILLS}/csv-report/evals/evals.json", ONE)
    first = called("skill_load", {"skill": "other"})
    with serving(first, Refused(400), said("No.")) as server:
        assert evaluate(skills, server, "trigger")["errors"] == 1
        assert evaluate(skills, server, "trigger")["errors"] == 0
        assert len(server.requests) == 3  # the first answer was not paid for again


def test_no_request_is_made_once_the_budget_is_spent(skills: Tree) -> None:
    with serving(searching) as server:
        options = ("--max-tokens", "1", "--jobs", "2")
        document = evaluate(skills, server, "trigger", *options)
        assert document["exit_code"] == 1
        assert len(server.requests) <= 2  # one for each conversation at work


def test_a_fork_makes_no_request_once_the_budget_is_spent(skills: Tree) -> None:
    skills.skill(f"{SKILLS}/images", description="Resizes a photo.", context="fork")
    rows = [{"prompt": "Resize this photo", "expect": {"contains": "small"}}]
    skills.write(f"{SKILLS}/csv-report/evals/evals.json", json.dumps(rows))
    with serving(called("skill_load", {"skill": "images"})) as server:
        document = evaluate(skills, server, "run", "--baseline", "", "--max-tokens", "110")
        assert (document["complete"], len(server.requests)) == (False, 1)


def test_a_server_that_does_not_count_tokens_is_bounded_too(skills: Tree) -> None:
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
    said_no = {"index": 0, "delta": {"content": "No."}, "finish_reason": "stop"}
    event = json.dumps({**chunk, "choices": [said_no]})
    with serving(Raw((f"data: {event}\n\n", "data: [DONE]\n\n"))) as server:
        document = evaluate(skills, server, "trigger", "--max-tokens", "10", "--jobs", "1")
        assert (document["estimated"], document["complete"], len(server.requests)) == (
            True,
            False,
            1,
        )


def test_results_from_the_cache_are_counted(skills: Tree, model: Server) -> None:
    assert evaluate(skills, model, "trigger")["cached"] == 0
    done = skills.run("eval", "trigger", "csv-report", "--model", f"tiny@{model.url}")
    assert "0 tokens; from the cache: 3 cases" in done.stderr


def test_the_summary_says_what_is_in_no_rate(skills: Tree) -> None:
    with serving(Refused(400), said("No.")) as server:
        named = ("--model", f"tiny@{server.url}", "--jobs", "1")
        done = skills.run("eval", "trigger", "csv-report", *named)
    assert "; not counted: 1 error" in done.stderr


@pytest.mark.parametrize(
    "damage",
    first_one(
        '{"ended": "answer", "skills": 5, "seconds": "x"}', '{"ended": "answer"}', "[]", "not json"
    ),
)
def test_a_damaged_cache_is_not_used(skills: Tree, model: Server, damage: str) -> None:
    evaluate(skills, model, "trigger")
    asked = len(model.requests)
    for path in cached_results(skills):
        path.write_text(damage)
    document = evaluate(skills, model, "trigger")
    assert (document["cached"], len(model.requests)) == (0, 2 * asked)


def test_a_cache_that_cannot_be_used_costs_nothing(skills: Tree, model: Server) -> None:
    folder = Path(skills.catalog().settings.cache_dir, "evals")
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("no folder")
    done = skills.run("eval", "trigger", "csv-report", "--model", f"tiny@{model.url}")
    assert (done.exit_code, model.requests) == (2, [])
    assert f"{folder}: is not a folder; remove it; results are cached there" in done.stderr


def test_a_result_in_the_cache_is_not_read_through_a_link(skills: Tree, model: Server) -> None:
    evaluate(skills, model, "trigger")
    for path in cached_results(skills):
        elsewhere = path.rename(skills.root / path.name)
        path.symlink_to(elsewhere)
    assert evaluate(skills, model, "trigger")["cached"] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--report", "x.doc"), "ends in none of"),
        (("--report", "nowhere/x.html"), "give a file in a folder that exists"),
        (("--min", "recal=0.5"), "there is no measure 'recal'; there are recall, negatives"),
        (("--sandbox", "cage"), "no sandbox named 'cage'"),
        (("--baseline", "old"), "--baseline is for `eval run`"),
    ],
)
def test_wrong_options_cost_nothing(
    skills: Tree, model: Server, options: tuple[str, ...], said: str
) -> None:
    named = ("--model", f"tiny@{model.url}")
    done = skills.run("eval", "trigger", "csv-report", *named, *options)
    assert (done.exit_code, model.requests) == (2, [])
    assert said in done.stderr


def test_lines_name_the_model_and_equal_ones_are_one(skills: Tree, model: Server) -> None:
    with serving(said("No.")) as other:
        named = ("--model", f"tiny@{model.url}", "--model", f"dumb_one@{other.url}")
        done = skills.run(
            "eval", "trigger", "csv-report", *named, "--repeat", "2", "--report", "t.md"
        )
    lines = [line for line in done.stderr.splitlines() if line.startswith("failed: ")]
    assert len(lines) == 3
    assert sum(f"dumb_one@{other.url} positive" in line for line in lines) == 2
    assert all(line.endswith("(2 times)") for line in lines)
    assert f"`csv-report dumb_one@{other.url} run 2`" in skills.path("project/t.md").read_text()


def test_the_offline_runner_is_not_taken_for_a_model(skills: Tree) -> None:
    done = skills.run("eval", "trigger", "csv-report")
    assert "offline is not a model" in done.stderr
    assert "--model" in done.stderr


def test_drafts_are_called_drafts_with_a_model_too(skills: Tree, model: Server) -> None:
    row = {"query": "a csv", "should_trigger": True, "draft": True}
    skills.write(f"{SKILLS}/csv-report/evals/evals.json", json.dumps([row]))
    warnings = evaluate(skills, model, "trigger")["warnings"]
    assert any("1 of 1 requests are drafts" in text for text in warnings)


# What makes other trigger evaluations report 0 %


def test_the_skill_itself_is_tested_and_no_copy(skills: Tree, model: Server) -> None:
    before = sorted(skills.path("project").rglob("*"))
    evaluate(skills, model, "trigger", "--repeat", "2")
    assert sorted(skills.path("project").rglob("*")) == before
    for request in model.requests:
        assert set(re.findall(r"csv-report[\w-]*", json.dumps(request))) == {"csv-report"}


def test_conversations_at_once_do_not_take_each_others_uses(skills: Tree, model: Server) -> None:
    skills.write(f"{SKILLS}/csv-report/evals/evals.json", ONE)
    document = evaluate(skills, model, "trigger", "--repeat", "8", "--jobs", "8")
    assert document["measures"]["recall"]["hits"] == 8


def test_the_text_of_the_skill_is_not_put_before_the_model(skills: Tree, model: Server) -> None:
    evaluate(skills, model, "trigger")
    assert model.requests
    assert not any("Count the rows." in json.dumps(one) for one in model.requests)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("skill_load", {}),
        ("skill_select_docs", {"docs": ["a.md"]}),
        ("skill_list_docs", {}),
        ("skill_run", {"command": "true"}),
    ],
)
def test_each_way_to_use_a_skill_counts(skills: Tree, tool: str, arguments: dict[str, Any]) -> None:
    skills.write(f"{SKILLS}/csv-report/evals/evals.json", ONE)
    with serving(called(tool, {"skill": "csv-report", **arguments}), said("No.")) as server:
        document = evaluate(skills, server, "trigger")
    assert rates(document)["recall"] == 1.0


def test_a_use_after_many_other_calls_counts(skills: Tree) -> None:
    skills.write(f"{SKILLS}/csv-report/evals/evals.json", ONE)
    others = [called("skill_search", {"query": f"csv {number}"}) for number in range(8)]
    with serving(*others, called("skill_load", {"skill": "csv-report"}), said("No.")) as server:
        document = evaluate(skills, server, "trigger")
    assert rates(document)["recall"] == 1.0


def test_steps_that_run_out_are_no_answer(skills: Tree) -> None:
    skills.write(f"{SKILLS}/csv-report/evals/evals.json", ONE)
    search = [called("skill_search", {"query": f"csv {number}"}) for number in range(4)]
    with serving(*search) as server:
        document = evaluate(skills, server, "trigger", "--max-steps", "2")
    [case] = document["cases"]
    assert (case["outcome"], document["timeouts"]) == ("timeout", 1)
    assert "more than 2 steps" in case["detail"]
    assert document["measures"]["recall"]["rate"] is None


# run


def test_with_the_skill_and_without(skills: Tree, model: Server) -> None:
    document = evaluate(skills, model, "run")
    outcomes = {(one["id"], one["group"]): one["outcome"] for one in document["cases"]}
    assert outcomes == {
        ("one", "with_skill"): "passed", ("one", "without_skill"): "failed",
        ("two", "with_skill"): "failed", ("two", "without_skill"): "failed",
    }  # fmt: skip
    [difference] = document["differences"]
    assert (difference["mean"], difference["tasks"]) == (0.5, 2)
    assert difference["low"] <= 0.5 <= difference["high"]
    shown = [json.dumps(one["messages"][0]) for one in model.requests]
    assert any("csv-report" not in text for text in shown)


def test_without_a_judge_a_sentence_is_not_graded(skills: Tree, model: Server) -> None:
    [two] = [
        one
        for one in evaluate(skills, model, "run", "--baseline", "")["cases"]
        if one["id"] == "two"
    ]
    [sentence] = [one for one in two["grades"] if one["text"].endswith("a table")]
    assert sentence["passed"] is None
    assert "no judge" in sentence["evidence"]


def test_a_check_that_cannot_be_decided_is_no_sentence(skills: Tree, model: Server) -> None:
    row = {"prompt": "Summarise this csv", "expect": {"golden": "evals/missing.txt"}}
    skills.write(f"{SKILLS}/csv-report/evals/evals.json", json.dumps([row]))
    warnings = " ".join(evaluate(skills, model, "run", "--baseline", "")["warnings"])
    assert "not decided: 1 check: is the same as 'evals/missing.txt'" in warnings
    assert "--judge" not in warnings


def test_a_judge_decides_sentences_once(skills: Tree, model: Server) -> None:
    document = evaluate(skills, model, "run", "--baseline", "", "--judge", f"judge@{model.url}")
    grades = [one for case in document["cases"] for one in case["grades"] if one["judged"]]
    assert [one["passed"] for one in grades] == [True]
    judged = [one for one in model.requests if one["model"] == "judge"]
    assert len(judged) == 1
    assert not judged[0].get("tools")
    assert "csv-report" not in json.dumps(judged[0]["messages"][0])
    evaluate(skills, model, "run", "--baseline", "", "--judge", f"judge@{model.url}")
    assert len([one for one in model.requests if one["model"] == "judge"]) == 1


def test_an_old_version_is_compared(skills: Tree, model: Server) -> None:
    skills.skill("project/old/csv-report", description="Does something.", text="No words.")
    document = evaluate(skills, model, "run", "--baseline", "old/csv-report")
    assert {one["group"] for one in document["cases"]} == {"with_skill", "old_skill"}
    bad = skills.run("eval", "run", "csv-report", "--model", "offline", "--baseline", "nowhere")
    assert bad.exit_code == 2
    assert "neither none, nor the folder of a skill" in bad.stderr


def test_an_old_version_of_git_is_not_paid_for_twice(skills: Tree, model: Server) -> None:
    commit(skills)
    skills.skill(f"{SKILLS}/csv-report", description="Reports on any csv.", text="Count.")
    first = evaluate(skills, model, "run", "--baseline", "HEAD")
    asked = len(model.requests)
    again = evaluate(skills, model, "run", "--baseline", "HEAD:.agents/skills/csv-report")
    assert {one["group"] for one in first["cases"]} == {"with_skill", "old_skill"}
    assert (again["cached"], len(model.requests)) == (len(first["cases"]), asked)


def test_a_run_that_used_up_its_steps_says_so(skills: Tree, model: Server) -> None:
    document = evaluate(skills, model, "run", "--baseline", "", "--max-steps", "1")
    assert any("ended early: the model needs more" in one["detail"] for one in document["cases"])


def test_the_files_of_skill_creator(skills: Tree, model: Server) -> None:
    document = evaluate(skills, model, "run", "--repeat", "2")
    folder = Path(document["folder"])
    assert folder == skills.path("project/csv-report-workspace/iteration-1")
    run = folder / "eval-1" / "with_skill" / "run-2"
    grading = json.loads((run / "grading.json").read_text())
    assert grading["summary"] == {"passed": 1, "failed": 0, "total": 1, "pass_rate": 1.0}
    assert set(grading["expectations"][0]) == {"text", "passed", "evidence"}
    assert grading["execution_metrics"]["tool_calls"] == {"skill_load": 1}
    assert json.loads((run / "timing.json").read_text())["total_tokens"] == 220
    assert (run / "outputs" / "answer.md").read_text() == "Done: rows=3"
    about = json.loads((folder / "eval-1" / "eval_metadata.json").read_text())
    assert (about["eval_id"], about["prompt"]) == (1, "Summarise this csv")
    benchmark = json.loads((folder / "benchmark.json").read_text())
    assert benchmark["metadata"]["runs_per_configuration"] == 2
    assert benchmark["run_summary"]["delta"]["pass_rate"] == "+0.50"
    assert set(benchmark["run_summary"]["with_skill"]["pass_rate"]) == {
        "mean",
        "stddev",
        "min",
        "max",
    }
    assert {one["configuration"] for one in benchmark["runs"]} == {"with_skill", "without_skill"}
    assert evaluate(skills, model, "run")["folder"].endswith("iteration-2")
    assert {"report.html", "junit.xml", "report.md"} <= {one.name for one in folder.iterdir()}


def test_an_unfinished_iteration_is_used_again(skills: Tree, model: Server) -> None:
    first = evaluate(skills, model, "run", "--max-tokens", "110", "--jobs", "1")
    assert (first["exit_code"], first["complete"]) == (1, False)
    assert evaluate(skills, model, "run")["folder"] == first["folder"]


def test_a_budget_that_ends_before_the_judge_is_not_complete(skills: Tree, model: Server) -> None:
    judge = ("--judge", f"wise@{model.url}", "--baseline", "", "--jobs", "1")
    tokens = evaluate(skills, model, "run", "--baseline", "")["tokens"]
    spent = evaluate(skills, model, "run", *judge, "--fresh", "--max-tokens", str(tokens))
    assert (spent["complete"], spent["exit_code"]) == (False, 1)
    assert evaluate(skills, model, "run", *judge)["complete"]


@pytest.mark.parametrize(
    "answer", first_one('[{"number": [1], "passed": true}]', "All is well.", '{"number": 1}')
)
def test_a_judge_without_a_clear_answer_is_asked_again(
    skills: Tree, model: Server, answer: str
) -> None:
    with serving(said(answer)) as judge:
        for number in (1, 2):
            options = ("--judge", f"odd@{judge.url}", "--baseline", "")
            document = evaluate(skills, model, "run", *options)
            assert any("the judge answered" in one for one in document["warnings"])
            assert len(judge.requests) == number


def test_a_bar_is_not_reached_by_what_nothing_graded(skills: Tree, model: Server) -> None:
    only = [{"prompt": "Summarise this csv", "expected_output": "a summary"}]
    skills.write(f"{SKILLS}/csv-report/evals/evals.json", json.dumps(only))
    document = evaluate(skills, model, "run", "--baseline", "", "--min", "0.5")
    assert (document["exit_code"], document["passed"]) == (1, False)


def test_models_with_similar_names_have_folders_of_their_own(skills: Tree, model: Server) -> None:
    names = [f"a/b@{model.url}", f"a:b@{model.url}".replace("a:b", "a+b")]
    options = [word for name in names for word in ("--model", name)]
    done = skills.run("eval", "run", "csv-report", *options, "--baseline", "", "--json")
    folder = Path(done.document["folder"])
    assert len([one for one in folder.iterdir() if one.is_dir()]) == 2
    assert json.loads((folder / "report.json").read_text())["kind"] == "run"


def test_results_are_not_written_through_a_link(skills: Tree, model: Server) -> None:
    outside = skills.root / "outside"
    outside.mkdir()
    planted = skills.path("project/csv-report-workspace")
    (planted / "iteration-1").mkdir(parents=True)
    (planted / "iteration-1" / "eval-1").symlink_to(outside)
    assert evaluate(skills, model, "run")["folder"].endswith("iteration-2")
    assert not list(outside.iterdir())
    planted.rename(skills.root / "moved")
    planted.symlink_to(outside)
    done = skills.run("eval", "run", "csv-report", "--model", f"tiny@{model.url}")
    assert (done.exit_code, "is a link" in done.stderr) == (2, True)


def test_a_wrong_judge_leaves_no_folder(skills: Tree, model: Server) -> None:
    options = ("--model", f"tiny@{model.url}", "--judge", "nobody:knows")
    assert skills.run("eval", "run", "csv-report", *options).exit_code == 2
    assert not skills.path("project/csv-report-workspace").exists()
    assert not model.requests


def test_an_unfinished_run_says_that_nothing_is_written(skills: Tree, model: Server) -> None:
    options = ("--max-tokens", "110", "--jobs", "1")
    done = skills.run("eval", "run", "csv-report", "--model", f"tiny@{model.url}", *options)
    assert "no files are written; the same command resumes" in done.stderr
    assert "written to" not in done.stderr
    assert "not graded" not in done.stderr  # what was not run lacks no judge
    assert "not-run: 4 cases: the budget was spent" in done.stderr


def test_an_error_is_told_once(skills: Tree) -> None:
    with serving(Refused(400, "this model is out of order")) as server:
        [case, *_] = evaluate(skills, server, "run", "--baseline", "")["cases"]
    assert (case["outcome"], case["detail"].count("out of order")) == ("error", 1)


def test_many_errors_with_one_cause_are_one_line(skills: Tree) -> None:
    rows = [{"query": f"a csv {number}", "should_trigger": True} for number in range(4)]
    skills.write(f"{SKILLS}/csv-report/evals/evals.json", json.dumps(rows))
    with serving(Refused(400, "out of order")) as server:
        command = ("eval", "trigger", "csv-report", "--model", f"tiny@{server.url}")
        [line] = [text for text in skills.run(*command).stderr.splitlines() if "order" in text]
        every = skills.run(*command, "-v").stderr
    assert ": 4 cases: " in line
    assert every.count("out of order") == 4


def test_the_side_without_the_skill_does_not_fail_in_junit(skills: Tree, model: Server) -> None:
    evaluate(skills, model, "run", "--report", "r.xml")
    [suite] = ET.parse(skills.path("project/r.xml")).getroot()
    failed = [one.get("name", "") for one in suite if one.find("failure") is not None]
    assert [name.split()[:2] for name in failed] == [["two", "with_skill"]]
    assert suite.get("failures") == "1"
    shown = [one.get("name", "").split()[:2] for one in suite if one.find("system-out") is not None]
    assert shown == [["one", "without_skill"], ["two", "without_skill"]]


def test_a_difference_of_few_tasks_is_called_so(skills: Tree, model: Server) -> None:
    document = evaluate(skills, model, "run")
    assert any("the difference rests on 2 tasks" in text for text in document["warnings"])


def test_a_grader_that_is_a_program_says_what_to_write(skills: Tree, model: Server) -> None:
    asserts = [{"type": one, "value": "true"} for one in ("javascript", "python")]
    case = {"prompt": "a csv", "assert": asserts}
    skills.write(f"{SKILLS}/csv-report/evals/evals.json", json.dumps([case]))
    document = evaluate(skills, model, "run", "--baseline", "")
    assert document["cases"][0]["outcome"] == "ungraded"
    [told] = [text for text in document["warnings"] if text.startswith("not graded: ")]
    assert told.startswith("not graded: javascript, python: a program that grades is not run")
    assert "a case under `scripts`" in told


def test_a_model_is_named_as_it_is(skills: Tree, model: Server) -> None:
    named = ("--model", f"my_model@{model.url}", "--report", "r.html")
    done = skills.run("eval", "run", "csv-report", *named)
    assert f"with my_model@{model.url} over 2 tasks" in done.stderr
    assert "my\\_model" not in skills.path("project/r.html").read_text()


def test_input_files_are_attached_and_stay_inside(skills: Tree, model: Server) -> None:
    case: dict[str, Any] = {
        "prompt": "Summarise",
        "files": ["evals/a.csv"],
        "expect": {"contains": "x"},
    }
    skills.write(f"{SKILLS}/csv-report/evals/a.csv", "alpha,beta\n")
    skills.write(f"{SKILLS}/csv-report/evals/evals.json", json.dumps([case]))
    evaluate(skills, model, "run", "--baseline", "")
    assert "alpha,beta" in json.dumps(model.requests[0]["messages"])
    skills.write("project/secret.txt", "secret")
    case["files"] = ["../../../secret.txt"]
    skills.write(f"{SKILLS}/csv-report/evals/evals.json", json.dumps([case]))
    paid = len(model.requests)
    assert evaluate(skills, model, "run", "--baseline", "")["exit_code"] == 2
    assert len(model.requests) == paid


def test_input_files_of_a_set_lie_beside_it_or_in_the_skill(skills: Tree, model: Server) -> None:
    text = "tasks:\n  - {id: a, prompt: Summarise, inputs: {prompt: Hi, files: [a.csv]}}\n"
    skills.write("project/suite/eval.yaml", text)
    options = ("--set", "suite/eval.yaml", "--baseline", "")
    done = skills.run("eval", "run", "csv-report", "--model", f"tiny@{model.url}", *options)
    assert done.exit_code == 2
    assert "eval.yaml: a: files: " in done.stderr
    skills.write("project/suite/fixtures/a.csv", "gamma,delta\n")
    evaluate(skills, model, "run", *options)
    assert "gamma,delta" in json.dumps(model.requests[0]["messages"])


def test_a_set_of_a_skill_that_is_not_here_says_so(skills: Tree, model: Server) -> None:
    rows = [{"query": "hi", "expected_skill": "csv-report"}, {"query": "x", "expected_skill": "no"}]
    skills.write("project/both.json", json.dumps(rows))
    skills.write("project/other.json", json.dumps(rows[1:]))
    model_options = ("--model", f"tiny@{model.url}")
    for action, options in (("route", ()), ("trigger", model_options)):
        done = skills.run("eval", action, "--set", "other.json", *options)
        assert done.exit_code == 2
        assert "other.json: no skill 'no' is found here" in done.stderr
        done = skills.run("eval", action, "--set", "both.json", *options, "--json").document
        assert [one["name"] for one in done["skills"]] == ["csv-report"]
        assert [one["path"] for one in done["problems"]] == ["both.json"]


def test_a_skill_without_tasks_is_told_what_to_add(skills: Tree) -> None:
    done = skills.run("eval", "run", "images", "--model", "offline")
    assert done.exit_code == 2
    assert "has no tasks" in done.stderr
    assert str(skills.path(f"{SKILLS}/images/evals/evals.json")) in done.stderr


# script


@pytest.fixture
def kit(bench: Bench) -> Tree:
    tree = bench.tree
    tree.write(
        f"{FOLDER}/scripts/count.py",
        "import json, pathlib, sys\n"
        "text = pathlib.Path(sys.argv[1]).read_text() if len(sys.argv) > 1 else sys.stdin.read()\n"
        "pathlib.Path('out').mkdir(exist_ok=True)\n"
        "print(json.dumps({'lines': len(text.splitlines())}))\n",
    )
    tree.write(f"{FOLDER}/evals/in.txt", "a\nb\n")
    tree.write(f"{FOLDER}/evals/golden.json", '{"lines": 2}\n')
    return tree


def script_cases(tree: Tree, *cases: dict[str, Any]) -> None:
    rows = [{"script": "scripts/count.py", **one} for one in cases]
    tree.write(f"{FOLDER}/evals/evals.json", json.dumps({"scripts": rows}))


@needs.linux
def test_scripts_are_run_and_checked(kit: Tree) -> None:
    script_cases(
        kit,
        {"id": "golden", "arguments": ["evals/in.txt"],
         "expect": {"golden": "evals/golden.json", "json_schema": {"required": ["lines"]}}},
        {"id": "stdin", "stdin": "x\n", "expect": {"contains": '"lines": 1', "max_seconds": 600}},
        {"id": "wrong", "stdin": "x\n", "expect": {"golden": "evals/golden.json"}},
        {"id": "fails", "arguments": ["missing.txt"]},
    )  # fmt: skip
    done = kit.run("eval", "script", SKILL, "--yes", "--json")
    assert done.exit_code == 1
    found = {one["id"]: one for one in done.document["cases"]}
    assert {key: one["outcome"] for key, one in found.items()} == {
        "golden": "passed", "stdin": "passed", "wrong": "failed", "fails": "failed"
    }  # fmt: skip
    assert '-{"lines": 2}\n+{"lines": 1}' in found["wrong"]["detail"]
    assert "FileNotFoundError" in found["fails"]["detail"]
    told = kit.run("eval", "script", SKILL, "--yes", "--report", "s.md").stderr
    assert f"failed: {SKILL} script: wrong: scripts/count.py: " in told
    assert '    -{"lines": 2}\n    +{"lines": 1}\n' in told
    assert "`wrong: scripts/count.py`" in kit.path("project/s.md").read_text()
    again = kit.run("eval", "script", SKILL, "--yes", "--json").document
    assert all(one["cached"] for one in again["cases"])
    assert kit.run("eval", "script", SKILL, "--yes", "--min", "0.5").exit_code == 0


@needs.linux
@pytest.mark.parametrize("given", [{"stdin": "x\n"}, {"input": {"a": "b"}}])
def test_checks_read_an_output_that_is_longer_than_a_model_gets(
    kit: Tree, given: dict[str, Any]
) -> None:
    text = "import json, sys\nsys.stdin.read()\nprint(json.dumps({'rows': [*range(9_000)]}))\n"
    kit.write(f"{FOLDER}/scripts/count.py", text)
    schema = {"properties": {"rows": {"minItems": 9_000}}}
    script_cases(kit, {**given, "expect": {"json_schema": schema, "contains": "8999"}})
    done = kit.run("eval", "script", SKILL, "--yes", "--json")
    assert (done.exit_code, done.document["cases"][0]["outcome"]) == (0, "passed")


@needs.linux
def test_an_output_without_end_is_not_decided_by_its_beginning(kit: Tree) -> None:
    kit.write(f"{FOLDER}/scripts/count.py", "print('x' * 2_000_000, 'end')\n")
    script_cases(kit, {"expect": {"contains": "end"}})
    [case] = kit.run("eval", "script", SKILL, "--yes", "--json").document["cases"]
    assert case["outcome"] == "ungraded"
    assert "the output is too long" in case["detail"]


@needs.linux
@pytest.mark.parametrize("given", [{}, {"input": {"a": "b"}}])
def test_a_set_asks_for_no_more_time_than_its_user_gives(kit: Tree, given: dict[str, Any]) -> None:
    kit.write(f"{FOLDER}/scripts/count.py", "while True:\n    pass\n")
    script_cases(kit, {**given, "timeout": 10**9})
    done = kit.run("eval", "script", SKILL, "--yes", "--timeout", "1", "--json")
    [case] = done.document["cases"]
    assert (done.exit_code, case["outcome"]) == (1, "timeout")
    assert "took longer than 1 s, the most (it asks for 1e+09" in case["detail"]


@needs.linux
def test_a_changed_script_is_run_again(kit: Tree) -> None:
    script_cases(kit, {"stdin": "x\n"})
    assert kit.run("eval", "script", SKILL, "--yes").exit_code == 0
    kit.write(f"{FOLDER}/scripts/count.py", "raise SystemExit(3)\n")
    done = kit.run("eval", "script", SKILL, "--yes", "--json")
    assert (done.exit_code, done.document["cases"][0]["cached"]) == (1, False)


@needs.linux
def test_a_script_that_reaches_for_the_network_fails(kit: Tree) -> None:
    kit.write(
        f"{FOLDER}/scripts/count.py",
        "import urllib.request\n"
        "try:\n    urllib.request.urlopen('http://example.com/', timeout=5)\n"
        "except Exception:\n    print('quiet')\n",
    )
    script_cases(kit, {"id": "net"})
    [case] = kit.run("eval", "script", SKILL, "--yes", "--json").document["cases"]
    assert case["outcome"] == "failed"
    assert "host example.com (refused)" in case["detail"]


@needs.linux
def test_nothing_runs_without_permission(kit: Tree) -> None:
    script_cases(kit, {"stdin": "x\n"})
    assert kit.run("eval", "script", SKILL).exit_code == 4


@needs.linux
def test_a_json_call_that_reaches_for_the_network_fails(kit: Tree) -> None:
    kit.write(
        f"{FOLDER}/scripts/count.py",
        "import json, sys, urllib.request\n"
        "given = json.load(sys.stdin)\n"
        "try:\n    urllib.request.urlopen(given['url'], timeout=5)\n"
        "except Exception:\n    pass\n"
        "print(json.dumps({'quiet': True}))\n",
    )
    script_cases(kit, {"id": "net", "input": {"url": "http://example.com/"}})
    [case] = kit.run("eval", "script", SKILL, "--yes", "--json").document["cases"]
    assert case["outcome"] == "failed"
    assert "host example.com (refused)" in case["detail"]


@needs.linux
def test_what_a_script_says_it_lacks_is_told_and_decides_nothing(kit: Tree) -> None:
    kit.write(
        f"{FOLDER}/scripts/count.py",
        "import sys\ntry:\n    open('/srv/' + sys.argv[0][:0] + 'ledger.db')\n"
        "except OSError as error:\n    print(error, file=sys.stderr)\n",
    )
    script_cases(kit, {"id": "file", "input": {"a": "b"}, "expect": {"exit_code": 0}})
    document = kit.run("eval", "script", SKILL, "--yes", "--json").document
    [case] = document["cases"]
    assert case["reported"] == ["read /srv/ledger.db"]
    assert case["text"] == 'scripts/count.py {"a": "b"}'
    assert any("read /srv/ledger.db" in text for text in document["warnings"])


# diff


def test_two_versions_for_a_review(skills: Tree) -> None:
    skills.skill("project/old/tally", description="Does something.", text="Old words.")
    skills.skill(f"{SKILLS}/tally", description="Adds up a ledger.", text="New words.")
    skills.skill(f"{SKILLS}/books", description="Keeps books such as a ledger.")
    rows = [{"query": "add up the ledger", "should_trigger": True}]
    skills.write("project/set.json", json.dumps(rows))
    given = ("--set", "set.json", "--report", "d.md", "--report", "d.html")
    document = skills.run("eval", "diff", "old/tally", "tally", *given, "--json").document
    assert document["description"]["old"] == "Does something."
    assert "-Old words.\n+New words." in document["body"]
    assert document["files"] == {"added": [], "removed": [], "changed": ["SKILL.md"]}
    assert set(document["tokens"]["new"]) == {"overview", "body"}
    new, old = document["skills"]
    assert (new["measures"]["hit@1"]["rate"], old["measures"]["hit@1"]["rate"]) == (1.0, 0.0)
    assert "-Old words." in skills.path("project/d.md").read_text()
    assert "+New words." in skills.path("project/d.html").read_text()
    back = skills.run("eval", "diff", "tally", "old/tally", "--set", "set.json", "--min", "1")
    assert back.exit_code == 1
    assert "fell from 1.00 to 0.00" in back.stderr
    assert "files changed: SKILL.md" in back.stderr
    assert "files changed: SKILL.md" in skills.path("project/d.md").read_text()


def test_a_diff_of_descriptions_shows_which_sentence_changed(skills: Tree) -> None:
    first = "Adds up the amounts in a ledger. Use when totals are wanted."
    skills.skill("project/old/tally", description=first)
    skills.skill(f"{SKILLS}/tally", description=first.replace("totals", "sums"))
    done = skills.run("eval", "diff", "old/tally", "tally")
    shown = " Adds up the amounts in a ledger.\n-Use when totals are wanted.\n+Use when sums"
    assert shown in done.stdout


def test_versions_of_different_skills_are_wrong_usage(skills: Tree) -> None:
    assert skills.run("eval", "diff", "csv-report", "images").exit_code == 2


def test_whether_the_skill_was_used_does_not_decide_the_comparison(skills: Tree) -> None:
    expect = {"contains": "rows=3", "skill_used": "csv-report"}
    skills.write(
        f"{SKILLS}/csv-report/evals/evals.json", json.dumps([{"prompt": "a csv", "expect": expect}])
    )
    with serving(lambda _: said("rows=3")) as server:
        document = evaluate(skills, server, "run", "--output", str(skills.path("out")))
    assert rates(document)["passed"] == 0.5
    [pair] = document["pairs"]
    assert (pair["with"], pair["without"]) == (1.0, 1.0)
