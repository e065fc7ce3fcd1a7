"""Environments made by the real uv and npm, from packages made here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from skillbelt.errors import RunRefused
from skillbelt.permission.packages import Environment
from skillbelt.running.packages import environments
from skillbelt.running.packages.declared import Needs
from skillbelt.running.packages.environments import can_be_written, provision
from skillbelt.running.packages.install_sandbox import NativeSandboxes
from skillbelt.running.packages.installation import fits, remove
from skillbelt.running.packages.installers import find_uv
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.protocol import Job, Mount, run
from tests import needs
from tests.discovery.sources.server import eventually, running
from tests.registries import publish, source, wheel
from tests.tree import NOBODY, Tree

ROOT = Path(__file__).parents[2]
ROOMS = NativeSandboxes()
PYTHON = ROOMS.python if sys.platform == "linux" else sys.executable
GREET = {
    "greet.py": "word = 'hello'\ndef main():\n    print(word)\n",
    "greet-1.0.dist-info/entry_points.txt": "[console_scripts]\ngreet = greet:main\n",
}
CANARY = "import pathlib; pathlib.Path({path!r}).write_text('ran')"


class Shop:
    """A folder of packages in place of an index, and a cache of its own."""

    def __init__(self, root: Path) -> None:
        self.root, self.cache = root, str(root / "cache")
        self.packages = root / "packages"
        self.packages.mkdir()
        self.environ = {
            **os.environ,
            "UV_NO_INDEX": "1",
            "UV_FIND_LINKS": str(self.packages),
        }

    def provision(self, *requirements: str, **options: object) -> Environment:
        needs = Needs("python", requirements, "requirements.txt")
        given = {"environ": self.environ, "python": PYTHON, "sandboxes": ROOMS, **options}
        return provision(needs, self.cache, **given)

    def refusal(self, *requirements: str, **options: object) -> str:
        with pytest.raises(RunRefused) as caught:
            self.provision(*requirements, **options)
        return str(caught.value)

    def left(self) -> list[str]:
        """The entries of the cache except locks."""
        folder = os.path.join(self.cache, "environments")
        names = os.listdir(folder) if os.path.isdir(folder) else []
        return [name for name in names if not name.endswith(".lock")]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    wheel(shop.packages, "greet", GREET)
    return shop


@pytest.fixture(autouse=True)
def _made_removable(tmp_path: Path) -> Iterator[None]:
    """Make read-only folders of an ordinary user removable for pytest."""
    yield
    for folder, _, _ in os.walk(tmp_path):
        os.chmod(folder, 0o700)


def says(environment: Environment, code: str) -> str:
    done = subprocess.run(
        [f"{environment.bin}/python", "-I", "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout


# --- making one ----------------------------------------------------------------------------------


def test_an_environment_holds_what_was_asked_for(shop: Shop) -> None:
    environment = shop.provision("greet>=1")
    assert environment.installed == (("greet", "1.0"),)
    assert environment.path == os.path.join(shop.cache, "environments", environment.hash)
    assert says(environment, "import greet; print(greet.word)") == "hello\n"


def test_the_same_needs_are_met_by_the_same_environment(shop: Shop) -> None:
    first = shop.provision("greet>=1")
    shutil.rmtree(shop.packages)
    said: list[str] = []
    assert shop.provision("greet>=1", progress=said.append, uv_path="/none") == first
    assert said == []


def test_other_needs_are_met_by_another_environment(shop: Shop) -> None:
    assert shop.provision("greet>=1").hash != shop.provision("greet<2").hash


def test_what_is_done_is_told(shop: Shop) -> None:
    said: list[str] = []
    shop.provision("greet", progress=said.append)
    about = "1 Python package: greet (from requirements.txt)"
    assert said == [f"resolving {about}", f"installing {about}"]


def test_without_requirements_it_is_a_bare_environment(shop: Shop) -> None:
    environment = shop.provision()
    assert environment.installed == ()
    assert says(environment, "import sys; print(sys.prefix)") == f"{environment.path}\n"


def test_nobody_writes_to_it_afterwards(shop: Shop) -> None:
    environment = shop.provision("greet")
    writable = [
        path
        for folder, _, files in os.walk(environment.path)
        for path in (folder, *(os.path.join(folder, name) for name in files))
        if not os.path.islink(path) and os.stat(path).st_mode & 0o222
    ]
    assert writable == []
    assert os.stat(environment.path).st_mode & 0o005 == 0o005


def test_its_bytecode_is_there_from_the_start(shop: Shop) -> None:
    environment = shop.provision("greet")
    assert list(Path(environment.path).rglob("site-packages/__pycache__/greet.*.pyc"))


def test_it_works_wherever_it_is_mounted(shop: Shop, tmp_path: Path) -> None:
    environment = shop.provision("greet")
    moved = environment._replace(path=str(tmp_path / "elsewhere"))
    shutil.copytree(environment.path, moved.path, symlinks=True)
    remove(environment.path)
    assert says(moved, "import greet; print(greet.word)") == "hello\n"
    assert subprocess.check_output([f"{moved.bin}/greet"]) == b"hello\n"


def test_it_can_be_removed(shop: Shop) -> None:
    environment = shop.provision("greet")
    remove(environment.path)
    assert not os.path.exists(environment.path)


def test_an_ordinary_user_can_make_one_and_remove_it(open_tree: Tree) -> None:
    """The folder is read-only before it is renamed, which only root could otherwise do."""
    shop = Shop(open_tree.root)
    wheel(shop.packages, "greet", GREET)
    code = f"""
import os, sys
sys.path.insert(0, {str(ROOT / "src")!r})
from skillbelt.running.packages.declared import Needs
from skillbelt.running.packages.environments import provision
from skillbelt.running.packages.installation import remove
from skillbelt.running.packages.install_sandbox import NativeSandboxes
made = provision(Needs("python", ("greet",), "r"), {shop.cache!r}, environ=dict(os.environ),
                 sandboxes=NativeSandboxes(), uv_path={find_uv("", os.environ)!r})
print(os.getuid(), made.installed)
remove(made.path)
print(os.path.exists(made.path))
"""
    user, command = os.getuid(), [sys.executable, "-c", code]
    if user == 0:
        user = NOBODY
        for folder in (open_tree.root, shop.packages):
            os.chown(folder, NOBODY, NOBODY)
        command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
                   "/usr/bin/python3", "-I", "-c", code]  # fmt: skip
    done = subprocess.run(
        command, env=shop.environ, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.stdout == f"{user} (('greet', '1.0'),)\nFalse\n", done.stderr


def test_in_a_sandbox_it_is_read_and_not_written(open_tree: Tree) -> None:
    """At another place than outside, and by another user than made it."""
    shop = Shop(open_tree.root)
    wheel(shop.packages, "greet", GREET)
    environment = shop.provision("greet", python="/usr/bin/python3")
    code = """
import greet, os
print(greet.word, greet.__cached__ and os.path.exists(greet.__cached__))
for path in (greet.__file__, os.path.dirname(greet.__file__) + "/new.pth"):
    try:
        open(path, "a")
        print("written")
    except OSError:
        print("refused")
"""
    job = Job(
        argv=("python", "-c", code),
        env={"PATH": "/env/bin:/usr/bin"},
        cwd="/",
        mounts=(Mount(environment.path, "/env"),),
        workspace=str(open_tree.root),
    )
    outcome = run(LinuxSandbox(), job)
    assert outcome.stdout.data == b"hello True\nrefused\nrefused\n", outcome.stderr.data


# --- nothing of a stranger runs ------------------------------------------------------------------


def test_no_code_of_a_package_runs_while_it_is_installed(shop: Shop, tmp_path: Path) -> None:
    canary = tmp_path / "ran"
    code = CANARY.format(path=str(canary))
    hooks = {"evil.pth": f"{code}\n", "sitecustomize.py": code, "evil.py": code}
    wheel(shop.packages, "evil", hooks)
    environment = shop.provision("evil")
    assert not canary.exists()
    says(environment, "pass")
    assert canary.exists()  # it would have, had that Python been started


def test_a_package_that_must_be_built_is_refused(shop: Shop, tmp_path: Path) -> None:
    canary = tmp_path / "ran"
    source(shop.packages, "builds", CANARY.format(path=str(canary)))
    said = shop.refusal("builds")
    assert "installing 1 Python package: builds" in said
    assert "failed" in said
    assert not canary.exists()
    assert shop.left() == []


def test_variables_of_the_user_do_not_reach_the_installer(shop: Shop) -> None:
    """Those for packages do: the folder in place of an index is one of them."""
    shop.environ |= {
        "UV_PYTHON": "/none",
        "UV_TARGET": "/none",
        "UV_LINK_MODE": "hardlink",
        "PYTHONPATH": "/none",
        "VIRTUAL_ENV": "/none",
        "LD_PRELOAD": "/none",
    }
    assert shop.provision("greet").installed == (("greet", "1.0"),)


# --- when it can not be made ---------------------------------------------------------------------


def test_a_failure_leaves_nothing_and_says_why(shop: Shop) -> None:
    said = shop.refusal("greet", "missing-package==3")
    assert said.startswith("installing 2 Python packages: greet, missing-package==3 (from req")
    assert "missing-package" in said.partition("failed:")[2]
    assert shop.cache not in said
    assert shop.left() == []


def test_offline_it_says_what_is_missing_and_how_to_get_it(shop: Shop) -> None:
    said = shop.refusal("greet>=1", "rich", offline=True)
    assert said == (
        "offline, and not installed on this machine yet: 2 Python packages: greet>=1, rich (from "
        "requirements.txt); to provide it, go online once and run the same"
    )
    assert shop.left() == []


def test_offline_an_environment_that_is_there_is_used(shop: Shop) -> None:
    made = shop.provision("greet")
    shutil.rmtree(shop.packages)
    assert shop.provision("greet", offline=True) == made


def test_without_uv_the_remedy_is_named(shop: Shop) -> None:
    said = shop.refusal("greet", uv_path="/none/uv")
    assert said == (
        "/none/uv cannot be run, and Python packages are installed with it: pip install uv"
    )


def test_a_python_that_does_not_fit_is_refused(shop: Shop) -> None:
    needs = Needs("python", ("greet",), "run.py", ">=4")
    with pytest.raises(RunRefused, match=r"run\.py: needs Python >=4, and .* is CPython 3\."):
        provision(needs, shop.cache, environ=shop.environ, python=PYTHON, sandboxes=ROOMS)


def other_python(folder: Path, version: str) -> str:
    """A program that says to be another Python."""
    path = folder / "python3.39"
    path.write_text(f"#!/bin/sh\necho CPython {version}\n")
    path.chmod(0o755)
    return str(path)


def test_another_python_of_the_system_is_taken_where_scripts_need_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = other_python(tmp_path, "3.39.1")
    found = {"python3.39": other}
    monkeypatch.setattr(environments, "trusted_program", found.get)
    monkeypatch.setattr(environments, "in_system", lambda path: True)
    newer = Needs("python", ("greet",), "run.py", ">=3.39")
    given: dict[str, Any] = {"environ": shop.environ, "sandboxes": ROOMS}
    with pytest.raises(RunRefused, match="offline, and not installed"):
        environments.plan(newer, shop.cache, offline=True, **given)
    # Where one was chosen, it is that one or none; nor is one taken that a sandbox does not show.
    with pytest.raises(RunRefused, match=r"needs Python >=3\.39"):
        environments.plan(newer, shop.cache, offline=True, python=PYTHON, **given)
    monkeypatch.setattr(environments, "in_system", lambda path: False)
    with pytest.raises(RunRefused, match=r"needs Python >=3\.39, and .*; install one that fits"):
        environments.plan(newer, shop.cache, offline=True, **given)


def test_the_usual_python_is_taken_where_it_fits(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = other_python(tmp_path, "3.39.1")
    monkeypatch.setattr(environments, "trusted_program", {"python3.39": other}.get)
    needs_any = Needs("python", ("greet",), "run.py", ">=3.8")
    given: dict[str, Any] = {"environ": shop.environ, "sandboxes": ROOMS}
    assert environments.plan(needs_any, shop.cache, **given).tools.interpreter == ROOMS.python


def test_a_python_that_is_none_is_refused(shop: Shop) -> None:
    assert "/none cannot be run" in shop.refusal("greet", python="/none")


def test_an_interpreter_is_asked_once_and_again_when_it_changes(shop: Shop, tmp_path: Path) -> None:
    asked, python = tmp_path / "asked", tmp_path / "python3"
    text = f"#!/bin/sh\necho >> {asked}\necho CPython VERSION\n"
    python.write_text(text.replace("VERSION", "3.9.1"))
    python.chmod(0o755)
    for _ in range(2):
        code = f"""
import sys
from tests.running.test_packages_environments import ROOMS, Needs, provision
needs = Needs("python", ("greet",), "run.py", ">=3.10")
try:
    provision(needs, {shop.cache!r}, environ={{}}, python={str(python)!r}, sandboxes=ROOMS)
except Exception as error:
    print(error)
"""
        said = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True)
        assert "needs Python >=3.10" in said and "is CPython 3.9.1" in said
    assert len(asked.read_text()) == 1
    python.write_text(text.replace("VERSION", "3.8.10"))
    needs_newer = Needs("python", ("greet",), "run.py", ">=3.10")
    with pytest.raises(RunRefused, match=r"is CPython 3\.8\.10"):
        provision(needs_newer, shop.cache, environ={}, python=str(python), sandboxes=ROOMS)


def test_an_installer_that_does_not_end_is_killed(shop: Shop, tmp_path: Path) -> None:
    slow = tmp_path / "uv"
    mark = f"600.{os.getpid()}"
    slow.write_text(f"#!/bin/sh\nsleep {mark} &\nwait\n")
    slow.chmod(0o755)
    said = shop.refusal("greet", uv_path=str(slow), timeout_seconds=0.5)
    assert said.endswith("not done after 0.5 s")
    eventually(lambda: not sleeping(mark))
    assert shop.left() == []


def sleeping(mark: str) -> list[int]:
    """The processes that sleep for the marked time, anywhere on this machine."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            if words[:2] == [b"sleep", mark.encode()] and is_running(int(name)):
                found.append(int(name))
    return found


def is_running(process: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


# --- at the same time ----------------------------------------------------------------------------


def test_whoever_comes_second_waits_and_takes_the_same(shop: Shop) -> None:
    said: list[str] = []
    made: list[Environment] = []

    def make() -> None:
        made.append(shop.provision("greet", progress=said.append))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4 and len(set(made)) == 1
    assert len([text for text in said if text.startswith("installing")]) == 1


def test_a_killed_installation_is_never_seen_and_is_cleared_away(shop: Shop) -> None:
    made = shop.provision("greet")
    remove(made.path)
    part = Path(shop.cache, "environments", f".{made.hash}.part-dead")
    (part / "lib").mkdir(parents=True)
    (part / "lib").chmod(0o555)
    Path(made.path, "lib").mkdir(parents=True)  # without its record it is none
    assert shop.provision("greet") == made
    assert shop.left() == [made.hash]


# --- versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "fitting"),
    [
        ("", True), (">=3.10", True), (">=3.11.7", True), (">=3.12", False), ("<4,>=3.9", True),
        ("<3.11", False), ("<=3.11", False), ("==3.11.*", True), ("==3.12.*", False),
        ("!=3.11.*", False), ("!=3.11.7", False), ("!=3.12", True), ("==3.11.7", True),
        ("~=3.10", True), ("~=3.11.0", True), ("~=3.10.0", False), (">3.11.7", False),
        (">= 3.8 , < 3.12", True),
    ],
)  # fmt: skip
def test_a_range_of_versions(wanted: str, fitting: bool) -> None:
    assert fits("3.11.7", wanted) is fitting


# --- Node.js -------------------------------------------------------------------------------------


@needs.npm
def test_packages_for_node_are_installed_without_their_scripts(tmp_path: Path) -> None:
    wanted = Needs("node", ("greet@^1.3.0",), "package.json")
    environ = {**os.environ, "npm_config_ignore_scripts": "false"}
    with running() as server:
        environ["npm_config_registry"] = server.url
        publish(server, "greet", f"touch {tmp_path}/ran")
        made = provision(wanted, str(tmp_path / "one"), environ=environ, sandboxes=ROOMS)
    assert made.installed == (("greet", "1.3.0"),)
    assert made.bin == f"{made.path}/node_modules/.bin"
    assert node(made, "require('greet')()") == "hello\n"
    assert not (tmp_path / "ran").exists()
    again = provision(wanted, str(tmp_path / "one"), environ=environ, offline=True, sandboxes=ROOMS)
    assert again == made


def node(environment: Environment, code: str) -> str:
    done = subprocess.run(
        ["node", "-p", code], cwd=environment.path, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_folder_can_be_written_when_it_can_be_made(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    assert can_be_written(str(tmp_path / "new" / "deep"))
    assert not can_be_written(str(file / "new"))


def test_whoever_runs_can_reach_it_whatever_the_umask(shop: Shop) -> None:
    old = os.umask(0o077)
    try:
        made = shop.provision("greet")
    finally:
        os.umask(old)
    for path in (os.path.dirname(made.path), made.path, made.bin, made.interpreter):
        assert os.stat(path).st_mode & 0o005 == 0o005


def test_a_version_with_any_number_of_digits_can_be_compared() -> None:
    assert not fits("3.11.7", f">=3.{'9' * 5000}")
