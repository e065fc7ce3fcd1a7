"""The build tools: packages of the registries, pinned by hash, installed once.

skillbelt chooses them, not the skill. They are still installed in a sandbox, and their install
scripts are not run.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile

from skillbelt.errors import RunRefused
from skillbelt.files.locks import held
from skillbelt.permission.packages import Environment
from skillbelt.running.build.protocol import Progress
from skillbelt.running.packages.building import install_node
from skillbelt.running.packages.declared import Needs
from skillbelt.running.packages.environments import provision
from skillbelt.running.packages.install_sandbox import NativeSandboxes
from skillbelt.running.packages.installation import remove
from skillbelt.running.packages.installers import InstallerFailed
from skillbelt.running.packages.lockfiles import read_node
from skillbelt.running.workspace import place_of
from skillbelt.sandbox.linux.identity import Python, interpreter, run_identity
from skillbelt.sandbox.wasm.interpreters import BUILD_TIMEOUT_SECONDS, GUESTS
from skillbelt.settings import Settings, process_environment
from skillbelt.text import one_line, shorten

_OUTPUT_CHARS = 600
_RECORD = ".skillbelt-tools"


def tool_folder(settings: Settings, name: str) -> str:
    """Return a cache folder that the user of builds can read, too."""
    return place_of(os.path.join(settings.cache_dir, name), run_identity())


def python_tools(settings: Settings, progress: Progress) -> tuple[Python, str]:
    """Return a Python that works inside, and the environment with componentize-py."""
    found = interpreter()
    if found is None:
        raise RunRefused("no Python can be run in the sandbox: install the system's python3")
    folder = tool_folder(settings, "packages")
    return found, _install_componentize_py(settings, folder, progress, found.path).path


def install_tools(settings: Settings, progress: Progress) -> str:
    """Install the tools that the WASM sandbox builds its interpreter with.

    Return the programs' folder.
    """
    return _install_componentize_py(settings, settings.cache_dir, progress).bin


def _install_componentize_py(
    settings: Settings, folder: str, progress: Progress, python: str = ""
) -> Environment:
    lock = os.path.join(GUESTS, "requirements.txt")
    with open(lock, encoding="utf-8") as file:
        lines = file.read().replace("\\\n", " ").splitlines()
    needs = Needs("python", tuple(" ".join(line.split()) for line in lines if line.strip()), lock)
    return provision(
        needs, folder, sandboxes=NativeSandboxes(settings.limits, settings.sandbox),
        environ=process_environment(), offline=settings.offline, python=python,
        hosts=settings.package_hosts,
        timeout_seconds=BUILD_TIMEOUT_SECONDS, progress=progress,
    )  # fmt: skip


def node_program() -> str:
    """Return the path of node; raises RunRefused with the remedy."""
    for folder in process_environment().get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, "node")
        if os.path.isabs(path) and os.access(path, os.X_OK):
            return os.path.realpath(path)
    raise RunRefused("node is not installed, and JavaScript is built with it: install Node.js")


def node_tools(settings: Settings, progress: Progress, lock: str = GUESTS) -> str:
    """Return the folder with the packages of the lock in `lock`; install them if missing."""
    key = _lock_hash(lock)
    base = tool_folder(settings, "build-tools")
    path = os.path.join(base, key)
    if _is_complete(path, key):
        return path
    lock_file, seconds = os.path.join(base, f".{key}.lock"), BUILD_TIMEOUT_SECONDS
    late = RunRefused(f"another process has been installing for {seconds:g} s: {lock_file}")
    with held(lock_file, seconds, late):
        if not _is_complete(path, key):
            _install(path, lock, key, settings, progress)
    return path


def _lock_hash(lock: str) -> str:
    digest = hashlib.sha256(f"{sys.platform} {os.uname().machine}".encode())
    for name in ("package.json", "package-lock.json"):
        with open(os.path.join(lock, name), "rb") as file:
            digest.update(hashlib.sha256(file.read()).digest())
    return digest.hexdigest()[:32]


def _is_complete(path: str, key: str) -> bool:
    try:
        with open(os.path.join(path, _RECORD), encoding="ascii") as file:
            return file.read() == key
    except OSError:
        return False


def _install(path: str, lock: str, key: str, settings: Settings, progress: Progress) -> None:
    """Install in a sandbox from the lock, then rename into place."""
    if settings.offline:
        raise _install_failure("offline, and not all of them are cached on this machine")
    with open(os.path.join(lock, "package-lock.json"), "rb") as file:
        locked = read_node(file.read(), fill=True)
    stage = tempfile.mkdtemp(prefix=f".{key}.part-", dir=os.path.dirname(path))
    try:
        progress("installing the build tools for JavaScript")
        modules = os.path.join(stage, "node_modules")
        os.mkdir(modules)
        try:
            install_node(
                locked, modules, sandboxes=NativeSandboxes(settings.limits, settings.sandbox),
                environ=process_environment(), hosts=settings.package_hosts,
                timeout_seconds=BUILD_TIMEOUT_SECONDS,
            )  # fmt: skip
        except InstallerFailed as error:
            raise _install_failure(shorten(one_line(str(error)), _OUTPUT_CHARS)) from error
        except TimeoutError as error:
            seconds = BUILD_TIMEOUT_SECONDS
            raise _install_failure(
                f"not done after {seconds:g} s (build_timeout_seconds)"
            ) from error
        with open(os.path.join(stage, _RECORD), "w", encoding="ascii") as file_:
            file_.write(key)
        os.chmod(modules, 0o755)
        os.chmod(stage, 0o755)
        remove(path)
        os.rename(stage, path)
    except BaseException:
        remove(stage)
        raise


def _install_failure(why: str) -> RunRefused:
    return RunRefused(
        f"the build tools for JavaScript cannot be installed: {why}; "
        "go online once, and run `skillbelt build` again"
    )
