"""Parse a command line for what it starts: scripts, modules, code, and packages that it names.

It only decides which packages are proposed, and those need a separate permission. So a wrong
guess is harmless, and a word that cannot be parsed is skipped.
"""

from __future__ import annotations

import re
import shlex
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from posixpath import basename
from typing import NamedTuple

from skillbelt.permission.packages import Kind

_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?|pypy3?")
_NODE = frozenset(("node", "nodejs", "bun", "tsx", "ts-node"))
_SHELLS = frozenset(("bash", "sh", "dash", "zsh"))
_PIPS = frozenset(("pip", "pip3"))
# Launchers that leave the command after them unchanged.
_BEFORE = frozenset(("time", "nohup", "exec", "env", "command", "sudo", "nice", "stdbuf"))
_SEPARATOR = re.compile(r"[;|&()<>]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_HERE = re.compile(r"(?<!<)<<-?[ \t]{0,20}(['\"]?)(\w{1,100})\1")
# Options that take a value, of the programs that start others.
_PYTHON_VALUES = frozenset(("-W", "-X", "--check-hash-based-pycs"))
_UV_VALUES = frozenset(
    ("--python", "-p", "--project", "--directory", "--index", "--extra", "--group", "--env-file",
     "--color", "--cache-dir", "--default-index", "--index-url")
)  # fmt: skip
_MAX_CHARS = 200_000
_MAX_LINES = 5_000
_MAX_DEPTH = 3
_MAX_FOUND = 50
_PACKAGE = re.compile(r"@?[A-Za-z0-9][A-Za-z0-9._/\[\],<>=!~^@*-]*")


class StartedPart(NamedTuple):
    """One part that a line starts or names, and its interpreter.

    `what` is `script` (a path), `module` (of `python -m`), `code`, `shell` (a path of a script that
    names further ones), `package` (as an installer reads it) or `list` (a requirements file).
    """

    what: str
    kind: Kind
    text: str


def started_parts(command: str | Sequence[str], stdin: str = "") -> list[StartedPart]:
    """Return the parts that a command starts, in order."""
    found: list[StartedPart] = []
    if isinstance(command, str):
        parts = _parse_text(command[:_MAX_CHARS], 0, stdin)
    else:
        parts = _parse_words(list(command), 0, stdin)
    for part in parts:
        found.append(part)
        if len(found) >= _MAX_FOUND:
            break
    return found


def _parse_text(text: str, depth: int, stdin: str = "") -> Iterator[StartedPart]:
    """Yield the parts that a command line or a shell script starts."""
    if depth > _MAX_DEPTH:
        return
    plain, documents = _take_documents(text.replace("\0", " "))
    plain = re.sub(r"\\\n", " ", plain)
    for line in islice(filter(str.strip, plain.split("\n")), _MAX_LINES):
        for words in _commands(line):
            at = next((one for one in words if one.startswith("\0")), "")
            given = documents[int(at[1:])] if at else stdin
            yield from _parse_words([one for one in words if one != at or not at], depth, given)


def _take_documents(text: str) -> tuple[str, list[str]]:
    """Return the text with a word for each here document, and the documents.

    The text is hostile, so an unclosed document must not cost a search of the whole rest.
    """
    lines = text.split("\n")
    places: dict[str, list[int]] = {}
    for at, line in enumerate(lines):
        places.setdefault(line.strip(), []).append(at)
    kept: list[str] = []
    documents: list[str] = []
    at = 0
    while at < len(lines):
        line, begin = lines[at], at + 1
        found = _HERE.search(line)
        ends = places.get(found[2], []) if found else []
        end = next(iter(ends[bisect_right(ends, at) :][:1]), -1)
        if found is None or end < 0:
            kept.append(line)
            at = begin
        else:
            kept.append(f"{line[: found.start()]} < \0{len(documents)}")
            documents.append("\n".join(lines[begin:end]))
            at = end + 1
    return "\n".join(kept), documents


def _commands(line: str) -> Iterator[list[str]]:
    """Yield the words of each command of a line; none for an invalid line."""
    reader = shlex.shlex(line, posix=True, punctuation_chars=";|&()<>")
    reader.commenters = "#"
    reader.wordchars += "\0@%+,:=!^[]$*?{}~"
    words: list[str] = []
    try:
        for word in reader:
            if _SEPARATOR.fullmatch(word) and "<" not in word and ">" not in word:
                yield words
                words = []
            else:
                words.append(word)
    except ValueError:
        pass
    yield words


def _parse_words(words: list[str], depth: int, stdin: str) -> Iterator[StartedPart]:
    """Yield the parts that one command starts."""
    words = _without_prefix(words)
    if not words or depth > _MAX_DEPTH:
        return
    name, rest = basename(words[0]), words[1:]
    if _PYTHON.fullmatch(name):
        yield from _parse_python(rest, stdin)
    elif name in _NODE:
        yield from _parse_node(rest, stdin)
    elif name in _SHELLS:
        yield from _parse_shell(rest, depth, stdin)
    elif name == "uv":
        yield from _parse_uv(rest, depth, stdin)
    elif name in _PIPS and rest[:1] == ["install"]:
        yield from _packages(rest[1:], "python")
    elif name == "npm" and rest[:1] in (["install"], ["i"], ["add"]):
        yield from _packages(rest[1:], "node")
    elif name in ("npx", "uvx"):
        yield from _parse_runner(rest, "node" if name == "npx" else "python", depth)
    elif "/" in words[0] or words[0].endswith((".py", ".sh")):
        yield _script(words[0])


def _without_prefix(words: list[str]) -> list[str]:
    at = 0
    while at < len(words):
        word = words[at]
        if word == "timeout":
            at += 1
            while at < len(words) and words[at].startswith("-"):
                at += 1
        elif word not in _BEFORE and not _ASSIGNMENT.fullmatch(word):
            break
        at += 1
    return words[at:]


def _script(path: str, kind: Kind = "python") -> StartedPart:
    return StartedPart("shell" if path.endswith((".sh", ".bash")) else "script", kind, path)


def _parse_python(words: list[str], stdin: str) -> Iterator[StartedPart]:
    at = 0
    while at < len(words):
        word = words[at]
        value = words[at + 1] if at + 1 < len(words) else ""
        if word == "-c":
            yield StartedPart("code", "python", value)
            return
        if word == "-m":
            if value == "pip" and words[at + 2 : at + 3] == ["install"]:
                yield from _packages(words[at + 3 :], "python")
            elif value:
                yield StartedPart("module", "python", value)
            return
        if word in ("-", "<"):
            break
        if not word.startswith("-"):
            yield StartedPart("script", "python", word)
            return
        at += 2 if word in _PYTHON_VALUES else 1
    if stdin:
        yield StartedPart("code", "python", stdin)


def _parse_node(words: list[str], stdin: str) -> Iterator[StartedPart]:
    for at, word in enumerate(words):
        value = words[at + 1] if at + 1 < len(words) else ""
        if word in ("-e", "--eval", "-p", "--print"):
            yield StartedPart("code", "node", value)
            return
        if word in ("-", "<"):
            break
        if not word.startswith("-") and word != "run":
            yield StartedPart("script", "node", word)
            return
    if stdin:
        yield StartedPart("code", "node", stdin)


def _parse_shell(words: list[str], depth: int, stdin: str) -> Iterator[StartedPart]:
    for at, word in enumerate(words):
        if word.startswith("-") and not word.startswith("--") and "c" in word:
            yield from _parse_text(words[at + 1] if at + 1 < len(words) else "", depth + 1)
            return
        if not word.startswith("-"):
            yield StartedPart("shell", "python", word)
            return
    if stdin:
        yield from _parse_text(stdin[:_MAX_CHARS], depth + 1)


def _parse_uv(words: list[str], depth: int, stdin: str) -> Iterator[StartedPart]:
    if words[:2] == ["pip", "install"]:
        yield from _packages(words[2:], "python")
    elif words[:2] == ["tool", "run"]:
        yield from _parse_runner(words[2:], "python", depth)
    elif words[:1] == ["run"]:
        yield from _parse_uv_run(words[1:], depth, stdin)


def _parse_uv_run(words: list[str], depth: int, stdin: str) -> Iterator[StartedPart]:
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        name, equals, value = words[at].partition("=")
        takes = name in ("--with", "--with-requirements", "--with-editable", *_UV_VALUES)
        if takes and not equals:
            at += 1
            value = words[at] if at < len(words) else ""
        if name == "--with":
            yield from _packages(value.split(","), "python")
        elif name == "--with-requirements":
            yield StartedPart("list", "python", value)
        elif name in ("-m", "--module"):
            yield from _parse_python(["-m", *words[at + 1 :]], stdin)
            return
        at += 1
    rest = words[at:]
    if rest and rest[0].endswith(".py"):
        yield StartedPart("script", "python", rest[0])
    else:
        yield from _parse_words(rest, depth + 1, stdin)


def _parse_runner(words: list[str], kind: Kind, depth: int) -> Iterator[StartedPart]:
    """Yield the package whose program `npx` or `uvx` starts."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        if name in ("--package", "-p", "--from", "--with"):
            if not equals:
                at += 1
                value = words[at] if at < len(words) else ""
            yield from _packages((value,), kind)
            if name != "--with":
                return
        at += 1
    if at < len(words):
        program = words[at]
        if program in _NODE:
            yield from _packages((program,), kind)
            yield from _parse_words(words[at:], depth + 1, "")
        else:
            yield from _packages((program,), kind)


def _packages(words: Iterable[str], kind: Kind) -> Iterator[StartedPart]:
    """Yield the packages among the words of an installer; options and paths are skipped."""
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in ("-r", "--requirement"):
            skip = True
        elif _PACKAGE.fullmatch(word) and "://" not in word and word != ".":
            local = word.startswith((".", "/")) or (kind == "python" and "/" in word)
            if not local:
                yield StartedPart("package", kind, word)
