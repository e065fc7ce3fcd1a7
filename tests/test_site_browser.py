"""Every page of the documentation in a real browser: what a reader with a phone or a desk sees."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag

import pytest

from tests import needs
from tests.sites import PAGES, ROOT, build_site, built

pytestmark = [pytest.mark.long, needs.chromium]

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
READABLE = 4.5  # the least contrast of text, by the Web Content Accessibility Guidelines
PATIENCE = 120_000  # milliseconds; only a page that hangs takes as long
DARK = "body[data-md-color-scheme=slate]"
# What Markdown leaves in a text that it did not understand.
RAW = re.compile(r"```|~~~|\*\*|\]\(|<!--|-->|</?\w+>|^#{1,6} |^\|.*\||^:::", re.MULTILINE)

WAIT_FOR_PICTURES = """() => Promise.all([...document.images].map(one => one.decode()))"""

# The text without code, and the code by itself: a garbled fence shows in either.
READ = """() => {
  const article = document.querySelector('article').cloneNode(true);
  const code = [...article.querySelectorAll('pre')].map(one => one.textContent);
  article.querySelectorAll('pre, code').forEach(one => one.replaceWith('CODE'));
  return {
    text: article.textContent,
    code,
    images: [...document.querySelectorAll('article img')].map(one => ({
      source: one.getAttribute('src'), alt: one.alt, width: one.naturalWidth,
    })),
    links: [...document.querySelectorAll('a[href]')].map(one => one.href),
    ids: [...document.querySelectorAll('[id]')].map(one => one.id),
  };
}"""

# What sticks out to the right and is in no box that scrolls. Names in tables are never broken.
MEASURE = """() => {
  const width = document.documentElement.clientWidth;
  const scrolls = one => ['auto', 'scroll'].includes(getComputedStyle(one).overflowX);
  const boxed = one => {
    for (let up = one; up && up.tagName !== 'ARTICLE'; up = up.parentElement)
      if (scrolls(up) && up.getBoundingClientRect().right <= width + 1) return true;
    return false;
  };
  const out = [...document.querySelectorAll('article *')]
    .filter(one => !one.closest('svg') && one.getClientRects().length)
    .filter(one => one.getBoundingClientRect().right > width + 1 && !boxed(one));
  const broken = [...document.querySelectorAll('td code')]
    .filter(one => /^[\\w.]+$/.test(one.textContent) && one.getClientRects().length > 1);
  return {
    page: document.documentElement.scrollWidth - width,
    out: out.map(one => one.outerHTML.slice(0, 80)),
    broken: broken.map(one => one.textContent),
  };
}"""

# The lowest contrast of text with its background, as the accessibility guidelines compute it.
CONTRAST = """() => {
  const parse = text => {
    const canvas = document.createElement('canvas');
    canvas.width = canvas.height = 1;
    const brush = canvas.getContext('2d', { willReadFrequently: true });
    brush.fillStyle = text;
    brush.fillRect(0, 0, 1, 1);
    return [...brush.getImageData(0, 0, 1, 1).data];
  };
  const known = new Map();
  const colour = text => known.get(text) || (known.set(text, parse(text)), known.get(text));
  const over = (top, below) => {
    const a = top[3] / 255;
    return [0, 1, 2].map(i => top[i] * a + below[i] * (1 - a)).concat(255);
  };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const below = one => {
    const layers = [];
    for (let up = one; up; up = up.parentElement)
      layers.unshift(colour(getComputedStyle(up).backgroundColor));
    return layers.reduce((down, top) => over(top, down), [255, 255, 255, 255]);
  };
  let lowest = { ratio: 21, text: '' };
  for (const one of document.querySelectorAll(
      'article p, article li, article td, article th, article h1, article h2, article p > a,' +
      'article p > code, article td > code, article li > code, .md-nav a')) {
    if (!one.getClientRects().length || !one.textContent.trim()) continue;
    const ground = below(one);
    const [a, b] = [light(over(colour(getComputedStyle(one).color), ground)), light(ground)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < lowest.ratio) lowest = { ratio, text: one.outerHTML.slice(0, 80) };
  }
  return { ...lowest, scheme: document.body.dataset.mdColorScheme };
}"""

# What the switch in the head of a page does.
DARKEN = """() => {
  document.body.setAttribute('data-md-color-switching', '');  // no colours on their way
  document.body.setAttribute('data-md-color-scheme', 'slate');
}"""

# Texts of a drawing that leave it, or the smallest box that they begin in.
DRAWN = """() => {
  const all = [...document.querySelectorAll('rect')].map(one => one.getBBox());
  const whole = document.querySelector('svg').viewBox.baseVal;
  return [...document.querySelectorAll('text')].filter(one => {
    const box = one.getBBox();
    const around = all
      .filter(b => b.x <= box.x && box.x <= b.x + b.width
        && b.y <= box.y && box.y <= b.y + b.height)
      .sort((a, b) => a.width * a.height - b.width * b.height)[0] || whole;
    return box.x + box.width > around.x + around.width || box.y + box.height > whole.height;
  }).map(one => one.textContent);
}"""


class Seen(NamedTuple):
    """What the browser found on one page."""

    read: dict[str, Any]
    narrow: dict[str, Any]
    wide: dict[str, Any]
    light: dict[str, Any]
    dark: dict[str, Any]


class Visit(NamedTuple):
    """One browser that saw every page."""

    base: str
    page: Any
    pages: dict[str, Seen]
    complaints: list[str]


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder, without a log."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def visit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    """Every page seen once, narrow and wide, light and dark, in one browser."""
    from playwright.sync_api import sync_playwright

    site = build_site(tmp_path_factory.mktemp("site"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    base = f"http://127.0.0.1:{server.server_port}/"
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=list(FLAGS), timeout=PATIENCE
        )
        page = browser.new_context(viewport=NARROW).new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda one: complaints.append(f"{page.url}: {one.type}: {one.text}"))
        page.on("pageerror", lambda one: complaints.append(f"{page.url}: {one}"))
        page.on("request", lambda one: note_stranger(one.url, base, complaints))
        page.on("response", lambda one: note_failure(one.status, one.url, complaints))
        places = [built(site, one).parent.relative_to(site).as_posix() for one in PAGES]
        urls = [base if place == "." else f"{base}{place}/" for place in places]
        pages = {url: look(page, url) for url in urls}
        yield Visit(base, page, pages, complaints)
        browser.close()
    server.shutdown()
    server.server_close()
    thread.join()


def note_stranger(url: str, base: str, complaints: list[str]) -> None:
    """Complain of a request to anywhere but the site."""
    if not url.startswith((base, "data:", "blob:")):
        complaints.append(f"fetched {url}")


def note_failure(status: int, url: str, complaints: list[str]) -> None:
    """Complain of a file that is not there."""
    if status >= 400:
        complaints.append(f"{status}: {url}")


def look(page: Any, url: str) -> Seen:
    """Return what there is to see on a page, each size and scheme without loading it anew."""
    page.set_viewport_size(NARROW)
    page.emulate_media(color_scheme="light")
    page.goto(url)
    page.evaluate(WAIT_FOR_PICTURES)
    read, narrow, light = (page.evaluate(one) for one in (READ, MEASURE, CONTRAST))
    page.evaluate(DARKEN)
    dark = page.evaluate(CONTRAST)
    page.set_viewport_size(WIDE)
    return Seen(read, narrow, page.evaluate(MEASURE), light, dark)


def test_every_page_was_seen(visit: Visit) -> None:
    assert len(visit.pages) == len(PAGES) > 40
    assert all(len(seen.read["text"]) > 300 for seen in visit.pages.values())


def test_no_page_shows_raw_markup(visit: Visit) -> None:
    raw = {url: RAW.findall(seen.read["text"]) for url, seen in visit.pages.items()}
    assert {url: found for url, found in raw.items() if found} == {}
    fences = [url for url, seen in visit.pages.items() if "```" in "".join(seen.read["code"])]
    assert fences == []


def test_no_page_is_wider_than_a_phone(visit: Visit) -> None:
    wrong = {
        (url, size): found
        for url, seen in visit.pages.items()
        for size, found in (("narrow", seen.narrow), ("wide", seen.wide))
        if found["page"] > 0 or found["out"]
    }
    assert wrong == {}


def test_no_name_in_a_table_is_broken(visit: Visit) -> None:
    broken = {url: seen.narrow["broken"] for url, seen in visit.pages.items()}
    assert {url: names for url, names in broken.items() if names} == {}


def test_every_link_and_anchor_is_alive(visit: Visit) -> None:
    dead = []
    for url, seen in visit.pages.items():
        for link in seen.read["links"]:
            target, anchor = urldefrag(link.split("?")[0])
            if not target.startswith(visit.base):
                continue
            found = visit.pages.get(target)
            if found is None or (anchor and unquote(anchor) not in found.read["ids"]):
                dead.append(f"{url}: {link}")
    assert dead == []


def test_every_picture_is_drawn_and_described(visit: Visit) -> None:
    images = [one for seen in visit.pages.values() for one in seen.read["images"]]
    assert len(images) >= 5
    assert [one for one in images if one["width"] < 100 or len(one["alt"]) < 10] == []


def test_text_can_be_read_in_light_and_dark(visit: Visit) -> None:
    for seen in visit.pages.values():
        assert (seen.light["scheme"], seen.dark["scheme"]) == ("default", "slate")
    poor = {
        (found["scheme"], found["text"]): found["ratio"]
        for seen in visit.pages.values()
        for found in (seen.light, seen.dark)
        if found["ratio"] < READABLE
    }
    assert poor == {}


def test_nothing_fails_and_nothing_comes_from_elsewhere(visit: Visit) -> None:
    assert visit.complaints == []


def test_no_text_of_a_drawing_leaves_its_box(visit: Visit) -> None:
    page = visit.page.context.new_page()
    for picture in sorted((ROOT / "docs" / "pictures").glob("*.svg")):
        page.set_content(picture.read_text("utf-8"), timeout=PATIENCE)
        assert (picture.name, page.evaluate(DRAWN)) == (picture.name, [])
    page.close()


def test_the_search_finds_a_word(visit: Visit) -> None:
    page = visit.page
    page.set_viewport_size(WIDE)
    page.goto(visit.base)
    page.get_by_role("button", name="Search").first.click()
    page.get_by_role("combobox", name="Search").fill("landlock")
    first = page.get_by_role("option").first
    first.wait_for()
    first.click()
    page.wait_for_url("**/concepts/sandbox/**")
    assert visit.complaints == []


def test_a_system_that_is_dark_gets_dark_pages(visit: Visit) -> None:
    context = visit.page.context.browser.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(visit.base, timeout=PATIENCE)
    page.wait_for_selector(DARK, state="attached", timeout=PATIENCE)
    context.close()


def test_a_reader_can_switch_to_dark(visit: Visit) -> None:
    page = visit.page
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(WIDE)
    page.goto(visit.base)
    page.get_by_title("Use dark colours").click()
    page.wait_for_selector(DARK, state="attached")
