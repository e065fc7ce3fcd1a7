"""A trial starts each script of a skill in the sandbox, and reports the results."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import anyio
import pytest

from skillbelt import (
    Answer,
    Lack,
    Pending,
    PermissionDenied,
    Reached,
    Rule,
    RunRefused,
    Runtime,
    ScriptTrial,
    SkillNotFound,
    Trial,
)
from skillbelt.running.trial.trial import try_skill
from tests import needs
from tests.bench import ME
from tests.benches import FOLDER, SKILL, Bench
from tests.desks import HANG_SECONDS

pytestmark = needs.linux
HELP = "import argparse\nargparse.ArgumentParser().parse_args()\n"


@pytest.fixture
def kit(bench: Bench) -> Bench:
    """A skill with one script for each end."""
    for path, text in {
        "scripts/good.py": HELP,
        "scripts/lib.py": "def f():\n    return 1\n",
        "scripts/lacks.py": "import no_such_module_anywhere\nno_such_module_anywhere.run()\n",
        "scripts/calls.sh": "no-such-program --version\n",
        "scripts/writes.py": "open('/etc/mine', 'w')\n",
        "tests/test_good.py": "raise SystemExit(1)\n",
    }.items():
        bench.tree.write(f"{FOLDER}/{path}", text)
    return bench


def runtime(
    bench: Bench, ask: Callable[[Pending], Answer | None] | None = None, *rules: Rule
) -> Runtime:
    return Runtime(bench.tree.project, ask=ask, rules=rules)


def by_path(scripts: tuple[ScriptTrial, ...]) -> dict[str, ScriptTrial]:
    return {one.path.rpartition("/")[2]: one for one in scripts}


def test_every_script_is_tried_and_told_apart(kit: Bench) -> None:
    with runtime(kit, None, Rule("*", "*", "allow")) as belt:
        trial = belt.try_skill_sync(SKILL)
    found = by_path(trial.scripts)
    assert sorted(found) == ["calls.sh", "good.py", "lacks.py", "lib.py", "writes.py"]
    assert {name for name, one in found.items() if one.started} == {"good.py", "lib.py"}
    assert (found["good.py"].how, found["lib.py"].how) == ("help", "imports")
    assert found["lacks.py"].lacked == (Lack("module", "no_such_module_anywhere"),)
    assert found["calls.sh"].lacked == (Lack("program", "no-such-program"),)
    assert found["writes.py"].how == "permission"
    assert not trial.started and trial.sandbox


def test_one_question_covers_all_scripts(kit: Bench) -> None:
    asked: list[Pending] = []

    def ask(pending: Pending) -> Answer:
        asked.append(pending)
        return Answer("once")

    with runtime(kit, ask) as belt:
        belt.try_skill_sync(SKILL)
    (question,) = asked
    assert question.request.summary.startswith(f"start 5 scripts of the skill {SKILL}")
    assert "python3 scripts/good.py --help" in question.request.patterns
    assert question.request.always == ()


def test_nothing_runs_when_the_question_is_refused(kit: Bench) -> None:
    kit.tree.write(f"{FOLDER}/scripts/good.py", "print('I ran')\n" + HELP)
    with (
        runtime(kit, lambda _: Answer("reject", "not today")) as belt,
        pytest.raises(PermissionDenied, match="not today"),
    ):
        belt.try_skill_sync(SKILL)
    runs = [one for one in belt.gate.audit.read() if one.type == "run"]
    assert runs == []


def test_the_answer_is_for_the_skill_as_it_was_shown(kit: Bench) -> None:
    def ask(_: Pending) -> Answer:
        kit.tree.write(f"{FOLDER}/scripts/good.py", "print('changed')\n")
        return Answer("once")

    with runtime(kit, ask) as belt, pytest.raises(PermissionDenied):
        belt.try_skill_sync(SKILL)
    assert [one for one in belt.gate.audit.read() if one.type == "run"] == []


def test_a_rule_that_denies_a_script_keeps_it_from_running(kit: Bench) -> None:
    rule = Rule("run", "python3 scripts/good.py *", "deny")
    with runtime(kit, lambda _: Answer("once"), rule) as belt:
        found = by_path(belt.try_skill_sync(SKILL, ["scripts/good.py", "scripts/lib.py"]).scripts)
    assert (found["good.py"].how, found["good.py"].started) == ("refused", False)
    assert found["lib.py"].started


def test_only_the_named_scripts_are_tried(kit: Bench) -> None:
    with runtime(kit, None, Rule("*", "*", "allow")) as belt:
        trial = belt.try_skill_sync(SKILL, ["scripts/lib.py"])
        assert [one.path for one in trial.scripts] == ["scripts/lib.py"]
        with pytest.raises(RunRefused, match=r"has no script 'tests/test_good\.py'; its scripts: "):
            belt.try_skill_sync(SKILL, ["tests/test_good.py"])
        with pytest.raises(SkillNotFound):
            belt.try_skill_sync("kitt")


def test_what_a_script_tried_to_reach_is_told(bench: Bench) -> None:
    code = "import urllib.request\nurllib.request.urlopen('http://example.com:8080/')\n"
    bench.tree.write(f"{FOLDER}/scripts/fetch.py", code)
    with runtime(bench, lambda _: Answer("once")) as belt:
        (script,) = belt.try_skill_sync(SKILL).scripts
    assert script.reached == (Reached("example.com:8080", False),)
    assert Lack("host", "example.com") in script.lacked


def test_a_script_gets_no_host_that_only_an_answer_would_allow(bench: Bench) -> None:
    asked: list[str] = []

    def ask(pending: Pending) -> Answer:
        asked.append(pending.request.type)
        return Answer("once")

    bench.tree.skill(FOLDER, allowed_tools="Fetch(example.com)")
    bench.tree.write(f"{FOLDER}/scripts/good.py", HELP)
    with runtime(bench, ask) as belt:
        gate = belt.gate.asking_for("run")
        trial = try_skill(
            belt.workbench, belt.get_skill(SKILL), ME._replace(gate=gate), one_question=False
        )
    assert trial.started and asked == ["run"]


def test_a_script_runs_with_its_own_example(bench: Bench) -> None:
    bench.tree.write(f"{FOLDER}/examples/in.txt", "4")
    bench.tree.write(
        f"{FOLDER}/scripts/double.py",
        '# /// try\n# arguments = ["examples/in.txt"]\n# stdin = "2"\n# ///\n'
        "import sys\nassert open(sys.argv[1]).read() + sys.stdin.read() == '42'\n",
    )
    with runtime(bench, None, Rule("*", "*", "allow")) as belt:
        (script,) = belt.try_skill_sync(SKILL).scripts
    assert (script.how, script.started) == ("example", True)


def test_a_server_that_keeps_running_has_started(bench: Bench) -> None:
    bench.tree.write(f"{FOLDER}/serve.py", "import time\nprint('up')\ntime.sleep(600)\n")
    with runtime(bench, None, Rule("*", "*", "allow")) as belt:
        (script,) = belt.try_skill_sync(SKILL, timeout_seconds=1).scripts
    assert (script.how, script.started) == ("waits", True)


def test_a_trial_that_is_cancelled_ends_its_scripts(bench: Bench) -> None:
    bench.tree.write(f"{FOLDER}/serve.py", "import time\ntime.sleep(600)\n")
    begun, ended = threading.Event(), threading.Event()

    async def main(belt: Runtime) -> None:
        trial = partial(belt.try_skill, SKILL, timeout_seconds=600, told=lambda _: ended.set())
        async with anyio.create_task_group() as group:
            group.start_soon(trial)
            await anyio.to_thread.run_sync(begun.wait, HANG_SECONDS)
            group.cancel_scope.cancel()

    def progress(text: str) -> None:
        if text.startswith("running"):
            begun.set()

    allow = [Rule("*", "*", "allow")]
    with Runtime(bench.tree.project, rules=allow, progress=progress) as belt:
        anyio.run(main, belt)
        assert ended.wait(HANG_SECONDS)


def test_each_script_has_a_workspace_of_its_own_which_is_gone_afterwards(bench: Bench) -> None:
    code = "import os\nassert not os.listdir('out')\nopen('out/mine', 'w').write('x')\n"
    for name in ("a.py", "b.py"):
        bench.tree.write(f"{FOLDER}/{name}", code)
    with runtime(bench, None, Rule("*", "*", "allow")) as belt:
        trial = belt.try_skill_sync(SKILL)
        left = belt.workbench.tidy(now=True)
    assert [one.how for one in trial.scripts] == ["ran", "ran"]
    assert left == []


def test_a_skill_without_scripts_needs_no_question(bench: Bench) -> None:
    with runtime(bench) as belt:
        assert belt.try_skill_sync(SKILL) == Trial(SKILL, ())


def test_a_try_is_given_no_secret_even_where_a_rule_allows_it(kit: Bench) -> None:
    kit.tree.write(
        f"{FOLDER}/scripts/good.py", "import os\nprint(os.environ.get('A_KEY', 'none'))\n"
    )
    kit.tree.write(
        f"{FOLDER}/SKILL.md",
        f"---\nname: {SKILL}\ndescription: Tell. Use to test.\n"
        "metadata: {openclaw: {requires: {env: [A_KEY]}}}\n---\nx\n",
    )
    with runtime(kit, None, Rule("*", "*", "allow")) as belt:
        belt.workbench.secret_store.set("A_KEY", "wk-4f9c2e81d7")
        trial = belt.try_skill_sync(SKILL, scripts=["scripts/good.py"])
        assert not belt.workbench.given_secrets
        (one,) = trial.scripts
        assert one.started, one
        belt.run_sync(SKILL, "python3 scripts/good.py")
        assert belt.workbench.given_secrets
