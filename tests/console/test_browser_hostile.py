"""Hostile skills in a real browser: nothing runs, loads, leaves its box or looks like a button."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from skillbelt import Runtime
from skillbelt.console.install_pages import begin_add
from skillbelt.console.parts import parts_of
from skillbelt.conversation.requests import RequestLog
from skillbelt.evals.cases import EvalSet
from skillbelt.evals.last_results import keep_results
from skillbelt.evals.outcome import CaseOutcome, EvalReport, MeasuredSkill
from skillbelt.evals.statistics import rate_of
from skillbelt.events import NewEvent
from skillbelt.permission.audit_events import AuditEvent
from skillbelt.permission.rules import Request
from skillbelt.store import SessionKey
from tests import needs
from tests.console.browsers import (
    FITS,
    NARROW,
    WIDE,
    Window,
    made_tree,
    open_chromium,
    refuse_all,
    serve_console,
)
from tests.console.scenes import SKILLS, ask, wait_for_requests, write_run
from tests.desks import until

# A browser that opens every page takes minutes on a busy machine.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900), needs.chromium]

HTML = (
    "</pre></p></dd></li></ol></div></main></title></textarea>"
    "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
    "<svg onload=window.hacked=1><style>*{display:none!important}</style></svg>"
    "<iframe src=https://evil.example></iframe><base href=https://evil.example>"
    "<form action=https://evil.example><button class=primary>Allow once</button></form>"
    "<div style='position:fixed;inset:0;z-index:99'>covered</div>{{ 7*7 }}"
)
BIDI = "\u202ereversed\u202c zero\u200bwidth\u2066isolate\ufeff"
TALL = "Z" + "\u0336\u0310\u030f\u0352\u033e" * 60  # marks that are stacked far above their line
LONG = "w" * 5_000
WORDS = f"{HTML} {BIDI} {TALL} {LONG}"
MARKDOWN = f"""# Title {BIDI}

{HTML}

<script>window.hacked=1</script>

<div onclick="window.hacked=1" class="answers"><button class="primary">Allow once</button></div>

[script](javascript:window.hacked=1) [data](data:text/html,<script>window.hacked=1</script>)
[odd](JaVa&#x09;Script:window.hacked=1) [file](file:///etc/passwd) [out](https://evil.example/a)
[up](../../../../inbox/x) <javascript:window.hacked=1> <https://evil.example/auto>

![far](https://evil.example/pixel.png) ![data](data:image/svg+xml,<svg/onload=window.hacked=1>)
![file](guide.md)

{">" * 300} deep

{"| x " * 200}|
{"| - " * 200}|
{"| " + LONG[:300] + " " + "| y " * 199}|

{"- " * 90}list

    {LONG}

&lt;script&gt;window.hacked=1&lt;/script&gt; &#x202e;entity {TALL}
"""
ANSI = (
    "\x1b]0;a title\x07\x1b]8;;https://evil.example\x07a link\x1b]8;;\x07"
    "\x1b[2J\x1b[H\x1b[999;999H\x1b[?1049h\x1b[31mred\x1b[48;5;196mback\x1b[0m"
    "\x1bP+q544e\x1b\\ \x1b[6n \x9b31m \x08\x08\x08 a\rb\x1b[1A\x1b[2K"
    f"{WORDS}\n" + "line\n" * 500
)
NAMES = (
    '"><img src=x onerror=window.hacked=1>.md',
    "<svg onload=window.hacked=1>.py",
    "javascript:window.hacked=1",
    f"{'n' * 200}.txt",
    "\u202etxt.exe",
)
# What no page may have, wherever it came from.
INSPECT = """() => {
  const here = location.origin;
  const strange = [...document.querySelectorAll(
    'img, iframe, object, embed, style, base, video, audio, main script, [style], [onerror],' +
    '[onload], [onclick], main link')];
  const forms = [...document.forms].filter(one => one.method !== 'dialog'
    && new URL(one.action).origin !== here);
  const links = [...document.querySelectorAll('a[href]')]
    .filter(one => !/^(https?|mailto):$/.test(new URL(one.href).protocol));
  const buttons = [...document.querySelectorAll('.prose button, .prose input, .prose form, '
    + '.terminal button, pre button, pre a, .diff a')];
  const shows = [...document.querySelectorAll('main')].every(one => one.offsetHeight > 50);
  return {
    hacked: window.hacked ?? null,
    found: [...strange, ...forms, ...links, ...buttons].map(one => one.outerHTML.slice(0, 160)),
    bidi: /[\\u202a-\\u202e\\u2066-\\u2069\\u200b\\ufeff]/.test(document.body.innerText),
    shows,
  };
}"""
CLEAN: dict[str, Any] = {"hacked": None, "found": [], "bidi": False, "shows": True}

# Where the answers of each card are, and whether a click at their edges reaches them.
BUTTONS = """() => [...document.querySelectorAll('[data-card]')].map(card => {
  return [...card.querySelectorAll('button')].map(one => {
    one.scrollIntoView({ block: 'center' });
    const at = one.getBoundingClientRect(), inside = card.getBoundingClientRect();
    const spots = [[at.left + 3, at.top + 3], [at.right - 3, at.bottom - 3],
      [(at.left + at.right) / 2, (at.top + at.bottom) / 2]];
    return {
      name: one.textContent.trim(),
      reached: spots.every(([x, y]) => one.contains(document.elementFromPoint(x, y))),
      inside: at.left >= inside.left && at.right <= inside.right && at.bottom <= inside.bottom,
      width: Math.round(at.width), left: Math.round(at.left),
    };
  });
})"""

# Leaves of the hostile card only its answers.
HIDE_THE_REST = """() => {
  const card = document.querySelectorAll('[data-card]')[1];
  for (const one of card.children)
    if (!one.matches('.answers')) one.style.visibility = 'hidden';
}"""


class Trap(NamedTuple):
    """A console full of hostile texts, and a browser."""

    belt: Runtime
    served: Any
    browser: Any
    pages: list[str]


def keep_hostile_result(belt: Runtime) -> None:
    """Keep what a hostile model said of the hostile skill."""
    skill = belt.look()["hostile"]
    case = CaseOutcome(HTML, skill.name, "positive", WORDS, "failed", WORDS, WORDS)
    measured = MeasuredSkill(skill.name, {HTML: rate_of(0, 1)}, WORDS)
    report = EvalReport("trigger", skills=(measured,), cases=(case,))
    keep_results(belt.settings, report, {skill.name: skill}, [EvalSet(skill.name)])


@pytest.fixture(scope="module")
def trap() -> Iterator[Trap]:
    with made_tree() as tree:
        folder = f"{SKILLS}/hostile"
        tree.skill(folder, WORDS[:900], text=MARKDOWN, license=HTML, metadata={HTML: BIDI})
        for name in NAMES:
            tree.write(f"{folder}/docs/{name}", WORDS)
        tree.write(f"{folder}/guide.svg", f"<svg xmlns='http://www.w3.org/2000/svg'>{HTML}</svg>")
        tree.skill(f"{SKILLS}/evil2", TALL, name="<b>evil2</b>")
        with Runtime(tree.project) as belt:
            run = write_run(belt, "hostile", WORDS, 1, printed=ANSI, complained=ANSI,
                            enforced={HTML: WORDS}, warnings=[WORDS], inputs=[WORDS],
                            outputs=[{"name": WORDS, "size": 1, "mime": HTML}],
                            limits_hit=[HTML], hosts=[HTML])  # fmt: skip
            belt.gate.audit.append(AuditEvent(
                time=1.7e9, type="decision", skill="hostile", user=BIDI, agent=HTML,
                session="app/ada/talk", data={"type": "run", "patterns": [WORDS], "reason": WORDS,
                                              "allowed": False, "by": HTML}))  # fmt: skip
            belt.gate.audit.append(
                AuditEvent(time=1.7e9, type="run", skill=HTML, data={"command": WORDS})
            )
            belt.store.append(SessionKey("app", "ada", "talk"), [
                NewEvent("message", data={"role": role, "content": WORDS + MARKDOWN, "tool_calls": [
                    {"id": "1", "name": HTML, "arguments": {"x": WORDS}}]})
                for role in ("user", "assistant", "tool", HTML)])  # fmt: skip
            tools = [{"name": WORDS}, {"function": {"name": HTML}}, {"type": BIDI}, HTML, None]
            RequestLog(belt.store, SessionKey("app", "ada", "talk")).add(
                [{"role": HTML, "content": WORDS, "tool_calls": HTML}], tools=tools, model=WORDS
            )
            keep_hostile_result(belt)
            with serve_console(belt) as served, open_chromium() as browser:
                tree.skill("shelf/hostile", WORDS[:900], text=MARKDOWN)
                tree.skill("shelf/evil2", TALL, name="<b>evil2</b>")
                tree.skill("shelf/plain", HTML[:900], text=HTML)
                tree.write("shelf/plain/'&lt;img src=x onerror=window.hacked=1&gt;.md", HTML)
                # Windows cannot have this name, so the page shows why the skill is refused.
                tree.skill("refused/odd", "Odd.", text="x")
                tree.write(f"refused/odd/{NAMES[0]}", HTML)
                shelf, parts = str(tree.path("shelf")), parts_of(belt)
                wanted: list[tuple[str, tuple[str, ...]]] = [
                    (shelf, ()), (shelf, ("hostile",)), (shelf, ("plain",)),
                    (f"/nowhere/{WORDS[:1900]}", ()),
                ]  # fmt: skip
                jobs = [begin_add(parts, one, scope="user", by=WORDS, names=names)
                        for one, names in wanted]  # fmt: skip
                until(lambda: all(one.state != "fetching" for one in jobs))
                odd = str(tree.path("refused"))
                jobs.append(begin_add(parts, odd, scope="user", by=WORDS, names=("odd",)))
                until(lambda: jobs[4].state != "fetching")
                states = (jobs[0].state, jobs[2].state, jobs[4].state)
                assert states == ("choose", "ready", "failed")
                pages = ["/", "/skills", "/skills?q=title", "/skills/hostile", "/runs",
                         f"/runs/{run}", "/conversations", "/conversations/app/ada/talk", "/log",
                         "/conversations/app/ada/talk/requests/1", "/usage", "/doctor", "/install",
                         *(f"/install/{one.id}" for one in jobs)]  # fmt: skip
                yield Trap(belt, served, browser, pages)


@pytest.fixture
def window(trap: Trap) -> Iterator[Window]:
    opened = Window(trap.browser, trap.served)
    yield opened
    refuse_all(trap.belt)
    opened.close()


def hostile_request() -> Request:
    return Request(
        "run", (WORDS,), (WORDS,), summary=WORDS, agent=HTML, session="app/ada/1", skill="hostile",
        hash="h" * 400, origin=WORDS, metadata={"call": {"command": [WORDS], HTML: WORDS}},
    )  # fmt: skip


HARMLESS = Request(
    "run", ("make",), ("make",), summary="run make", agent="builder", session="app/ada/1",
    skill="other", hash="h1", origin="local", metadata={"call": {"command": ["make"]}},
)  # fmt: skip


def test_no_page_runs_loads_or_breaks(trap: Trap, window: Window) -> None:
    ask(trap.belt, [hostile_request()])
    wait_for_requests(trap.belt, 1)
    wrong = {}
    page = window.open("/skills/hostile")
    links = page.locator("aside a[href*='/files/']")
    files = links.evaluate_all("all => all.map(one => one.getAttribute('href'))")
    assert len(files) >= len(NAMES)
    for path in (*trap.pages, *files):
        window.open(path)
        for size in (NARROW, WIDE):
            page.set_viewport_size(size)
            page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            found = {**page.evaluate(INSPECT), **window.measure()}
            if found != {**CLEAN, **FITS}:
                wrong[path, size["width"]] = found
            assert "<span" not in page.title()
    assert wrong == {}


@pytest.mark.parametrize("size", [NARROW, WIDE], ids=["phone", "desk"])
def test_the_answers_are_not_moved_covered_or_imitated(
    trap: Trap, window: Window, size: Any
) -> None:
    ask(trap.belt, [HARMLESS])
    wait_for_requests(trap.belt, 1)
    ask(trap.belt, [hostile_request()])
    wait_for_requests(trap.belt, 2)
    window.page.set_viewport_size(size)
    page = window.open("/")
    harmless, hostile = page.evaluate(BUTTONS)
    assert all(one["reached"] and one["inside"] for one in (*harmless, *hostile))
    assert hostile == harmless
    answers = page.locator(".answers").nth(1)
    before = answers.screenshot()
    page.evaluate(HIDE_THE_REST)
    assert answers.screenshot() == before  # not a pixel of another text was upon them


def test_links_of_a_skill_lead_to_its_files_or_say_where(trap: Trap, window: Window) -> None:
    page = window.open("/skills/hostile")
    links = page.locator(".prose a[href]").evaluate_all("all => all.map(one => one.href)")
    away = {one for one in links if not one.startswith(f"{trap.served.url}/skills/hostile/files/")}
    assert away == {"https://evil.example/a", "https://evil.example/auto"}
    rel = page.locator(".prose a[href^=https]").first.get_attribute("rel")
    assert "noreferrer" in (rel or "")
