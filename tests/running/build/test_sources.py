from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillbelt.errors import PathEscape, RunRefused
from skillbelt.running.build.sources import Declared, declared, source_of
from skillbelt.settings import Settings
from tests.running.build.skills import skill

SETTINGS = Settings()


@pytest.mark.parametrize("entry", ["src/main.ts", "src/index.js", "src/main.py", "src/main.wat"])
def test_the_usual_names_are_found(entry: str, tmp_path: Path) -> None:
    found = source_of(skill(tmp_path / "one", {entry: "x", "src/lib.ts": "y"}))
    assert found.entry == entry
    assert found.files["src/lib.ts"] == b"y"


def test_what_was_built_before_is_no_source(tmp_path: Path) -> None:
    made = skill(tmp_path / "one", {"src/main.c": "x", "wasm/skill.wasm": "old", ".env": "s"})
    assert sorted(source_of(made).files) == ["SKILL.md", "src/main.c"]


@pytest.mark.parametrize(
    "head",
    [
        "metadata:\n  skillbelt:\n    build: lib/app.ts\n",
        "metadata:\n  skillbelt.build: lib/app.ts\n",
        "metadata:\n  skillbelt:\n    build:\n      source: lib/app.ts\n",
    ],
)
def test_a_skill_says_what_its_source_is(head: str, tmp_path: Path) -> None:
    made = skill(tmp_path / "one", {"lib/app.ts": "", "src/main.py": ""}, head)
    assert source_of(made).entry == "lib/app.ts"


def test_a_skill_says_which_builder_it_is_for(tmp_path: Path) -> None:
    head = "metadata:\n  skillbelt:\n    build:\n      plugin: other\n"
    assert declared(skill(tmp_path / "one", {}, head)) == Declared("", "other")


@pytest.mark.parametrize("value", ["[a]", "{sorce: a}", "{source: [a]}", "5"])
def test_anything_else_is_refused_with_what_it_can_be(value: str, tmp_path: Path) -> None:
    made = skill(tmp_path / "one", {}, f"metadata:\n  skillbelt:\n    build: {value}\n")
    with pytest.raises(RunRefused, match=r"metadata\.skillbelt\.build is .*source and plugin"):
        declared(made)


def test_two_sources_are_not_guessed_between(tmp_path: Path) -> None:
    made = skill(tmp_path / "one", {"src/main.ts": "", "src/index.py": ""})
    with pytest.raises(RunRefused, match=r"src/main\.ts, src/index\.py.*choose one"):
        source_of(made)


def test_without_a_source_it_is_said_where_one_would_be(tmp_path: Path) -> None:
    with pytest.raises(RunRefused, match=r"no src/main or src/index.*\.ts.*\.wat"):
        source_of(skill(tmp_path / "one", {"main.ts": ""}))


def test_a_source_outside_is_refused(tmp_path: Path) -> None:
    made = skill(tmp_path / "one", {}, "metadata:\n  skillbelt:\n    build: ../../main.ts\n")
    with pytest.raises(PathEscape, match="is outside"):
        source_of(made)


def test_a_link_that_leads_out_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "secret.ts").write_text("secret")
    made = skill(tmp_path / "one", {"src/lib.ts": ""})
    os.symlink(tmp_path / "secret.ts", tmp_path / "one" / "src" / "main.ts")
    with pytest.raises(RunRefused, match="has no source"):
        source_of(made)
