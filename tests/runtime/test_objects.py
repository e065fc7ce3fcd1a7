"""A conversation that continues at another server, with the files of the first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from obstore.store import LocalStore

from skillbelt import FileUnreadable, Runtime, load_settings
from skillbelt.artifacts import SessionArtifacts
from skillbelt.disclosure.overflow import Storage
from skillbelt.objects.blobs import Blobs
from skillbelt.objects.space import Objects
from skillbelt.running.snapshots import latest_snapshot, snapshot
from skillbelt.store.memory import MemoryStore
from skillbelt.store.protocol import SessionKey
from skillbelt.tools.caller import STORED
from tests.tree import Tree

SKILLS = "project/.agents/skills"
READ = {"skill": "pdf", "relative_path": "long.md"}


@pytest.fixture
def objects(tmp_path: Path) -> Path:
    return tmp_path / "objects"


def server(tree: Tree, name: str, objects: Path, store: MemoryStore) -> Runtime:
    """A server with a disk of its own."""
    overrides = {"state_dir": str(tree.root / name), "objects": f"file://{objects}"}
    return Runtime(settings=load_settings(tree.project, overrides=overrides), store=store)


def test_a_long_text_is_read_on_at_another_server(tree: Tree, objects: Path) -> None:
    tree.skill(f"{SKILLS}/pdf", "Reads PDF files.")
    tree.write(f"{SKILLS}/pdf/long.md", "".join(f"line {n}\n" for n in range(1, 3001)))
    store = MemoryStore()
    with server(tree, "one", objects, store) as one, server(tree, "two", objects, store) as two:
        cut = one.session("u", "s").call_sync("load_resource", READ)
        ref = cut.data["report"]["storage_ref"]  # type: ignore[index]
        assert ref.startswith(STORED)
        asked = {"file_name": ref, "start_line": 2999}
        first = one.session("u", "s").call_sync("read_file", asked)
        assert first.text.endswith("line 2999\nline 3000\n")
        assert two.session("u", "s").call_sync("read_file", asked) == first
        other = two.session("u", "another").call_sync("read_file", asked)
        assert "line 2999" not in other.text


def test_a_deleted_conversation_leaves_nothing_in_the_object_store(
    tree: Tree, objects: Path
) -> None:
    key = SessionKey("skillbelt", "u", "s")
    with server(tree, "one", objects, MemoryStore()) as one:
        one.session("u", "s").storage.keep("a long text")
        one.workbench.artifacts(key).save("report", b"x")
        with one.workbench.workspace(key) as workspace:
            project = one.settings.project
            snapshot(workspace, Objects.from_settings(one.settings), key, project=project)
        with server(tree, "two", objects, MemoryStore()) as two:
            shared = Objects.from_settings(two.settings)
            assert latest_snapshot(shared, key, project=project) is not None
            assert two.delete_session("u", "s")
            assert latest_snapshot(shared, key, project=project) is None
    left = [os.path.join(top, name) for top, _, names in os.walk(objects) for name in names]
    # Trees and blobs wait for `collect`; of an artifact its mark is left, and of the conversation
    # the mark that makes other machines remove its workspace.
    waiting = {"trees", "blobs", "versions", "deleted"}
    kept = [path for path in left if not waiting & set(path.split("/"))]
    assert kept == []


def test_artifacts_are_in_the_object_store_of_the_deployment(tree: Tree, objects: Path) -> None:
    key = SessionKey("skillbelt", "u", "s")
    with (
        server(tree, "one", objects, MemoryStore()) as one,
        server(tree, "two", objects, MemoryStore()) as two,
    ):
        version = one.workbench.artifacts(key).save("report", b"x")
        found = two.workbench.artifacts(key)
        assert isinstance(found, SessionArtifacts)
        with found.open("report") as file:
            assert file.read() == b"x"
        assert found.resolve("report") == version
    assert not (tree.root / "one" / "artifacts").exists()


def test_a_text_that_was_changed_in_the_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    shared = Blobs(LocalStore(tmp_path / "shared"))
    ref = Storage(tmp_path / "one", shared=shared).keep("a long text")
    two = Storage(tmp_path / "two", shared=shared)
    name = os.path.basename(ref)
    shared.write(name, b"another text")
    with pytest.raises(FileUnreadable, match="was changed"):
        two.text(f"{two.folder}/{name}")
    shared.delete(name)
    with pytest.raises(FileUnreadable, match="not stored any more"):
        two.text(f"{two.folder}/{name}")


def test_a_text_is_kept_here_while_the_store_is_full_or_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "shared").mkdir()
    one = Storage(tmp_path / "one", shared=Blobs(LocalStore(tmp_path / "shared"), "below"))
    (tmp_path / "shared" / "below").touch()  # no folder can be made there
    assert one.text(one.keep("a long text")) == "a long text"
    assert "is kept on this machine only" in caplog.text
