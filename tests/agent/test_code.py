"""Fenced code in answers: run if the host enables it, like any other command."""

from __future__ import annotations

from skillbelt import Answer, Runtime
from skillbelt.agent import Agent, PermissionRequest, Runner, RunOutput, Usage
from skillbelt.agent.code import CodeBlock, find_blocks, scratch
from tests.agent.scripted import Scripted, final, of, play, said
from tests.tree import Tree

CODE = "Let me see.\n\n```python\nprint(6 * 7)\n```\n"


def test_code_is_not_run_unless_the_host_says_so(running: Runtime) -> None:
    """X04."""
    model = Scripted(said(CODE))
    assert final(play(Agent(running, model))).text == CODE
    assert len(model.prompts) == 1


def test_code_is_run_and_the_model_is_told(running: Runtime) -> None:
    """X04."""
    model = Scripted(said(CODE), said("It is 42."))
    events = play(Agent(running, model, run_code=True))
    assert final(events).text == "It is 42."
    told = model.sent()[-1]
    assert told["role"] == "user"
    assert "1. python:\n42\n(exit code 0)" in told["content"]
    assert of(events, RunOutput) == [RunOutput("code-1", "stdout", b"42\n")]


def test_code_is_run_in_the_sandbox(running: Runtime, open_tree: Tree) -> None:
    secret = open_tree.write("home/secret", "hidden")
    model = Scripted(said(f"```bash\ncat {secret}\n```\n"), said("done"))
    play(Agent(running, model, run_code=True))
    assert "hidden" not in model.sent()[-1]["content"]
    assert "No such file" in model.sent()[-1]["content"]


def test_code_is_asked_for_and_whoever_is_asked_sees_it(open_tree: Tree) -> None:
    model = Scripted(said(CODE), said("done"))
    with (
        Runtime(open_tree.project) as belt,
        Runner(Agent(belt, model, run_code=True), interactive=True) as runner,
    ):
        for event in runner.run_sync("ada", "chat", "Go."):
            if isinstance(event, PermissionRequest):
                assert "print(6 * 7)" in event.pending.request.summary
                runner.answer(event.pending.id, Answer("reject", "not today"))
    assert "not today" in model.sent()[-1]["content"]


def test_code_again_and_again_is_bounded(running: Runtime) -> None:
    end = final(play(Agent(running, Scripted(said(CODE)), run_code=True, max_steps=3)))
    assert end.reason == "max_steps"


def test_what_code_gives_begins_no_turn(running: Runtime) -> None:
    """So that loaded skills stay loaded."""
    model = Scripted(said(CODE), said("done"))
    events = play(Agent(running, model, run_code=True), "Compute.")
    log = running.session("ada", "chat").session.events()
    assert [event.type for event in log].count("run_started") == 1
    assert len(of(events, Usage)) == 2


def test_only_languages_that_can_be_run_count() -> None:
    text = "```json\n{}\n```\n```\nplain\n```\n~~~sh\nls\n~~~\n```Python\nx = 1\n```\n"
    assert find_blocks(text, 8) == [CodeBlock("sh", "ls\n"), CodeBlock("python", "x = 1\n")]


def test_very_many_fences_that_never_end_are_read_once() -> None:
    """A search for the end of each would take minutes."""
    assert find_blocks("```python\nx\n" * 100_000, 8) == []


def test_a_fence_without_a_language_is_no_code_and_its_end_begins_none() -> None:
    assert find_blocks("```\nplain\n```\nls\n```sh\nls\n```\n", 8) == [CodeBlock("sh", "ls\n")]


def test_a_fence_that_never_ends_is_no_code() -> None:
    assert find_blocks("```python\nprint(1)\n", 8) == []


def test_a_longer_fence_holds_a_shorter_one() -> None:
    assert find_blocks("````python\na = '''\n```\n'''\n````\n", 8) == [
        CodeBlock("python", "a = '''\n```\n'''\n")
    ]


def test_no_more_than_so_many_blocks_are_run() -> None:
    assert len(find_blocks("```sh\ntrue\n```\n" * 50, 8)) == 8


def test_the_skill_that_code_belongs_to_is_in_no_catalogue(running: Runtime) -> None:
    assert scratch().name not in running.skills()
    assert not scratch().model_visible
    assert not scratch().user_invocable


def test_code_in_a_language_that_is_not_run_is_told_once(running: Runtime) -> None:
    script = "```js\nconsole.log(1)\n```\n"
    model = Scripted(said(script), said(script))
    assert final(play(Agent(running, model, run_code=True))).text == script
    assert len(model.prompts) == 2
    told = model.sent()[-1]["content"]
    assert told.startswith("The code in your answer was not run.")
    assert "1. js:\nnot run: only blocks of python and bash are" in told


def test_code_that_is_not_run_is_told_beside_code_that_is(running: Runtime) -> None:
    model = Scripted(said(f"{CODE}```js\n1\n```\n"), said("done"))
    play(Agent(running, model, run_code=True))
    told = model.sent()[-1]["content"]
    assert "1. python:\n42\n(exit code 0)" in told
    assert "2. js:\nnot run" in told
