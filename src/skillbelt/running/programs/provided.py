"""pip, uv, uvx, npx and tsx inside a run: they use the provided packages, and download nothing.

Run as `python3 -I provided.py NAME ARGUMENTS...` by the interpreter of the run, as text: it may run
where this package cannot be read, so it imports only the standard library.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
from importlib import import_module, util
from typing import Any, NoReturn
from urllib.parse import quote

# The text that the runtime recognises in the output of a run.
MISSING = "was not provided to this run, and nothing is downloaded inside"
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_BLOCK = re.compile(r"(?m)^# /// script$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
# Options that take a value. Those that only choose the source of packages have no effect.
_UV_TEXT = (
    "--with --with-editable --with-requirements --python -p --extra --group --only-group --no-group"
    " --no-extra --package --project --directory --env-file --index --default-index --index-url -i"
    " --extra-index-url --find-links -f --index-strategy --keyring-provider --resolution"
    " --prerelease --exclude-newer --link-mode --cache-dir --config-file --config-setting -C"
    " --no-build-package --no-binary-package --refresh-package --reinstall-package"
    " --upgrade-package -P --color --allow-insecure-host --from --fork-strategy -w"
    " --python-platform"
)
_PIP_TEXT = (
    "-r --requirement -c --constraint -e --editable -t --target --python --platform --prefix --root"
    " --src -i --index-url --extra-index-url -f --find-links --only-binary --no-binary --cache-dir"
    " --trusted-host --cert --proxy --timeout --retries --log --progress-bar -C --config-settings"
    " --upgrade-strategy --python-version --implementation --abi --report --index --default-index"
    " --index-strategy --resolution --prerelease --exclude-newer --link-mode -p -b"
)
_UV_VALUES, _PIP_VALUES = frozenset(_UV_TEXT.split()), frozenset(_PIP_TEXT.split())
_MAX_TEXT = 2**18
# Python before 3.11 has no TOML parser: declarations in files are not checked there.
_toml: Any = import_module("tomllib") if util.find_spec("tomllib") else None


def main(name: str, words: list[str]) -> int:
    """Act as the program of that name; return the exit code."""
    if name in ("npx", "tsx"):
        return _npx(words if name == "npx" else [name, *words])
    if name == "uvx":
        return _uv_tool(words)
    return _pip(words, "pip") if name.startswith("pip") else _uv(words)


def _fail(text: str, code: int = 2) -> NoReturn:
    print(text, file=sys.stderr)
    sys.exit(code)


def _become(program: str, *words: str) -> NoReturn:
    """Become another program, looked up on the PATH unless it contains a slash."""
    found = program if "/" in program else shutil.which(program)
    if not found:
        _fail(f"{program}: command not found", 127)
    sys.stdout.flush()
    try:
        os.execv(found, [program, *words])
    except OSError as error:
        _fail(f"{program}: {error.strerror}", 126)


# What was provided


def _normal(text: str) -> str:
    """Return the normalized name of a requirement; "" for an invalid one."""
    found = _NAME.match(text)
    return re.sub(r"[-_.]+", "-", found[1]).lower() if found else ""


def _metadata() -> Any:
    from importlib import metadata  # cost: 10 ms, and the runtime imports this file for one text

    return metadata


def _installed() -> dict[str, str]:
    """Return the versions of the packages of this interpreter, by name."""
    found: dict[str, str] = {}
    for one in _metadata().distributions():
        name = _normal(one.metadata["Name"] or "")
        if name:
            found.setdefault(name, one.version)
    return found


def _require(program: str, wanted: list[str]) -> None:
    """Fail for the first package that was not provided."""
    installed = _installed() if wanted else {}
    for one in wanted:
        if _normal(one) not in installed:
            _fail(f"{program}: the package '{_normal(one) or one[:80]}' {MISSING}")


def _read_requirements(path: str) -> list[str]:
    """Return the requirements that a file names; options and comments are left out."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(_MAX_TEXT).splitlines()
    except OSError as error:
        _fail(f"{path}: {error.strerror}")
    return [line for line in lines if _NAME.match(line)]


def _read_script_block(path: str) -> list[str]:
    """Return the requirements in the block of a script (PEP 723)."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = _BLOCK.search(file.read(_MAX_TEXT))
        if found is None or _toml is None:
            return []
        lines = found["content"].splitlines()
        text = "\n".join(line[2:] if line.startswith("# ") else line[1:] for line in lines)
        wanted = _toml.loads(text).get("dependencies", [])
    except (OSError, ValueError):
        return []
    return [str(one) for one in wanted] if isinstance(wanted, list) else []


def _split(words: list[str], values: frozenset[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the options before the first other word, by name, and the rest."""
    options: dict[str, list[str]] = {}
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name in values and not equals:
            value = rest.pop(0) if rest else ""
        options.setdefault(name, []).append(value)
    return options, rest


def _is_online() -> bool:
    return bool(os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy"))


def _real_program(name: str) -> str:
    """Return the program of that name that this one replaces on the PATH; "" for none."""
    own = os.path.dirname(os.path.abspath(__file__))
    folders = [os.path.join(own, ".real"), "/usr/local/bin", "/usr/bin", "/bin"]
    return shutil.which(name, path=":".join(folders)) or ""


# uv


def _uv(words: list[str]) -> int:
    options, rest = _split(words, _UV_VALUES)
    command, rest = (rest[0], rest[1:]) if rest else ("", [])
    if command == "run":
        return _uv_run([*_leading_options(options), *rest])
    if command == "pip":
        return _pip(rest, "uv pip")
    if command == "tool" and rest[:1] == ["run"]:
        return _uv_tool(rest[1:])
    if command == "python" and rest[:1] == ["find"]:
        print(sys.executable)
        return 0
    if command == "sync" and not _is_online():
        _require("uv sync", _project())
        print("the packages of the project were provided", file=sys.stderr)
        return 0
    real = _real_program("uv")
    if real:
        os.environ.setdefault("UV_PYTHON_DOWNLOADS", "never")
        if not _is_online():
            os.environ["UV_OFFLINE"] = "1"
        _become(real, *words)
    if {"--version", "-V"} & set(options) or command == "version":
        print("uv (of the sandbox: it runs the provided packages)")
        return 0
    known = "run, pip list, pip show, pip install, sync, tool run, python find"
    _fail(f"uv: '{command[:40]}' needs the program uv, which is not there; known here: {known}")


def _leading_options(options: dict[str, list[str]]) -> list[str]:
    """Return the options before `run` as words; change to the folder that they name."""
    for folder in options.pop("--directory", []):
        try:
            os.chdir(folder)
        except OSError as error:
            _fail(f"uv: {folder}: {error.strerror}")
    return [f"{name}={value}" if value else name for name in options for value in options[name]]


def _project() -> list[str]:
    """Return the requirements in the `pyproject.toml` here."""
    if _toml is None:
        return []
    try:
        with open("pyproject.toml", "rb") as file:
            found = _toml.load(file).get("project", {}).get("dependencies", [])
    except (OSError, ValueError, AttributeError):
        return []
    return [str(one) for one in found] if isinstance(found, list) else []


def _extra_packages(options: dict[str, list[str]]) -> list[str]:
    """Return the packages that `--with` and similar options ask for."""
    texts = [*options.get("--with", []), *options.get("-w", []), *options.get("--from", [])]
    found = [part for text in texts for part in text.split(",") if part.strip()]
    files = [name for text in options.get("--with-requirements", []) for name in text.split(",")]
    return [*found, *(line for name in files for line in _read_requirements(name))]


def _uv_run(words: list[str]) -> int:
    options, rest = _split(words, _UV_VALUES)
    rest = [*_leading_options({"--directory": options.pop("--directory", [])}), *rest]
    if not rest:
        _fail("uv run: name a script or a program")
    first, others = rest[0], rest[1:]
    is_script = bool({"--script", "-s", "--gui-script"} & set(options))
    if first.startswith(("http://", "https://")):
        _fail("uv run: a script from the network is not run here")
    is_file = is_script or (first.endswith((".py", ".pyw")) and os.path.isfile(first))
    _require("uv run", [*_extra_packages(options), *(_read_script_block(first) if is_file else [])])
    python = sys.executable
    if {"-m", "--module"} & set(options):
        _become(python, "-m", first, *others)
    if is_file or first == "-" or os.path.isfile(os.path.join(first, "__main__.py")):
        _become(python, first, *others)
    if re.fullmatch(r"python(3(\.\d+)?)?", first):
        _become(python, *others)
    _become(_own_program(first) or first, *others)


def _own_program(name: str) -> str:
    """Return the program of a provided package; "" for none."""
    if "/" in name or sys.prefix == sys.base_prefix:
        return ""
    return shutil.which(name, path=os.path.join(sys.prefix, "bin")) or ""


def _uv_tool(words: list[str]) -> int:
    options, rest = _split(words, _UV_VALUES)
    if not rest:
        _fail("uvx: name a program")
    name = rest[0].partition("@")[0]
    _require("uvx", _extra_packages(options) or ([] if _own_program(name) else [name]))
    _become(_own_program(name) or name, *rest[1:])


# pip


def _pip(words: list[str], shown: str) -> int:
    options, rest = _split(words, _PIP_VALUES)
    command, rest = (rest[0], rest[1:]) if rest else ("", [])
    if command in ("list", "freeze"):
        return _pip_list(command, rest)
    if command == "show":
        return _pip_show(rest)
    if command == "install":
        return _pip_install(rest, words, shown)
    if command == "" and {"--version", "-V"} & set(options):
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        print(f"pip (of the sandbox: it lists the provided packages) (python {version})")
        return 0
    if util.find_spec("pip") is not None and shown == "pip":
        _become(sys.executable, "-m", "pip", *words)
    _fail(f"{shown}: '{command[:40]}' is not known here; known: list, freeze, show, install")


def _pip_list(command: str, rest: list[str]) -> int:
    found = sorted(_installed().items())
    options, _ = _split([*rest], frozenset(("--format", "--exclude", "--path")))
    form = "freeze" if command == "freeze" else (options.get("--format") or ["columns"])[0]
    if form == "json":
        print(json.dumps([{"name": name, "version": version} for name, version in found]))
        return 0
    if form == "columns":
        wide = max([7, *(len(name) for name, _ in found)])
        print(f"{'Package':{wide}} Version\n{'-' * wide} -------")
    for name, version in found:
        print(f"{name}=={version}" if form == "freeze" else f"{name:{wide}} {version}")
    return 0


def _pip_show(rest: list[str]) -> int:
    _, names = _split(rest, frozenset())
    code = 0
    for name in names:
        try:
            one = _metadata().distribution(name)
        except (ImportError, ValueError):  # PackageNotFoundError is an ImportError
            print(f"WARNING: Package(s) not found: {name[:80]}", file=sys.stderr)
            code = 1
            continue
        print(f"Name: {one.metadata['Name']}\nVersion: {one.version}")
        print(f"Summary: {one.metadata['Summary'] or ''}\nLocation: {one.locate_file('')}")
        requires = ", ".join(
            sorted({_normal(text) for text in one.requires or [] if "extra ==" not in text})
        )
        print(f"Requires: {requires}")
    return code


def _pip_install(rest: list[str], words: list[str], shown: str) -> int:
    wanted: list[str] = []
    while rest:
        options, rest = _split(rest, _PIP_VALUES)
        for name in ("-r", "--requirement"):
            wanted += [line for path in options.get(name, []) for line in _read_requirements(path)]
        if {"-e", "--editable"} & set(options):
            _fail(f"{shown} install: -e is not possible inside a run", 1)
        wanted += rest[:1]
        rest = rest[1:]
    installed = _installed()
    missing = [one for one in wanted if _normal(one) not in installed]
    if missing and _is_online():
        _install_really(words, shown)
    for one in wanted:
        if one not in missing:
            name = _normal(one)
            print(f"Requirement already satisfied: {name} ({installed[name]}, provided)")
    for one in missing[:10]:
        text = f"{shown}: the package '{_normal(one) or one[:80]}' {MISSING}"
        print(text, file=sys.stderr)
    return 1 if missing else 0


def _install_really(words: list[str], shown: str) -> None:
    """Run the real installer, where the run has a network; return if there is none."""
    real = _real_program("uv") if shown == "uv pip" else ""
    if real:
        _become(real, "pip", *words)
    if shown == "pip" and util.find_spec("pip") is not None:
        _become(sys.executable, "-m", "pip", *words)


# npx


def _npx(words: list[str]) -> int:
    options, rest = _split(words, frozenset(("-p", "--package", "-w", "--workspace", "--shell")))
    call = [name for name in ("-c", "--call") if name in options]
    folders = _modules()
    if call:
        path = [f"{folder}/.bin" for folder in folders]
        os.environ["PATH"] = ":".join([os.environ.get("PATH", ""), *path])
        _become("/bin/sh", "-c", " ".join([*options[call[0]], *rest]).strip())
    if not rest:
        if {"--version", "-v"} & set(options):
            print("npx (of the sandbox: it runs the provided packages)")
            return 0
        _fail("npx: name a program")
    name = _without_version(rest[0])
    packages = [
        _without_version(one) for one in (*options.get("-p", []), *options.get("--package", []))
    ]
    for folder in folders:
        found = _bin(folder, name, packages)
        if found:
            _become(*(_tsx_command(folder, name, rest[1:]) or (found,)), *rest[1:])
    own = os.path.realpath(sys.argv[0])
    found = "" if "/" in name else shutil.which(name) or ""
    if found and os.path.realpath(found) != own and name != "npx":
        _become(found, *rest[1:])
    package = (packages or [name])[0]
    _fail(f"npx: the package '{package[:80]}' {MISSING}", 127)


def _tsx_command(folder: str, name: str, words: list[str]) -> tuple[str, ...]:
    """Return the node command that runs a script with tsx, without its program; () to start that.

    The program listens on a Unix socket, only for `watch`, and neither a run with a network nor one
    under Landlock may.
    """
    loader = os.path.join(folder, "tsx/dist/loader.mjs")
    runs = bool(words) and words[0].endswith((".ts", ".tsx", ".mts", ".cts", ".js", ".mjs", ".cjs"))
    is_so = name == "tsx" and runs and not _can_listen() and os.path.isfile(loader)
    return ("node", "--import", f"file://{quote(loader)}") if is_so else ()


def _can_listen() -> bool:
    try:
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True


def _without_version(text: str) -> str:
    head, at, _ = text[1:].partition("@")
    return text[:1] + head if at else text


def _modules() -> list[str]:
    """Return the folders of modules: the provided ones, then those above the start."""
    found = [one for one in os.environ.get("NODE_PATH", "").split(":") if one]
    folder = os.getcwd()
    while True:
        found.append(os.path.join(folder, "node_modules"))
        if folder == os.path.dirname(folder):
            return [one for one in dict.fromkeys(found) if os.path.isdir(one)]
        folder = os.path.dirname(folder)


def _bin(folder: str, name: str, packages: list[str]) -> str:
    """Return the program of that name, or that of the package of that name; "" for none."""
    if "/" not in name and os.access(os.path.join(folder, ".bin", name), os.X_OK):
        return os.path.join(folder, ".bin", name)
    for package in packages or [name]:
        if ".." in package or package.startswith(("/", ".")):
            continue
        try:
            with open(os.path.join(folder, package, "package.json"), encoding="utf-8") as file:
                entry: Any = json.load(file).get("bin")
        except (OSError, ValueError, AttributeError, RecursionError):
            continue
        short = package.rpartition("/")[2]
        names = list(entry) if isinstance(entry, dict) else [short] if entry else []
        wanted = short if short in names else names[0] if len(names) == 1 else ""
        path = os.path.join(folder, ".bin", wanted)
        if wanted and "/" not in wanted and os.access(path, os.X_OK):
            return path
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
