"""Finding uv and npm, and their defaults."""

from __future__ import annotations

import json
import os

import pytest

from skillbelt.errors import RunRefused
from skillbelt.running.packages.declared import Needs
from skillbelt.running.packages.installation import which
from skillbelt.running.packages.installers import (
    find_npm,
    find_uv,
    is_own_program,
    package_json,
)


def test_without_npm_the_remedy_is_named() -> None:
    with pytest.raises(RunRefused, match=r"npm is not installed.*install Node\.js"):
        find_npm("", {"PATH": "relative:"})


def test_uv_is_found_beside_the_interpreter() -> None:
    assert os.access(find_uv("", {}), os.X_OK)


def test_a_relative_folder_is_not_searched() -> None:
    assert which("sh", {"PATH": "bin:."}) == ""
    assert which("sh", {"PATH": "bin:/bin"}) == "/bin/sh"


def test_npm_is_told_what_is_needed() -> None:
    told = json.loads(package_json(Needs("node", ("@a/b@^1", "c@*"), "package.json")))
    assert told["dependencies"] == {"@a/b": "^1", "c": "*"}


@pytest.mark.parametrize("name", ["python", "python3", "python3.11", "activate", "activate.fish"])
def test_what_every_environment_has(name: str) -> None:
    assert is_own_program(name)


@pytest.mark.parametrize("name", ["python-argcomplete", "activate-global", "ls", "python3-x"])
def test_what_a_package_brings(name: str) -> None:
    assert not is_own_program(name)
