"""A project, a home and the folders around them, cut off from the machine's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from skillbelt import Catalog, Diagnostic, Settings, load_settings
from skillbelt.files.remove import remove_tree
from skillbelt.running.cleanup import BELONGS
from skillbelt.running.staging import _FRESH_NS
from skillbelt.running.workspace import SHELTERS
from tests import inside, warm

HERE = Path(__file__).parent
# Where many files are made quickly.
QUICK = "/dev/shm" if os.access("/dev/shm", os.W_OK | os.X_OK) else None
# Whatever the machine sets of these would change what is found.
FOREIGN = (
    "SKILLBELT_",
    "SKILLS_",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "OPENCODE_",
    "INSTALL_INTERNAL_SKILLS",
)
NOBODY = 65534
# The interpreter may lie where only root can read: the code runs where all is imported already.
_AS_USER = """
import json, os, sys
from pathlib import Path
from skillbelt import Catalog, Skill, build_manifest
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
"""


class Done(NamedTuple):
    """What a command gave."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """What was printed, as JSON."""
        return json.loads(self.stdout)


class Tree:
    """A folder with `project` (not a git repository unless `git` is called) and `home`."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.project, self.home = root / "project", root / "home"
        self.project.mkdir()
        self.home.mkdir()
        self._patch = monkeypatch
        for name in list(os.environ):
            if name.startswith(FOREIGN):
                monkeypatch.delenv(name)
        self.setenv("HOME", self.home)
        # No test writes to the keyring of whoever runs it.
        self.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
        self.setenv("XDG_CONFIG_HOME", self.home / ".config")
        self.setenv("XDG_CACHE_HOME", self.home / ".cache")
        self.setenv("XDG_STATE_HOME", self.home / ".local" / "state")

    def path(self, path: str | os.PathLike[str]) -> Path:
        """A path of the tree; an absolute one stays as it is."""
        return self.root / path

    def write(self, path: str | os.PathLike[str], text: str | bytes = "") -> Path:
        """A file, with the folders it needs; whoever watches sees it whole or not at all."""
        file = self.path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.part")
        part.write_bytes(text.encode() if isinstance(text, str) else text)
        return part.replace(file)

    def skill(
        self,
        path: str | os.PathLike[str],
        description: str | None = "Does a thing.",
        name: str | None = None,
        text: str | None = None,
        **frontmatter: object,
    ) -> Path:
        """A skill's folder. Its name is the folder's; `text` is the body; `_` in a key is `-`."""
        folder = self.path(path)
        fields = {"name": name or folder.name, "description": description, **frontmatter}
        lines = [
            f"{key.replace('_', '-')}: {value if _plain(value) else json.dumps(value)}\n"
            for key, value in fields.items()
            if value is not None
        ]
        body = f"# {folder.name}\n" if text is None else text
        self.write(folder / "SKILL.md", f"---\n{''.join(lines)}---\n{body}")
        return folder

    def git(self, path: str | os.PathLike[str] = "project") -> Path:
        """Make the folder a worktree."""
        folder = self.path(path)
        (folder / ".git").mkdir(parents=True)
        return folder

    def setenv(self, name: str, value: object) -> None:
        """Set an environment variable until the test ends."""
        self._patch.setenv(name, str(value))

    def settings(
        self, project: str | os.PathLike[str] = "project", /, **overrides: object
    ) -> Settings:
        """The settings for a folder of the tree."""
        return load_settings(self.path(project), overrides=overrides)

    def catalog(
        self, project: str | os.PathLike[str] = "project", /, **settings: object
    ) -> Catalog:
        """The catalogue of a folder of the tree."""
        return Catalog(self.path(project), **settings)  # type: ignore[arg-type]

    def run(
        self,
        *arguments: str,
        project: str | os.PathLike[str] = "project",
        timeout: float = 150,
    ) -> Done:
        """Run the command line in a folder of the tree: in this process where that is enough."""
        if inside.is_enough(arguments):
            code, out, err = inside.run(arguments, self.path(project))
            return Done(code, *(each.decode("utf-8", "surrogateescape") for each in (out, err)))
        return self.run_process(*arguments, project=project, timeout=timeout)

    def run_process(
        self,
        *arguments: str,
        project: str | os.PathLike[str] = "project",
        timeout: float = 150,
    ) -> Done:
        """Run the command line in a folder of the tree, as a process without its start-up."""
        done = warm.run(
            [sys.executable, "-m", "skillbelt", *arguments],
            cwd=self.path(project),
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
        )
        return _decode(done)

    def python(
        self,
        *arguments: str,
        cwd: str | os.PathLike[str] = "project",
        timeout: float = 150,
    ) -> Done:
        """Run Python in a folder of the tree; a warning is an error, as in the tests themselves."""
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.path(cwd),
            env=_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        return _decode(done)

    def as_user(self, code: str) -> str:
        """What code prints that an ordinary user runs; all of the tree is theirs."""
        if os.getuid() == 0:
            for folder, _, files in os.walk(self.root):
                for path in (folder, *(os.path.join(folder, name) for name in files)):
                    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        done = _decode(
            warm.run(
                [sys.executable, "-c", _AS_USER + code],
                cwd=self.project,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=500,
            )
        )
        assert done.exit_code == 0, done.stderr
        return done.stdout


def settle() -> None:
    """Wait until the times of files that are there tell their next change."""
    written = time.time_ns()
    while time.time_ns() <= written + _FRESH_NS:
        time.sleep(0.01)


class Diagnosed(Protocol):
    """Whatever comes with something to say."""

    @property
    def diagnostics(self) -> Iterable[Diagnostic]: ...


def codes(found: Diagnosed) -> list[str]:
    """The codes of what is said of it, in order."""
    return [diagnostic.code for diagnostic in found.diagnostics]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONWARNINGS": "error", "PYTHONUTF8": "1"}


def _decode(done: subprocess.CompletedProcess[bytes]) -> Done:
    decoded = (out.decode("utf-8", "surrogateescape") for out in (done.stdout, done.stderr))
    return Done(done.returncode, *decoded)


def _plain(value: object) -> bool:
    """Whether the value is its own YAML; JSON is YAML too, but nobody writes a skill like that."""
    import re

    return isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w .,-]*[\w.]", value) is not None


@contextmanager
def sheltered(root: Path) -> Iterator[None]:
    """Remove what lies elsewhere for folders of the tree, where commands run as another user."""
    before = _shelters()
    yield
    inside = os.fsencode(root.resolve())
    for folder in _shelters() - before:
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            open(f"{folder}/{BELONGS}", "rb") as note,
        ):
            owner = note.read()
            if owner == inside or owner.startswith(inside + b"/"):
                remove_tree(folder)


def _shelters() -> set[str]:
    """Every folder that may be such a place; other tests make and remove theirs meanwhile."""
    found: set[str] = set()
    for shelter in SHELTERS:
        with suppress(FileNotFoundError):
            found.update(entry.path for entry in os.scandir(shelter))
    return found
