"""Programs that start other programs: which commands a command starts, as far as it can be read.

A rule about `rm` applies no matter how `rm` is started, so `env rm x` is also checked as `rm x`. A
command that may start an unknown program is reported as unclear. A program that runs a file, as in
`python3 scripts/x.py`, is neither: the content of the file is not read here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from functools import lru_cache

from skillbelt.launchers import PREFIXES, SHELLS
from skillbelt.permission.command_lines import WHOLE, read_line
from skillbelt.records import NamedTuple
from skillbelt.text import Lazy


class Started(NamedTuple):
    """The commands that a command starts, in the form that rules match, and if that is all."""

    commands: tuple[str, ...] = ()
    unclear: bool = False


NOTHING = Started()
_UNCLEAR = Started((), True)
# Options after which an interpreter still runs the file that follows; `v:` takes a value.
_INTERPRETERS: Mapping[str, str] = {
    "python": "-u -B -s -S -E -I -O -OO -P -q -v -b -bb -x X: W:",
    "pypy": "-u -B -s -S -E -I -O -q -v X: W:",
    "perl": "-w -W -T -t -c",
    "ruby": "-w -W -c -v",
    "node": "--no-warnings --check -c --test --trace-warnings --enable-source-maps",
    "nodejs": "--no-warnings --check -c",
    "bun": "",
    "deno": "",
    "php": "-n -q -l -f",
    "lua": "-v -W",
    "luajit": "-v",
    "tclsh": "",
    "wish": "",
    "expect": "-f",
    "rscript": "--vanilla --slave --no-save",
    "julia": "",
    "guile": "",
    "pwsh": "",
    "osascript": "",
    "groovy": "",
    "elixir": "",
    "jshell": "",
    "irb": "",
    "ocaml": "",
    "racket": "",
    "sbcl": "--script",
}
# Python modules that run code from their arguments, and words that make others do so.
_CODE_MODULES = frozenset(
    ("timeit", "code", "pdb", "trace", "profile", "cProfile", "runpy", "IPython")
)
_VERBS: Mapping[str, frozenset[str]] = {
    "deno": frozenset(("eval", "repl")),
    "bun": frozenset(("x", "exec", "repl")),
}
_ASKS_ONLY = frozenset(("--version", "-V", "--help", "-h"))
# Programs that start others if one of these words is present; below, programs that always do.
_BY_WORD: Mapping[str, tuple[str, ...]] = {
    "find": ("-exec", "-execdir", "-ok", "-okdir"),
    "fd": ("-x", "-X", "--exec"),
    "fdfind": ("-x", "-X", "--exec"),
    "rg": ("--pre",),
    "tar": ("--to-c", "--checkpoint-a", "--use-c", "-I", "--rsh", "--info-s", "--new-v", "-F"),
    "bsdtar": ("--use-c",),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "sort": ("--compress-p",),
    "split": ("--filter",),
    "zip": ("-TT", "--unzip-command"),
    "ip": ("exec",),
    "npm": ("exec", "x", "explore"),
    "pnpm": ("exec", "dlx"),
    "yarn": ("exec", "dlx"),
    "uv": ("run", "x"),
    "poetry": ("run",),
    "pipenv": ("run",),
    "conda": ("run",),
    "cargo": ("--config",),
    "docker": ("run", "exec"),
    "podman": ("run", "exec"),
    "kubectl": ("exec", "run"),
    "sqlite3": ("-cmd", ".shell", ".system", "-init"),
    "dpkg": ("--pre-invoke", "--post-invoke"),
    "apt": ("-o",),
    "apt-get": ("-o",),
    "make": ("--eval", "-E"),
}
_OTHERS = """
parallel script scriptlive watch strace ltrace gdb lldb valgrind perf su runuser pkexec ssh unshare
nsenter bwrap firejail proot systemd-run start-stop-daemon run-parts at batch crontab tmux screen
dbus-run-session xvfb-run entr socat nc ncat ed ex vi vim nvim emacs m4 npx bunx pipx uvx sg newgrp
chpst setuidgid softlimit envdir rlwrap cpulimit ssh-agent gnuplot
"""
_ALWAYS = frozenset(_OTHERS.split())
_SEPARATE = {
    "git": "-C -c --git-dir --work-tree --namespace --config-env --super-prefix --attr-source"
}
_GIT_RUNS = ("-c", "--config-env", "--exec-path")
_MOST_WORDS = 4096
_ASSIGNS = Lazy(r"[A-Za-z_]\w*\+?=")
_NUMBERED = Lazy(r"[-.]?\d[\d.]*[a-z]?$")
# Scripts of sed that start nothing: they substitute, print, delete or quit.
_SED_PLAIN = Lazy(
    r"(\d+|\$|/[^/\\]*/)?(,(\d+|\$|/[^/\\]*/))?!?"
    r"([pdqDP=]|s([/|#,:@!%_])(?:(?!\5).)*\5(?:(?!\5).)*\5[gpI0-9]*|y/[^/]*/[^/]*/)"
)
_SED_FLAGS = ("--quiet", "--silent", "--regexp-extended")


def started(text: str) -> Started:
    """Return what a command starts besides itself; `text` is one command of `read_line`."""
    name = _known_name(text.partition(" ")[0])
    if not name:
        return NOTHING
    how = _KNOWN[name]
    words = _split(text)
    return _UNCLEAR if words is None else how(name, words[1:])


@lru_cache(maxsize=4096)
def _known_name(word: str) -> str:
    """Return the table's name of the program that a word starts; "" for any other."""
    program = word.rpartition("/")[2].strip("'\"")
    name = program if program in _KNOWN else _without_version(program)
    return name if name in _KNOWN else ""


def _without_version(program: str) -> str:
    """Return the name without its version: `python3.11` is `python`."""
    lower = program.lower()
    if lower.startswith(("ld-linux", "ld-musl", "ld-2", "ld.so", "ld64")):
        return "ld.so"
    return _NUMBERED.sub("", lower)


def _split(text: str) -> list[str] | None:
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    return words if len(words) <= _MOST_WORDS else None


def _join(words: list[str]) -> str:
    """Join words to one command, in the normal form that rules are matched against."""
    line = read_line(shlex.join(words))
    return line.commands[0] if len(line.commands) == 1 else WHOLE + shlex.join(words)


def _skip_prefix(name: str, words: list[str]) -> Started:
    how = PREFIXES[name]
    valued, flags = how.valued.split(), how.flags.split()
    at, unclear, operands = 0, name == "xargs", how.operands
    while at < len(words):
        word = words[at]
        if word == "--":
            at += 1
            break
        if name in ("env", "sudo", "doas") and _ASSIGNS.match(word):
            unclear = True  # a variable may change which program runs
        elif word[:1] != "-" and word not in flags:
            break
        elif word in valued:
            at += 1
        elif not _is_flag(word, valued, flags) and not (name == "nice" and word[1:].isdigit()):
            return Started(_inner(words[at + 1 :]), True)
        at += 1
    inner = words[at + operands :]
    if name == "flock" and inner[:1] in (["-c"], ["--command"]):
        return _script(inner[1] if len(inner) > 1 else "", unclear)
    return Started((_join(inner),) if inner else (), unclear)


def _is_flag(word: str, valued: list[str], flags: list[str]) -> bool:
    """Whether the word is a known option, with or without a value in it."""
    if word in flags or word.partition("=")[0] in (*valued, *flags):
        return True
    if word.startswith("--"):
        return "=" in word and not word.startswith("--split")
    return word[:2] in valued or all(f"-{char}" in flags for char in word[1:])


def _inner(words: list[str]) -> tuple[str, ...]:
    """Return the words from the first non-option on: it may be the command."""
    for at, word in enumerate(words):
        if word[:1] != "-" and not _ASSIGNS.match(word):
            return (_join(words[at:]),)
    return ()


def _script(text: str, unclear: bool = False) -> Started:
    commands = read_line(text).commands
    return Started(commands, unclear or commands[0].startswith(WHOLE))


def _shell(_name: str, words: list[str]) -> Started:
    at, unclear = 0, False
    while at < len(words):
        word = words[at]
        if word in _ASKS_ONLY:
            return NOTHING
        if word[:1] not in ("-", "+"):
            break  # the file that it runs
        if word[1:2] != "-" and "c" in word:
            rest = [one for one in words[at + 1 :] if one[:1] not in ("-", "+")]
            return _script(rest[0], unclear) if rest else _UNCLEAR
        short = word[1:2] != "-"
        takes_word = word[-1] in "oO" if short else word in ("--rcfile", "--init-file")
        reads = set("siC").intersection(word) if short else word.startswith(("--rcfile", "--init"))
        unclear = unclear or bool(reads)
        at += 1 + takes_word
    # Without a file it reads the script from elsewhere.
    return _UNCLEAR if unclear or at >= len(words) or not words[at] else NOTHING


def _interpreter(name: str, words: list[str]) -> Started:
    known = _INTERPRETERS[name].split()
    at = 0
    while at < len(words):
        word = words[at]
        if word in _ASKS_ONLY:
            return NOTHING
        if word[:1] != "-":
            return _UNCLEAR if word in _VERBS.get(name, ()) or not word else NOTHING
        if name in ("python", "pypy") and word == "-m":
            module = words[at + 1] if at + 1 < len(words) else ""
            return _UNCLEAR if module.partition(".")[0] in _CODE_MODULES or not module else NOTHING
        if f"{word[1:2]}:" in known:
            at += len(word) == 2
        elif word not in known:
            return _UNCLEAR
        at += 1
    return _UNCLEAR


def _awk(_name: str, words: list[str]) -> Started:
    """Check awk: programs start others with `system` and pipes, and call functions by name."""
    loads = ("-l", "-i", "--load", "--include", "-D", "--debug")
    marks = ("system", "|", "@")
    read = [word for word in words if not word.startswith("-F")]
    unclear = any(word.startswith(loads) or any(mark in word for mark in marks) for word in read)
    return _UNCLEAR if unclear else NOTHING


def _sed(_name: str, words: list[str]) -> Started:
    scripts: list[str] = []
    operands: list[str] = []
    at, named = 0, False
    while at < len(words):
        word = words[at]
        if word in ("-e", "--expression", "-f", "--file"):
            named = True
            scripts += words[at + 1 : at + 2] if word in ("-e", "--expression") else []
            at += 1
        elif word[:1] != "-":
            operands.append(word)
        elif word not in _SED_FLAGS and not re.fullmatch(r"-[nErzsu]+|-i[.~\w]*", word):
            return NOTHING if word in _ASKS_ONLY else _UNCLEAR
        at += 1
    scripts += [] if named else operands[:1]
    plain = all(_SED_PLAIN.fullmatch(part.strip()) for one in scripts for part in one.split(";"))
    return NOTHING if plain else _UNCLEAR


def _starts_by_word(name: str, words: list[str]) -> Started:
    marks = _BY_WORD[name]
    for at, word in enumerate(words):
        if any(_is_mark(word, mark) for mark in marks):
            return Started(_inner(words[at + 1 :]), True)
    return NOTHING


def _is_mark(word: str, mark: str) -> bool:
    """Whether the word is that option, with its value or with other letters before it."""
    if mark[0] == "-" and len(mark) == 2 and word[:1] == "-" != word[1:2]:
        return mark[1] in word
    return word == mark or (mark[0] == "-" and len(mark) > 2 and word.startswith(mark))


def _starts_anything(_name: str, words: list[str]) -> Started:
    return Started(_inner(words), True) if words else _UNCLEAR


def _separate(name: str, words: list[str]) -> Started:
    """Skip options before the subcommand of a program."""
    valued = _SEPARATE[name].split()
    at, unclear = 0, False
    while at < len(words) and words[at][:1] == "-":
        unclear = unclear or words[at].partition("=")[0].startswith(_GIT_RUNS)
        at += 2 if words[at] in valued else 1
    rest = words[at:]
    unclear = unclear or rest[:2] in (["submodule", "foreach"], ["bisect", "run"])
    unclear = unclear or any(word.startswith(("--upload-pack", "--exec")) for word in rest)
    unclear = unclear or (rest[:1] == ["rebase"] and "-x" in rest)
    return Started((_join([name, *rest]),) if at and rest else (), unclear)


_How = Callable[[str, list[str]], Started]
_KNOWN: Mapping[str, _How] = {
    **dict.fromkeys(_ALWAYS, _starts_anything),
    **dict.fromkeys(_BY_WORD, _starts_by_word),
    **dict.fromkeys(_INTERPRETERS, _interpreter),
    **dict.fromkeys(SHELLS, _shell),
    **dict.fromkeys(PREFIXES, _skip_prefix),
    **dict.fromkeys(_SEPARATE, _separate),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    **dict.fromkeys(("sed", "gsed"), _sed),
}
