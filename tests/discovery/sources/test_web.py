from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from skillbelt.discovery.sources import Pulled
from skillbelt.discovery.sources.archive import archive_name, skill_name
from skillbelt.discovery.sources.skill_index import SCHEMA
from skillbelt.discovery.sources.web import index_urls
from skillbelt.values import Limits
from tests.bounds import bounds
from tests.discovery.sources.archives import SKILL, tar_of, tgz_of, tree_of, zipped
from tests.discovery.sources.conftest import QUICK, Pull
from tests.discovery.sources.server import Reply, Server
from tests.tree import codes

Files = Callable[[Pulled], dict[str, bytes]]
LIST = json.dumps({"skills": [{"name": "pdf", "files": ["SKILL.md"]}]}).encode()


@pytest.mark.parametrize(
    ("path", "make"),
    [("/a.zip", zipped), ("/a.tar", tar_of), ("/a.tar.gz", tgz_of), ("/a.tgz", tgz_of)],
)
def test_an_archive_of_every_format(
    server: Server, fetch: Pull, files: Files, path: str, make: Callable[..., bytes]
) -> None:
    server.pages[path] = make({"x/SKILL.md": SKILL, "x/s/run.py": b"1"})
    pulled = fetch(server.url + path)
    assert files(pulled) == {"x/SKILL.md": SKILL, "x/s/run.py": b"1"}
    assert str(pulled.folders[0].origin) == f"archive:{server.url}{path}"


def test_an_archive_without_a_skill_is_told(server: Server, fetch: Pull) -> None:
    server.pages["/a.zip"] = data = zipped({"README.md": b"hello"})
    pulled = fetch(f"{server.url}/a.zip")
    assert (pulled.folders, codes(pulled)) == ((), ["archive-no-skill"])
    entry = {"name": "pdf", "type": "archive", "description": "d", "url": "/a.zip"}
    listed = {**entry, "digest": f"sha256:{hashlib.sha256(data).hexdigest()}"}
    index = json.dumps({"$schema": SCHEMA, "skills": [listed]}).encode()
    server.pages["/.well-known/agent-skills/index.json"] = index
    assert codes(fetch(server.url)) == ["archive-no-skill"]


def test_the_content_counts_and_the_ending_is_a_hint(
    server: Server, fetch: Pull, files: Files
) -> None:
    server.pages["/wrong.zip"] = tgz_of({"x/SKILL.md": SKILL})
    assert files(fetch(f"{server.url}/wrong.zip")) == {"x/SKILL.md": SKILL}
    server.pages["/download?id=7"] = zipped({"SKILL.md": SKILL})
    assert list(files(fetch(f"{server.url}/download?id=7"))) == ["download/SKILL.md"]


@pytest.mark.parametrize("name", ["../x", "/abs", "C:x"])
@pytest.mark.parametrize("path", ["/a.zip", "/plain"])
def test_a_hostile_archive_leaves_nothing(
    server: Server, fetch: Pull, cache: Path, tmp_path: Path, name: str, path: str
) -> None:
    """Case 27."""
    server.pages[path] = zipped({"SKILL.md": SKILL, name: b"evil"})
    pulled = fetch(server.url + path)
    assert pulled.folders == ()
    assert codes(pulled) == ["archive-refused"]
    assert tree_of(tmp_path) == {}
    assert list(cache.iterdir()) == []


def test_a_download_over_the_limit_is_refused(server: Server, fetch: Pull, cache: Path) -> None:
    """Case 28."""
    server.pages["/a.zip"] = b"PK\x03\x04" + bytes(65 * 2**20)
    assert codes(fetch(f"{server.url}/a.zip", limits=Limits())) == ["remote-too-large"]
    assert tree_of(cache) == {}


@pytest.mark.long
def test_unpacked_data_over_the_limit_is_refused(server: Server, fetch: Pull, cache: Path) -> None:
    """Case 28."""
    data = zipped({str(i): bytes(53 * 2**20) for i in range(5)})
    server.pages["/a.zip"] = data
    assert len(data) < 2**20
    pulled = fetch(f"{server.url}/a.zip", limits=Limits())
    assert codes(pulled) == ["archive-refused"]
    assert str(256 * 2**20) in pulled.diagnostics[0].message
    assert tree_of(cache) == {}


def test_a_page_instead_of_an_archive_is_not_downloaded(server: Server, fetch: Pull) -> None:
    server.pages["/a.zip"] = b"<!DOCTYPE html>" + b" " * 40_000
    limits = bounds(QUICK, max_download_bytes=2000)
    pulled = fetch(f"{server.url}/a.zip", limits=limits)
    assert codes(pulled) in (["archive-unknown"], ["remote-too-large"])
    server.pages["/b.zip"] = b"short"
    assert codes(fetch(f"{server.url}/b.zip")) == ["archive-unknown"]


def test_a_single_skill(server: Server, fetch: Pull, files: Files) -> None:
    server.pages |= {"/skills/pdf/SKILL.md": SKILL, "/SKILL.md": SKILL}
    pulled = fetch(f"{server.url}/skills/pdf/SKILL.md")
    assert files(pulled) == {"pdf/SKILL.md": SKILL}
    assert pulled.folders[0].origin.kind == "url"
    assert files(fetch(f"{server.url}/SKILL.md")) == {"127-0-0-1/SKILL.md": SKILL}


def test_a_page_about_a_skill_is_refused(server: Server, fetch: Pull, cache: Path) -> None:
    headers = {"Content-Type": "text/html; charset=utf-8"}
    server.pages["/blob/pdf/SKILL.md"] = Reply(b"<html>", headers=headers)
    assert codes(fetch(f"{server.url}/blob/pdf/SKILL.md")) == ["remote-not-a-skill"]
    assert tree_of(cache) == {}


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://a.b/x/pdf/SKILL.md", "pdf"),
        ("https://a.b/SKILL.md", "a-b"),
        ("https://a.b/../SKILL.md", "a-b"),
        ("https://a.b/%2e%2e/SKILL.md", "a-b"),
        ("https://a.b/x%2Fy/SKILL.md", "y"),
        ("https://a.b/.git/SKILL.md", "a-b"),
        ("https://a.b/a%00b/SKILL.md", "a-b"),
        ("file:///SKILL.md", "skill"),
    ],
)
def test_the_name_of_a_single_skill_is_safe(url: str, name: str) -> None:
    assert skill_name(url) == name


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://a.b/x/pdf-1.0.tar.gz", "pdf-1.0"),
        ("https://a.b/.zip", "a-b"),
        ("https://a.b/%2e%2e.zip", "a-b"),
        ("https://a.b/x.ZIP?y", "x"),
        ("https://a.b/", "a-b"),
    ],
)
def test_the_name_of_an_archive_is_safe(url: str, name: str) -> None:
    assert archive_name(url) == name


def test_the_places_of_a_list() -> None:
    assert [place.removeprefix("https://a.b") for place in index_urls("https://a.b/c/?q#f")] == [
        "/c/.well-known/agent-skills/index.json",
        "/c/.well-known/skills/index.json",
        "/c/index.json",
        "/.well-known/agent-skills/index.json",
        "/.well-known/skills/index.json",
    ]
    assert len(index_urls("https://a.b")) == 3


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/docs/.well-known/agent-skills/", "well-known"),
        ("/docs/.well-known/skills/", "well-known"),
        ("/docs/", "index"),
        ("/.well-known/agent-skills/", "well-known"),
        ("/.well-known/skills/", "well-known"),
    ],
)
def test_a_site_is_searched_for_its_list(
    server: Server, fetch: Pull, files: Files, place: str, kind: str
) -> None:
    server.pages |= {f"{place}index.json": LIST, f"{place}pdf/SKILL.md": SKILL}
    pulled = fetch(f"{server.url}/docs/")
    assert pulled.diagnostics == ()
    assert files(pulled) == {"pdf/SKILL.md": SKILL}
    assert str(pulled.folders[0].origin) == f"{kind}:{server.url}/docs/"


def test_a_page_for_every_address_is_no_list(server: Server, fetch: Pull, files: Files) -> None:
    for place in index_urls(f"{server.url}/docs"):
        server.pages[place.removeprefix(server.url)] = b"<!DOCTYPE html><title>App</title>"
    server.pages |= {"/docs/index.json": LIST, "/docs/pdf/SKILL.md": SKILL}
    assert files(fetch(f"{server.url}/docs")) == {"pdf/SKILL.md": SKILL}


@pytest.mark.parametrize("body", [Reply(status=404), b"<html>", b"[1, 2]", b'{"skills": 1}'])
def test_no_list_is_an_empty_result(
    server: Server, fetch: Pull, cache: Path, body: Reply | bytes
) -> None:
    """Case 31."""
    server.pages["/s/index.json"] = body
    for source in (f"{server.url}/s", f"{server.url}/s/index.json"):
        pulled = fetch(source)
        assert pulled.folders == ()
        [problem] = pulled.diagnostics
        assert problem.severity == "error" and problem.path == source and problem.remedy
    assert tree_of(cache) == {}


def test_an_unknown_schema_is_not_passed_over(server: Server, fetch: Pull) -> None:
    """Another list further on may be an older one of the same site; it must not be used."""
    server.pages |= {"/index.json": LIST, "/pdf/SKILL.md": SKILL}
    future = {"$schema": SCHEMA.replace("0.2.0", "9.0.0"), "skills": []}
    server.pages["/.well-known/agent-skills/index.json"] = json.dumps(future).encode()
    pulled = fetch(server.url)
    assert pulled.folders == ()
    assert codes(pulled) == ["remote-index-schema"]


def test_a_server_in_trouble_does_not_change_the_list(
    server: Server, fetch: Pull, files: Files
) -> None:
    place = "/.well-known/skills/"
    server.pages |= {f"{place}index.json": LIST, f"{place}pdf/SKILL.md": SKILL}
    fetch(server.url)
    server.pages[f"{place}index.json"] = Reply(status=503)
    server.pages |= {"/index.json": LIST.replace(b"pdf", b"old"), "/old/SKILL.md": SKILL}
    pulled = fetch(server.url, refresh=True)
    assert files(pulled) == {"pdf/SKILL.md": SKILL}
    assert codes(pulled) == ["remote-status"]


def test_a_list_that_moved_is_followed(server: Server, fetch: Pull, files: Files) -> None:
    server.pages["/s/index.json"] = Reply(status=301, headers={"Location": "/new/index.json"})
    server.pages |= {"/new/index.json": LIST, "/new/pdf/SKILL.md": SKILL}
    assert files(fetch(f"{server.url}/s/index.json")) == {"pdf/SKILL.md": SKILL}


def test_a_list_over_the_limit_is_refused(server: Server, fetch: Pull, cache: Path) -> None:
    server.pages["/index.json"] = LIST + b" " * 1000
    limits = bounds(QUICK, max_remote_index_bytes=1000)
    pulled = fetch(f"{server.url}/index.json", limits=limits)
    assert codes(pulled) == ["remote-too-large"]
    assert tree_of(cache) == {}
