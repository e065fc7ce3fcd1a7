from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillbelt.disclosure.body import (
    MAX_BODY_FILE_BYTES,
    RESOURCE_ENDINGS,
    injection_block,
    list_docs,
    load_resource,
    load_skill_body,
    sample_files,
)
from skillbelt.disclosure.excerpt import line_count
from skillbelt.disclosure.overflow import Storage
from skillbelt.errors import (
    FileTooLarge,
    FileTypeRefused,
    FileUnreadable,
    InvalidFrontmatter,
    LoadError,
    PathEscape,
    SectionNotFound,
    SkillbeltError,
)
from skillbelt.format.arguments import substitute
from skillbelt.format.skill import Skill
from skillbelt.values import Limits, Origin
from tests.bounds import bounds
from tests.examples import examples
from tests.tree import Tree

FOLDER = "project/.agents/skills/pdf"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "texts")


def made(tree: Tree, text: str = "# PDF\n", **frontmatter: Any) -> Skill:
    return Skill.from_folder(tree.skill(FOLDER, text=text, **frontmatter))


def sha256(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    return hashlib.sha256(data).hexdigest()


# --- the body ------------------------------------------------------------------------------------


def test_the_body_comes_without_the_frontmatter(tree: Tree) -> None:
    skill = made(tree, "\n# PDF\n\nSee [forms](references/forms.md) and `scripts/run.py`.\n")
    loaded = load_skill_body(skill)
    data = Path(skill.location).read_bytes()
    assert loaded.name == "pdf"
    assert loaded.path == "SKILL.md"
    assert loaded.text == "\n# PDF\n\nSee [forms](references/forms.md) and `scripts/run.py`.\n"
    assert loaded.report._asdict() == {
        "path": skill.location,
        "size": len(data),
        "sha256": sha256(data),
        "excerpt_sha256": sha256(loaded.text),
        "bytes_read": len(data),
        "chars_returned": len(loaded.text),
        "truncated": False,
        "strategy": "whole",
        "references": ("references/forms.md", "scripts/run.py"),
        "storage_ref": "",
        "section_missed": False,
    }


def test_the_body_is_the_one_of_now(tree: Tree) -> None:
    skill = made(tree, "old\n")
    made(tree, "new\n", license="a frontmatter that is longer than it was")
    assert load_skill_body(skill).text == "new\n"


def test_the_body_of_a_skill_made_from_text() -> None:
    skill = Skill.from_text("---\nname: a\ndescription: b\n---\nDo it.\n")
    assert load_skill_body(skill).text == "Do it.\n"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"Just text.\n", "Just text.\n"),
        (b"\xef\xbb\xbfJust text.\n", "Just text.\n"),
        (b"\xef\xbb\xbf---\r\nname: a\r\n---\r\nText\r\n", "Text\r\n"),
        (b"---\nname: a\ndescription: broken: yaml\n---\nText", "Text"),
        (b"---\nname: a\n---", ""),
        (b"", ""),
    ],
)
def test_the_body_of_any_file_a_catalogue_takes(tree: Tree, data: bytes, text: str) -> None:
    tree.write(f"{FOLDER}/SKILL.md", data)
    assert load_skill_body(Skill.from_folder(tree.path(FOLDER))).text == text


def test_frontmatter_that_can_not_be_read_at_all(tree: Tree) -> None:
    tree.write(f"{FOLDER}/SKILL.md", b"---\nname: \xff\xfe\n---\nText\n")
    with pytest.raises(InvalidFrontmatter, match=r"^SKILL\.md: "):
        load_skill_body(Skill.from_folder(tree.path(FOLDER)))


def test_a_body_that_is_not_utf8_names_the_line(tree: Tree) -> None:
    skill = made(tree)
    tree.write(f"{FOLDER}/SKILL.md", b"---\nname: pdf\n---\nfine\n\xff\xfe\n")
    with pytest.raises(FileUnreadable, match=r"not UTF-8 text \(line 2\)"):
        load_skill_body(skill)


def test_a_skill_that_went_away(tree: Tree) -> None:
    skill = made(tree)
    os.unlink(skill.location)
    with pytest.raises(FileUnreadable, match="no such file"):
        load_skill_body(skill)


def test_a_body_that_is_a_link_to_elsewhere_is_refused(tree: Tree) -> None:
    skill = made(tree)
    tree.write("secret", "root:x")
    os.unlink(skill.location)
    os.symlink(tree.path("secret"), skill.location)
    with pytest.raises(PathEscape):
        load_skill_body(skill._replace(fence=skill.dir))


def test_a_body_of_the_users_own_may_be_a_link(tree: Tree) -> None:
    skill = made(tree, "Linked.\n")
    os.rename(skill.location, tree.path("elsewhere"))
    os.symlink(tree.path("elsewhere"), skill.location)
    assert load_skill_body(skill).text == "Linked.\n"


def test_a_file_far_beyond_any_body_is_not_read(tree: Tree) -> None:
    skill = made(tree, "x" * MAX_BODY_FILE_BYTES)
    with pytest.raises(FileTooLarge, match="4,194,304"):
        load_skill_body(skill)
    with pytest.raises(FileTooLarge):
        load_skill_body(Skill.from_text("x" * (MAX_BODY_FILE_BYTES + 1)))


LONG = (
    "# Tool\n\nWhat it is.\n\n## Background\n\n"
    + "Once upon a time.\n" * 400
    + "\n## Steps\n\n"
    + "Do it.\n" * 200
)


def test_a_long_body_is_cut_and_kept_whole(tree: Tree, storage: Storage) -> None:
    skill = made(tree, LONG)
    loaded = load_skill_body(skill, storage=storage)
    report = loaded.report
    assert (report.truncated, report.strategy) == (True, "sections")
    assert report.chars_returned == len(loaded.text) <= 40_000
    assert line_count(loaded.text) <= 500
    assert report.excerpt_sha256 == sha256(loaded.text)
    assert report.sha256 == sha256(Path(skill.location).read_bytes())
    assert "Do it." in loaded.text
    assert "Once" not in loaded.text
    assert loaded.text.endswith(f"The whole text is stored: {report.storage_ref}]\n")
    assert Path(report.storage_ref).read_text("utf-8") == LONG
    assert storage.read(report.storage_ref, 5, 1).text == "## Background\n"


def test_the_same_body_is_cut_in_the_same_way(tree: Tree, storage: Storage) -> None:
    skill = made(tree, LONG)
    assert load_skill_body(skill, storage=storage) == load_skill_body(skill, storage=storage)


def test_without_storage_a_cut_body_has_no_reference(tree: Tree) -> None:
    loaded = load_skill_body(made(tree, LONG))
    assert loaded.report.storage_ref == ""
    assert loaded.text.endswith("Left out: Background.]\n")


def test_a_storage_that_fails_does_not_keep_the_body_back(tree: Tree) -> None:
    tree.write("file")
    loaded = load_skill_body(made(tree, LONG), storage=Storage(tree.path("file/below")))
    assert loaded.report.truncated
    assert loaded.report.storage_ref == ""


def test_other_limits(tree: Tree) -> None:
    skill = made(tree, "a\nb\nc\n")
    assert not load_skill_body(skill, Limits(max_skill_body_lines=3)).report.truncated
    assert load_skill_body(skill, Limits(max_skill_body_lines=2)).report.truncated
    assert load_skill_body(skill, Limits(max_skill_body_chars=5)).report.truncated


def test_arguments_are_put_in(tree: Tree) -> None:
    text = "Read $file in ${CLAUDE_SKILL_DIR}, $1.\n"
    skill = made(tree, text, arguments=["file", "how"])
    assert load_skill_body(skill).text == text
    loaded = load_skill_body(skill, arguments="a.pdf fast", variables={"CLAUDE_SKILL_DIR": "/s"})
    assert loaded.text == "Read a.pdf in /s, fast.\n"
    only = load_skill_body(skill, variables={"CLAUDE_SKILL_DIR": "/s"})
    assert only.text == "Read $file in /s, $1.\n"


def test_arguments_without_a_place_survive_a_cut(tree: Tree) -> None:
    loaded = load_skill_body(made(tree, LONG), arguments="a b")
    assert loaded.text.endswith("]\n\n\nARGUMENTS: a b\n")
    assert line_count(loaded.text) <= 500


@pytest.mark.parametrize("arguments", ["x" * 30_000, "x" * 90_000, "x\n" * 600, "x y\n" * 9_000])
@pytest.mark.parametrize("text", [LONG, "Short.\n", "# A\n\n$ARGUMENTS\n\n# B\n\n$ARGUMENTS\n"])
def test_long_arguments_keep_to_the_limits(tree: Tree, text: str, arguments: str) -> None:
    loaded = load_skill_body(made(tree, text), arguments=arguments)
    assert len(loaded.text) <= 40_000
    assert line_count(loaded.text) <= 500
    whole = substitute(text, arguments)
    assert loaded.report.truncated == (len(whole) > 40_000 or line_count(whole) > 500)


def test_a_body_is_never_expanded_by_a_command_in_it(tree: Tree) -> None:
    marker = tree.path("ran")
    text = f"!`touch {marker}`\n\n```!\ntouch {marker}\n```\n"
    assert load_skill_body(made(tree, text), arguments="").text == text
    assert not marker.exists()


# --- resources -----------------------------------------------------------------------------------


def resource(tree: Tree, text: str | bytes, path: str = "references/a.md") -> Skill:
    skill = made(tree)
    tree.write(f"{FOLDER}/{path}", text)
    return skill


def test_a_short_file_comes_whole(tree: Tree) -> None:
    text = "# A\n\nSee [b](./b.md), [c](/etc/passwd), [d](../d.md), [e](https://e.test/x.md).\n"
    loaded = load_resource(resource(tree, text), "references/a.md")
    assert (loaded.name, loaded.path, loaded.text) == ("pdf", "references/a.md", text)
    assert loaded.report.path == str(tree.path(f"{FOLDER}/references/a.md"))
    assert loaded.report.strategy == "whole"
    assert loaded.report.references == ("b.md",)
    assert loaded.report.sha256 == loaded.report.excerpt_sha256 == sha256(text)


def test_a_leading_dot_and_a_byte_order_mark_are_dropped(tree: Tree) -> None:
    loaded = load_resource(resource(tree, "\ufeffa"), "./references/a.md")
    assert (loaded.path, loaded.text) == ("references/a.md", "a")


def test_a_long_file_gives_its_beginning_to_the_end_of_a_line(tree: Tree, storage: Storage) -> None:
    text = "word word\n" * 3_000
    loaded = load_resource(resource(tree, text), "references/a.md", storage=storage)
    assert loaded.text == "word word\n" * 1_200
    assert loaded.report.truncated
    assert loaded.report.strategy == "head"
    assert Path(loaded.report.storage_ref).read_text() == text


def test_characters_are_never_split(tree: Tree) -> None:
    loaded = load_resource(resource(tree, "語" * 20_000), "references/a.md")
    assert loaded.text == "語" * 12_000
    assert loaded.report.bytes_read == 60_000


def test_all_of_a_file_is_given_when_asked_for_up_to_the_bound_of_a_body(tree: Tree) -> None:
    skill = resource(tree, "word word\n" * 3_000)
    loaded = load_resource(skill, "references/a.md", full=True)
    assert (loaded.report.strategy, loaded.report.truncated) == ("whole", False)
    tree.write(f"{FOLDER}/references/a.md", "word word\n" * 5_000)
    loaded = load_resource(skill, "references/a.md", full=True)
    assert (len(loaded.text), loaded.report.truncated) == (40_000, True)


def test_a_long_file_with_a_late_table_of_contents_gives_that(tree: Tree) -> None:
    text = "# A\n\n" + "preface\n" * 2_000 + "\n## Contents\n\n- b\n\n## B\n\nb\n"
    loaded = load_resource(resource(tree, text), "references/a.md")
    assert loaded.text == "## Contents\n\n- b\n\n"
    assert (loaded.report.strategy, loaded.report.truncated) == ("section", True)


def test_a_table_of_contents_at_the_beginning_comes_with_the_beginning(tree: Tree) -> None:
    text = "# A\n\n## Contents\n\n- b\n\n## B\n\n" + "b\n" * 9_000
    loaded = load_resource(resource(tree, text), "references/a.md")
    assert loaded.text == text[:11_999]
    assert loaded.report.strategy == "head"


def test_a_section_longer_than_the_bound_is_cut(tree: Tree, storage: Storage) -> None:
    text = "# A\n\n## B\n\n" + "b\n" * 9_000 + "## C\n"
    loaded = load_resource(resource(tree, text), "references/a.md", "B", storage=storage)
    assert loaded.text.startswith("## B\n")
    assert len(loaded.text) == 12_000
    assert (loaded.report.strategy, loaded.report.truncated) == ("section", True)
    assert Path(loaded.report.storage_ref).read_text() == text


def test_a_section_is_not_truncated_because_the_file_is_longer(tree: Tree) -> None:
    loaded = load_resource(resource(tree, "# A\n\na\n\n# B\n\nb\n"), "references/a.md", "B")
    assert loaded.text == "# B\n\nb\n"
    assert not loaded.report.truncated
    assert not loaded.report.section_missed


def test_a_missed_section_may_be_an_error_that_names_the_headings(tree: Tree) -> None:
    skill = resource(tree, "# A\n\n## B\n")
    with pytest.raises(SectionNotFound, match=r"references/a\.md: no heading matches 'C'.*: A, B"):
        load_resource(skill, "references/a.md", "C", strict_section=True)
    tree.write(f"{FOLDER}/references/a.md", "text")
    with pytest.raises(SectionNotFound, match="it has no headings"):
        load_resource(skill, "references/a.md", "C", strict_section=True)


@pytest.mark.parametrize("hint", ["", "  "])
def test_an_empty_hint_is_none(tree: Tree, hint: str) -> None:
    loaded = load_resource(resource(tree, "# A\n"), "references/a.md", hint)
    assert not loaded.report.section_missed


def test_lines_are_read_by_number(tree: Tree) -> None:
    skill = resource(tree, "".join(f"{n}\n" for n in range(1, 11)))
    loaded = load_resource(skill, "references/a.md", start_line=3, lines=2)
    assert loaded.text == "3\n4\n"
    assert (loaded.report.strategy, loaded.report.truncated) == ("lines", False)
    assert load_resource(skill, "references/a.md", start_line=9).text == "9\n10\n"
    assert load_resource(skill, "references/a.md", lines=1).text == "1\n"
    assert load_resource(skill, "references/a.md", start_line=11).text == ""


def test_more_lines_than_the_bound_are_cut(tree: Tree) -> None:
    loaded = load_resource(resource(tree, "word word\n" * 3_000), "references/a.md", start_line=2)
    assert loaded.text == "word word\n" * 1_200
    assert loaded.report.truncated


@pytest.mark.parametrize(
    "path",
    [
        "../pdf/SKILL.md",
        "references/../../x.md",
        "/etc/hostname.md",
        "..",
        "",
        "a\0.md",
        "C:\\x.md",
        "references\\a.md",
        "a//b.md",
        "~/../x.md",
        "file:///etc/x.md",
        "references/./a.md",
        "a\n.md",
    ],
)
def test_a_path_that_is_not_plain_is_refused(tree: Tree, path: str) -> None:
    with pytest.raises(PathEscape):
        load_resource(resource(tree, "a"), path)


@pytest.mark.parametrize("path", ["*.md", "references/*", "?.md", "~/a.md", "%2e%2e/x.md"])
def test_names_are_taken_literally(tree: Tree, path: str) -> None:
    with pytest.raises((FileUnreadable, FileTypeRefused)):
        load_resource(resource(tree, "a"), path)


@pytest.mark.parametrize("ending", [*RESOURCE_ENDINGS, ".MD", ".Txt"])
def test_text_files_are_given(tree: Tree, ending: str) -> None:
    assert load_resource(resource(tree, "a", f"a{ending}"), f"a{ending}").text == "a"


@pytest.mark.parametrize("name", ["run.py", "run.sh", "a.html", "Makefile", ".env", "a.md.exe"])
def test_other_files_are_refused_by_name(tree: Tree, name: str) -> None:
    with pytest.raises(FileTypeRefused, match=r"\.md, \.txt, \.json, \.yaml, \.yml"):
        load_resource(resource(tree, "a", name), name)
    assert load_resource(made(tree), name, endings=[os.path.splitext(name)[1]]).text == "a"


@pytest.mark.parametrize(
    ("data", "error", "reason"),
    [
        (PNG, FileTypeRefused, "image/png"),
        (b"\x7fELF" + b"x" * 100, FileTypeRefused, "application/x-executable"),
        (b"PK\x03\x04", FileTypeRefused, "application/zip"),
        (b"%PDF-1.4", FileTypeRefused, "application/pdf"),
        (b"text\0more", FileTypeRefused, "octet-stream"),
        (b"a" * 10_000 + b"\0", FileTypeRefused, "NUL"),
        ("text".encode("utf-16"), FileTypeRefused, "octet-stream"),
        (b"caf\xe9", FileUnreadable, "UTF-8"),
        (b"\xed\xa0\x80", FileUnreadable, "UTF-8"),
    ],
)
def test_other_files_are_refused_by_content(
    tree: Tree, data: bytes, error: type[LoadError], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        load_resource(resource(tree, data), "references/a.md")


def test_a_pipe_named_as_text_is_refused_at_once(tree: Tree) -> None:
    skill = made(tree)
    os.mkfifo(tree.path(f"{FOLDER}/a.md"))
    with pytest.raises(FileTypeRefused):
        load_resource(skill, "a.md")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(200))
@given(
    st.one_of(st.text(), st.lists(st.sampled_from(["..", ".", "", "a.md", "references", "/"]))),
    st.one_of(st.none(), st.text()),
    st.one_of(st.none(), st.integers()),
)
def test_nothing_from_outside_raises_anything_else(
    tmp_path: Path, path: str | list[str], hint: str | None, line: int | None
) -> None:
    (tmp_path / "skill" / "references").mkdir(parents=True, exist_ok=True)
    for name in ("a.md", "references/a.md"):
        (tmp_path / "skill" / name).write_text("inside")
    skill = Skill("x", "x", "x", str(tmp_path / "skill" / "SKILL.md"))
    name = path if isinstance(path, str) else "/".join(path)
    try:
        loaded = load_resource(skill, name, hint, start_line=line, lines=line)
    except SkillbeltError:
        return
    assert "inside".startswith(loaded.text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_any_bytes_are_given_or_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.md").write_bytes(data)
    (tmp_path / "SKILL.md").write_bytes(data)
    skill = Skill.from_folder(tmp_path)
    for path in ("", "a.md"):
        try:
            loaded = load_resource(skill, path) if path else load_skill_body(skill)
        except LoadError:
            continue
        assert loaded.text.encode() in data
        assert loaded.report.bytes_read == len(data)


# --- what is there -------------------------------------------------------------------------------


def test_documents_are_listed_by_name(tree: Tree) -> None:
    skill = made(tree)
    for path in ("b.md", "A.TXT", "references/z/c.md", "run.py", "sub/SKILL.md", "x.json", "z.Md"):
        tree.write(f"{FOLDER}/{path}", "x")
    tree.path(f"{FOLDER}/link.md").symlink_to("b.md")
    assert list_docs(skill) == ["A.TXT", "b.md", "references/z/c.md", "z.Md"]
    for path in list_docs(skill):
        assert load_resource(skill, path).text == "x"


def test_a_loose_skill_file_is_no_document_of_itself(tree: Tree) -> None:
    location = tree.write("loose/skill.md", "---\nname: a\n---\n")
    assert list_docs(Skill.from_file(location)) == []


def test_a_sample_has_absolute_paths_of_some_files(tree: Tree) -> None:
    skill = made(tree)
    for path in ("SKILL.md.bak", ".env", "run.py", "sub/SKILL.md", "sub/a", ".git/config"):
        tree.write(f"{FOLDER}/{path}")
    tree.path(f"{FOLDER}/link").symlink_to("/etc")
    names = [".env", "run.py", "sub/a"]
    assert sample_files(skill) == [str(tree.path(f"{FOLDER}/{name}")) for name in names]


def test_a_sample_is_of_ten_at_most(tree: Tree) -> None:
    skill = made(tree)
    for n in range(20):
        tree.write(f"{FOLDER}/{n:02}.txt")
    assert [os.path.basename(path) for path in sample_files(skill)] == [
        f"{n:02}.txt" for n in range(10)
    ]
    bounds(max_sampled_files=3)
    assert len(sample_files(skill)) == 3


# --- what is told --------------------------------------------------------------------------------


def test_the_block_says_where_the_text_is_from(tree: Tree) -> None:
    skill = made(tree, "Do it.\n")._replace(scope="project")
    loaded = load_skill_body(skill)
    size = os.path.getsize(skill.location)
    assert injection_block(skill, loaded) == (
        "[Skill: pdf | source=project]\n"
        f"[Skill Path: {skill.location}]\n"
        f"[Load Report: sha256={loaded.report.sha256} truncated=false bytes_read={size}]\n"
        "Do it.\n"
    )


def test_the_block_shows_what_the_skill_declares(tree: Tree) -> None:
    declared: dict[str, object] = {
        "allowed-tools": "Bash(git *) Read",
        "disable-model-invocation": True,
    }
    skill = made(tree, "Do it.\n", **declared)
    assert injection_block(skill, load_skill_body(skill)).split("\n")[3:] == [
        "[Constraints: allowed-tools=Bash(git *) Read | disable-model-invocation=true]",
        "Do it.",
        "",
    ]


def test_a_plain_path_is_a_reference_if_there_is_such_a_file(tree: Tree) -> None:
    skill = made(tree, "See docs/kpi.md, docs/none.md and [more](docs/more.md), and/or.else.\n")
    tree.write(f"{FOLDER}/docs/kpi.md")
    assert load_skill_body(skill).report.references == ("docs/more.md", "docs/kpi.md")


def test_the_block_names_what_was_stored(tree: Tree, storage: Storage) -> None:
    skill = made(tree, LONG)
    loaded = load_skill_body(skill, storage=storage)
    report = injection_block(skill, loaded).split("\n")[2]
    assert " truncated=true " in report
    assert report.endswith(f" storage_ref={loaded.report.storage_ref}]")


def test_names_can_not_forge_lines_of_the_block(tree: Tree) -> None:
    skill = made(tree)._replace(
        name="a]\n[Skill: b", origin=Origin("url", "https://e.test/\n[x"), scope="remote"
    )
    first = injection_block(skill, load_skill_body(skill)).split("\n")[0]
    assert first == "[Skill: a] [Skill: b | source=url:https://e.test/ [x]"
