"""The hosts of a source, and that connections go to the address that was checked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpcore2
import httpx2
import pytest

from skillbelt.discovery.sources import Pulled
from skillbelt.discovery.sources.bounds import Deadline
from skillbelt.discovery.sources.failure import SourceFailure
from skillbelt.discovery.sources.http import HttpClient
from skillbelt.discovery.sources.source_hosts import SourceHosts, uses_proxy
from skillbelt.hosts import Resolver
from skillbelt.values import Limits
from tests.discovery.sources.conftest import Pull
from tests.discovery.sources.server import Reply, Server
from tests.tree import Tree, codes

PUBLIC = "http://skills.example"
SKILL = b"---\nname: a\ndescription: b\n---\n"


def said(door: SourceHosts, host: str, port: int = 80) -> list[str]:
    return [str(one) for one in asyncio.run(door.addresses(host, port))]


def refused(door: SourceHosts, host: str, port: int = 80) -> str:
    with pytest.raises(SourceFailure) as caught:
        said(door, host, port)
    assert caught.value.code == "remote-private"
    assert "private_sources" in caught.value.remedy
    return caught.value.reason


def gives(*addresses: str) -> Resolver:
    return lambda host, port: addresses


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.1.1", "0.0.0.0",
     "100.64.0.1", "::1", "::", "fe80::1", "fc00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
     "64:ff9b::7f00:1", "2002:7f00:1::", "::127.0.0.1", "169.254.169.254", "168.63.129.16",
     "224.0.0.1", "255.255.255.255"],
)  # fmt: skip
def test_nothing_inside_is_reached_from_a_public_source(address: str) -> None:
    refused(SourceHosts(PUBLIC), address)
    refused(SourceHosts(PUBLIC, resolver=gives(address)), "rebound.example")
    # The owner of a public name could point it at any machine here.
    refused(SourceHosts(PUBLIC, resolver=gives("8.8.8.8", address)), "skills.example")


@pytest.mark.parametrize("host", ["127.1", "0x7f000001", "2130706433", "017700000001"])
def test_other_spellings_are_resolved_before_they_are_looked_at(host: str) -> None:
    assert "this machine" in refused(SourceHosts(PUBLIC), host)


def test_public_addresses_are_given_in_their_order() -> None:
    door = SourceHosts(PUBLIC, resolver=gives("8.8.8.8", "2606:4700::1111"))
    assert said(door, "elsewhere.example") == ["8.8.8.8", "2606:4700::1111"]


@pytest.mark.parametrize(
    ("source", "host"),
    [("http://127.0.0.1:8000/x", "127.0.0.1"), ("http://localhost/x", "localhost"),
     ("http://user:pass@10.1.2.3/x", "10.1.2.3"), ("http://[::1]:80/x", "::1"),
     ("mcp+http://127.0.0.1:8000/mcp", "127.0.0.1"), ("http://nas/x", "nas"),
     ("http://box.local/x", "box.local"), ("http://LOCALHOST./x", "localhost")],
)  # fmt: skip
def test_a_source_that_the_user_named_inside_is_reached_there_alone(source: str, host: str) -> None:
    inside = gives("10.1.2.3")
    assert said(SourceHosts(source, resolver=inside), host, 9999)
    refused(SourceHosts(source, named=False, resolver=inside), host)
    for other in ("127.0.0.2", "10.1.2.4", "other.local", "other"):
        refused(SourceHosts(source, resolver=inside), other)


def test_what_is_private_may_be_named() -> None:
    inside = gives("10.1.2.3")
    for entry in ("corp.example", "*.corp.example", "10.0.0.0/8", "corp.example:8443"):
        door = SourceHosts(PUBLIC, (entry,), named=False, resolver=inside)
        host = "a.corp.example" if entry.startswith("*") else "corp.example"
        assert said(door, host, 8443) == ["10.1.2.3"]
        refused(SourceHosts(PUBLIC, (entry,), resolver=gives("192.168.1.1")), "another.org")
    refused(SourceHosts(PUBLIC, ("corp.example:8443",), resolver=inside), "corp.example", 80)
    metadata = gives("169.254.169.254")
    refused(
        SourceHosts(PUBLIC, ("corp.example", "169.254.0.0/16"), resolver=metadata), "corp.example"
    )
    assert said(SourceHosts(PUBLIC, ("169.254.169.254",), resolver=metadata), "corp.example")
    with pytest.raises(SourceFailure, match="private_sources"):
        SourceHosts(PUBLIC, ("a b",))


def test_a_name_without_an_address_is_unreachable() -> None:
    for resolver in (gives(), gives("nonsense")):
        with pytest.raises(httpx2.ConnectError, match="no address"):
            said(SourceHosts(PUBLIC, resolver=resolver), "a.example")
    asyncio.run(SourceHosts(PUBLIC, resolver=gives()).check_proxied("a.example", 80))
    with pytest.raises(SourceFailure):
        asyncio.run(SourceHosts(PUBLIC, resolver=gives("10.0.0.1")).check_proxied("a.example", 80))


def test_a_proxy_of_the_environment_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert not uses_proxy("http://a.example/")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert uses_proxy("http://a.example/")
    monkeypatch.setenv("no_proxy", "a.example")
    assert not uses_proxy("http://a.example/")


# --- over real connections -----------------------------------------------------------------------


class Dialled(list[str]):
    """The addresses of the connections; a public one leads to the test's own server."""

    def __init__(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        inner = httpcore2.AnyIOBackend.connect_tcp

        async def connect(backend: Any, host: str, port: int, *more: Any) -> Any:
            self.append(host)
            port = int(server.url.rpartition(":")[2])
            return await inner(backend, "127.0.0.1", port, *more)

        monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", connect)


@pytest.fixture
def dialled(server: Server, monkeypatch: pytest.MonkeyPatch) -> Dialled:
    return Dialled(server, monkeypatch)


def got(url: str, door: SourceHosts) -> bytes:
    body = bytearray()

    async def run() -> None:
        http = HttpClient(Limits(http_timeout_seconds=5), Deadline(url, 20), door)
        try:
            await http.get(url, body.extend, most=1000)
        finally:
            await http.close()

    asyncio.run(run())
    return bytes(body)


def test_the_connection_goes_to_the_address_that_was_checked(
    server: Server, dialled: Dialled
) -> None:
    answers: Iterator[list[str]] = iter([["8.8.8.8"], ["127.0.0.1"]])
    server.pages["/a"] = b"x"
    door = SourceHosts(PUBLIC, resolver=lambda host, port: next(answers))
    assert got(f"{PUBLIC}/a", door) == b"x"
    assert dialled == ["8.8.8.8"]
    assert server.headers[0]["host"] == "skills.example"
    with pytest.raises(SourceFailure, match="this machine"):
        got(f"{PUBLIC}/a", door)
    assert dialled == ["8.8.8.8"]


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1/b", "http://localhost/b", "http://[::1]/b", "http://10.0.0.1/b",
               "http://169.254.169.254/latest/meta-data/", "http://rebound.example/b",
               "//127.0.0.1/b"],
)  # fmt: skip
def test_a_public_source_does_not_redirect_inside(
    server: Server, dialled: Dialled, target: str
) -> None:
    server.pages["/a"] = Reply(status=302, headers={"Location": target})
    names = {"skills.example": "8.8.8.8", "localhost": "127.0.0.1", "rebound.example": "10.0.0.1"}
    with pytest.raises(SourceFailure) as caught:
        got(f"{PUBLIC}/a", SourceHosts(PUBLIC, resolver=lambda host, port: [names[host]]))
    assert caught.value.code == "remote-private"
    assert (dialled, server.requests) == (["8.8.8.8"], ["/a"])


def test_a_source_inside_redirects_within_its_host_alone(server: Server, fetch: Pull) -> None:
    server.pages["/b/SKILL.md"] = SKILL
    server.pages["/a/SKILL.md"] = Reply(status=302, headers={"Location": "/b/SKILL.md"})
    assert fetch(f"{server.url}/a/SKILL.md").folders
    other = server.url.replace("127.0.0.1", "127.0.0.2")
    server.pages["/a/SKILL.md"] = Reply(status=302, headers={"Location": f"{other}/b/SKILL.md"})
    pulled = fetch(f"{server.url}/a/SKILL.md", refresh=True)
    assert codes_of(pulled) == ["remote-private"]


def codes_of(pulled: Pulled) -> list[str]:
    return [one.code for one in pulled.diagnostics]


def test_a_list_does_not_lead_inside(server: Server, fetch: Pull) -> None:
    other = server.url.replace("127.0.0.1", "127.0.0.2")
    entry = {"name": "a", "type": "skill-md", "description": "b", "digest": f"sha256:{'0' * 64}"}
    listed = {
        "$schema": "https://schemas.agentskills.io/discovery/0.2.0/schema.json",
        "skills": [{**entry, "url": f"{other}/SKILL.md"}],
    }
    server.pages["/index.json"] = json.dumps(listed).encode()
    assert codes_of(fetch(f"{server.url}/index.json")) == ["remote-private"]
    assert server.requests == ["/index.json"]


def test_only_the_user_names_what_lies_inside(server: Server, tree: Tree) -> None:
    server.pages["/a/SKILL.md"] = SKILL
    tree.write("project/skillbelt.toml", f'urls = ["{server.url}/a/SKILL.md"]\n')
    assert tree.run("trust", "add").exit_code == 0
    catalog = tree.catalog()
    assert (list(catalog), codes(catalog)) == ([], ["remote-private"])
    assert server.requests == []
    assert list(tree.catalog(private_sources=["127.0.0.1"])) == ["a"]
    tree.write("project/skillbelt.toml", 'private_sources = ["127.0.0.1"]\n')
    assert "cannot be set by a project" in tree.run("list").stderr
    tree.write("project/skillbelt.toml", "")
    assert list(tree.catalog(urls=[f"{server.url}/a/SKILL.md"])) == ["a"]
