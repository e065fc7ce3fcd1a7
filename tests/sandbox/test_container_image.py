"""Containers are made of this system, or of an image that was named; nothing is fetched."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillbelt.sandbox.container.engine import ContainerEngine
from skillbelt.sandbox.container.image import REPOSITORY, find_image, system_archive, system_mounts
from skillbelt.sandbox.container.sandbox import ContainerSandbox
from skillbelt.sandbox.linux.identity import interpreter, trusted_program
from skillbelt.sandbox.protocol import run
from skillbelt.settings import Settings
from skillbelt.testing.sandbox_suite import Place
from tests import needs
from tests.sandbox.engines import any_engine as any_engine
from tests.sandbox.engines import engine as engine
from tests.sandbox.engines import place as place
from tests.sandbox.engines import said
from tests.sandbox.engines import shared as shared

# Files that running a program does not need.
_LEFT_OUT = ("test", "__pycache__", "dist-packages", "config-", "ensurepip", "idlelib", "lib2to3")


def test_the_image_of_a_system_is_the_same_each_time() -> None:
    """Its name says what is in it."""
    assert system_archive() == system_archive()


def test_the_image_of_a_system_is_small_and_holds_no_program() -> None:
    data = system_archive()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        entries = {entry.name: entry for entry in archive.getmembers()}
        passwd = archive.extractfile("etc/passwd")
        assert passwd is not None
        assert b"skill" in passwd.read()
    assert len(data) < 2**20
    assert not any(entry.mode & 0o111 for entry in entries.values() if entry.isreg())
    assert entries["tmp"].mode == 0o1777
    assert {entry.uid for entry in entries.values()} == {0}


def test_programs_come_from_the_systems_own_folders() -> None:
    mounts = {mount.target: mount for mount in system_mounts(network=False)}
    assert mounts["/usr"].source == "/usr"
    assert not any(mount.writable for mount in mounts.values())
    assert not {"/etc", "/", "/root", "/home", "/var"} & set(mounts)
    assert set(mounts) <= {mount.target for mount in system_mounts(network=True)}


def test_the_image_is_made_once(engine: str) -> None:
    told: list[str] = []
    maker = ContainerEngine(engine, {})
    try:
        first = find_image(maker, "", told.append)
        # Other tests may have made theirs, of a system as another user sees it.
        count, images = len(told), len(maker.client.images(REPOSITORY))
        assert find_image(maker, "", told.append) == first
        assert count == len(told) <= 1
        assert len(maker.client.images(REPOSITORY)) == images
    finally:
        maker.close()


def test_an_image_that_is_not_there_is_not_fetched(engine: str) -> None:
    sandbox = ContainerSandbox(
        Settings(container_engine=engine, container_image="example.com/no/such:image")
    )
    reason = str(sandbox.unavailable())
    sandbox.close()
    assert "has no image 'example.com/no/such:image' (container_image)" in reason
    assert "not pulled automatically: pull or build it" in reason


def test_a_name_that_can_not_be_one_is_told(any_engine: str) -> None:
    sandbox = ContainerSandbox(Settings(container_engine=any_engine, container_image="No Image!"))
    assert "cannot inspect the image 'No Image!'" in str(sandbox.unavailable())
    sandbox.close()


def imported(url: str, data: bytes, changes: list[str]) -> str:
    """The number of an image that was made of the archive."""
    maker = ContainerEngine(url, {})
    try:
        told = maker.client.import_image_from_data(data, changes=changes)
        return str(json.loads(told.strip().splitlines()[-1])["status"])
    finally:
        maker.close()


def test_an_image_without_python_is_told(engine: str) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        folder = tarfile.TarInfo("etc")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    image = imported(engine, data.getvalue(), [])
    sandbox = ContainerSandbox(Settings(container_engine=engine, container_image=image))
    assert "the image (container_image) needs python3" in str(sandbox.unavailable())
    sandbox.close()


def python_archive() -> bytes:
    """The system's Python with its libraries, as an image that others made."""
    found = trusted_program("python3")
    if found is None:
        needs.not_run("needs a Python of the system: apt install python3")
    libraries = subprocess.run(["ldd", found], capture_output=True, check=True, text=True).stdout
    paths = [word for word in libraries.split() if word.startswith("/")]
    version = Path(found).resolve().name
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for path in (found, *map(os.path.realpath, paths)):
            archive.add(path)
        for path in paths:
            if path != os.path.realpath(path):
                archive.addfile(_link(path, os.path.realpath(path)))
        archive.addfile(_link("/usr/bin/python3", found))
        archive.add(f"/usr/lib/{version}", filter=_wanted)
        ffi = next(Path("/usr/lib").glob("*/libffi.so.?"), None)
        if ffi is not None:
            archive.add(ffi.resolve(), arcname=str(ffi))
        archive.addfile(_folder("tmp", 0o1777))
        archive.addfile(_folder("data", 0o777))
    return data.getvalue()


def _wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    parts = entry.name.split("/")
    return None if any(part.startswith(_LEFT_OUT) for part in parts) else entry


def _link(path: str, target: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    return entry


def _folder(name: str, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    return entry


@pytest.fixture
def given(engine: str) -> Iterator[ContainerSandbox]:
    """The sandbox with an image that keeps data in a volume and has an environment of its own."""
    changes = ["VOLUME /data", "ENV FROM_THE_IMAGE=1", "ENTRYPOINT /bin/false", "USER 0"]
    image = imported(engine, python_archive(), changes)
    sandbox = ContainerSandbox(Settings(container_engine=engine, container_image=image))
    assert sandbox.unavailable() is None
    yield sandbox
    sandbox.close()


def test_a_given_image_is_used_as_it_is(given: ContainerSandbox, place: Place) -> None:
    """Its files, and nothing of this system's; not its environment, its user or its program."""
    code = """
import os
print(os.path.exists("/bin/sh"), os.path.exists("/usr/bin/ls"), os.getuid() == 0)
print("FROM_THE_IMAGE" in os.environ)
open("made", "w").write("x")
try:
    open("/data/file", "w")
except OSError as error:
    print(error.strerror)
"""
    job = place.job("/usr/bin/python3", "-c", code)
    expected = ["False False False", "False", "Read-only file system"]
    assert said(run(given, job)).splitlines() == expected
    assert os.listdir(place.folder) == ["made"]


def test_where_no_python_can_be_used_nothing_runs(
    any_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from skillbelt.sandbox.container import image as container_image

    assert interpreter() is not None
    monkeypatch.setattr(container_image, "interpreter", lambda: None)
    sandbox = ContainerSandbox(Settings(container_engine=any_engine, container_runtime="runc"))
    assert "no Python here" in str(sandbox.unavailable())
    sandbox.close()
