"""Objects in a store that speaks S3, over a connection that may be cut at any moment."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from skillbelt import Skill
from skillbelt.errors import ObjectDamaged, ObjectError, ObjectsAway
from skillbelt.files.manifest import LocalFiles
from skillbelt.objects.collect import collect
from skillbelt.objects.pack import PACK_BYTES, SMALL_BYTES
from skillbelt.objects.space import Objects
from skillbelt.running.snapshots import restore, snapshot
from skillbelt.running.workspace import Workspace, open_workspace
from tests.artifacts.test_objects import bucket, server
from tests.objects.test_trees import KEY, seen
from tests.running.test_same_files import folder, skill

__all__ = ["bucket", "folder", "server", "skill"]


def s3(address: str, bucket: str, **config: Any) -> Objects:
    return Objects.from_url(
        f"s3://{bucket}/prefix",
        endpoint=address,
        region="us-east-1",
        access_key_id="id",
        secret_access_key="secret",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
        **config,
    )


@pytest.fixture
def objects(server: str, bucket: str) -> Objects:
    return s3(server, bucket)


class Relay:
    """A connection to the server that ends for all after so many bytes, in either direction."""

    def __init__(self, address: str) -> None:
        self.target = urlsplit(address).hostname, urlsplit(address).port
        self.left = 2**60
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._start(self._accept)

    def close(self) -> None:
        self.left = 0
        for one in (self._listening, *self._sockets):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join()
        for one in (self._listening, *self._sockets):
            one.close()

    def _start(self, target: Callable[..., None], *args: socket.socket) -> None:
        self._threads.append(threading.Thread(target=target, args=args, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        while True:
            try:
                inside, _ = self._listening.accept()
            except OSError:
                return
            if self.left <= 0:
                inside.close()
                continue
            outside = socket.create_connection(self.target)
            self._sockets += [inside, outside]
            self._start(self._pump, inside, outside)
            self._start(self._pump, outside, inside)

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                with self._lock:
                    allowed = data[: max(0, self.left)]
                    self.left -= len(data)
                target.sendall(allowed)
                if self.left <= 0:
                    break
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def relay(server: str) -> Iterator[Relay]:
    made = Relay(server)
    yield made
    made.close()


def fill(workspace: Workspace, byte: bytes) -> None:
    for number in range(20):
        (Path(workspace.path) / "work" / str(number)).write_bytes(byte * (1000 + number))
    (Path(workspace.path) / "out" / "large").write_bytes(byte * (SMALL_BYTES + 3))


def test_skills_and_folders_come_back(objects: Objects, skill: Skill, tmp_path: Path) -> None:
    digest = objects.put_skill(skill)
    objects.get_skill(digest, str(tmp_path / "copy"))
    assert LocalFiles(str(tmp_path / "copy")).digest() == digest == skill.files.digest()
    source = tmp_path / "source"
    source.mkdir()
    (source / "large").write_bytes(os.urandom(2 * PACK_BYTES + 7))
    (source / "small").write_bytes(b"x")
    space = objects.tenant(KEY)
    space.get_tree(space.put_tree(str(source)), str(tmp_path / "back"))
    assert seen(tmp_path / "back") == seen(source)
    assert collect(objects).blobs == 0


def test_a_workspace_goes_on_through_s3(
    objects: Objects, server: str, bucket: str, tmp_path: Path
) -> None:
    with open_workspace(str(tmp_path / "one"), KEY) as one:
        fill(one, b"a")
        snapshot(one, objects, KEY)
        fill(one, b"b")
        assert snapshot(one, objects, KEY).number == 2
        with open_workspace(str(tmp_path / "two"), KEY) as two:
            restore(two, s3(server, bucket), KEY)
            assert seen(Path(two.path) / "work") == seen(Path(one.path) / "work")


@pytest.mark.parametrize("allowed", [0, 500, 3_000, 30_000, 200_000, 350_000])
def test_a_snapshot_that_is_cut_leaves_the_last_one(
    allowed: int, objects: Objects, relay: Relay, bucket: str, tmp_path: Path
) -> None:
    cut = s3(relay.address, bucket)
    with open_workspace(str(tmp_path / "one"), KEY) as one:
        fill(one, b"a")
        first = snapshot(one, cut, KEY)
        before = seen(Path(one.path) / "work")
        fill(one, b"b")
        relay.left = allowed
        with suppress(ObjectsAway):  # where much is allowed, all may be said before the end
            snapshot(one, cut, KEY)
        after = seen(Path(one.path) / "work")
        with open_workspace(str(tmp_path / "two"), KEY) as two:
            found = restore(two, objects, KEY)
            assert found is not None
            expected = before if found.number == first.number else after
            assert seen(Path(two.path) / "work") == expected
        # The same machine goes on: by the next snapshot, or after it has restored the last one.
        relay.left = 2**60
        try:
            last = snapshot(one, cut, KEY)
        except ObjectError:
            assert restore(one, cut, KEY) is not None
            last = snapshot(one, cut, KEY)
        assert last.number == 2
        assert seen(Path(one.path) / "work") == after


@pytest.mark.parametrize("allowed", [0, 600, 5_000, 60_000, 250_000])
def test_a_restoration_that_is_cut_changes_nothing(
    allowed: int, objects: Objects, relay: Relay, bucket: str, tmp_path: Path
) -> None:
    with (
        open_workspace(str(tmp_path / "one"), KEY) as one,
        open_workspace(str(tmp_path / "two"), KEY) as two,
    ):
        fill(one, b"a")
        snapshot(one, objects, KEY)
        (Path(two.path) / "work" / "mine").write_bytes(b"mine")
        before = seen(Path(two.path) / "work")
        relay.left = allowed
        with pytest.raises((ObjectsAway, ObjectDamaged)):
            restore(two, s3(relay.address, bucket), KEY)
        assert seen(Path(two.path) / "work") == before
        assert os.listdir(Path(two.path) / "private") == []


def test_refused_credentials_and_a_bucket_that_is_not_there_are_named(
    server: str, tmp_path: Path
) -> None:
    with pytest.raises(ObjectsAway, match="cannot be listed"):
        s3(server, "no-such-bucket").tenant(KEY).put_file(b"x")
