"""The tools that build: packages of the registries, pinned by hash, installed once.

They are this package's own choice, not the skill's. No script of theirs is run when they are
installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

from skillbelt.build.protocol import Progress
from skillbelt.dependencies import Needs
from skillbelt.environments import find_npm, provision
from skillbelt.errors import RunRefused
from skillbelt.locks import held
from skillbelt.sandbox.identity import Python, interpreter, run_identity
from skillbelt.settings import Settings, process_environment
from skillbelt.text import one_line, shorten
from skillbelt.wasm_hosts import GUESTS
from skillbelt.workspace import place_of

_OUTPUT_CHARS = 600
_RECORD = ".skillbelt-tools"
# Would install elsewhere, or bring back what is switched off.
_DROPPED = re.compile(
    r"npm_config_(ignore_scripts|script_shell|prefix|global|location|node_options)$|node_options$",
    re.IGNORECASE,
)


def tool_folder(settings: Settings, name: str) -> str:
    """A folder of ours that the user who builds can read, too."""
    return place_of(os.path.join(settings.cache_dir, name), run_identity())


def python_tools(settings: Settings, progress: Progress) -> tuple[Python, str]:
    """A Python that can be run inside, and the folder of its environment with componentize-py."""
    found = interpreter()
    if found is None:
        raise RunRefused("no Python can be run in the sandbox: install the system's python3")
    lock = os.path.join(GUESTS, "requirements.txt")
    with open(lock, encoding="utf-8") as file:
        lines = file.read().replace("\\\n", " ").splitlines()
    needs = Needs("python", tuple(" ".join(line.split()) for line in lines if line.strip()), lock)
    made = provision(
        needs, tool_folder(settings, "packages"), environ=process_environment(),
        offline=settings.offline, python=found.path,
        timeout_seconds=settings.limits.build_timeout_seconds, progress=progress,
    )  # fmt: skip
    return found, made.path


def node_program() -> str:
    """Where node is; RunRefused with the remedy when there is none."""
    for folder in process_environment().get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, "node")
        if os.path.isabs(path) and os.access(path, os.X_OK):
            return os.path.realpath(path)
    raise RunRefused("node is not installed, and JavaScript is built with it: install Node.js")


def node_tools(settings: Settings, progress: Progress, lock: str = GUESTS) -> str:
    """The folder with the packages that the lock in that folder lists, installed now if missing."""
    key = _lock_hash(lock)
    base = tool_folder(settings, "build-tools")
    path = os.path.join(base, key)
    if _is_whole(path, key):
        return path
    lock_file, seconds = os.path.join(base, f".{key}.lock"), settings.limits.build_timeout_seconds
    late = RunRefused(f"somebody else has been installing for {seconds:g} s: {lock_file}")
    with held(lock_file, seconds, late):
        if not _is_whole(path, key):
            _install(path, lock, key, settings, progress)
    return path


def _lock_hash(lock: str) -> str:
    digest = hashlib.sha256(f"{sys.platform} {os.uname().machine}".encode())
    for name in ("package.json", "package-lock.json"):
        with open(os.path.join(lock, name), "rb") as file:
            digest.update(hashlib.sha256(file.read()).digest())
    return digest.hexdigest()[:32]


def _is_whole(path: str, key: str) -> bool:
    try:
        with open(os.path.join(path, _RECORD), encoding="ascii") as file:
            return file.read() == key
    except OSError:
        return False


def _install(path: str, lock: str, key: str, settings: Settings, progress: Progress) -> None:
    """Installed aside, compared with the lock, then in place at once."""
    import tempfile

    npm = find_npm("", process_environment())
    stage = tempfile.mkdtemp(prefix=f".{key}.part-", dir=os.path.dirname(path))
    try:
        for name in ("package.json", "package-lock.json"):
            shutil.copyfile(os.path.join(lock, name), os.path.join(stage, name))
        progress("installing the tools that build JavaScript")
        _npm(npm, stage, settings)
        _compare(stage)
        with open(os.path.join(stage, _RECORD), "w", encoding="ascii") as file:
            file.write(key)
        os.chmod(stage, 0o755)
        shutil.rmtree(path, ignore_errors=True)
        os.rename(stage, path)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise


def _npm(npm: str, stage: str, settings: Settings) -> None:
    # Not `npm ci`: it refuses a lock without the packages of platforms that a registry may lack.
    command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-save",
               "--loglevel=error", *(["--offline"] if settings.offline else [])]  # fmt: skip
    environ = {
        name: value for name, value in process_environment().items() if not _DROPPED.match(name)
    }
    seconds = settings.limits.build_timeout_seconds
    try:
        done = subprocess.run(
            command, cwd=stage, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=seconds, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise RunRefused(f"the tools that build JavaScript: {error}") from error
    if done.returncode:
        said = shorten(one_line(done.stdout.decode("utf-8", "replace")), _OUTPUT_CHARS)
        why = "offline, and not all of them are kept on this machine" if settings.offline else said
        raise RunRefused(
            f"the tools that build JavaScript can not be installed: {why}; "
            "go online once, and run `skillbelt build` again"
        )


def _compare(stage: str) -> None:
    """Everything that was installed is in the lock, by its hash."""
    with open(os.path.join(stage, "package-lock.json"), encoding="utf-8") as file:
        wanted = json.load(file)["packages"]
    with open(os.path.join(stage, "node_modules", ".package-lock.json"), encoding="utf-8") as file:
        found = json.load(file)["packages"]
    for path, about in found.items():
        if about.get("integrity") != wanted.get(path, {}).get("integrity") or not about.get(
            "integrity"
        ):
            raise RunRefused(f"{path} is not the package that the lock names; nothing was kept")
