"""Find out from its output what a failed command lacked: a program, a module, a host, a folder.

The output is hostile: a name counts only if it matches a strict pattern, and only if it is really
missing. The output itself is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Literal, NamedTuple

from skillbelt.hosts import leads_inside
from skillbelt.running.programs.hint import Hint
from skillbelt.running.programs.provided import MISSING
from skillbelt.running.programs.table import PACKAGES, Packaged

MAX_HINTS = 4
_MAX_LINES, _MAX_LINE, _MAX_TEXT = 2_000, 1_000, 2**16
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_BY_ENDING = {".sh": "bash", ".py": "python", ".js": "node", ".mjs": "node"}
_PROGRAM = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}"
_PATH = r"(?:/|\./|\.\./)?[A-Za-z0-9._+@-]+(?:/[A-Za-z0-9._+@-]+){0,30}"
_HOST = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})(?:\.[A-Za-z0-9-]{1,63}){1,10}"
_QUOTE = "[‘’'\"`]?"
# One line that means a missing program with any exit code, and one that may mean something else.
_NO_COMMAND = re.compile(rf"(?:^|: )({_PATH}): command not found$")
_NO_PROGRAM = re.compile(
    rf"(?:^|: )(?:exec: )?({_PATH}): "
    r"(?:not found|cannot execute: required file not found|No such file or directory)$"
)
_ENVIRONMENT = re.compile(
    rf"^(?:/usr/bin/)?(?:env|xargs|nohup|timeout|time|make): (?:failed to run command )?"
    rf"{_QUOTE}({_PATH}){_QUOTE}: No such file or directory$"
)
_INTERPRETER = re.compile(rf": ({_PATH}): bad interpreter: No such file or directory$")
_PYTHON_START = re.compile(
    rf"^FileNotFoundError: \[Errno 2\] No such file or directory: '({_PATH})'$"
)
_NOT_ALLOWED = re.compile(rf"(?:^|: )({_PATH}): Permission denied$")
_NODE_START = re.compile(rf"\bspawn(?:Sync)? ({_PATH}) ENOENT\b")
_GO_START = re.compile(rf'exec: "({_PATH})": executable file not found in \$PATH')
_MODULE = re.compile(
    r"(?:^ModuleNotFoundError|^ImportError): No module named '([A-Za-z_][\w.]{0,99})'(?:;|$)"
    r"|^/\S{1,200}python[\d.]*: No module named ([A-Za-z_][\w.]{0,99})$",
    re.ASCII,
)
_NODE_MODULE = re.compile(
    r"Cannot find (?:module|package) "
    r"'((?:@[a-z0-9~][\w.~-]{0,100}/)?[a-z0-9~][\w.~-]{0,100})(?:/[\w./~-]{0,200})?'",
    re.ASCII,
)
_NOT_PROVIDED = re.compile(
    rf"^(uv run|uvx|uv sync|uv pip|pip|npx): the package "
    rf"'((?:@[a-z0-9~][\w.~-]{{0,100}}/)?[A-Za-z0-9][\w.-]{{0,100}})' {MISSING}$",
    re.ASCII,
)
_NO_HOST = re.compile(
    rf"(?:Could not resolve host: |getaddrinfo (?:ENOTFOUND|EAI_AGAIN) |[Ff]ailed to resolve '"
    rf"|ConnectionPool\(host='|resolve host address {_QUOTE}|dial tcp: lookup )({_HOST})"
)
_NO_NETWORK = re.compile(
    r"Temporary failure in name resolution|Name or service not known|Network is unreachable"
    r"|\bENETUNREACH\b|\bEAI_AGAIN\b|nodename nor servname provided"
    r"|^(?:\w*Error: ){1,2}fetch failed$"
)
_NO_WRITE = (
    re.compile(rf"\[Errno (?:30|13)\] (?:Read-only file system|Permission denied): '({_PATH})'"),
    re.compile(rf"\b(?:EROFS|EACCES): [a-z -]{{1,60}}, \w{{1,20}} '({_PATH})'"),
    re.compile(rf"(?:^|: )({_PATH}): Read-only file system$"),
    re.compile(rf"[‘']({_PATH})[’']: (?:Read-only file system|Permission denied)$"),
)
_SECRET = re.compile(
    r"(?<![\w./$])([A-Z][A-Z0-9]{0,30}(?:_[A-Z0-9]{1,30}){0,5}"
    r"_(?:KEY|TOKEN|SECRET|PASSWORD|PAT|CREDENTIALS))(?![\w/])",
    re.ASCII,
)
# Names that no package provides: they belong to an interpreter or to nothing.
_NO_PACKAGE = frozenset(("pip", "setuptools", "__main__"))


class HintFacts(NamedTuple):
    """The facts of a run, to compare its output with.

    `has` says whether a command finds a program; `elsewhere` returns the folder of this machine,
    not visible to it, that has the program. `interpreter_of` returns the program that a script
    names in its first line. `package_of` returns the package of a module, and whether that is known
    and not guessed by its name; None for a module that no package has. `is_package` says whether a
    package is known. `own` says whether the skill has a module, `closed` why a path cannot be
    written. `image` is the image of the container.

    `files` are words of the command that name files of the project and none of the run;
    `needs_secret` says whether a variable is not set and no warning says so. `absent` are packages
    that the index does not have.
    """

    skill: str
    exit_code: int
    has: Callable[[str], bool]
    elsewhere: Callable[[str], str]
    interpreter_of: Callable[[str], str]
    package_of: Callable[[Literal["python", "node"], str], tuple[str, bool] | None]
    is_package: Callable[[Literal["python", "node"], str], bool]
    own: Callable[[str], bool]
    closed: Callable[[str], Literal["", "read-only", "outside"]]
    refused_hosts: tuple[str, ...] = ()
    online: bool = False
    can_be_online: bool = True
    image: str = ""
    files: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    needs_secret: Callable[[str], bool] = lambda name: False


def hints_of(stdout: str, stderr: str, facts: HintFacts) -> tuple[Hint, ...]:
    """Return what the command lacked, as far as its output says so and it is true."""
    lines = _lines(stderr)
    if facts.exit_code:
        lines += _lines(stdout[-_MAX_TEXT:])
    readers = (_programs, _modes, _modules, _inputs, _secrets, _hosts, _writes)
    found = [one for reader in readers for one in reader(lines, facts)]
    unique = {(one.kind, one.name): one for one in reversed(found)}
    return tuple(islice(reversed(unique.values()), MAX_HINTS))


def _lines(text: str) -> list[str]:
    lines = text[:_MAX_TEXT].split("\n")
    return [line.rstrip("\r ") for line in lines[-_MAX_LINES:] if len(line) <= _MAX_LINE]


# Programs


def _programs(lines: list[str], facts: HintFacts) -> Iterator[Hint]:
    for path in dict.fromkeys(_named_programs(lines, facts)):
        name = facts.interpreter_of(path) if "/" in path else ""
        name = name or path.rpartition("/")[2]
        is_script = "/" in path and not path.startswith("/") and not facts.interpreter_of(path)
        if not re.fullmatch(_PROGRAM, name) or is_script:
            continue
        if not facts.has(name):
            yield missing_program(name, facts)
        elif ("/" in path and name != path.rpartition("/")[2]) or path in _bad_interpreters(lines):
            said = (
                f"the first line of the script names a {name} that is not at that place: start it "
                f"with `{name} SCRIPT`"
            )
            yield Hint("missing_program", name, said)


def _bad_interpreters(lines: list[str]) -> set[str]:
    return {found[1] for line in lines if (found := _INTERPRETER.search(line))}


def _named_programs(lines: list[str], facts: HintFacts) -> Iterator[str]:
    starts = any("subprocess.py" in line for line in lines)
    for line in lines:
        patterns = [_NO_COMMAND, _ENVIRONMENT, _INTERPRETER, _NODE_START, _GO_START]
        if facts.exit_code == _NOT_FOUND:
            patterns.append(_NO_PROGRAM)
        if starts:
            patterns.append(_PYTHON_START)
        for pattern in patterns:
            found = pattern.search(line)
            if found:
                yield found[1]
                break


def _modes(lines: list[str], facts: HintFacts) -> Iterator[Hint]:
    """Yield scripts that are not executable: copies of skills often lose the mode."""
    for line in lines if facts.exit_code == _NOT_EXECUTABLE else ():
        found = _NOT_ALLOWED.search(line)
        path = found[1] if found else ""
        ending = path[path.rfind(".") :] if "." in path else ""
        program = (facts.interpreter_of(path) if path else "") or _BY_ENDING.get(ending, "")
        if program and re.fullmatch(_PROGRAM, program):
            said = (
                f"{path} is not executable: start it with `{program} {path}`, or make it so in the "
                f"skill's folder (chmod +x {path})"
            )
            yield Hint("not_executable", path, said)


def missing_program(name: str, facts: HintFacts) -> Hint:
    """Return the hint for a missing program."""
    packaged = PACKAGES.get(name, Packaged())
    install = tuple(_install(packaged))
    if facts.image:
        said = f"{name} is not in the image {facts.image} (container_image): add it there"
        return _program_hint(name, said, packaged, install)
    folder = facts.elsewhere(name)
    if folder:
        said = (
            f"{name} is on this machine in {folder}, which runs do not see: add that folder to "
            "program_folders in your own settings"
        )
        return _program_hint(name, said, packaged)
    ways = ", or ".join(install)
    if packaged.python or packaged.node:
        package = packaged.python or packaged.node
        kind = "Python" if packaged.python else "Node.js"
        ways = f"the {kind} package {package} has it: {_advise_package(facts.skill, package)}" + (
            f"; or {ways}" if ways else ""
        )
    elif not ways:
        ways = f"install {packaged.where or 'it'} on this machine, below /usr or /usr/local"
    return _program_hint(name, f"{name} is not installed here: {ways}", packaged, install)


def _program_hint(name: str, said: str, packaged: Packaged, install: tuple[str, ...] = ()) -> Hint:
    package = next((one for one in packaged if one), "")
    return Hint(kind="missing_program", name=name, message=said, package=package, install=install)


def _install(packaged: Packaged) -> Iterator[str]:
    if packaged.debian:
        yield f"apt install {packaged.debian}"
    if packaged.homebrew:
        yield f"brew install {packaged.homebrew}"


def _advise_package(skill: str, package: str) -> str:
    return (
        f"run it again with --with {package}, or set packages = [{package!r}] for the skill "
        f"({_table(skill)} in your own settings)"
    ).replace("'", '"')


def _table(skill: str) -> str:
    return f'[skills."{skill}"]' if not re.fullmatch(r"[\w-]+", skill) else f"[skills.{skill}]"


# Modules


def _modules(lines: list[str], facts: HintFacts) -> Iterator[Hint]:
    for line in lines:
        if MISSING in line and (found := _NOT_PROVIDED.search(line)):
            if found[2] in facts.absent:
                continue
            kind = "Node.js" if found[1] == "npx" else "Python"
            said = f"the {kind} package {found[2]} that the command asks for was not provided"
            if not facts.is_package("node" if found[1] == "npx" else "python", found[2]):
                # Any script can print that line: it must not choose what a user installs.
                yield Hint("missing_module", found[2], f"{said}, and it is not a known package")
                continue
            said = f"{said}: {_advise_package(facts.skill, found[2])}"
            yield Hint("missing_module", found[2], said, found[2])
        elif "No module named" in line and (found := _MODULE.search(line)):
            module = found[1] or found[2]
            top = module.partition(".")[0]
            if top not in _NO_PACKAGE and not facts.own(top):
                yield from _module(module, "python", facts)
        elif "Cannot find" in line and (found := _NODE_MODULE.search(line)):
            yield from _module(found[1], "node", facts)


def _module(module: str, kind: Literal["python", "node"], facts: HintFacts) -> Iterator[Hint]:
    found = facts.package_of(kind, module)
    language = "Python" if kind == "python" else "Node.js"
    if found is None:
        return
    package, is_known = found
    if is_known:
        yield _missing_module(module, package, language, facts)
        return
    # Anyone can publish a package of that name: do not advise it.
    said = (
        f"the {language} module {module} was not provided, and no package is known to have it: "
        "find out which has, and run it again with --with PACKAGE"
    )
    yield Hint("missing_module", module, said)


def _missing_module(module: str, package: str, kind: str, facts: HintFacts) -> Hint:
    what = f"the {kind} module {module}" if module != package else f"the {kind} package {package}"
    has = f" (package {package})" if module != package else ""
    said = f"{what}{has} was not provided: {_advise_package(facts.skill, package)}"
    return Hint("missing_module", module, said, package)


# Files and secrets of the user


def _inputs(lines: list[str], facts: HintFacts) -> Iterator[Hint]:
    for path in facts.files:
        if re.fullmatch(_PATH, path) and any(path in line for line in lines):
            name = path.rpartition("/")[2]
            said = (
                f"{path} is in the project, which runs do not see: pass it as an input (--input "
                f"{path}), and write inputs/{name} in the command"
            )
            yield Hint("missing_input", path, said)


def _secrets(lines: list[str], facts: HintFacts) -> Iterator[Hint]:
    for line in lines if facts.exit_code else ():
        for name in filter(facts.needs_secret, _SECRET.findall(line)):
            said = (
                f"{name} is not set in this run, which does not see your own variables: `skillbelt "
                f"secrets set {name} --skill {facts.skill}`, then run it again with --secret {name}"
                f', or set env = ["{name}"] for the skill ({_table(facts.skill)} in your own '
                "settings)"
            )
            yield Hint("missing_secret", name, said)


# The network


def _hosts(lines: list[str], facts: HintFacts) -> Iterator[Hint]:
    hosts = [host for host in facts.refused_hosts if re.fullmatch(_HOST, host)]
    no_network = False
    for line in lines if not facts.online else ():
        hosts += [found[1] for found in _NO_HOST.finditer(line)]
        no_network = no_network or bool(_NO_NETWORK.search(line))
    if (hosts or no_network) and not facts.can_be_online:
        said = "this sandbox gives no network, even to allowed hosts: bubblewrap and containers do"
        yield Hint("network_refused", hosts[0].lower() if hosts else "", said)
        return
    # Do not advise an address of the user's own network: a script chooses what it prints.
    public = [host.lower() for host in hosts if not leads_inside(host)]
    for host in dict.fromkeys(public):
        said = (
            f'runs of {facts.skill} may not reach {host}: set hosts = ["{host}"] for the skill '
            f"({_table(facts.skill)} in your own settings), or declare WebFetch(domain:{host}) in "
            "its allowed-tools; it is then asked for"
        )
        yield Hint("network_refused", host, said)
    if no_network and not hosts:
        said = (
            "this run has no network: name the hosts it needs for the skill "
            f"({_table(facts.skill)} hosts in your own settings)"
        )
        yield Hint("network_refused", "", said)


# Folders


def _writes(lines: list[str], facts: HintFacts) -> Iterator[Hint]:
    # A program that may not be started fails with the same message.
    starts = any("subprocess.py" in line for line in lines)
    for line in lines if facts.exit_code and not starts else ():
        for found in filter(None, (pattern.search(line) for pattern in _NO_WRITE)):
            path = found[1]
            where = facts.closed(path)
            if where == "read-only":
                said = (
                    f"a run cannot write {path}: write results to out/ ($OUTPUT_DIR), other files "
                    "to work/ ($WORK_DIR) or $TMPDIR"
                )
                yield Hint("write_refused", path, said)
            elif where:
                said = (
                    f"a run cannot reach {path}: files of the host come in as inputs (--input "
                    "FILE), results go to out/ ($OUTPUT_DIR)"
                )
                yield Hint("file_refused", path, said)
            if where:
                return
