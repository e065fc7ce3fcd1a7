"""A project, a repository with skills, and what is installed from it."""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from skillbelt.install.content_store import incoming, keep_skill, stored_skill
from skillbelt.install.entries import entry_for
from skillbelt.install.fetching import fetch_skills
from skillbelt.install.lock_file import find_place
from skillbelt.install.placing import put_skill, using_place
from skillbelt.install.source_syntax import parse_source
from skillbelt.settings import load_settings
from tests.tree import Done, Tree

_WHO = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false")


def git(*words: str) -> None:
    subprocess.run(["git", *_WHO, *words], capture_output=True, check=True)


@cache
def _repository() -> Path:
    """Make the repository once for all tests of a worker."""
    above = tempfile.mkdtemp(prefix="skillbelt-repository-")
    atexit.register(shutil.rmtree, above, ignore_errors=True)
    made = Path(above) / "work"
    git("init", "-q", "-b", "main", str(made))
    for name in ("alpha", "beta"):
        scripts = made / "skills" / name / "scripts"
        scripts.mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: {name} d\n---\nhello\n"
        (scripts.parent / "SKILL.md").write_text(text)
        (scripts / "run.sh").write_text("echo one\n")
        (scripts / "run.sh").chmod(0o755)
    git("-C", str(made), "add", "-A")
    git("-C", str(made), "commit", "-q", "-m", "x")
    return made


class InstallDesk:
    """A project and a bare repository with the skills `alpha` and `beta`."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.settings = load_settings(tree.project)
        self.place = find_place(self.settings, "project")
        self.base = Path(self.place.base)
        self.lock = Path(self.place.lock)
        self.work = Path(tree.root) / "work"
        self.url = f"file://{self.work}/.git"
        shutil.copytree(_repository(), self.work)

    def write(self, name: str, path: str, text: str) -> None:
        target = self.work / "skills" / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def commit(self) -> None:
        git("-C", str(self.work), "add", "-A")
        git("-C", str(self.work), "commit", "-q", "-m", "x")

    def installed(self, name: str, path: str = "") -> Path:
        return self.base / ".agents" / "skills" / name / path

    def install(self, *clients: str) -> None:
        """Install all skills of the repository."""
        with incoming(self.settings) as folder:
            for fetched in fetch_skills(parse_source(self.url), self.settings, folder):
                stored = keep_skill(fetched.folder, self.settings)
                entry = entry_for(fetched, stored, self.place, clients=clients)
                with (
                    using_place(self.place, self.settings),
                    stored_skill(stored, self.settings, lambda: "") as source,
                ):
                    put_skill(self.place, entry, source, self.settings)

    def document(self) -> Any:
        return json.loads(self.lock.read_text())

    def edit_entry(self, name: str, **values: Any) -> None:
        """Change keys of an entry; None removes one."""
        document = self.document()
        entry = document["skills"][name]
        entry.update(values)
        for key in [key for key, value in entry.items() if value is None]:
            del entry[key]
        self.lock.write_text(json.dumps(document, indent=2) + "\n")

    def rewrite_as_skills(self, name: str) -> None:
        """Drop our keys, as `skills` does when it writes an entry anew."""
        ours = ("commit", "treeSha", "contentDigest", "clients", "provenance")
        self.edit_entry(name, **dict.fromkeys(ours))

    def run(self, *words: str) -> Done:
        return self.tree.run(*words)
