"""The choice of the script or module to execute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt import PathEscape, RunRefused
from skillbelt.format.skill import Skill
from skillbelt.running.json_call import INTERPRETERS, Target, candidates, detect
from tests.tree import Tree

FOLDER = "project/.agents/skills/tool"


@pytest.fixture
def found(tree: Tree) -> Callable[..., Target]:
    """The target that would be executed of a skill with these files."""

    def target(files: str, input: object = None, **options: Any) -> Target:
        declared = options.pop("metadata", None)
        folder = tree.skill(FOLDER, **({"metadata": declared} if declared else {}))
        for path in files.split():
            tree.write(folder / path)
        return detect(Skill.from_folder(folder), input, **options)

    return target


@pytest.mark.parametrize(
    ("files", "path"),
    [
        ("wasm/skill.wasm skill.wasm module.wasm a.wasm", "wasm/skill.wasm"),
        ("skill.wasm module.wasm a.wasm", "skill.wasm"),
        ("module.wasm a.wasm", "module.wasm"),
        ("main.wasm", "main.wasm"),
        ("wasm/other.wasm scripts/a.py", "wasm/other.wasm"),
    ],
)
def test_a_module_comes_before_scripts(found: Callable[..., Target], files: str, path: str) -> None:
    assert found(f"{files} scripts/run.py") == Target("wasm", path)


def test_a_module_deeper_down_is_not_the_skills_own(found: Callable[..., Target]) -> None:
    assert found("assets/lib/x.wasm scripts/run.py") == Target("script", "scripts/run.py")


def test_several_modules_are_not_chosen_from(found: Callable[..., Target]) -> None:
    with pytest.raises(RunRefused, match=r"more than one WASM module \(a\.wasm, b\.wasm\)"):
        found("a.wasm b.wasm scripts/run.py")


def test_a_module_that_is_named_comes_first(found: Callable[..., Target]) -> None:
    assert found("wasm/skill.wasm b.wasm", wasm_module="b.wasm") == Target("wasm", "b.wasm")


def test_a_script_that_is_named_comes_before_a_module(found: Callable[..., Target]) -> None:
    chosen = found("skill.wasm scripts/run.py", script="scripts/run.py")
    assert chosen == Target("script", "scripts/run.py")


def test_neither_an_action_nor_a_declaration_comes_before_a_module(
    found: Callable[..., Target],
) -> None:
    chosen = found("skill.wasm scripts/a.py", {"action": "a"}, metadata={"script": "scripts/a.py"})
    assert chosen == Target("wasm", "skill.wasm")


def test_a_script_and_a_module_can_not_both_be_named(found: Callable[..., Target]) -> None:
    with pytest.raises(RunRefused, match="only one can be executed"):
        found("a.wasm scripts/a.py", script="scripts/a.py", wasm_module="a.wasm")


@pytest.mark.parametrize("name", ["b.wasm", "scripts/a.py", "wasm"])
def test_a_module_must_be_there(found: Callable[..., Target], name: str) -> None:
    with pytest.raises(RunRefused, match="has no WASM module"):
        found("wasm/a.wasm scripts/a.py", wasm_module=name)


@pytest.mark.parametrize(
    "path",
    ["scripts/x.py", "scripts/x.sh", "scripts/x.bash", "scripts/x.js", "scripts/x.mjs", "main.py",
     "index.js", "script.sh", "src/main.py", "src/index.mjs"],
)  # fmt: skip
def test_the_only_script_is_taken(found: Callable[..., Target], path: str) -> None:
    others = "scripts/__init__.py scripts/lib/helper.py setup.py src/lib.py notes.md"
    assert found(f"{others} {path}") == Target("script", path)


@pytest.mark.parametrize("files", ["notes.md", "scripts/a.rb", "scripts/lib/a.py", "setup.py"])
def test_nothing_to_execute_is_refused(found: Callable[..., Target], files: str) -> None:
    with pytest.raises(RunRefused, match="'tool' has nothing to execute"):
        found(files)


def test_a_module_that_lies_deeper_is_named_with_what_to_do(found: Callable[..., Target]) -> None:
    with pytest.raises(RunRefused) as refused:
        found("bin/deep/x.wasm")
    assert str(refused.value).startswith("skill 'tool' has nothing to execute: no .wasm in its")
    assert str(refused.value).endswith("(bin/deep/x.wasm); give one as wasm_module or --script")
    path = "bin/deep/x.wasm"
    assert found(path, wasm_module=path) == Target("wasm", path)


def test_a_script_of_a_skill_without_scripts_is_refused_for_that(
    found: Callable[..., Target],
) -> None:
    with pytest.raises(RunRefused, match=r"has no script 'p'; there is no script in it$"):
        found("notes.md", script="p")


def test_a_skill_made_from_text_has_nothing_to_execute() -> None:
    with pytest.raises(RunRefused, match="nothing to execute"):
        detect(Skill.from_text("---\nname: x\ndescription: y\n---\n"))


def test_more_than_one_script_is_not_chosen_from(found: Callable[..., Target]) -> None:
    with pytest.raises(RunRefused) as refused:
        found("scripts/b.py scripts/a.sh main.py")
    assert "(main.py, scripts/a.sh, scripts/b.py)" in str(refused.value)


def test_the_action_names_the_script(found: Callable[..., Target]) -> None:
    chosen = found("scripts/fill.py scripts/extract.py main.py", {"action": "extract"})
    assert chosen == Target("script", "scripts/extract.py")


def test_the_action_comes_before_what_is_declared(found: Callable[..., Target]) -> None:
    options = {"metadata": {"script": "scripts/b.py"}}
    assert found("scripts/a.py scripts/b.py", {"action": "a"}, **options).path == "scripts/a.py"


def test_an_action_of_the_scripts_own_does_not_keep_it_from_running(
    found: Callable[..., Target],
) -> None:
    assert found("scripts/run.py", {"action": "sum"}) == Target("script", "scripts/run.py")


@pytest.mark.parametrize("action", ["a.py", "scripts/a", "../a", "A", "", 7, None, ["a"]])
def test_an_action_is_a_name_and_never_a_path(found: Callable[..., Target], action: object) -> None:
    with pytest.raises(RunRefused, match="more than one script"):
        found("scripts/a.py scripts/b.py", {"action": action})


def test_an_action_that_names_two_scripts_is_not_clear(found: Callable[..., Target]) -> None:
    with pytest.raises(RunRefused, match=r"\(scripts/a\.py, scripts/a\.sh\)"):
        found("scripts/a.py scripts/a.sh scripts/b.py", {"action": "a"})


def test_the_skill_declares_its_script(found: Callable[..., Target]) -> None:
    chosen = found("scripts/a.py scripts/b.py", metadata={"script": "scripts/b.py"})
    assert chosen == Target("script", "scripts/b.py")


def test_a_declared_script_that_is_not_there_is_refused(found: Callable[..., Target]) -> None:
    with pytest.raises(RunRefused, match=r"has no script 'c\.py' \(scripts/a\.py, scripts/b\.py\)"):
        found("scripts/a.py scripts/b.py", metadata={"script": "c.py"})


def test_a_skill_can_not_declare_a_script_elsewhere(found: Callable[..., Target]) -> None:
    with pytest.raises(PathEscape):
        found("scripts/a.py", metadata={"script": "../other/scripts/a.py"})


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("tools/deep/x.py", "tools/deep/x.py"),
        ("./tools/deep/x.py", "tools/deep/x.py"),
        ("a", "scripts/a.py"),
        ("a.py", "scripts/a.py"),
    ],
)
def test_a_script_is_named_by_its_path_or_its_name(
    found: Callable[..., Target], name: str, path: str
) -> None:
    chosen = found("scripts/a.py scripts/b.py tools/deep/x.py", script=name)
    assert chosen == Target("script", path)


@pytest.mark.parametrize("name", ["/bin/ls", "../x.py", "scripts/../../x.py", "a\0.py", "c:\\x.py"])
def test_a_script_lies_in_the_skill(found: Callable[..., Target], name: str) -> None:
    with pytest.raises(PathEscape, match="leads out of the skill's folder"):
        found("scripts/a.py", script=name)


def test_a_link_is_no_script(tree: Tree) -> None:
    folder = tree.skill(FOLDER)
    tree.write(folder / "scripts/a.py")
    tree.write("elsewhere.py", "print()")
    (folder / "scripts/b.py").symlink_to(tree.path("elsewhere.py"))
    skill = Skill.from_folder(folder)
    assert detect(skill) == Target("script", "scripts/a.py")
    with pytest.raises(RunRefused, match=r"no script 'scripts/b\.py'"):
        detect(skill, script="scripts/b.py")


def test_a_file_of_another_kind_is_not_executed(found: Callable[..., Target]) -> None:
    with pytest.raises(RunRefused, match=r"'notes\.md' cannot be executed"):
        found("notes.md scripts/a.py", script="notes.md")


PATHS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "scripts/", "src/", "scripts/lib/", "tests/"]),
    st.sampled_from(["main", "a", "b", "index", "__init__"]),
    st.sampled_from([*INTERPRETERS, ".md", ""]),
)


@given(st.lists(PATHS, unique=True, max_size=8))
def test_the_order_in_which_files_are_found_does_not_matter(paths: list[str]) -> None:
    assert candidates(paths) == candidates(reversed(paths)) == tuple(sorted(candidates(paths)))


@given(name=st.text(), action=st.text())
def test_no_text_leads_elsewhere(name: str, action: str) -> None:
    with TemporaryDirectory() as root:
        (Path(root) / "scripts").mkdir()
        for path in ("scripts/a.py", "scripts/b.py"):
            (Path(root) / path).touch()
        (Path(root) / "SKILL.md").write_text("---\nname: x\ndescription: y\n---\n")
        try:
            chosen = detect(Skill.from_folder(root), {"action": action}, script=name)
        except (RunRefused, PathEscape):
            return
        assert chosen.path in ("scripts/a.py", "scripts/b.py")
