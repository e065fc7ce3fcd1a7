"""Read a version of a skill from the git repository that its folder is in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from skillbelt.discovery.sources.bounds import Deadline, PullBudget
from skillbelt.errors import ConfigError
from skillbelt.install.git import GIT_TIMEOUT_SECONDS, GitFetch, GitTree, fetch_tree, find_git
from skillbelt.install.source_tree import export_skill, join
from skillbelt.records import NamedTuple
from skillbelt.settings import process_environment
from skillbelt.text import one_line
from skillbelt.values import SKILL_FILE

_SECONDS = 60.0
# A repository can come with a skill. For an object that it lacks git would run the program that its
# configuration names, and files of a skill alone can look like a repository.
_CONFINED = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.bareRepository",
    "GIT_CONFIG_VALUE_0": "explicit",
}


class Revision(NamedTuple):
    """A commit of the repository in the folder `top`; `paths` are where the skill may be."""

    word: str
    top: str
    commit: str
    paths: tuple[str, ...]


def find_revision(word: str, folder: str, *, alone: bool = False) -> Revision | None:
    """Return what `REV:PATH` names in the repository of a folder; None when it is not a revision.

    The path counts from the folder, or from the top as git has it. With `alone` a `REV` is enough:
    it names the folder itself.
    """
    name, mark, path = word.partition(":")
    if not name or name.startswith("-") or not (path if mark else alone):
        return None
    top = _ask_git(folder, "--show-toplevel")
    if not top:
        return None
    commit = _ask_git(folder, "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if not commit:
        return None
    inside = os.path.relpath(os.path.realpath(folder), os.path.realpath(top))
    return Revision(
        word, top, commit, (join(inside, path), join(path)) if mark else (join(inside),)
    )


def export_revision(found: Revision, into: str) -> str:
    """Write the skill of a revision below the empty folder `into`; return its folder.

    ConfigError when the revision has no skill there.
    """
    deadline = Deadline(found.word, GIT_TIMEOUT_SECONDS)
    fetched = os.path.join(into, "git")
    os.mkdir(fetched, 0o700)
    url = Path(found.top).as_uri()
    tree = fetch_tree(GitFetch(url=url, commit=found.commit), fetched, deadline)
    try:
        path = _find_skill(tree, found)
        folder = os.path.join(into, "skill", path.rpartition("/")[2] or os.path.basename(found.top))
        os.makedirs(folder, 0o700)
        export_skill(tree, path, folder, source=found.word, budget=PullBudget(deadline))
    finally:
        tree.rest()
    return folder


def _find_skill(tree: GitTree, found: Revision) -> str:
    for path in found.paths:
        if not path.startswith("..") and tree.is_file(join(path, SKILL_FILE)):
            return path
    raise ConfigError(
        f"{one_line(found.word)}: the commit {found.commit[:12]} has no {SKILL_FILE} in "
        f"{one_line(found.paths[0]) or 'its top folder'}"
    )


def _ask_git(folder: str, *words: str) -> str:
    """Return the output of `git rev-parse` in a folder; "" if it fails."""
    inherited = process_environment().items()
    environment = {name: value for name, value in inherited if not name.startswith("GIT_")}
    environment |= _CONFINED
    command = [find_git(), "-C", folder, "rev-parse", *words]
    done = subprocess.run(
        command, env=environment, capture_output=True, timeout=_SECONDS, check=False
    )
    return os.fsdecode(done.stdout).rstrip("\n") if done.returncode == 0 else ""
