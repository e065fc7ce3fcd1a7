from __future__ import annotations

from pathlib import Path

import pytest

from skillbelt.discovery.sources.address import is_remote
from skillbelt.discovery.sources.mcp_address import id_slug, label_of


@pytest.mark.parametrize(
    "source",
    [
        "https://a/b",
        "HTTP://A/B",
        "file:///a/b",
        "skills.zip",
        "~/a/SKILLS.TAR.GZ",
        "/x/y.tgz",
        "z.tar",
    ],
)
def test_urls_and_archives_are_pulled(source: str) -> None:
    assert is_remote(source)


@pytest.mark.parametrize("source", ["skills", "~/skills", "/a/b", "ftp://a/b.md", "zip", "", "a:b"])
def test_anything_else_is_a_folder(source: str) -> None:
    assert not is_remote(source)


def test_a_folder_may_be_called_like_an_archive(tmp_path: Path) -> None:
    (tmp_path / "skills.zip").mkdir()
    assert not is_remote(str(tmp_path / "skills.zip"))


@pytest.mark.parametrize(
    ("source", "label"),
    [
        ("mcp+https://a.example/mcp#docs", "docs"),
        ("mcp+https://T@a.example/mcp#docs&skill://x/SKILL.md", "docs"),
        ("MCP+HTTPS://TOKEN@A.Example:81/team/mcp/", "a-example-81-team"),
        ("mcp+http://", "mcp"),
        ("mcp+http://[::1", ""),
        ("mcp+stdio://local?npx%20x", "local"),
        ("https://a.example/mcp#docs", ""),
        ("folder", ""),
    ],
)
def test_what_a_server_is_called(source: str, label: str) -> None:
    assert label_of(source) == label


def test_slugs() -> None:
    assert id_slug("Docs & more/..") == "Docs-more"
