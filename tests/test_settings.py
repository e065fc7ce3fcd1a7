from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from skillbelt import Catalog, ConfigError, Limits, Settings, load_settings
from skillbelt.permission.rule_files import read_policy
from skillbelt.permission.rules import DEFAULT_RULES
from skillbelt.settings import (
    CHOICES,
    DEFAULTS,
    GUARDS,
    REMOVED,
    USER_ONLY,
    find_worktree,
    resolve,
    upward,
)
from skillbelt.values import SCOPES
from tests.tree import Tree

Layer = Callable[[Tree, int], object]


def value_of(settings: Settings, key: str) -> object:
    return getattr(settings.limits if key in Limits._fields else settings, key)


def other(key: str) -> tuple[object, str]:
    """A value of a setting that is not its default, and how the environment writes it."""
    default = DEFAULTS[key]
    if key == "scope_order":
        return SCOPES[::-1], ", ".join(SCOPES[::-1])
    if key in CHOICES:
        return CHOICES[key][-1], CHOICES[key][-1]
    if key == "fetch_hosts":
        return ("a.example", "*.b.example:81"), "a.example,*.b.example:81"
    if key == "trusted_signers":
        return ("** key /a", "acme/* key b"), "** key /a,acme/* key b"
    if key == "store":
        return "postgresql://e.test/a", "postgresql://e.test/a"
    if key == "project_name":
        return "team/shop", "team/shop"
    if isinstance(default, bool):
        return not default, str(not default).lower()
    if isinstance(default, tuple):
        return ("/a", "/b"), "/a:/b" if key in (
            "paths",
            "host_roots",
            "program_folders",
        ) else "/a,/b"
    if isinstance(default, int | float):
        return default + 1, str(default + 1)
    return "/elsewhere", "/elsewhere"


@pytest.mark.parametrize("key", DEFAULTS)
def test_every_setting_can_be_read_from_its_environment_variable(tree: Tree, key: str) -> None:
    value, text = other(key)
    assert value_of(tree.settings(), key) != value
    tree.setenv(f"SKILLBELT_{key.upper()}", text)
    settings = tree.settings()
    assert value_of(settings, key) == value
    assert type(value_of(settings, key)) is type(value)
    assert settings.sources[key] == f"SKILLBELT_{key.upper()}"


@pytest.mark.parametrize("key", DEFAULTS)
def test_every_setting_can_be_overridden_in_code(tree: Tree, key: str) -> None:
    value, _ = other(key)
    settings = tree.settings(**{key: value})
    assert value_of(settings, key) == value
    assert settings.sources[key] == "argument"


LAYERS: list[Layer] = [
    lambda tree, n: tree.write("home/.config/skillbelt/config.toml", f"max_depth = {n}"),
    lambda tree, n: tree.write("project/pyproject.toml", f"[tool.skillbelt]\nmax_depth = {n}"),
    lambda tree, n: tree.write("project/skillbelt.toml", f"max_depth = {n}"),
    lambda tree, n: tree.setenv("SKILLBELT_MAX_DEPTH", n),
]


@pytest.mark.parametrize("strongest", range(len(LAYERS) + 1))
def test_a_later_layer_wins_over_all_before_it(tree: Tree, strongest: int) -> None:
    """Defaults, the user's config, pyproject.toml, skillbelt.toml, environment, arguments."""
    assert tree.settings().limits.max_depth == 8
    for place in reversed(range(strongest)):
        LAYERS[place](tree, 7 - place)
    assert tree.settings().limits.max_depth == 8 - strongest
    assert tree.settings(max_depth=99).limits.max_depth == 99


def test_layers_add_up_and_say_where_each_value_came_from(tree: Tree) -> None:
    user = tree.write("home/.config/skillbelt/config.toml", "nested = true\nstrict = false")
    own = tree.write("project/skillbelt.toml", "strict = true")
    settings = tree.settings()
    assert (settings.nested, settings.strict) == (True, True)
    assert settings.sources == {"nested": str(user), "strict": str(own)}


def test_the_systems_config_is_weaker_than_the_users(tree: Tree) -> None:
    tree.setenv("XDG_CONFIG_DIRS", f"{tree.root / 'one'}:{tree.root / 'two'}:relative")
    first = tree.write("one/skillbelt/config.toml", "max_depth = 1")
    second = tree.write("two/skillbelt/config.toml", "max_depth = 2\nnested = true")
    tree.write("project/relative/skillbelt/config.toml", "strict = true")
    settings = tree.settings()
    assert settings.sources == {"max_depth": str(first), "nested": str(second)}
    assert (settings.limits.max_depth, settings.nested) == (1, True)
    tree.write("home/.config/skillbelt/config.toml", "max_depth = 3")
    assert tree.settings().limits.max_depth == 3


def test_the_files_that_were_read_are_told_apart(tree: Tree) -> None:
    tree.setenv("XDG_CONFIG_DIRS", tree.root / "etc")
    files = [
        ("system", tree.write("etc/skillbelt/config.toml")),
        ("user", tree.write("home/.config/skillbelt/config.toml")),
        ("user", tree.write("home/.config/skillbelt/skillbelt.toml")),
        ("project", tree.write("project/pyproject.toml", "[tool.skillbelt]")),
        ("project", tree.write("project/skillbelt.toml")),
    ]
    assert tree.settings().files == tuple((source, str(path)) for source, path in files)


def test_a_file_that_the_user_names_counts_as_theirs(tree: Tree) -> None:
    mine = tree.write("project/skillbelt.toml", "nested = true")
    assert tree.settings().files == (("project", str(mine)),)
    assert load_settings(tree.project, config=mine).files == (("user", str(mine)),)


def test_rules_of_permission_are_no_settings_but_kept(tree: Tree) -> None:
    text = '[tool.skillbelt]\nnested = true\n[tool.skillbelt.permission]\nrun = "deny"\n'
    file = tree.write("project/pyproject.toml", text)
    tree.write("project/skillbelt.toml", "strict = true")
    settings = tree.settings()
    assert settings.sources.keys() == {"nested", "strict"}
    assert settings.rule_tables == {
        str(file): (text, ("tool", "skillbelt"), {"permission": {"run": "deny"}})
    }


def test_without_a_file_no_reader_of_toml_is_imported(tree: Tree) -> None:
    code = "import sys, skillbelt; skillbelt.load_settings(); print('tomllib' in sys.modules)"
    assert tree.python("-c", code).stdout == "False\n"
    tree.write("project/skillbelt.toml", "nested = true")
    assert tree.python("-c", code).stdout == "True\n"


def test_the_users_config_may_also_be_called_skillbelt_toml(tree: Tree) -> None:
    tree.write("home/.config/skillbelt/skillbelt.toml", "nested = true")
    assert tree.settings().nested


def test_the_nearest_folder_with_settings_counts_up_to_the_worktree(tree: Tree) -> None:
    tree.git()
    tree.write("skillbelt.toml", "max_depth = 1")
    tree.write("project/a/b/c/keep")
    assert tree.settings("project/a/b/c").limits.max_depth == 8
    tree.write("project/skillbelt.toml", "max_depth = 2")
    assert tree.settings("project/a/b/c").limits.max_depth == 2
    tree.write("project/a/pyproject.toml", "[tool.skillbelt]\nmax_depth = 3")
    assert tree.settings("project/a/b/c").limits.max_depth == 3


def test_outside_git_only_the_start_folder_has_settings(tree: Tree) -> None:
    tree.write("project/skillbelt.toml", "max_depth = 1")
    tree.write("project/a/keep")
    assert tree.settings("project/a").limits.max_depth == 8


def test_a_pyproject_without_our_table_is_not_read(tree: Tree) -> None:
    tree.write("project/pyproject.toml", "this is not TOML")
    assert tree.settings().sources == {}


def test_tables_may_group_settings_and_names_may_have_hyphens(tree: Tree) -> None:
    tree.write(
        "project/skillbelt.toml",
        'follow-symlinks = false\n[skills]\npaths = ["x"]\n[limits]\nmax-depth = 3\n',
    )
    settings = tree.settings()
    assert settings.follow_symlinks is False
    assert settings.paths == (str(tree.project / "x"),)
    assert settings.limits.max_depth == 3


def test_config_is_read_in_place_of_the_projects_files(tree: Tree) -> None:
    tree.write("home/.config/skillbelt/config.toml", "nested = true")
    tree.write("project/skillbelt.toml", "max_depth = 1\nstrict = true")
    other = tree.write("other/mine.toml", 'max_depth = 2\npaths = ["skills"]')
    settings = load_settings(tree.project, config=other)
    assert (settings.nested, settings.strict, settings.limits.max_depth) == (True, False, 2)
    assert settings.paths == (str(tree.root / "other/skills"),)


def test_config_may_be_a_pyproject(tree: Tree) -> None:
    other = tree.write("other/pyproject.toml", "[tool.skillbelt]\nnested = true")
    assert load_settings(tree.project, config=other).nested


def test_a_missing_config_is_an_error(tree: Tree) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: no such file"):
        load_settings(tree.project, config=tree.root / "nowhere.toml")


def test_a_missing_project_is_an_error(tree: Tree) -> None:
    with pytest.raises(ConfigError, match="nowhere: no such folder; give an existing one as"):
        tree.settings("nowhere")


def message(tree: Tree) -> str:
    with pytest.raises(ConfigError) as caught:
        tree.settings()
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("strict = true\nmax_dept = 3", 2, "unknown setting 'max_dept'; did you mean 'max_depth'?"),
        ("\n[limits]\nmax-dept = 3", 3, "unknown setting 'max_dept'; did you mean 'max_depth'?"),
        ("xyzzy = 3", 1, "unknown setting 'xyzzy'; `skillbelt config` lists them all"),
        ('#\nmax_depth = "3"', 2, "max_depth must be a whole number, not text ('3')"),
        ("max_depth = true", 1, "max_depth must be a whole number, not true or false (True)"),
        ("max_depth = -1", 1, "max_depth must be zero or more, not -1"),
        ("http_timeout_seconds = nan", 1, "http_timeout_seconds must be zero or more, not nan"),
        ("nested = 1", 1, "nested must be true or false, not a whole number (1)"),
        ("\npaths = 3", 2, "paths must be a list of strings, not 3"),
        ("paths = [1]", 1, "paths must be a list of strings, not [1]"),
        ('placement = "no"', 1, "placement must be one of tool, system, not 'no'"),
        ('scope_order = ["user"]', 1, "scope_order must name each of explicit, project, user"),
        ("placement = 3", 1, "placement must be text, not a whole number (3)"),
        ("[placement]\nx = 3", 1, "placement must be text, not dict"),
        ('\nlimits.max_depth = "x"', 2, "max_depth must be a whole number"),
        ("limits = 3", 1, "unknown setting 'limits'"),
    ],
)
def test_a_wrong_setting_names_file_line_and_remedy(
    tree: Tree, text: str, line: int, says: str
) -> None:
    file = tree.write("project/skillbelt.toml", text)
    assert message(tree).startswith(f"{file}:{line}: {says}")


def test_the_line_is_the_one_in_our_own_table(tree: Tree) -> None:
    file = tree.write(
        "project/pyproject.toml", "[tool.mypy]\nstrict = true\n\n[tool.skillbelt]\nstrict = 1\n"
    )
    assert message(tree).startswith(f"{file}:5: strict must be true or false")


def test_a_table_that_is_no_table_is_an_error(tree: Tree) -> None:
    file = tree.write("project/pyproject.toml", "[[tool.skillbelt]]\nnested = true")
    assert message(tree) == f"{file}: [tool.skillbelt] must be a table"


def test_bad_toml_names_file_and_line(tree: Tree) -> None:
    file = tree.write("project/skillbelt.toml", "nested = true\nmax_depth = = 3")
    assert message(tree).startswith(f"{file}: not valid TOML: ")
    assert "line 2" in message(tree)


def test_endless_nesting_is_an_error_like_any_other(tree: Tree) -> None:
    file = tree.write("project/skillbelt.toml", f"paths = {'[' * 50_000}{']' * 50_000}")
    assert message(tree) == f"{file}: nested too deeply; put fewer lists inside each other"


def test_a_file_that_is_not_utf8_names_file_and_line(tree: Tree) -> None:
    file = tree.write("project/skillbelt.toml", b"nested = true\n# \xff\n")
    assert message(tree) == f"{file}:2: not valid TOML: not UTF-8"


def test_a_folder_in_the_place_of_a_file_is_told(tree: Tree) -> None:
    (tree.project / "pyproject.toml").mkdir()  # it may be another tool's
    assert tree.settings().limits == Limits()
    (tree.project / "skillbelt.toml").mkdir()
    with pytest.raises(ConfigError, match=r"skillbelt\.toml: is a folder"):
        tree.settings()
    with pytest.raises(ConfigError, match="no such file"):
        load_settings(tree.project, config=tree.project / "skillbelt.toml")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("MAX_DEPTH", "many", "max_depth must be a whole number, not 'many'"),
        ("NESTED", "perhaps", "nested must be true or false, not 'perhaps'"),
        ("HTTP_TIMEOUT_SECONDS", "nan", "http_timeout_seconds must be zero or more, not nan"),
        ("MAX_DEPHT", "3", "unknown setting 'max_depht'; did you mean 'max_depth'?"),
        ("TRUST_PROJECT", "", "trust_project must be one of allow, ask, not ''"),
    ],
)
def test_a_wrong_environment_variable_is_named(tree: Tree, name: str, text: str, says: str) -> None:
    tree.setenv(f"SKILLBELT_{name}", text)
    assert message(tree) == f"environment variable SKILLBELT_{name}: {says}"


def test_a_wrong_argument_is_named(tree: Tree) -> None:
    with pytest.raises(ConfigError, match="argument max_dept: unknown setting"):
        tree.settings(max_dept=3)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ("TRUE", True), (" yes ", True), ("on", True),
     ("0", False), ("False", False), ("no", False), ("off", False), ("", False)],
)  # fmt: skip
def test_switches_in_the_environment_have_several_spellings(
    tree: Tree, text: str, value: bool
) -> None:
    tree.setenv("SKILLBELT_PROJECT_ROOTS", text)
    assert tree.settings().project_roots is value


def test_a_whole_number_will_do_for_seconds(tree: Tree) -> None:
    tree.write("project/skillbelt.toml", "watch_seconds = 3")
    assert tree.settings().watch_seconds == 3.0


def test_one_string_will_do_for_a_list(tree: Tree) -> None:
    tree.write("project/skillbelt.toml", 'disabled_clients = "claude"')
    assert tree.settings().disabled_clients == ("claude",)


def test_paths_in_a_file_are_relative_to_the_file(tree: Tree) -> None:
    tree.git()
    tree.write("project/a/keep")
    tree.write(
        "project/skillbelt.toml",
        'paths = ["x", "../y", "/z", "~/w", "https://host/a.zip"]',
    )
    config = tree.write("home/.config/skillbelt/config.toml", 'cache_dir = "cache"')
    settings = tree.settings("project/a")
    project = tree.project
    assert [resolve(path, settings) for path in settings.paths[:4]] == [
        str(project / "x"),
        str(tree.root / "y"),
        "/z",
        str(tree.home / "w"),
    ]
    assert settings.paths[4] == "https://host/a.zip"
    assert settings.cache_dir == str(config.parent / "cache")


def test_paths_from_elsewhere_are_relative_to_the_project(tree: Tree) -> None:
    settings = tree.settings(paths=["x", "~/y", "~"])
    assert [resolve(path, settings) for path in settings.paths] == [
        str(tree.project / "x"),
        str(tree.home / "y"),
        str(tree.home),
    ]


def test_the_cache_lies_in_the_users_cache_folder(tree: Tree) -> None:
    assert tree.settings().cache_dir == str(tree.home / ".cache/skillbelt")
    assert tree.settings().index_file == str(tree.home / ".cache/skillbelt/index.sqlite3")


def test_without_xdg_folders_the_home_has_them(tree: Tree) -> None:
    settings = load_settings(tree.project, environ={"HOME": "/h"})
    assert (settings.cache_dir, settings.config_home) == ("/h/.cache/skillbelt", "/h/.config")


def test_skills_cache_dir_moves_the_cache_unless_a_setting_does(tree: Tree) -> None:
    tree.setenv("SKILLS_CACHE_DIR", "~/elsewhere")
    assert tree.settings().cache_dir == str(tree.home / "elsewhere")
    assert tree.settings(cache_dir="/mine").cache_dir == "/mine"


def test_an_empty_cache_dir_is_the_default(tree: Tree) -> None:
    default = tree.settings().cache_dir
    tree.write("home/.config/skillbelt/config.toml", 'cache_dir = ""')
    assert tree.settings().cache_dir == default
    tree.setenv("SKILLBELT_CACHE_DIR", "")
    assert tree.settings().cache_dir == default


def test_variables_of_other_tools_are_taken_over(tree: Tree) -> None:
    tree.setenv("SKILLS_ROOT", "/skills")
    tree.setenv("CLAUDE_CONFIG_DIR", "/c")
    tree.setenv("CODEX_HOME", "/x")
    tree.setenv("INSTALL_INTERNAL_SKILLS", "1")
    settings = tree.settings()
    assert settings.skills_root == "/skills"
    assert settings.client_homes == {"claude": "/c", "codex": "/x"}
    assert settings.internal_skills


def test_a_given_environment_is_used_instead_of_the_real_one(tree: Tree) -> None:
    tree.setenv("SKILLBELT_NESTED", "1")
    settings = load_settings(tree.project, environ={"HOME": "/h", "SKILLBELT_STRICT": "1"})
    assert (settings.nested, settings.strict, settings.home) == (False, True, "/h")


def test_the_project_is_the_current_folder_unless_given(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree.project)
    assert load_settings().project == str(tree.project)
    assert load_settings("~").project == str(tree.home)


def test_a_worktree_is_marked_by_a_git_file_too(tree: Tree) -> None:
    tree.write("project/.git", "gitdir: elsewhere")
    tree.write("project/a/b/keep")
    assert find_worktree(str(tree.project / "a/b")) == str(tree.project)


def test_outside_git_the_worktree_is_the_start(tmp_path: Path) -> None:
    assert find_worktree(str(tmp_path)) == str(tmp_path)


def test_upward_goes_from_the_start_to_the_stop() -> None:
    assert upward("/a/b/c", "/a") == ["/a/b/c", "/a/b", "/a"]
    assert upward("/a", "/a") == ["/a"]
    assert upward("/a", "/") == ["/a", os.sep]


@pytest.mark.parametrize("key", sorted(set(Limits._fields) - USER_ONLY))
def test_a_project_may_lower_a_limit_and_not_raise_it(tree: Tree, key: str) -> None:
    default = Limits._field_defaults[key]
    tree.write("project/skillbelt.toml", f"{key} = {default + 1}\n")
    fault = rf"skillbelt\.toml:1: {key} cannot be raised from {default} to {default + 1} by a proj"
    with pytest.raises(ConfigError, match=fault):
        tree.settings()
    tree.write("project/skillbelt.toml", f"{key} = {default}\n")
    tree.settings()
    tree.write("home/.config/skillbelt/config.toml", f"{key} = {type(default)(default / 2)}\n")
    with pytest.raises(ConfigError, match="cannot be raised"):
        tree.settings()


@pytest.mark.parametrize("key", sorted(GUARDS))
def test_a_project_may_switch_a_guard_on_and_not_off(tree: Tree, key: str) -> None:
    on, off = json.dumps(GUARDS[key]), json.dumps(DEFAULTS[key])
    tree.write("project/skillbelt.toml", f"{key} = {on}\n")
    tree.settings()
    tree.write("home/.config/skillbelt/config.toml", f"{key} = {on}\n")
    tree.write("project/skillbelt.toml", f"{key} = {off}\n")
    with pytest.raises(ConfigError, match=f"{key} cannot be switched off by a project"):
        tree.settings()


@pytest.mark.parametrize("key", sorted(USER_ONLY))
def test_what_guards_against_a_project_is_not_the_projects_to_set(tree: Tree, key: str) -> None:
    value = json.dumps(DEFAULTS[key])
    tree.write("project/skillbelt.toml", f"# mine\n{key} = {value}\n")
    with pytest.raises(ConfigError, match=rf"skillbelt\.toml:2: {key} cannot be set by a project"):
        tree.settings()
    tree.write("project/skillbelt.toml", "")
    tree.write("home/.config/skillbelt/config.toml", f"{key} = {value}\n")
    tree.settings()


# Settings that are gone


@pytest.mark.parametrize("name", sorted(REMOVED))
def test_a_setting_that_is_gone_is_a_warning(
    tree: Tree, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    file = tree.write("home/.config/skillbelt/config.toml", f"max_depth = 3\n{name} = 7\n")
    settings = tree.settings()
    [record] = caplog.records
    said = record.getMessage()
    assert said.startswith(f"{file}:2: the setting {name} no longer has an effect; ")
    assert REMOVED[name] in said
    assert (settings.limits.max_depth, list(settings.sources)) == (3, ["max_depth"])


def test_a_setting_that_is_gone_is_a_warning_from_anywhere(
    tree: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    file = tree.write("project/skillbelt.toml", "[limits]\nmax_wasm_workers = 9\n")
    tree.setenv("SKILLBELT_HEAD_BYTES", "many")
    settings = tree.settings(standard_roots=False)
    assert [record.getMessage() for record in caplog.records] == [
        f"{file}:2: the setting max_wasm_workers no longer has an effect; remove it",
        "environment variable SKILLBELT_HEAD_BYTES: the setting head_bytes no longer has an "
        "effect; remove it",
        "argument standard_roots: the setting standard_roots no longer has an effect; "
        "set project_roots and user_roots instead",
    ]
    assert not settings.sources


# What cannot be read


@pytest.mark.parametrize(
    "file",
    [
        "home/.config/skillbelt/permissions.toml",
        "home/.config/skillbelt/config.toml",
        "etc/skillbelt/config.toml",
        "project/skillbelt.toml",
    ],
)
@pytest.mark.parametrize("how", ["folder closed", "file closed", "a folder", "a dead link"])
def test_rules_that_cannot_be_read_are_not_left_out(open_tree: Tree, file: str, how: str) -> None:
    open_tree.setenv("XDG_CONFIG_DIRS", open_tree.path("etc"))
    path = open_tree.write(file, '[permission]\nskill = "deny"\n')
    close = {
        "folder closed": f"os.chmod({str(path.parent)!r}, 0)",
        "file closed": f"os.chmod({str(path)!r}, 0)",
        "a folder": f"os.unlink({str(path)!r}); os.mkdir({str(path)!r})",
        "a dead link": f"os.unlink({str(path)!r}); os.symlink('/nowhere', {str(path)!r})",
    }[how]
    code = (
        "from skillbelt import ConfigError, load_settings\n"
        f"{close}\n"
        "try:\n"
        f"    print(load_settings({str(open_tree.project)!r}).files)\n"
        "except ConfigError as error:\n"
        "    print(error)\n"
        f"os.chmod({str(path.parent)!r}, 0o755)\n"
    )
    said = open_tree.as_user(code)
    named = path.with_name("config.toml") if how == "folder closed" and "home" in file else path
    assert said.startswith(f"{named}: "), said
    remedies = {
        "folder closed": f"make {path.parent} readable",
        "file closed": f"make {path} readable",
        "a folder": "put a settings file there, or remove it",
        "a dead link": "restore what it leads to, or remove the link",
    }
    assert remedies[how] in said


def test_files_that_are_missing_are_left_out(tree: Tree) -> None:
    tree.write("home/.config", "not even a folder")
    assert tree.settings().files == ()


def test_a_relative_home_is_refused_and_relative_xdg_folders_do_not_count(tree: Tree) -> None:
    tree.setenv("XDG_CONFIG_HOME", "relative")
    tree.setenv("XDG_CACHE_HOME", "relative")
    settings = tree.settings()
    assert settings.config_home == f"{tree.home}/.config"
    assert settings.cache_dir == f"{tree.home}/.cache/skillbelt"
    tree.setenv("HOME", "relative")
    with pytest.raises(ConfigError, match="HOME: 'relative' is not an absolute path"):
        tree.settings()


def test_a_host_that_is_none_is_a_wrong_setting(tree: Tree) -> None:
    path = tree.write("home/.config/skillbelt/config.toml", 'fetch_hosts = ["a.example", "*"]\n')
    with pytest.raises(ConfigError, match=rf"{path}:1: fetch_hosts: '\*' is not a host .*name"):
        tree.settings()


# The configuration of OpenCode

OPENCODE = """{
  // comments, "strings" and trailing commas
  "$schema": "https://opencode.ai/config.json",
  "skills": {"paths": ["more", /* here */ "~/mine",], "urls": ["https://e.test/{env:HOME}"]},
  "permission": {
    "*": "ask",
    "skill": {
      "open-*": "allow",
      "secret//x": "deny",
    },
  },
  "agent": {"plan": {"permission": {"skill": "deny"}}},
}
"""


def test_the_users_opencode_files_count(tree: Tree) -> None:
    path = str(tree.write("home/.config/opencode/opencode.jsonc", OPENCODE))
    settings = tree.settings()
    assert settings.files == (("user", path),)
    assert settings.all_paths == ("more", "~/mine")
    assert settings.only_by_project("paths") == settings.only_by_project("urls") == set()
    found = read_policy(settings, project_trusted=False).rules[len(DEFAULT_RULES) :]
    assert [(one.pattern, one.action, one.agent, one.line) for one in found] == [
        ("*", "ask", "", 6),
        ("open-*", "allow", "", 8),
        ("secret//x", "deny", "", 9),
        ("*", "deny", "plan", 12),
    ]


def test_a_projects_opencode_files_only_tighten_and_name_sources_as_its_own(tree: Tree) -> None:
    tree.git()
    tree.write("project/opencode.json", '{"skills": {"paths": ["a"], "urls": ["https://e.test"]}}')
    tree.write("project/sub/.opencode/opencode.jsonc", '{"permission": {"skill": "allow"}}')
    tree.skill("project/sub/a/pdf")
    tree.write("home/.config/opencode/opencode.json", '{"permission": {"skill": {"pdf": "ask"}}}')
    settings = tree.settings("project/sub")
    assert [source for source, _ in settings.files] == ["user", "project", "project"]
    assert settings.only_by_project("urls") == {"https://e.test"}
    catalog = Catalog(settings=settings)
    assert list(catalog) == ["pdf"]
    assert "untrusted-source" in [one.code for one in catalog.diagnostics]
    found = read_policy(settings, project_trusted=False)
    assert [one.code for one in found.diagnostics] == ["untrusted-rule"]


def test_a_link_out_of_the_project_is_not_read_as_its_opencode_file(tree: Tree) -> None:
    tree.write("elsewhere.json", '{"skills": {"paths": ["a"]}}')
    (tree.project / "opencode.json").symlink_to(tree.path("elsewhere.json"))
    assert tree.settings().files == ()


def test_a_linked_folder_out_of_the_project_is_not_read_for_its_opencode_file(tree: Tree) -> None:
    tree.write("elsewhere/opencode.json", '{"skills": {"paths": ["a"]}}')
    (tree.project / ".opencode").symlink_to(tree.path("elsewhere"))
    assert tree.settings().files == ()


def test_skills_that_opencode_switches_off_are_denied(tree: Tree) -> None:
    off = '{"tools": {"skill": false}, "permission": {"skill": {"pdf": "allow"}}}'
    text = f'{{"tools": {{"*": false, "skill": true}}, "agent": {{"plan": {off}}}}}'
    tree.write("home/.config/opencode/opencode.json", text)
    found = read_policy(tree.settings(), project_trusted=False).rules[len(DEFAULT_RULES) :]
    denied = [(one.pattern, one.action, one.agent) for one in found]
    assert denied == [("*", "deny", "plan"), ("pdf", "allow", "plan")]


def test_an_empty_opencode_file_says_nothing(tree: Tree) -> None:
    tree.write("project/opencode.json", "\n")
    assert tree.settings().all_paths == ()


def test_opencode_rules_about_several_tools_forbid_skills_too(tree: Tree) -> None:
    text = '{"permission": {"*": {"a": "deny", "b": "allow"}, "s?il*": "ask", "[s]kill": "deny"}}'
    tree.write("home/.config/opencode/opencode.json", text)
    found = read_policy(tree.settings(), project_trusted=False).rules[len(DEFAULT_RULES) :]
    assert [(one.pattern, one.action) for one in found] == [("a", "deny"), ("*", "ask")]


def test_a_settings_file_that_is_too_large_is_no_half_of_one(tree: Tree) -> None:
    rules = f"{'#' * 2**20}\n[permission]\nrun = 'deny'\n"
    tree.write("home/.config/skillbelt/config.toml", rules)
    with pytest.raises(ConfigError, match=r"config.toml: is larger than 1048576 bytes"):
        tree.settings()


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"skills": {"paths": "a"}}', '{"permission": {"skill": {"a": "maybe"}}}'],
)
def test_a_wrong_opencode_file_is_an_error_that_says_how_to_leave_it_out(
    tree: Tree, text: str
) -> None:
    tree.write("project/opencode.json", text)
    with pytest.raises(ConfigError, match=r"opencode.json: .*SKILLBELT_DISABLED_CLIENTS"):
        tree.settings()
    assert tree.settings(disabled_clients=["opencode"]).files == ()
    assert tree.settings(disabled_clients=["*"]).files == ()


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:hunter2@db.test/belt",
        "postgresql://ada:hunter2@db.test:5432/belt?sslmode=require",
        "postgresql://ada:hunter2/@db.test/belt",
        "postgresql://ada:a@hunter2@db.test/belt",
        "postgresql://ada@db.test/belt?password=hunter2&sslmode=require",
        "postgresql://ada@db.test/belt?sslpassword=hunter2",
        "postgresql://db.test/belt?password=a@hunter2",
    ],
)
def test_the_password_of_a_database_is_never_shown(tree: Tree, url: str) -> None:
    tree.setenv("SKILLBELT_STORE", url)
    settings = tree.settings()
    assert settings.store == url
    shown = [repr(settings), *tree.run("config"), *tree.run("config", "--json")]
    assert not [text for text in shown if "hunter2" in str(text)]


def test_the_address_of_a_database_is_shown(tree: Tree) -> None:
    url = "postgresql://ada:hunter2@db.test:5432/belt?sslmode=require"
    tree.setenv("SKILLBELT_STORE", url)
    shown = tree.run("config", "--json").document["store"]["value"]
    assert shown == "postgresql://ada:***@db.test:5432/belt?sslmode=require"


def test_a_wrong_url_of_a_database_is_an_error_that_does_not_quote_it(tree: Tree) -> None:
    tree.setenv("SKILLBELT_STORE", "mysql://ada:hunter2@db.test/belt")
    with pytest.raises(ConfigError, match="SKILLBELT_STORE: store must be postgresql://") as error:
        tree.settings()
    assert "hunter2" not in str(error.value)


def test_a_project_does_not_choose_the_database(tree: Tree) -> None:
    tree.write("project/skillbelt.toml", 'store = "postgresql://e.test/theirs"')
    with pytest.raises(ConfigError, match="store"):
        tree.settings()
