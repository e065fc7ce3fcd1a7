"""Judge from the exit code and the output of a script whether it started, and what it lacked.

A script starts when its own code runs: it answers `--help`, asks for other arguments, input or a
key, or keeps running. It does not when a program, a module or a permission is missing, or when it
crashes. The output is untrusted: a script can only lie about itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from skillbelt.running.trial.scripts import Script

LackedKind = Literal[
    "program", "module", "package", "permission", "host", "file", "secret", "limit", "terminal"
]
# How a script started, or why it did not.
How = Literal[
    "help", "ran", "example", "imports", "arguments", "input", "secret", "host", "waits",
    "program", "module", "package", "permission", "limit", "crash", "refused",
]  # fmt: skip
STARTED: frozenset[How] = frozenset(
    ("help", "ran", "example", "imports", "arguments", "input", "secret", "host", "waits")
)
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
# Exit codes after a crash: SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS.
_FATAL = frozenset(128 + number for number in (4, 6, 7, 8, 11, 31))
_SHOWN = 200

_REST = r"[\w@./+-]*"
_WORD = rf"[\w@]{_REST}"
_MODULE = re.compile(
    r"(?:ModuleNotFoundError: )?No module named '?(?P<python>[\w.]+)'?"
    r"|Cannot find (?:module|package) '(?P<node>[^'\n]+)'"
)
_IMPORT_FAULT = re.compile(r"(?m)^ImportError: (?P<text>.+)$")
_INSTALL = re.compile(
    rf"(?i)(?:pip3?|uv pip|uv|pipx) (?:install|add) (?:-\S+ |--\S+ )*['\"`]?(?P<python>{_WORD})"
    rf"|(?:npm|pnpm|yarn|bun) (?:i|install|add) (?:-\S+ )*['\"`]?(?P<node>{_WORD})"
)
_NEEDS_INSTALL = re.compile(
    r"(?i)not installed|not found|missing|required|requires?\b|needs?\b|could not import"
    r"|unavailable|no module|install"
)
_PROGRAM = re.compile(
    rf"(?m)(?:line \d+: |^|: )(?P<shell>{_WORD}): (?:command )?not found$"
    rf"|env: [‘'\"]?(?P<env>{_WORD})[’'\"]?: No such file"
    rf"|spawn (?P<node>{_WORD}) ENOENT"
    rf"|^npx: the package '(?P<npx>{_WORD})' was not provided"
    r"|(?P<browser>BrowserType|Chromium)\b[^\n]{0,200}(?:Executable doesn't exist|not found at)"
    rf"|bwrap: execvp (?P<bwrap>{_WORD}): No such file"
    rf"|(?i:error|fatal|✗|❌|missing)[^\n]{{0,40}}?[:\s'\"`](?P<said>[a-z]{_REST})['\"`]?"
    r" (?i:(?:cli |command |binary |executable )?"
    r"(?:is )?(?:not found|not installed|required but not|is required but|is not available))"
)
_NO_FILE = re.compile(r"(?m)^FileNotFoundError: \[Errno 2\] No such file or directory: '(.+)'$")
_FROM_PROCESS = re.compile(r'File "[^"\n]*/subprocess\.py"|_execute_child|asyncio/.*subprocess')
_PERMISSION = re.compile(
    r"(?m)(?:PermissionError: |\[Errno 1\] |\[Errno 13\] |\[Errno 30\] |EACCES|EPERM|EROFS"
    r"|: Permission denied|Read-only file system|Operation not permitted"
    # The message of Node.js when it may not create a folder, with `recursive`.
    r"|ENOENT: no such file or directory, mkdir)"
)
_PERMITTED_PATH = re.compile(
    r"(?:PermissionError: \[Errno \d+\] [^:\n]+|OSError: \[Errno 30\] [^:\n]+"
    r"|(?:EACCES|EPERM|EROFS|ENOENT): [^'\n]{0,100}|(?:cannot [^'‘\n]{1,100})) ?:? ?"
    r"['‘](?P<path>[^'’\n]+)['’]"
    r"|(?P<shell>/[^:\s]+): (?:Permission denied|Read-only file system)"
)
_HOST = re.compile(
    r"(?:getaddrinfo (?:ENOTFOUND|EAI_AGAIN) |host='|Could not resolve host: |"
    r"unable to resolve host address [‘'`]|Failed to resolve '|Could not resolve hostname )"
    r"(?P<host>[\w.-]+)"
)
_NETWORK = re.compile(
    r"gaierror|URLError|ConnectionError|ConnectError|ECONNREFUSED|ENOTFOUND|EAI_AGAIN"
    r"|Name or service not known|Temporary failure in name resolution|Network is unreachable"
    r"|ProxyError|fetch failed|Could not resolve host|Connection refused|NameResolutionError"
    r"|ENETUNREACH|Failed to connect|ConnectTimeout|Connection error|network error"
)
_SECRET = re.compile(
    r"(?<![\w.])(?P<name>[A-Z][A-Z0-9]*_(?:[A-Z0-9_]*_)?(?:KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS|"
    r"PAT|ID|URL|DIR|PATH|HOME|HOST|USER|ACCOUNT|EMAIL|PROJECT|WEBHOOK)S?)(?!\w)"
)
_USAGE = re.compile(
    r"(?im)^[^\w\n]{0,20}usage\b|\busage ?[:\uff1a]|show this help"
    r"|^[^\w\n]{0,20}(?:\u7528\u6cd5|\u4f7f\u7528\u65b9\u6cd5|\u4f7f\u7528|uso|verwendung)\W"
    r"|unrecognized arguments|unknown (?:argument|option|command|flag|subcommand|action|parameter)"
    r"|invalid (?:argument|option|command|choice|flag)|required (?:argument|option|parameter)"
    r"|the following arguments are required|missing (?:required )?(?:argument|option|parameter)"
    r"|no such option|too (?:few|many) arguments|unexpected argument|unrecognized option"
    r"|illegal option|must (?:specify|provide)|please (?:specify|provide)"
    r"|^[^\w\n]{0,20}(?:commands|options|examples?):"
)
_EXCEPTION = re.compile(
    r"(?m)^(?P<type>(?:[A-Za-z_][\w]*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Warning|Errno"
    r"|Refused|NotFound|Timeout|Required|Missing|Invalid)?)(?:: (?P<text>.*))?$"
)
_NODE_EXCEPTION = re.compile(
    r"(?m)^(?:Uncaught )?(?P<type>[A-Z]\w*Error)(?: \[[A-Z_]+\])?: (?P<text>.*)$"
)
_BREAKS = frozenset(
    ("SyntaxError", "IndentationError", "TabError", "NameError", "UnboundLocalError",
     "ReferenceError", "ImportError", "MemoryError", "RecursionError", "AttributeError",
     "TypeError", "NotImplementedError", "SystemError", "UnicodeEncodeError", "AssertionError",
     "ZeroDivisionError")
)  # fmt: skip
_ON_INPUT = frozenset(
    ("JSONDecodeError", "EOFError", "IndexError", "ValueError", "KeyError", "FileNotFoundError",
     "NotADirectoryError", "IsADirectoryError", "ConfigError", "SystemExit", "UnicodeDecodeError",
     "CalledProcessError", "ParserError", "BadZipFile", "InvalidFileException", "Exception",
     "RuntimeError", "OSError", "Error", "MissingSchema", "UnsupportedOperation",
     "PackageNotFoundError", "ExpatError", "ParseError", "StopIteration", "LookupError")
)  # fmt: skip


class Lack(NamedTuple):
    """One thing that a script lacked: its kind, and its name as far as the output shows it."""

    kind: LackedKind
    name: str = ""


class Verdict(NamedTuple):
    """Whether a script started, how or why not, what it lacked, and the line that says so."""

    how: How
    lacked: tuple[Lack, ...] = ()
    line: str = ""

    @property
    def started(self) -> bool:
        """Whether the script's own code ran."""
        return self.how in STARTED


class Ended(NamedTuple):
    """The end of a script's process, and its output.

    `missing` are the things that the output names and that the run found to be really missing.
    """

    exit_code: int
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False
    limits_hit: tuple[str, ...] = ()
    missing: tuple[Lack, ...] = ()


def judge(script: Script, ended: Ended) -> Verdict:
    """Return the verdict on a script from its end."""
    text = f"{ended.stderr}\n{ended.stdout}"
    if ended.timed_out:
        # A server may work without a missing thing; one that raised an error for it does not.
        fault = _judge_lack(ended, text) if _find_exception(ended.stderr) else None
        return fault or Verdict("waits")
    if ended.exit_code == 0:
        if script.example is not None:
            return Verdict("example")
        usage = bool(_USAGE.search(text))
        return Verdict("imports" if script.library else "help" if usage else "ran")
    verdict = _judge_lack(ended, text) or _judge_ending(ended, text)
    if verdict.how != "input" or not ended.missing:
        return verdict
    kind = ended.missing[0].kind
    how: How = kind if kind in ("program", "module") else "permission"
    return verdict._replace(how=how, lacked=ended.missing)


def _judge_lack(ended: Ended, text: str) -> Verdict | None:
    """Return the verdict on a script that failed on something missing; None for others."""
    for check in (_module, _program, _limit, _permission):
        found = check(ended, text)
        if found is not None:
            return found
    return None


def _module(ended: Ended, text: str) -> Verdict | None:
    found = _MODULE.search(text)
    if found:
        name = found["python"] or found["node"] or ""
        lacked: LackedKind = "file" if name.startswith((".", "/")) else "module"
        return _verdict("module", lacked, name, text, found.start())
    fault = _IMPORT_FAULT.search(ended.stderr)
    if fault:
        hint, at = _INSTALL.search(fault["text"]), text.find(fault[0])
        if hint is None:
            return Verdict("crash", (), _line(text, at))
        return _verdict("module", "module", hint["python"] or hint["node"], text, at)
    if _find_exception(ended.stderr) is None:
        return _judge_install_hint(text)
    return None


def _judge_install_hint(text: str) -> Verdict | None:
    """Judge a script that noticed itself what is missing and says how to install it."""
    hint = _INSTALL.search(text)
    if hint is None:
        return None
    around = text[max(hint.start() - 200, 0) : hint.end() + 40]
    if _USAGE.search(text) or not _NEEDS_INSTALL.search(around):
        return None
    return _verdict("module", "module", hint["python"] or hint["node"], text, hint.start())


def _program(ended: Ended, text: str) -> Verdict | None:
    found = _PROGRAM.search(text)
    if found:
        name = "browser" if found["browser"] else next(one for one in found.groups() if one)
        looks_like_file = "." in name or name.startswith("/")
        if not (found["said"] and (looks_like_file or name.lower() in _NOT_PROGRAMS)):
            return _verdict("program", "program", name, text, found.start())
    missing = _NO_FILE.search(ended.stderr)
    if missing and _FROM_PROCESS.search(ended.stderr) and "/" not in missing[1]:
        return _verdict("program", "program", missing[1], text, text.find(missing[0]))
    if ended.exit_code in (_NOT_FOUND, _NOT_EXECUTABLE):
        kind: LackedKind = "program" if ended.exit_code == _NOT_FOUND else "permission"
        return _verdict(kind, kind, "", text, -1)  # type: ignore[arg-type]
    return None


# Words before "not found" that are not a program.
_NOT_PROGRAMS = frozenset(
    ("file", "directory", "folder", "path", "input", "config", "key", "token", "module", "it",
     "skill", "project", "database", "data", "id", "name", "argument", "user", "url", "and", "or",
     "was", "were", "not", "files", "page", "session", "document", "template", "report", "image")
)  # fmt: skip


def _limit(ended: Ended, text: str) -> Verdict | None:
    del text
    if not ended.limits_hit:
        return None
    return Verdict("limit", tuple(Lack("limit", one) for one in ended.limits_hit))


def _permission(ended: Ended, text: str) -> Verdict | None:
    del ended
    found = _PERMISSION.search(text)
    if found is None:
        return None
    path = _PERMITTED_PATH.search(text)
    name = (path["path"] or path["shell"]) if path else ""
    return _verdict("permission", "permission", name, text, found.start())


def _judge_ending(ended: Ended, text: str) -> Verdict:
    """Judge a script that lacked nothing on the machine."""
    lacked = tuple(dict.fromkeys(Lack("host", one) for one in hosts_in(text)))
    if lacked or _NETWORK.search(text):
        found = _NETWORK.search(text)
        return Verdict("host", lacked, _line(text, found.start() if found else -1))
    if ended.exit_code in _FATAL:
        return Verdict("crash", (), f"ended by signal {ended.exit_code - 128}")
    raised = _find_exception(ended.stderr)
    if raised is not None:
        return _judge_exception(raised)
    if ended.exit_code == 2 or _USAGE.search(text):
        return Verdict("arguments", (), _line(text, -1))
    secrets = _secrets(text)
    if secrets:
        return Verdict("secret", secrets, _line(text, text.find(secrets[0].name)))
    said = _line(text, -1) or f"exit code {ended.exit_code} without a word"
    return Verdict("input", (), said)


class _Raised(NamedTuple):
    type: str
    text: str
    at: int
    while_importing: bool


def _find_exception(stderr: str) -> _Raised | None:
    """Return the exception that ended a script of Python or JavaScript, if one did."""
    start = stderr.rfind("Traceback (most recent call last)")
    if start >= 0 or re.search(r"(?m)^[^\S\n]*(?:SyntaxError|IndentationError|TabError): ", stderr):
        found = [one for one in _EXCEPTION.finditer(stderr, max(start, 0)) if one["type"]]
        if found:
            last = found[-1]
            importing = "<frozen importlib._bootstrap>" in stderr[start:]
            kind = last["type"].rpartition(".")[2]
            return _Raised(kind, last["text"] or "", last.start(), importing)
    node = _NODE_EXCEPTION.search(stderr)
    if node and re.search(r"(?m)^[^\S\n]+at .+|^Node\.js v", stderr):
        return _Raised(node["type"], node["text"], node.start(), while_importing=False)
    return None


def _judge_exception(raised: _Raised) -> Verdict:
    line = f"{raised.type}: {raised.text}"[:_SHOWN]
    secrets = _secrets(raised.text)
    if secrets or re.search(r"(?i)api[ _-]?key|access token|credentials?", raised.text):
        return Verdict("secret", secrets, line)
    if _USAGE.search(raised.text) and not raised.while_importing:
        return Verdict("arguments", (), line)
    if raised.while_importing or raised.type in _BREAKS:
        return Verdict("crash", (), line)
    if raised.type == "FileNotFoundError":
        named = re.search(r"'([^'\n]+)'", raised.text)
        return Verdict("input", (Lack("file", named[1]),) if named else (), line)
    if raised.type in _ON_INPUT or raised.type.endswith(("Error", "Exception")):
        return Verdict("input", (), line)
    return Verdict("crash", (), line)


def _secrets(text: str) -> tuple[Lack, ...]:
    names = dict.fromkeys(found["name"] for found in _SECRET.finditer(text))
    return tuple(Lack("secret", one) for one in list(names)[:5])


def hosts_in(text: str) -> Iterator[str]:
    """Yield the hosts that the output says could not be reached."""
    for found in _HOST.finditer(text):
        if "." in found["host"] or found["host"] == "localhost":
            yield found["host"]


def _verdict(how: How, kind: LackedKind, name: str, text: str, at: int) -> Verdict:
    return Verdict(how, (Lack(kind, name),), _line(text, at))


def _line(text: str, at: int) -> str:
    """Return the line at that offset; for a negative one the first line with a message."""
    if at >= 0:
        begin = text.rfind("\n", 0, at) + 1
        end = text.find("\n", at)
        return text[begin : end if end >= 0 else None].strip()[:_SHOWN]
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line), "")[:_SHOWN]
