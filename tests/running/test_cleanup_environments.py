"""Clearing installed packages away: never those in use, and all leftovers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from skillbelt.permission.packages import Environment
from skillbelt.running.cleanup import Cleaned, clean_environments, held_environment
from tests.discovery.sources.server import eventually
from tests.files.test_remove import nest
from tests.registries import wheel
from tests.running.test_packages_environments import GREET, PYTHON, Shop, sleeping
from tests.running.test_packages_lockfiles import pylock
from tests.running.test_workspace import as_user
from tests.tree import Tree

SIZE = 2**20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "environments"
    folder.mkdir()
    return folder


def made(folder: Path, name: str, used: float = 0.0) -> Environment:
    """An environment that was last used at that time; made now when it is not there."""
    path, aside = folder / name, folder.parent / name
    if not path.exists():
        aside.mkdir()
        (aside / "package.py").write_bytes(b"x" * SIZE)
        os.utime(aside, (used, used))
        aside.rename(path)
    return Environment(str(path), name, ())


def clean(folder: Path, max_bytes: int = 0) -> list[Cleaned]:
    return clean_environments(str(folder.parent), max_bytes=max_bytes)


def names(cleaned: list[Cleaned]) -> list[str]:
    assert all(one.left == () for one in cleaned)
    return [one.name for one in cleaned]


def test_the_least_recently_used_go_until_the_rest_fits(folder: Path) -> None:
    for name, used in (("a", 1.0), ("b", 3.0), ("c", 2.0)):
        made(folder, name, used)
    done = clean(folder, 3 * SIZE // 2)
    assert [(one.name, one.reason) for one in done] == [("a", "size"), ("c", "size")]
    assert all(one.size_bytes >= SIZE for one in done)
    assert os.listdir(folder) == ["b"]
    assert clean(folder, 3 * SIZE // 2) == []


def test_whoever_holds_one_uses_it(folder: Path) -> None:
    for name, used in (("a", 1.0), ("b", 2.0)):
        made(folder, name, used)
    with held_environment(lambda: made(folder, "a")):
        pass
    assert names(clean(folder, 3 * SIZE // 2)) == ["b"]


def test_one_in_use_stays_until_the_last_lets_go(folder: Path) -> None:
    with ExitStack() as second:
        with held_environment(lambda: made(folder, "a")) as environment:
            second.enter_context(held_environment(lambda: made(folder, "a")))
            assert clean(folder) == []
        assert clean(folder) == []
        assert os.path.isdir(environment.path)
    assert names(clean(folder)) == ["a"]
    assert os.listdir(folder) == []


def test_one_that_another_process_uses_stays(folder: Path) -> None:
    made(folder, "a")
    code = f"""
import sys
from skillbelt.running.cleanup import held_environment
from skillbelt.permission.packages import Environment
with held_environment(lambda: Environment({str(folder / "a")!r}, "a", ())):
    print(flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stdout.readline() == b"\n"
        assert clean(folder) == []
        process.kill()
    assert names(clean(folder)) == ["a"]


def test_one_that_was_cleared_away_before_it_was_held_is_made_again(folder: Path) -> None:
    asked: list[str] = []

    def make() -> Environment:
        environment = made(folder, "a")
        asked.append(environment.path)
        if len(asked) == 1:
            clean(folder)
        return environment

    with held_environment(make) as environment:
        assert os.path.isdir(environment.path)
    assert len(asked) == 2


def test_cleaning_and_using_at_once_never_takes_one_away(folder: Path) -> None:
    stop = threading.Event()

    def cleaner() -> None:
        while not stop.is_set():
            clean(folder)

    thread = threading.Thread(target=cleaner)
    thread.start()
    try:
        for _ in range(300):
            with held_environment(lambda: made(folder, "a")) as environment:
                assert os.path.getsize(os.path.join(environment.path, "package.py")) == SIZE
    finally:
        stop.set()
        thread.join()


# --- what was not finished -----------------------------------------------------------------------

INSTALL = """
import os, sys
from skillbelt.running.packages.declared import Needs
from skillbelt.running.packages.environments import provision
from skillbelt.running.packages.install_sandbox import NativeSandboxes
environ = {**os.environ, "UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"}
provision(Needs("python", ("greet",), "r"), sys.argv[1], environ=environ, uv_path=sys.argv[2],
          sandboxes=NativeSandboxes())
"""


def test_what_a_killed_installation_left_goes_once_nobody_works_there(tmp_path: Path) -> None:
    slow, mark = tmp_path / "uv", f"700.{os.getpid()}"
    # It resolves at once, and never ends installing.
    slow.write_text(
        f"#!/bin/sh\ncase $2 in compile) cat > pylock.toml <<'END'\n{pylock().decode()}END\n"
        f";; *) exec sleep {mark};; esac\n"
    )
    slow.chmod(0o755)
    folder = tmp_path / "environments"
    with subprocess.Popen([sys.executable, "-c", INSTALL, str(tmp_path), str(slow)]) as process:
        eventually(lambda: bool(sleeping(mark)), 60)
        (part,) = (name for name in os.listdir(folder) if ".part-" in name)
        assert clean(folder) == []
        process.kill()
    eventually(lambda: not sleeping(mark))  # the installer ends with who started it
    done = clean(folder)
    assert [(one.name, one.reason, one.left) for one in done] == [(part, "unfinished", ())]
    assert os.listdir(folder) == []


def test_what_a_killed_clean_up_left_goes(folder: Path) -> None:
    nest(folder / ".gone-0123", 2_000)
    assert [one.reason for one in clean(folder, 2**40)] == ["unfinished"]
    assert os.listdir(folder) == []


def test_locks_of_what_there_is_not_go(folder: Path) -> None:
    made(folder, "a")
    for name in (".a.lock", ".a.use", ".b.lock", ".b.use"):
        (folder / name).touch()
    assert clean(folder, 2**40) == []
    assert sorted(os.listdir(folder)) == [".a.lock", ".a.use", "a"]


def test_whatever_a_package_brings_is_removed_by_its_owner(open_tree: Tree) -> None:
    os.chmod(open_tree.root, 0o777)
    code = """
from skillbelt.running.cleanup import clean_environments
folder = sys.argv[1] + "/environments"
os.makedirs(folder + "/a/closed/inner/" + "d/" * 300)
open(folder + "/a/closed/new\\nline", "w").close()
os.symlink("/usr", folder + "/a/link")
for path in ("/a/closed/inner", "/a/closed", "/a"):
    os.chmod(folder + path, 0o555 if path == "/a" else 0)
print([one.left for one in clean_environments(sys.argv[1], max_bytes=0)], os.listdir(folder))
"""
    assert as_user(code, open_tree.root) == "[()] []\n"


def test_without_environments_there_is_nothing_to_clean(tmp_path: Path) -> None:
    assert clean_environments(str(tmp_path / "none"), max_bytes=0) == []


# --- what is refused, and then cleared away ------------------------------------------------------


def test_packages_nested_without_end_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    wheel(shop.packages, "deep", {f"{'d/' * 1_100}x.py": ""})
    said = shop.refusal("deep", python=PYTHON)
    assert "is nested deeper than" in said or "failed" in said
    assert shop.left() == []


def test_more_than_may_be_kept_is_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    wheel(shop.packages, "greet", {**GREET, "greet.txt": "x" * SIZE})
    said = shop.refusal("greet", max_bytes=SIZE)
    assert said.startswith("1 Python package: greet (from requirements.txt): ")
    assert said.endswith(f"bytes once installed, more than {SIZE} (max_packages_bytes)")
    assert shop.left() == []
