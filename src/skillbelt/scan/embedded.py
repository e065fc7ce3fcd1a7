"""Find commands and code inside files of another kind: recipes, notebooks, settings, strings.

Each function returns a text for a reader of its language, with the line it stands in. None of them
parses more than it needs, and all take time in proportion to the text.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

from skillbelt.records import NamedTuple
from skillbelt.scan.command_names import LATER_COMMAND
from skillbelt.scan.markdown import number_lines
from skillbelt.text import Lazy
from skillbelt.untrusted_json import read_json

# Programs that take a command, or fetch one.
_RUNNER = Lazy(r"\b(?:curl|wget|bash|sh|zsh|python3?|node|powershell|pwsh|nc|ncat)\b")
# A request that uploads a file.
_UPLOAD = Lazy(
    r"\bcurl\b[^\n]{0,200}\s(?:-F|-T|-d|--form|--data(?:-binary)?)[ =]?[\"']?[^\s@]{0,40}@"
)
# A value that goes on with another command: `x; curl …`, `x || true && sh …`, `$(curl …)`.
_GOES_ON = Lazy(LATER_COMMAND)
_OPERATORS = (";", "&", "$(", "`")
_MAKE_VARIABLE = Lazy(r"\$\((\w+)\)")
_RECIPE_PREFIX = Lazy(r"(?m)^\.RECIPEPREFIX[ \t]*[:?]{0,2}=[ \t]*(\S)")
_ONE_LINE_RULE = Lazy(r"[^:;=#\n]{1,200}::?[^=;\n]{0,200};")
_IMAGE_STEP = Lazy(
    r"(?i)^\s*(?:onbuild\s+|healthcheck\s+(?:--\S+\s+)*)?(?:run|cmd|entrypoint)\s+(?:--\S+\s+)*"
)
# The only word of a step whose commands are in the lines below.
_HERE_DOCUMENT = Lazy(r"\s{0,20}<<-?[ \t]{0,20}[\"']?(\w{1,100})[\"']?\s{0,20}$")
_KEY = Lazy(r"^[\s-]*[\w.\-/]{1,60}\s*[:=]\s*")
# The marks of notebook cells and lines that run in a shell.
_CELL_MAGIC = Lazy(r"\s{0,200}%%(?:bash|sh|zsh|script|cmd|sx|system|!)[^\n]*(?:\n|\Z)")
_LINE_MAGIC = Lazy(
    r"\s{0,200}(?:[\w.,*\[\]()]{1,100}[ \t]{0,9}=[ \t]{0,9})?(?:!!?|%(?:sx|system)\s)\s{0,9}"
)
# The number of JSON values whose line is searched; later ones get the line of the last.
_MAX_NUMBERED = 500
_MAX_JOINED = 20
_MIN_COMMAND = 10


class EmbeddedCode(NamedTuple):
    """Code inside a file: its language, text and first line. `name` is that of a script."""

    language: str
    text: str
    line: int
    name: str = ""


def runs_something(text: str, *, is_data: bool = False) -> bool:
    """Whether one line pipes to or from a program, or opens a socket or a decoder.

    In data a command behind an operator is one, too; in code only if it has an address.
    """
    if "/dev/tcp" in text or "base64 -" in text:
        return True
    if "@" in text and _UPLOAD.search(text):
        return True
    may_go_on = is_data or "://" in text
    if may_go_on and any(sign in text for sign in _OPERATORS) and _GOES_ON.search(text):
        return True
    return "|" in text and _RUNNER.search(text) is not None


def find_recipes(text: str) -> str:
    """Return the commands of a Makefile or justfile on their lines, all else left out."""
    chosen = _RECIPE_PREFIX.search(text)
    begins = ("\t", "  ", *chosen.groups()) if chosen is not None else ("\t", "  ")
    lines: list[str] = []
    goes_on = False
    for line in text.split("\n"):
        is_command = line.startswith(begins) or goes_on
        if is_command:
            command = (line[1:] if line.startswith(begins[2:]) else line).strip().lstrip("@-+")
        else:
            command = _find_outside_recipe(line)
        command = command.replace("$(shell ", "$( ")  # a `(` behind `$(` would be arithmetic
        lines.append(_MAKE_VARIABLE.sub(r"${\1}", command).replace("$$", "$"))
        goes_on = bool(command) and line.endswith("\\")
    return "\n".join(lines)


def _find_outside_recipe(line: str) -> str:
    """Return the command of a line that belongs to no recipe: `target: ; command`, `$(shell …)`."""
    at = line.find("$(shell ")
    if at >= 0:
        return line[at:]
    rule = _ONE_LINE_RULE.match(line)
    return line[rule.end() :] if rule is not None else ""


def find_image_steps(text: str) -> str:
    """Return the commands that a Dockerfile runs on their lines, all else left out."""
    lines: list[str] = []
    goes_on, ending = False, ""
    for line in text.split("\n"):
        if ending:  # a here-document
            is_end = line.strip() == ending
            lines.append("" if is_end else line)
            ending = "" if is_end else ending
            continue
        if goes_on and (not line.strip() or line.lstrip().startswith("#")):
            lines.append("\\")  # a step goes on after such a line
            continue
        step = _IMAGE_STEP.match(line)
        kept = line[step.end() :] if step is not None else line if goes_on else ""
        document = _HERE_DOCUMENT.match(kept)
        ending = document[1] if document is not None else ""
        lines.append("" if document is not None else _join_words(kept))
        goes_on = bool(kept) and line.rstrip().endswith("\\")
    return "\n".join(lines)


def _join_words(step: str) -> str:
    """Return a step that is a JSON list of words as a command line, another one unchanged."""
    if not step.startswith("["):
        return step
    try:
        words = read_json(step)
    except ValueError:
        return step
    is_list = isinstance(words, list) and all(isinstance(one, str) for one in words)
    return shlex.join(words) if is_list else step


def find_path_imports(text: str) -> str:
    """Return the lines of a `.pth` file that Python runs at its start."""
    lines = text.splitlines()
    return "\n".join(line if line.startswith(("import ", "import\t")) else "" for line in lines)


def find_cells(text: str) -> Iterator[EmbeddedCode]:
    """Yield the code and the prose of a notebook."""
    try:
        cells = read_json(text)["cells"]
    except (ValueError, TypeError, KeyError):
        return
    at, line = 0, 1
    for number, cell in enumerate(cells if isinstance(cells, list) else ()):
        if not isinstance(cell, dict):
            continue
        source = cell.get("source", "")
        parts = source if isinstance(source, list) else [source]
        code = "".join(one for one in parts if isinstance(one, str))
        found = _find_string(text, code.split("\n")[0], at) if number < _MAX_NUMBERED else -1
        if found >= 0:
            line += text.count("\n", at, found)
            at = found
        yield from _split_cell(str(cell.get("cell_type", "")), code, line)


def _split_cell(kind: str, code: str, line: int) -> Iterator[EmbeddedCode]:
    if kind == "markdown":
        yield EmbeddedCode("markdown", code, line)
    elif _CELL_MAGIC.match(code):
        yield EmbeddedCode("shell", _CELL_MAGIC.sub("", code, count=1), line)
    else:
        commands, plain = [], []
        for one in code.split("\n"):
            magic = _LINE_MAGIC.match(one)
            commands.append(one[magic.end() :] if magic is not None else "")
            is_python = magic is None and not one.lstrip().startswith("%")
            plain.append(one if is_python else f"{one[: len(one) - len(one.lstrip())]}pass")
        yield EmbeddedCode("python", "\n".join(plain), line)
        if any(commands):
            yield EmbeddedCode("shell", "\n".join(commands), line)


def find_scripts(text: str) -> Iterator[EmbeddedCode] | None:
    """Return the scripts of a package.json; None if it cannot be read."""
    try:
        scripts = read_json(text).get("scripts", {})
    except (ValueError, AttributeError):
        return None
    named = scripts.items() if isinstance(scripts, dict) else ()
    return (
        EmbeddedCode("shell", command, _find_line(text, command, number), name)
        for number, (name, command) in enumerate(named)
        if isinstance(command, str)
    )


def _find_line(text: str, value: str, number: int) -> int:
    at = _find_string(text, value, 0) if number < _MAX_NUMBERED else 0
    return text.count("\n", 0, max(at, 0)) + 1


def _find_string(text: str, value: str, start: int) -> int:
    """Return where a value stands in a JSON text, -1 if it is written in an unusual way."""
    if not value:
        return -1
    at = text.find(json.dumps(value, ensure_ascii=False)[1:-1], start)
    return at if at >= 0 or value.isascii() else text.find(json.dumps(value)[1:-1], start)


# The switch behind which a program takes code, and the code, in a list of words.
_CODE_WORD = Lazy(
    r"\"(?:-[a-z]{0,3}[ce]|--eval|-Command)\"\s{0,40},\s{0,40}(\"(?:[^\"\\\n]|\\.){10,4000}+\")"
)
_LANGUAGE_WORD = Lazy(r"\b(?:(python[\d.]{0,5}|pypy3?)|(node|bun|deno))\b")


def find_code_words(text: str) -> Iterator[EmbeddedCode]:
    """Yield the code in lists of words of a JSON text: `["python3", "-c", "…"]`."""
    for match, line in number_lines(_CODE_WORD.finditer(text) if '"-' in text else (), text):
        try:
            code = read_json(match[1])
        except ValueError:
            continue
        before = _LANGUAGE_WORD.findall(text[max(match.start() - 200, 0) : match.start()])
        language = "shell"
        if before:
            language = "python" if before[-1][0] else "javascript"
        if isinstance(code, str):
            yield EmbeddedCode(language, code, line)


# A server of MCP, or a task: its program and the list of its words.
_PROGRAM_AND_WORDS = Lazy(
    r"\"command\"\s{0,40}:\s{0,40}(\"[^\"\\\n]{1,200}\")\s{0,40},\s{0,40}\"args\"\s{0,40}:\s{0,40}"
    r"(\[(?:[^\[\]{}\"]|\"(?:[^\"\\\n]|\\.){0,2000}+\"){0,100}+\])"
)


def find_programs(text: str) -> Iterator[tuple[str, int]]:
    """Yield the command lines of a JSON text: `"command": "npx", "args": ["-y", "…"]`."""
    found = _PROGRAM_AND_WORDS.finditer(text) if '"args"' in text else iter(())
    for match, line in number_lines(found, text):
        try:
            words = [read_json(match[1]), *read_json(match[2])]
        except ValueError:
            continue
        if all(isinstance(one, str) for one in words):
            yield shlex.join(words), line


def find_command_strings(text: str, *, is_data: bool = False) -> Iterator[tuple[str, int]]:
    """Yield the values that are commands, with their lines counted from 0.

    What stands between quotes, or behind a key; a command that goes on in the next line is joined.
    """
    if "|" not in text and not runs_something(text, is_data=is_data):
        return
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if len(line) < _MIN_COMMAND or not ("|" in line or runs_something(line, is_data=is_data)):
            continue
        whole = _join_lines(lines, number)
        if not runs_something(whole, is_data=is_data):
            continue
        seen: set[str] = set()
        for value in _split_values(whole):
            if value in seen or len(value) < _MIN_COMMAND:
                continue
            if runs_something(value, is_data=is_data):
                seen.add(value)
                yield value, number


# What TeX hands to a shell: \write18, a pipe as a file, Lua.
_TEX_COMMAND = Lazy(
    r"\\(?:(?:immediate\s{0,9})?\\?write18|ShellEscape|input|openin\d{0,2}\s{0,9}=?)\s{0,9}\{\s{0,9}"
    r"(?:\|\s{0,9})?\"?([^{}\n\"]{3,2000})\"?\s{0,9}\}"
    r"|\bos\.execute\(\s{0,9}['\"]([^'\"\n]{3,2000})['\"]"
)


def find_tex_commands(text: str) -> Iterator[tuple[str, int]]:
    """Yield the commands of a shell in a text of TeX, with their lines counted from 0."""
    if "\\write18" in text or "ShellEscape" in text or "{|" in text or "directlua" in text:
        for match, line in number_lines(_TEX_COMMAND.finditer(text), text):
            yield (match[1] or match[2]).strip(), line


# Keys of settings whose value is a command of a shell, and the mark of one in the lines below.
_COMMAND_VALUE = Lazy(
    r"\n([ \t]*)(?:-[ \t]+)?[\"']?(?:run|script|shell|command|cmd|entry|inline|user_data"
    r"|ansible\.builtin\.(?:shell|command)|(?:before|after)_script"
    r"|(?:postCreate|postStart|postAttach|onCreate|updateContent|initialize)Command)[\"']?"
    r"[ \t]*[:=][ \t]*([^\n]{3,4000})(?![^\n])"
)
_BLOCK_MARK = Lazy(r"(?:[|>][-+\d]{0,2}|<<-?~?[A-Z]{2,20})\s*\Z")
_MAX_BLOCK_LINES = 400


def find_command_values(text: str) -> Iterator[tuple[str, int]]:
    """Yield the commands behind keys of settings, with their lines counted from 0."""
    whole = f"\n{text}"  # so that each line begins with a line break, which is fast to find
    lines: list[str] = []
    for match, line in number_lines(_COMMAND_VALUE.finditer(whole), whole):
        lines = lines or text.split("\n")
        value = match[2].strip()
        if _BLOCK_MARK.match(value):
            block: list[str] = []
            for one in lines[line + 1 : line + _MAX_BLOCK_LINES]:
                if one.strip() and len(one) - len(one.lstrip()) <= len(match[1]):
                    break
                block.append(one)
            yield "\n".join(block), line + 1
        elif _RUNNER.search(value):
            plain = value.rstrip(",").strip()
            if plain[:1] in ('"', "'") and plain[-1:] == plain[:1]:
                plain = plain[1:-1].replace('\\"', '"')
            yield plain, line


def _join_lines(lines: list[str], number: int) -> str:
    whole = lines[number]
    for one in lines[number + 1 : number + _MAX_JOINED]:
        if not whole.rstrip().endswith(("|", "\\")) or re.search(r"[:=]\s*[|>][-+]?\s*\Z", whole):
            break
        whole = f"{whole.rstrip().removesuffix(chr(92))} {one.strip()}"
    return whole


def _split_values(line: str) -> Iterator[str]:
    """Yield the parts of a line that could be a command by themselves."""
    bare = line.strip().strip("-,").strip()
    yield bare.strip('"')
    key = _KEY.match(bare)
    if key is not None:
        yield bare[key.end() :].strip("\"',")
    guarded = line.replace("\\\\", "\x02").replace('\\"', "\x01")
    for quote in ('"', "'", "`"):
        for part in guarded.split(quote) if quote in guarded else ():
            yield part.replace("\x01", '"').replace("\x02", "\\").replace("\\n", "\n").strip()
