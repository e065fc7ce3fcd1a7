from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from skillbelt import Origin, Skill
from skillbelt.errors import RunRefused
from skillbelt.running.build.make import build, check
from tests.running.build.skills import WAT, built, skill
from tests.sandbox.guests import hosts


def test_the_component_is_in_its_place(tmp_path: Path) -> None:
    made = built(tmp_path / "one", {"src/main.wat": WAT})
    path = tmp_path / "one" / "wasm" / "skill.wasm"
    assert made.output == str(path)
    assert made.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (made.plugin, made.current) == ("wat", True)
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.parent.stat().st_mode & 0o777 == 0o755


def test_the_result_is_json(tmp_path: Path) -> None:
    made = built(tmp_path / "one", {"src/main.wat": WAT}).document()
    assert list(made) == ["output", "sha256", "plugin", "seconds", "current"]
    assert json.loads(json.dumps(made)) == made


def test_a_source_that_can_not_be_built_leaves_the_old_one(tmp_path: Path) -> None:
    files = {"src/main.wat": "(module (func $a", "wasm/skill.wasm": "old"}
    with pytest.raises(RunRefused, match="cannot be built"):
        built(tmp_path / "one", files)
    assert (tmp_path / "one" / "wasm" / "skill.wasm").read_text() == "old"
    assert os.listdir(tmp_path / "one" / "wasm") == ["skill.wasm"]


def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("theirs")
    made = skill(tmp_path / "one", {"src/main.wat": WAT})
    (tmp_path / "one" / "wasm").mkdir()
    os.symlink(tmp_path / "other", tmp_path / "one" / "wasm" / "skill.wasm")
    build(made, hosts())
    assert (tmp_path / "other").read_text() == "theirs"


def test_what_was_just_built_is_current(tmp_path: Path) -> None:
    made = skill(tmp_path / "one", {"src/main.wat": WAT})
    build(made, hosts())
    assert check(made, hosts()).current


@pytest.mark.parametrize("change", ["source", "component", "gone"])
def test_what_was_changed_since_is_not_current(change: str, tmp_path: Path) -> None:
    made = skill(tmp_path / "one", {"src/main.wat": WAT})
    path = tmp_path / "one" / "wasm" / "skill.wasm"
    build(made, hosts())
    if change == "source":
        (tmp_path / "one" / "src" / "main.wat").write_text(WAT.replace(" 1)", " 2)"))
    elif change == "component":
        path.write_bytes(path.read_bytes() + b"\0\1\0")
    else:
        path.unlink()
    before = path.read_bytes() if path.exists() else None
    assert not check(made, hosts()).current
    assert (path.read_bytes() if path.exists() else None) == before


def test_a_skill_from_elsewhere_is_not_built(tmp_path: Path) -> None:
    made = skill(tmp_path / "one", {"src/main.wat": WAT})
    remote = made._replace(origin=Origin("archive", "https://example.org/a.tar"))
    with pytest.raises(RunRefused, match="build it in its own repository"):
        build(remote, hosts())


def test_a_skill_without_a_folder_is_not_built() -> None:
    with pytest.raises(RunRefused, match="build it in its own repository"):
        build(Skill.from_text("---\nname: a\ndescription: b\n---\n"), hosts())


def test_the_builder_can_be_named(tmp_path: Path) -> None:
    head = "metadata:\n  skillbelt:\n    build: text.txt\n"
    made = skill(tmp_path / "one", {"text.txt": WAT}, head)
    assert build(made, hosts(), plugin="wat").plugin == "wat"
