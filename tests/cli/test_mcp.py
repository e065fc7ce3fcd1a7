"""`skillbelt mcp`: what it writes, what it leaves alone, and what it refuses."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from skillbelt.mcp.clients import CLIENTS, find_file
from tests.terminal import on_terminal
from tests.tree import Tree

CODE = '{\n  // mine\n  "theme": "dark", // why\n}\n'


def installed(tree: Tree, client: str, *options: str) -> Path:
    done = tree.run("mcp", "install", client, "--yes", "--command", "/bin/sb", *options)
    assert done.exit_code == 0, done.stderr
    scope = "project" if "project" in options else "user"
    return Path(find_file(CLIENTS[client], scope, tree.settings()))  # type: ignore[arg-type]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_new_file_is_written_and_read_again(tree: Tree, client: str) -> None:
    file = installed(tree, client)
    assert file.is_relative_to(tree.home)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "/bin/sb" in file.read_text()
    document = tree.run("mcp", "clients", "--json").document
    [state] = [
        one["state"]
        for one in document["clients"]
        if (one["client"], one["scope"]) == (client, "user")
    ]
    assert state == "installed"
    again = tree.run("mcp", "install", client, "--yes", "--command", "/bin/sb")
    assert (again.exit_code, again.stdout) == (0, "")
    assert "has it already" in again.stderr
    assert tree.run("mcp", "uninstall", client, "--yes").exit_code == 0
    assert "/bin/sb" not in file.read_text()
    assert "does not have it" in tree.run("mcp", "uninstall", client, "--yes").stderr


def test_the_file_of_a_project_names_the_project(tree: Tree) -> None:
    file = installed(tree, "claude-code", "--scope", "project")
    assert file == tree.project / ".mcp.json"
    server = json.loads(file.read_text())["mcpServers"]["skillbelt"]
    expected = ["serve", "mcp", "--project", str(tree.project)]
    assert server == {"command": "/bin/sb", "args": expected}


def test_this_program_is_written_by_its_absolute_path(tree: Tree) -> None:
    assert tree.run("mcp", "install", "cursor", "--yes").exit_code == 0
    server = json.loads((tree.home / ".cursor" / "mcp.json").read_text())["mcpServers"]["skillbelt"]
    assert os.path.isabs(server["command"])
    assert os.access(server["command"], os.X_OK)
    assert server["args"][-2:] == ["serve", "mcp"]


def test_everything_else_in_a_file_stays(tree: Tree) -> None:
    file = tree.write("home/.config/zed/settings.json", CODE)
    file.chmod(0o640)
    installed(tree, "zed")
    text = file.read_text()
    assert text.startswith('{\n  // mine\n  "theme": "dark", // why\n  "context_servers": {')
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert tree.run("mcp", "uninstall", "zed", "--yes").exit_code == 0
    assert file.read_text() == CODE.replace("why\n", 'why\n  "context_servers": {\n  },\n')


def test_what_a_user_added_to_the_server_stays(tree: Tree) -> None:
    server = {"command": "old", "args": [], "env": {"A": "1"}, "disabled": True}
    file = tree.write("home/.cursor/mcp.json", json.dumps({"mcpServers": {"skillbelt": server}}))
    installed(tree, "cursor")
    changed = json.loads(file.read_text())["mcpServers"]["skillbelt"]
    assert changed == {**server, "command": "/bin/sb", "args": ["serve", "mcp"]}


def test_opencode_in_its_second_form_and_with_comments(tree: Tree) -> None:
    text = '{\n  "mcp": { "servers": {} } // two\n}\n'
    file = tree.write("project/opencode.jsonc", text)
    done = tree.run("mcp", "install", "opencode", "--scope", "project", "--yes", "--json")
    assert done.document["path"] == str(file)
    assert '"servers": {\n    "skillbelt": {' in file.read_text()
    assert "// two" in file.read_text()


def test_a_dry_run_shows_the_difference_and_writes_nothing(tree: Tree) -> None:
    done = tree.run("mcp", "install", "codex", "--dry-run", "--command", "/bin/sb")
    assert done.exit_code == 0
    assert "+[mcp_servers.skillbelt]\n" in done.stdout
    assert not (tree.home / ".codex").exists()


def test_without_a_terminal_it_needs_yes(tree: Tree) -> None:
    done = tree.run("mcp", "install", "codex", "--json")
    assert done.exit_code == 4
    assert json.loads(done.stdout)["error"]["remedy"] == "add --yes"
    assert not (tree.home / ".codex").exists()


@pytest.mark.parametrize(("key", "code"), [("y\n", 0), ("n\n", 4), ("\n", 4)])
def test_at_a_terminal_it_asks(tree: Tree, key: str, code: int) -> None:
    command = ("mcp", "install", "codex", "--command", "/bin/sb")
    screen = on_terminal(tree, *command, answers=[("(Enter for no)? ", key)])
    assert screen.exit_code == code
    assert any(line.startswith('+command = "/bin/sb"') for line in screen.lines)
    assert (tree.home / ".codex" / "config.toml").exists() == (code == 0)


@pytest.mark.parametrize(
    ("client", "path", "text", "line"),
    [
        ("vscode", "project/.vscode/mcp.json", '{\n "a": 1\n "b": 2}', "line 3"),
        ("codex", "home/.codex/config.toml", "a = 1\nb = = 2\n", "line 2"),
        ("goose", "home/.config/goose/config.yaml", "a: 1\n- b\n", "line 2"),
        ("cursor", "home/.cursor/mcp.json", b"{\n\xff}", ":2: is not UTF-8"),
    ],
)
def test_a_file_that_is_not_valid_is_left_alone(
    tree: Tree, client: str, path: str, text: str | bytes, line: str
) -> None:
    file = tree.write(path, text)
    before = file.read_bytes()
    scope = "project" if path.startswith("project") else "user"
    done = tree.run("mcp", "install", client, "--scope", scope, "--yes")
    assert (done.exit_code, done.stdout) == (2, "")
    assert line in done.stderr
    assert file.read_bytes() == before
    listed = tree.run("mcp", "--json").document["clients"]
    assert [one["client"] for one in listed if one["state"] == "unreadable"] == [client]


def test_a_form_that_cannot_be_changed_is_left_alone_and_the_snippet_shown(tree: Tree) -> None:
    file = tree.write("home/.codex/config.toml", "mcp_servers = { a = { command = 'x' } }\n")
    done = tree.run("mcp", "install", "codex", "--yes", "--command", "/bin/sb")
    assert done.exit_code == 2
    assert '[mcp_servers.skillbelt]\ncommand = "/bin/sb"' in done.stderr
    assert "left as it is" in done.stderr
    assert file.read_text() == "mcp_servers = { a = { command = 'x' } }\n"


def test_a_link_of_the_user_stays_and_is_named(tree: Tree) -> None:
    real = tree.write("elsewhere/mcp.json", "{}")
    (tree.home / ".cursor").mkdir()
    link = tree.home / ".cursor" / "mcp.json"
    link.symlink_to(real)
    done = tree.run("mcp", "install", "cursor", "--yes")
    assert done.exit_code == 0
    assert f"is a link to {real}, outside your home folder" in done.stderr
    assert link.is_symlink()
    assert "skillbelt" in real.read_text()


@pytest.mark.parametrize("what", ["file", "folder", "name", "missing"])
def test_no_link_of_a_project_is_followed_out_of_it(tree: Tree, what: str) -> None:
    outside = tree.write("outside/mcp.json", "{}")
    place = tree.project / ".cursor"
    if what == "folder":
        place.symlink_to(outside.parent)
    else:
        place.mkdir()
        inner = tree.write("project/package.json", "{}")
        targets = {"file": outside, "name": inner, "missing": tree.home / ".bashrc"}
        (place / "mcp.json").symlink_to(targets[what])
    done = tree.run("mcp", "install", "cursor", "--scope", "project", "--yes")
    assert done.exit_code in (2, 4)
    assert outside.read_text() == "{}"
    assert not (tree.home / ".bashrc").exists()
    assert (tree.project / "package.json").exists() is (what != "folder")
    if what == "name":
        assert inner.read_text() == "{}"


def test_a_pipe_or_a_large_file_is_refused(tree: Tree) -> None:
    (tree.project / ".cursor").mkdir()
    os.mkfifo(tree.project / ".cursor" / "mcp.json")
    done = tree.run("mcp", "install", "cursor", "--scope", "project", "--yes")
    assert (done.exit_code, "cannot be read" in done.stderr) == (2, True)
    tree.write("project/.mcp.json", b" " * (8 * 2**20 + 1))
    done = tree.run("mcp", "install", "claude-code", "--scope", "project", "--yes")
    assert (done.exit_code, "is larger than" in done.stderr) == (2, True)


def test_hostile_text_does_not_reach_the_terminal(tree: Tree) -> None:
    tree.write("project/.mcp.json", '{"a": "\\u001b", "b": "\x7f\u202eevil", "c\x9b": 1}')
    done = tree.run("mcp", "install", "claude-code", "--scope", "project", "--dry-run")
    assert done.exit_code == 0
    assert not {"\x7f", "\u202e", "\x9b", "\x1b"} & set(done.stdout + done.stderr)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["install"], "needs a CLIENT"),
        (["install", "emacs"], "invalid choice: 'emacs'"),
        (["clients", "zed"], "takes no CLIENT"),
        (["install", "windsurf", "--scope", "project"], "no separate file for a project"),
    ],
)
def test_wrong_usage(tree: Tree, words: list[str], said: str) -> None:
    done = tree.run("mcp", *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


def test_without_the_extra_nothing_is_written(tree: Tree) -> None:
    code = """
import sys, importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "mcp" else found(name, *more)
from skillbelt.cli import main
sys.exit(main(["mcp", "install", "cursor", "--yes"]))
"""
    done = tree.python("-c", code)
    assert done.exit_code == 2
    assert "pip install 'skillbelt[mcp]'" in done.stderr
    assert not (tree.home / ".cursor").exists()
