"""Very much at once in a real browser: 50 requests, 10,000 skills, 100,000 events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from skillbelt import Runtime
from skillbelt.permission.audit import AuditLog
from skillbelt.permission.audit_events import AuditEvent, encode_event
from skillbelt.permission.rules import Answer, Request
from skillbelt.permission.waiting import EveryRequest
from tests import needs
from tests.console.browsers import (
    Window,
    made_tree,
    open_chromium,
    refuse_all,
    serve_console,
)
from tests.console.scenes import ask
from tests.desks import result
from tests.tree import Tree

# A browser that opens every page takes minutes on a busy machine.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900), needs.chromium]

REQUESTS, SKILLS, EVENTS = 50, 10_000, 100_000
WHERE = "one => one.getBoundingClientRect().top"


def request(number: int) -> Request:
    text = f"make part-{number:02}"
    return Request("run", (text,), (text,), summary=f"run {text}", agent="builder",
                   session=f"app/ada/{number}", skill="csv-report", hash="h1")  # fmt: skip


def write_log(belt: Runtime) -> None:
    """As lines from before the log had a chain: they are written a hundred times as fast."""
    log = belt.gate.audit
    assert isinstance(log, AuditLog)
    start = time.time() - EVENTS
    log.append(AuditEvent(time=start - 1, type="load", skill="first"))
    with open(f"{log.folder}/log.jsonl", "wb") as file:
        for number in range(EVENTS):
            file.write(encode_event(AuditEvent(
                time=start + number, type="run", skill="common" if number % 1_000 else "rare",
                data={"command": f"event-{number:06}", "exit_code": 0})))  # fmt: skip


@pytest.fixture(scope="module")
def tree() -> Iterator[Tree]:
    with made_tree() as tree:
        yield tree


@pytest.fixture(scope="module")
def place(tree: Tree) -> Iterator[tuple[Runtime, Any, Any]]:
    with Runtime(tree.project) as belt, serve_console(belt) as served, open_chromium() as browser:
        yield belt, served, browser


@pytest.fixture
def window(place: Any) -> Iterator[Window]:
    belt, served, browser = place
    opened = Window(browser, served)
    yield opened
    refuse_all(belt)
    opened.close()


def test_requests_that_come_at_once_are_shown_and_answered(place: Any, window: Window) -> None:
    belt, _, _ = place
    page = window.open("/")
    page.get_by_role("heading", name="Nothing waits").wait_for()
    asking = ask(belt, [request(number) for number in range(REQUESTS)])
    expect(page.locator("[data-card]")).to_have_count(REQUESTS)
    expect(page).to_have_title(f"({REQUESTS}) Inbox · skillbelt")
    page.keyboard.press("j")
    for left in range(REQUESTS - 1, REQUESTS - 4, -1):
        page.keyboard.press("o")
        expect(page.locator("[data-card]")).to_have_count(left)
        # The next one has the focus.
        expect(page.locator("[data-card]").first).to_be_focused()
    forms = page.locator(".answers form:not(.refuse)").evaluate_all(
        "all => all.map(one => [one.action, one.elements.form_token.value])"
    )
    for address, token in forms:
        form = {"form_token": token, "answer": "once"}
        assert page.request.post(address, form=form, max_redirects=0).status == 303
    assert [result(one).by for one in asking] == ["once"] * REQUESTS
    page.get_by_role("heading", name="Nothing waits").wait_for()


def test_what_is_pointed_at_stays_where_it_is(place: Any, window: Window) -> None:
    belt, _, _ = place
    page = window.open("/")
    ask(belt, [request(number) for number in range(12)])
    expect(page.locator("[data-card]")).to_have_count(12)
    card = page.locator("[data-card]").nth(6)
    button = page.locator(f"#{card.get_attribute('id')}").get_by_role("button", name="Allow once")
    button.hover()
    before = button.evaluate(WHERE)
    every = EveryRequest(belt.store)
    [first, second, *_] = every.waiting().items()
    for id, posted in (first, second):  # answered elsewhere, above the pointer
        every.answer(posted.pending.project, id, Answer("reject"))
    ask(belt, [request(number) for number in range(20, 23)])
    expect(page.locator("[data-card]")).to_have_count(13)
    assert abs(button.evaluate(WHERE) - before) <= 2


def test_a_second_click_answers_no_other_request(place: Any, window: Window) -> None:
    """The next card comes to where the one was that is gone."""
    belt, _, _ = place
    page = window.open("/")
    ask(belt, [request(number) for number in range(2)])
    expect(page.locator("[data-card]")).to_have_count(2)
    page.evaluate("""() => {
      // A click as soon as the list has moved, by the same hand at the same place. Other swaps
      // may still come: each request that is asked redraws the list.
      document.addEventListener('htmx:after:swap', () => {
        const cards = document.querySelectorAll('[data-card]').length;
        if (document.body.dataset.clicked || cards > 1) return;
        document.body.dataset.clicked = 'yes';
        const one = document.querySelector('.answers .primary');
        one?.dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true, detail: 2 }));
      });
    }""")
    page.get_by_role("button", name="Allow once").first.click()
    expect(page.locator("body[data-clicked]")).to_have_count(1)
    expect(page.locator("[data-card]")).to_have_count(1)
    expect(page.locator("body[data-moved]")).to_have_count(0)
    page.get_by_role("button", name="Allow once").click()
    expect(page.locator("[data-card]")).to_have_count(0)


def test_ten_thousand_skills_are_paged_and_searched(tree: Tree, place: Any, window: Window) -> None:
    folder = tree.path("project/.agents/skills")
    for number in range(SKILLS):
        one = folder / f"skill-{number:05}"
        one.mkdir(parents=True)
        head = f"name: skill-{number:05}\ndescription: Counts word{number:05} in a text."
        (one / "SKILL.md").write_text(f"---\n{head}\n---\nx\n")
    belt, _, _ = place
    belt.catalog.refresh()
    page = window.open("/skills")
    expect(page.locator(".count")).to_have_text("10,000 skills, 1 to 50")
    assert page.locator("[data-row]").count() == 50
    page.get_by_role("link", name="More").click()
    expect(page.locator(".count")).to_have_text("10,000 skills, 51 to 100")
    page.get_by_label("Search the full text").press_sequentially("word07654")
    expect(page.locator(".count")).to_contain_text("“word07654”")
    expect(page.locator("[data-row] .title a").first).to_have_text("skill-07654")


def test_a_hundred_thousand_events_are_paged_filtered_and_exported(
    place: Any, window: Window
) -> None:
    belt, _, _ = place
    write_log(belt)
    page = window.open("/log")
    expect(page.locator("tbody tr")).to_have_count(100)
    expect(page.locator("tbody tr").first).to_contain_text(f"event-{EVENTS - 1:06}")
    page.get_by_role("link", name="Older").click()
    expect(page.locator("tbody tr").first).to_contain_text(f"event-{EVENTS - 101:06}")
    page.get_by_label("Skill").fill("rare")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody tr")).to_have_count(100)
    expect(page.locator("tbody tr").last).to_contain_text("event-000000")
    page.goto(f"{window.url}/log")
    with page.expect_download() as begun:
        page.get_by_role("link", name="JSON lines").click()
    with open(begun.value.path(), encoding="utf-8") as file:
        assert sum(1 for _ in file) == EVENTS
