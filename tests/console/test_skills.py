"""The pages about skills; every text of a skill is hostile."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator

import pytest

from skillbelt import Runtime
from skillbelt.console.approved import (
    compare_files,
    find_approved,
    read_files,
    remember_approved,
)
from skillbelt.console.downloads import attach
from skillbelt.console.markdown import render_markdown
from tests.console.desks import SKILLS, console, fill
from tests.tree import Tree

pytestmark = pytest.mark.anyio

HOSTILE = """# Title

<script>alert(1)</script>
<style>body { display: none }</style>
<svg onload="alert(1)"></svg>
![tracker](https://evil.example/pixel.png)
[a link](javascript:alert(1)) [data](data:text/html,<script>alert(1)</script>)
[web](https://example.com/x) [file](guide.md) [up](../../../etc/passwd)
\u202etxet neddih\u202c and \u200bzero

<a href="x" onclick="alert(1)">html</a>
"""


@pytest.fixture
def belt(tree: Tree) -> Iterator[Runtime]:
    with Runtime(fill(tree).project) as belt:
        yield belt


async def test_the_catalogue_has_origin_and_cost(belt: Runtime) -> None:
    async with console(belt) as browser:
        page = await browser.read("/skills")
        for text in ("pdf", "Reads PDF files.", "tokens", "project", "1 skill"):
            assert text in page


async def test_the_search_gives_a_reason(belt: Runtime, tree: Tree) -> None:
    tree.skill(f"{SKILLS}/mail", "Sends letters.")
    async with console(belt) as browser:
        page = await browser.read("/skills?q=pdf")
        assert "found in name" in page
        assert "Sends letters" not in page
        assert "No skill matches" in await browser.read("/skills?q=zzzz")


async def test_a_skill_has_its_text_files_and_use(belt: Runtime) -> None:
    belt.load("pdf")
    async with console(belt) as browser:
        await browser.read("/usage")
        page = await browser.read("/skills/pdf")
        for text in ("<h2>How</h2>", "The body of pdf.", "guide.md", "sha256:", "1 time"):
            assert text in page


async def test_shadowed_skills_are_named(belt: Runtime, tree: Tree) -> None:
    tree.skill("home/.agents/skills/pdf", "An older one.")
    async with console(belt) as browser:
        assert "An older one." in await browser.read("/skills?show=shadowed")
        assert "~/.agents/skills/pdf" in await browser.read("/skills/pdf")


async def test_hostile_markdown_does_nothing(belt: Runtime, tree: Tree) -> None:
    tree.skill(f"{SKILLS}/evil", "<script>alert(1)</script>", text=HOSTILE)
    async with console(belt) as browser:
        page = await browser.read("/skills/evil")
        for text in (
            "<script>", "<style>", "<img", "<svg onload", 'href="javascript', 'href="data',
             '<a href="x"', "\u202e", "\u200b",
        ):  # fmt: skip
            assert text not in page, text
        assert "[picture: tracker]" in page
        assert "U+202E" in page
        assert 'href="/skills/evil/files/guide.md"' in page
        assert 'rel="noopener noreferrer nofollow"' in page
        assert 'passwd"' not in page


async def test_a_file_is_text_or_an_attachment(belt: Runtime) -> None:
    async with console(belt) as browser:
        assert "The guide of pdf." in await browser.read("/skills/pdf/files/guide.md")
        answer = await browser.get("/skills/pdf/files/guide.md?download=1")
        assert answer.headers["content-disposition"].startswith("attachment;")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.text == "The guide of pdf.\n"


@pytest.mark.parametrize("path", ["../../secret.txt", "nothing", "%2e%2e/x", ".git/config"])
async def test_no_other_file_is_sent(belt: Runtime, tree: Tree, path: str) -> None:
    tree.write("project/.agents/secret.txt", "secret")
    async with console(belt) as browser:
        answer = await browser.get(f"/skills/pdf/files/{path}?download=1")
        assert answer.status_code == 404


async def test_a_skill_is_disabled_and_enabled(belt: Runtime) -> None:
    async with console(belt) as browser:
        await browser.send("/skills/pdf", {"change": "disable"})
        assert "pdf" not in belt.look()
        assert "disabled" in await browser.read("/skills/pdf")
        assert "pdf" in await browser.read("/skills?show=disabled")
        await browser.send("/skills/pdf", {"change": "enable"})
        assert "pdf" in belt.look()


async def test_what_was_approved_is_forgotten_with_a_record(belt: Runtime) -> None:
    belt.gate.ledger.remember(belt.gate.load_request(belt.look()["pdf"], "model"), "ada")
    async with console(belt) as browser:
        assert "by ada" in await browser.read("/skills/pdf")
        await browser.send("/skills/pdf", {"change": "revoke"})
        assert belt.gate.ledger.all() == []
        [event] = belt.gate.audit.read(type="revoked")
        assert event.data["by"] == "console ada"


async def test_findings_of_check_are_shown(belt: Runtime, tree: Tree) -> None:
    tree.write(f"{SKILLS}/odd/SKILL.md", "---\nname: Other Name\ndescription: x\n---\ntext\n")
    async with console(belt) as browser:
        page = await browser.read("/skills?show=problems")
        assert "problem" in page


@pytest.mark.parametrize("char", ["\u202e", "\u200b", "\u2066"])
def test_an_entity_hides_nothing(char: str) -> None:
    entity = f"&#x{ord(char):X};"
    shown = render_markdown(f"a{entity}b `c{char}d` [e{entity}](x{entity}.md)", "/files")
    assert char not in shown
    assert shown.count(f"U+{ord(char):04X}") == 3


@pytest.mark.parametrize(
    ("href", "target"),
    [
        ("a%20b.md", "/files/a%20b.md"),
        ("a/../b%25.md", "/files/b%25.md"),
        ("%2e%2e/x", None),
        ("a/%2E%2E/..%2Fx", None),
        ("%2Fetc/passwd", None),
    ],
)
def test_a_link_leads_to_a_file_of_the_skill_or_nowhere(href: str, target: str | None) -> None:
    found = re.findall(r'href="([^"]*)"', render_markdown(f"[x]({href})", "/files"))
    assert found == ([target] if target else [])


async def test_a_file_name_that_is_not_utf8_breaks_no_page(belt: Runtime, tree: Tree) -> None:
    folder = os.fsencode(tree.project / ".agents/skills/pdf")
    with open(os.path.join(folder, b"odd\xff.md"), "wb") as file:
        file.write(b"odd")
    async with console(belt) as browser:
        assert "odd" in await browser.read("/skills/pdf")


def test_an_attachment_has_any_name() -> None:
    answer = attach(io.BytesIO(b"x"), "odd\udcff.md")
    assert "odd_.md" in answer.headers["content-disposition"]


async def test_a_skill_that_changed_says_so_without_a_difference(belt: Runtime) -> None:
    remember_approved(belt, belt.gate.project_key, belt.look()["pdf"], "older", "ada")
    async with console(belt) as browser:
        page = await browser.read("/skills/pdf")
        assert "Changed since ada approved it" in page
        assert "The difference cannot be shown here." in page


async def test_a_name_that_is_not_utf8_is_compared(belt: Runtime, tree: Tree) -> None:
    folder = os.fsencode(tree.project / ".agents/skills/pdf")
    with open(os.path.join(folder, b"odd\xff.md"), "wb") as file:
        file.write(b"odd")
    belt.catalog.refresh()
    skill = belt.look()["pdf"]
    remember_approved(belt, "p", skill, "h", "ada")
    found = find_approved(belt.store, "p", "pdf")
    assert found is not None
    assert compare_files(found.files, read_files(skill)) == []
