"""A skill that the asker may not use does not run, by any path."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from skillbelt import Answer, PermissionDenied, Rule, Runtime
from skillbelt.errors import RunRefused
from skillbelt.permission.rules import Action
from tests import needs
from tests.bench import ME, Bench
from tests.tree import Tree

pytestmark = needs.linux

RUN = Rule("run", "*", "allow")
DENIED = (Rule("skill", "*", "allow"), Rule("skill", "echo", "deny"), RUN)
ASKED = (Rule("skill", "echo", "ask"), RUN)
FILE = """
[permission]
skill = { "*" = "allow", "echo" = "deny" }
run = "allow"
"""


@pytest.fixture
def echo(open_tree: Tree) -> Iterator[Bench]:
    bench = Bench(open_tree)
    bench.write("scripts/a.py", "print('ran')\n")
    yield bench
    bench.close()


def types(bench: Bench) -> list[str]:
    return [one.request.type for one in bench.asked]


@pytest.mark.parametrize(
    "use",
    [
        lambda belt: belt.run_sync("echo", "cat SKILL.md"),
        lambda belt: belt.run_sync("echo", "true", session=belt.session("ada", "chat")),
        lambda belt: belt.execute_skill_sync("echo", {}),
    ],
)
def test_a_denied_skill_is_not_run_by_the_library(
    echo: Bench, use: Callable[[Runtime], object]
) -> None:
    echo.make(DENIED)
    with pytest.raises(PermissionDenied, match="load the skill echo"):
        use(echo.belt)
    assert echo.events("run") == []


@pytest.mark.parametrize("words", [["exec", "echo"], ["run", "echo", "--", "cat", "SKILL.md"]])
def test_a_denied_skill_is_not_run_by_the_command_line(echo: Bench, words: list[str]) -> None:
    echo.tree.write("home/.config/skillbelt/config.toml", FILE)
    done = echo.tree.run(*words)
    assert done[0] == 4 and done.stdout == ""
    assert "load the skill echo" in done.stderr


def test_who_wants_to_be_asked_for_a_skill_is_asked_before_it_runs_once(echo: Bench) -> None:
    bench = echo.make(ASKED)
    for _ in range(2):
        assert echo.run("echo hi", bench=bench).stdout == "hi\n"
    assert types(echo) == ["skill"]
    assert echo.run("echo hi", ME._replace(once="whole"), bench).stdout == "hi\n"
    assert types(echo) == ["skill", "skill"]
    echo.write("notes.md", "Other.\n")
    echo.run("echo hi", bench=bench)
    assert types(echo) == ["skill"] * 3


def test_a_skill_that_is_refused_is_not_run(echo: Bench) -> None:
    bench = echo.make(ASKED, lambda _: Answer("reject"))
    with pytest.raises(PermissionDenied, match="load the skill echo"):
        echo.run("touch out/a", bench=bench)
    assert not echo.events("run")


def test_one_rule_for_all_asks_one_question(echo: Bench) -> None:
    echo.run("echo hi", bench=echo.make((Rule("*", "*", "ask"),)))
    assert types(echo) == ["run"]


def test_what_the_user_names_is_not_asked_for_without_a_rule(echo: Bench) -> None:
    echo.run("echo hi", bench=echo.make((RUN,), trust_project="ask"))
    assert types(echo) == []


def test_what_a_model_was_allowed_to_load_it_runs_unasked(echo: Bench) -> None:
    echo.make(ASKED)
    chat = echo.belt.session("ada", "chat")
    assert not chat.call_sync("skill_load", {"skill": "echo"}).error
    assert not chat.call_sync("skill_run", {"skill": "echo", "command": "echo hi"}).error
    assert types(echo) == ["skill"]


def test_a_model_without_a_session_is_asked_for_once(echo: Bench) -> None:
    echo.make(ASKED)
    assert not echo.belt.dispatch("skill_run", {"skill": "echo", "command": "echo hi"}).error
    assert types(echo) == ["skill"]


@pytest.mark.parametrize("action", ["deny", "ask"])
@pytest.mark.parametrize(
    "source",
    [
        "host://{project}/.agents/skills/other/SKILL.md",
        "host://{project}/.agents/skills/../skills/other",
        "host://{project}/.agents",
        "host://{project}/link",
        "skill://other/SKILL.md",
    ],
)
def test_the_text_of_another_skill_is_no_input_for_who_may_not_have_it(
    echo: Bench, source: str, action: Action
) -> None:
    folder = echo.tree.skill("project/.agents/skills/other")
    (echo.tree.project / "link").symlink_to(folder / "SKILL.md")
    rules = (Rule("*", "*", "allow"), Rule("skill", "other", action))
    bench = echo.make(rules, lambda _: Answer("reject"))
    inputs = ({"from": source.format(project=echo.tree.project), "to": "work/inputs/a"},)
    with pytest.raises(PermissionDenied, match="load the skill other"):
        echo.run("true", bench=bench, inputs=inputs)
    assert types(echo) == (["skill"] if action == "ask" else [])


def test_files_of_the_skill_that_runs_and_of_none_are_inputs_as_before(echo: Bench) -> None:
    echo.tree.skill("project/.agents/skills/other")
    echo.tree.write("project/notes.md", "Notes.\n")
    bench = echo.make((Rule("*", "*", "allow"), Rule("skill", "other", "deny")))
    paths = ("notes.md", ".agents/skills/echo/SKILL.md")
    inputs = tuple(
        {"from": f"host://{echo.tree.project}/{path}", "to": f"work/inputs/{number}"}
        for number, path in enumerate(paths)
    )
    assert echo.run("true", bench=bench, inputs=inputs).exit_code == 0


@pytest.mark.parametrize("path", ["/proc/self/environ", "/proc/sys/kernel", "/sys/kernel"])
def test_what_the_kernel_makes_up_is_no_input(echo: Bench, path: str) -> None:
    inputs = ({"from": f"host://{path}", "to": "work/inputs/a"},)
    with pytest.raises(RunRefused, match="the kernel generates it"):
        echo.run("true", inputs=inputs)
