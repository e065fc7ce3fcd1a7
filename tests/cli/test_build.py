from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from skillbelt.cli import build
from skillbelt.errors import ConfigError, SkillNotFound
from tests.running.build.skills import WAT, skill
from tests.sandbox.guests import hosts
from tests.tree import Tree


@pytest.fixture
def project(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a skill that can be built, and with the tools that all tests share."""
    monkeypatch.setenv("SKILLBELT_CACHE_DIR", hosts().cache_dir)
    folder = tree.path("project/.agents/skills/made")
    skill(folder, {"src/main.wat": WAT})
    monkeypatch.chdir(tree.path("project"))
    return folder


def run(*words: str, json: bool = False) -> int:
    """The command as the command line calls it."""
    parser = argparse.ArgumentParser()
    build.configure(parser)
    args = parser.parse_args(words)
    args.project, args.config, args.json, args.quiet, args.verbose = ".", None, json, False, False
    return build.run(args)


def test_a_skill_is_built_by_its_name(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("made") == 0
    assert capsys.readouterr().out == f"{project}/wasm/skill.wasm\n"
    assert (project / "wasm" / "skill.wasm").exists()


def test_a_skill_is_built_by_its_folder(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("./.agents/skills/made") == 0
    monkeypatch.chdir(project)
    assert run("--check") == 0
    assert capsys.readouterr().out.endswith("skill.wasm: current\n")


def test_json_says_what_was_made(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("made", json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document) == ["output", "sha256", "plugin", "seconds", "current"]
    assert (document["plugin"], document["current"]) == ("wat", True)


def test_check_says_that_it_is_not_current(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("made", "--check") == 1
    assert "not current: run `skillbelt build`" in capsys.readouterr().out
    assert not (project / "wasm").exists()


def test_a_builder_that_does_not_exist_is_named(project: Path) -> None:
    with pytest.raises(ConfigError, match="no builder named 'none'"):
        run("made", "--plugin", "none")


def test_a_folder_without_a_skill_is_refused(project: Path) -> None:
    with pytest.raises(ConfigError, match=r"no SKILL\.md there"):
        run()


def test_a_skill_that_does_not_exist_is_not_found(project: Path) -> None:
    with pytest.raises(SkillNotFound, match="no skill named 'other'"):
        run("other")
