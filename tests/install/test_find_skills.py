"""A search for names finds what a search for everything finds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.install.find_skills import choose_skills, find_skills
from skillbelt.install.source_tree import FolderTree, SourceTree, TreeItem
from tests.install.repositories import skill_text

_NAMES = st.sampled_from(["alpha", "beta", "Alpha", "alpha-two", "123", "true", "null", "~"])
_LINES = st.sampled_from(
    [
        "name: {}", "name:  {}", "name: '{}'", 'name: "{}"', "Name: {}", '"name": {}',
        "? name\n: {}", "name: {} # a comment", "name: {}\n  beta", "name: >\n  {}",
        "{{name: {}}}", "!!str name: {}", 'name: "\\x61lpha"', '"n\\u0061me": {}', "name : {}",
        "\tname: {}", " name: {}", "name:\n  {}", "description: d", "description: d\n  name: {}",
        "description: |\n  name: {}", "description: 'd", "metadata:\n  name: {}", "# name: {}",
        "", "- {}", "<<: {{name: {}}}", "name: &a {}", "{}", "license: x", "...", "---",
    ]
)  # fmt: skip
_OPENINGS = st.sampled_from(["---\n", "\ufeff---\n", "--- \n", "---\r\n", "", "----\n"])


@st.composite
def heads(draw: st.DrawFn) -> str:
    lines = [line.format(draw(_NAMES)) for line in draw(st.lists(_LINES, max_size=5))]
    end = draw(st.sampled_from(["\n---\n", "\n--- \n", "\n", "\n...\n", "\n----\n"]))
    return draw(_OPENINGS) + "\n".join(lines) + end + "text\n"


class TextTree:
    """A source whose files are texts."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def items(self, folder: str) -> list[TreeItem]:
        start = f"{folder}/" if folder else ""
        found: dict[str, TreeItem] = {}
        for path in self._files:
            if path.startswith(start):
                name, slash, _ = path[len(start) :].partition("/")
                found[name] = TreeItem(name, "folder" if slash else "file")
        return [found[name] for name in sorted(found)]

    def is_file(self, path: str) -> bool:
        return path in self._files

    def list_all(self) -> None:
        """Everything is known."""

    def rest(self) -> None:
        """Nothing runs."""

    def prepare(self, paths: object) -> None:
        list(paths)  # type: ignore[call-overload]

    def ready(self, path: str) -> bytes | None:
        return self._files[path].encode("utf-8", "surrogatepass")

    def contents(self, paths: object) -> Iterator[tuple[str, Iterator[bytes]]]:
        raise NotImplementedError


@given(st.lists(st.tuples(st.sampled_from(["skills/a", "skills/b", "skills/x/c", "d"]), heads())))
def test_wanted_names_are_those_of_a_search_for_all(texts: list[tuple[str, str]]) -> None:
    tree: SourceTree = TextTree({f"{folder}/SKILL.md": text for folder, text in texts})
    every = find_skills(tree).skills
    for name in ("alpha", "BETA", "alpha-two", "123", "a", "c"):
        wanted = choose_skills(every, [name])
        if wanted:
            assert choose_skills(find_skills(tree, wanted=[name]).skills, [name]) == wanted


def test_a_name_that_is_not_there_gives_everything(tmp_path: Path) -> None:
    for name in ("alpha", "beta"):
        (tmp_path / "skills" / name).mkdir(parents=True)
        (tmp_path / "skills" / name / "SKILL.md").write_text(skill_text(name))
    found = find_skills(FolderTree(str(tmp_path)), wanted=["gamma"])
    assert [skill.name for skill in found.skills] == ["alpha", "beta"]


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("alpha", "alpha"), ("ALPHA", "alpha"), ("My Title", "My Title"), ("my title", "My Title"),
        ("my-title", "My Title"), ("zeta", "zeta"), ("Zeta", "Zeta"),
    ],
)  # fmt: skip
def test_a_skill_is_found_by_its_name_in_any_case_and_by_its_folder(
    tmp_path: Path, wanted: str, name: str
) -> None:
    for folder, title in (("alpha", "alpha"), ("t", "My Title"), ("z", "zeta"), ("y", "Zeta")):
        write_skill(tmp_path, f"skills/{folder}", title)
    found = find_skills(FolderTree(str(tmp_path)), wanted=[wanted]).skills
    assert [skill.name for skill in choose_skills(found, [wanted])] == [name]


def write_skill(top: Path, folder: str, name: str) -> None:
    (top / folder).mkdir(parents=True)
    (top / folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: d\n---\n", "utf-8")


@pytest.mark.parametrize("wanted", [[], ["twice"]])
def test_of_two_skills_with_one_name_the_one_in_the_folder_of_that_name_counts(
    tmp_path: Path, wanted: list[str]
) -> None:
    for folder in ("a", "b/twice", "twice", "z"):
        write_skill(tmp_path, f"skills/{folder}", "twice")
    found = find_skills(FolderTree(str(tmp_path)), wanted=wanted)
    assert [skill.folder for skill in found.skills] == ["skills/twice"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a" * 129, "128 characters"), ('"a\\u202eb"', "does not show"), ("a/b", "slash"),
        ("../up", "letter or a digit"), ('"cafe\\u0301"', "NFC"), ('"a  b"', "two blanks"),
        ('"a\\tb"', "two blanks"), ("-rf", "letter or a digit"), ("__proto__", "letter or a digit"),
        ("node_modules", "not searched"), ("Node_Modules.", "not searched"),
    ],
)  # fmt: skip
def test_a_name_that_people_cannot_read_or_type_is_refused_with_the_reason(
    tmp_path: Path, name: str, reason: str
) -> None:
    write_skill(tmp_path, "skills/x", name)
    found = find_skills(FolderTree(str(tmp_path)))
    assert not found.skills
    assert reason in found.skipped[0].reason
    assert "its author must choose another" in found.skipped[0].reason
