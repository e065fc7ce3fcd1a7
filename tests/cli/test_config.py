from __future__ import annotations

from typing import Any

import pytest

from skillbelt.settings import DEFAULTS
from tests.tree import Tree


def merged(tree: Tree, *arguments: str) -> dict[str, dict[str, Any]]:
    document: dict[str, dict[str, Any]] = tree.run("config", "--json", *arguments).document
    return document


def test_every_setting_has_value_and_source(tree: Tree) -> None:
    document = merged(tree)
    assert document.keys() == {*DEFAULTS, "skills"}
    assert all(one.keys() == {"value", "source"} for one in document.values())
    assert document["max_depth"] == {"value": 8, "source": "default"}
    assert document["cache_dir"]["value"] == str(tree.path("home/.cache/skillbelt"))


def test_each_layer_wins_over_the_one_before(tree: Tree) -> None:
    user = tree.write("home/.config/skillbelt/config.toml", "max_depth = 9\nnested = true\n")
    assert merged(tree)["max_depth"] == {"value": 9, "source": str(user)}
    project = tree.write("project/pyproject.toml", "[tool.skillbelt]\nmax_depth = 2\n")
    assert merged(tree)["max_depth"] == {"value": 2, "source": str(project)}
    own = tree.write("project/skillbelt.toml", "max_depth = 3\n")
    assert merged(tree)["max_depth"] == {"value": 3, "source": str(own)}
    assert merged(tree)["nested"] == {"value": True, "source": str(user)}
    tree.setenv("SKILLBELT_MAX_DEPTH", 4)
    assert merged(tree)["max_depth"] == {"value": 4, "source": "SKILLBELT_MAX_DEPTH"}


def test_config_takes_the_place_of_the_projects_files(tree: Tree) -> None:
    tree.write("project/skillbelt.toml", "max_depth = 3\n")
    other = tree.write("other.toml", "max_directories = 7\n")
    document = merged(tree, "--config", str(other))
    assert document["max_directories"] == {"value": 7, "source": str(other)}
    assert document["max_depth"]["source"] == "default"


def test_paths_in_a_file_are_relative_to_it(tree: Tree) -> None:
    tree.git()
    tree.path("project/deep").mkdir()
    tree.write("project/skillbelt.toml", 'paths = ["mine", "~/more"]\n')
    tree.skill("project/mine/a")
    tree.skill("home/more/b")
    done = tree.run("list", "--json", project="project/deep")
    assert [skill["name"] for skill in done.document["skills"]] == ["a", "b"]


def test_a_pipe_gets_a_line_a_setting(tree: Tree) -> None:
    tree.setenv("SKILLBELT_DISABLED_CLIENTS", "claude,codex")
    lines = tree.run("config").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == list(DEFAULTS)
    assert "max_depth\t8\tdefault" in lines
    assert "nested\tfalse\tdefault" in lines
    assert 'disabled_clients\t["claude", "codex"]\tSKILLBELT_DISABLED_CLIENTS' in lines


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("\nmax_depht = 3\n", 2, "unknown setting 'max_depht'; did you mean 'max_depth'?"),
        ("max_depth = 'deep'\n", 1, "max_depth must be a whole number, not text ('deep')"),
        ("a = 1\n", 1, "unknown setting 'a'"),
        ("nested = 1\n", 1, "nested must be true or false"),
        ("\n\nmax_depth = -1\n", 3, "max_depth must be zero or more, not -1"),
        ("placement = 'maybe'\n", 1, "must be one of tool, system"),
        ("scope_order = ['user']\n", 1, "scope_order must name each of"),
        ("[limits]\nmax_depth = 1.5\n", 2, "max_depth must be a whole number"),
        ("paths = [1]\n", 1, "paths must be a list of strings"),
    ],
)
def test_a_wrong_setting_names_file_and_line(tree: Tree, text: str, line: int, said: str) -> None:
    file = tree.write("project/skillbelt.toml", text)
    done = tree.run("config")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"skillbelt: {file}:{line}: ")
    assert said in done.stderr


def test_a_file_that_is_no_toml_names_file_and_line(tree: Tree) -> None:
    file = tree.write("project/skillbelt.toml", "nested = true\n= 3\n")
    done = tree.run("config")
    assert done.exit_code == 2
    assert f"{file}: not valid TOML" in done.stderr
    assert "line 2" in done.stderr


def test_a_wrong_variable_names_it(tree: Tree) -> None:
    tree.setenv("SKILLBELT_MAX_DEPTH", "deep")
    done = tree.run("config")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "SKILLBELT_MAX_DEPTH" in done.stderr
    assert "must be a whole number, not 'deep'" in done.stderr
