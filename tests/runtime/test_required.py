"""Skills that the settings require: a session fails closed when one cannot be used."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skillbelt import RequiredSkillUnusable, Rule, Runtime
from skillbelt.integrations.common import Kits
from skillbelt.mcp.published import PublishedSkills
from skillbelt.running.secret_store import SecretStore
from tests.tree import Tree

CONFIG = "home/.config/skillbelt/config.toml"
REQUIRED = {"pdf": {"required": True}}


def require(tree: Tree, more: str = "") -> Path:
    return tree.write(CONFIG, f"[skills.pdf]\nrequired = true\n{more}")


def own(tree: Tree, **more: object) -> Path:
    return tree.skill("home/.agents/skills/pdf", description="Reads PDF files.", **more)  # type: ignore[arg-type]


def reason(tree: Tree, **options: object) -> str:
    with Runtime(tree.project, **options) as belt:  # type: ignore[arg-type]
        with pytest.raises(RequiredSkillUnusable) as caught:
            belt.session("me", "one")
        return caught.value.reason


def test_a_required_skill_that_can_be_used_changes_nothing(tree: Tree) -> None:
    own(tree)
    with Runtime(tree.project, skills=REQUIRED) as belt:
        assert list(belt.session("me", "one").skills()) == ["pdf"]


def test_the_error_names_the_skill_the_reason_and_the_place(tree: Tree) -> None:
    tree.skill("home/.agents/skills/pdff")
    where = require(tree)
    with Runtime(tree.project) as belt, pytest.raises(RequiredSkillUnusable) as caught:
        belt.session("me", "one")
    error = caught.value
    assert (error.name, error.by, error.exit_code) == ("pdf", f"{where}:2", 3)
    assert str(error) == (
        f"the skill 'pdf' is required by {where}:2, but there is no such skill; closest: pdff"
    )


def test_every_use_of_the_runtime_fails(tree: Tree) -> None:
    with Runtime(tree.project, skills=REQUIRED) as belt:
        calls: list[Callable[[], object]] = [
            lambda: belt.session("me", "one"),
            belt.skills,
            belt.look,
            belt.overview,
            belt.tools,
            belt.available,
            belt.discover_skills,
            lambda: belt.search("pdf"),
            lambda: belt.get_skill("pdf"),
            lambda: belt.dispatch("skill_list"),
            lambda: Kits(belt).of("me", "one"),
            PublishedSkills(belt).names,
        ]
        for call in calls:
            with pytest.raises(RequiredSkillUnusable):
                call()


def test_a_broken_one(tree: Tree) -> None:
    tree.write("home/.agents/skills/pdf/SKILL.md", "---\nname: [pdf\n")
    assert "its SKILL.md is broken" in reason(tree, skills=REQUIRED)


def test_one_that_is_skipped_because_it_is_broken(tree: Tree) -> None:
    tree.write("home/.agents/skills/pdf/SKILL.md", "---\nname: [pdf\n")
    assert "its SKILL.md is broken" in reason(tree, skills=REQUIRED, strict=True)


def test_a_disabled_one(tree: Tree) -> None:
    own(tree)
    where = require(tree, "enabled = false\n")
    assert reason(tree) == f"it is disabled by {where}:3"


def test_one_that_a_project_disables(tree: Tree) -> None:
    own(tree)
    require(tree)
    theirs = tree.write("project/skillbelt.toml", "[skills.pdf]\nenabled = false\n")
    assert reason(tree) == f"it is disabled by {theirs}:2"


def test_a_hidden_one(tree: Tree) -> None:
    own(tree, metadata={"internal": True})
    assert "it is hidden" in reason(tree, skills=REQUIRED)


def test_a_denied_one(tree: Tree) -> None:
    own(tree)
    tree.write(CONFIG, '[permission.skill]\npdf = "deny"\n')
    assert reason(tree, skills=REQUIRED) == "a rule denies it"


def test_one_that_the_rules_of_a_session_or_of_an_agent_deny(tree: Tree) -> None:
    own(tree)
    tree.write(CONFIG, '[agent.clerk.permission.skill]\npdf = "deny"\n')
    with Runtime(tree.project, skills=REQUIRED) as belt:
        belt.session("me", "one")
        with pytest.raises(RequiredSkillUnusable, match="a rule denies it"):
            belt.session("me", "two", rules=[Rule("skill", "pdf", "deny")])
        with pytest.raises(RequiredSkillUnusable, match="for the agent 'clerk'"):
            belt.session("me", "three", agent="clerk")


def test_one_of_a_project_that_takes_the_place_of_the_users(tree: Tree) -> None:
    own(tree)
    tree.skill("project/.agents/skills/pdf", description="Reads what it wants.")
    found = reason(tree, skills=REQUIRED)
    assert found.startswith("two skills have the name: ") and "shadows" in found


def test_a_copy_in_another_folder_is_the_same_skill(tree: Tree) -> None:
    own(tree)
    tree.skill("project/.agents/skills/pdf", description="Reads PDF files.")
    with Runtime(tree.project, skills=REQUIRED) as belt:
        belt.session("me", "one")


def test_one_that_needs_a_missing_program(tree: Tree) -> None:
    own(tree, metadata={"openclaw": {"requires": {"bins": ["no-such-program"]}}})
    found = reason(tree, skills=REQUIRED)
    assert found == "the program 'no-such-program' that it needs is missing"


def test_one_that_needs_a_secret_that_is_not_set(tree: Tree) -> None:
    own(tree)
    require(tree, 'env = ["PDF_API_KEY"]\n')
    assert reason(tree) == "the secret PDF_API_KEY that it needs is not set"
    with Runtime(tree.project) as belt:
        SecretStore(belt.settings).set("PDF_API_KEY", "a-secret-value", "pdf")
        assert list(belt.session("me", "one").skills()) == ["pdf"]


def test_one_whose_package_a_rule_denies(tree: Tree) -> None:
    folder = own(tree)
    tree.write(folder / "scripts/a.py", "print(1)\n")
    tree.write(folder / "requirements.txt", "Acme_SDK>=2\n")
    require(tree)
    denied = [Rule("install", "acme-sdk", "deny", skill="pdf")]
    assert reason(tree, rules=denied) == "a rule denies the Python package acme-sdk that it needs"
    tree.write(folder / "requirements.txt", "acme-sdk @ file:///etc/passwd\n")
    assert reason(tree).startswith("its packages cannot be read: ")
    tree.write(folder / "requirements.txt", "acme-sdk\n")
    other = [Rule("install", "acme-sdk", "deny", skill="docx")]
    with Runtime(tree.project, rules=other) as belt:
        assert list(belt.session("me", "one").skills()) == ["pdf"]


def test_one_whose_sandbox_can_not_be_used(tree: Tree) -> None:
    own(tree)
    tree.write("home/.agents/skills/pdf/scripts/a.py", "print()\n")
    found = reason(tree, skills=REQUIRED, sandbox="no-such-sandbox")
    assert found.startswith("its commands cannot run: no sandbox named 'no-such-sandbox'")


def test_without_scripts_no_sandbox_is_needed(tree: Tree) -> None:
    own(tree)
    with Runtime(tree.project, skills=REQUIRED, sandbox="no-such-sandbox") as belt:
        belt.session("me", "one")


def test_a_project_may_require_a_skill(tree: Tree) -> None:
    where = tree.write("project/skillbelt.toml", "[skills.pdf]\nrequired = true\n")
    with Runtime(tree.project) as belt, pytest.raises(RequiredSkillUnusable) as caught:
        belt.session("me", "one")
    assert caught.value.by == f"{where}:2"


def test_a_living_session_fails_when_a_required_skill_goes(tree: Tree) -> None:
    folder = own(tree)
    with Runtime(tree.project, skills=REQUIRED) as belt:
        session = belt.session("me", "one")
        said = [{"role": "user", "content": "hello"}]
        session.request(said)
        os.rename(folder, tree.path("away"))
        with pytest.raises(RequiredSkillUnusable):
            session.request([*said, {"role": "user", "content": "more"}])
        with pytest.raises(RequiredSkillUnusable):
            session.call_sync("skill_load", {"skill": "pdf"})
        os.rename(tree.path("away"), folder)
        session.request([*said, {"role": "user", "content": "more"}])


def test_a_living_session_fails_when_a_skill_becomes_required(tree: Tree) -> None:
    with Runtime(tree.project) as belt:
        session = belt.session("me", "one")
        require(tree)
        with pytest.raises(RequiredSkillUnusable):
            session.request([{"role": "user", "content": "hello"}])


# The command line


@pytest.mark.parametrize(
    "command",
    [
        ["ask", "hello"],
        ["prompt"],
        ["serve", "mcp"],
        ["serve", "mcp", "--http", "127.0.0.1:0"],
        ["chat"],
    ],
)
def test_commands_fail_with_the_reason(tree: Tree, command: list[str]) -> None:
    where = require(tree)
    done = tree.run(*command)
    assert done.exit_code == 3
    assert f"the skill 'pdf' is required by {where}:2, but there is no such skill" in done.stderr


@pytest.mark.parametrize("command", [["ask", "hello"], ["prompt"], ["chat"]])
def test_commands_fail_with_a_document(tree: Tree, command: list[str]) -> None:
    where = require(tree)
    done = tree.run(*command, "--json")
    assert done.exit_code == 3
    error = json.loads(done.stdout)["error"]
    assert (error["kind"], error["name"], error["by"]) == ("required_skill", "pdf", f"{where}:2")
    assert error["reason"] == "there is no such skill"


def test_doctor_and_list_still_work_and_doctor_says_it(tree: Tree) -> None:
    where = require(tree)
    assert tree.run("list").exit_code == 0
    done = tree.run("doctor")
    assert done.exit_code == 1
    assert f"{where}:2: error required-skill: the skill 'pdf' is required, but" in done.stdout
