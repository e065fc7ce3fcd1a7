"""The published form of a skill."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from skillbelt import Runtime
from skillbelt.mcp.published import PublishedSkills, read_bytes, unpublished
from tests.mcp.conftest import SKILLS
from tests.tree import Tree


@pytest.fixture
def offer(belt: Runtime) -> PublishedSkills:
    belt.look()
    return PublishedSkills(belt)


def test_an_entry_names_every_file_with_its_digest(offer: PublishedSkills, skills: Tree) -> None:
    published = offer.find_skill("pdf")
    assert published is not None
    entry = published.entry()
    assert entry["uri"] == "skill://pdf/SKILL.md"
    assert entry["frontmatter"] == {
        "name": "pdf",
        "description": "Reads PDF files.",
        "license": "MIT",
    }
    folder = skills.path(f"{SKILLS}/pdf")
    wanted = [
        {
            "uri": "skill://pdf/" + path.relative_to(folder).as_posix().replace(" ", "%20"),
            "digest": f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}",
            "size": path.stat().st_size,
        }
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    assert sorted(entry["resources"], key=lambda one: one["uri"]) == sorted(  # type: ignore[call-overload]
        wanted, key=lambda one: str(one["uri"])
    )


def test_the_frontmatter_is_published_to_the_letter(skills: Tree) -> None:
    skills.write(
        f"{SKILLS}/odd/SKILL.md",
        "---\nname: odd\ndescription: >-\n  Odd,\n  folded.\nallowed-tools: Bash(git *) Read\n"
        "license: 'Apache-2.0'\nmetadata:\n  since: '2024-01-02'\n---\n",
    )
    with Runtime(skills.project) as belt:
        belt.look()
        published = PublishedSkills(belt).find_skill("odd")
    assert published is not None
    assert published.frontmatter == {
        "name": "odd",
        "description": "Odd, folded.",
        "allowed-tools": "Bash(git *) Read",
        "license": "Apache-2.0",
        "metadata": {"since": "2024-01-02"},
    }


def test_a_change_is_another_entry(offer: PublishedSkills, skills: Tree) -> None:
    before = offer.find_skill("pdf")
    assert offer.find_skill("pdf") == before
    skills.write(f"{SKILLS}/pdf/guide.md", "Changed.\n")
    after = offer.find_skill("pdf")
    assert before is not None
    assert after is not None
    assert before.files["guide.md"].sha256 != after.files["guide.md"].sha256


NOTE = "name: note\ndescription: Takes notes."


@pytest.mark.parametrize(
    ("head", "told"),
    [
        ("name: Note Taker\ndescription: Takes notes.", "the name 'Note Taker' holds"),
        ("name: note\ndescription: Takes notes: all of them", "SKILL.md"),
        (f"name: note\ndescription: {'x' * 1_025}", "SKILL.md:3: warning"),
        ("description: Takes notes.", "there is no name"),
        (f"{NOTE}\nallowed-tools:\n  - Read", "SKILL.md:4: warning mcp-not-published"),
        (f"{NOTE}\nallowed-tools: Read, Write", "allowed-tools has commas"),
        (f"{NOTE}\nmetadata:\n  version: 1.10", "metadata values are not text: 'version'"),
        (f"{NOTE}\nmetadata:\n  tags: [a]", "metadata"),
        (f"{NOTE}\nmetadata: hello", "metadata"),
        (f"{NOTE}\nlicense: 2", "SKILL.md:4: warning mcp-not-published"),
        (f"{NOTE}\ncompatibility: ''", "compatibility is empty"),
        (f"{NOTE}\ncompatibility: {'x' * 600}", "compatibility has 600 characters"),
        (f"{NOTE}\nversion: '1'", "'version' is not part of the specification"),
    ],
)
def test_what_others_would_refuse_is_not_published_and_told(
    skills: Tree, caplog: pytest.LogCaptureFixture, head: str, told: str
) -> None:
    skills.write(f"{SKILLS}/note/SKILL.md", f"---\n{head}\n---\nBody.\n")
    with Runtime(skills.project) as belt:
        offer = PublishedSkills(belt)
        assert len(offer.names()) == 3, "it is there as a tool"
        for _ in range(2):
            assert {name for name in offer.names() if offer.find_skill(name)} == {"notes", "pdf"}
        [said] = unpublished(belt.discover_skills())
    [record] = [one for one in caplog.records if one.name == "skillbelt.mcp.published"]
    assert told in record.getMessage()
    assert (said.code, said.path) == (
        "mcp-not-published",
        str(skills.path(f"{SKILLS}/note/SKILL.md")),
    )
    assert said.remedy


def test_a_skill_is_published_whatever_its_folder_is_called(skills: Tree) -> None:
    skills.write(f"{SKILLS}/folder/SKILL.md", f"---\n{NOTE}\n---\nBody.\n")
    with Runtime(skills.project) as belt:
        belt.look()
        published = PublishedSkills(belt).find_skill("note")
    assert published is not None
    assert published.uri.endswith("note/SKILL.md")


def test_many_that_are_not_published_do_not_fill_the_log(
    skills: Tree, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(30):
        skills.write(f"{SKILLS}/many-{number:02}/SKILL.md", "---\ndescription: x\n---\n")
    with Runtime(skills.project) as belt:
        offer = PublishedSkills(belt)
        assert [name for name in offer.names() if offer.find_skill(name)] == ["notes", "pdf"]
    told = [one for one in caplog.records if one.name == "skillbelt.mcp.published"]
    assert len(told) == 21
    assert "skillbelt doctor --verbose" in told[-1].getMessage()


def test_links_are_no_part_of_what_is_published(offer: PublishedSkills, skills: Tree) -> None:
    os.symlink("/etc/passwd", skills.path(f"{SKILLS}/pdf/secret.md"))
    os.symlink("/etc", skills.path(f"{SKILLS}/pdf/folder"))
    published = offer.find_skill("pdf")
    assert published is not None
    assert not {path for path in published.files if "secret" in path or "folder" in path}
    assert offer.find("skill://pdf/secret.md") is not None, "found, and not among the files"
    assert "secret.md" not in published.files


def test_a_skill_too_large_to_name_all_of_it_is_not_published(
    skills: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skillbelt.files.tree.MAX_MANIFEST_FILES", 3)
    with Runtime(skills.project) as belt:
        offer = PublishedSkills(belt)
        assert offer.names() == ["notes", "pdf"]
        assert offer.find_skill("notes") is not None
        assert offer.find_skill("pdf") is None


def test_folders_are_found_from_the_files(offer: PublishedSkills) -> None:
    published = offer.find_skill("pdf")
    assert published is not None
    children = published.children("")
    assert children is not None
    assert [name for name, file in children.items() if file is None] == ["forms", "scripts"]
    assert list(published.children("forms") or {}) == ["a b.md"]
    assert published.children("guide.md") is None
    assert published.children("none") is None


def test_a_file_that_is_another_by_now_is_not_given(offer: PublishedSkills, skills: Tree) -> None:
    published = offer.find_skill("pdf")
    assert published is not None
    guide = published.files["guide.md"]
    assert read_bytes(published, guide) == b"The guide of pdf.\n"
    file = Path(skills.path(f"{SKILLS}/pdf/guide.md"))
    file.write_bytes(b"THE GUIDE OF PDF.\n")
    assert read_bytes(published, guide) is None
    file.unlink()
    assert read_bytes(published, guide) is None
    os.symlink("/etc/passwd", file)
    assert read_bytes(published, guide) is None
    file.unlink()
    os.mkfifo(file)
    assert read_bytes(published, guide) is None
