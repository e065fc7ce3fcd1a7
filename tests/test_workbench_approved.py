"""What was approved is what runs, whatever happens to the skill between the question and the start.

The files of a skill change while somebody is asked, and another call of the same conversation
stages them as they are then.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillbelt import Answer, Pending, PermissionDenied, Rule, RunRefused, Runtime
from skillbelt.run import RunCall
from skillbelt.sandbox.protocol import Job
from skillbelt.sandbox.registry import sandboxes
from skillbelt.store import SessionKey
from skillbelt.workbench import Who
from tests.bench import ASK_ALL, Bench
from tests.benches import GUARDING
from tests.tree import Tree

COMMAND = "python3 scripts/report.py"
FIRST, SECOND = "print('first')\n", "print('NEVER APPROVED')\n"
ASK_RUNS = (Rule("*", "*", "allow"), Rule("run", "*", "ask"))
DENY = (Rule("run", "*", "deny"),)
WHO = Who(SessionKey("skillbelt", "ada", "chat"), "user")


@pytest.fixture
def echo(open_tree: Tree) -> Any:
    bench = Bench(open_tree)
    bench.write("scripts/report.py", FIRST)
    time.sleep(0.15)  # a file that was just written may change again at the same time
    yield bench
    bench.close()


class Swap:
    """Answers the question, after the skill was changed and staged again by another call."""

    def __init__(self, echo: Bench, back: bool = False) -> None:
        self.echo, self.back = echo, back
        self.hashes: list[str] = []

    def open(self, **options: Any) -> Runtime:
        return Runtime(self.echo.tree.project, rules=ASK_RUNS, ask=self, **options)

    def __call__(self, pending: Pending) -> Answer:
        self.hashes.append(pending.request.hash)
        self.echo.write("scripts/report.py", SECOND)
        with Runtime(self.echo.tree.project, rules=DENY) as other:
            skill = other.get_skill("echo")
            with pytest.raises(PermissionDenied):
                other.workbench.run(skill, RunCall("echo x"), WHO)
            log = other.gate.audit.read(type="decision")
            (refused,) = (one for one in log if one.data["type"] == "run")
        assert refused.hash != pending.request.hash
        if self.back:
            self.echo.write("scripts/report.py", FIRST)
        return Answer("once")


def by_run(belt: Runtime) -> str:
    return belt.run_sync("echo", COMMAND, session=belt.session("ada", "chat")).stdout


def by_run_without_a_session(belt: Runtime) -> str:
    return belt.run_sync("echo", COMMAND).stdout


def by_execution(belt: Runtime) -> str:
    return belt.execute_skill_sync("echo", session=belt.session("ada", "chat")).stdout


def by_tool(belt: Runtime) -> str:
    session = belt.session("ada", "chat")
    result = session.call_sync("skill_run", {"skill": "echo", "command": COMMAND})
    if result.error:
        raise RunRefused(result.error)
    return str(result.data["stdout"])


def in_the_background(belt: Runtime) -> str:
    skill = belt.get_skill("echo")
    run = belt.background.start(skill, RunCall(COMMAND), WHO)
    polled = belt.background.poll(WHO.key, run, wait_seconds=50)
    while polled.running:
        polled = belt.background.poll(WHO.key, run, wait_seconds=50)
    assert polled.result is not None
    return polled.result.stdout


DOORS = [by_run, by_run_without_a_session, by_execution, by_tool, in_the_background]


@pytest.mark.parametrize("door", DOORS)
def test_a_skill_that_changed_while_it_was_asked_for_is_not_run(
    echo: Bench, door: Callable[[Runtime], str]
) -> None:
    swap = Swap(echo)
    with swap.open() as belt:
        with pytest.raises(RunRefused, match="changed while its run was asked for"):
            door(belt)
        assert [one.data for one in belt.gate.audit.read(type="run")] == []
    assert len(swap.hashes) == 1


@pytest.mark.parametrize("door", DOORS)
def test_the_copy_that_was_asked_for_runs_whatever_another_call_staged(
    echo: Bench, door: Callable[[Runtime], str]
) -> None:
    swap = Swap(echo, back=True)
    with swap.open() as belt:
        assert door(belt) == "first\n"
        (done,) = belt.gate.audit.read(type="run")
    assert [done.hash] == swap.hashes


@pytest.mark.parametrize("name", GUARDING)
def test_no_sandbox_runs_what_another_call_staged(echo: Bench, name: str) -> None:
    (sandbox,) = (one for one in sandboxes() if one.name == name)
    if sandbox.unavailable():
        pytest.skip(str(sandbox.unavailable()))
    with Swap(echo, back=True).open(sandbox=name) as belt:
        assert by_run(belt) == "first\n"


def test_two_contents_run_at_once_in_one_conversation(echo: Bench) -> None:
    """The first goes on reading its own files after the second was staged and ran."""
    loop = "touch work/on; until test -e work/off; do sleep 0.01; done; python3 scripts/report.py"
    found: list[str] = []
    bench = echo.make()
    first = threading.Thread(target=lambda: found.append(echo.run(loop, bench=bench).stdout))
    first.start()
    with bench.workspace(SessionKey("app", "me", "one")) as workspace:
        while not os.path.exists(os.path.join(workspace.path, "work", "on")):
            assert first.is_alive()
            time.sleep(0.01)
    echo.write("scripts/report.py", "print('second')\n")
    assert echo.run(COMMAND, bench=bench).stdout == "second\n"
    echo.run("touch work/off", bench=bench)
    first.join()
    assert found == ["first\n"]


def test_a_copy_that_was_changed_is_not_run(echo: Bench) -> None:
    def answer(_: Pending) -> Answer:
        with bench.workspace(SessionKey("app", "me", "one")) as workspace:
            (script,) = Path(workspace.path).glob("skills-*/echo/scripts/report.py")
            script.chmod(0o644)
            script.write_text(SECOND)
            script.chmod(0o444)
        return Answer("once")

    bench = echo.make(ASK_ALL, answer)
    with pytest.raises(RunRefused, match="was changed after it was made"):
        echo.run(COMMAND, bench=bench)
    bench = echo.make()
    assert echo.run(COMMAND, bench=bench).stdout == "first\n"


def test_copies_that_nobody_needs_go_when_nobody_uses_the_workspace(echo: Bench) -> None:
    bench = echo.make()
    with bench.workspace(SessionKey("app", "me", "one")) as workspace:
        for number in range(3):
            echo.write("scripts/report.py", f"print({number})\n")
            assert echo.run(COMMAND, bench=bench).stdout == f"{number}\n"
        assert len(list(Path(workspace.path).glob("skills-*"))) == 3
    assert len(list(Path(workspace.path).glob("skills-*"))) == 1
    assert os.listdir(os.path.join(workspace.path, "private")) in ([], ["spare"])
    assert echo.run(COMMAND, bench=bench).stdout == "2\n"


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b"]), st.booleans(), st.sampled_from(["x", "y", ""])),
        min_size=1,
        max_size=4,
    )
)
def test_question_answer_start_and_log_have_one_hash(
    echo: Bench, steps: list[tuple[str, bool, str]]
) -> None:
    started: list[str] = []
    echo.asked.clear()
    bench = echo.make((Rule("*", "*", "ask"),))
    begun = time.time()
    for text, program, link in steps:
        echo.write("scripts/report.py", f"print('{text}')\n", 0o755 if program else 0o644)
        (echo.skill / "link").unlink(missing_ok=True)
        if link:
            (echo.skill / "link").symlink_to(link)
        with bench.ready(echo.belt.get_skill("echo"), RunCall(COMMAND), WHO) as ready:
            job: Job = ready.job
            assert job.mounts[0].source == ready.staged.path
            started.append(ready.staged.hash)
            bench.finish(ready, bench.carry_out(echo.belt.get_skill("echo"), ready), WHO)
    log = [one for one in echo.belt.gate.audit.read() if one.time >= begun]
    asked = [one.request.hash for one in echo.asked]
    assert asked == started
    for kind in ("decision", "run"):
        assert [one.hash for one in log if one.type == kind] == started
    assert len(set(started)) == len(set(steps))


@pytest.mark.parametrize("tool", ["skill", "skill_load"])
def test_text_of_a_skill_that_changed_while_it_was_asked_for_is_not_given(
    echo: Bench, tool: str
) -> None:
    def answer(_: Pending) -> Answer:
        with open(echo.skill / "SKILL.md", "a") as file:
            file.write("NEVER APPROVED\n")
        return Answer("once")

    with Runtime(echo.tree.project, rules=ASK_ALL, ask=answer) as belt:
        session = belt.session("ada", "chat")
        arguments = {"name" if tool == "skill" else "skill": "echo"}
        for result in (
            session.call_sync(tool, arguments, inline=True),
            belt.dispatch(tool, arguments),
        ):
            assert "changed while it was asked for" in result.error
            assert "NEVER APPROVED" not in result.text
        command = session.user_command("/echo")
        assert command is not None
        assert "changed while it was asked for" in command.error
        assert list(belt.gate.audit.read(type="load")) == []
