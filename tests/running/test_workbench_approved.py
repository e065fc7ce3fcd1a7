"""The approved content runs, even if the skill changes between the question and the start.

The files of a skill change while a person is asked, and another call of the same conversation
stages the new ones.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillbelt import Answer, Pending, PermissionDenied, Rule, RunRefused, Runtime
from skillbelt.running.call import Asker, RunCall
from skillbelt.running.question_facts import facts
from skillbelt.sandbox.protocol import Job
from skillbelt.store import SessionKey
from tests.bench import ASK_ALL, Bench
from tests.benches import GUARDING, need
from tests.examples import examples
from tests.tree import Tree, settle

COMMAND = "python3 scripts/report.py"
FIRST, SECOND = "print('first')\n", "print('NEVER APPROVED')\n"
ASK_RUNS = (Rule("*", "*", "allow"), Rule("run", "*", "ask"))
DENY = (Rule("run", "*", "deny"),)
WHO = Asker(SessionKey("skillbelt", "ada", "chat"), "user")


@pytest.fixture
def echo(open_tree: Tree) -> Any:
    bench = Bench(open_tree)
    bench.write("scripts/report.py", FIRST)
    settle()
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
    need(name)
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
    left = os.listdir(os.path.join(workspace.path, "private"))
    assert all(name.startswith("spare-") for name in left)
    assert echo.run(COMMAND, bench=bench).stdout == "2\n"


@settings(max_examples=examples(8), suppress_health_check=list(HealthCheck))
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
        with bench.prepare(echo.belt.get_skill("echo"), RunCall(COMMAND), WHO) as run:
            job: Job = run.job
            assert job.mounts[0].source == run.staged.path
            started.append(run.staged.hash)
            bench.carry_out(run)
            bench.finish(run)
    log = [one for one in echo.belt.gate.audit.read() if one.time >= begun]
    asked = [one.request.hash for one in echo.asked]
    assert asked == started
    for kind in ("decision", "run"):
        assert [one.hash for one in log if one.type == kind] == started
    assert len(set(started)) == len(set(steps))


class Asked:
    """Answers, and counts how often it had to."""

    def __init__(self, kind: Literal["once", "always"] = "once") -> None:
        self.kind, self.count = kind, 0
        self.then: Callable[[], object] = lambda: None

    def __call__(self, _: Pending) -> Answer:
        self.count += 1
        self.then()
        return Answer(self.kind)


def test_a_file_of_the_workspace_that_changed_while_it_was_asked_for_is_not_run(
    echo: Bench,
) -> None:
    asked = Asked()
    with Runtime(echo.tree.project, rules=ASK_RUNS, ask=asked) as belt:
        session = belt.session("ada", "chat")
        belt.run_sync("echo", "echo echo GOOD > work/x.sh", session=session)
        with belt.workbench.workspace(WHO.key) as workspace:
            script = Path(workspace.path, "work", "x.sh")
        asked.then = lambda: script.write_text("echo NEVER APPROVED\n")
        for command in ("bash work/x.sh", "bash < work/x.sh", "cd work && bash x.sh"):
            script.write_text("echo GOOD\n")
            with pytest.raises(RunRefused, match="changed while the run was asked for"):
                belt.run_sync("echo", command, session=session)
        asked.then = lambda: None
        script.write_text("echo GOOD\n")
        assert belt.run_sync("echo", "bash work/x.sh", session=session).stdout == "GOOD\n"


def test_what_an_input_brings_is_no_change_of_what_was_asked_for(echo: Bench) -> None:
    path = echo.tree.write("project/a.txt", "one\n")
    with Runtime(echo.tree.project, rules=ASK_RUNS, ask=Asked()) as belt:
        session = belt.session("ada", "chat")
        inputs = [{"from": f"host://{path}"}]
        for command in ("cat work/inputs/a.txt", "cat inputs/a.txt", "ls work/inputs > /dev/null"):
            assert belt.run_sync("echo", command, inputs=inputs, session=session).exit_code == 0


def test_no_remembered_answer_counts_while_another_run_can_change_what_is_used(
    echo: Bench,
) -> None:
    asked = Asked("always")
    with Runtime(echo.tree.project, rules=ASK_RUNS, ask=asked) as belt:
        session, skill = belt.session("ada", "chat"), belt.get_skill("echo")
        named = f"{COMMAND} work/a"
        for command in (named, named, COMMAND, COMMAND):
            belt.run_sync("echo", command, session=session)
        assert asked.count == 2
        run = belt.background.start(skill, RunCall("sleep 600"), WHO)
        for command in (named, named, COMMAND):
            belt.run_sync("echo", command, session=session)
        assert asked.count == 5
        belt.background.kill(WHO.key, run)
        belt.run_sync("echo", named, session=session)
        assert asked.count == 5


@pytest.mark.parametrize(
    "command",
    ["cat @work/a", "echo --f-work/a", "echo work/a@1", "echo +work/a", "echo %work", "echo !work",
     "python3 -c 'import os; print(os.environ[\"WORK_DIR\"])'", "echo a", f"{COMMAND} @work/a",
     f"{COMMAND} WORK_DIR", f"{COMMAND} work/a@1", f"{COMMAND} --x-work/a", f"{COMMAND} +out"],
)  # fmt: skip
def test_what_may_use_files_of_a_run_in_a_way_that_can_not_be_told_is_asked_each_time(
    echo: Bench, command: str
) -> None:
    asked = Asked("always")
    with Runtime(echo.tree.project, rules=ASK_RUNS, ask=asked) as belt:
        session = belt.session("ada", "chat")
        belt.run_sync("echo", command, session=session)
        belt.run_sync("echo", "echo one > work/a", session=session)
        before = asked.count
        for _ in range(2):
            belt.run_sync("echo", command, session=session)
        assert asked.count == before + 2
        asked.count = 0
        for _ in range(2):
            belt.run_sync("echo", f"{COMMAND} --out out/a work/a", session=session)
        assert asked.count == 1


def test_secrets_that_come_along_with_a_projects_skill_are_told(echo: Bench) -> None:
    echo.write(".env", "TOKEN=1\n")
    echo.write("assets/id", "-----BEGIN OPENSSH PRIVATE KEY-----\n")
    told: list[object] = []

    def answer(pending: Pending) -> Answer:
        call = pending.request.metadata["call"]
        assert isinstance(call, dict)
        told.append(call["secrets_in_the_skill"])
        assert any("secrets in the skill" in fact.label for fact in facts(pending.request))
        return Answer("always")

    with Runtime(echo.tree.project, rules=ASK_RUNS, ask=answer) as belt:
        for _ in range(2):
            belt.run_sync("echo", COMMAND, session=belt.session("ada", "chat"))
    assert told == [[".env", "assets/id"]]


@pytest.mark.parametrize("tool", ["skill", "skill_load"])
def test_text_of_a_skill_that_changed_while_it_was_asked_for_is_not_given(
    echo: Bench, tool: str
) -> None:
    def answer(_: Pending) -> Answer:
        with open(echo.skill / "SKILL.md", "a") as file:
            file.write("NEVER APPROVED\n")
        return Answer("once")

    with Runtime(echo.tree.project, rules=ASK_ALL, ask=answer, tools=[tool]) as belt:
        session = belt.session("ada", "chat")
        arguments = {"name" if tool == "skill" else "skill": "echo"}
        for result in (
            session.call_sync(tool, arguments, inline=True),
            belt.dispatch(tool, arguments),
        ):
            assert "changed while permission was requested" in result.error
            assert "NEVER APPROVED" not in result.text
        command = session.user_command("/echo")
        assert command is not None
        assert "changed while permission was requested" in command.error
        assert list(belt.gate.audit.read(type="load")) == []
