"""`new-version` changes the version of a SKILL.md and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.errors import ConfigError
from skillbelt.install.new_version import next_version, read_version, set_version
from tests.tree import Tree

HEAD = "---\nname: pdf\ndescription: Does pdf. Use when testing.\n"
BODY = "---\n\n# Pdf\n\nversion: 9.9.9\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('metadata:\n  version: "1.2.3"\n', 'metadata:\n  version: "1.2.4"\n'),
        ("metadata:\n  version: 1.2.3 # why\n", 'metadata:\n  version: "1.2.4" # why\n'),
        (
            "metadata:\n    author: me\n    version: '1.2.3'\nlicense: MIT\n",
            'metadata:\n    author: me\n    version: "1.2.4"\nlicense: MIT\n',
        ),
        ("version: 1.2.3\n", 'version: "1.2.4"\n'),
    ],
)
def test_only_the_version_changes(before: str, after: str) -> None:
    data = (HEAD + before + BODY).encode()
    change = set_version(data, next_version(read_version(data, "x"), "patch"))
    assert change.data.decode() == HEAD + after + BODY
    assert (change.before, change.after) == ("1.2.3", "1.2.4")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", 'metadata:\n  version: "0.1.0"\n'),
        ("metadata:\n    author: me\n", 'metadata:\n    version: "0.1.0"\n    author: me\n'),
    ],
)
def test_a_skill_without_a_version_gets_one(before: str, after: str) -> None:
    data = (HEAD + before + BODY).encode()
    assert set_version(data, next_version("", "major")).data.decode() == HEAD + after + BODY


def test_line_ends_stay_as_they_are() -> None:
    data = (HEAD + 'metadata:\n  version: "1.0.0"\n' + BODY).replace("\n", "\r\n").encode()
    made = set_version(data, "1.0.1").data
    assert made == data.replace(b"1.0.0", b"1.0.1")


def test_parts_are_raised_as_versions_are_counted() -> None:
    assert next_version("1.2.3", "major") == "2.0.0"
    assert next_version("1.2.3-rc.1", "minor") == "1.3.0"
    with pytest.raises(ConfigError, match="--to"):
        next_version("latest", "patch")


@pytest.mark.parametrize(
    "version", ["", "1", "1.2", "1.2.3\nname: x", '1.2.3"', "v1.2.3", "1.2.3 "]
)
def test_a_version_that_is_none_is_refused(version: str) -> None:
    with pytest.raises(ConfigError, match="is not a version"):
        set_version((HEAD + BODY).encode(), version)


@pytest.mark.parametrize(
    "head", ["metadata: {version: 1.0.0}\n", "metadata: &a\n  version: 1.0.0\n", "? version\n: 1\n"]
)
def test_a_head_that_is_written_otherwise_is_left_to_its_author(head: str) -> None:
    with pytest.raises(ConfigError, match="by hand"):
        set_version((HEAD + head + BODY).encode(), "2.0.0")


@given(st.binary(max_size=200))
def test_any_bytes_give_an_error_or_the_version(noise: bytes) -> None:
    try:
        change = set_version(b"---\n" + noise + b"\n---\n", "1.2.3")
    except ConfigError:
        return
    assert read_version(change.data, "x") == "1.2.3"


def test_the_command_writes_the_file_and_says_what_changed(tree: Tree) -> None:
    tree.run("init", "pdf", "--path", "skills")
    done = tree.run("new-version", "skills/pdf", "--part", "minor", "--json")
    assert (done.document["from"], done.document["to"]) == ("0.1.0", "0.2.0")
    assert tree.run("new-version", "skills/pdf", "--dry-run").stdout == "0.2.0 -> 0.2.1\n"
    assert tree.run("new-version", "skills/pdf", "--to", "1.0.0").stdout == "0.2.0 -> 1.0.0\n"
    assert tree.run("check", "skills/pdf", "--strict").exit_code == 0
    assert tree.run("new-version", "nothing").exit_code == 2
    assert sorted(path.name for path in (tree.project / "skills/pdf").iterdir()) == ["SKILL.md"]


def test_an_installed_skill_keeps_the_version_of_its_source(tree: Tree) -> None:
    tree.run("init", "pdf", "--path", "elsewhere")
    assert tree.run("add", "./elsewhere/pdf", "--yes").exit_code == 0
    done = tree.run("new-version", ".agents/skills/pdf")
    assert done.exit_code == 2
    assert "installed from" in done.stderr
