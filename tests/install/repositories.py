"""Git repositories for tests: honest ones, and trees that git itself refuses to make."""

from __future__ import annotations

import hashlib
import os
import subprocess
import zlib
from collections.abc import Mapping
from pathlib import Path

ENVIRONMENT = {
    "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.com",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.com",
    "GIT_AUTHOR_DATE": "1700000000 +0000",
    "GIT_COMMITTER_DATE": "1700000000 +0000",
}
# What a tree holds: text of a file, ("mode", text), or a tree.
Tree = Mapping[str, "str | bytes | tuple[str, str] | Tree"]


def git(folder: Path, *words: str, stdin: bytes = b"") -> str:
    """Run git in a repository and return what it prints."""
    done = subprocess.run(
        ["git", *words], cwd=folder, env=ENVIRONMENT, input=stdin, capture_output=True, check=True
    )
    return done.stdout.decode().strip()


def skill_text(name: str, more: str = "") -> str:
    """Return the text of a SKILL.md that passes every check."""
    about = f"Test skill {name}. Use when testing."
    return f"---\nname: {name}\ndescription: {about}\n---\n\n# {name}\n\n{more or 'Hello.'}\n"


class BareRepository:
    """A bare repository whose commits are written object by object."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        git(folder, "init", "-q", "--bare", "--template=", "-b", "main")
        self.url = folder.as_uri()

    def commit(self, tree: Tree, *, branch: str = "main", parent: str = "") -> str:
        """Write a commit and let the branch point at it; return its id."""
        made = git(self.folder, "commit-tree", self.tree(tree), "-m", "x", *_parent(parent))
        git(self.folder, "update-ref", f"refs/heads/{branch}", made)
        return made

    def blob(self, data: bytes) -> str:
        """Write a file's content; return its id."""
        return self._write("blob", data)

    def tree(self, tree: Tree) -> str:
        """Write a tree as it is given, also one that no tool would make; return its id."""
        raw = b""
        for name, content in tree.items():
            mode, identifier = self._entry(content)
            raw += f"{mode} ".encode() + os.fsencode(name) + b"\0" + bytes.fromhex(identifier)
        return self._write("tree", raw)

    def _write(self, kind: str, data: bytes) -> str:
        """Write an object as git does, without starting git for each; return its id."""
        whole = f"{kind} {len(data)}\0".encode() + data
        identifier = hashlib.sha1(whole, usedforsecurity=False).hexdigest()
        place = self.folder / "objects" / identifier[:2] / identifier[2:]
        if not place.exists():
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(zlib.compress(whole))
        return identifier

    def _entry(self, content: str | bytes | tuple[str, str] | Tree) -> tuple[str, str]:
        if isinstance(content, str | bytes):
            data = content.encode() if isinstance(content, str) else content
            return "100644", self.blob(data)
        if isinstance(content, tuple):
            mode, text = content
            return mode, text if mode == "160000" else self.blob(text.encode())
        return "40000", self.tree(content)


def _parent(parent: str) -> tuple[str, ...]:
    return ("-p", parent) if parent else ()
