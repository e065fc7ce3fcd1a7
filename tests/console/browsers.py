"""A console on a real port, and a real browser before it."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn
from playwright.sync_api import expect, sync_playwright

from skillbelt import Runtime
from skillbelt.console.people import Person, ReadAccess, admit_tokens_only
from skillbelt.console.serve import ALL_ENDPOINTS, Served, build_console
from skillbelt.console.sign_in import COOKIE, SignIns
from skillbelt.permission.rules import Answer
from skillbelt.permission.waiting import EveryRequest
from skillbelt.serving.api import HttpApi
from skillbelt.serving.guard import guarded
from skillbelt.serving.probes import Probes
from skillbelt.serving.sockets import ListenAddress, open_socket
from skillbelt.serving.tokens import TokenBook
from tests.desks import until
from tests.tree import Tree, sheltered

FLAGS = (
    "--no-sandbox",  # tests run as root, too
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NARROW: Any = {"width": 380, "height": 800}
WIDE: Any = {"width": 1440, "height": 900}
PATIENCE = 120_000  # milliseconds; only a page that hangs takes as long
TOKEN = "a-token-of-the-test"


class ServedConsole(NamedTuple):
    """A console that listens, and what signs people in."""

    url: str
    signs: SignIns

    def cookie(self, name: str = "ada", role: Any = "admin") -> Any:
        """The cookie of a person, for a browser."""
        value = self.signs.begin(Person(name, role))
        return {"name": COOKIE, "value": value, "url": self.url, "sameSite": "Strict"}

    def link(self) -> str:
        """A link that signs in once."""
        token = self.signs.make_link_token(Person("ada", "admin"))
        return f"{self.url}/sign-in?token={token}"


@contextmanager
def serve_console(belt: Runtime, access: ReadAccess = admit_tokens_only) -> Iterator[ServedConsole]:
    """A console with the API on a free port, in a thread."""
    opened = open_socket(ListenAddress("127.0.0.1", 0))
    port, book, signs = opened.getsockname()[1], TokenBook.of(TOKEN), SignIns()
    api = HttpApi(belt, book, ALL_ENDPOINTS)
    inner = guarded(Probes(api, belt, "http"), tokens=book, host="127.0.0.1", port=port)
    served = Served(host="127.0.0.1", port=port, access=access)
    app = build_console(inner, belt=belt, tokens=book, sign_ins=signs, served=served)
    config = uvicorn.Config(app, log_config=None, log_level="error", ws="none", lifespan="off",
                            timeout_graceful_shutdown=5)  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([opened],), daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield ServedConsole(f"http://127.0.0.1:{port}", signs)
    finally:
        app.close()
        server.should_exit = True
        thread.join()
        api.close()
        opened.close()


@contextmanager
def open_chromium() -> Iterator[Any]:
    """A browser without a window."""
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=list(FLAGS), timeout=PATIENCE
        )
        try:
            yield browser
        finally:
            browser.close()


# Marks a window in which a script of a skill ran, and tells of what the policy of a page stopped.
WATCH = """
window.addEventListener('securitypolicyviolation', one =>
  console.error('policy: ' + one.violatedDirective + ' ' + one.blockedURI));
"""

# What sticks out of the page, or is cut off by a box that does not scroll.
MEASURE = """() => {
  const width = document.documentElement.clientWidth;
  const scrolls = one => ['auto', 'scroll'].includes(getComputedStyle(one).overflowX);
  const boxed = one => {
    for (let up = one; up; up = up.parentElement)
      if (scrolls(up) && up.getBoundingClientRect().right <= width + 1) return true;
    return false;
  };
  const quiet = '.visually-hidden, .path, .skip, .day, thead *, thead';
  const all = [...document.querySelectorAll('body *')]
    .filter(one => one.getClientRects().length && !one.closest(quiet));
  const out = all.filter(one => {
    const box = one.getBoundingClientRect();
    return (box.right > width + 1 || box.left < -1) && !one.closest('svg') && !boxed(one);
  });
  const cut = all.filter(one => {
    const style = getComputedStyle(one);
    const clips = ['hidden', 'clip'].includes(style.overflowX) || style.contain.includes('paint');
    return clips && !one.closest('svg') && one.scrollWidth > one.clientWidth + 1;
  });
  return {
    page: document.documentElement.scrollWidth - width,
    out: out.map(one => one.outerHTML.slice(0, 120)),
    cut: cut.map(one => one.outerHTML.slice(0, 120)),
  };
}"""
# What a browser measures on a page that fits.
FITS = {"page": 0, "out": [], "cut": []}

# Where the focus is: whether it can be seen, and what it is on.
FOCUS = """() => {
  const one = document.activeElement, box = one.getBoundingClientRect();
  const style = getComputedStyle(one), card = one.closest('.card');
  const marked = (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2)
    || (one === card && getComputedStyle(card).boxShadow !== 'none');
  return {
    name: one.tagName + ' ' + (one.getAttribute('aria-label') || one.textContent).trim()
      .slice(0, 60),
    marked,
    seen: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
    end: one === document.body,
  };
}"""


class Window:
    """A tab of a browser before a console, and everything that it complained of."""

    def __init__(self, browser: Any, served: ServedConsole, **options: Any) -> None:
        """Open it, signed in as an admin."""
        # Without motion: what moves for ever would be drawn for ever.
        given = {"viewport": WIDE, "color_scheme": "light", "reduced_motion": "reduce"}
        options = {**given, **options}
        self.url, self.complaints = served.url, list[str]()
        self.sites = [served.url]  # where it may go
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(PATIENCE)
        self.context.add_cookies([served.cookie()])
        self.page = self.context.new_page()
        if options.get("java_script_enabled", True):
            self.page.add_init_script(WATCH)
        note = self.complaints.append
        self.page.on("console", lambda one: note(f"{self.page.url}: {one.type}: {one.text}"))
        self.page.on("pageerror", lambda one: note(f"{self.page.url}: {one}"))
        self.page.on("dialog", lambda one: (note(f"{self.page.url}: {one.message}"), one.dismiss()))
        self.page.on("popup", lambda one: note(f"{self.page.url}: opened {one.url}"))
        self.context.on("request", self._look_at_request)
        self.context.on("response", self._look_at_answer)

    def _look_at_request(self, request: Any) -> None:
        if not request.url.startswith(tuple(self.sites)):
            self.complaints.append(f"{self.page.url}: asked for {request.url}")

    def _look_at_answer(self, answer: Any) -> None:
        if answer.status >= 400:
            self.complaints.append(f"{answer.status}: {answer.url}")

    def open(self, path: str) -> Any:
        """Show a page of the console."""
        self.page.goto(self.url + path)
        return self.page

    def measure(self) -> Any:
        """What does not fit, once the fonts are there."""
        self.page.evaluate("document.fonts.ready")
        return self.page.evaluate(MEASURE)

    def close(self) -> None:
        """Close it; whatever the browser complained of is a fault."""
        self.context.close()
        assert self.complaints == []


@contextmanager
def made_tree() -> Iterator[Tree]:
    """A tree for all tests of a module, which commands in a sandbox reach."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.lower().endswith("_proxy"):
                patch.delenv(name)
        root = Path(tempfile.mkdtemp(prefix="console-"))
        root.chmod(0o755)
        try:
            with sheltered(root):
                yield Tree(root, patch)
        finally:
            shutil.rmtree(root, ignore_errors=True)


def refuse_all(belt: Runtime) -> None:
    """Answer whatever waits, so that no thread waits longer."""
    every = EveryRequest(belt.store)
    for id, posted in every.waiting().items():
        every.answer(posted.pending.project, id, Answer("reject"))
    until(lambda: not every.waiting())
