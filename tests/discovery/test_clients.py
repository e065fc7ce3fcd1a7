from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillbelt.discovery.clients import CLIENTS, clients, local_roots
from tests.tree import Tree

NAMES = [client.name for client in CLIENTS]


def roots(tree: Tree, project: str = "project", **settings: object) -> list[str]:
    """The roots below the tree, as paths of it."""
    found = [root.path for root in local_roots(tree.settings(project, **settings))]
    below = f"{tree.root}/"
    return [path.removeprefix(below) for path in found if path.startswith(below)]


def test_the_first_clients_are_our_own_then_agents_then_claude() -> None:
    assert NAMES[:3] == ["skillbelt", "agents", "claude"]
    assert len(NAMES) == len(set(NAMES))


def test_no_two_clients_share_a_folder() -> None:
    folders = [path for client in CLIENTS for path in (*client.project, *client.user)]
    assert len(folders) == len(set(folders))


def test_project_folders_come_in_the_tables_order(tree: Tree) -> None:
    assert roots(tree, user_roots=False) == [
        f"project/{path}" for client in CLIENTS for path in client.project
    ]


def test_singular_and_plural_folders_both_count(tree: Tree) -> None:
    found = roots(tree)
    for name in ("skill", "skills"):
        assert f"project/.skillbelt/{name}" in found
        assert f"project/.opencode/{name}" in found
        assert f"home/.config/opencode/{name}" in found


def test_user_folders_come_after_the_projects_and_in_the_tables_order(tree: Tree) -> None:
    found = local_roots(tree.settings())
    scopes = [root.scope for root in found]
    assert scopes == sorted(scopes)
    users = [root.client for root in found if root.scope == "user"]
    assert users == sorted(users, key=NAMES.index)
    assert roots(tree, project_roots=False)[:6] == [
        "home/.skillbelt/skills",
        "home/.config/skillbelt/skill",
        "home/.config/skillbelt/skills",
        "home/.agents/skills",
        "home/.config/agents/skills",
        "home/.claude/skills",
    ]


def test_nearest_folder_first_up_to_the_worktree(tree: Tree) -> None:
    tree.git()
    (tree.project / "a/b").mkdir(parents=True)
    found = roots(tree, "project/a/b", user_roots=False)
    folders = [path.removesuffix("/.agents/skills") for path in found if ".agents/" in path]
    assert folders == ["project/a/b", "project/a", "project"]
    # Every client of the nearer folder comes before any of the farther one.
    per_folder = len(found) // 3
    assert all(path.startswith("project/a/b/") for path in found[:per_folder])


def test_outside_git_only_the_start_folder(tree: Tree) -> None:
    (tree.project / "a").mkdir()
    found = roots(tree, "project/a", user_roots=False)
    assert found
    assert all(path.startswith("project/a/") for path in found)


def test_other_tools_variables_move_their_folders(tree: Tree) -> None:
    tree.setenv("CLAUDE_CONFIG_DIR", tree.root / "c")
    tree.setenv("CODEX_HOME", tree.root / "x")
    found = roots(tree)
    assert {"c/skills", "x/skills"} <= set(found)
    assert not {"home/.claude/skills", "home/.codex/skills"} & set(found)


def test_every_folder_of_opencode_is_searched(tree: Tree) -> None:
    tree.setenv("OPENCODE_CONFIG_DIR", tree.root / "o")
    assert [path for path in roots(tree) if "opencode" in path or path.startswith("o/")] == [
        "project/.opencode/skill",
        "project/.opencode/skills",
        "home/.config/opencode/skill",
        "home/.config/opencode/skills",
        "home/.opencode/skill",
        "home/.opencode/skills",
        "o/skill",
        "o/skills",
    ]


def test_the_folders_of_cline_are_searched(tree: Tree) -> None:
    assert {"project/.cline/skills", "home/.cline/skills"} <= set(roots(tree))


def test_each_agent_of_deepagents_has_a_folder(tree: Tree) -> None:
    for name in ("writer", "coder"):
        (tree.home / ".deepagents" / name).mkdir(parents=True)
    assert [path for path in roots(tree) if "home/.deepagents" in path] == [
        "home/.deepagents/coder/skills",
        "home/.deepagents/writer/skills",
    ]


def test_system_wide_folders_count(tree: Tree) -> None:
    found = [root.path for root in local_roots(tree.settings())]
    assert "/etc/codex/skills" in found
    assert "/etc/claude-code/.claude/skills" in found


def test_external_roots_off_leaves_our_own(tree: Tree) -> None:
    """Case 15."""
    assert roots(tree, disabled_clients=["*"]) == [
        "project/.skillbelt/skill",
        "project/.skillbelt/skills",
        "home/.skillbelt/skills",
        "home/.config/skillbelt/skill",
        "home/.config/skillbelt/skills",
    ]


def test_a_client_can_be_switched_off(tree: Tree) -> None:
    """Case 15."""
    found = roots(tree, disabled_clients=["claude"])
    assert "project/.agents/skills" in found
    assert not any(".claude" in path for path in found)


@pytest.mark.parametrize(
    ("switch", "left"),
    [
        ("project_roots", {"user", "explicit"}),
        ("user_roots", {"project", "explicit"}),
    ],
)
def test_switches_take_whole_scopes_away(tree: Tree, switch: str, left: set[str]) -> None:
    found = local_roots(tree.settings(**{switch: False}), ["x"])
    assert {root.scope for root in found} == left


def test_explicit_paths_are_required_and_come_first_in_their_order(tree: Tree) -> None:
    found = local_roots(tree.settings(), ["b", "~/a", "/c"])
    assert [(root.path, root.scope, root.required) for root in found[:3]] == [
        (str(tree.project / "b"), "explicit", True),
        (str(tree.home / "a"), "explicit", True),
        ("/c", "explicit", True),
    ]
    assert not any(root.required for root in found[3:])


def test_the_order_of_scopes_is_a_setting(tree: Tree) -> None:
    order = ("user", "explicit", "project", "remote", "builtin")
    found = local_roots(tree.settings(scope_order=order), ["x"])
    assert list(dict.fromkeys(root.scope for root in found)) == ["user", "explicit", "project"]


def test_the_order_of_clients_is_fixed(tree: Tree) -> None:
    names = [client.name for client in clients(tree.settings())]
    assert names[:3] == ["skillbelt", "agents", "claude"]
    assert sorted(names) == sorted(NAMES)


def test_a_folder_named_twice_counts_where_it_comes_first(tree: Tree) -> None:
    agents = str(tree.project / ".agents/skills")
    found = local_roots(tree.settings(), [agents, "b"])
    assert [root.path for root in found[:2]] == [agents, str(tree.project / "b")]
    assert [root.scope for root in found if root.path == agents] == ["explicit"]


def test_in_the_home_itself_the_clients_keep_their_order(tree: Tree) -> None:
    found = [root for root in local_roots(tree.settings("home")) if root.scope == "project"]
    assert [root.path for root in found] == [
        str(tree.home / path) for client in CLIENTS for path in client.project
    ]


def test_the_file_systems_top_is_a_project_like_any_other(tree: Tree) -> None:
    found = local_roots(tree.settings(os.sep)._replace(worktree=os.sep))
    assert found[0].path == str(Path("/.skillbelt/skill"))
