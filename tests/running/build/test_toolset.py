from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from skillbelt.errors import RunRefused
from skillbelt.running.build import toolset
from skillbelt.running.build.toolset import node_program, node_tools, python_tools
from skillbelt.sandbox.wasm.interpreters import GUESTS
from tests.sandbox.guests import hosts


def lock(folder: Path, integrity: str) -> str:
    """A lock with one small package of ours, by another hash."""
    with open(os.path.join(GUESTS, "package-lock.json"), encoding="utf-8") as file:
        packages = json.load(file)["packages"]
    name = "any-promise"
    about = {**packages[f"node_modules/{name}"], "integrity": integrity}
    root = {"name": "tools", "dependencies": {name: about["version"]}}
    folder.mkdir()
    (folder / "package.json").write_text(json.dumps(root))
    whole = {"name": "tools", "lockfileVersion": 3, "requires": True,
             "packages": {"": root, f"node_modules/{name}": about}}  # fmt: skip
    (folder / "package-lock.json").write_text(json.dumps(whole))
    return str(folder)


def test_the_tools_for_javascript_are_installed_once() -> None:
    said: list[str] = []
    path = node_tools(hosts(), said.append)
    assert os.path.isfile(os.path.join(path, "node_modules", "esbuild", "package.json"))
    said.clear()
    assert node_tools(hosts(), said.append) == path
    assert said == []


def test_a_package_with_another_hash_is_not_installed(tmp_path: Path) -> None:
    wrong = lock(tmp_path / "lock", f"sha512-{'A' * 86}==")
    settings = hosts()._replace(cache_dir=str(tmp_path / "cache"))
    with pytest.raises(
        RunRefused, match=r"cannot be installed|not the package that the lock names"
    ):
        node_tools(settings, print, wrong)
    left = os.listdir(toolset.tool_folder(settings, "build-tools"))
    assert not [name for name in left if not name.startswith(".") and name != "locks"]


def test_settings_of_npm_do_not_lead_it_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("npm_config_global", "true")
    monkeypatch.setenv("npm_config_prefix", str(tmp_path / "elsewhere"))
    with open(os.path.join(GUESTS, "package-lock.json"), encoding="utf-8") as file:
        right = json.load(file)["packages"]["node_modules/any-promise"]["integrity"]
    settings = hosts()._replace(cache_dir=str(tmp_path / "cache"))
    path = node_tools(settings, print, lock(tmp_path / "lock", right))
    assert os.listdir(os.path.join(path, "node_modules", "any-promise"))
    assert not (tmp_path / "elsewhere").exists()


def test_offline_without_them_it_is_said_what_to_do(tmp_path: Path) -> None:
    settings = hosts()._replace(cache_dir=str(tmp_path / "cache"), offline=True)
    with pytest.raises(RunRefused, match=r"offline.*go online once"):
        node_tools(settings, print)


def test_without_node_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "relative:/nonexistent")
    with pytest.raises(RunRefused, match=r"node is not installed.*install Node\.js"):
        node_program()


def test_node_is_found_by_its_real_path() -> None:
    assert node_program() == os.path.realpath(str(shutil.which("node")))


def test_the_tools_for_python_come_with_a_python_for_the_sandbox() -> None:
    python, environment = python_tools(hosts(), print)
    assert os.access(python.path, os.X_OK)
    assert os.path.isfile(os.path.join(environment, "bin", "componentize-py"))
