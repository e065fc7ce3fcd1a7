from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import pytest

from skillbelt import FileEntry, Manifest, build_manifest
from skillbelt.files.manifest import is_complete, kind_of
from tests.tree import QUICK, Tree, codes


def paths(manifest: Manifest) -> list[str]:
    return [entry.path for entry in manifest.files]


def test_every_file_with_size_hash_and_kind_sorted_by_path(tree: Tree) -> None:
    tree.write("s/scripts/run.py", "print()\n")
    tree.write("s/SKILL.md", "text")
    tree.write("s/a/z.txt", "")
    found = build_manifest(str(tree.path("s")))
    assert found.files == (
        FileEntry("SKILL.md", 4, hashlib.sha256(b"text").hexdigest(), "text/markdown"),
        FileEntry("a/z.txt", 0, hashlib.sha256(b"").hexdigest(), "text/plain"),
        FileEntry("scripts/run.py", 8, hashlib.sha256(b"print()\n").hexdigest(), "text/x-python"),
    )
    assert found.diagnostics == ()


def test_the_hash_is_the_same_wherever_and_whenever_the_files_were_made(tree: Tree) -> None:
    for folder, order in (("a", (1, 2, 3)), ("b", (3, 1, 2))):
        for number in order:
            tree.write(f"{folder}/d{number}/f", str(number))
    first, second = (build_manifest(str(tree.path(name))) for name in "ab")
    assert first.hash == second.hash
    assert first.hash.startswith("sha256:")
    assert len(first.hash) == len("sha256:") + 64


@pytest.mark.parametrize("change", ["content", "name", "added", "moved"])
def test_any_change_changes_the_hash(tree: Tree, change: str) -> None:
    file = tree.write("s/a", "1")
    tree.write("s/b", "2")
    before = build_manifest(str(tree.path("s"))).hash
    match change:
        case "content":
            file.write_text("3")
        case "name":
            file.rename(tree.path("s/c"))
        case "added":
            tree.write("s/c", "")
        case "moved":
            tree.write("s/d/x")
            file.rename(tree.path("s/d/a"))
    assert build_manifest(str(tree.path("s"))).hash != before


def test_links_are_named_and_not_followed(tree: Tree) -> None:
    secret = tree.write("secret", "x")
    tree.write("s/SKILL.md", "x")
    tree.path("s/file").symlink_to(secret)
    tree.path("s/folder").symlink_to(tree.root)
    tree.path("s/nowhere").symlink_to("missing")
    found = build_manifest(str(tree.path("s")))
    assert paths(found) == ["SKILL.md"]
    assert codes(found) == ["link-skipped"] * 3
    assert [d.path for d in found.diagnostics] == [
        str(tree.path(f"s/{name}")) for name in ("file", "folder", "nowhere")
    ]


def test_repositories_and_caches_are_not_part_of_a_skill(tree: Tree) -> None:
    for name in ("SKILL.md", ".git/config", "node_modules/x/y.js", "a/__pycache__/z.pyc", ".x"):
        tree.write(f"s/{name}", "x")
    assert paths(build_manifest(str(tree.path("s")))) == [".x", "SKILL.md"]


def test_a_pipe_is_named_and_not_waited_for(tree: Tree) -> None:
    tree.write("s/SKILL.md", "x")
    os.mkfifo(tree.path("s/pipe"))
    found = build_manifest(str(tree.path("s")))
    assert paths(found) == ["SKILL.md"]
    assert codes(found) == ["not-a-file"]


def test_a_folder_that_is_gone_is_a_diagnostic(tree: Tree) -> None:
    found = build_manifest(str(tree.path("nowhere")))
    assert found.files == ()
    assert codes(found) == ["unreadable"]


def test_the_number_of_files_is_bounded(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        tree.write(f"s/{number}", "x")
    folder = str(tree.path("s"))
    monkeypatch.setattr("skillbelt.files.tree.MAX_MANIFEST_FILES", 5)
    assert codes(build_manifest(folder)) == []
    monkeypatch.setattr("skillbelt.files.tree.MAX_MANIFEST_FILES", 4)
    found = build_manifest(folder)
    assert paths(found) == ["0", "1", "2", "3"]
    assert codes(found) == ["skill-too-large"]


def test_folders_and_links_count_towards_the_bound(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        tree.path(f"s/{number}").mkdir(parents=True)
        tree.path(f"s/{number}/link").symlink_to("x")
    monkeypatch.setattr("skillbelt.files.tree.MAX_MANIFEST_FILES", 7)
    found = build_manifest(str(tree.path("s")))
    assert codes(found) == ["link-skipped"] * 2 + ["skill-too-large"]


@pytest.mark.parametrize("last", [True, False])
def test_the_bytes_are_bounded_and_no_file_is_hashed_in_part(
    tree: Tree, last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.write("s/a", "x" * 10)
    tree.write("s/b", "x" * 11)
    if not last:
        tree.write("s/c", "")
    folder = str(tree.path("s"))
    monkeypatch.setattr("skillbelt.files.manifest.MAX_MANIFEST_BYTES", 21)
    assert codes(build_manifest(folder)) == []
    monkeypatch.setattr("skillbelt.files.manifest.MAX_MANIFEST_BYTES", 20)
    found = build_manifest(folder)
    assert paths(found) == ["a"]
    assert codes(found) == ["skill-too-large"]


def test_folders_nested_without_end_are_bounded() -> None:
    """No call recurses, and no file is listed that could not be asked for."""
    top = tempfile.mkdtemp(dir=QUICK)
    folders = [f"{top}{'/d' * depth}" for depth in range(1100)]
    for folder in folders[1:]:
        os.mkdir(folder)
    files = [Path(folders[depth], "f") for depth in (63, 64, 1099)]
    for file in files:
        file.write_text("x")
    found = build_manifest(folders[0])
    # Removed here because shutil.rmtree does not go that deep.
    for file in files:
        file.unlink()
    for folder in reversed(folders):
        os.rmdir(folder)
    assert paths(found) == ["d/" * 63 + "f"]
    assert codes(found) == ["skill-too-large"]
    assert not is_complete(found.hash)


def test_a_name_that_is_not_utf8_is_listed(tree: Tree) -> None:
    tree.path("s").mkdir()
    with open(os.fsencode(tree.path("s")) + b"/\xff", "wb") as file:
        file.write(b"x")
    found = build_manifest(str(tree.path("s")))
    assert paths(found) == ["\udcff"]
    assert codes(found) == []


@pytest.mark.parametrize(
    ("path", "head", "kind"),
    [
        ("a.txt", b"\x89PNG\r\n\x1a\n...", "image/png"),
        ("a", b"%PDF-1.7", "application/pdf"),
        ("a.md", b"# A", "text/markdown"),
        ("A.SH", b"#!/bin/sh", "application/x-sh"),
        ("a.json", b"{}", "application/json"),
        ("a.zzz", b"plain", "text/plain"),
        ("a.zzz", b"a\0b", "application/octet-stream"),
        ("LICENSE", b"", "text/plain"),
        ("a.WASM", b"x", "text/plain"),
        ("a.png", b"\0\1", "application/octet-stream"),
        ("a.png", b"", "image/png"),
        ("a.mp4", b"x", "video/mp4"),
        ("a.zip", b"PK\x03\x04", "application/zip"),
        ("a.txt", b"PK\x03\x04", "application/zip"),
        ("a.epub", b"PK\x03\x04", "application/epub+zip"),
        (
            "a.docx",
            b"PK\x03\x04",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        ),
    ],
)
def test_the_kind_is_told_by_content_then_by_name(path: str, head: bytes, kind: str) -> None:
    assert kind_of(path, head) == kind
