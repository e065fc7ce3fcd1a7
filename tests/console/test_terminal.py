from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.console.markdown import render_markdown
from skillbelt.console.render import show_plain
from skillbelt.console.terminal import render_output

ALLOWED = re.compile(r'</?span(?: class="[a-z0-9 ]*")?(?: title="[a-z ]*")?>')


def shown(text: str, stream: str = "stdout") -> str:
    return str(render_output([(stream, text)]))


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("plain", "plain"),
        ("\x1b[32mok\x1b[0m!", '<span class="c2">ok</span>!'),
        ("\x1b[1;4mx\x1b[22my", '<span class="tb tu">x</span><span class="tu">y</span>'),
        ("\x1b[38;5;196mx\x1b[38;2;1;2;3my", "xy"),
        ("\x1b[91mx\x1b[39my", '<span class="c1">x</span>y'),
        ("a\x1b[2Jb\x1b[10;10Hc", "abc"),
        ("\x1b]8;;http://evil\x07link\x1b]8;;\x07", "link"),
        ("\x1b]0;unfinished", ""),
        ("1 %\r50 %\r100 %\n", "100 %\n"),
        ("a\r\nb", "a\nb"),
        ("<b>&", "&lt;b&gt;&amp;"),
    ],
)
def test_colours_are_classes_and_all_else_is_gone(text: str, html: str) -> None:
    assert shown(text) == html


def test_errors_are_marked() -> None:
    assert shown("x", "stderr") == '<span class="err">x</span>'


@given(st.text(st.characters() | st.sampled_from("\x1b[]0123456789;m\x07\r\n<>&\"'")))
def test_output_never_becomes_html(text: str) -> None:
    made = shown(text)
    left = ALLOWED.sub("", made)
    assert "<" not in left
    assert "\x1b" not in left
    assert made.count("<span") == made.count("</span>")


@given(st.text(st.characters() | st.sampled_from("<>&\u202e\u200b\x00\n")))
def test_plain_text_never_becomes_html(text: str) -> None:
    left = ALLOWED.sub("", str(show_plain(text)))
    assert "<" not in left
    assert "\u202e" not in left


TAGS = re.compile(r"<(/?)([a-z0-9]*)([^>]*)>")
SAFE = {
    "p", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "pre", "code", "em", "strong", "del",
    "blockquote", "table", "thead", "tbody", "tr", "th", "td", "hr", "br", "a", "span",
}  # fmt: skip
PIECES = st.sampled_from((
    "<script>", "</script>", "<img src=x onerror=y>", "![a](http://x/y.png)", "[l](javascript:x)",
    "[l](vbscript:x)", "[f](a/b.md)", "[r]: data:text/html,x", "`", "```", "\n", "# ", "> ",
    "| a |", "<!--", "-->", "&lt;", "&#106;avascript:", "\u202e", "\ue000", "\ue001",
    '"', "'", "<a href=",
    "**", "text", "<svg/onload=x>", "<http://e.example>", "\\", "\t",
))  # fmt: skip


@given(st.lists(PIECES | st.text(), max_size=12).map("".join))
def test_markdown_gives_only_tags_that_do_nothing(text: str) -> None:
    for close, name, rest in TAGS.findall(str(render_markdown(text, "/files"))):
        assert name in SAFE
        assert not re.search(r"\b(on\w+|src|style|id)\s*=", re.sub(r'"[^"]*"', '""', rest))
        if name == "a" and not close and "href" in rest:
            target = re.search(r'href="([^"]*)"', rest)
            assert target is not None
            assert target[1].startswith(("http://", "https://", "mailto:", "/files/"))
