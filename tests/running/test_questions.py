"""An answer that is remembered covers what was seen, and nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillbelt import Answer, Pending, PermissionDenied, Request, Rule
from skillbelt.errors import RunRefused
from skillbelt.running.call import RunCall
from skillbelt.running.questions import call_facts
from tests import needs
from tests.bench import ME, Bench
from tests.tree import Tree

pytestmark = needs.linux

REPORT = "import sys; print('report', *sys.argv[1:])\n"
CALL = "python3 scripts/report.py a"


def always(_: Pending) -> Answer:
    return Answer("always")


@pytest.fixture
def echo(open_tree: Tree) -> Iterator[Bench]:
    bench = Bench(open_tree)
    bench.write("scripts/report.py", REPORT)
    yield bench
    bench.close()


def asked(echo: Bench, type: str = "run") -> list[Request]:
    return [one.request for one in echo.asked if one.request.type == type]


def test_the_very_same_call_is_asked_for_once(echo: Bench) -> None:
    echo.tree.write("project/in.txt", "in")
    inputs = [{"from": f"host://{echo.tree.project}/in.txt", "to": "work/inputs/in.txt"}]
    bench = echo.make((), always)
    more: dict[str, Any] = {"env": {"A": "1", "API_TOKEN": "hunter2-decoy"}, "stdin": b"x"}
    for _ in range(3):
        done = echo.run(CALL, bench=bench, inputs=inputs, timeout_seconds=50, **more)
        assert done.stdout == "report a\n"
    assert len(asked(echo)) == 1


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("python3 scripts/report.py b", {}),
        ("python3 scripts/report.py a b", {}),
        ("python3  scripts/report.py a", {}),
        ("python3 ./scripts/report.py a", {}),
        ("bash scripts/report.py", {}),
        (("python3", "scripts/report.py", "a"), {}),
        (f"{CALL}; echo b", {}),
        (CALL, {"env": {"HOME": "/workspace/work/h", "PYTHONNOUSERSITE": ""}}),
        (CALL, {"env": {"A": "1"}}),
        (CALL, {"env": {"API_TOKEN": "hunter2-decoy"}}),
        (CALL, {"stdin": b"x"}),
        (CALL, {"cwd": "scripts"}),
        (CALL, {"cwd": "/work"}),
        (CALL, {"timeout_seconds": 5}),
        (CALL, {"editor_text": "x"}),
        (CALL, {"inputs": [{"from": "host://{project}/in.txt", "to": "work/x"}]}),
        (CALL, {"inputs": [{"from": "workspace://work/kept", "to": "work/x", "mode": "link"}]}),
    ],
)
def test_anything_else_is_asked_for_again(
    echo: Bench, command: str | tuple[str, ...], more: dict[str, Any]
) -> None:
    project = echo.tree.write("project/in.txt", "in").parent
    for one in more.get("inputs", ()):
        one["from"] = one["from"].replace("{project}", str(project))
    bench = echo.make((), always)
    echo.run("touch work/kept", bench=bench)
    echo.run(CALL, bench=bench)
    before = len(asked(echo))
    echo.run(CALL, bench=bench)
    assert len(asked(echo)) == before
    echo.run(command, bench=bench, **more)
    assert len(asked(echo)) == before + 1


@pytest.mark.parametrize("name", ["A", "API_TOKEN"])
def test_another_value_is_another_call(echo: Bench, name: str) -> None:
    bench = echo.make((), always)
    for value in ("value-one", "value-one", "value-two"):
        echo.run(CALL, bench=bench, env={name: value})
    assert len(asked(echo)) == 2


def test_another_content_of_an_input_is_another_call(echo: Bench) -> None:
    path = echo.tree.write("project/in.txt", "one")
    inputs = [{"from": f"host://{path}", "to": "work/inputs/in.txt"}]
    bench = echo.make((), always)
    for text in ("one", "one", "two"):
        path.write_text(text)
        assert echo.run("cat inputs/in.txt", bench=bench, inputs=inputs).stdout == text
    # The second run finds what the first one left, so it is another call than that.
    assert len(asked(echo)) == 3


def test_another_limit_and_another_sandbox_are_another_call(echo: Bench) -> None:
    echo.run(CALL, bench=echo.make((), always))
    echo.run(CALL, bench=echo.make((), always))
    assert len(asked(echo)) == 1
    echo.run(CALL, bench=echo.make((), always, max_processes=4000))
    assert len(asked(echo)) == 2
    facts = asked(echo)[-1].metadata["call"]
    assert isinstance(facts, dict)
    assert facts["limits"] == {"max_processes": 4000}
    assert facts["sandbox"]


def test_code_that_came_with_variables_and_inputs_does_not_run_unasked(echo: Bench) -> None:
    echo.tree.write("project/evil.pth", "import sys; print('planted')\n")
    folder = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    to = f"work/h/.local/lib/{folder}/site-packages/evil.pth"
    given: dict[str, Any] = {
        "inputs": [{"from": f"host://{echo.tree.project}/evil.pth", "to": to}],
        "env": {"HOME": "/workspace/work/h", "PYTHONNOUSERSITE": ""},
    }
    answers = iter((Answer("always"), Answer("reject")))
    bench = echo.make((), lambda _: next(answers))
    echo.run(CALL, bench=bench)
    with pytest.raises(PermissionDenied):
        echo.run(CALL, bench=bench, **given)


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("bash work/a.sh", {}),
        ("bash /workspace/work/a.sh", {}),
        ("bash inputs/../a.sh", {}),
        ("python3 -c \"exec(open('work/a.sh').read())\"", {}),
        ("echo --file=work/a.sh", {}),
    ],
)
def test_a_file_that_a_run_may_write_is_part_of_the_call(
    echo: Bench, command: str, more: dict[str, Any]
) -> None:
    bench = echo.make((), always)
    echo.run("echo 'a = 1' > work/a.sh", bench=bench)
    echo.run(command, bench=bench, **more)
    echo.run(command, bench=bench, **more)
    before = len(asked(echo))
    echo.run("echo 'b = 2' > work/a.sh", bench=bench)
    echo.run(command, bench=bench, **more)
    assert len(asked(echo)) == before + 2


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("ls $HOME", {}),
        ("ls *", {}),
        ("ls", {"cwd": "/work"}),
        ("ls /proc/self/cwd", {}),
        ("ls", {"env": {"HOME": "/workspace/work"}}),
        ("ls", {"env": {"X": "/bin:work/bin"}}),
        (CALL, {"inputs": [{"from": "workspace://work/inputs", "to": "work/x", "mode": "link"}]}),
    ],
)
def test_what_can_not_be_told_for_certain_is_never_remembered(
    echo: Bench, command: str, more: dict[str, Any]
) -> None:
    bench = echo.make((), always)
    for _ in range(2):
        echo.run(command, bench=bench, **more)
    assert [one.always for one in asked(echo)] == [(), ()]


def test_what_is_written_to_a_command_later_is_never_remembered(echo: Bench) -> None:
    bench = echo.make((), lambda _: Answer("reject"))
    with pytest.raises(PermissionDenied):
        echo.run("cat", bench=bench, stdin=None)
    assert [one.always for one in asked(echo)] == [()]


def test_a_program_that_a_run_left_is_not_taken_for_the_systems(echo: Bench) -> None:
    bench = echo.make((Rule("run", "python3 *", "allow"),), always)
    left = "mkdir .venv/bin; printf '#!/bin/sh\\necho planted' > .venv/bin/python3; chmod +x $_"
    echo.run(left.replace("$_", ".venv/bin/python3"), bench=bench)
    answered = len(echo.asked)
    assert "planted" not in echo.run(CALL, bench=bench).stdout
    assert len(echo.asked) == answered
    assert echo.run(f".venv/bin/{CALL}", bench=bench).stdout.strip() == "planted"
    assert asked(echo)[-1].patterns == (f".venv/bin/{CALL}",)


@pytest.mark.parametrize(
    "more", [{"env": {"A": "1"}}, {"env": {"PATH": "/workspace/work"}}, {"cwd": "/work"}]
)
def test_a_rule_about_a_program_covers_no_other_surroundings(
    echo: Bench, more: dict[str, Any]
) -> None:
    bench = echo.make((Rule("run", "echo *", "allow"),))
    echo.run("echo a", bench=bench)
    assert not echo.asked
    echo.run("echo a", bench=bench, **more)
    assert len(asked(echo)) == 1


def test_whoever_is_asked_is_given_every_fact(echo: Bench) -> None:
    echo.tree.write("project/data/a.txt", "a")
    echo.tree.write("project/data/b/c.txt", "c")
    project = echo.tree.project
    bench = echo.make(())
    echo.run(
        CALL,
        bench=bench,
        env={"A": "1", "API_TOKEN": "hunter2-decoy"},
        stdin=b"xyz",
        inputs=[{"from": f"host://{project}/data", "to": "work/data"}],
        timeout_seconds=9,
    )
    [request] = asked(echo)
    facts = request.metadata["call"]
    assert isinstance(facts, dict)
    assert facts["command"] == CALL
    assert facts["script"] == "scripts/report.py"
    assert facts["env"]["A"] == "1"
    assert facts["env"]["API_TOKEN"].startswith("sha256:")
    assert facts["secrets"] == ["API_TOKEN"]
    assert (facts["stdin"]["bytes"], facts["timeout_seconds"]) == (3, 9)
    [given] = facts["inputs"]
    assert given["files"] == [f"{project}/data/a.txt", f"{project}/data/b/c.txt"]
    assert (given["to"], given["mode"], given["bytes"]) == ("work/data", "copy", 2)
    assert "hunter2" not in repr(request)


def facts_of(echo: Bench, **call: Any) -> dict[str, object]:
    skill = echo.belt.get_skill("echo")
    with echo.make().prepare(skill, RunCall("ls", **call), ME) as run:
        return call_facts(run, {})


def test_facts_that_say_nothing_are_left_out(echo: Bench) -> None:
    echo.make()
    facts = facts_of(echo)
    assert facts.pop("sandbox")
    assert facts == {"command": "ls", "cwd": ""}


def test_an_editor_that_writes_nothing_is_a_fact(echo: Bench) -> None:
    echo.make()
    made = [facts_of(echo, editor_text=text) for text in (None, "", "x")]
    assert all(one not in made[:at] for at, one in enumerate(made))


def test_what_is_remembered_says_the_command_in_words(echo: Bench) -> None:
    echo.run(CALL, bench=echo.make((), always), env={"A": "1"})
    [entry] = echo.belt.gate.ledger.all()
    assert (entry.type, entry.pattern) == ("run", f"{CALL}, with A set")
    assert entry.exact.startswith("sha256:")


def test_an_answer_from_before_there_were_digests_is_asked_for_again(echo: Bench) -> None:
    bench = echo.make((), always)
    echo.run(CALL, bench=bench)
    ledger = echo.belt.gate.ledger
    [entry] = ledger.all()
    ledger.revoke(entry.id)
    ledger.remember(echo.asked[0].request._replace(exact=""))
    echo.run(CALL, bench=bench)
    assert len(asked(echo)) == 2


# --- files of the host ---------------------------------------------------------------------------


def give(echo: Bench, path: Path | str, *rules: Rule, **more: Any) -> None:
    bench = echo.make((Rule("run", "*", "allow"), *rules), **more)
    inputs = [{"from": f"host://{path}", "to": "work/given"}]
    echo.run("true", bench=bench, inputs=inputs)


@pytest.mark.parametrize(
    "name",
    [".env", ".env.local", ".ENV", ".git/config", "sub/.git/config", "id_rsa", "key.pem", ".netrc",
     "a/credentials.json", ".aws/config"],
)  # fmt: skip
def test_what_looks_secret_is_not_taken_from_the_project_unasked(echo: Bench, name: str) -> None:
    path = echo.tree.write(f"project/{name}", "decoy")
    give(echo, path)
    [request] = asked(echo, "host_file")
    assert request.patterns == (str(path),)
    assert str(path) in request.summary
    with pytest.raises(PermissionDenied):
        give(echo, path, answer=lambda _: Answer("reject"))


def test_a_key_is_known_by_how_it_begins(echo: Bench) -> None:
    path = echo.tree.write("project/notes.txt", "-----BEGIN OPENSSH PRIVATE KEY-----\ndecoy\n")
    give(echo, path)
    assert [one.patterns for one in asked(echo, "host_file")] == [(str(path),)]


@pytest.mark.parametrize("name", ["notes.txt", ".env.example", "src/key.py", ".gitignore"])
def test_an_ordinary_file_of_the_project_is_given_unasked(echo: Bench, name: str) -> None:
    give(echo, echo.tree.write(f"project/{name}", "x"))
    assert not echo.asked


def test_a_folder_is_asked_for_by_the_secrets_in_it(echo: Bench) -> None:
    project = echo.tree.write("project/.env", "decoy").parent
    echo.tree.write("project/.git/config", "decoy")
    echo.tree.write("project/plain.txt", "x")
    give(echo, project)
    [request] = asked(echo, "host_file")
    assert set(request.patterns) == {f"{project}/.env", f"{project}/.git/config"}


@pytest.mark.parametrize("folder", ["project/data", "elsewhere/data"])
def test_a_folder_obeys_the_rules_about_files_in_it(echo: Bench, folder: str) -> None:
    path = echo.tree.write(f"{folder}/deep/private.txt", "decoy")
    echo.tree.write(f"{folder}/open.txt", "x")
    rules = (Rule("host_file", "*", "allow"), Rule("host_file", "*/private.txt", "deny"))
    with pytest.raises(PermissionDenied, match="private"):
        give(echo, echo.tree.path(folder), *rules)
    with pytest.raises(PermissionDenied):
        give(echo, path, *rules)
    with pytest.raises(PermissionDenied):
        give(echo, f"{path.parent}/../deep//private.txt", *rules)
    give(echo, echo.tree.path(f"{folder}/open.txt"), *rules)


def test_an_ask_about_a_file_of_the_project_stays(echo: Bench) -> None:
    path = echo.tree.write("project/notes.txt", "x")
    give(echo, path, Rule("host_file", str(path), "ask"))
    assert len(asked(echo, "host_file")) == 1


def test_every_file_of_a_folder_elsewhere_is_named(echo: Bench) -> None:
    for name in ("a.txt", "b/c.txt"):
        echo.tree.write(f"elsewhere/{name}", "x")
    folder = echo.tree.path("elsewhere")
    give(echo, folder)
    [request] = asked(echo, "host_file")
    assert request.summary == f"give the files {folder}/a.txt, {folder}/b/c.txt to the skill echo"
    assert request.metadata["files"] == [f"{folder}/a.txt", f"{folder}/b/c.txt"]


def test_a_file_elsewhere_is_asked_for_again_when_it_changed(echo: Bench) -> None:
    path = echo.tree.write("elsewhere/a.txt", "one")
    for text in ("one", "one", "two"):
        path.write_text(text)
        give(echo, path, answer=always)
    assert len(asked(echo, "host_file")) == 2


def test_a_model_does_not_learn_whether_a_file_is_there_before_somebody_allows_it(
    echo: Bench,
) -> None:
    there = echo.tree.write("elsewhere/a.txt", "x")
    said = []
    for path in (there, there.with_name("gone.txt")):
        with pytest.raises(PermissionDenied) as refused:
            give(echo, path, answer=lambda _: Answer("reject"))
        said.append(str(refused.value).replace(path.name, ""))
    assert said[0] == said[1]
    with pytest.raises(RunRefused, match="No such file"):
        give(echo, there.with_name("gone.txt"))


def test_what_was_copied_before_the_answer_is_what_comes_in(echo: Bench) -> None:
    path = echo.tree.write("elsewhere/a.txt", "seen")

    def swap(_: Pending) -> Answer:
        path.write_text("swapped")
        return Answer("once")

    bench = echo.make((Rule("run", "*", "allow"),), swap)
    inputs = [{"from": f"host://{path}", "to": "work/inputs/a.txt"}]
    assert echo.run("cat inputs/a.txt", bench=bench, inputs=inputs).stdout == "seen"


def test_nothing_is_left_of_inputs_that_were_refused(echo: Bench) -> None:
    path = echo.tree.write("elsewhere/a.txt", "x")
    bench = echo.make((Rule("run", "*", "allow"),), lambda _: Answer("reject"))
    inputs = [{"from": f"host://{path}", "to": "work/inputs/a.txt"}]
    with pytest.raises(PermissionDenied):
        echo.run("true", bench=bench, inputs=inputs)
    from tests.bench import KEY

    with bench.workspace(KEY) as workspace:
        private = os.listdir(os.path.join(workspace.path, "private"))
        assert not [name for name in private if name.startswith("in-")]
        assert not os.path.exists(os.path.join(workspace.path, "work", "inputs", "a.txt"))
