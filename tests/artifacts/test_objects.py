from __future__ import annotations

import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import LocalStore, MemoryStore

from skillbelt.artifacts import ArtifactStore, read
from skillbelt.artifacts.conformance import KEY, ArtifactStoreConformance
from skillbelt.artifacts.objects import ObjectArtifacts
from skillbelt.errors import ArtifactError


class TestObjectArtifactsInMemory(ArtifactStoreConformance):
    @pytest.fixture
    def artifacts(self) -> ArtifactStore:
        return ObjectArtifacts(MemoryStore(), "some/prefix/")


class TestObjectArtifactsInAFolder(ArtifactStoreConformance):
    @pytest.fixture
    def artifacts(self, tmp_path: Path) -> ArtifactStore:
        return ObjectArtifacts(LocalStore(tmp_path))


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server that speaks S3."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stderr is not None
        try:
            lines = iter(process.stderr.readline, b"")
            address = next(filter(None, (re.search(rb"http://[\d.:]+", line) for line in lines)))
            # Its log would fill the pipe.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield address[0].decode()
        finally:
            process.terminate()


@pytest.fixture
def bucket(server: str, request: pytest.FixtureRequest) -> str:
    name = f"bucket-{abs(hash(request.node.nodeid))}"
    made = urllib.request.Request(f"{server}/{name}", method="PUT")
    urllib.request.urlopen(made, timeout=500).close()
    return name


def s3(server: str, bucket: str, **config: Any) -> ObjectArtifacts:
    return ObjectArtifacts.from_url(
        f"s3://{bucket}/artifacts",
        endpoint=server,
        region="us-east-1",
        access_key_id="id",
        secret_access_key="secret",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
        **config,
    )


@pytest.mark.long
class TestObjectArtifactsInS3(ArtifactStoreConformance):
    @pytest.fixture
    def artifacts(self, server: str, bucket: str) -> ArtifactStore:
        return s3(server, bucket)


def test_another_client_sees_the_same(server: str, bucket: str) -> None:
    saved = s3(server, bucket).save(KEY, "a", b"x")
    assert read(s3(server, bucket), KEY, "a") == (saved, b"x")


def test_a_missing_bucket_is_told(server: str) -> None:
    store = s3(server, "no-such-bucket")
    with pytest.raises(ArtifactError, match="'a' cannot be kept"):
        store.save(KEY, "a", b"x")
    with pytest.raises(ArtifactError, match="cannot be listed"):
        store.latest(KEY)


def test_a_server_that_is_gone_is_told() -> None:
    store = s3("http://127.0.0.1:1", "bucket")
    for call in (store.find, store.open, store.versions, store.delete):
        with pytest.raises(ArtifactError, match="'a' cannot be"):
            call(KEY, "a")


def paths(store: MemoryStore) -> list[str]:
    return [one["path"] for page in obstore.list(store) for one in page]


def test_everything_is_below_the_prefix() -> None:
    objects = MemoryStore()
    ObjectArtifacts(objects, "/x/y/").save(KEY, "../a", b"x")
    assert all(path.startswith("x/y/") and "/../" not in path for path in paths(objects))
    assert len(paths(objects)) == 2


def test_equal_versions_are_stored_once() -> None:
    objects = MemoryStore()
    store = ObjectArtifacts(objects)
    for data in (b"same", b"same", b"other"):
        store.save(KEY, "a", data)
    assert len([path for path in paths(objects) if "/data/" in path]) == 2


def test_a_delete_leaves_one_empty_mark() -> None:
    objects = MemoryStore()
    store = ObjectArtifacts(objects)
    for _ in range(2):
        for data in (b"1", b"2"):
            store.save(KEY, "a", data)
        store.delete(KEY, "a")
    [path] = paths(objects)
    assert obstore.head(objects, path)["size"] == 0
    assert path.endswith("/versions/0000000000000000003")


def test_bytes_that_are_gone_are_told() -> None:
    objects = MemoryStore()
    store = ObjectArtifacts(objects)
    store.save(KEY, "a", b"x")
    obstore.delete(objects, [path for path in paths(objects) if "/data/" in path])
    with pytest.raises(ArtifactError, match="'a' cannot be read"):
        read(store, KEY, "a")


def test_a_damaged_record_is_told() -> None:
    objects = MemoryStore()
    store = ObjectArtifacts(objects)
    store.save(KEY, "a", b"x")
    [path] = [path for path in paths(objects) if "/versions/" in path]
    for record in (b"0\n{", b"x\n{}", b"0"):
        obstore.put(objects, path, record)
        with pytest.raises(ArtifactError):
            store.find(KEY, "a")


class Interrupted:
    """A store in which something happens just before the given call of its methods."""

    def __init__(self, store: MemoryStore, at: int, happens: Callable[[], object]) -> None:
        self._store, self._left, self._happens = store, at, happens

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*args: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self._happens()
            return method(*args, **options)

        return call


def interrupted(objects: MemoryStore, at: int, happens: Callable[[], object]) -> ObjectArtifacts:
    return ObjectArtifacts(Interrupted(objects, at, happens))  # type: ignore[arg-type]


@pytest.mark.parametrize("at", range(1, 10))
def test_a_save_survives_a_delete_at_any_moment(at: int) -> None:
    objects = MemoryStore()
    plain = ObjectArtifacts(objects)
    plain.save(KEY, "a", b"same")
    saved = interrupted(objects, at, lambda: plain.delete(KEY, "a")).save(KEY, "a", b"same")
    assert plain.versions(KEY, "a")[-1] == saved
    assert read(plain, KEY, "a") == (saved, b"same")


@pytest.mark.parametrize("at", range(1, 12))
def test_a_delete_spares_what_is_saved_at_any_moment(at: int) -> None:
    objects = MemoryStore()
    plain = ObjectArtifacts(objects)
    plain.save(KEY, "a", b"same")
    plain.save(KEY, "a", b"other")
    happens = interrupted(objects, at, lambda: plain.save(KEY, "a", b"same"))
    assert happens.delete(KEY, "a")
    for found in plain.versions(KEY, "a"):
        assert found.version >= 2
        assert read(plain, KEY, "a", found.version) == (found, b"same")
    assert plain.save(KEY, "a", b"later").version >= 2


@pytest.mark.parametrize("outer", range(1, 10))
@pytest.mark.parametrize("inner", range(1, 10))
def test_a_save_and_two_deletes_meet(outer: int, inner: int) -> None:
    """A delete begins while another is under way, and both while something is saved."""
    objects = MemoryStore()
    plain = ObjectArtifacts(objects)
    plain.save(KEY, "a", b"same")
    plain.save(KEY, "a", b"same")
    deleter = interrupted(objects, inner, lambda: plain.delete(KEY, "a"))
    saver = interrupted(objects, outer, lambda: deleter.delete(KEY, "a"))
    saved = saver.save(KEY, "a", b"same")
    assert saved.version >= 2
    for found in plain.versions(KEY, "a"):
        assert read(plain, KEY, "a", found.version) == (found, b"same")
