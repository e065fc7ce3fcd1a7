"""The documentation as a site: built once, by the real builder, and read as text.

What only a browser can tell is in `tests/test_site_browser.py`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.sites import build_site, built

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
# What a reader sees: the same whether GitHub shows the page or the site does.
TAGS = ("h1", "h2", "h3", "h4", "ul", "ol", "li", "table", "th", "td", "strong", "em", "pre")
COMMONMARK = MarkdownIt("commonmark").enable("table")


class Reader(HTMLParser):
    """The article of one page: how many of each tag, its code blocks, its links and ids."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.code: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self._open: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if id := given.get("id"):
            self.ids.add(id)
        if tag in ("article", "pre"):
            self._open.append(tag)
        if "article" not in self._open:
            return
        self.tags[tag] += 1
        if tag == "a" and (link := given.get("href")):
            self.links.append(link)
        if tag == "pre":
            self.code.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("article", "pre"):
            self._open.remove(tag)

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["pre"]:
            self.code[-1] += data


@cache
def read(path: Path) -> Reader:
    """Read a page once; many links lead to the same one."""
    return Reader(path)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; a broken link or anchor fails the build."""
    return build_site(tmp_path_factory.mktemp("site"))


def tokens(page: Path) -> list[Token]:
    """What CommonMark, and so GitHub, makes of a page."""
    every: list[Token] = []
    for token in COMMONMARK.parse(page.read_text("utf-8")):
        every += [token, *(token.children or [])]
    return every


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_site_shows_what_github_shows(page: Path, site: Path) -> None:
    expected = tokens(page)
    code = [one.content for one in expected if one.type in ("fence", "code_block")]
    tags = Counter(one.tag for one in expected if one.nesting == 1)
    found = read(built(site, page))
    assert [one.split() for one in found.code] == [one.split() for one in code]
    tags["pre"] = len(code)
    assert {tag: found.tags[tag] for tag in TAGS} == {tag: tags[tag] for tag in TAGS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_the_site_leads_somewhere(page: Path, site: Path) -> None:
    path = built(site, page)
    for link in read(path).links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        target = target / "index.html" if target.is_dir() else target
        assert target.is_relative_to(site.resolve()) and target.is_file(), link
        if parts.fragment:
            assert unquote(parts.fragment) in read(target).ids, link


def test_a_file_to_write_is_named_before_its_text() -> None:
    """GitHub does not show the title of a fence."""
    named = 0
    for page in (ROOT / "README.md", *PAGES):
        text = page.read_text("utf-8")
        for fence in re.finditer(r'^```\w* title="([^"]+)"$', text, re.MULTILINE):
            before = text[: fence.start()].rstrip().rpartition("\n\n")[2]
            assert f"`{fence[1]}`" in before, f"{page.name}: {fence[1]}"
            named += 1
    assert named >= 5


def test_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    pattern = re.compile(r'<(?:script|img|link)[^>]* (?:src|href)="(?:https?:)?//[^"]*"')
    for page in site.rglob("*.html"):
        assert pattern.findall(page.read_text("utf-8")) == [], page


@pytest.mark.long
def test_a_broken_link_fails_the_build(tmp_path: Path) -> None:
    """What `--strict` promises."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A\n\n[b](b.md)\n")
    (tmp_path / "zensical.toml").write_text('[project]\nsite_name = "x"\n')
    done = subprocess.run(
        [str(Path(sys.executable).with_name("zensical")), "build", "--strict"],
        cwd=tmp_path,
        capture_output=True,
        timeout=500,
        check=False,
    )
    assert done.returncode != 0


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_text_that_needs_nothing_else(picture: Path) -> None:
    text = picture.read_text("utf-8")
    drawing = ElementTree.fromstring(text)
    words = [one.text for one in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert len([word for word in words if word]) >= 5
    assert drawing.find("{http://www.w3.org/2000/svg}title") is not None
    for forbidden in ("<image", "<script", "@import", "@font-face", "url(", "xlink:href"):
        assert forbidden not in text
    assert any(picture.name in page.read_text("utf-8") for page in PAGES)


def test_the_site_has_search_and_both_schemes(site: Path) -> None:
    text = (site / "index.html").read_text("utf-8")
    assert 'data-md-color-scheme="slate"' in text
    assert 'data-md-color-scheme="default"' in text
    assert (site / "search.json").exists()
    assert (site / "llms.txt").exists()
