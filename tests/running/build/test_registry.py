from __future__ import annotations

import sys
from pathlib import Path

import pytest

from skillbelt.errors import ConfigError, RunRefused
from skillbelt.running.build.registry import builder_for, builders, named_builder


def plugin(folder: Path, target: str, code: str) -> None:
    """A package that brings a builder, installed in the folder."""
    about = folder / "other-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[skillbelt.builders]\nzig = {target}\n")
    (folder / "brought.py").write_text(code)


@pytest.mark.parametrize(
    "path,name",
    [
        ("src/main.ts", "javascript"),
        ("src/main.mjs", "javascript"),
        ("a/b.py", "python"),
        ("src/main.c", "c"),
        ("src/main.wat", "wat"),
    ],
)
def test_a_source_has_its_builder(path: str, name: str) -> None:
    assert builder_for(path).name == name


def test_a_source_nobody_builds_is_refused_with_what_there_is() -> None:
    with pytest.raises(RunRefused, match=r"src/main\.zig: no builder for .*\.ts.*\.c"):
        builder_for("src/main.zig")


def test_every_builder_is_known_by_its_name() -> None:
    assert all(named_builder(name).name == name for name in builders())


def test_an_unknown_builder_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no builder named 'zig'; there are: javascript"):
        named_builder("zig")


def test_another_package_brings_a_builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin(tmp_path, "brought:Zig", "class Zig:\n    name = 'zig'\n    endings = ('.zig',)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert named_builder("zig").name == builder_for("src/main.zig").name == "zig"
    sys.modules.pop("brought")


def test_a_builder_that_can_not_be_loaded_is_said_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin(tmp_path, "brought:Zig", "raise RuntimeError('broken')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"'zig' of brought:Zig cannot be loaded.*broken"):
        named_builder("zig")
