"""`[skills.NAME]`: what is said about single skills, by whom, and what that comes to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from skillbelt.errors import ConfigError
from skillbelt.settings import SKILL_USER_ONLY, Settings, load_settings
from skillbelt.trust import Trust
from skillbelt.values import SkillSettings


class Places:
    """A user's home and a project, each with a settings file."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project = folder / "home", folder / "project"
        self.own = self.home / ".config" / "skillbelt" / "config.toml"
        self.theirs = self.project / "skillbelt.toml"
        self.own.parent.mkdir(parents=True)
        (self.project / ".git").mkdir(parents=True)

    def load(
        self,
        own: str = "",
        theirs: str = "",
        *,
        environ: Mapping[str, str] | None = None,
        **overrides: object,
    ) -> Settings:
        self.own.write_text(own, "utf-8")
        self.theirs.write_text(theirs, "utf-8")
        env = {"HOME": os.fspath(self.home), **(environ or {})}
        return load_settings(self.project, environ=env, overrides=overrides)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def said(settings: SkillSettings) -> dict[str, object]:
    """What differs from the defaults."""
    usual, found = SkillSettings()._asdict(), settings._asdict()
    return {
        key: value
        for key, value in found.items()
        if key not in ("sources", "ignored") and value != usual[key]
    }


def test_nothing_is_said_by_default(places: Places) -> None:
    assert places.load().for_skill("pdf") == SkillSettings()


def test_every_key_is_read(places: Places) -> None:
    settings = places.load(
        """
[skills.pdf]
enabled = false
visible = "name"
required = true
pin = true
packages = ["pypdf>=4", "pillow"]
env = ["PDF_TOKEN", "REGION=eu=west"]
hosts = ["api.example.com", "*.example.org:8443"]
sandbox = "container"
timeout = 40
gpus = 2
"""
    )
    assert said(settings.for_skill("pdf")) == {
        "enabled": False,
        "visible": "name",
        "required": True,
        "pin": True,
        "packages": ("pypdf>=4", "pillow"),
        "env": ("PDF_TOKEN",),
        "values": {"REGION": "eu=west"},
        "hosts": ("api.example.com", "*.example.org:8443"),
        "sandbox": "container",
        "timeout": 40.0,
        "gpus": 2,
    }
    assert settings.for_skill("docx") == SkillSettings()


def test_a_table_of_variables_holds_values(places: Places) -> None:
    settings = places.load('[skills.pdf.env]\nREGION = "eu"\nEMPTY = ""\n')
    found = settings.for_skill("pdf")
    assert (found.env, dict(found.values)) == ((), {"REGION": "eu", "EMPTY": ""})


def test_no_hosts_differ_from_nothing_said_about_hosts(places: Places) -> None:
    assert places.load("[skills.pdf]\nhosts = []\n").for_skill("pdf").hosts == ()
    assert places.load().for_skill("pdf").hosts is None


def test_settings_in_the_table_of_all_skills_stay_settings(places: Places) -> None:
    settings = places.load('[skills]\npaths = ["/srv/skills"]\n[skills.pdf]\nenabled = false\n')
    assert settings.paths == ("/srv/skills",)
    assert not settings.for_skill("pdf").enabled


def test_a_skill_may_be_called_as_a_setting_is(places: Places) -> None:
    settings = places.load("[skills.paths]\nenabled = false\n[skills.limits]\nenabled = false\n")
    assert not settings.for_skill("paths").enabled and not settings.for_skill("limits").enabled
    assert settings.paths == ()


def test_where_a_key_was_set_is_known(places: Places) -> None:
    settings = places.load('\n[skills."my.skill"]\nvisible = "name"\n\nenabled = false\n')
    sources = settings.for_skill("my.skill").sources
    assert sources == {"visible": f"{places.own}:3", "enabled": f"{places.own}:5"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[skills]\npdf = {enabled = false}\n", 2),
        ("skills.pdf.enabled = false\n", 1),
        ("skills = {pdf = {enabled = false}}\n", 1),
        ("\n[ skills . 'pdf' ]  # off\nenabled = false\n", 3),
    ],
)
def test_every_way_to_write_a_table_counts(places: Places, text: str, line: int) -> None:
    found = places.load(text).for_skill("pdf")
    assert (found.enabled, found.sources["enabled"]) == (False, f"{places.own}:{line}")


def test_a_table_of_pyproject_counts(places: Places) -> None:
    (places.project / "pyproject.toml").write_text("[tool.skillbelt.skills.pdf]\nenabled = false\n")
    places.theirs.touch()
    found = places.load().for_skill("pdf")
    assert (found.enabled, list(found.sources)) == (False, ["enabled"])


# Patterns


def test_a_pattern_covers_names_and_an_exact_name_counts_more(places: Places) -> None:
    settings = places.load(
        '[skills.pdf]\nvisible = "full"\n[skills."*"]\nvisible = "name"\n'
        '[skills."p?f-*"]\npin = true\n'
    )
    assert settings.for_skill("docx").visible == "name"
    assert settings.for_skill("pdf").visible == "full"
    assert said(settings.for_skill("pdf-forms")) == {"visible": "name", "pin": True}


def test_brackets_of_a_pattern_stand_for_themselves(places: Places) -> None:
    settings = places.load('[skills."[ab]*"]\nenabled = false\n')
    assert settings.for_skill("alpha").enabled


def test_required_needs_a_whole_name(places: Places) -> None:
    with pytest.raises(ConfigError, match=r"config\.toml:2: required needs the whole name"):
        places.load('[skills."pdf*"]\nrequired = true\n')


# Errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[skills.pdf]\nenable = 1", "unknown key 'enable' for the skill 'pdf'; did you mean 'en"),
        ("[skills.pdf]\nzzz = 1", "unknown key 'zzz' for the skill 'pdf'; there are enabled,"),
        ('[skills.pdf]\nenabled = "no"', "enabled must be true or false, not 'no'"),
        ('[skills.pdf]\nvisible = "hidden"', "visible must be \"full\", \"name\" or \"manual\""),
        ("[skills.pdf]\nvisible = 1", "visible must be"),
        ("[skills.pdf]\npin = 1", "pin must be true or false"),
        ('[skills.pdf]\npackages = "pypdf"', "packages must be a list of requirements"),
        ('[skills.pdf]\npackages = ["--index-url=x"]', "packages must be a list of requirements"),
        ('[skills.pdf]\npackages = ["a\\nb"]', "packages must be a list of requirements"),
        ('[skills.pdf]\nhosts = ["https://x/"]', "hosts: 'https://x/' is not a host"),
        ("[skills.pdf]\nhosts = [1]", "hosts must be a list of hosts"),
        ("[skills.pdf]\ngpus = -1", "gpus must be a whole number from 0 to 64"),
        ("[skills.pdf]\ngpus = true", "gpus must be a whole number from 0 to 64"),
        ("[skills.pdf]\ntimeout = 0", "timeout must be a number of seconds above 0"),
        ("[skills.pdf]\ntimeout = true", "timeout must be a number of seconds above 0"),
        ("[skills.pdf]\ntimeout = inf", "timeout must be a number of seconds above 0"),
        ("[skills.pdf]\ntimeout = nan", "timeout must be a number of seconds above 0"),
        ('[skills.pdf]\nsandbox = ""', "sandbox must be the name of a sandbox"),
        ('[skills.pdf]\nenv = "A"', "env must be a list of NAME or NAME=VALUE"),
        ('[skills.pdf]\nenv = ["1A"]', "env: '1A' is not the name of a variable"),
        ("[skills.pdf]\nenv = {A = 1}", "env: the value of A must be text"),
    ],
)  # fmt: skip
def test_a_wrong_key_or_value_is_one_error_with_its_place(
    places: Places, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        places.load(text + "\n")
    assert f"{places.own}:2: {message}" in str(caught.value)


def test_an_error_shows_no_value_of_a_variable(places: Places) -> None:
    with pytest.raises(ConfigError) as caught:
        places.load('[skills.pdf]\nenv = ["TOKEN=hunter2", "A B=hunter2"]\n')
    assert "hunter2" not in str(caught.value)


# The environment and arguments


def test_the_environment_counts_more_than_files(places: Places) -> None:
    settings = places.load(
        "[skills.pdf]\nenabled = false\n",
        '[skills.pdf]\nvisible = "manual"\n',
        environ={"SKILLBELT_SKILLS": 'pdf.enabled = true\npdf.visible = "name"'},
    )
    found = settings.for_skill("pdf")
    assert (found.enabled, found.visible) == (True, "name")
    assert found.sources == dict.fromkeys(("enabled", "visible"), "SKILLBELT_SKILLS")


def test_an_argument_counts_most(places: Places) -> None:
    settings = places.load(
        environ={"SKILLBELT_SKILLS": "pdf.timeout = 5"},
        skills={"pdf": {"timeout": 7, "hosts": ()}},
    )
    assert said(settings.for_skill("pdf")) == {"timeout": 7.0, "hosts": ()}


@pytest.mark.parametrize("text", ["pdf.enabled = no", "pdf = 1", "pdf.enable = true", "[["])
def test_a_wrong_variable_is_named(places: Places, text: str) -> None:
    with pytest.raises(ConfigError, match="SKILLBELT_SKILLS"):
        places.load(environ={"SKILLBELT_SKILLS": text})


@pytest.mark.parametrize("value", [["pdf"], {"pdf": True}, {1: {}}, {"pdf": {"enable": True}}])
def test_a_wrong_argument_is_named(places: Places, value: object) -> None:
    with pytest.raises(ConfigError, match="argument skills"):
        places.load(skills=value)


# What a project's file may do


TIGHTER = [
    ("enabled", "true", "false"),
    ("visible", '"full"', '"name"'),
    ("visible", '"name"', '"manual"'),
    ("required", "false", "true"),
    ("timeout", "60", "20"),
]


@pytest.mark.parametrize(("key", "loose", "tight"), TIGHTER)
def test_a_project_may_tighten(places: Places, key: str, loose: str, tight: str) -> None:
    expected = places.load(f"[skills.pdf]\n{key} = {tight}\n").for_skill("pdf")
    own, theirs = f"[skills.pdf]\n{key} = {loose}\n", f"[skills.pdf]\n{key} = {tight}\n"
    found = places.load(own, theirs).for_skill("pdf")
    assert getattr(found, key) == getattr(expected, key)
    assert found.sources[key] == f"{places.theirs}:2"


@pytest.mark.parametrize(
    ("key", "loose", "tight", "pattern"),
    [
        (key, loose, tight, pattern)
        for key, loose, tight in TIGHTER
        for pattern in ("pdf", "'*'", "'p*'")
        if key != "required" or pattern == "pdf"  # it needs a whole name
    ],
)
def test_a_project_may_not_loosen(
    places: Places, key: str, loose: str, tight: str, pattern: str
) -> None:
    expected = places.load(f"[skills.pdf]\n{key} = {tight}\n").for_skill("pdf")
    own, theirs = f"[skills.pdf]\n{key} = {tight}\n", f"[skills.{pattern}]\n{key} = {loose}\n"
    found = places.load(own, theirs).for_skill("pdf")
    assert getattr(found, key) == getattr(expected, key)
    assert found.sources[key] == f"{places.own}:2"
    assert found.ignored == {key: f"{places.theirs}:2"}


def test_a_project_may_not_loosen_what_a_pattern_of_the_user_says(places: Places) -> None:
    found = places.load("[skills.'*']\nenabled = false\n", "[skills.pdf]\nenabled = true\n")
    assert not found.for_skill("pdf").enabled


def test_a_project_may_not_lengthen_the_usual_time(places: Places) -> None:
    assert places.load("", "[skills.pdf]\ntimeout = 301\n").for_skill("pdf").timeout == 0.0
    assert places.load("", "[skills.pdf]\ntimeout = 299\n").for_skill("pdf").timeout == 299.0


@pytest.mark.parametrize("key", sorted(SKILL_USER_ONLY))
@pytest.mark.parametrize("name", ["pdf", "'*'"])
def test_a_project_may_not_set_what_is_the_users(places: Places, key: str, name: str) -> None:
    said = {"pin": "true", "sandbox": '"none"'}.get(key, '["HOME"]')
    with pytest.raises(ConfigError) as caught:
        places.load("", f"[skills.{name}]\n{key} = {said}\n")
    message = f"{places.theirs}:2: {key} of a skill cannot be set by a project"
    assert str(caught.value).startswith(message)


def test_a_project_that_is_trusted_may_not_either(places: Places) -> None:
    state = places.home / "state"
    Trust(os.fspath(state)).add(os.fspath(places.project))
    with pytest.raises(ConfigError, match="hosts of a skill cannot be set by a project"):
        places.load(f'state_dir = "{state}"\n', '[skills.pdf]\nhosts = ["a.example"]\n')
    own = f'state_dir = "{state}"\n[skills.pdf]\nenabled = false\n'
    assert not places.load(own, "[skills.pdf]\nenabled = true\n").for_skill("pdf").enabled


def test_what_a_project_takes_back_itself_it_may(places: Places) -> None:
    theirs = "[skills.'*']\nenabled = false\n[skills.pdf]\nenabled = true\n"
    settings = places.load("", theirs)
    assert settings.for_skill("pdf").enabled and not settings.for_skill("docx").enabled
