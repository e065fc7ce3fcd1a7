"""Environments for scripts: made once for what they need, kept by content, read-only afterwards.

Packages are installed by uv or npm as the user's own configuration says, outside any sandbox and
without running a line of them: wheels only, no install scripts. An environment is built aside and
renamed into place, so that one which is there is whole.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import NamedTuple

from skillbelt.dependencies import Needs, describe
from skillbelt.errors import RunRefused
from skillbelt.text import one_line, shorten
from skillbelt.values import Limits

Progress = Callable[[str], None]
_FORMAT = 1  # part of every hash: raised when environments are made in another way
_RECORD = "environment.json"
FOLDER, HALF_MADE, LOCK = "environments", ".part-", ".lock"
_OUTPUT_CHARS = 600
_MOST_NESTED = 64  # folders in folders; whoever nests deeper hides something
_LIMITS = Limits()
# What of the user's environment says where packages come from; nothing else is handed on.
_KEPT_PREFIXES = ("UV_INDEX", "npm_config_", "NPM_CONFIG_")
_KEPT_NAMES = """
HOME USER LOGNAME LANG LC_ALL TMPDIR XDG_CONFIG_HOME XDG_CACHE_HOME XDG_CONFIG_DIRS NETRC
UV_DEFAULT_INDEX UV_EXTRA_INDEX_URL UV_FIND_LINKS UV_NO_INDEX UV_CACHE_DIR UV_CONFIG_FILE
UV_KEYRING_PROVIDER UV_NATIVE_TLS UV_SYSTEM_CERTS UV_INSECURE_HOST UV_EXCLUDE_NEWER UV_HTTP_TIMEOUT
UV_CREDENTIALS_DIR UV_NO_CACHE NODE_EXTRA_CA_CERTS SSL_CERT_FILE SSL_CERT_DIR SSL_CLIENT_CERT
HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy
"""
_KEPT = frozenset(_KEPT_NAMES.split())
# Would bring back what is switched off here, or put packages elsewhere.
_DROPPED = re.compile(
    r"npm_config_(ignore_scripts|script_shell|prefix|global|location|node_options)",
    re.IGNORECASE,
)


class Environment(NamedTuple):
    """Where the packages lie, what they are, and the hash of what was asked for."""

    path: str
    hash: str
    installed: tuple[tuple[str, str], ...]

    @property
    def modules(self) -> str:
        """The folder with the packages for Node.js; "" when these are for Python."""
        node = os.path.join(self.path, "node_modules")
        return node if os.path.isdir(node) else ""

    @property
    def bin(self) -> str:
        """The folder with the programs of the packages."""
        return f"{self.modules}/.bin" if self.modules else f"{self.path}/bin"


class _Tools(NamedTuple):
    """What an environment is made with."""

    program: str  # uv or npm
    interpreter: str
    version: str
    environ: dict[str, str]
    offline: bool
    builds: bool
    seconds: float
    most: int  # bytes
    say: Progress
    lock: int = -1


def provision(
    needs: Needs,
    cache_dir: str,
    *,
    environ: Mapping[str, str],
    offline: bool = False,
    python: str = sys.executable,
    uv_path: str = "",
    npm_path: str = "",
    allow_builds: bool = False,
    timeout_seconds: float = _LIMITS.install_timeout_seconds,
    max_bytes: int = _LIMITS.max_packages_bytes,
    progress: Progress | None = None,
) -> Environment:
    """The environment for these needs, made now when it is not there yet.

    `python` is the interpreter it is for. Offline it is made of what uv or npm has kept. With
    `allow_builds` packages without a wheel are built here, which runs their code. RunRefused says
    what is missing and the command that provides it. It may be cleared away at any time: whoever
    uses it holds it, by `skillbelt.cleanup.held_environment`.
    """
    given = uv_path if needs.kind == "python" else npm_path
    interpreter, version = _interpreter(needs, python, environ)
    key = _key(needs, interpreter, version, allow_builds)
    folder = os.path.join(cache_dir, FOLDER)
    path = os.path.join(folder, key)
    found = _recorded(path, key)
    if found:
        return found
    program = find_uv(given, environ) if needs.kind == "python" else find_npm(given, environ)
    say = progress or _silent
    tools = _Tools(program, interpreter, version, _cached(_scrubbed(environ, program), cache_dir),
                   offline,
                   allow_builds, timeout_seconds, max_bytes, say)  # fmt: skip
    os.makedirs(folder, mode=0o755, exist_ok=True)
    with _locked(os.path.join(folder, f".{key}{LOCK}"), timeout_seconds) as lock:
        return _recorded(path, key) or _built(needs, tools._replace(lock=lock), path, key)


def remove(path: str) -> None:
    """Take an environment away; nobody may be using it. What stays is left to clean-up."""
    folders = [] if os.path.islink(path) else [path]
    with suppress(OSError):
        for folder in folders:
            os.chmod(folder, 0o700)
            with os.scandir(folder) as listing:
                for entry in listing:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        os.unlink(entry.path)
        for folder in reversed(folders):
            os.rmdir(folder)


def _silent(_: str) -> None:
    pass


# --- what it is made with ------------------------------------------------------------------------


def find_uv(given: str, environ: Mapping[str, str]) -> str:
    """Where uv is; RunRefused with the remedy when there is none."""
    own = os.path.join(os.path.dirname(sys.executable), "uv")
    found = given or _which("uv", environ) or (own if os.access(own, os.X_OK) else _packaged_uv())
    if not found or not os.access(found, os.X_OK):
        where = f"{given} can not be run" if given else "uv is not installed"
        raise RunRefused(f"{where}, and Python packages are installed with it: pip install uv")
    return os.path.abspath(found)


def _packaged_uv() -> str:
    try:
        from uv import find_uv_bin
    except ImportError:
        return ""
    with suppress(OSError):
        return os.fspath(find_uv_bin())
    return ""


def find_npm(given: str, environ: Mapping[str, str]) -> str:
    """Where npm is; RunRefused with the remedy when there is none."""
    found = given or _which("npm", environ)
    if not found or not os.access(found, os.X_OK):
        where = f"{given} can not be run" if given else "npm is not installed"
        raise RunRefused(f"{where}, and Node.js packages are installed with it: install Node.js")
    return os.path.abspath(found)


def _which(name: str, environ: Mapping[str, str]) -> str:
    """Found on the PATH, of which a relative folder is nobody's."""
    folders = [one for one in environ.get("PATH", "").split(os.pathsep) if os.path.isabs(one)]
    return shutil.which(name, path=os.pathsep.join(folders)) or ""


def _interpreter(needs: Needs, python: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The program that will run the scripts, and its version; RunRefused when it does not fit."""
    if needs.kind == "node":
        node = _which("node", environ)
        if not node:
            raise RunRefused("node is not installed, and the script needs it: install Node.js")
        return node, _output(_changed(node), node, "--version")
    code = "import platform; print(platform.python_implementation(), platform.python_version())"
    version = _output(_changed(python), python, "-I", "-S", "-c", code)
    wanted = needs.requires_python
    if not fits(version.rpartition(" ")[2], wanted):
        raise RunRefused(
            f"{one_line(needs.source_path)}: needs Python {wanted}, and {python} is {version}"
        )
    return python, version


def _changed(program: str) -> int:
    try:
        return os.stat(program).st_mtime_ns
    except OSError as error:
        raise RunRefused(f"{program} can not be run: {error.strerror}") from error


@lru_cache(maxsize=32)
def _output(changed: int, *command: str) -> str:
    """What a program says; asked once, until it is another program."""
    try:
        done = subprocess.run(
            command, env={}, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise RunRefused(f"{command[0]} can not be run: {error}") from error
    return done.stdout.decode("utf-8", "replace").strip()


def fits(version: str, wanted: str) -> bool:
    """Whether a version of Python, like `3.11.7`, is in a range like `>=3.10,<4`."""
    return all(_meets(_numbers(version), one.strip()) for one in wanted.split(",") if one.strip())


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version)[:3])


def _meets(have: tuple[int, ...], condition: str) -> bool:
    sign = re.match(r"[<>=!~]+", condition)
    operator = sign[0] if sign else "=="
    bound = _numbers(condition)
    if condition.endswith("*") or operator == "~=":
        head = bound if condition.endswith("*") else bound[:-1]
        same = have[: len(head)] == head
        return not same if operator == "!=" else same and have >= bound
    width = max(len(have), len(bound))
    left, right = (one + (0,) * (width - len(one)) for one in (have, bound))
    return {
        "<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right,
        "!=": left != right,
    }.get(operator, left == right)  # fmt: skip


def _key(needs: Needs, interpreter: str, version: str, builds: bool) -> str:
    import hashlib
    import json
    import platform

    parts = [
        _FORMAT, needs.kind, sorted(needs.requirements), version, os.path.realpath(interpreter),
        builds, sys.platform, platform.machine(), _libc(),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return ""


def _scrubbed(environ: Mapping[str, str], program: str) -> dict[str, str]:
    """The user's settings for packages and the way to the network; nothing else."""
    kept = {
        name: value
        for name, value in environ.items()
        if (name in _KEPT or name.startswith(_KEPT_PREFIXES)) and not _DROPPED.match(name)
    }
    path = os.pathsep.join([os.path.dirname(program), "/usr/local/bin", "/usr/bin", "/bin"])
    return {**kept, "PATH": path, "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1"}


def _cached(environ: dict[str, str], cache_dir: str) -> dict[str, str]:
    """With a place for what uv downloads, where its own can not be written to."""
    home = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".cache")
    usual = os.path.join(environ.get("XDG_CACHE_HOME") or home, "uv")
    if {"UV_CACHE_DIR", "UV_NO_CACHE"}.intersection(environ) or can_be_written(usual):
        return environ
    return {**environ, "UV_CACHE_DIR": os.path.join(cache_dir, "uv")}


def can_be_written(folder: str) -> bool:
    """Whether files can be put into a folder, which may have to be made first."""
    while not os.path.lexists(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


# --- making one ----------------------------------------------------------------------------------


def _built(needs: Needs, tools: _Tools, path: str, key: str) -> Environment:
    """Built aside, and then in place at once. Whoever calls holds the lock for this path."""
    import tempfile

    folder = os.path.dirname(path)
    for name in os.listdir(folder):
        if name.startswith(f".{key}{HALF_MADE}"):  # left by somebody who was killed
            remove(os.path.join(folder, name))
    stage = tempfile.mkdtemp(prefix=f".{key}{HALF_MADE}", dir=folder)
    try:
        tools.say(f"installing {describe(needs)}")
        make = _make_python if needs.kind == "python" else _make_node
        environment = Environment(path, key, tuple(sorted(make(needs, tools, stage))))
        _record(stage, environment)
        _check_size(_make_read_only(stage), needs, tools)
        if os.path.lexists(path):  # what is left of one that was being removed
            remove(path)
        os.rename(stage, path)
    except BaseException:
        remove(stage)
        raise
    return environment


def _check_size(size: int, needs: Needs, tools: _Tools) -> None:
    if size > tools.most:
        raise RunRefused(
            f"{describe(needs)}: {size} bytes once installed, more than {tools.most} "
            "(max_packages_bytes)"
        )


def _make_python(needs: Needs, tools: _Tools, stage: str) -> list[tuple[str, str]]:
    wanted = os.path.join(stage, "requirements.txt")
    with open(wanted, "w", encoding="utf-8") as file:
        file.writelines(f"{one}\n" for one in needs.requirements)
    quiet = ["--quiet", "--no-python-downloads"]
    _run([tools.program, "venv", *quiet, "--no-project", "--relocatable", "--allow-existing",
          "--python", tools.interpreter, stage], needs, tools, stage)  # fmt: skip
    if needs.requirements:
        # Copies: a link into uv's own store would change with it, and make it read-only too.
        _run([tools.program, "pip", "install", *quiet, "--link-mode", "copy", *_only(tools),
              "--python", os.path.join(stage, "bin", "python"), "-r", wanted],
             needs, tools, stage)  # fmt: skip
    _compile(stage, tools)
    return list(_distributions(stage))


def _only(tools: _Tools) -> list[str]:
    wheels = [] if tools.builds else ["--only-binary", ":all:"]
    return [*wheels, "--offline"] if tools.offline else wheels


def _compile(stage: str, tools: _Tools) -> None:
    """Bytecode, since nobody can write it later; by the bare interpreter, which imports nothing."""
    command = [tools.interpreter, "-I", "-S", "-m", "compileall", "-q", "-j", "1",
               "--invalidation-mode", "unchecked-hash", os.path.join(stage, "lib")]  # fmt: skip
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            command, env={}, cwd=stage, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, timeout=tools.seconds, check=False,
        )  # fmt: skip


def _distributions(stage: str) -> Iterator[tuple[str, str]]:
    """What is installed, by the names of the folders that say so."""
    for folder, names, _ in os.walk(os.path.join(stage, "lib")):
        if os.path.basename(folder) == "site-packages":
            for name in names:
                if name.endswith(".dist-info"):
                    package, _, version = name.removesuffix(".dist-info").partition("-")
                    yield package.replace("_", "-").lower(), version
            names.clear()


def _make_node(needs: Needs, tools: _Tools, stage: str) -> list[tuple[str, str]]:
    import json

    listed = dict(_node_parts(one) for one in needs.requirements)
    with open(os.path.join(stage, "package.json"), "w", encoding="utf-8") as file:
        json.dump({"name": "skill", "private": True, "dependencies": listed}, file)
    offline = ["--offline"] if tools.offline else []
    _run([tools.program, "install", "--ignore-scripts", "--no-audit", "--no-fund",
          "--loglevel=error", "--omit=dev", *offline, "--prefix", stage],
         needs, tools, stage)  # fmt: skip
    return list(_node_packages(stage))


def _node_parts(requirement: str) -> tuple[str, str]:
    name, _, wanted = requirement.rpartition("@")
    return name, wanted


def _node_packages(stage: str) -> Iterator[tuple[str, str]]:
    import json

    with open(os.path.join(stage, "package-lock.json"), encoding="utf-8") as file:
        packages = json.load(file).get("packages", {})
    for path, about in packages.items():
        if path:
            yield path.rpartition("node_modules/")[2], str(about.get("version", ""))


def _run(command: list[str], needs: Needs, tools: _Tools, cwd: str) -> None:
    import signal

    with subprocess.Popen(
        command, env=tools.environ, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
        pass_fds=(tools.lock,),  # as long as it works there, nobody else may, even if we are gone
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=tools.seconds)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                reason = f"not done after {tools.seconds:g} s"
                raise RunRefused(f"installing {describe(needs)}: {reason}") from error
            raise
    if process.returncode:
        said = output.decode("utf-8", "replace").replace(cwd, "...")
        raise RunRefused(_failure(needs, tools, one_line(said)))


def _failure(needs: Needs, tools: _Tools, said: str) -> str:
    reason = shorten(said, _OUTPUT_CHARS)
    if not tools.offline:
        return f"installing {describe(needs)} failed: {reason}"
    return (
        f"offline, and not all of this is kept on this machine: {describe(needs)};"
        f" to provide it, go online once and run: {provide_command(needs, tools.interpreter)}"
        f" ({reason})"
    )


def provide_command(needs: Needs, python: str) -> str:
    """The command that has uv or npm keep the packages, so that they are there when offline."""
    import shlex

    if needs.kind == "node":
        return shlex.join(["npm", "cache", "add", *needs.requirements])
    names = [one.partition(" --hash")[0] for one in needs.requirements]
    options = ["--python", python, "--only-binary", ":all:", "--target"]
    return f"{shlex.join(['uv', 'pip', 'install', *options])} $(mktemp -d) {shlex.join(names)}"


# --- keeping one ---------------------------------------------------------------------------------


def _record(stage: str, environment: Environment) -> None:
    import json

    with open(os.path.join(stage, _RECORD), "w", encoding="utf-8") as file:
        json.dump({"hash": environment.hash, "installed": environment.installed}, file)


def _recorded(path: str, key: str) -> Environment | None:
    import json

    try:
        with open(os.path.join(path, _RECORD), encoding="utf-8") as file:
            kept = json.load(file)
        return Environment(path, key, tuple((name, version) for name, version in kept["installed"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _make_read_only(stage: str) -> int:
    """For everybody to read and nobody to write; how many bytes there are.

    A link is left to what it points at. RunRefused for folders in folders without end.
    """
    total, folders = 0, [(stage, 0)]
    for folder, depth in folders:
        if depth > _MOST_NESTED:
            raise RunRefused(f"the packages have folders that lie {depth} deep in each other")
        with os.scandir(folder) as listing:
            for entry in listing:
                if entry.is_dir(follow_symlinks=False):
                    folders.append((entry.path, depth + 1))
                elif not entry.is_symlink():
                    found = entry.stat()
                    total += found.st_size
                    os.chmod(entry.path, 0o555 if found.st_mode & 0o100 else 0o444)
    for folder, _ in reversed(folders):
        os.chmod(folder, 0o555)
    return total


@contextmanager
def _locked(path: str, seconds: float) -> Iterator[int]:
    """One at a time makes an environment; the others wait for it, and take it then."""
    import fcntl

    end, handle = time.monotonic() + seconds, -1
    try:
        while (handle := _taken(path)) < 0:
            if time.monotonic() > end:
                raise RunRefused(
                    f"somebody else has been installing the same for {seconds:g} s: {path}"
                )
            time.sleep(0.05)
        yield handle
    finally:
        if handle >= 0:
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)


def _taken(path: str) -> int:
    """A handle of the locked file; -1 when somebody has it, or has just cleared it away."""
    import fcntl

    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), os.lstat(path)):
            return handle
    os.close(handle)
    return -1
