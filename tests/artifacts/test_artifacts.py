from __future__ import annotations

import sys
import tempfile
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from skillbelt.artifacts import ArtifactStore, SessionArtifacts, open_artifacts, read
from skillbelt.artifacts.conformance import KEY
from skillbelt.artifacts.disk import DiskArtifacts
from skillbelt.artifacts.memory import MemoryArtifacts
from skillbelt.artifacts.objects import ObjectArtifacts
from skillbelt.errors import ArtifactError, MissingExtra
from skillbelt.store import SessionKey
from tests.examples import examples
from tests.tree import QUICK, Tree


def test_artifacts_are_below_the_state_folder(tree: Tree) -> None:
    settings = tree.settings(state_dir=str(tree.root / "state"))
    store = open_artifacts(settings)
    assert not tree.path("state").exists()
    saved = store.save(KEY, "a", b"x")
    assert tree.path("state/artifacts").is_dir()
    assert open_artifacts(settings).latest(KEY) == [saved]


def test_a_session_sees_its_own(tree: Tree) -> None:
    store = MemoryArtifacts()
    mine = SessionArtifacts(store, KEY)
    assert [mine.save("a", data, "text/plain") for data in (b"0", b"1")] == [0, 1]
    assert (mine.resolve("a"), mine.resolve("a", 0)) == (1, 0)
    assert (mine.open("a").read(), mine.open("a", 0).read()) == (b"1", b"0")
    assert store.find(KEY, "a").mime == "text/plain"
    with pytest.raises(ArtifactError, match="no artifact 'a' in version 2"):
        mine.resolve("a", 2)
    with pytest.raises(ArtifactError, match="no artifact 'a'"):
        SessionArtifacts(store, KEY._replace(session="other")).resolve("a")


def test_a_url_opens_an_object_store(tree: Tree) -> None:
    bucket = tree.path("bucket")
    bucket.mkdir()
    store = open_artifacts(tree.settings(), bucket.as_uri())
    saved = store.save(KEY, "a", b"x")
    assert read(open_artifacts(tree.settings(), bucket.as_uri()), KEY, "a") == (saved, b"x")
    assert any(bucket.iterdir())


def test_a_url_of_an_unknown_kind_is_told(tree: Tree) -> None:
    with pytest.raises(ArtifactError, match="gopher://x cannot be used for artifacts"):
        open_artifacts(tree.settings(), "gopher://x")


def test_without_the_extra_it_is_named(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] == "obstore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtra, match=r"skillbelt\[s3\]"):
        open_artifacts(tree.settings(), "s3://bucket")
    assert open_artifacts(tree.settings()).latest(KEY) == []


# Few parts, so that operations meet on the same artifact.
PARTS = st.sampled_from(["a", "", "\udcff"])
KEYS = st.builds(SessionKey, st.just("app"), PARTS, PARTS)
NAMES = st.sampled_from(["x", "x@1", "user:x", "a/b", "", "\n"]) | st.text(max_size=3)
DATA = st.sampled_from([b"", b"same", b"\0\xff"]) | st.binary(max_size=10)


class Save(NamedTuple):
    key: SessionKey
    name: str
    data: bytes


class Delete(NamedTuple):
    key: SessionKey
    name: str


SAVES = st.builds(Save, KEYS, NAMES, DATA)
STEPS = st.lists(st.one_of(SAVES, SAVES, SAVES, st.builds(Delete, KEYS, NAMES)), max_size=12)


def apply(store: ArtifactStore, step: Save | Delete) -> object:
    """The result of the operation, without the time."""
    try:
        match step:
            case Save(key, name, data):
                return store.save(key, name, data)._replace(time=0)
            case Delete(key, name):
                return store.delete(key, name)
    except ArtifactError as error:
        return str(error)


def shown(store: ArtifactStore, key: SessionKey) -> object:
    """All that a session sees, without the times."""
    latest = store.latest(key)
    versions = [store.versions(key, one.name) for one in latest]
    return (
        [one._replace(time=0) for one in latest],
        [[one._replace(time=0) for one in found] for found in versions],
        [[read(store, key, one.name, one.version)[1] for one in found] for found in versions],
    )


@settings(max_examples=examples(60))
@given(STEPS)
def test_all_stores_answer_alike(steps: list[Save | Delete]) -> None:
    with tempfile.TemporaryDirectory(dir=QUICK) as folder:
        memory = MemoryArtifacts()
        others: list[ArtifactStore] = [DiskArtifacts(folder), ObjectArtifacts(MemoryStore())]
        for step in steps:
            expected = apply(memory, step), shown(memory, step.key)
            for other in others:
                assert (apply(other, step), shown(other, step.key)) == expected
