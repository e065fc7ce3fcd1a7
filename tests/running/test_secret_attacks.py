"""Attacks on stored secrets, for real, in each native sandbox of this machine."""

from __future__ import annotations

import json
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillbelt import Rule, Runtime
from skillbelt.running.background import Background
from skillbelt.running.call import RunCall
from skillbelt.running.secret_store import SecretStore
from tests import needs, warm
from tests.bench import ALLOW, KEY, ME
from tests.benches import GUARDING, need
from tests.tree import Tree

pytestmark = needs.linux
VALUE = "attack-on-this-value"
# It looks for the value and prints only where it is, since what is printed is redacted.
LOOK = """
import glob, json, os, socket, sys
wanted, found = b"attack-on-" + b"this-value", []
store, bus = sys.argv[1:]
def look(name, read):
    try:
        if wanted in read():
            found.append(name)
    except OSError:
        pass
def bytes_of(path):
    return lambda: open(path, "rb").read()
def asked(address):
    def ask():
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(address)
            return client.recv(100)
    return ask
look("environment", lambda: repr(dict(os.environ)).encode())
for path in glob.glob("/proc/[0-9]*/*") + glob.glob("/proc/[0-9]*/task/*/*"):
    if path.rsplit("/", 1)[1] in ("environ", "cmdline", "auxv", "comm", "stack"):
        look(path, bytes_of(path))
for path in glob.glob("/proc/[0-9]*/fd/*"):
    if not path.startswith((f"/proc/{os.getpid()}/", "/proc/self/")):
        look(path, bytes_of(path))
for path in (store, store + ".part", f"/proc/1/root{store}", f"/proc/self/root{store}"):
    look(path, bytes_of(path))
look("bus", asked(bus))
look("abstract bus", asked("\\0" + bus))
for folder in (os.environ["WORKSPACE_DIR"], "/tmp", "/var/tmp", "/dev/shm", "/run"):
    for above, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(above, name)
            if os.path.isfile(path):
                look(path, bytes_of(path))
print(json.dumps(found))
"""


class Scene:
    """A skill that may have the secret, one that may not, and what only the user may reach."""

    def __init__(self, tree: Tree, sandbox: str) -> None:
        self.tree, self.sandbox = tree, sandbox
        need = {"openclaw": {"requires": {"env": ["A_KEY"]}}}
        for name in ("holder", "thief"):
            folder = tree.skill(f"project/.agents/skills/{name}", metadata=need)
            tree.write(folder / "scripts/look.py", LOOK)
        self.store = SecretStore(tree.settings(secrets_store="file"))
        self.store.set("A_KEY", VALUE)
        self.bus = str(tree.path("bus"))
        self._open: list[Runtime] = []

    def runtime(self, *rules: Rule) -> Runtime:
        made = Runtime(self.tree.project, rules=(*ALLOW, *rules), sandbox=self.sandbox)
        self._open.append(made)
        return made

    def look(self, belt: Runtime, skill: str) -> object:
        """Return where a run of the skill finds the value."""
        words = ["python3", "scripts/look.py", self.store.path, self.bus]
        result = belt.run_sync(skill, words)
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    def close(self) -> None:
        for belt in self._open:
            belt.close()


@pytest.fixture(params=GUARDING)
def scene(open_tree: Tree, request: pytest.FixtureRequest) -> Iterator[Scene]:
    need(request.param)
    made = Scene(open_tree, request.param)
    yield made
    made.close()


@pytest.fixture
def bus(scene: Scene) -> Iterator[None]:
    """A server of the user's that gives the value to each program that connects."""
    with socket.socket(socket.AF_UNIX) as plain, socket.socket(socket.AF_UNIX) as abstract:
        plain.bind(scene.bus)
        abstract.bind(f"\0{scene.bus}")
        ours, theirs = socket.socketpair()
        serving = threading.Thread(target=_serve, args=(theirs, plain, abstract))
        serving.start()
        yield
        ours.close()
        serving.join()
        theirs.close()


def _serve(end: socket.socket, *servers: socket.socket) -> None:
    """Answer until the other side of `end` is closed."""
    for one in servers:
        one.listen()
    while end not in (ready := select.select((end, *servers), [], [])[0]):
        for server in ready:
            client, _ = server.accept()
            with client:
                client.sendall(VALUE.encode())


def test_a_skill_without_the_grant_finds_it_nowhere_while_another_has_it(
    scene: Scene, bus: None
) -> None:
    """Not in its environment, not in that of the other run, not in the store, not at the bus."""
    holding = scene.runtime()
    background = Background(holding.workbench)
    call = RunCall('test -n "$A_KEY" && echo ready; read line')
    run = background.start(holding.get_skill("holder"), call, ME)
    assert background.poll(KEY, run, wait_seconds=30).stdout == "ready\n"
    try:
        thief = scene.runtime(Rule("secret", "thief/*", "deny"))
        assert scene.look(thief, "thief") == []
    finally:
        background.close()


def test_a_run_with_the_grant_has_it_in_its_environment_alone(scene: Scene, bus: None) -> None:
    """This also shows that the look above finds what is there."""
    found = scene.look(scene.runtime(), "holder")
    assert isinstance(found, list)
    assert found[0] == "environment"
    assert {Path(one).name for one in found[1:]} <= {"environ"}


def test_no_process_has_it_among_its_arguments(scene: Scene) -> None:
    """Any user can read those; the environment is that of the command alone."""
    belt = scene.runtime()
    background = Background(belt.workbench)
    call = RunCall(("bash", "-c", "echo ready; read line"))
    run = background.start(belt.get_skill("holder"), call, ME)
    assert background.poll(KEY, run, wait_seconds=30).stdout == "ready\n"
    try:
        assert _processes_with("cmdline") == []
        assert {one.rpartition("/")[2] for one in _processes_with("environ")} <= {"bash", "sh"}
    finally:
        background.close()


def _processes_with(file: str) -> list[str]:
    """Return the programs of the processes whose file in /proc holds the value."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if VALUE.encode() in (folder / file).read_bytes():
                found.append((folder / "comm").read_text().strip())
        except OSError:
            continue
    return found


def test_a_later_run_of_the_same_skill_has_nothing_of_it(scene: Scene) -> None:
    """A secret that was allowed once is gone with the run, in the same conversation too."""
    belt = scene.runtime()
    session = belt.session("ada", "one")
    assert belt.run_sync("holder", 'test -n "$A_KEY"', session=session).exit_code == 0
    other = scene.runtime(Rule("secret", "*", "deny"))
    session = other.session("ada", "one")
    words = ["python3", "scripts/look.py", scene.store.path, scene.bus]
    result = other.run_sync("holder", words, session=session)
    assert json.loads(result.stdout) == []


WRITER = """
import sys
from skillbelt.running.secret_store import SecretStore
from skillbelt.settings import load_settings
store = SecretStore(load_settings(sys.argv[1], overrides={"secrets_store": "file"}))
for number in range(1_000_000):
    store.set("B_KEY", f"value-{number:06}" * 500)
    if number == 3:
        print("writing", flush=True)
"""


def test_a_kill_while_writing_leaves_the_old_file_or_the_new_one(tree: Tree) -> None:
    store = SecretStore(tree.settings(secrets_store="file"))
    kept = store.set("A_KEY", VALUE)
    for _ in range(5):
        command = [sys.executable, "-c", WRITER, str(tree.project)]
        with warm.Popen[bytes](command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"writing\n"
            child.kill()
        assert store.value(kept) == VALUE
        other = store.find("B_KEY", "")
        assert other is not None
        value = store.value(other)
        assert value is not None
        assert value == value[:12] * 500
    store.set("C_KEY", VALUE)  # the lock of a killed writer holds up no other
