"""Bad neighbours: what real collections and hostile hands put where a SKILL.md should be.

The text shapes are the classes that strict readers fail on in public skills, and those that are
readable but outside the specification; the rest is made to hang, crash or slow a reader down.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Callable
from typing import NamedTuple

D = "Reads a PDF file."
BODY = "# Title\n\nFirst paragraph of the body.\n"
DERIVED = "First paragraph of the body."


class Shape(NamedTuple):
    """What to put into a folder, and what a catalogue must make of it.

    `description` is what the skill must say; empty: found, but without one; None: skipped. `code`
    is the diagnostic a catalogue must give, `rule` the one a check must; neither: all is well.
    """

    name: str
    write: Callable[[str], None]
    description: str | None
    code: str = ""
    rule: str = ""


# --- shapes that are only text -------------------------------------------------------------------


def _block(*lines: str) -> str:
    """A well closed block with these lines after a good name."""
    return "\n".join(["---", "name: {name}", *lines, "---", BODY])


def _shape(
    name: str, text: str | bytes, description: str | None, code: str = "", rule: str = ""
) -> Shape:
    # In a text `{name}` stands for the folder's name, so that only what is meant is wrong, and
    # U+DC80 to U+DCFF for single bytes.
    text = text.replace("{name}", name) if isinstance(text, str) else text
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text

    def write(folder: str) -> None:
        with open(os.path.join(folder, "SKILL.md"), "wb") as file:
            file.write(data)

    return Shape(name=name, write=write, description=description, code=code, rule=rule)


MENDED = "yaml-repaired"
UNREADABLE_TO_YAML = [
    _shape("no-frontmatter", BODY, DERIVED, "frontmatter-missing"),
    _shape("no-frontmatter-prose", f"{D}\n\nMore.\n", D, "frontmatter-missing"),
    _shape("only-a-heading", "# Reads PDF\n", "Reads PDF", "frontmatter-missing"),
    _shape("colon", _block("description: Use when: asked"), "Use when: asked", MENDED),
    _shape("colon-list", _block("description: Does x. Triggers: a, b"),
           "Does x. Triggers: a, b", MENDED),
    _shape("colon-other-field", _block(f"description: {D}", "compatibility: needs: git"),
           D, MENDED),
    _shape("star-value", _block("description: **Bold** start"), "**Bold** start", MENDED),
    _shape("star-word", _block("description: *all files"), "*all files", MENDED),
    _shape("name-missing", f"---\ntitle: PDF\ndescription: {D}\n---\n{BODY}", D,
           rule="name-missing"),
    _shape("name-translated", f"---\n名称: pdf\ndescription: {D}\n---\n{BODY}", D,
           rule="name-missing"),
    _shape("description-missing", _block("license: MIT"), "", "description-missing"),
    _shape("description-translated", _block("描述: 读取文件"), "", "description-missing"),
    _shape("description-empty", _block("description:"), "", "description-missing"),
    _shape("description-quoted-empty", _block('description: ""'), "", "description-missing"),
    _shape("stray-line", _block("description: Reads a", "PDF file."), D, MENDED),
    _shape("closing-glued", f"---\nname: {{name}}\ndescription: {D}\n---{BODY}", D, MENDED),
    _shape("closing-long", f"---\nname: {{name}}\ndescription: {D}\n------\n{BODY}", D, MENDED),
    _shape("text-after-quote", _block('description: "Reads a PDF file." 读取文件。'),
           "Reads a PDF file. 读取文件。", MENDED),
    _shape("list-under-scalar", _block("description: Reads:", "- PDF", "- text"),
           "Reads:\n- PDF\n- text", MENDED),
    _shape("opening-missing", f"name: {{name}}\ndescription: {D}\n---\n{BODY}", D, MENDED),
    _shape("opening-and-closing-missing", f"name: {{name}}\ndescription: {D}\n\n{BODY}", D, MENDED),
    _shape("closing-missing", f"---\nname: {{name}}\ndescription: {D}\n\n{BODY}", D,
           "frontmatter-unclosed"),
    _shape("heading-first", f"# PDF\n\n{_block(f'description: {D}')}", D, MENDED),
    _shape("prose-first", f"Here it is:\n{_block(f'description: {D}')}", D, MENDED),
    _shape("code-fence", f"```yaml\n{_block(f'description: {D}')}```\n", D, MENDED),
    _shape("code-fence-keys", f"```\nname: {{name}}\ndescription: {D}\n```\n{BODY}", D, MENDED),
    _shape("inline-json-broken", _block(f"description: {D}", 'metadata: {"a": {"b": 1}'),
           D, MENDED),
    _shape("inline-list-broken", _block(f"description: {D}", "tags: [a, b"), D, MENDED),
    _shape("indentation", _block(f"description: {D}", "metadata:", "    a: 1", "  b: 2"),
           D, MENDED),
    _shape("argument-hints", _block(f"description: {D}", "argument-hint: [date] [hours]"),
           D, MENDED),
    _shape("empty-file", "", "", "file-empty"),
    _shape("blank-file", " \n\n\t\n", "", "file-empty"),
    _shape("empty-block", f"---\n---\n{BODY}", DERIVED, "frontmatter-missing"),
    _shape("blank-line-first", f"\n{_block(f'description: {D}')}", D, MENDED),
    _shape("blanks-first", f"  {_block(f'description: {D}')}", D, MENDED),
    _shape("c1-control", _block("description: Reads a\x92 PDF file."), D, "control-characters"),
    _shape("c0-control", _block("description: Reads a\x08 PDF file."), D, "control-characters"),
    _shape("nul-byte", _block("description: Reads a\0 PDF file."), D, "control-characters"),
    _shape("backtick-value", _block("description: `pdf` reads"), "`pdf` reads", MENDED),
    _shape("at-value", _block("description: @pdf reads"), "@pdf reads", MENDED),
    _shape("percent-value", _block("description: %pdf reads"), "%pdf reads", MENDED),
    _shape("comma-value", _block("description: , reads"), ", reads", MENDED),
    _shape("one-line-block", f"--- name: {{name}} description: {D} ---\n{BODY}", D, MENDED),
    _shape("multipart-header", "--form\r\nContent-Disposition: form-data\r\n\r\n"
           + _block(f"description: {D}"), D, MENDED),
    _shape("text-after-pipe", _block("description: | Reads a", "  PDF file."), D, MENDED),
    _shape("text-after-fold", _block("description: > Reads a", "  PDF file."), D, MENDED),
    _shape("html-comment-first", f"<!-- made by x -->\n{_block(f'description: {D}')}", D, MENDED),
    _shape("quote-unterminated", _block('description: "Reads a PDF file.'), D, MENDED),
    _shape("escape-unknown", _block(r'description: "Reads \d files."'), r"Reads \d files.", MENDED),
    _shape("key-unhashable", _block(f"description: {D}", "? [a, b]", ": c"), D,
           rule="field-unknown"),
    _shape("second-document", _block(f"description: {D}", "...", "other: 1"), D, MENDED),
    _shape("flow-in-key", _block(f"description: {D}", "{a: b}: c"), D,
           rule="field-unknown"),
    _shape("code-page", _block("description: “Liest”").encode("cp1252"), None, "not-utf8"),
    _shape("code-page-body", _block(f"description: {D}") + "\udce4\n", D, rule="body-encoding"),
]  # fmt: skip
OUTSIDE_THE_SPECIFICATION = [
    _shape("carriage-returns", _block(f"description: {D}").replace("\n", "\r\n"), D,
           rule="line-endings"),
    _shape("carriage-returns-only", _block(f"description: {D}").replace("\n", "\r"), D, MENDED),
    _shape("byte-order-mark", "\ufeff" + _block(f"description: {D}"), D, rule="byte-order-mark"),
    _shape("final-newline-missing", f"---\nname: {{name}}\ndescription: {D}\n---", D,
           rule="body-empty"),
    _shape("duplicate-keys", _block("description: Older.", f"description: {D}"), D,
           "duplicate-key"),
    _shape("dashes-in-value", _block("description: |", "  a", "  ---", "  b"), "a\n---\nb"),
    _shape("fields-unknown", _block(f"description: {D}", "author: x", "tags: [a]"), D,
           rule="field-unknown"),
    _shape("metadata-nested", _block(f"description: {D}", "metadata: {a: {b: 1}}"), D,
           rule="metadata-values"),
    _shape("metadata-kinds", _block(f"description: {D}", "metadata:", "  a: [1]", "  b: 2026-01-02",
           "  c: true", "  d: 1"), D, rule="metadata-values"),
    _shape("metadata-text", _block(f"description: {D}", "metadata: none"), D, "field-type"),
    _shape("metadata-null", _block(f"description: {D}", "metadata:"), D),
    _shape("name-other", f"---\nname: other\ndescription: {D}\n---\n{BODY}", D,
           "name-folder", rule="name-folder"),
    _shape("name-upper", f"---\nname: PDF\ndescription: {D}\n---\n{BODY}", D,
           "name-folder", rule="name-characters"),
    _shape("name-blank", f"---\nname: My PDF\ndescription: {D}\n---\n{BODY}", D, "name-unsafe"),
    _shape("name-punctuation", f"---\nname: pdf!\ndescription: {D}\n---\n{BODY}", D,
           "name-unsafe"),
    _shape("name-underscore", f"---\nname: my_pdf\ndescription: {D}\n---\n{BODY}", D,
           "name-folder", rule="name-characters"),
    _shape("name-other-script", f"---\nname: 文件\ndescription: {D}\n---\n{BODY}", D,
           "name-folder", rule="name-characters"),
    _shape("name-hyphen-first", f"---\nname: -pdf\ndescription: {D}\n---\n{BODY}", D,
           "name-unsafe"),
    _shape("name-hyphen-last", f"---\nname: pdf-\ndescription: {D}\n---\n{BODY}", D,
           "name-folder", rule="name-hyphens"),
    _shape("name-65", f"---\nname: {'a' * 65}\ndescription: {D}\n---\n{BODY}", D,
           "name-folder", rule="name-length"),
    _shape("name-path", f"---\nname: ../../evil\ndescription: {D}\n---\n{BODY}", D,
           "name-unsafe"),
    _shape("name-star", f"---\nname: '*'\ndescription: {D}\n---\n{BODY}", D, "name-unsafe"),
    _shape("name-number", f"---\nname: 7\ndescription: {D}\n---\n{BODY}", D,
           "name-folder", rule="name-folder"),
    _shape("tools-list", _block(f"description: {D}", "allowed-tools: [Read, Bash]"), D,
           rule="allowed-tools-form"),
    _shape("description-1025", _block(f"description: {'a' * 1025}"), "a" * 1025,
           rule="description-length"),
    _shape("description-tags", _block("description: Reads <b>PDF</b>"), "Reads <b>PDF</b>",
           rule="description-tags"),
    _shape("description-list", _block("description: [Reads, Writes]"), "Reads; Writes",
           "field-type"),
    _shape("description-mapping", _block("description: {reads: pdf}"), "", "field-type"),
    _shape("compatibility-mapping", _block(f"description: {D}", "compatibility: {os: linux}"), D,
           "field-type"),
    _shape("compatibility-list", _block(f"description: {D}", "compatibility: [a, b]"), D,
           "field-type"),
    _shape("compatibility-501", _block(f"description: {D}", f"compatibility: {'a' * 501}"), D,
           rule="compatibility-length"),
]  # fmt: skip


# --- shapes made by hand -------------------------------------------------------------------------

_BOMB = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
)
_ALIASES = "[" + ", ".join(["*a"] * 5_000) + "]"
_TAG = "!!python/object/apply:os._exit [42]"
_DEEP = "[" * 3_000
ENCODINGS_AND_YAML = [
    _shape("latin-1", _block("description: Liest für mich.").encode("latin-1"), None, "not-utf8"),
    _shape("utf-16", _block(f"description: {D}").encode("utf-16"), None, "not-utf8"),
    _shape("utf-16-no-mark", _block(f"description: {D}").encode("utf-16-le"), None, "not-utf8"),
    _shape("surrogate", _block("description: Reads \udced\udca0\udc80"), None, "not-utf8"),
    _shape("surrogate-escape", _block(r'description: "Reads \ud800 files."'),
           r"Reads \ud800 files.", MENDED),
    _shape("tabs", _block("description: Reads a PDF file.", "metadata:", "\ta: 1"), D, MENDED),
    _shape("tab-after-key", _block("description:\tReads a PDF file."), D),
    _shape("billion-laughs", _block(f"description: {D}", _BOMB), None, "yaml-aliases"),
    _shape("alias-flood", _block("a: &a b", f"c: {_ALIASES}", f"description: {D}"), None,
           "yaml-aliases"),
    _shape("alias-loop", _block(f"description: {D}", "a: &a [*a]"), None, "yaml-aliases"),
    _shape("python-tag", _block(f"description: {D}", f"a: {_TAG}"), D, "yaml-tag"),
    _shape("python-tag-described", _block("description: !!python/name:os.system x"), "x",
           "yaml-tag"),
    _shape("unknown-tag", _block(f"description: !mine {D}"), D, "yaml-tag"),
    _shape("nested-brackets", _block(f"description: {_DEEP}"), None, "yaml-depth"),
    _shape("nested-brackets-closed", _block(f"a: {_DEEP}{']' * 3_000}", f"description: {D}"), None,
           "yaml-depth"),
    _shape("nested-braces", _block("a: " + "{a: " * 3_000, f"description: {D}"), None,
           "yaml-depth"),
    _shape("nested-dashes", _block("a:", "  " + "- " * 32_000), None, "yaml-depth"),
    _shape("nested-indents", _block("a:", *(" " * n + "b:" for n in range(1, 250))), None,
           "yaml-depth"),
    _shape("date-impossible", _block(f"description: {D}", "updated: 2026-13-45"), D),
    _shape("zone-impossible", _block(f"description: {D}", "at: 2026-01-02T00:00:00+99:99"), D),
    _shape("number-impossible", _block(f"description: {D}", "a: 0b_", "b: 0x_", "c: 1:99999"), D),
    _shape("number-huge", _block(f"description: {D}", f"version: {'9' * 5_000}"), D),
    _shape("number-infinite", _block(f"description: {D}", "a: .inf", "b: .nan"), D),
    _shape("description-number", _block("description: 42"), "42"),
    _shape("description-null", _block("description: null"), "", "description-missing"),
    _shape("description-true", _block("description: true"), "true"),
    _shape("list-not-mapping", f"---\n- a\n- b\n---\n{BODY}", DERIVED, "yaml-unreadable"),
    _shape("nul-bytes", b"\0" * 4_096, None, "not-utf8"),
    _shape("nul-bytes-body", _block(f"description: {D}") + "\0" * 4_096, D),
    _shape("random-bytes", bytes(range(256)) * 16, None, "not-utf8"),
    _shape("long-line", _block(f"description: {'a' * 100_000}"), None, "frontmatter-too-large"),
    _shape("long-line-body", _block(f"description: {D}") + "a" * 100_000, D, rule="body-long"),
    _shape("large-block", _block(f"description: {D}", *["# padding" * 13] * 600), None,
           "frontmatter-too-large"),
    _shape("large-open-block", "---\n" + "a: b\n" * 14_000, None, "frontmatter-too-large"),
    _shape("block-at-the-limit", _block(f"description: {D}", *["# padding" * 13] * 540), D),
    _shape("many-keys", _block(f"description: {D}", *(f"key{n}: v" for n in range(5_000))), D,
           rule="field-unknown"),
    _shape("many-broken-keys", _block(f"description: {D}", *(f"k{n}: a: b" for n in range(4_000))),
           D, MENDED),
    _shape("many-quotes", _block("description: " + "\"'" * 30_000), "\"'" * 30_000, MENDED),
    _shape("many-hashes", _block("description: a" + " #" * 30_000), "a", "comment-cut"),
    _shape("many-rules", "-----\n" * 10_000, "", "frontmatter-missing"),
    _shape("many-fences", "```\nname: a\n" * 5_000, "", "description-missing"),
    _shape("many-comments", "<!--" * 16_000, "", "frontmatter-missing"),
    _shape("many-blanks", " \n" * 32_000, "", "file-empty"),
    _shape("many-brackets-body", "[![" * 20_000, "", "frontmatter-missing"),
]  # fmt: skip


def _path(folder: str) -> str:
    return os.path.join(folder, "SKILL.md")


def _head(folder: str) -> bytes:
    return _block(f"description: {D}").replace("{name}", os.path.basename(folder)).encode()


def _large_body(folder: str) -> None:
    with open(_path(folder), "wb") as file:
        file.write(_head(folder))
        for _ in range(50):
            file.write(b"All work and no play.\n" * 47_662)


def _sparse(folder: str) -> None:
    with open(_path(folder), "wb") as file:
        file.write(_head(folder))
        file.truncate(2**30)


def _sparse_only(folder: str) -> None:
    with open(_path(folder), "wb") as file:
        file.truncate(2**30)


def _device(folder: str) -> None:
    try:
        os.mknod(_path(folder), stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except OSError:  # only root may make one, and not everywhere
        os.symlink("/dev/zero", _path(folder))


def _socket(folder: str) -> None:
    # The path of a socket may have some hundred bytes only, so it is bound from within.
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as made:
            made.bind("SKILL.md")
    finally:
        os.fchdir(here)
        os.close(here)


def _unreadable(folder: str) -> None:
    with open(_path(folder), "wb") as file:
        file.write(_head(folder))
    os.chmod(_path(folder), 0)


def _loop(folder: str) -> None:
    os.symlink("SKILL.md", _path(folder))


def _mutual_loop(folder: str) -> None:
    os.symlink("other", _path(folder))
    os.symlink("SKILL.md", os.path.join(folder, "other"))


def _folder_loop(folder: str) -> None:
    os.symlink(".", os.path.join(folder, "again"))


def _misspelled(folder: str) -> None:
    with open(os.path.join(folder, "skill.md"), "wb") as file:
        file.write(_head(folder))


FILES = [
    Shape("body-50-mb", _large_body, D, rule="file-cut"),
    Shape("sparse-1-gib", _sparse, D, rule="file-cut"),
    Shape("sparse-1-gib-only", _sparse_only, None, "not-utf8"),
    Shape("folder-named-so", lambda folder: os.mkdir(_path(folder)), None, "not-a-file"),
    Shape("fifo", lambda folder: os.mkfifo(_path(folder)), None, "not-a-file"),
    Shape("socket", _socket, None, "not-a-file"),
    Shape("device", _device, None, "not-a-file"),
    Shape("link-to-device", lambda folder: os.symlink("/dev/zero", _path(folder)), None,
          "not-a-file"),
    Shape("link-broken", lambda folder: os.symlink("gone", _path(folder)), None, "broken-link"),
    Shape("link-loop", _loop, None, "broken-link"),
    Shape("link-loop-of-two", _mutual_loop, None, "broken-link"),
    Shape("folder-loop", _folder_loop, None, "link-cycle"),
    Shape("lower-case-name", _misspelled, None, "file-name"),
]  # fmt: skip
# Root reads it all the same, so it is tried without privileges.
UNREADABLE = Shape("mode-000", _unreadable, None, "unreadable")
SHAPES = [*UNREADABLE_TO_YAML, *OUTSIDE_THE_SPECIFICATION, *ENCODINGS_AND_YAML, *FILES]
