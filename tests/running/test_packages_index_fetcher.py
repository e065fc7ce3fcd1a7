"""Fetching from the index, and from nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillbelt.errors import RunRefused
from skillbelt.running.packages.fetched import NotFetched
from skillbelt.running.packages.index_config import IndexAddress, IndexConfig
from skillbelt.running.packages.index_fetcher import IndexFetcher
from tests.discovery.sources.server import Reply, Server, running


def fetcher(server: Server, **options: object) -> IndexFetcher:
    return IndexFetcher(IndexConfig(IndexAddress(server.url, "Bearer x")), environ={}, **options)  # type: ignore[arg-type]


def test_the_index_is_told_who_asks_and_nobody_else() -> None:
    with running() as index, running() as other:
        index.pages["/a"] = Reply(status=302, headers={"Location": f"{other.url}/b"})
        other.pages["/b"] = b"there"
        host = other.url.removeprefix("http://")
        fetched = fetcher(index, hosts=(host,)).get(f"{index.url}/a")
        assert (fetched.url, fetched.whole(100)) == (f"{other.url}/b", b"there")
        assert index.headers[0]["authorization"] == "Bearer x"
        assert "authorization" not in other.headers[0]


@pytest.mark.parametrize("default", [True, False])
def test_a_redirect_to_another_host_is_not_followed(default: bool) -> None:
    with running() as index, running() as other:
        index.pages["/a"] = Reply(status=302, headers={"Location": f"{other.url}/b"})
        mine = fetcher(index, open_default=default)
        with pytest.raises(NotFetched, match=r"not your package index; .* set package_hosts"):
            mine.get(f"{index.url}/a")
        assert other.requests == []
        assert len(mine.faults) == 1


def test_redirects_end() -> None:
    with running() as index:
        index.pages["/a"] = Reply(status=302, headers={"Location": "/a"})
        with pytest.raises(NotFetched, match="more than 5 redirects"):
            fetcher(index).get(f"{index.url}/a")


def test_what_is_not_there_is_no_fault() -> None:
    with running() as index:
        mine = fetcher(index)
        with pytest.raises(NotFetched) as caught:
            mine.get(f"{index.url}/none")
        assert (caught.value.status, mine.faults) == (404, [])


def test_more_than_is_wanted_is_not_read() -> None:
    with running() as index:
        index.pages["/a"] = b"x" * 100
        with pytest.raises(NotFetched, match="more than 10 bytes"):
            fetcher(index).get(f"{index.url}/a").whole(10)


def test_an_index_that_is_not_there_is_named_without_a_password() -> None:
    mine = IndexFetcher(IndexConfig(IndexAddress("http://127.0.0.1:9")), environ={})
    with pytest.raises(NotFetched, match=r"http://127\.0\.0\.1:9/a: "):
        mine.get("http://127.0.0.1:9/a")


def test_a_file_of_this_machine_is_read(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("x")
    fetched = IndexFetcher(IndexConfig(), environ={}).get(f"file://{tmp_path}")
    assert (fetched.type, fetched.size, fetched.whole(9)) == ("text/html", 1, b"x")


def test_a_host_that_is_none_is_told() -> None:
    with pytest.raises(RunRefused, match="package_hosts: 'a b' is not a host"):
        IndexFetcher(IndexConfig(), hosts=("a b",), environ={})


def test_a_proxy_of_the_user_is_used_for_the_index() -> None:
    with running() as proxy:
        proxy.pages["http://index.example/a"] = b"by proxy"
        indexes = IndexConfig(IndexAddress("http://index.example"))
        mine = IndexFetcher(indexes, environ={"http_proxy": proxy.url})
        assert mine.get("http://index.example/a").whole(99) == b"by proxy"
        none = IndexFetcher(indexes, environ={"http_proxy": proxy.url, "no_proxy": "index.example"})
        with pytest.raises(NotFetched):
            none.get("http://index.example/a")


@pytest.mark.parametrize("place", ["http://[", "file:///etc/passwd"])
def test_a_redirect_that_leads_nowhere_is_not_followed(place: str) -> None:
    with running() as server:
        server.pages["/a"] = Reply(status=302, headers={"Location": place})
        with pytest.raises(NotFetched, match="no valid host"):
            fetcher(server).get(f"{server.url}/a")
