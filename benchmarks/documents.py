"""SKILL.md texts with the shapes of real ones: lengths, keys, quoting styles and mistakes.

Every share and size below was measured on public skills; every word is made up here. The same
(seed, number) always gives the same document.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from random import Random
from typing import NamedTuple

SEED = 20_000

_VOCABULARY = """
agent archive audit batch board branch bridge budget build bundle calendar canvas catalog chart
check client cloud column commit compare contract convert course daily dashboard dataset deploy
design detect device diagram digest document draft email engine estimate event export field file
filter finance folder form format frame gather graph guide handle image import inbox index inspect
invoice issue journal ledger lesson library list local mail manage map market measure meeting
merge message metric migrate mobile model monitor network note notify office order outline page
parse patch payment phone photo pipeline plan policy portal poster price print process product
profile project prompt publish query queue record recipe release remote render report request
research review rewrite route sample schedule schema score screen search secure server sheet
signal sketch slide social source spread stage stream style summary survey sync table task
template test theme ticket timeline token topic trace track transform translate travel trend tune
update upload user validate vector video view voice weather web widget window workflow workshop
write
"""
_SMALL = "a an and any for from in into of on or so that the then this to when while with your"
WORDS = tuple(_VOCABULARY.split())
GLUE = tuple(_SMALL.split())
IDEOGRAPHS = "文件数据处理生成分析用户工具支持查询报告网页图片自动管理项目搜索内容"
TOOLS = ("Read", "Write", "Edit", "Bash", "Grep", "Glob", "WebFetch", "Bash(git *)")
LICENSES = ("MIT", "Apache-2.0", "MIT", "Proprietary, see LICENSE.txt", "BSD-3-Clause")

# How a description is written, and how often.
DESCRIPTION_STYLES: dict[str, float] = {
    "plain": 0.276,
    "double": 0.184,
    "single": 0.176,
    "single-wrapped": 0.167,
    "|": 0.080,
    "plain-wrapped": 0.062,
    "double-wrapped": 0.027,
    ">": 0.016,
    ">-": 0.012,
}

# Share of the files that have the key at the top level.
KEY_SHARES: dict[str, float] = {
    "version": 0.339,
    "metadata": 0.312,
    "license": 0.271,
    "author": 0.244,
    "tags": 0.199,
    "allowed-tools": 0.187,
    "compatibility": 0.147,
    "homepage": 0.096,
    "requires": 0.043,
    "user-invocable": 0.031,
    "argument-hint": 0.013,
    "triggers": 0.0095,
    "category": 0.0085,
    "disable-model-invocation": 0.0072,
    "model": 0.007,
    "dependencies": 0.0066,
    "tools": 0.0058,
    "permissions": 0.0049,
    "when_to_use": 0.0015,
    "context": 0.0014,
    "disallowed-tools": 0.0011,
}
# Keys outside every table; one of them takes the room that the chosen keys leave.
FILLERS = ("domain", "notes", "audience", "keywords", "inputs")
SPEC_KEYS = ("license", "compatibility", "allowed-tools", "metadata")

UNREADABLE_SHARE = 0.022
TO_THE_LETTER_SHARE = 0.18
CRLF_SHARE = 0.007
BOM_SHARE = 0.0004

# What strict YAML refuses in files as authored, with the counts found among 10,679.
MISTAKES: dict[str, int] = {
    "no-frontmatter": 131,
    "colon-in-value": 65,
    "no-name": 10,
    "no-opening": 5,
    "no-description": 4,
    "no-closing": 3,
    "broken-flow": 3,
    "stray-line": 2,
    "heading-first": 2,
    "bracket-hints": 2,
    "leading-comma": 2,
    "glued-closing": 1,
    "blank-first": 1,
    "control-character": 1,
    "reserved-character": 1,
    "comment-first": 1,
    "unterminated-quote": 1,
}


class Document(NamedTuple):
    """One SKILL.md: the folder it belongs in, its bytes, and the mistake put into it, if any."""

    name: str
    data: bytes
    mistake: str
    description: str
    frontmatter_bytes: int


def document(number: int, *, strict: bool = False, seed: int = SEED) -> Document:
    """Skill `number` of the tree; `strict` keeps to the specification's letter."""
    rng = Random(seed * 1_000_003 + number)
    name = f"{rng.choice(WORDS)}-{rng.choice(WORDS)}-{number:06d}"
    text = description(rng)[: 1_000 if strict else None]
    mistake = ""
    if not strict and rng.random() < UNREADABLE_SHARE:
        mistake = rng.choices(list(MISTAKES), list(MISTAKES.values()))[0]
    lines = [f"name: {_maybe_quoted(rng, name)}", *_described(rng, text)]
    lines += _other_keys(rng, strict, len("\n".join(lines).encode()))
    head = _DAMAGE[mistake](lines) if mistake else _block(lines)
    body = _body(rng, name, len(head.encode()))
    data = _line_ends(rng, f"{head}\n{body}", strict)
    return Document(
        name=name,
        data=data,
        mistake=mistake,
        description=text,
        frontmatter_bytes=len(head.encode()),
    )


def _line_ends(rng: Random, text: str, strict: bool) -> bytes:
    data = text.encode()
    if rng.random() < CRLF_SHARE:
        data = data.replace(b"\n", b"\r\n")
    if not strict and rng.random() < BOM_SHARE:
        data = b"\xef\xbb\xbf" + data
    return data


def _log_normal(rng: Random, median: float, sigma: float, low: int, high: int) -> int:
    return min(max(int(rng.lognormvariate(math.log(median), sigma)), low), high)


def prose(rng: Random, length: int) -> str:
    """About `length` characters of made-up words, in one case out of seventeen ideographs."""
    if rng.random() < 0.057:
        return "".join(rng.choices(IDEOGRAPHS, k=max(length, 4)))
    parts: list[str] = []
    size = 0
    while size < length:
        word = rng.choice(WORDS if len(parts) % 3 else GLUE)
        mark = "," if rng.random() < 0.06 else ""
        parts.append(word + mark)
        size += len(word) + len(mark) + 1
    text = " ".join(parts)[:length].rstrip(", ")
    return text[:1].upper() + text[1:] + ("." if rng.random() < 0.7 else "")


def description(rng: Random) -> str:
    text = prose(rng, _log_normal(rng, 140, 0.70, 12, 1_800))
    if rng.random() < 0.1:
        text = text.replace(" and ", " — ", 1)
    return text


def _maybe_quoted(rng: Random, text: str) -> str:
    return f'"{text}"' if rng.random() < 0.1 else text


def _described(rng: Random, text: str) -> list[str]:
    style = rng.choices(list(DESCRIPTION_STYLES), list(DESCRIPTION_STYLES.values()))[0]
    kind, wrapped = style.removesuffix("-wrapped"), style.endswith("-wrapped")
    if kind in ("|", ">", ">-"):
        return [f"description: {kind}", *_wrap(text, "  ")]
    if kind == "single":
        text = "'" + _with_colon(rng, text).replace("'", "''") + "'"
    elif kind == "double":
        text = '"' + _with_colon(rng, text) + '"'
    return _wrap(f"description: {text}", "  ") if wrapped else [f"description: {text}"]


def _with_colon(rng: Random, text: str) -> str:
    """Add a colon or an apostrophe, which makes authors quote the value."""
    return text.replace(" for ", rng.choice((" for: ", " user's ")), 1)


def _wrap(text: str, indent: str) -> list[str]:
    width = min(80, max(len(text) // 2, 20))
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    first = lines[0] if lines[0].startswith("description:") else indent + lines[0]
    return [first, *(indent + line for line in lines[1:])]


def _other_keys(rng: Random, strict: bool, so_far: int) -> list[str]:
    """The other keys by their shares, with room in them until the block has a real size."""
    target = _log_normal(rng, 372, 0.66, 60, 7_000)
    strict = strict or rng.random() < TO_THE_LETTER_SHARE
    keys = [key for key in KEY_SHARES if rng.random() < _share(key, strict)]
    room = target - so_far
    if room > 90 and not set(keys) & {"metadata", "tags", "triggers", "requires"}:
        keys.append("metadata" if strict else rng.choice(FILLERS))
    lines: list[str] = []
    for index, key in enumerate(keys):
        left = target - so_far - sum(len(line) + 1 for line in lines)
        lines += _key(rng, key, max(left // (len(keys) - index), 0), strict)
    return lines


def _share(key: str, strict: bool) -> float:
    """Files outside the specification have all the keys that those to its letter can not have."""
    if key in SPEC_KEYS:
        return KEY_SHARES[key]
    return 0.0 if strict else KEY_SHARES[key] / (1 - TO_THE_LETTER_SHARE)


def _key(rng: Random, key: str, room: int, strict: bool) -> list[str]:
    if key == "metadata":
        return _metadata(rng, room, strict)
    if key in ("tags", "triggers", "keywords", "inputs"):
        return _listing(rng, key, max(3, min(room // 11, 30)), flow=0.06)
    if key in ("allowed-tools", "tools", "disallowed-tools"):
        return _tools(rng, key, strict)
    if key == "requires":
        return ["requires:", *(f"  {word}: {rng.choice(WORDS)}" for word in _several(rng, 3))]
    if key in ("compatibility", "when_to_use", "domain", "notes", "audience"):
        return [f"{key}: {prose(rng, min(max(room, 24), 490))}"]
    return [f"{key}: {_SHORT[key](rng)}"]


_SHORT: dict[str, Callable[[Random], str]] = {
    "version": lambda rng: f"{rng.randrange(4)}.{rng.randrange(9)}.{rng.randrange(9)}",
    "license": lambda rng: rng.choice(LICENSES),
    "author": lambda rng: _maybe_quoted(rng, f"{rng.choice(WORDS)}-{rng.choice(WORDS)}"),
    "homepage": lambda rng: f"https://example.org/{rng.choice(WORDS)}/{rng.choice(WORDS)}",
    "user-invocable": lambda rng: rng.choice(("true", "true", "false")),
    "argument-hint": lambda rng: f'"[{rng.choice(WORDS)}] [{rng.choice(WORDS)}]"',
    "category": lambda rng: rng.choice(WORDS),
    "disable-model-invocation": lambda rng: "true",
    "model": lambda rng: rng.choice(("inherit", "large", "small")),
    "dependencies": lambda rng: "[" + ", ".join(_several(rng, 3)) + "]",
    "permissions": lambda rng: "[" + ", ".join(_several(rng, 2)) + "]",
    "context": lambda rng: "fork",
}


def _several(rng: Random, count: int) -> list[str]:
    return rng.sample(WORDS, count)


def _listing(rng: Random, key: str, count: int, flow: float) -> list[str]:
    if rng.random() < flow:
        return [f"{key}: [{', '.join(_several(rng, min(count, 6)))}]"]
    indent = rng.choice(("  ", ""))
    return [f"{key}:", *(f"{indent}- {word}" for word in _several(rng, count))]


def _tools(rng: Random, key: str, strict: bool) -> list[str]:
    chosen = rng.sample(TOOLS, rng.randrange(2, 6))
    form = rng.random()
    if strict or form < 0.8:
        return [f"{key}: {' '.join(chosen) if strict else ', '.join(chosen)}"]
    if form < 0.94:
        return [f'{key}: "{", ".join(chosen)}"']
    if form < 0.975:
        return [f"{key}:", *(f"  - {tool}" for tool in chosen)]
    return [f"{key}: [{', '.join(chosen)}]"]


def _metadata(rng: Random, room: int, strict: bool) -> list[str]:
    count = max(1, min((room - 14) // 24, 60))
    if strict:
        return ["metadata:", *(f'  {w}: "{rng.choice(WORDS)}"' for w in _several(rng, count))]
    if rng.random() < 0.18:
        return [f"metadata: {_json(rng, count)}"]
    lines = ["metadata:"]
    lines += [f"  version: {rng.randrange(3)}.{rng.randrange(9)}"] * (rng.random() < 0.19)
    lines += [f"  author: {rng.choice(WORDS)}"] * (rng.random() < 0.16)
    lines += [f"  updated: 2026-03-1{rng.randrange(10)}"] * (rng.random() < 0.023)
    if rng.random() < 0.6:
        lines += ["  runtime:", "    requires:", f"      bins: [{rng.choice(WORDS)}]"]
    lines += [f"  {word}: {rng.choice(WORDS)} {rng.choice(WORDS)}" for word in _several(rng, count)]
    return lines


def _json(rng: Random, count: int) -> str:
    inner = ",".join(f'"{word}":["{rng.choice(WORDS)}"]' for word in _several(rng, count))
    return '{"runtime":{"emoji":"📦","requires":{' + inner + "}}}"


def _block(lines: list[str]) -> str:
    return "---\n" + "\n".join(lines) + "\n---\n"


def _without(lines: list[str], key: str) -> list[str]:
    kept: list[str] = []
    dropping = False
    for line in lines:
        dropping = line.startswith(f"{key}:") or (dropping and line[:1] in (" ", "-"))
        if not dropping:
            kept.append(line)
    return kept


def _said(lines: list[str], value: str) -> str:
    return _block([lines[0], f"description: {value}", *_without(lines[1:], "description")])


_DAMAGE: dict[str, Callable[[list[str]], str]] = {
    "no-frontmatter": lambda lines: "",
    "colon-in-value": lambda lines: _said(lines, "Use when: the report is late. Triggers: a, b"),
    "no-name": lambda lines: _block(["title: A title", *lines[1:]]),
    "no-opening": lambda lines: _block(lines).removeprefix("---\n"),
    "no-description": lambda lines: _block(_without(lines, "description")),
    "no-closing": lambda lines: _block(lines).removesuffix("---\n"),
    "broken-flow": lambda lines: _block([*_without(lines, "metadata"), 'metadata: {"a":{"b":1}']),
    "stray-line": lambda lines: _said(lines, "Reads the board\nand writes the summary"),
    "heading-first": lambda lines: "# A heading\n\n" + _block(lines),
    "bracket-hints": lambda lines: _block([*lines, "argument-hint: [date] [duration]"]),
    "leading-comma": lambda lines: _said(lines, ", the rest of a sentence"),
    "glued-closing": lambda lines: _block(lines)[:-1] + "# A heading\n",
    "blank-first": lambda lines: "\n" + _block(lines),
    "control-character": lambda lines: _said(lines, "Reads the\x92 board"),
    "reserved-character": lambda lines: _said(lines, "`board` reads the board"),
    "comment-first": lambda lines: "<!-- generated -->\n" + _block(lines),
    "unterminated-quote": lambda lines: _said(lines, '"Reads the board'),
}


def _pool(rng: Random, size: int) -> str:
    parts: list[str] = []
    length = 0
    while length < size:
        kind = rng.randrange(8)
        words = " ".join(rng.choices(WORDS, k=rng.randrange(8, 40)))
        if kind == 0:
            part = f"\n## {words[:40].title()}\n"
        elif kind == 1:
            part = f"\n```bash\n{words[:60]}\n```\n"
        elif kind == 2:
            part = "\n".join(f"- {word} → {rng.choice(WORDS)}" for word in words.split())
        else:
            part = textwrap.fill(words.capitalize() + ".", 100)
        parts.append(part)
        length += len(part) + 1
    return "\n".join(parts)


POOL = _pool(Random(SEED), 400_000)
ASCII_POOL = POOL.replace("→", "to")


def _body(rng: Random, name: str, used: int) -> str:
    size = max(_log_normal(rng, 5_120, 0.79, 300, 170_000) - used - len(name) - 4, 100)
    pool = POOL if rng.random() < 0.65 else ASCII_POOL
    start = rng.randrange(len(pool) - size)
    return f"# {name}\n\n{pool[start : start + size]}\n"


def bundled(number: int, *, seed: int = SEED) -> list[tuple[str, bytes]]:
    """The other files of skill `number`: path below its folder, and bytes. About 3.5 on average."""
    rng = Random(seed * 2_000_003 + number)
    if rng.random() < 0.35:
        return []
    count = _log_normal(rng, 3.4, 1.0, 1, 60)
    return [_bundled_file(rng, index) for index in range(count)]


def _bundled_file(rng: Random, index: int) -> tuple[str, bytes]:
    folder, ending = rng.choices(
        (("references/", "md"), ("scripts/", "py"), ("assets/", "json"), ("", "md")),
        (45, 33, 15, 7),
    )[0]
    deeper = f"{rng.choice(WORDS)}/" if folder and rng.random() < 0.05 else ""
    size = _log_normal(rng, 2_600, 1.0, 40, 60_000)
    start = rng.randrange(len(ASCII_POOL) - size)
    path = f"{folder}{deeper}{rng.choice(WORDS)}-{index}.{ending}"
    return path, ASCII_POOL[start : start + size].encode()
