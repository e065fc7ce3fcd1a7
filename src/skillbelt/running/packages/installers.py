"""uv and npm: find them, and call them inside an install sandbox.

An install sandbox has an empty folder and no files of the user. It can reach only the package
index, and its result is treated as data.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from skillbelt.errors import RunRefused
from skillbelt.permission.packages import Lock
from skillbelt.running.packages.declared import Needs
from skillbelt.running.packages.fetched import PackageIndex
from skillbelt.running.packages.installation import InstallSandbox, InstallStep, SourceBuilds, which
from skillbelt.running.packages.locked import constraints_of
from skillbelt.running.packages.lockfiles import BASE, MAX_BYTES
from skillbelt.untrusted_json import read_json

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_REQUIREMENTS, _PYLOCK, _LOCKED = "requirements.txt", "pylock.toml", "locked.txt"
_SKETCH, _CONSTRAINTS = "uv.toml", "constraints.txt"
_PACKAGE, _PACKAGE_LOCK = "package.json", "package-lock.json"
_QUIET = ("--quiet", "--no-python-downloads", "--no-config")
# Programs to activate an environment by hand, which are not needed.
_STANDARD_PROGRAMS = re.compile(r"python(3(\.\d+)?)?|(de)?activate(_this)?(\.\w+)?|pydoc\.bat")


# The text before the default index in uv's help.
_DEFAULT_INDEX = b"default package index (by default: <"
# How many processes compile bytecode.
COMPILERS = str(min(os.cpu_count() or 1, 4))
_FEW = 3


# Finding them


def find_uv(given: str, environ: Mapping[str, str]) -> str:
    """Return the path of uv; raises RunRefused with the remedy."""
    own = os.path.join(os.path.dirname(sys.executable), "uv")
    found = given or which("uv", environ) or (own if os.access(own, os.X_OK) else _packaged_uv())
    if not found or not os.access(found, os.X_OK):
        where = f"{given} cannot be run" if given else "uv is not installed"
        raise RunRefused(f"{where}, and Python packages are installed with it: pip install uv")
    return os.path.abspath(found)


def _packaged_uv() -> str:
    try:
        from uv import find_uv_bin  # extra: packages
    except ImportError:
        return ""
    with suppress(OSError):
        return os.fspath(find_uv_bin())
    return ""


def find_npm(given: str, environ: Mapping[str, str]) -> str:
    """Return the path of npm; raises RunRefused with the remedy."""
    found = given or which("npm", environ)
    if not found or not os.access(found, os.X_OK):
        where = f"{given} cannot be run" if given else "npm is not installed"
        raise RunRefused(f"{where}, and Node.js packages are installed with it: install Node.js")
    return os.path.abspath(found)


# Calling them


class InstallerFailed(Exception):
    """An installer failed; the text is its output."""


class Uv(NamedTuple):
    """uv in a sandbox, for one Python of this machine."""

    program: str
    python: str
    folders: tuple[str, ...]
    seconds: float
    builds: SourceBuilds = SourceBuilds()
    before: str = ""

    def default_index(self, sandbox: InstallSandbox) -> str:
        """Return uv's default index: from the help text in its file, else by asking uv."""
        written = _find_in_program(self.program)
        if written:
            return written.rstrip("/")
        said = self._run(sandbox, "pip", "compile", "--help")
        found = re.search(
            r"--default-index\b.*?\bby\s+default:\s+<?(https?://[^\s>\])]+)", said, re.DOTALL
        )
        if not found:
            raise RunRefused("cannot find uv's default index: set UV_DEFAULT_INDEX")
        return found[1].rstrip("/")

    def resolve(self, sandbox: InstallSandbox, needs: Needs, index: PackageIndex) -> bytes:
        """Return the `pylock.toml` for the needs."""
        sandbox.put(_REQUIREMENTS, "".join(f"{one}\n" for one in needs.requirements).encode())
        before = ("--exclude-newer", self.before) if self.before else ()
        quiet: tuple[str, ...] = _QUIET
        if self.builds.sketch:
            said = (f'[[dependency-metadata]]\nname = "{one}"\n' for one in self.builds.names)
            sandbox.put(_SKETCH, "\n".join(said).encode())
            quiet = (*_QUIET[:-1], "--config-file", _SKETCH)
        kept: tuple[str, ...] = ()
        if needs.locked is not None:
            sandbox.put(_CONSTRAINTS, constraints_of(needs.locked))
            kept = ("--constraint", _CONSTRAINTS)
        self._run(
            sandbox, "pip", "compile", *quiet, *self._wheels, *before, *kept, "--no-sources",
            "--no-header", "--no-annotate", "--python", self.python, "--format", "pylock.toml",
            "--output-file", _PYLOCK, _REQUIREMENTS, index=index,
        )  # fmt: skip
        return sandbox.read(_PYLOCK, MAX_BYTES)

    def install(
        self, sandbox: InstallSandbox, lock: Lock, index: PackageIndex | None, target: str
    ) -> None:
        """Create the environment `venv` with the packages of the lock, for its place `target`.

        All in one step, since each start of a sandbox takes time. The empty environment is written
        here, since `uv venv` starts an interpreter to inspect it, as installing does again.
        Bytecode is compiled by the bare interpreter, since it cannot be written later; a file that
        cannot be compiled stays as it is.
        """
        uv, real = sandbox.shown(self.program), os.path.realpath(self.python)
        settings = (f"home = {os.path.dirname(real)}", "include-system-site-packages = false",
                    "relocatable = true")  # fmt: skip
        steps = ["mkdir -p venv/bin venv/lib", "ln -s lib venv/lib64",
                 shlex.join(("ln", "-s", real, "venv/bin/python")),
                 shlex.join(("printf", "%s\\n", *settings)) + " >venv/pyvenv.cfg"]  # fmt: skip
        if lock.packages:
            sandbox.put(_LOCKED, lock.text.encode())
            steps.append(shlex.join((
                uv, "pip", "install", *_QUIET, *self._wheels, "--no-deps", "--require-hashes",
                "--no-sources", "--strict", "--link-mode", "copy",
                "--python", f"{sandbox.inside}/venv/bin/python", "-r", _LOCKED,
            )))  # fmt: skip
            # A few packages are compiled faster than further processes start.
            jobs = COMPILERS if len(lock.packages) > _FEW else "1"
            compiled = shlex.join((
                self.python, "-I", "-S", "-m", "compileall", "-q", "-j", jobs, "-s",
                f"{sandbox.inside}/venv", "-p", target, "--invalidation-mode", "unchecked-hash",
                f"{sandbox.inside}/venv/lib",
            ))  # fmt: skip
            steps.append(f"{compiled} || true")
        self._step(sandbox, ("/bin/sh", "-c", "\n".join(("set -e", *steps))), index)

    @property
    def _wheels(self) -> tuple[str, ...]:
        if self.builds.every:
            return ()
        built = (word for name in self.builds.names for word in ("--no-binary", name))
        return ("--only-binary", ":all:", *built)

    def _run(self, sandbox: InstallSandbox, *words: str, index: PackageIndex | None = None) -> str:
        return self._step(sandbox, (sandbox.shown(self.program), *words), index)

    def _step(
        self, sandbox: InstallSandbox, argv: tuple[str, ...], index: PackageIndex | None
    ) -> str:
        env = {**environment_of(sandbox), "UV_DEFAULT_INDEX": f"{BASE}/simple",
               **({} if self.builds.sketch else {"UV_NO_CONFIG": "1"}),
               "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1",
               "UV_CACHE_DIR": f"{sandbox.inside}/cache", "UV_LINK_MODE": "copy"}  # fmt: skip
        return _run_step(
            sandbox,
            InstallStep(
                argv=argv, seconds=self.seconds, env=env, package_index=index, folders=self.folders
            ),
        )


def _find_in_program(program: str) -> str:
    """Return the default index that a program's file names in its help text, or nothing."""
    with (
        suppress(OSError, ValueError),
        open(program, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        at = data.find(_DEFAULT_INDEX)
        end = at + len(_DEFAULT_INDEX)
        found = re.match(rb"(https?://[!-;=?-~]+)>", data[end : end + 500]) if at >= 0 else None
        return found[1].decode("ascii") if found else ""
    return ""


class Npm(NamedTuple):
    """npm in a sandbox, with the Node.js of this machine."""

    program: str
    node: str
    seconds: float

    def default_index(self, sandbox: InstallSandbox) -> str:
        """Return npm's default registry, from its own answer."""
        said = self._run(sandbox, "config", "get", "registry", registry=False).strip()
        lines = [line for line in said.splitlines() if line.startswith(("http://", "https://"))]
        if not lines:
            raise RunRefused("cannot find npm's default registry: set npm_config_registry")
        return lines[-1].rstrip("/")

    def resolve(self, sandbox: InstallSandbox, needs: Needs, index: PackageIndex) -> bytes:
        """Return the `package-lock.json` for the needs."""
        sandbox.put(_PACKAGE, package_json(needs))
        if needs.locked is not None and needs.locked.text:
            sandbox.put(_PACKAGE_LOCK, needs.locked.text.encode())  # npm keeps the entries that fit
        self._run(sandbox, "install", "--package-lock-only", index=index)
        return sandbox.read(_PACKAGE_LOCK, MAX_BYTES)

    def install(
        self, sandbox: InstallSandbox, lock: Lock, index: PackageIndex, *, lenient: bool = False
    ) -> None:
        """Create `node_modules` with the packages of the lock.

        With `lenient` the lock may lack packages for other platforms.
        """
        listed = read_json(lock.text)
        root = {"name": "skill", "version": "0.0.0", "private": True}
        overrides = {"overrides": _single_versions(listed["packages"])} if lenient else {}
        sandbox.put(_PACKAGE, json.dumps({**root, **listed["packages"][""], **overrides}).encode())
        sandbox.put(_PACKAGE_LOCK, lock.text.encode())
        self._run(sandbox, *(("install", "--no-save") if lenient else ("ci",)), index=index)

    def _run(
        self,
        sandbox: InstallSandbox,
        *words: str,
        index: PackageIndex | None = None,
        registry: bool = True,
    ) -> str:
        """Run npm with empty configuration files; all settings are arguments."""
        for name in ("npmrc-user", "npmrc-global"):
            sandbox.put(name, b"")
        root = os.path.dirname(os.path.dirname(os.path.realpath(self.program)))
        options = [
            "--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev", "--loglevel=error",
            "--lockfile-version=3", "--no-update-notifier", "--no-progress", "--allow-git=none",
            f"--userconfig={sandbox.inside}/npmrc-user",
            f"--globalconfig={sandbox.inside}/npmrc-global",
            f"--cache={sandbox.inside}/cache", f"--prefix={sandbox.inside}",
            "--install-strategy=hoisted",
            "--package-lock=true", "--git=/nonexistent",
            # The index is our proxy. npm would wait 70 s for a file with another hash.
            "--fetch-retry-mintimeout=100", "--fetch-retry-maxtimeout=1000",
        ]  # fmt: skip
        if registry:
            options.append(f"--registry={BASE}/")
        node = os.path.realpath(self.node)
        argv = (node, os.path.join(root, "bin", "npm-cli.js"), *words, *options)
        return _run_step(
            sandbox,
            InstallStep(
                argv=argv,
                seconds=self.seconds,
                env=environment_of(sandbox),
                package_index=index,
                folders=(node, root),
            ),
        )


def environment_of(sandbox: InstallSandbox) -> dict[str, str]:
    """Return the variables that every command inside has."""
    return {
        "PATH": _SYSTEM_PATH,
        "HOME": f"{sandbox.inside}/home",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",
    }


def _run_step(sandbox: InstallSandbox, step: InstallStep) -> str:
    code, said = sandbox.run(step)
    if code:
        raise InstallerFailed(said)
    return said


def package_json(needs: Needs) -> bytes:
    """Return the `package.json` for the needs."""
    parts = (one.rpartition("@") for one in needs.requirements)
    listed = {name: wanted for name, _, wanted in parts}
    root = {"name": "skill", "version": "0.0.0", "private": True, "dependencies": listed}
    return json.dumps(root).encode()


def _single_versions(packages: dict[str, Any]) -> dict[str, str]:
    """Return the version of each package that a lock has once.

    npm resolves a package of the lock again for the range of a dependent, unless it is overridden.
    """
    direct = packages[""].get("dependencies", {})
    found: dict[str, set[str]] = {}
    for path, about in packages.items():
        name = path.rpartition("node_modules/")[2]
        if name and "version" in about:
            found.setdefault(name, set()).add(about["version"])
    single = {name: versions.pop() for name, versions in found.items() if len(versions) == 1}
    # npm refuses to override a direct requirement by another version.
    return {name: one for name, one in single.items() if direct.get(name, one) == one}


def is_own_program(name: str) -> bool:
    """Whether the program is part of every environment."""
    return bool(_STANDARD_PROGRAMS.fullmatch(name))
