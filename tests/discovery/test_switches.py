"""Settings for single skills, through the catalogue, a runtime and the commands."""

from __future__ import annotations

import pytest

from skillbelt import Catalog, Filters, Runtime, SkillDisabled, SkillNotFound, Tool, overview
from skillbelt.disclosure.overview import visible
from tests.tree import Tree

CONFIG = "home/.config/skillbelt/config.toml"


@pytest.fixture
def skills(tree: Tree) -> Tree:
    for name in ("docx", "mail", "pdf"):
        tree.skill(f"home/.agents/skills/{name}", description=f"Reads {name} files.")
    return tree


def names(tools: list[Tool]) -> str:
    return str([tool.schema for tool in tools])


# enabled


def test_a_disabled_skill_is_not_in_the_catalogue(skills: Tree) -> None:
    where = skills.write(CONFIG, "[skills.pdf]\nenabled = false\n")
    catalog = Catalog(skills.project)
    assert list(catalog) == ["docx", "mail"]
    assert "pdf" not in [one.skill.name for one in catalog.search("Reads pdf files")]
    with pytest.raises(SkillDisabled, match="is disabled by") as caught:
        catalog.find("pdf")
    assert (caught.value.by, caught.value.exit_code) == (f"{where}:2", 3)


def test_those_that_a_disabled_skill_shadows_do_not_take_its_place(skills: Tree) -> None:
    skills.skill("project/.agents/skills/pdf", description="Another.")
    skills.write(CONFIG, "[skills.pdf]\nenabled = false\n")
    assert "pdf" not in Catalog(skills.project)


def test_no_way_into_a_runtime_leads_to_a_disabled_skill(skills: Tree) -> None:
    with Runtime(skills.project, skills={"pdf": {"enabled": False}}) as belt:
        assert "pdf" not in belt.overview().text
        assert "pdf" not in names(belt.tools())
        assert belt.suggest("Reads pdf files") != ["pdf"]
        session = belt.session("me", "one")
        assert session.user_command("/pdf now") is None
        for call in (lambda: belt.load("pdf"), lambda: belt.run_sync("pdf", "true")):
            with pytest.raises(SkillDisabled):
                call()
        with pytest.raises(SkillNotFound):
            session.declare(["pdf"])
        result = session.call_sync("skill_load", {"skill": "pdf"})
        assert result.error


def test_a_filter_of_the_host_hides_that_a_skill_is_disabled(skills: Tree) -> None:
    with Runtime(
        skills.project,
        skills={"pdf": {"enabled": False}},
        visible=lambda skill: skill.name != "pdf",
    ) as belt:
        with pytest.raises(SkillNotFound) as caught:
            belt.load("pdf")
        assert not isinstance(caught.value, SkillDisabled)


@pytest.mark.parametrize("command", ["load", "where", "read", "run", "exec"])
def test_commands_refuse_a_disabled_skill_with_the_reason(skills: Tree, command: str) -> None:
    where = skills.write(CONFIG, "[skills.pdf]\nenabled = false\n")
    rest = {"read": ["SKILL.md"], "run": ["--", "true"]}.get(command, [])
    done = skills.run(command, "pdf", *rest)
    assert done.exit_code == 3
    assert f"the skill 'pdf' is disabled by {where}:2" in done.stderr


def test_the_error_of_a_disabled_skill_as_json(skills: Tree) -> None:
    where = skills.write(CONFIG, "[skills.pdf]\nenabled = false\n")
    error = skills.run("load", "pdf", "--json").document["error"]
    assert (error["kind"], error["name"], error["by"]) == ("skill_disabled", "pdf", f"{where}:2")


def test_list_show_and_doctor_say_what_is_disabled_and_by_which_file(skills: Tree) -> None:
    file = skills.write(CONFIG, "[skills.pdf]\nenabled = false\n")
    where = f"{file}:2"
    assert "pdf\tuser, disabled\t" in skills.run("list").stdout
    listed = {one["name"]: one for one in skills.run("list", "--json").document["skills"]}
    assert (listed["pdf"]["enabled"], listed["pdf"]["disabled_by"]) == (False, where)
    assert (listed["docx"]["enabled"], listed["docx"]["disabled_by"]) == (True, "")
    assert f"enabled = false  ({where})" in skills.run("show", "pdf").stdout
    assert f"pdf is disabled by {where}" in skills.run("doctor").stdout
    assert skills.run("doctor", "--json").document["disabled"] == [{"name": "pdf", "by": where}]


def test_a_project_can_not_enable_what_the_user_disabled(skills: Tree) -> None:
    skills.write(CONFIG, "[skills.pdf]\nenabled = false\n")
    theirs = skills.write("project/skillbelt.toml", "[skills.pdf]\nenabled = true\n")
    catalog = Catalog(skills.project)
    assert "pdf" not in catalog
    [found] = [one for one in catalog.problems if one.code == "project-setting"]
    assert (found.path, found.line, found.severity) == (str(theirs), 2, "warning")


def test_a_living_runtime_takes_over_what_is_switched(skills: Tree) -> None:
    with Runtime(skills.project) as belt:
        session = belt.session("me", "one")
        session.request([{"role": "user", "content": "hello"}])
        skills.write(CONFIG, '[skills.pdf]\nenabled = false\n[skills.mail]\nvisible = "manual"\n')
        later = [{"role": "user", "content": "hello"}, {"role": "user", "content": "again"}]
        text = str(session.request(later)[-1]["content"])
        assert "- removed pdf" in text and "- removed mail" in text
        assert session.call_sync("skill_load", {"skill": "pdf"}).error
        assert belt.load("mail").name == "mail"
        skills.write(CONFIG, "")
        assert sorted(belt.look()) == ["docx", "mail", "pdf"]


def test_settings_for_a_skill_that_is_not_there_are_told(skills: Tree) -> None:
    where = skills.write(CONFIG, "[skills.pdff]\nenabled = false\n")
    [found] = [one for one in Catalog(skills.project).diagnostics if one.code == "settings-unused"]
    assert (found.path, found.line, found.remedy) == (str(where), 2, "did you mean 'pdf'?")


# visible


def test_a_manual_skill_is_for_a_person_only(skills: Tree) -> None:
    with Runtime(skills.project, skills={"pdf": {"visible": "manual"}}) as belt:
        session = belt.session("me", "one")
        assert "pdf" not in belt.overview().text and "pdf" not in names(session.tools())
        assert session.call_sync("skill_load", {"skill": "pdf"}).error
        assert "pdf" not in session.call_sync("skill_list", {}).text
        assert "pdf" not in belt.suggest("Reads pdf files")
        command = session.user_command("/pdf")
        assert command is not None and not command.error
        assert belt.load("pdf").name == "pdf"
    person = Catalog(skills.project, skills={"pdf": {"visible": "manual"}})
    assert person.search("Reads pdf files")[0].skill.name == "pdf"
    model = person.search("Reads pdf files", filters=Filters(agent=""))
    assert "pdf" not in [one.skill.name for one in model]


@pytest.mark.parametrize("format", ["xml", "markdown", "plain", "json"])
def test_of_a_skill_by_name_only_the_name_is_shown(skills: Tree, format: str) -> None:
    catalog = Catalog(skills.project, skills={"pdf": {"visible": "name"}})
    made = overview(catalog.available(), format=format)  # type: ignore[arg-type]
    assert "Reads pdf files." not in made.text and "Reads docx files." in made.text
    assert "pdf" in made.text
    assert (made.shown, made.names_only, made.omitted) == (2, 1, 0)


def test_all_skills_by_name_take_few_tokens(skills: Tree) -> None:
    whole = overview(Catalog(skills.project).available())
    short = overview(Catalog(skills.project, skills={"*": {"visible": "name"}}).available())
    assert (short.shown, short.names_only) == (0, 3)
    assert short.tokens < whole.tokens


def test_skills_by_name_do_not_count_as_too_many(skills: Tree) -> None:
    with Runtime(skills.project, skills={"pdf": {"visible": "name"}}) as belt:
        assert not belt._is_crowded(belt.available())
        assert belt.session("me", "one").call_sync("skill_load", {"skill": "pdf"}).error == ""


def test_the_settings_do_not_show_what_its_author_hides(skills: Tree) -> None:
    skills.skill("home/.agents/skills/deploy", disable_model_invocation=True)
    catalog = Catalog(skills.project, skills={"deploy": {"visible": "full", "pin": True}})
    assert "deploy" not in [one.name for one in catalog.available()]


def test_list_says_how_a_skill_is_shown(skills: Tree) -> None:
    skills.write(
        CONFIG, '[skills.pdf]\nvisible = "name"\npin = true\n[skills.mail]\nvisible = "manual"\n'
    )
    lines = skills.run("list").stdout.splitlines()
    assert [line.split("\t")[1] for line in lines] == [
        "user",
        "user, manual",
        "user, name only, pinned",
    ]


# pin


def many(tree: Tree, count: int = 40) -> Tree:
    for number in range(count):
        tree.skill(f"home/.agents/skills/a{number:03}", description="Something long. " * 20)
    return tree


def test_a_pinned_skill_keeps_its_description(skills: Tree) -> None:
    many(skills)
    for budget in (300, 60, 1):
        catalog = Catalog(skills.project, skills={"pdf": {"pin": True}})
        made = overview(catalog.available(), format="plain", budget_tokens=budget)
        assert "- pdf: Reads pdf files." in made.text
    cut = overview(Catalog(skills.project).available(), format="plain", budget_tokens=300)
    assert "Reads pdf files." not in cut.text


def test_where_all_fit_pinned_skills_stay_in_name_order(skills: Tree) -> None:
    usual = overview(Catalog(skills.project).available())
    assert overview(Catalog(skills.project, skills={"pdf": {"pin": True}}).available()) == usual


def test_pinned_skills_beyond_the_budget_are_all_shown_and_no_other(skills: Tree) -> None:
    many(skills)
    catalog = Catalog(skills.project, skills={"a00*": {"pin": True}})
    made = overview(visible(catalog.available()), format="plain", budget_tokens=200)
    assert (made.shown, made.names_only, made.omitted) == (10, 0, 33)
    assert made.tokens > 200


def test_pinned_skills_leave_the_rest_of_the_budget_to_names(skills: Tree) -> None:
    many(skills)
    catalog = Catalog(skills.project, skills={"pdf": {"pin": True}})
    made = overview(catalog.available(), format="plain", budget_tokens=150)
    assert made.shown == 1 and made.names_only > 0 and made.tokens <= 150


def test_a_pinned_skill_by_name_is_always_named(skills: Tree) -> None:
    many(skills)
    catalog = Catalog(skills.project, skills={"pdf": {"pin": True, "visible": "name"}})
    made = overview(catalog.available(), format="plain", budget_tokens=40)
    assert "- pdf\n" in made.text and "Reads pdf files." not in made.text


def test_pinned_skills_beyond_the_budget_are_told(skills: Tree) -> None:
    many(skills)
    skills.write(CONFIG, 'max_overview_tokens = 200\n[skills."a00*"]\npin = true\n')
    done = skills.run("prompt")
    assert "pinned skills" in done.stderr and "200" in done.stderr
    found = skills.run("doctor", "--json").document["diagnostics"]
    [told] = [one for one in found if one["code"] == "pins-over-budget"]
    assert told["severity"] == "warning"


# config


def test_config_shows_what_is_said_about_single_skills(skills: Tree) -> None:
    where = skills.write(CONFIG, '[skills.pdf]\nhosts = ["a.example"]\nenv = ["A", "B=xyzzy"]\n')
    text = skills.run("config").stdout
    assert f'skills.pdf.hosts\t["a.example"]\t{where}:2' in text
    assert "xyzzy" not in text
    found = skills.run("config", "--json").document["skills"]["value"]["pdf"]
    assert found["hosts"] == {"value": ["a.example"], "source": f"{where}:2"}
    assert found["env"]["value"] == ["A"] and found["values"]["value"] == ["B"]
