"""The pages of the log, of conversations, of use and of health."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from skillbelt import Runtime
from skillbelt.console import log
from skillbelt.events import NewEvent
from skillbelt.permission.audit_events import AuditEvent
from skillbelt.store import SessionKey
from tests.console.desks import Browser, console, fill
from tests.tree import Tree

pytestmark = pytest.mark.anyio


@pytest.fixture
def belt(tree: Tree) -> Iterator[Runtime]:
    with Runtime(fill(tree).project) as belt:
        yield belt


def note(belt: Runtime, number: int, **more: object) -> None:
    event = AuditEvent(time=float(number), type="run", data={"command": f"event-{number:04}."})
    belt.gate.audit.append(event._replace(**more))  # type: ignore[arg-type]


async def walk(browser: Browser, address: str) -> list[str]:
    """The events of all pages."""
    found: list[str] = []
    while address:
        page = await browser.read(address)
        found += re.findall(r"event-(\d+)\.", page)
        link = re.search(r'href="([^"]*)" rel="next"', page)
        address = link[1].replace("&amp;", "&") if link else ""
    return found


async def test_pages_have_every_event_once_the_newest_first(belt: Runtime) -> None:
    for number in range(250):
        # Many of one moment: they stand on two pages.
        note(belt, number, time=float(number // 60))
    async with console(belt) as browser:
        assert await walk(browser, "/log") == [f"{n:04}" for n in reversed(range(250))]


async def test_filters_stay_from_page_to_page(belt: Runtime) -> None:
    for number in range(300):
        note(belt, number, skill="pdf" if number % 2 else "mail", session="a/b/c")
    async with console(belt) as browser:
        found = await walk(browser, "/log?skill=pdf&session=a/b/c&type=run")
        assert found == [f"{n:04}" for n in reversed(range(300)) if n % 2]
        assert await walk(browser, "/log?age=1h") == []


async def test_the_log_is_exported(belt: Runtime) -> None:
    note(belt, 1, skill="=cmd()")
    async with console(belt) as browser:
        answer = await browser.get("/log/export?form=jsonl")
        assert answer.headers["content-disposition"].startswith("attachment;")
        assert json.loads(answer.text)["data"]["command"] == "event-0001."
        text = (await browser.get("/log/export?form=csv")).text
        assert "event-0001." in text
        assert "'=cmd()" in text


async def test_hostile_events_stay_text(belt: Runtime) -> None:
    note(belt, 1, skill="<script>alert(1)</script>", user="\u202eroot", agent="<svg/onload=x>")
    async with console(belt) as browser:
        for path in ("/log", "/usage"):
            page = await browser.read(path)
            assert "<script>alert" not in page
            assert "<svg/onload" not in page
            assert "\u202e" not in page


async def test_a_conversation_shows_what_was_said_and_loaded(belt: Runtime) -> None:
    session = belt.session("ada", "talk/1")
    key = session.session.key
    belt.store.append(key, [
        NewEvent("message", data={"role": "user", "content": "Read <b>my</b> file"}),
        NewEvent("message", data={"role": "assistant", "content": "I look.", "tool_calls": [
            {"id": "1", "name": "skill_load", "arguments": {"skill": "pdf"}}]}),
    ])  # fmt: skip
    session.call_sync("skill_load", {"skill": "pdf"}, "1")
    async with console(belt) as browser:
        listed = await browser.read("/conversations")
        assert "Read &lt;b&gt;my&lt;/b&gt; file" in listed
        link = re.search(r'href="(/conversations/[^"]+)"', listed)
        assert link is not None
        page = await browser.read(link[1])
        for text in ("I look.", "skill_load", "skill loaded pdf", 'class="dot"'):
            assert text in page


async def test_what_the_product_keeps_is_no_conversation(belt: Runtime) -> None:
    belt.store.append(SessionKey("skillbelt:runs", "all", "x"), [NewEvent("a")])
    async with console(belt) as browser:
        assert "No conversations" in await browser.read("/conversations")
        answer = await browser.get("/conversations/skillbelt:runs/all/x")
        assert answer.status_code == 404


async def test_use_counts_loads_runs_and_failures(belt: Runtime) -> None:
    belt.load("pdf")
    note(belt, 1, skill="pdf", data={"exit_code": 1, "duration_ms": 1500})
    async with console(belt) as browser:
        page = await browser.read("/usage")
        assert "1.5 s" in page
        assert "0 % went well" in page


async def test_health_names_sandboxes_and_folders(belt: Runtime) -> None:
    async with console(belt) as browser:
        page = await browser.read("/doctor")
        for text in ("bubblewrap", ".agents/skills", "config.toml"):
            assert text in page


async def test_the_export_has_names_that_are_not_utf8(belt: Runtime) -> None:
    note(belt, 1, skill="odd\udcff")
    note(belt, 2)
    async with console(belt) as browser:
        text = (await browser.get("/log/export?form=csv")).text
        assert "odd\\udcff" in text
        assert "event-0002." in text


async def test_an_address_does_not_make_the_server_read_the_whole_log(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, limits = belt.gate.audit.read, []

    def watch(**options: Any) -> Iterator[AuditEvent]:
        limits.append(options["limit"])
        return read(**options)

    monkeypatch.setattr(belt.gate.audit, "read", watch)
    async with console(belt) as browser:
        await browser.read("/log?before=5.0|999999")
    assert max(limits) < 2_000


async def test_pages_go_on_after_very_many_events_of_one_moment(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "MAX_SKIPPED", 150)
    for number in range(260):
        note(belt, number, time=1.0 if number < 10 else 2.0)
    async with console(belt) as browser:
        found = await walk(browser, "/log")
        assert found[-10:] == [f"{n:04}" for n in reversed(range(10))]
        assert len(found) == len(set(found)) == 210


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", "\t=1", "\n=1", " =1", "\uff1d1"])
def test_no_cell_is_a_formula(text: str) -> None:
    assert log._cell(text) == f"'{text}"
