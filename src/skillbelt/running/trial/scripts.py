"""Find the scripts of a skill: their files, their languages, and the command that starts each.

Nothing here runs anything. The texts are untrusted: they are parsed, never executed.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Collection, Iterator
from posixpath import dirname, join, normpath, splitext
from typing import Literal

from skillbelt.errors import SkillbeltError
from skillbelt.format.python_source import parse_python
from skillbelt.format.skill import Skill
from skillbelt.records import NamedTuple

Language = Literal["python", "javascript", "typescript", "shell"]
LANGUAGES: tuple[Language, ...] = ("python", "javascript", "typescript", "shell")
# A longer file is not a script that a person wrote.
MAX_SCRIPT_BYTES = 2**20

_ENDINGS: dict[str, Language] = {
    ".py": "python",
    ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript",
    ".ts": "typescript", ".mts": "typescript", ".cts": "typescript",
    ".sh": "shell", ".bash": "shell",
}  # fmt: skip
_SHEBANG = re.compile(
    rb"#![^\n]*?\b(?:(?P<python>python[\d.]*|uv)|(?P<javascript>node)|(?P<shell>bash|sh|dash))"
    rb"(?=\s|$)"
)
_RUNNERS = re.compile(rb"#![^\n]*?\b(deno|bun|tsx|ts-node)\b")
_STARTS = {
    "node": ("node",), "npx": ("npx", "tsx"), "tsx": ("npx", "tsx"), "ts-node": ("npx", "ts-node"),
    "deno": ("deno", "run"), "bun": ("bun", "run"),
}  # fmt: skip
_HEAD_CHARS = 16_384  # of a script, where its example is looked for
_EXAMPLE = re.compile(
    r"(?m)^(?P<mark>#|//) /// try[ \t]*\n(?P<body>(?:(?P=mark)(?: .*)?\n)*?)(?P=mark) ///[ \t]*$"
)
# Files in these folders are copied or tested, not called.
_NO_SCRIPTS = frozenset(
    ("assets", "asset", "template", "templates", "boilerplate", "test", "tests", "__tests__",
     "fixtures", "test-fixtures", "test_fixtures", "testdata", "mocks", "__mocks__",
     "vendor", "third_party", "dist", "build", "static", "public")
)  # fmt: skip
_NOT_A_SCRIPT = re.compile(
    r"__init__\.py|conftest\.py|setup\.py|test_.*\.py|.*_test\.py|(?:.*\.)?(?:test|spec)\.[cm]?[jt]s"
    r"|.*\.d\.[cm]?ts|.*\.min\.[cm]?js|.*\.(?:config|conf)\.[cm]?[jt]s|\..*|.*[-_.]template\..*"
    r"|template[-_.].*"
)
_JS_COMMENT = re.compile(r"/\*.*?\*/|(?m:(?<![:'\"])//.*$)", re.DOTALL)
_JS_EXPORT = re.compile(r"(?m)^\s*(?:export\s|module\.exports\b|exports\.\w+\s*=)")
_JS_MAIN = re.compile(r"require\.main|import\.meta\.(?:url|main)|process\.argv|process\.stdin")
_JS_CALL = re.compile(
    r"(?m)^(?:await\s+)?(?:[A-Za-z_$][\w$.]*\s*\(|\(\s*(?:async\b|function\b|\())"
)
_SHELL_PLAIN = re.compile(
    r"(?:[A-Za-z_]\w*=|export\s|readonly\s|declare\s|local\s|set\s|shopt\s|:\s|#|\[)"
)
_SHELL_FUNCTION = re.compile(r"(?:function\s+)?[\w:.-]+\s*\(\s*\)|function\s+[\w:.-]+")


class Example(NamedTuple):
    """The example call of a script in its own text: its arguments, and its stdin.

    `fault` says what is wrong with it.
    """

    arguments: tuple[str, ...] = ()
    stdin: str = ""
    fault: str = ""


class Script(NamedTuple):
    """A file of a skill that can be started.

    `command` starts it without arguments, in `cwd`, a folder of the skill. A `library` is only
    imported by others, so it gets no arguments.
    """

    path: str
    language: Language
    command: tuple[str, ...]
    cwd: str = ""
    library: bool = False
    example: Example | None = None


def scripts_of(skill: Skill) -> tuple[Script, ...]:
    """Return the scripts of a skill in the order of their paths.

    Tests, type stubs, templates, assets, package markers and settings of tools are not scripts.
    """
    entries = [one for one in skill.files.entries() if one.kind == "file" and not one.problem]
    paths = frozenset(one.path for one in entries)
    found = []
    for entry in entries:
        ending = splitext(entry.path)[1].lower()
        likely = ending in _ENDINGS or (not ending and entry.executable)
        if not likely or not may_be_script(entry.path) or entry.size > MAX_SCRIPT_BYTES:
            continue
        try:
            with skill.files.open(entry.path, MAX_SCRIPT_BYTES) as file:
                data = file.read(MAX_SCRIPT_BYTES)
        except (OSError, SkillbeltError):
            continue
        script = read_script(entry.path, data, paths)
        if script is not None:
            found.append(script)
    return tuple(sorted(found))


def may_be_script(path: str) -> bool:
    """Whether the file at a path may be a script, by its names alone."""
    folders = path.lower().split("/")
    name = folders.pop()
    return not _NO_SCRIPTS.intersection(folders) and not _NOT_A_SCRIPT.fullmatch(name)


def read_script(path: str, data: bytes, paths: Collection[str] = ()) -> Script | None:
    """Return how a file is started; None if it is not a script.

    `paths` are the files of the skill, which identify its own modules.
    """
    language = _ENDINGS.get(splitext(path)[1].lower()) or _by_shebang(data)
    if language is None or not data.strip():
        return None
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    example = read_example(text)
    if language == "python":
        return _python(path, text, paths)._replace(example=example)
    if language == "shell":
        library = not data.startswith(b"#!") and _is_shell_library(text)
        return Script(path, language, ("bash", path), library=library, example=example)
    named = _RUNNERS.match(data)
    usual = "npx" if language == "typescript" else "node"
    start = _STARTS[named[1].decode() if named else usual]
    library = _is_js_library(text)
    return Script(path, language, (*start, path), library=library, example=example)


def read_example(text: str) -> Example | None:
    """Return the example in a script's `# /// try` block, which is like that of PEP 723."""
    found = _EXAMPLE.search(text[:_HEAD_CHARS])
    if found is None:
        return None
    lines = (line.lstrip("#/")[1:] for line in found["body"].splitlines())
    try:
        table = tomllib.loads("\n".join(lines))
    except (ValueError, RecursionError) as error:
        return Example(fault=f"its `/// try` block is not valid TOML: {error}")
    arguments, stdin = table.pop("arguments", []), table.pop("stdin", "")
    if table:
        return Example(fault=f"its `/// try` block has an unknown key: {min(table)}")
    fine = isinstance(arguments, list) and all(isinstance(one, str) for one in arguments)
    if not fine or not isinstance(stdin, str):
        return Example(fault="its `/// try` block: arguments is a list of texts, stdin a text")
    return Example(tuple(arguments), stdin)


def _by_shebang(data: bytes) -> Language | None:
    found = _SHEBANG.match(data[:200])
    for language in LANGUAGES:
        if found and found.groupdict().get(language):
            return language
    return None


# Python


def _python(path: str, text: str, paths: Collection[str]) -> Script:
    try:
        tree = parse_python(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Script(path, "python", ("python3", path))
    library = _is_python_library(tree)
    base = _package_base(path, tree, paths)
    if base is None:
        return Script(path, "python", ("python3", path), library=library)
    inner = path[len(base) + 1 :] if base else path
    module = splitext(inner)[0].replace("/", ".")
    return Script(path, "python", ("python3", "-m", module), cwd=base, library=library)


def _package_base(path: str, tree: ast.Module, paths: Collection[str]) -> str | None:
    """Return the folder to start the script from as a module; None to start the file.

    A script that imports relatively, or a package above itself, is meant to be started as a module.
    """
    if not all(part.isidentifier() for part in splitext(path)[0].split("/")):
        return None
    folder = dirname(path)
    level = max((one.level for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)), default=0)
    if level:
        return _ancestor(folder, max(level, _depth_of_package(folder, paths)))
    for module in _list_imported(tree):
        top = module.partition(".")[0]
        above = folder
        while above and not _is_module(folder, module, paths):
            above = dirname(above)
            if _is_module(above, module, paths) and path.startswith(join(above, top) + "/"):
                return above
    return None


def _ancestor(folder: str, levels: int) -> str:
    for _ in range(levels):
        folder = dirname(folder)
    return folder


def _depth_of_package(folder: str, paths: Collection[str]) -> int:
    depth = 0
    while folder and join(folder, "__init__.py") in paths:
        folder, depth = dirname(folder), depth + 1
    return depth


def _is_module(folder: str, module: str, paths: Collection[str]) -> bool:
    """Whether the skill itself has a module; a folder without `__init__.py` alone is not one."""
    place = normpath(join(folder, module.replace(".", "/")))
    return f"{place}.py" in paths or f"{place}/__init__.py" in paths


def _list_imported(tree: ast.Module) -> Iterator[str]:
    """Yield each module that is imported by its full name, and names that may be its submodules."""
    for one in ast.walk(tree):
        if isinstance(one, ast.Import):
            yield from (alias.name for alias in one.names)
        elif isinstance(one, ast.ImportFrom) and not one.level and one.module:
            yield one.module
            yield from (f"{one.module}.{alias.name}" for alias in one.names)


def _is_python_library(tree: ast.Module) -> bool:
    """Whether the file defines things and does nothing else."""
    return all(map(_only_defines, tree.body))


def _only_defines(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        return not _asks_for_main(statement.test) and all(
            map(_only_defines, (*statement.body, *statement.orelse))
        )
    if isinstance(statement, ast.Try):
        handlers = (one for handler in statement.handlers for one in handler.body)
        parts = (*statement.body, *handlers, *statement.orelse, *statement.finalbody)
        return all(isinstance(one, ast.Raise) or _only_defines(one) for one in parts)
    if isinstance(statement, ast.Expr):
        # A call such as `sys.path.insert(...)` prepares the imports below it.
        return isinstance(statement.value, ast.Constant) or _prepares(statement.value)
    return isinstance(
        statement,
        ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Pass,
    )  # fmt: skip


def _asks_for_main(test: ast.expr) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "__name__" for one in ast.walk(test))


def _prepares(value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    return ast.unparse(value.func).startswith(("sys.path.", "logging.", "warnings.", "load_dotenv"))


# JavaScript and the shell


def _is_js_library(text: str) -> bool:
    if text.startswith("#!"):
        return False
    plain = _JS_COMMENT.sub("", text)
    if not _JS_EXPORT.search(plain) or _JS_MAIN.search(plain):
        return False
    calls = (found[0] for found in _JS_CALL.finditer(plain))
    return all(re.match(r"(?:require|import|Object\.\w+|module\.exports)\b", one) for one in calls)


def _is_shell_library(text: str) -> bool:
    """Whether the file only sets variables and defines functions, for others to source."""
    depth, functions = 0, 0
    for line in text.splitlines():
        plain = line.strip()
        if depth == 0 and plain and not plain.startswith("#"):
            if _SHELL_FUNCTION.match(plain):
                functions += 1
            elif not _SHELL_PLAIN.match(plain) and plain not in ("{", "}"):
                return False
        depth = max(depth + plain.count("{") - plain.count("}"), 0)
    return functions > 0
