"""`skillbelt secrets`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from skillbelt.permission.audit import open_audit
from skillbelt.running.secret_store import SecretStore
from tests import warm
from tests.benches import SKILL, Bench
from tests.terminal import CHOICE, on_terminal
from tests.tree import Done, Tree

VALUE = "s3cr3t-value"
NEEDING = {"openclaw": {"requires": {"env": ["WEATHER_KEY"]}}}


@pytest.fixture
def weather(tree: Tree) -> Tree:
    tree.skill("project/.agents/skills/weather", metadata=NEEDING)
    return tree


def piped(tree: Tree, data: bytes, *arguments: str) -> Done:
    done = warm.run(
        [sys.executable, "-m", "skillbelt", "secrets", *arguments],
        cwd=tree.project,
        input=data,
        capture_output=True,
        timeout=500,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def kept(tree: Tree) -> dict[str, str | None]:
    store = SecretStore(tree.settings())
    return {f"{one.skill}/{one.name}": store.value(one) for one in store.entries()}


def place(tree: Tree) -> Path:
    return tree.home / ".local/state/skillbelt/secrets/secrets.json"


# set


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_value_comes_from_standard_input(tree: Tree, end: bytes) -> None:
    done = piped(tree, VALUE.encode() + end, "set", "A_KEY")
    said = f"A_KEY is set for any skill that you allow; kept in {place(tree)}\n"
    assert done == (0, "", said)
    assert kept(tree) == {"/A_KEY": VALUE}


def test_a_value_comes_from_a_variable(tree: Tree) -> None:
    tree.setenv("MINE", VALUE)
    assert tree.run("secrets", "set", "A_KEY", "--from-env", "MINE").exit_code == 0
    assert kept(tree) == {"/A_KEY": VALUE}
    done = tree.run("secrets", "set", "A_KEY", "--from-env", "NONE")
    assert done == (2, "", "skillbelt: --from-env: there is no variable 'NONE'\n")


def test_a_value_is_typed_at_a_terminal_that_does_not_show_it(tree: Tree) -> None:
    screen = on_terminal(tree, "secrets", "set", "A_KEY", answers=[("shown): ", f"{VALUE}\n")])
    assert screen.exit_code == 0
    assert VALUE not in screen.written
    assert screen.lines[0].startswith("Value of A_KEY (not shown):")
    assert kept(tree) == {"/A_KEY": VALUE}


@pytest.mark.parametrize("words", [("A_KEY", VALUE), (f"A_KEY={VALUE}",), ()])
def test_a_value_is_never_an_argument(tree: Tree, words: tuple[str, ...]) -> None:
    done = tree.run("secrets", "set", *words, "--json")
    assert done.exit_code == 2
    assert done.document["error"]["kind"] == "usage"
    assert VALUE not in f"{done.stdout}{done.stderr}"
    assert ("in the history of your shell" in done.stderr) == bool(words)
    assert kept(tree) == {}


def test_setting_it_again_replaces_the_value(weather: Tree) -> None:
    piped(weather, b"first-value", "set", "WEATHER_KEY", "--skill", "weather")
    again = piped(weather, VALUE.encode(), "set", "WEATHER_KEY", "--skill", "weather", "--json")
    document = json.loads(again.stdout)
    assert document.pop("time") > 0
    assert document == {
        "name": "WEATHER_KEY",
        "skill": "weather",
        "kept": "file",
        "place": str(place(weather)),
        "replaced": True,
    }
    assert kept(weather) == {"weather/WEATHER_KEY": VALUE}


def test_a_skill_that_is_not_there_may_come_later(weather: Tree) -> None:
    done = piped(weather, VALUE.encode(), "set", "A_KEY", "--skill", "wether")
    assert done.exit_code == 0
    assert "no skill named 'wether'; closest: weather" in done.stderr
    assert kept(weather) == {"wether/A_KEY": VALUE}


def test_a_value_that_is_no_text_is_refused(tree: Tree) -> None:
    done = piped(tree, b"abc\xff\xfedef", "set", "A_KEY")
    assert done == (2, "", "skillbelt: standard input is not UTF-8; nothing was kept\n")


def test_a_name_that_steers_programs_is_refused(tree: Tree) -> None:
    done = piped(tree, VALUE.encode(), "set", "LD_PRELOAD")
    assert done.exit_code == 2
    assert "LD_PRELOAD is a variable that decides which programs" in done.stderr


def test_a_setting_chooses_the_file_and_no_project_does(tree: Tree) -> None:
    tree.write("project/skillbelt.toml", 'secrets_store = "file"\n')
    done = piped(tree, VALUE.encode(), "set", "A_KEY")
    assert done.exit_code == 2
    assert "secrets_store cannot be set by a project" in done.stderr


def test_what_is_changed_is_in_the_log_without_the_value(tree: Tree) -> None:
    piped(tree, VALUE.encode(), "set", "A_KEY", "--skill", "one")
    tree.run("secrets", "remove", "A_KEY", "--skill", "one")
    events = list(open_audit(tree.settings()).read(type="secret"))
    assert [dict(one.data) for one in events] == [
        {"action": "set", "name": "A_KEY", "kept": "file"},
        {"action": "remove", "name": "A_KEY", "kept": "file"},
    ]
    assert {one.skill for one in events} == {"one"}
    lines = tree.run("log", "--type", "secret").stdout.splitlines()
    assert [line.split("\t")[3:5] for line in lines] == [
        ["A_KEY for one", "set"],
        ["A_KEY for one", "removed"],
    ]


# run and exec


@pytest.fixture
def kit(bench: Bench) -> Tree:
    """A project with the skill `kit`, whose script prints a variable."""
    bench.write("scripts/main.py", "import os, json; print(json.dumps(os.environ.get('A_KEY')))\n")
    piped(bench.tree, VALUE.encode(), "set", "A_KEY")
    return bench.tree


def test_a_run_gets_the_secrets_that_it_names(kit: Tree) -> None:
    words = ("--yes", "--", "bash", "-c", 'echo "${A_KEY-none}"')
    assert kit.run("run", SKILL, *words).stdout == "none\n"
    assert kit.run("run", SKILL, "--secret", "A_KEY", *words).stdout == "[A_KEY]\n"
    done = kit.run("run", SKILL, "--secret", "B_KEY", *words)
    assert done.exit_code == 1
    assert "`skillbelt secrets set B_KEY --skill kit`; nothing was run" in done.stderr


def test_an_executed_skill_gets_the_secrets_that_it_names(kit: Tree) -> None:
    done = kit.run("exec", SKILL, "--yes", "--secret", "A_KEY", "--json")
    assert done.document["output"] == "[A_KEY]"


def test_a_secret_needs_a_permission_of_its_own(kit: Tree) -> None:
    kit.run("permissions", "allow", "true", "--type", "run")
    done = kit.run("run", SKILL, "--secret", "A_KEY", "--", "true")
    assert done.exit_code == 4
    assert "`skillbelt permissions allow kit/A_KEY --type secret` allows it" in done.stderr
    kit.run("permissions", "allow", "kit/A_KEY", "--type", "secret")
    assert kit.run("run", SKILL, "--secret", "A_KEY", "--", "true").exit_code == 0


def test_what_was_answered_for_good_is_in_the_list_until_it_is_removed(kit: Tree) -> None:
    words = ("run", SKILL, "--secret", "A_KEY", "--", "python3", "scripts/main.py")
    kit.run("permissions", "allow", "python3 *", "--type", "run")
    screen = on_terminal(kit, *words, answers=[(CHOICE, "a\n")])
    assert screen.exit_code == 0, screen.written
    [row] = kit.run("secrets", "--json").document["secrets"]
    assert row["granted_to"] == [SKILL]
    assert kit.run(*words).exit_code == 0
    kit.run("secrets", "remove", "A_KEY")
    assert "kit/A_KEY" not in kit.run("permissions").stdout


def test_what_was_answered_for_good_is_revoked_by_the_name_of_the_secret(kit: Tree) -> None:
    words = ("run", SKILL, "--secret", "A_KEY", "--", "python3", "scripts/main.py")
    kit.run("permissions", "allow", "python3 *", "--type", "run")
    on_terminal(kit, *words, answers=[(CHOICE, "a\n")])
    done = kit.run("permissions", "revoke", f"{SKILL}/A_KEY", "--type", "secret")
    assert done.stderr == "revoked: 0 rules, 1 remembered answer\n"
    assert kit.run(*words).exit_code == 4


# list


def test_nothing_is_set_at_first(tree: Tree) -> None:
    done = tree.run("secrets")
    assert done == (0, "", "no secret is set; `skillbelt secrets set NAME` sets one\n")
    assert tree.run("secrets", "--json").document == {"secrets": [], "missing": []}


def test_the_list_names_what_a_skill_declares_and_would_not_find(weather: Tree) -> None:
    assert "not set: WEATHER_KEY, which weather may use\n" in weather.run("secrets").stderr
    document = weather.run("secrets", "list", "--json").document
    assert document["missing"] == [{"name": "WEATHER_KEY", "skills": ["weather"]}]


def test_the_list_has_names_skills_and_places_and_no_values(weather: Tree) -> None:
    piped(weather, VALUE.encode(), "set", "WEATHER_KEY")
    piped(weather, VALUE.encode(), "set", "A_KEY", "--skill", "other")
    done = weather.run("secrets", "--json")
    (first, second) = done.document["secrets"]
    assert (first["name"], first["skill"], first["declared_by"]) == ("A_KEY", "other", [])
    assert (second["name"], second["skill"], second["declared_by"]) == (
        "WEATHER_KEY",
        "",
        ["weather"],
    )
    assert done.document["missing"] == []
    plain = weather.run("secrets").stdout
    assert plain.splitlines()[1].split("\t")[:4] == ["WEATHER_KEY", "any", "weather", "-"]
    assert VALUE not in f"{plain}{done.stdout}"
    only = weather.run("secrets", "list", "--skill", "weather", "--json").document
    assert [one["name"] for one in only["secrets"]] == ["WEATHER_KEY"]


# remove


def test_removing_names_where_else_it_is_kept(tree: Tree) -> None:
    piped(tree, VALUE.encode(), "set", "A_KEY", "--skill", "one")
    done = tree.run("secrets", "remove", "A_KEY")
    remedy = "it is kept for the skill one (--skill one)"
    assert done == (1, "", f"skillbelt: there is no secret A_KEY; {remedy}\n")
    assert tree.run("secrets", "remove", "A_KEY", "--skill", "one").exit_code == 0
    assert kept(tree) == {}
    done = tree.run("secrets", "remove", "A_KEY", "--json")
    assert done.document["error"]["kind"] == "not_found"


def test_two_processes_that_set_at_once_lose_nothing(tree: Tree) -> None:
    started = [
        warm.Popen[bytes](
            [sys.executable, "-m", "skillbelt", "secrets", "set", f"KEY_{number}"],
            cwd=tree.project,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for number in range(4)
    ]
    for one in started:
        one.communicate(VALUE.encode())
    assert kept(tree) == {f"/KEY_{number}": VALUE for number in range(4)}
