"""Compare what `skills` 1.7.4 finds and hashes in sources with what this product does.

    python -m benchmarks.skills_tool NODE CLI SOURCE...

NODE and CLI are the program and the script of `skills` (npm), each SOURCE a folder or a git
repository. Each is added by the tool itself to an empty project; the names and hashes in the lock
that it wrote are compared with those of this product. The exit code is 1 for a difference.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from skillbelt.errors import SkillbeltError
from skillbelt.install.fetching import open_source
from skillbelt.install.hashes import computed_hash
from skillbelt.install.source_syntax import parse_source
from skillbelt.settings import load_settings

_SECONDS = 600


class ComparedSource(NamedTuple):
    """The skills of one source by name, each with its hash, by either tool."""

    theirs: Mapping[str, str]
    ours: Mapping[str, str]
    refused: Mapping[str, str]

    @property
    def missing(self) -> list[str]:
        """Names that only `skills` finds, and that were not refused with a reason."""
        return sorted(self.theirs.keys() - self.ours.keys() - self.refused.keys())

    @property
    def extra(self) -> list[str]:
        """Names that only this product finds."""
        return sorted(self.ours.keys() - self.theirs.keys())

    @property
    def hashed_otherwise(self) -> list[str]:
        """Names with another hash."""
        both = self.theirs.keys() & self.ours.keys()
        return sorted(name for name in both if self.theirs[name] != self.ours[name])


def compare_source(tool: Sequence[str], source: str, scratch: str) -> ComparedSource:
    """Let both tools find the skills of a source; `scratch` is an empty folder."""
    theirs = _their_skills(tool, source, scratch)
    ours: dict[str, str] = {}
    refused: dict[str, str] = {}
    settings = load_settings(scratch)
    into = os.path.join(scratch, "incoming")
    os.mkdir(into, 0o700)
    try:
        opened = open_source(parse_source(source), settings, into)
    except SkillbeltError as error:
        return ComparedSource(theirs, {}, dict.fromkeys(theirs, str(error)))
    for found in opened.found.skills:
        try:
            ours.setdefault(found.name, computed_hash(opened.take(found).folder))
        except SkillbeltError as error:
            refused[found.name] = str(error)
    return ComparedSource(theirs, ours, refused)


def _their_skills(tool: Sequence[str], source: str, scratch: str) -> dict[str, str]:
    project, home = os.path.join(scratch, "project"), os.path.join(scratch, "home")
    os.mkdir(project)
    os.mkdir(home)
    words = ["add", source, "--skill", "*", "-y", "-a", "codex"]
    subprocess.run(
        [*tool, *words],
        cwd=project,
        env={"PATH": os.environ["PATH"], "HOME": home, "DISABLE_TELEMETRY": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_SECONDS,
        check=False,
    )
    lock = Path(project, "skills-lock.json")
    listed = json.loads(lock.read_text("utf-8"))["skills"] if lock.exists() else {}
    return {name: str(entry["computedHash"]) for name, entry in listed.items()}


def main() -> int:
    """Compare the sources of the command line; print a line for each, and the sum."""
    node, cli, *sources = sys.argv[1:]
    same = total = 0
    differs = False
    for source in sources:
        with tempfile.TemporaryDirectory() as scratch:
            found = compare_source((node, cli), source, scratch)
        both = len(found.theirs.keys() & found.ours.keys())
        total += both
        same += both - len(found.hashed_otherwise)
        bad = (found.missing, found.extra, found.hashed_otherwise)
        differs = differs or any(bad)
        print(f"{source}: {len(found.theirs)} and {len(found.ours)} skills", flush=True)
        for word, names in zip(("only skills", "only skillbelt", "other hash"), bad, strict=True):
            if names:
                print(f"  {word}: {', '.join(names[:10])} ({len(names)})")
        for name, why in list(found.refused.items())[:5]:
            print(f"  refused: {name}: {why[:200]}")
    print(f"{same} of {total} skills have the same hash")
    return 1 if differs else 0


if __name__ == "__main__":
    sys.exit(main())
