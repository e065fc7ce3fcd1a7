from __future__ import annotations

import json
import os
import re

import pytest

from skillbelt.files.owners import folder_identity
from skillbelt.permission.audit import AuditEvent, open_audit, user_name
from skillbelt.trust import Trust
from tests.terminal import on_terminal
from tests.tree import Tree

URL = "https://a.example/x"
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


def logged(tree: Tree) -> list[AuditEvent]:
    return list(open_audit(tree.settings()).read())


def trusted(tree: Tree) -> list[tuple[str, str]]:
    return [entry[:2] for entry in Trust(tree.settings().state_dir).entries()]


def test_nothing_is_trusted_at_first_and_nothing_is_made(tree: Tree) -> None:
    done = tree.run("trust")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "nothing is trusted yet; `skillbelt trust add` trusts this project\n"
    assert tree.run("trust", "list", "-q") == (0, "", "")
    assert tree.run("trust", "--json").document == {"trusted": []}
    assert not tree.path("home/.local").exists()


def test_add_without_a_value_trusts_the_worktree(tree: Tree) -> None:
    tree.git()
    tree.path("project/deep").mkdir()
    done = tree.run("trust", "add", project="project/deep")
    assert (done.exit_code, done.stderr) == (0, "")
    assert re.fullmatch(rf"project\t{TIME}\t{re.escape(str(tree.project))}\n", done.stdout)
    assert trusted(tree) == [("project", str(tree.project))]


def test_add_a_folder_relative_to_where_it_is_typed(tree: Tree) -> None:
    tree.path("other").mkdir()
    assert tree.run("trust", "add", "../other").exit_code == 0
    assert trusted(tree) == [("project", str(tree.path("other")))]


def test_list_as_json(tree: Tree) -> None:
    tree.run("trust", "add", URL)
    tree.run("trust", "add")
    [first, second] = Trust(tree.settings().state_dir).entries()
    document = tree.run("trust", "list", "--json").document
    own = {"place": "", "by": ""}
    place = {"value": str(tree.project), "identity": folder_identity(str(tree.project))}
    assert document == {
        "trusted": [
            {"kind": "origin", "value": URL, "time": first.time, "identity": "", **own},
            {"kind": "project", "time": second.time, **place, **own},
        ]
    }


def test_add_and_remove_give_the_entry_as_json(tree: Tree) -> None:
    added = tree.run("trust", "add", f"{URL}/", "--json").document
    assert (added["kind"], added["value"]) == ("origin", URL)
    assert tree.run("trust", "remove", URL, "--json").document == added
    assert trusted(tree) == []


def test_what_list_trusts_is_no_longer_marked(tree: Tree) -> None:
    """The whole way: listed as untrusted, trusted, and not any more."""
    tree.skill("project/.agents/skills/pdf", description="Reads PDF files.")
    tree.write("home/.config/skillbelt/config.toml", 'trust_project = "ask"\n')
    assert tree.run("list").stdout == "pdf\tproject, untrusted\tReads PDF files.\tagents\n"
    tree.run("trust", "add")
    assert tree.run("list").stdout == "pdf\tproject\tReads PDF files.\tagents\n"
    tree.run("trust", "remove")
    assert tree.run("list").stdout == "pdf\tproject, untrusted\tReads PDF files.\tagents\n"


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_removing_what_is_not_there(tree: Tree, more: list[str]) -> None:
    done = tree.run("trust", "remove", URL, *more)
    assert (done.exit_code, bool(done.stdout)) == (1, bool(more))
    expected = f"skillbelt: {URL} was not trusted; `skillbelt trust list` lists what is\n"
    assert done.stderr == expected
    assert logged(tree) == []


def test_removing_a_part_names_what_is_trusted(tree: Tree) -> None:
    tree.run("trust", "add", URL)
    done = tree.run("trust", "remove", f"{URL}/y")
    assert done.exit_code == 1
    assert f"{URL}/y is trusted only because {URL} is; remove that one" in done.stderr


def test_a_removed_part_of_what_is_trusted_still_is(tree: Tree) -> None:
    tree.run("trust", "add", f"{URL}/y")
    tree.run("trust", "add", URL)
    done = tree.run("trust", "remove", f"{URL}/y")
    assert (done.exit_code, done.stderr) == (0, f"still trusted, because {URL} is\n")


def test_each_change_is_logged_once(tree: Tree) -> None:
    for action in ("add", "add", "remove", "remove"):
        tree.run("trust", action, URL)
    first, second = logged(tree)
    assert (first.type, first.user, first.initiator) == ("trust", user_name(), "user")
    assert first.project == str(tree.project)
    assert first.data == {"action": "add", "kind": "origin", "value": URL}
    assert second.data == {"action": "remove", "kind": "origin", "value": URL}


def test_nothing_is_trusted_unrecorded(tree: Tree) -> None:
    tree.write("home/.local/state/skillbelt/audit", "in the way")
    done = tree.run("trust", "add", URL)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "the audit log cannot be written" in done.stderr
    assert trusted(tree) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add", "nowhere"], "'nowhere': no such folder"),
        (["add", ""], "'': no such folder"),
        (["add", "https://ada:secret@a.example"], "write a plain URL"),
        (["list", URL], "trust list takes no PATH or ORIGIN"),
        (["forget"], "invalid choice: 'forget'"),
        (["add", "a", "b"], "unrecognized arguments: b"),
    ],
)
def test_wrong_usage(tree: Tree, arguments: list[str], said: str) -> None:
    done = tree.run("trust", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert trusted(tree) == []
    assert logged(tree) == []


def test_a_damaged_file_is_told_and_left(tree: Tree) -> None:
    file = tree.write("home/.local/state/skillbelt/trust.json", "{")
    listed = tree.run("trust", "--json")
    assert (listed.exit_code, json.loads(listed.stdout)) == (1, {"trusted": []})
    assert f"{file}: error trust-unusable: is damaged" in listed.stderr
    for action in ("add", "remove"):
        done = tree.run("trust", action, URL)
        assert (done.exit_code, done.stdout) == (2, "")
        assert f"{file}: is damaged" in done.stderr
        assert "move it away" in done.stderr
    assert file.read_text() == "{"
    assert logged(tree) == []


def test_on_a_terminal(tree: Tree) -> None:
    folder = tree.path("evil\x1b[31m")
    folder.mkdir()
    tree.run("trust", "add", str(folder))
    tree.run("trust", "add", URL)
    screen = on_terminal(tree, "trust", columns=200)
    assert screen.lines[0].split() == ["kind", "since", "value"]
    assert screen.lines[1].endswith("evil\\x1b[31m")
    assert screen.lines[2].endswith(URL)


def test_a_folder_whose_name_is_no_text(tree: Tree) -> None:
    folder = os.fsencode(tree.root) + b"/p\xff"
    os.mkdir(folder)
    assert tree.run("trust", "add", os.fsdecode(folder)).exit_code == 0
    assert Trust(tree.settings().state_dir).project(os.fsdecode(folder))
    assert tree.run("trust").stdout.endswith("p\\udcff\n")


def test_an_origin_of_the_team_is_listed_with_where_it_is_from(
    tree: Tree, postgres_url: str
) -> None:
    tree.setenv("SKILLBELT_STORE", postgres_url)
    tree.setenv("SKILLBELT_STATE_DIR", tree.home / "machine-a")
    assert tree.run("trust", "add", URL).exit_code == 0
    tree.setenv("SKILLBELT_STATE_DIR", tree.home / "machine-b")
    assert tree.run("trust", "add").exit_code == 0
    project, origin = tree.run("trust").stdout.splitlines()
    assert project.endswith("\tthis machine")
    assert f"\t{URL}\tpostgresql://" in origin
    assert origin.endswith(f" by {user_name()}@{os.uname().nodename}")
    found = tree.run("log", "--type", "trust", "--json").document["events"]
    assert [(one["data"]["kind"], one["machine"]) for one in found] == [
        ("origin", os.uname().nodename),
        ("project", os.uname().nodename),
    ]
    assert tree.run("trust", "remove", URL).exit_code == 0
    tree.setenv("SKILLBELT_STATE_DIR", tree.home / "machine-a")
    assert tree.run("trust", "--json").document == {"trusted": []}
