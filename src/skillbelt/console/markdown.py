"""Render the Markdown of a skill as passive HTML, without scripts, styles, images and raw HTML."""

from __future__ import annotations

import posixpath
import re
from functools import cache
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from skillbelt.text import hidden

MAX_CHARS = 400_000
# Placeholders around the number of an invisible character, until the HTML is rendered.
_BEGIN, _END = "\ue000", "\ue001"
_MARKED = re.compile(f"{_BEGIN}([0-9A-F]+){_END}")
_TAGS = {
    "p", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "pre", "code", "em", "strong", "del",
    "blockquote", "table", "thead", "tbody", "tr", "th", "td", "hr", "br", "a", "span",
}  # fmt: skip
_ATTRIBUTES = {"a": {"href"}, "ol": {"start"}, "pre": {"tabindex"}, "table": {"tabindex"}}
_CLASSES = {"span": {"picture"}}
_WEB = ("http", "https", "mailto")


def render_markdown(text: str, files: str = "") -> Markup:
    """Return the text as HTML; links inside a skill lead to the address `files`.

    Images are named and not loaded. Headings begin at the second level, since the page itself has
    the first.
    """
    said = _mark_hidden(text[:MAX_CHARS])
    made = _parser().render(said, {"files": files})
    clean = nh3.clean(
        made,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        allowed_classes=_CLASSES,
        url_schemes=set(_WEB),
        link_rel="noopener noreferrer nofollow",
        strip_comments=True,
    )
    shown = _MARKED.sub(_show_mark, clean)
    # Entities can produce hidden characters again; the URL of a link is ASCII.
    for char in set(hidden(shown)):
        shown = shown.replace(char, _name_char(f"{ord(char):04X}"))
    return Markup(shown)


def _mark_hidden(text: str) -> str:
    plain = text.replace(_BEGIN, "").replace(_END, "")
    for char in set(hidden(plain)):
        plain = plain.replace(char, f"{_BEGIN}{ord(char):04X}{_END}")
    return plain


def _show_mark(found: re.Match[str]) -> str:
    return _name_char(found[1])


def _name_char(number: str) -> str:
    return f'<span class="odd" title="a character that is not visible">U+{number}</span>'


@cache
def _parser() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "linkify": False, "typographer": False})
    made.enable(["table", "strikethrough"])
    made.add_render_rule("image", _render_image)
    made.add_render_rule("link_open", _render_link)
    made.add_render_rule("heading_open", _render_heading)
    made.add_render_rule("heading_close", _render_heading)
    made.add_render_rule("table_open", _render_table)
    made.add_render_rule("fence", _render_code)
    made.add_render_rule("code_block", _render_code)
    return made


def _escape(text: str) -> str:
    return (
        text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    )


def _render_image(self: Any, tokens: list[Token], at: int, options: Any, env: Any) -> str:
    name = tokens[at].content or str(tokens[at].attrs.get("src", ""))
    return f'<span class="picture">[picture: {_escape(name)}]</span>'


def _render_link(self: Any, tokens: list[Token], at: int, options: Any, env: Any) -> str:
    target = _find_target(str(tokens[at].attrs.get("href", "")), env["files"])
    return f'<a href="{_escape(target)}">' if target else "<a>"


def _find_target(href: str, files: str) -> str:
    """Return where a link leads: to the web, to a file of the skill, or nowhere."""
    try:
        parts = urlsplit(href)
    except ValueError:
        return ""
    if parts.scheme or parts.netloc:
        return href if parts.scheme in _WEB else ""
    path = posixpath.normpath(unquote(parts.path)) if parts.path else ""
    if not path or not files or path.startswith(("/", "..")):
        return ""
    return f"{files}/{quote(path, safe='/', errors='replace')}"


def _render_heading(self: Any, tokens: list[Token], at: int, options: Any, env: Any) -> str:
    level = min(int(tokens[at].tag[1]) + 1, 6)
    return f"<h{level}>" if tokens[at].nesting == 1 else f"</h{level}>\n"


def _render_table(self: Any, tokens: list[Token], at: int, options: Any, env: Any) -> str:
    # A wide table is in a scrollable box that can have the keyboard focus.
    return '<table tabindex="0">\n'


def _render_code(self: Any, tokens: list[Token], at: int, options: Any, env: Any) -> str:
    return f'<pre tabindex="0"><code>{_escape(tokens[at].content)}</code></pre>\n'
