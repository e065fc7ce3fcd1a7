"""The console in a real browser: every page on a phone and at a desk, keys, news, no script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import expect

from skillbelt import Runtime
from skillbelt.permission.rules import Request
from skillbelt.running.call import Asker, RunCall
from skillbelt.running.history import RunHistory
from skillbelt.store import SessionKey
from tests import needs
from tests.console.browsers import (
    FITS,
    FOCUS,
    NARROW,
    WIDE,
    ServedConsole,
    Window,
    made_tree,
    open_chromium,
    refuse_all,
    serve_console,
)
from tests.console.providers import Provider, serve_provider, trusting
from tests.console.scenes import (
    Scene,
    ask,
    begin_installs,
    describe_requests,
    list_pages,
    make_scene,
    wait_for_requests,
    write_skills,
)
from tests.desks import result, until

pytestmark = needs.chromium

RUN = Request("run", ("make all",), ("make all",), summary="run make all", agent="builder",
              session="app/ada/1", skill="csv-report", hash="h1", origin="local")  # fmt: skip


class Desk(NamedTuple):
    """A project at work, its console, and a browser."""

    scene: Scene
    pages: dict[str, str]
    served: ServedConsole
    provider: Provider
    browser: Any

    @property
    def belt(self) -> Runtime:
        return self.scene.belt


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    with made_tree() as tree:
        write_skills(tree)
        with Runtime(tree.project) as belt:
            scene = make_scene(belt, tree)
            with (
                serve_provider("localhost") as provider,
                serve_console(belt, lambda: trusting(provider)) as served,
                open_chromium() as browser,
            ):
                pages = {**list_pages(scene), **begin_installs(belt, tree)}
                yield Desk(scene, pages, served, provider, browser)


@pytest.fixture
def window(desk: Desk) -> Iterator[Window]:
    opened = Window(desk.browser, desk.served)
    yield opened
    refuse_all(desk.belt)
    opened.close()


@pytest.fixture
def plain(desk: Desk) -> Iterator[Window]:
    """A browser without JavaScript."""
    opened = Window(desk.browser, desk.served, java_script_enabled=False)
    yield opened
    refuse_all(desk.belt)
    opened.close()


@pytest.mark.long
def test_every_page_fits_a_phone_and_a_desk(desk: Desk, window: Window) -> None:
    ask(desk.belt, describe_requests(desk.belt))
    wait_for_requests(desk.belt, 3)
    wrong = {}
    for name, path in desk.pages.items():
        window.open(path)
        for size in (NARROW, WIDE):
            window.page.set_viewport_size(size)
            if (found := window.measure()) != FITS:
                wrong[name, size["width"]] = found
    assert wrong == {}


@pytest.mark.long
def test_the_doors_fit_and_need_no_mouse(desk: Desk, window: Window) -> None:
    window.context.clear_cookies()
    page = window.open("/sign-in")
    for size in (NARROW, WIDE):
        page.set_viewport_size(size)
        assert window.measure() == FITS
    page.goto(desk.served.link())
    page.wait_for_url(f"{desk.served.url}/")
    assert page.get_by_role("heading", name="Inbox").is_visible()


@pytest.mark.long
def test_a_person_signs_in_at_a_provider_of_another_site(desk: Desk, window: Window) -> None:
    window.sites.append(desk.provider.url)
    window.context.clear_cookies()
    page = window.open("/sign-in")
    page.get_by_role("link", name="Sign in with your organisation").click()
    page.wait_for_url(f"{desk.served.url}/")
    assert page.locator(".who .name").inner_text() == "ada@example.com"
    [cookie] = window.context.cookies()
    assert (cookie["sameSite"], cookie["httpOnly"]) == ("Strict", True)
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("link", name="Sign out at your provider too").wait_for()


def test_a_request_arrives_counts_and_is_answered_by_keys(desk: Desk, window: Window) -> None:
    page = window.open("/")
    assert page.title() == "Inbox · skillbelt"
    page.get_by_role("heading", name="Nothing waits").wait_for()
    [first] = ask(desk.belt, [RUN])
    expect(page).to_have_title("(1) Inbox · skillbelt")
    page.locator("[data-card]").wait_for()
    page.keyboard.press("j")
    found = page.evaluate(FOCUS)
    assert (found["marked"], found["seen"]) == (True, True)
    page.keyboard.press("o")
    assert result(first).by == "once"
    expect(page).to_have_title("Inbox · skillbelt")


def test_a_refusal_has_a_reason_that_outlives_news(desk: Desk, window: Window) -> None:
    page = window.open("/")
    [first] = ask(desk.belt, [RUN])
    page.locator("[data-card]").wait_for()
    page.keyboard.press("j")
    page.keyboard.press("n")
    page.keyboard.type("not on a Fri")
    # Of another conversation: a refusal is for all that one asks.
    [second] = ask(desk.belt, [RUN._replace(patterns=("make two",), session="app/ada/2")])
    expect(page.locator("[data-card]")).to_have_count(2)
    page.keyboard.type("day")
    page.keyboard.press("Enter")
    answer = result(first).answer
    assert answer is not None
    assert (answer.kind, answer.message) == ("reject", "not on a Friday")
    assert not second.done()


@pytest.mark.long
def test_other_pages_count_too(desk: Desk, window: Window) -> None:
    page = window.open("/skills")
    ask(desk.belt, [RUN])
    expect(page).to_have_title("(1) Skills · skillbelt")
    assert page.locator("#badge").inner_text() == "1"


@pytest.mark.long
def test_a_hidden_page_notifies_who_allowed_it(desk: Desk, window: Window) -> None:
    window.context.grant_permissions(["notifications"], origin=desk.served.url)
    window.page.add_init_script("""
      Object.defineProperty(document, 'hidden', { get: () => true });
      window.notices = [];
      const Real = window.Notification;
      window.Notification = class {
        constructor(title, more) { notices.push([title, more.body]); }
      };
      window.Notification.permission = Real.permission;
    """)
    page = window.open("/")
    assert page.evaluate("Notification.permission") == "granted"
    assert page.locator("#notify").is_hidden()
    ask(desk.belt, [RUN])
    until(lambda: page.evaluate("window.notices.length"))
    assert page.evaluate("window.notices[0]") == ["skillbelt asks", "One request waits"]


def test_a_skill_is_searched_and_opened_by_keys(window: Window) -> None:
    page = window.open("/skills")
    page.keyboard.press("/")
    page.keyboard.type("bank statements")
    expect(page.locator(".count")).to_contain_text("“bank statements”")
    page.keyboard.press("Enter")
    page.wait_for_url("**/skills?q=bank+statements**")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="ledger-reconcile", level=1).wait_for()


@pytest.mark.long
def test_a_run_is_followed_and_stopped_by_keys(desk: Desk, window: Window) -> None:
    belt, key = desk.belt, SessionKey("app", "ada", "stop")
    skill = belt.look()["csv-report"]
    id = belt.background.start(skill, RunCall(("sleep", "600")), Asker(key))
    history = RunHistory(belt.store)
    until(lambda: history.select(state="running")[0])
    page = window.open("/runs?state=running")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Stop").wait_for()
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(FOCUS)["name"] == "BUTTON Stop":
            break
    page.keyboard.press("Enter")
    until(lambda: not belt.background.poll(key, id).running)
    page.get_by_role("heading", name="stopped").wait_for()


@pytest.mark.long
def test_without_a_script_everything_is_still_there(desk: Desk, plain: Window) -> None:
    [first] = ask(desk.belt, [RUN])
    wait_for_requests(desk.belt, 1)  # the older one comes first
    [second] = ask(desk.belt, [RUN._replace(patterns=("make two",), always=())])
    wait_for_requests(desk.belt, 2)
    page = plain.open("/")
    assert page.title().startswith("(2) ")
    page.get_by_role("button", name="Allow once").first.click()
    assert page.get_by_text("Allowed once.").is_visible()
    assert result(first).by == "once"
    page.get_by_label("Reason for the model").fill("no")
    page.get_by_role("button", name="No").click()
    answer = result(second).answer
    assert answer is not None
    assert answer.message == "no"
    page.get_by_role("link", name="Skills").click()
    page.get_by_label("Search the full text").fill("bank statements")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name="ledger-reconcile").click()
    page.get_by_role("link", name="Log").click()
    page.get_by_label("Type").select_option("run")
    page.get_by_role("button", name="Show").click()
    kinds = set(page.locator("td.kind").all_inner_texts())
    assert kinds == {"run"}
    before = page.locator("tbody tr").first.inner_text()
    page.get_by_role("link", name="Older").click()
    assert set(page.locator("td.kind").all_inner_texts()) == {"run"}
    assert page.locator("tbody tr").first.inner_text() != before
