"""The packages that a skill declares for its scripts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillbelt.errors import PathEscape, RunRefused
from skillbelt.running.packages.declared import MAX_BYTES, Needs, describe, needs_of

BLOCK = """#!/usr/bin/env python3
# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "requests<3",
#   "rich",
# ]
# ///
import requests
"""


def needs(folder: Path, name: str, text: str, script: str | None = None) -> Needs | None:
    (folder / name).write_text(text)
    return needs_of(str(folder), script)


def refused(folder: Path, name: str, text: str, script: str | None = None) -> str:
    with pytest.raises(RunRefused) as caught:
        needs(folder, name, text, script)
    return str(caught.value)


def test_a_skill_that_declares_nothing_needs_nothing(tmp_path: Path) -> None:
    (tmp_path / "run.py").write_text("print(1)\n")
    assert needs_of(str(tmp_path)) is None
    assert needs_of(str(tmp_path), "run.py") is None
    assert needs_of(str(tmp_path), "missing.py") is None


# --- a script's own block ------------------------------------------------------------------------


def test_the_block_of_a_script_says_what_it_needs(tmp_path: Path) -> None:
    found = needs(tmp_path, "run.py", BLOCK, "run.py")
    assert found == Needs("python", ("requests<3", "rich"), "run.py", ">=3.11")


def test_the_block_of_a_script_counts_alone(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("numpy\n")
    empty = "# /// script\n# dependencies = []\n# ///\n"
    assert needs(tmp_path, "run.py", empty, "run.py") == Needs("python", (), "run.py")
    assert needs(tmp_path, "run.py", "print(1)\n", "run.py") == Needs(
        "python", ("numpy",), "requirements.txt"
    )


def test_a_block_with_other_line_ends_is_the_same(tmp_path: Path) -> None:
    found = needs(tmp_path, "run.py", BLOCK, "run.py")
    (tmp_path / "run.py").write_bytes(BLOCK.replace("\n", "\r\n").encode())
    assert needs_of(str(tmp_path), "run.py") == found


@pytest.mark.parametrize(
    "text",
    [
        "# /// script\n# dependencies = ['a']\n",
        "# /// script\nx\n# dependencies = ['a']\n# ///\n",
        "# /// other\n# dependencies = ['a']\n# ///\n",
        " # /// script\n # dependencies = ['a']\n # ///\n",
        "#/// script\n#dependencies = ['a']\n#///\n",
    ],
)
def test_what_only_looks_like_a_block_is_none(tmp_path: Path, text: str) -> None:
    assert needs(tmp_path, "run.py", text, "run.py") is None


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("# /// script\n# [\n# ///\n", "run.py: is not valid TOML"),
        ("# /// script\n# dependencies = 'a'\n# ///\n", "not a list"),
        ("# /// script\n# dependencies = [1]\n# ///\n", "not a list"),
        ("# /// script\n# requires-python = 3\n# ///\n", "requires-python"),
        ("# /// script\n# requires-python = 'new'\n# ///\n", "requires-python"),
        ("# /// script\n# x = 1\n# ///\n\n# /// script\n# x = 1\n# ///\n", "more than one"),
        (f"# /// script\n# x = {'[' * 5000}\n# ///\n", "is not valid TOML"),
        ("# /// script\n# [tool.uv.sources]\n# a = {path = 'x'}\n# ///\n", "[tool.uv] sources"),
        ("# /// script\n# [[tool.uv.index]]\n# url = 'x'\n# ///\n", "[tool.uv] index"),
    ],
)
def test_a_wrong_block_is_refused_with_the_reason(tmp_path: Path, block: str, said: str) -> None:
    assert said in refused(tmp_path, "run.py", block, "run.py")


def test_a_script_of_nothing_but_beginnings_of_blocks_is_read_quickly(tmp_path: Path) -> None:
    assert needs(tmp_path, "run.py", "# /// script\n" * 20_000, "run.py") is None


def test_a_long_script_is_read_as_far_as_its_head(tmp_path: Path) -> None:
    found = needs(tmp_path, "run.py", BLOCK + "#" * MAX_BYTES, "run.py")
    assert found and found.requirements == ("requests<3", "rich")


# --- requirements.txt ----------------------------------------------------------------------------


def test_requirements_are_names_versions_extras_and_markers(tmp_path: Path) -> None:
    digest = "a" * 64
    text = f"""
# tools
requests >= 2.31, <3   # for the web
rich[jupyter, extra]~=13.0
typing-extensions (>=4); python_version < "3.12" and (sys_platform == 'linux')
zope.interface==6.* ; 'linux' in sys_platform or os_name not in "nt"
pinned==1.0+local.1 \\
    --hash=sha256:{digest} --hash=sha256:{digest}
rich[jupyter, extra]~=13.0
"""
    found = needs(tmp_path, "requirements.txt", text)
    assert found and found.requirements == (
        "requests >= 2.31, <3",
        "rich[jupyter, extra]~=13.0",
        "typing-extensions (>=4); python_version < \"3.12\" and (sys_platform == 'linux')",
        "zope.interface==6.* ; 'linux' in sys_platform or os_name not in \"nt\"",
        f"pinned==1.0+local.1 --hash=sha256:{digest} --hash=sha256:{digest}",
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("-r other.txt", "names no file of the skill"),
        ("-e .", "an option of an installer"),
        ("--index-url https://evil.example/simple", "an option of an installer"),
        ("--extra-index-url=https://evil.example", "an option of an installer"),
        ("-fhttps://evil.example", "an option of an installer"),
        ("x @ https://evil.example/x.whl", "names a place to fetch from"),
        ("x@file:///etc", "names a place to fetch from"),
        ("git+https://evil.example/x.git", "names a place to fetch from"),
        ("https://evil.example/x.whl", "names a place to fetch from"),
        ("./x", "is a file"),
        ("../x.whl", "is a file"),
        ("/tmp/x", "is a file"),
        ("~/x", "is a file"),
        ("x.whl", "is a file"),
        ("x.tar.gz", "is a file"),
        ("x --index-url=y", "is not a requirement"),
        ("x --config-settings=y", "is not a requirement"),
        ("x==1 --hash=md5:00", "is not a requirement"),
        (f"x --hash=sha256:{'0' * 64}", "has a hash without a version"),
        (f"x[a]>=1 ; python_version > '3' --hash=sha256:{'0' * 64}", "has a hash without"),
        (f"x==1.* --hash=sha256:{'0' * 64}", "has a hash without a version"),
        (f"x>=1,==1.2 --hash=sha256:{'0' * 64}", "has a hash without a version"),
        ("x y", "is not a requirement"),
        ("x>", "is not a requirement"),
        ("x; import os", "is not a requirement"),
        ("x; python_version < __import__('os')", "is not a requirement"),
        ("${HOME}", "is not a requirement"),
        ("ünicode", "is not a requirement"),
        ("\x1b[31mx", "is not a requirement"),
        ("x" * 2000, "is too long"),
    ],
)
def test_what_could_fetch_from_elsewhere_is_refused(tmp_path: Path, line: str, said: str) -> None:
    message = refused(tmp_path, "requirements.txt", f"rich\n{line}\n")
    assert message.startswith("requirements.txt: ")
    assert said in message
    assert "\x1b" not in message


def test_too_many_requirements_are_refused(tmp_path: Path) -> None:
    text = "".join(f"x{number}\n" for number in range(201))
    assert "more than 200 packages" in refused(tmp_path, "requirements.txt", text)


def test_a_file_of_comments_declares_nothing(tmp_path: Path) -> None:
    assert needs(tmp_path, "requirements.txt", "# nothing\n\n") is None


# --- pyproject.toml ------------------------------------------------------------------------------


def test_a_project_says_what_it_needs(tmp_path: Path) -> None:
    text = '[project]\nname = "x"\nrequires-python = ">=3.10"\ndependencies = ["rich>=13"]\n'
    found = needs(tmp_path, "pyproject.toml", text)
    assert found == Needs("python", ("rich>=13",), "pyproject.toml", ">=3.10")


@pytest.mark.parametrize("text", ["", "[tool.ruff]\n", '[project]\nname = "x"\n', "project = 1\n"])
def test_a_project_without_dependencies_declares_nothing(tmp_path: Path, text: str) -> None:
    assert needs(tmp_path, "pyproject.toml", text) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[project]\ndynamic = ["dependencies"]\n', "declares its dependencies as dynamic"),
        ('[project]\ndependencies = ["x @ file:///x"]\n', "a place to fetch from"),
        ('[project]\ndependencies = ["x"]\n[tool.uv.sources]\nx = {git = "y"}\n', "tool.uv"),
        ("[project", "is not valid TOML"),
    ],
)
def test_a_project_that_needs_a_build_is_refused(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(tmp_path, "pyproject.toml", text)


# --- package.json --------------------------------------------------------------------------------


def test_a_package_says_what_it_needs(tmp_path: Path) -> None:
    text = (
        '{"dependencies": {"left-pad": "^1.3.0", "@a/b": ">=1 <2 || 3.x", "c": "latest", "d": ""}}'
    )
    found = needs(tmp_path, "package.json", text)
    assert found == Needs(
        "node", ("left-pad@^1.3.0", "@a/b@>=1 <2 || 3.x", "c@latest", "d@*"), "package.json"
    )


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("x", "git+ssh://evil.example/x"),
        ("x", "https://evil.example/x.tgz"),
        ("x", "file:../x"),
        ("x", "user/repository"),
        ("x", "npm:other@1"),
        ("x", "workspace:*"),
        ("x", "--registry=evil"),
    ],
)
def test_a_package_from_elsewhere_is_refused(tmp_path: Path, name: str, wanted: str) -> None:
    said = refused(tmp_path, "package.json", f'{{"dependencies": {{"{name}": "{wanted}"}}}}')
    assert "names a place to fetch from" in said


@pytest.mark.parametrize("name", ["../x", "-g", "A B", "@x", "", "x" * 215])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    said = refused(tmp_path, "package.json", f'{{"dependencies": {{"{name}": "1"}}}}')
    assert "is not a package with a version" in said


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"dependencies": [1]}'])
def test_a_wrong_package_is_refused(tmp_path: Path, text: str) -> None:
    assert refused(tmp_path, "package.json", text).startswith("package.json: ")


# --- which counts --------------------------------------------------------------------------------


def test_the_kind_of_script_decides_which_file_counts(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("rich\n")
    (tmp_path / "package.json").write_text('{"dependencies": {"c": "1"}}')
    sources = [needs_of(str(tmp_path), script) for script in ("a.mjs", "a.py", "a.sh", None)]
    assert [found and found.kind for found in sources] == ["node", "python", "python", "python"]


def test_requirements_count_before_a_project(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["b"]\n')
    found = needs(tmp_path, "requirements.txt", "a\n")
    assert found and found.requirements == ("a",)


# --- hostile folders -----------------------------------------------------------------------------


def test_nothing_outside_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret-token\n")
    skill = tmp_path / "skill"
    skill.mkdir()
    (skill / "requirements.txt").symlink_to("../secret")
    with pytest.raises(PathEscape):
        needs_of(str(skill))
    with pytest.raises(PathEscape):
        needs_of(str(skill), "../secret")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "requirements.txt")
    with pytest.raises(RunRefused, match="is not a regular file"):
        needs_of(str(tmp_path))


def test_a_file_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    assert "more than" in refused(tmp_path, "requirements.txt", "#" * (MAX_BYTES + 1))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(RunRefused, match="is not UTF-8"):
        needs_of(str(tmp_path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["requirements.txt", "pyproject.toml", "package.json", "a.py"]), st.binary())
def test_no_file_raises_anything_but_a_refusal(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    try:
        needs_of(str(tmp_path), "a.py" if name == "a.py" else None)
    except RunRefused:
        pass
    finally:
        (tmp_path / name).unlink()


# --- what is shown -------------------------------------------------------------------------------


def test_what_would_be_installed_is_told_in_one_line() -> None:
    found = Needs("python", ("rich>=13", "x==1 --hash=sha256:00"), "requirements.txt", ">=3.11")
    assert describe(found) == (
        "2 Python packages: rich>=13, x==1 (from requirements.txt, for Python >=3.11)"
    )
    assert describe(Needs("node", ("c@1",), "package.json")) == (
        "1 Node.js package: c@1 (from package.json)"
    )
    assert describe(Needs("python", (), "a.py")) == "no Python packages (from a.py)"


def test_a_long_list_is_cut_with_its_number() -> None:
    found = Needs("python", tuple(f"x{number}" for number in range(25)), "requirements.txt")
    assert describe(found).startswith("25 Python packages: x0, x1,")
    assert "x19 and 5 more (from" in describe(found)


def test_a_hostile_path_is_shown_safely() -> None:
    assert describe(Needs("python", ("a",), "a\x1b[2J\n.py")).isprintable()
