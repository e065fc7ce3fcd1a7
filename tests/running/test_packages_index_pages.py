"""The pages that an installer sees."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillbelt.permission.packages import Lock, Package
from skillbelt.running.packages.fetched import NotFetched, PackageIndex, page_of
from skillbelt.running.packages.index_config import IndexAddress, IndexConfig
from skillbelt.running.packages.index_fetcher import IndexFetcher
from skillbelt.running.packages.index_pages import NodeIndex, PythonIndex, read_listing
from skillbelt.running.packages.lockfiles import BASE, NOWHERE
from tests.discovery.sources.server import Reply, Server, running
from tests.registries import list_wheel, publish, wheel


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as found:
        yield found


def python(server: Server, **more: Any) -> PythonIndex:
    indexes = IndexConfig(IndexAddress(f"{server.url}/simple"), **more)
    return PythonIndex(indexes, IndexFetcher(indexes, environ={}))


def node(server: Server) -> NodeIndex:
    indexes = IndexConfig(IndexAddress(server.url))
    return NodeIndex(indexes, IndexFetcher(indexes, environ={}))


def read(shelf: PackageIndex, path: str) -> Any:
    page = shelf.page(path)
    data = b"".join(page.pieces)
    page.pieces.close()
    return json.loads(data) if page.type.endswith("json") else data


def test_a_page_has_its_size() -> None:
    assert page_of(404, "text/plain", b"none")[:3] == (404, "text/plain", 4)


def test_every_file_of_a_page_lies_on_the_shelf(server: Server) -> None:
    digest = list_wheel(server, "greet", {})
    shelf = python(server)
    (file,) = read(shelf, "/simple/greet/")["files"]
    assert file["url"] == f"{BASE}/files/greet/greet-1.0-py3-none-any.whl"
    assert file["hashes"] == {"sha256": digest}
    assert (
        read(shelf, file["url"].removeprefix(BASE))
        == server.pages["/files/greet-1.0-py3-none-any.whl"]
    )


@pytest.mark.parametrize(
    "path",
    [
        "/simple/none/",
        "/simple/Greet/",
        "/simple/../x/",
        "/files/greet/x.whl",
        "/files/greet/..%2fx",
        "/files/greet/greet-1.0-py3-none-any.whl.metadata",
        "/etc/passwd",
    ],
)
def test_there_is_nothing_else(server: Server, path: str) -> None:
    list_wheel(server, "greet", {})
    with pytest.raises(NotFetched) as caught:
        python(server).page(path)
    assert caught.value.status == 404


PAGE = "http://i.example/simple/a/"


def test_an_index_in_json_is_read() -> None:
    file = {
        "filename": "a-1-py3-none-any.whl",
        "url": "../x/a.whl",
        "hashes": {"sha256": "0" * 64},
        "requires-python": ">=3",
        "yanked": "bad",
        "core-metadata": {"sha256": "1" * 64},
    }
    data = json.dumps({"files": [file, {"filename": "../x", "url": "y"}, 7]}).encode()
    (found,) = read_listing(PAGE, "application/vnd.pypi.simple.v1+json", data)
    where = "http://i.example/simple/x/a.whl"
    assert found[:5] == (file["filename"], where, "0" * 64, ">=3", "bad")
    assert found.metadata == {"sha256": "1" * 64}


def test_an_index_in_html_is_read() -> None:
    file = "a-1-py3-none-any.whl"
    told = f'data-requires-python="&gt;=3" data-yanked data-core-metadata="sha256={"1" * 64}"'
    data = f'<a href="{file}#sha256={"0" * 64}" {told}>a</a><a href="/other">b</a>'.encode()
    (found,) = read_listing(PAGE, "text/html", data)
    assert found[:3] == (file, f"{PAGE}{file}", "0" * 64)
    assert (found.pythons, found.yanked, found.metadata) == (">=3", True, {"sha256": "1" * 64})


def test_a_folder_of_files_is_an_index_too(server: Server, tmp_path: Path) -> None:
    wheel(tmp_path, "greet", {})
    shelf = python(server, links=(str(tmp_path),))
    (file,) = read(shelf, "/simple/greet/")["files"]
    assert len(file["hashes"]["sha256"]) == 64
    assert read(shelf, file["url"].removeprefix(BASE)) == next(tmp_path.iterdir()).read_bytes()


def test_an_index_in_trouble_is_not_passed_over(server: Server) -> None:
    server.pages["/simple/greet/"] = Reply(status=500)
    with pytest.raises(NotFetched, match="answered 500"):
        python(server).page("/simple/greet/")


# --- Node.js -------------------------------------------------------------------------------------


def test_what_a_package_says_of_itself_is_cut_down(server: Server) -> None:
    publish(server, "greet", about={"dependencies": {"a": "^1", "b": "git+https://x/y"}})
    shelf = node(server)
    about = read(shelf, "/greet")["versions"]["1.3.0"]
    assert about["dist"]["tarball"] == f"{BASE}/-/greet/1.3.0.tgz"
    assert about["dependencies"] == {"a": "^1", "b": NOWHERE}
    assert "scripts" not in about
    assert shelf.foreign == {("greet", "1.3.0"): "it requires b from git+https://x/y"}
    assert read(shelf, "/-/greet/1.3.0.tgz") == server.pages["/greet.tgz"]


def test_a_scope_may_have_a_registry_of_its_own(server: Server) -> None:
    publish(server, "greet")
    server.pages["/@s%2Fgreet"] = server.pages["/greet"]
    indexes = IndexConfig(scopes={"@s": IndexAddress(server.url)})
    shelf = NodeIndex(indexes, IndexFetcher(indexes, environ={}))
    assert read(shelf, "/@s%2fgreet")["name"] == "@s/greet"
    with pytest.raises(NotFetched):
        shelf.page("/greet")


@pytest.mark.parametrize("path", ["/none", "/../x", "/-/greet/9.tgz", "/-/npm/v1/x", "/"])
def test_the_registry_has_nothing_else(server: Server, path: str) -> None:
    publish(server, "greet")
    with pytest.raises(NotFetched):
        node(server).page(path)


def test_with_a_lock_there_is_nothing_but_what_it_lists(server: Server) -> None:
    publish(server, "greet")
    publish(server, "other")
    indexes = IndexConfig(IndexAddress(server.url))
    lock = Lock("node", (Package("node", "greet", "1.3.0", ()),), "")
    shelf = NodeIndex(indexes, IndexFetcher(indexes, environ={}), lock)
    assert [*read(shelf, "/greet")["versions"]] == ["1.3.0"]
    assert read(shelf, "/other")["versions"] == {}
    with pytest.raises(NotFetched):
        shelf.page("/-/other/1.3.0.tgz")
    list_wheel(server, "inner", {})
    simple = IndexConfig(IndexAddress(f"{server.url}/simple"))
    wheels = Lock("python", (Package("python", "greet", "1.0", ()),), "")
    with pytest.raises(NotFetched):
        PythonIndex(simple, IndexFetcher(simple, environ={}), wheels).page("/simple/inner/")


@pytest.mark.long
@pytest.mark.parametrize("noise", ["<!--", "<![x]>", "<![CDATA[", "<a href='", "<a x="])
def test_a_hostile_page_in_html_is_read_in_one_pass(noise: str) -> None:
    """A parser of HTML needs minutes for some of these, and fails at others."""
    link = "'>\n<a href='greet-1.0-py3-none-any.whl' data-requires-python='&gt;=3.7,<4'>"
    page = (noise * 50_000 + link).encode()
    found = read_listing("https://index.example/greet/", "text/html", page)
    assert [(one.name, one.pythons) for one in found] == [
        ("greet-1.0-py3-none-any.whl", ">=3.7,<4")
    ]
