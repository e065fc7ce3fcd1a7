"""A link that a command has made leads no mount astray."""

from __future__ import annotations

import os

import pytest

from skillbelt.errors import RunRefused
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.process.mounts import mounts_of
from skillbelt.sandbox.protocol import Mount, run
from skillbelt.testing.sandbox_suite import Place
from skillbelt.values import Capabilities


def test_outer_folders_come_first(place: Place) -> None:
    mounts = (Mount("/c", "/a/b/c"), Mount("/b", "/a/b"), Mount("/a", "/a"))
    found = mounts_of(place.job("true", mounts=mounts))
    assert [mount.target for mount in found] == ["/a", "/a/b", "/a/b/c"]


def test_what_is_granted_is_added_unless_it_is_there_already(place: Place) -> None:
    granted = Capabilities(read=("/usr", "/none"), write=("/tmp", "/usr"))
    found = mounts_of(place.job("true", mounts=(Mount("/x", "/tmp"),), capabilities=granted))
    assert sorted(found) == [Mount("/usr", "/usr", True), Mount("/x", "/tmp")]


@pytest.mark.parametrize("link_to", ["folder", "/oldroot{}", "{}"])
def test_a_link_on_the_way_to_a_target_is_refused(place: Place, link_to: str) -> None:
    """The mount would create folders at the target of the link."""
    outside, skill = place.beside("outside"), place.beside("skill")
    os.symlink(link_to.format(outside), os.path.join(place.folder, "skills"))
    inner = Mount(skill, os.path.join(place.target, "skills", "new"))
    mounts = (Mount(place.folder, place.target, True), inner)
    with pytest.raises(RunRefused, match="there is a link on the way"):
        run(LinuxSandbox(), place.job("true", mounts=mounts))
    assert os.listdir(outside) == []


def test_a_link_on_the_way_to_a_source_is_refused(place: Place) -> None:
    """It would show what only the user may read."""
    outside = place.beside("outside")
    os.symlink(outside, os.path.join(place.folder, "data"))
    inner = Mount(os.path.join(place.folder, "data"), "/data")
    mounts = (Mount(place.folder, place.target, True), inner)
    with pytest.raises(RunRefused, match="there is a link on the way"):
        run(LinuxSandbox(), place.job("true", mounts=mounts))


def test_a_file_where_a_folder_should_be_is_refused(place: Place) -> None:
    with open(os.path.join(place.folder, "file"), "w"):
        pass
    inner = Mount("/usr", os.path.join(place.target, "file", "below"))
    mounts = (Mount(place.folder, place.target, True), inner)
    with pytest.raises(RunRefused, match="Not a directory"):
        run(LinuxSandbox(), place.job("true", mounts=mounts))


def test_a_link_of_the_host_itself_is_followed(place: Place) -> None:
    """No process inside can have made it."""
    real = place.beside("real")
    link = os.path.join(os.path.dirname(real), "link")
    os.symlink(real, link)
    mounts = (Mount(place.folder, place.target, True), Mount(link, "/data"))
    assert run(LinuxSandbox(), place.job("ls", "/data", mounts=mounts)).exit_code == 0


def test_a_way_that_does_not_exist_yet_is_made(place: Place) -> None:
    inner = Mount("/usr/bin", os.path.join(place.target, "new", "folder"))
    mounts = (Mount(place.folder, place.target, True), inner)
    assert run(LinuxSandbox(), place.job("ls", "new/folder", mounts=mounts)).exit_code == 0
