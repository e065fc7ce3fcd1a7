"""A node carries out the orders that a server sealed and granted, and nothing else."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from skillbelt.errors import DiskFull, PathEscape, PermissionDenied, RunRefused, SkillbeltError
from skillbelt.files.locks import hold, release
from skillbelt.files.manifest import LocalFiles
from skillbelt.fleet import perform as perform_module
from skillbelt.fleet import sent_skills
from skillbelt.fleet.node import plain_error
from skillbelt.fleet.perform import NodeBench, Performed, Sent, remove_left
from skillbelt.fleet.sent_skills import pack_skill
from skillbelt.fleet.submit import order_of, pack_of, seal_order
from skillbelt.objects.space import Objects
from skillbelt.running.call import Asker, RunCall
from skillbelt.running.mirrors import Carried, EntryFact, Mirror, carry, put
from skillbelt.running.orders import PrivateValues, RunOrder, write_facts
from skillbelt.store import SessionKey
from tests import needs
from tests.bench import ME, Bench
from tests.discovery.sources.server import running
from tests.registries import list_wheel
from tests.tree import Tree

KEY = b"the key of the cluster"
OTHER = Asker(SessionKey("app", "you", "one"), "user")


class Made(NamedTuple):
    """An order that a server made, and what belongs to it."""

    order: RunOrder
    values: PrivateValues
    facts: dict[str, EntryFact]
    contents: dict[str, bytes]
    skills: dict[str, Any]

    def sent(self, key: bytes = KEY, **changed: Any) -> Sent:
        """An order as it is sent, with changes that the server itself would have sealed."""
        order = self.order._replace(**changed)
        data, sealed, private = seal_order(key, order, self.values)
        return Sent(data, sealed, private, write_facts(self.facts), self.contents, self.skills)


@pytest.fixture
def bench(open_tree: Tree) -> Iterator[Bench]:
    made = Bench(open_tree)
    yield made
    made.close()


@pytest.fixture
def node(bench: Bench) -> Iterator[NodeBench]:
    tree = bench.tree
    state = tree.root / "node"
    state.mkdir(mode=0o711)
    made = NodeBench(tree.settings()._replace(state_dir=str(state), project=""), KEY)
    yield made
    made.close()


@pytest.fixture
def make(bench: Bench) -> Iterator[Callable[..., Made]]:
    """Return what makes the order of a call, as a server does."""
    with ExitStack() as stack:

        def made(command: str, who: Asker = ME, **call: Any) -> Made:
            here = bench.make()
            prepared = here.prepare(bench.belt.get_skill("echo"), RunCall(command, **call), who)
            run = stack.enter_context(prepared)
            facts = Mirror(1000).look(run.workspace, run.folder)
            order, values, hashes = order_of(run, run.job, "0" * 32, write_facts(facts))
            skills = {hash: pack_of(run, name) for name, hash in hashes.items()}
            return Made(order, values, facts, carry(run.workspace, facts).contents, skills)

        yield made


def perform(node: NodeBench, sent: Sent) -> Performed:
    return node.run(node.read(sent), sent, None, lambda running: None)


@pytest.fixture
def full_disk(open_tree: Tree) -> Iterator[str]:
    """A folder on a small disk without room."""
    place = open_tree.root / "full"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=711", "none", str(place)]
    subprocess.run(words, check=True)
    try:
        with suppress(OSError), open(place / "fill", "wb", 0) as file:
            while True:
                file.write(bytes(4096))
        yield str(place)
    finally:
        subprocess.run(["umount", str(place)], check=True)


@needs.root
def test_a_full_disk_is_the_same_error_on_a_server_and_on_a_node(
    bench: Bench, make: Callable[..., Made], full_disk: str
) -> None:
    sent = make("echo hello").sent()
    with pytest.raises(DiskFull, match="No space left") as here:
        bench.run("echo hello", bench=bench.make(state_dir=full_disk))
    settings = bench.tree.settings()._replace(state_dir=full_disk, project="")
    with closing(NodeBench(settings, KEY)) as node:
        with pytest.raises((OSError, SkillbeltError)) as there:
            perform(node, sent)
        plain = plain_error(there.value, "n" * 40)
    assert plain["kind"] == here.value.kind == "disk_full"
    assert "the node nnnnnnnnnnnn cannot" in plain["message"]
    assert "No space left" in plain["message"]


def test_an_order_is_carried_out(node: NodeBench, make: Callable[..., Made]) -> None:
    done = perform(node, make("echo $A; echo text > $OUTPUT_DIR/x", env={"A": "b"}).sent())
    assert done.outcome.stdout.data == b"b\n"
    assert [*done.carried.contents.values()] == [b"text\n"]
    assert done.carried.changed["out/x"].kind == "file"


def test_workspaces_beyond_a_number_go_the_oldest_first(
    node: NodeBench, make: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perform_module, "KEEP_WORKSPACES", 1)
    first = make("cat $OUTPUT_DIR/x; echo text > $OUTPUT_DIR/x")
    perform(node, first.sent())
    assert node.forget_unused() == []
    perform(node, make("echo hello", OTHER).sent())
    assert node.forget_unused() == [f"{first.order.tenant}/{first.order.workspace}"]
    again = perform(node, first.sent())
    assert b"text" not in again.outcome.stdout.data, "the server says what is in it"
    assert again.carried.changed["out/x"].kind == "file"


def test_a_workspace_goes_when_it_was_not_used_for_long_but_not_during_a_run(
    node: NodeBench, make: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perform_module, "KEEP_SECONDS", -1.0)
    sent, found = make("echo hello").sent(), list[list[str]]()
    node.run(node.read(sent), sent, None, lambda _: found.append(node.forget_unused()))
    assert found == [[]]
    assert len(node.forget_unused()) == 1
    assert node.forget_unused() == []


def test_skills_beyond_a_number_go_unless_they_were_just_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_skills, "MAX_SKILLS", 1)
    shelf, hashes = sent_skills.SentSkills(str(tmp_path / "shelf")), list[str]()
    for number in range(3):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        (folder / "SKILL.md").write_text(f"{number}")
        hashes.append(LocalFiles(str(folder)).digest())
        shelf.put("x", hashes[-1], pack_skill(str(folder)))
        assert shelf.find("x", hashes[-1])
        if number == 1:  # what was used in the last hour stays
            assert all(shelf.find("x", hash) for hash in hashes)
            monkeypatch.setattr(sent_skills, "_UNUSED_SECONDS", -1.0)
    assert [bool(shelf.find("x", hash)) for hash in hashes] == [False, True, True]


def test_a_changed_order_is_refused(node: NodeBench, make: Callable[..., Made]) -> None:
    sent = make("echo hello").sent()
    changed = sent._replace(order=sent.order.replace(b"echo hello", b"echo pwned"))
    with pytest.raises(PermissionDenied, match="changed on its way"):
        perform(node, changed)


def test_an_order_of_another_cluster_is_refused(node: NodeBench, make: Callable[..., Made]) -> None:
    with pytest.raises(PermissionDenied, match="no server made it"):
        perform(node, make("echo hello").sent(b"another key"))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"command": "echo other"}, "run echo other is not in the grant"),
        ({"hosts": ("example.org",)}, "network example.org is not in the grant"),
        ({"grant": ()}, "run echo hello is not in the grant"),
        ({"cwd": "$WORK_DIR"}, "is not in the grant"),
    ],
)
def test_what_is_not_granted_is_refused(
    node: NodeBench, make: Callable[..., Made], changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(PermissionDenied, match=said):
        perform(node, make("echo hello").sent(**changed))


def test_secrets_that_were_not_granted_are_refused(
    node: NodeBench, make: Callable[..., Made]
) -> None:
    made = make("echo hello")
    stolen = made._replace(values=made.values._replace(secrets={"TOKEN": "x"}))
    with pytest.raises(PermissionDenied, match="not those in the grant"):
        perform(node, stolen.sent())
    with pytest.raises(PermissionDenied, match="secret echo/TOKEN is not in the grant"):
        perform(node, stolen.sent(secrets=("TOKEN",)))


def test_values_that_were_changed_are_refused(node: NodeBench, make: Callable[..., Made]) -> None:
    sent = make("echo $A", env={"A": "b"}).sent()
    with pytest.raises(PermissionDenied, match="not those in the grant"):
        perform(node, sent._replace(private=json.dumps([{"A": "c"}, {}, {}]).encode()))


def test_another_content_under_the_same_name_is_refused(
    bench: Bench, node: NodeBench, make: Callable[..., Made]
) -> None:
    made = make("bash scripts/x.sh")
    bench.write("scripts/x.sh", "echo other")
    other = pack_skill(str(bench.skill))
    with pytest.raises(RunRefused, match="is not what was approved"):
        perform(node, made._replace(skills={made.order.hash: other}).sent())
    # Nothing of it is kept: the right content still counts.
    assert perform(node, made.sent()).outcome.exit_code == 127


def test_files_that_are_not_those_of_the_order_are_refused(
    node: NodeBench, make: Callable[..., Made]
) -> None:
    made = make("echo hello")
    facts = {**made.facts, "work/x": EntryFact("file", 0o600, 1, "0" * 64)}
    with pytest.raises(PermissionDenied, match="not those of its order"):
        perform(node, made.sent()._replace(facts=write_facts(facts)))


def test_what_is_missing_is_asked_for(node: NodeBench, make: Callable[..., Made]) -> None:
    made = make("echo hello", stdin=b"input")
    done = perform(node, made._replace(skills={}).sent())
    assert done.lacks.skills == (made.order.hash,)
    done = perform(node, made.sent())
    assert done.lacks.contents == (made.order.stdin,)


def test_a_workspace_comes_back_in_batches(
    node: NodeBench, make: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perform_module, "BATCH_BYTES", 3_000)
    write = "for n in 1 2 3 4 5; do head -c 1400 /dev/zero | tr '\\0' $n > $WORK_DIR/$n; done"
    made = make(f"{write}; mkdir $WORK_DIR/d; chmod 500 $WORK_DIR/d; echo x > $OUTPUT_DIR/x")
    batches = [perform(node, made.sent()).carried]
    whose = made.order.tenant, made.order.workspace, made.order.folder
    while batches[-1].later:
        batches.append(node.collect(*whose))
    assert len(batches) > 1
    sizes = [sum(map(len, one.contents.values())) for one in batches]
    assert max(sizes) <= 3_000
    found = {path for one in batches for path, fact in one.changed.items() if fact.kind == "file"}
    assert found == {"out/x", *(f"work/{number}" for number in range(1, 6))}
    assert node.collect(*whose) == Carried({}, (), {})
    with pytest.raises(RunRefused, match="no such workspace"):
        node.collect("other", *whose[1:])
    with pytest.raises(RunRefused, match="not the folder of a run"):
        node.collect(*whose[:2], "work/..")


def test_a_workspace_is_brought_in_batches(node: NodeBench, make: Callable[..., Made]) -> None:
    """To a node that has nothing of it: the node lacks less each time, and then runs it."""
    files = {"work/a": b"first", "work/d/b": b"second", "work/d/c": b"third"}
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    facts = {name: EntryFact("file", 0o600, len(files[name]), hashes[name]) for name in files}
    made = make("cat $WORK_DIR/a $WORK_DIR/d/*; stat -c %a $WORK_DIR/d")
    made = made._replace(facts={**made.facts, "work/d": EntryFact("folder", 0o500), **facts})
    digest = hashlib.sha256(write_facts(made.facts)).hexdigest()
    lacking = []
    for path, data in files.items():
        done = perform(node, made._replace(contents={hashes[path]: data}).sent(files=digest))
        lacking.append(len(done.lacks.contents))
    assert lacking == [2, 1, 0]
    assert done.outcome.stdout.data == b"firstsecondthird500\n"


def test_a_skill_comes_from_the_object_store(
    bench: Bench, node: NodeBench, make: Callable[..., Made], tmp_path: Path
) -> None:
    """Only with the content that was approved; else the server is asked for it."""
    node.settings = node.settings._replace(objects=f"file://{tmp_path}/objects")
    objects = Objects.from_settings(node.settings)
    made = make("echo hello")._replace(skills={})
    assert perform(node, made.sent()).lacks.skills == (made.order.hash,)
    assert objects.put_skill(bench.belt.get_skill("echo")) == made.order.hash
    for path in (tmp_path / "objects" / "skills").rglob("*"):
        if path.is_file():
            (tmp_path / "kept").write_bytes(path.read_bytes())
            path.write_bytes(b"other")
            assert perform(node, made.sent()).lacks.skills == (made.order.hash,)
            path.write_bytes((tmp_path / "kept").read_bytes())
    assert perform(node, made.sent()).outcome.stdout.data == b"hello\n"


@needs.linux
def test_packages_come_from_the_object_store(
    bench: Bench, node: NodeBench, make: Callable[..., Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node has another cache than the server, and the index no longer has the file."""
    tree = bench.tree
    objects = f"file://{tree.root}/objects"
    bench.write("requirements.txt", "greet\n")
    with running() as index:
        list_wheel(index, "greet", {"greet.py": "word = 'hello'"})
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"{index.url}/simple")
        monkeypatch.setenv("UV_NO_CONFIG", "1")
        monkeypatch.setenv("SKILLBELT_OBJECTS", objects)
        made = make("python3 -c 'import greet; print(greet.word)'")
        assert made.order.packages
        index.pages.clear()
        cache = tree.root / "node-cache"
        cache.mkdir(mode=0o711)
        node.settings = node.settings._replace(objects=objects, cache_dir=str(cache))
        assert perform(node, made.sent()).outcome.stdout.data == b"hello\n"


def test_a_tenant_does_not_reach_the_workspace_of_another(
    node: NodeBench, make: Callable[..., Made]
) -> None:
    """The same name of a workspace, another tenant."""
    mine = make("echo mine > $WORK_DIR/mine")
    perform(node, mine.sent())
    theirs = make("ls $WORK_DIR", OTHER).sent(workspace=mine.order.workspace)
    assert b"mine" not in perform(node, theirs).outcome.stdout.data


@pytest.mark.parametrize(
    "left", ["true", "echo x > $OUTPUT_DIR/x", "chmod 755 $WORK_DIR", "echo x > .venv/x", "ls"]
)
def test_a_run_outside_of_conversations_finds_nothing_of_another(
    node: NodeBench, make: Callable[..., Made], left: str
) -> None:
    once = ME._replace(once="whole")
    look = "ls -A $OUTPUT_DIR .venv $WORK_DIR/inputs; stat -c %a $WORK_DIR"
    first = perform(node, make(look, once).sent()).outcome.stdout.data
    perform(node, make(left, once).sent())
    assert perform(node, make(look, once).sent()).outcome.stdout.data == first


@pytest.mark.parametrize("path", ["../x", "skills/x", "work/../../x", "out", "/etc/x", "work//x"])
def test_a_node_cannot_write_outside_of_a_workspace(bench: Bench, path: str) -> None:
    with bench.make().workspace(ME.key) as workspace, pytest.raises(PathEscape):
        put(workspace, Carried({path: EntryFact("folder", 0o755)}, (), {}))


def test_a_node_cannot_write_through_a_link(bench: Bench) -> None:
    victim = bench.tree.root / "victim"
    victim.mkdir()
    with bench.make().workspace(ME.key) as workspace:
        put(workspace, Carried({"out/link": EntryFact("link", content=str(victim))}, (), {}))
        with pytest.raises(OSError):
            put(workspace, Carried({"out/link/x": EntryFact("folder", 0o755)}, (), {}))
        put(workspace, Carried({}, ("out/link",), {}))
    assert victim.exists() and not [*victim.iterdir()]


def test_a_node_that_lies_about_a_digest_is_refused(bench: Bench) -> None:
    fact = EntryFact("file", 0o644, 3, "0" * 64)
    with bench.make().workspace(ME.key) as workspace:
        with pytest.raises(RunRefused, match="its hash differs"):
            put(workspace, Carried({"out/a": fact}, (), {"0" * 64: b"lie"}))
        assert "out/a" not in Mirror(10).look(workspace, "runs/x")


def test_what_a_killed_process_left_is_removed(open_tree: Tree) -> None:
    """A process that lives keeps its folder."""
    nodes = open_tree.root / "nodes"
    for name in ("dead", "living"):
        open_tree.write(nodes / name / "workspaces" / "x" / "work" / "file", "text")
        (nodes / name / ".alive").touch()
        os.utime(nodes / name / ".alive", (0, 0))
    (nodes / "new").mkdir()
    (nodes / "new" / ".alive").touch()
    lock = hold(str(nodes / "living" / ".alive"), fcntl.LOCK_SH)
    try:
        remove_left(str(nodes))
    finally:
        release(lock)
    assert sorted(one.name for one in nodes.iterdir()) == ["living", "new"]
