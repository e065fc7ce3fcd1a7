"""Apply the command policy: decide which commands may run, and build their argument vector.

Without a policy a command is a line for bash. With one it is a single program with its arguments:
no shell reads it, so anything with a special meaning to a shell is refused, not passed on.

An allow-list is a security boundary: only its programs run, found in the system's folders or at the
exact path listed. Listing a shell, a wrapper (`env`, `xargs`) or an interpreter allows everything
that program can start. A deny-list alone refuses the programs it names and what could start them
indirectly: shells, wrappers, code on the command line, programs outside the system's folders. It
cannot see into a script, so it is a convenience; the boundary is then the sandbox.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from stat import S_ISREG
from typing import NamedTuple

from skillbelt.errors import RunRefused
from skillbelt.settings import program_names
from skillbelt.text import one_line, shorten

# The folders searched for programs under a policy: only the machine's owner can write there.
TRUSTED_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MAX_COMMAND_BYTES = 128 * 2**10 - 1  # the kernel's limit for one word
# The kernel allows 2 MiB of words and variables together; the sandbox adds some of its own.
MAX_VECTOR_BYTES = 2**20
MAX_VARIABLES = 1000
_POINTER_BYTES = 8

# Programs that start other programs, or that read a line as a shell does.
_STARTERS = """
ash bash csh dash elvish fish ksh ksh93 mksh nu oksh osh pwsh rbash rksh sh tcsh xonsh yash zsh
busybox toybox coreutils awk gawk mawk nawk ed ex vi vim nvim emacs expect gdb make ninja tclsh
bwrap cgexec choom chroot chrt command dbus-launch dbus-run-session doas env exec fakeroot faketime
firejail flatpak-spawn flock ionice linux32 linux64 ltrace nice nohup nsenter numactl parallel perf
pkexec prlimit proxychains rlwrap run-parts runcon runuser sandbox-exec screen script scriptreplay
sem setarch setpriv setsid setuidgid sg socat ssh ssh-agent start-stop-daemon stdbuf strace su sudo
sudoedit systemd-inhibit systemd-run taskset time timeout tmux torify torsocks unbuffer unshare
valgrind watch xargs xvfb-run
"""
WRAPPERS = frozenset(_STARTERS.split())
_LOADERS = ("ld-linux", "ld-musl", "ld.so", "ld64.so")  # `ld-linux.so /bin/rm` runs rm
_MULTICALL = ("busybox", "toybox", "coreutils")  # the program depends on the file's name
# Options allowed before an interpreter's script. The script is required: code on the command line
# would be as powerful as a shell.
_INTERPRETERS = {
    "python": "-u -B -I -E -s -S -O -OO -q -V --version -h --help",
    "pypy": "-u -B -I -E -s -S -O -OO -q -V --version -h --help",
    "perl": "-w -T -t --version -v -h",
    "ruby": "-w -W --version -v -h --help",
    "node": "--version -v -h --help",
    "nodejs": "--version -v -h --help",
    "php": "-v --version -h --help",
    "lua": "-v",
    "luajit": "-v",
    "Rscript": "--vanilla --version --help",
    "bun": "--version",
    "deno": "--version",
}
_RUNNING_OPTIONS = {
    "find": ("-exec", "-execdir", "-ok", "-okdir"),
    "fd": ("-x", "-X", "--exec", "--exec-batch"),
    "tar": ("--checkpoint-action", "--to-command", "-I", "--use-compress-program", "-F"),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "sort": ("--compress-program",),
    "git": ("-c", "--exec-path", "--config-env", "--upload-pack", "--receive-pack"),
}


class CommandPolicy(NamedTuple):
    """Programs by name or absolute path. None: every program but the denied ones; `()`: none."""

    allowed: tuple[str, ...] | None = None
    denied: tuple[str, ...] = ()

    @property
    def active(self) -> bool:
        """Whether the policy restricts anything; without one, commands are lines for bash."""
        return self.allowed is not None or bool(self.denied)


_NO_POLICY = CommandPolicy()


def policy_from(allowed: Iterable[str] = (), denied: Iterable[str] = ()) -> CommandPolicy:
    """Build the policy from the lists; ConfigError unless each is a name or an absolute path."""
    allow = program_names(allowed, "allowed_commands")
    return CommandPolicy(allow or None, program_names(denied, "denied_commands"))


# --- the vector ----------------------------------------------------------------------------------


def prepare(
    command: str, policy: CommandPolicy = _NO_POLICY, *, path: str = TRUSTED_PATH
) -> tuple[str, ...]:
    """Return the argument vector for a command; RunRefused with the reason when it is refused.

    Under a policy its first word is the absolute path of the program that was checked.
    """
    if not command.strip():
        raise RunRefused("skill and command are required")
    _check_text(command)
    if not policy.active:
        return ("bash", "-c", command)
    words = split_words(command)
    return (_checked_program(words, policy, path), *words[1:])


def _check_text(command: str) -> None:
    try:
        size = len(command.encode())
    except UnicodeEncodeError as error:
        raise RunRefused("the command is not valid Unicode") from error
    if "\0" in command:
        raise RunRefused("the command holds a NUL character")
    if size > MAX_COMMAND_BYTES:
        raise RunRefused(
            f"the command has {size} bytes, more than {MAX_COMMAND_BYTES};"
            " write it to a file with `inputs` and run that"
        )


def check_vector(words: Iterable[str], env: Mapping[str, str]) -> None:
    """Raise RunRefused for words and variables that are too long to start a program with."""
    if len(env) > MAX_VARIABLES:
        raise RunRefused(f"env has {len(env)} variables, {_MANY_VARIABLES}")
    total = sum(len(name) + _size(value) + 2 + _POINTER_BYTES for name, value in env.items())
    for word in words:
        size = _size(word)
        if "\0" in word:
            raise RunRefused("the command holds a NUL character")
        if size > MAX_COMMAND_BYTES:
            raise RunRefused(f"a word of the command has {size} bytes: {_LONG_WORD}")
        total += size + 1 + _POINTER_BYTES
    if total > MAX_VECTOR_BYTES:
        raise RunRefused(f"the command and its environment have {total} bytes: {_LONG_VECTOR}")


_OTHERWISE = "as stdin or as an input file"
_MANY_VARIABLES = f"more than {MAX_VARIABLES}; give some of them {_OTHERWISE}"
_LONG_WORD = f"more than {MAX_COMMAND_BYTES}; give it {_OTHERWISE}"
_LONG_VECTOR = f"more than {MAX_VECTOR_BYTES}; give some of it {_OTHERWISE}"


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


_SPECIAL = frozenset("|&;<>()`$*?[{}\n\r")
_NAMES = {"\n": "a newline", "\r": "a carriage return"}


def split_words(command: str) -> list[str]:
    """Split a command into words as bash would; RunRefused for anything but plain words.

    Single quotes, double quotes and backslashes quote. Nothing is expanded.
    """
    if _assigns(command):
        raise _syntax("=")
    words: list[str] = []
    at = _skip_blanks(command, 0)
    while at < len(command):
        word, at = _read_word(command, at)
        words.append(word)
        at = _skip_blanks(command, at)
    return words


def first_words(command: str, count: int) -> list[str]:
    """Return the first words as bash would pass them, up to one that is not plain text."""
    words: list[str] = []
    at = len(command) if _assigns(command) else _skip_blanks(command, 0)
    while at < len(command) and len(words) < count:
        try:
            word, at = _read_word(command, at)
        except RunRefused:
            break
        words.append(word)
        at = _skip_blanks(command, at)
    return words


def _assigns(command: str) -> bool:
    name = command.partition("=")[0].lstrip(" \t").removesuffix("+")
    return "=" in command and name.isascii() and name.isidentifier()


def _skip_blanks(command: str, at: int) -> int:
    while command[at : at + 1] in (" ", "\t"):
        at += 1
    return at


def _read_word(command: str, start: int) -> tuple[str, int]:
    pieces: list[str] = []
    at = start
    while at < len(command) and command[at] not in " \t":
        if _is_syntax(command, at, at == start):
            raise _syntax(command[at])
        piece, at = _read_quoted(command, at)
        pieces.append(piece)
    return "".join(pieces), at


def _is_syntax(command: str, at: int, first: bool) -> bool:
    char = command[at]
    if char == "#":
        return first
    if char == "~":  # bash expands `~`, `name=~` and `a:~` to a home folder
        return first or command[at - 1] in "=:"
    return char in _SPECIAL


def _read_quoted(command: str, at: int) -> tuple[str, int]:
    """Return the unquoted text up to the end of its quoting, and that position."""
    char = command[at]
    if char == "\\":
        return _read_escape(command, at)
    if char == "'":
        end = command.find("'", at + 1)
        if end < 0:
            raise RunRefused("the command has a ' without its end")
        return command[at + 1 : end], end + 1
    return _read_quote(command, at + 1) if char == '"' else (char, at + 1)


def _read_escape(command: str, at: int) -> tuple[str, int]:
    if at + 1 >= len(command):
        raise RunRefused("the command ends in a backslash")
    if command[at + 1] in "\n\r":
        raise _syntax(command[at + 1])
    return command[at + 1], at + 2


def _read_quote(command: str, at: int) -> tuple[str, int]:
    text: list[str] = []
    while at < len(command):
        char = command[at]
        if char == '"':
            return "".join(text), at + 1
        if char in "$`":
            raise _syntax(char)
        if char == "\\" and command[at + 1 : at + 2] in tuple('$`"\\\n'):
            at += 1
            char = command[at] if command[at] != "\n" else ""
        text.append(char)
        at += 1
    raise RunRefused('the command has a " without its end')


def _syntax(char: str) -> RunRefused:
    shown = _NAMES.get(char, f"'{char}'")
    return RunRefused(
        f"shell syntax is not accepted under a command policy: {shown};"
        " give one program with its arguments, and quote what is meant as text with ' '"
    )


# --- the program ---------------------------------------------------------------------------------


class _File(NamedTuple):
    """A program on disk: its path with the folder resolved, and the file it links to."""

    path: str
    real: str
    inode: tuple[int, int]

    @property
    def name(self) -> str:
        return os.path.basename(self.path)

    @property
    def multicall(self) -> bool:
        return os.path.basename(self.real) in _MULTICALL


def _checked_program(words: list[str], policy: CommandPolicy, path: str) -> str:
    word = words[0]
    file = _find(word, path)
    listed = policy.allowed is not None and _is_listed(file, policy.allowed, path)
    if _is_denied(word, file, policy.denied, path):
        raise _refusal(word, "is denied by denied_commands")
    if policy.allowed is not None and not listed:
        if file is None and word in policy.allowed:
            raise _refusal(word, f"is not a program in {path}: name its path in allowed_commands")
        raise _refusal(word, "is not allowed by allowed_commands", policy.allowed)
    if file is None:
        raise _refusal(word, f"is not a program in {path}")
    if policy.allowed is None:
        _check_unlisted(word, file, words[1:], path)
    elif _is_wrapper(file):
        _check_wrapped(words[1:], policy.denied, path)
    return file.path


def _refusal(word: str, reason: str, names: Iterable[str] = ()) -> RunRefused:
    shown = f" ({shorten(', '.join(names), 200)})" if names else ""
    return RunRefused(f"command {shorten(one_line(word), 80)!r} {reason}{shown}")


def _find(word: str, path: str) -> _File | None:
    """Find the program of a word: a name is looked up, an absolute path is taken as it is, else
    None.
    """
    if word.startswith("/"):
        return _file(word)
    if "/" in word or word in ("", ".", ".."):
        return None
    # Many systems have the interpreter only under its longer name.
    names = (word, "python3") if word == "python" else (word,)
    found = (_file(os.path.join(folder, name)) for name in names for folder in path.split(":"))
    return next((file for file in found if file), None)


def _file(path: str) -> _File | None:
    try:
        real = os.path.realpath(path, strict=True)
        status = os.stat(real)
    except (OSError, ValueError):
        return None
    if not S_ISREG(status.st_mode) or not status.st_mode & 0o111:
        return None
    folder = os.path.realpath(os.path.dirname(path))
    located = os.path.join(folder, os.path.basename(path))
    return _File(located, real, (status.st_dev, status.st_ino))


def _is_listed(file: _File | None, entries: Iterable[str], path: str) -> bool:
    """Whether an entry is exactly this file; a matching name alone is not enough.

    Link targets are not compared: one file may be many programs, by its names.
    """
    if file is None:
        return False
    return any(found.path == file.path for one in entries if (found := _find(one, path)))


def _is_denied(word: str, file: _File | None, entries: Iterable[str], path: str) -> bool:
    """Whether an entry has this name, or is the same file under another name."""
    names = {os.path.basename(word), *((file.name,) if file else ())}
    for entry in entries:
        if entry in names or entry == word:
            return True
        other = _find(entry, path)
        if file and other and _is_same(file, other):
            return True
    return False


def _is_same(one: _File, other: _File) -> bool:
    if one.path == other.path:
        return True
    if one.multicall and other.multicall:
        return False
    return one.real == other.real or one.inode == other.inode


def _is_wrapper(file: _File) -> bool:
    names = (file.name,) if file.multicall else (file.name, os.path.basename(file.real))
    return any(name in WRAPPERS or name.startswith(_LOADERS) for name in names)


def _check_unlisted(word: str, file: _File, arguments: list[str], path: str) -> None:
    """With only a deny-list: refuse programs that could start a denied one."""
    remedy = "; it runs only when allowed_commands names it"
    folders = {os.path.realpath(folder) for folder in path.split(":")}
    if os.path.dirname(file.path) not in folders:
        raise _refusal(word, f"lies outside {path}{remedy}")
    if _is_wrapper(file):
        raise _refusal(word, f"starts other programs, which denied_commands cannot see{remedy}")
    if _runs_given_code(file, arguments):
        raise _refusal(word, f"would run code from its arguments{remedy}")


def _runs_given_code(file: _File, arguments: list[str]) -> bool:
    options = _RUNNING_OPTIONS.get(file.name, ())
    if any(one.partition("=")[0] in options for one in arguments):
        return True
    for name in (file.name, os.path.basename(file.real)):
        harmless = _INTERPRETERS.get(name.rstrip("0123456789.") or name)
        if harmless is not None:
            return not _has_script(arguments, harmless.split())
    return False


def _has_script(arguments: list[str], harmless: list[str]) -> bool:
    for one in arguments:
        if not one.startswith("-"):
            return True
        if one not in harmless:
            return False
        if one.startswith(("-V", "-v", "-h", "--version", "--help")):
            return True
    return False


def _check_wrapped(arguments: list[str], denied: tuple[str, ...], path: str) -> None:
    """Refuse a listed wrapper that gets a denied program as an argument, by name or path."""
    for one in arguments:
        if _is_denied(one, _find(one, path), denied, path):
            raise _refusal(one, "is denied by denied_commands")


# --- the environment -----------------------------------------------------------------------------

_DROPPED_PREFIXES = ("LD_", "DYLD_", "BASH_FUNC_", "GIT_", "MALLOC_")
_HOOKS = """
BASH_ENV ENV PYTHONPATH PYTHONSTARTUP PYTHONHOME PYTHONINSPECT PYTHONBREAKPOINT PYTHONWARNINGS
PYTHONUSERBASE NODE_OPTIONS NODE_PATH IFS PS4 SHELLOPTS BASHOPTS PROMPT_COMMAND CDPATH GLOBIGNORE
PERL5LIB PERL5OPT PERLLIB RUBYLIB RUBYOPT GCONV_PATH GLIBC_TUNABLES NLSPATH LOCPATH RES_OPTIONS
HOSTALIASES JAVA_TOOL_OPTIONS _JAVA_OPTIONS JDK_JAVA_OPTIONS LUA_INIT LUA_PATH LUA_CPATH PHPRC
PHP_INI_SCAN_DIR
"""
_DROPPED = frozenset(_HOOKS.split())


def clean_environment(given: Mapping[str, str], *, policy: bool = False) -> dict[str, str]:
    """Return the variables for a command, without those that make a program run others.

    Under a policy PATH is left out too. RunRefused for an invalid name, or a NUL.
    """
    kept = {name: value for name, value in given.items() if not _is_dropped(name, policy)}
    return {_variable(name): _value(name, value) for name, value in kept.items()}


def dropped_variables(given: Mapping[str, str], *, policy: bool = False) -> tuple[str, ...]:
    """Return the variables that `clean_environment` leaves out."""
    return tuple(name for name in given if _is_dropped(name, policy))


def _is_dropped(name: str, policy: bool) -> bool:
    return name in _DROPPED or name.startswith(_DROPPED_PREFIXES) or (policy and name == "PATH")


def _variable(name: str) -> str:
    if not (name.isascii() and name.isidentifier()):
        shown = shorten(one_line(name), 80)
        raise RunRefused(f"env: {shown!r} is not the name of a variable")
    return name


def _value(name: str, value: str) -> str:
    try:
        size = len(name) + len(value.encode()) + 2
    except UnicodeEncodeError as error:
        raise RunRefused(f"env: the value of {name} is not valid Unicode") from error
    if "\0" in value:
        raise RunRefused(f"env: the value of {name} holds a NUL character")
    if size > MAX_COMMAND_BYTES:
        raise RunRefused(f"env: the value of {name} is longer than {MAX_COMMAND_BYTES} bytes")
    return value
