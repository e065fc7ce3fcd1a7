"""Hashes of a skill's folder, as other tools make them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from skillbelt.errors import SourceError
from skillbelt.install.hashes import compare_names, computed_hash, hash_folder
from tests import needs

SKILL = "---\nname: alpha\ndescription: Test skill alpha. Use when testing.\n---\nhello\n"


def fill(folder: Path, files: dict[str, str | bytes]) -> Path:
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def test_the_computed_hash_is_what_skills_wrote(tmp_path: Path) -> None:
    fill(
        tmp_path,
        {
            "SKILL.md": SKILL,
            "scripts/a.py": "print(1)\n",
            "metadata.json": "{}\n",
            "Zeta.md": "x\n",
            "_under.md": "y\n",
            ".git/config": "not hashed",
            "node_modules/x.js": "not hashed",
        },
    )
    (tmp_path / "leak.txt").symlink_to("/etc/hostname")
    assert computed_hash(str(tmp_path)) == (
        "406dae0b56470e2058b1660dda9d6a455a0558d7ff93bccbfd7d50e4fe0804f1"
    )


def test_a_file_called_like_a_left_out_folder_is_in_the_computed_hash(tmp_path: Path) -> None:
    fill(tmp_path, {"node_modules": "a file"})
    assert computed_hash(str(tmp_path)) == hashlib.sha256(b"node_modulesa file").hexdigest()


def test_one_name_that_is_not_ascii_is_hashed(tmp_path: Path) -> None:
    fill(tmp_path, {"a.md": "1", "bücher.md": "2", "c.md": "3"})
    expected = "a.md1bücher.md2c.md3".encode()
    assert computed_hash(str(tmp_path)) == hashlib.sha256(expected).hexdigest()


@pytest.mark.parametrize("names", [("é.md", "f.md"), ("aé", "aß"), ("a\u0301", "a"), ("l·", "la")])
def test_names_whose_order_only_icu_knows_are_refused_by_name(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    fill(tmp_path, dict.fromkeys(names, "x"))
    with pytest.raises(SourceError, match="is not ASCII") as caught:
        computed_hash(str(tmp_path))
    assert any(repr(name) in str(caught.value) for name in names if not name.isascii())


@pytest.mark.parametrize("name", [b"a\xff.md", b"a\nb.md"])
def test_names_that_are_no_text_are_refused(tmp_path: Path, name: bytes) -> None:
    with open(os.path.join(os.fsencode(tmp_path), name), "w"):
        pass
    with pytest.raises(SourceError, match="the name"):
        computed_hash(str(tmp_path))


@needs.node
def test_names_are_compared_as_node_does() -> None:
    words = ["a", "A", "b", "B", "_", "-", ".", "/", "1", "10", "2", " ", "$", "~", "é", "Zb", "zA"]
    pairs = [
        (one + more, other + end)
        for one in words
        for other in words
        for more in ("", "x", "é.md")
        for end in ("", "X", "/y")
    ]
    script = """const pairs = JSON.parse(process.argv[1]);
console.log(JSON.stringify(pairs.map(([a, b]) => Math.sign(a.localeCompare(b)))))"""
    answer = subprocess.run(
        ["node", "-e", script, json.dumps(pairs)], capture_output=True, text=True, check=True
    )
    compared = 0
    for (one, other), sign in zip(pairs, json.loads(answer.stdout), strict=True):
        try:
            ours = compare_names(one, other)
        except Exception as error:
            assert not (one + other).isascii(), (one, other, error)
            continue
        compared += 1
        assert (ours > 0) - (ours < 0) == sign, (one, other)
    assert compared > len(pairs) / 2


def test_the_content_digest_is_that_of_toolhive(tmp_path: Path) -> None:
    """Per file its path, NUL, the raw hash and a line feed; sorted by bytes: Z before a."""
    fill(tmp_path, {"a/b.md": "two", "Z": "one", "é": ""})
    (tmp_path / "link").symlink_to("Z")
    (tmp_path / "Z").chmod(0o755)
    rows = b"".join(
        path.encode() + b"\0" + hashlib.sha256(content).digest() + b"\n"
        for path, content in (("Z", b"one"), ("a/b.md", b"two"), ("é", b""))
    )
    expected = f"sha256:{hashlib.sha256(rows).hexdigest()}"
    assert hash_folder(str(tmp_path)).content_digest == expected


def test_the_tree_id_is_that_of_git(tmp_path: Path) -> None:
    fill(tmp_path, {"a.b": "1", "a/x": "2", "a-b/y": "3", "run.sh": "4", "é/ü": "5"})
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "a" / "link").symlink_to("x")
    (tmp_path / "empty").mkdir()

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(tmp_path), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    git("init", "-q")
    git("add", "-A")
    assert hash_folder(str(tmp_path)).tree_sha == git("write-tree")


@pytest.mark.parametrize("target", ["/etc/hostname", "../../outside"])
def test_a_folder_with_a_link_that_leads_out_is_refused(tmp_path: Path, target: str) -> None:
    fill(tmp_path, {"SKILL.md": SKILL})
    (tmp_path / "leak").symlink_to(target)
    with pytest.raises(SourceError, match="leads out of the folder"):
        hash_folder(str(tmp_path))
