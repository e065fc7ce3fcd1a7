"""Skills that an MCP server lists, over a real socket: only their heads are pulled."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillbelt.discovery.sources import Pulled, pull_all
from skillbelt.discovery.sources.mcp import fetch as fetch_all
from skillbelt.discovery.sources.mcp import parse_record, skill_file
from skillbelt.discovery.sources.pull import SERVERS
from skillbelt.format.frontmatter import parse
from tests.bounds import bounds
from tests.discovery.sources.archives import tree_of
from tests.discovery.sources.conftest import QUICK, Pull
from tests.discovery.sources.mcp_server import McpServer, serving
from tests.tree import Tree


@pytest.fixture
def mcp() -> Iterator[McpServer]:
    with serving() as server:
        yield server


def codes(pulled: Pulled) -> list[str]:
    return [problem.code for problem in pulled.diagnostics]


def test_what_is_listed_becomes_heads_and_nothing_is_fetched(mcp: McpServer, fetch: Pull) -> None:
    mcp.add({"reference/guide.md": b"The guide.\n", "nested/other/SKILL.md": b"---\n---\n"})
    pulled = fetch(mcp.url)
    [located] = pulled.folders
    assert str(located.origin) == mcp.url.replace("mcp+", "mcp:")
    label = mcp.url.removeprefix("mcp+http://").removesuffix("/mcp")
    label = label.replace(".", "-").replace(":", "-")
    files = tree_of(located.folder)
    assert files == {
        f"{label}.pdf/pdf/SKILL.md": skill_file({"name": "pdf", "description": "Reads PDF files."}),
        f"{label}.pdf/pdf/reference/guide.md": b"",
    }
    assert mcp.requests == ["skills/list"]


def test_a_list_comes_in_pages(mcp: McpServer, fetch: Pull) -> None:
    for number in range(7):
        mcp.add(name=f"skill-{number}")
    mcp.page = 3
    [located] = fetch(f"{mcp.url}#docs").folders
    assert sorted(os.listdir(located.folder)) == [f"docs.skill-{number}" for number in range(7)]
    assert len(mcp.requests) == 3


def test_a_skill_that_is_not_listed_can_be_had_by_its_address(mcp: McpServer, fetch: Pull) -> None:
    mcp.add()
    mcp.add(name="hidden")
    hidden = mcp.entries.pop()
    mcp.unlisted[hidden["uri"]] = hidden
    wanted = ["skill://hidden/SKILL.md", "skill://none/SKILL.md", "skill://pdf/SKILL.md"]
    pulled = fetch(f"{mcp.url}#docs&{'&'.join(wanted)}")
    [located] = pulled.folders
    assert sorted(os.listdir(located.folder)) == ["docs.hidden", "docs.pdf"]
    assert codes(pulled) == ["mcp-entry-refused"]
    assert "skill://none/SKILL.md" in pulled.diagnostics[0].message
    assert mcp.requests == ["skills/list", *(f"skills/get {uri}" for uri in wanted[:2])]


def test_another_skill_than_was_asked_for_is_refused(mcp: McpServer, fetch: Pull) -> None:
    mcp.add(name="hidden")
    mcp.unlisted["skill://wanted/SKILL.md"] = mcp.entries.pop()
    pulled = fetch(f"{mcp.url}#docs&skill://wanted/SKILL.md")
    assert codes(pulled) == ["mcp-entry-refused"]
    assert "skill://wanted/SKILL.md" in pulled.diagnostics[0].message
    assert os.listdir(pulled.folders[0].folder) == []


def test_a_name_is_that_of_one_server_or_of_none(mcp: McpServer, cache: Path) -> None:
    mcp.add()
    with serving() as other:
        other.add()
        command = "mcp+stdio://docs?false"
        sources = [f"{mcp.url}#docs", f"{other.url}#docs", command, f"{other.url}#more"]
        *clashing, good = pull_all(sources, cache_dir=str(cache), limits=QUICK)
        assert [codes(one) for one in clashing] == [["mcp-name-taken"]] * 3
        assert [one.folders for one in clashing] == [()] * 3
        assert codes(good) == []
        assert (mcp.requests, other.requests) == ([], ["skills/list"])


def test_one_listing_serves_until_it_is_old(mcp: McpServer, fetch: Pull) -> None:
    mcp.add()
    first = fetch(mcp.url)
    assert fetch(mcp.url) == first
    assert len(mcp.requests) == 1
    assert fetch(mcp.url, refresh=True) == first, "nothing changed"
    mcp.add(name="notes")
    second = fetch(mcp.url, refresh=True)
    assert second.folders != first.folders


def test_offline_the_last_listing_is_in_use(mcp: McpServer, fetch: Pull) -> None:
    assert codes(fetch(mcp.url, offline=True)) == ["remote-offline"]
    mcp.add()
    first = fetch(mcp.url)
    assert fetch(mcp.url, offline=True) == first


def test_what_is_wrong_with_one_is_told_and_harms_no_other(mcp: McpServer, fetch: Pull) -> None:
    mcp.add()
    mcp.entries += [None, {"uri": "skill://bad/SKILL.md"}]
    pulled = fetch(f"{mcp.url}#docs")
    assert codes(pulled) == ["mcp-entry-refused"] * 2
    [located] = pulled.folders
    assert os.listdir(located.folder) == ["docs.pdf"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"extension": False}, "mcp-no-skills"),
        ({"endless": True}, "remote-too-large"),
        ({"endless": True, "entries": []}, "mcp-failed"),
        ({"endless": True, "entries": [], "page": 0}, "mcp-failed"),
        ({"delay": 60.0}, "remote-timeout"),
        ({"entries": {"no": "list"}}, "mcp-failed"),
        ({"entries": ["x" * 2_000] * 2_000}, "remote-too-large"),
    ],
    ids=["no extension", "no end", "empty pages", "one cursor", "no answer", "no list", "too much"],
)
def test_a_server_that_misbehaves_is_a_diagnostic(
    mcp: McpServer, fetch: Pull, change: dict[str, object], code: str
) -> None:
    mcp.add()
    first = fetch(mcp.url)
    for name, value in change.items():
        setattr(mcp, name, value)
    # Only the server that does not answer is waited for until the timeout.
    limits = bounds(
        QUICK,
        http_timeout_seconds=1 if mcp.delay else 15,
        max_remote_skills=50,
        max_remote_index_bytes=10**6,
    )
    pulled = fetch(mcp.url, refresh=True, limits=limits)
    assert codes(pulled) == [code]
    assert pulled.folders == first.folders, "the last good list is in use"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("mcp+http://127.0.0.1:1/mcp", "mcp-failed"),
        ("mcp+http:///mcp", "remote-address"),
        ("mcp+http://user:hunter2@127.0.0.1:1/mcp", "remote-address"),
    ],
)
def test_an_address_that_leads_nowhere_is_a_diagnostic(fetch: Pull, url: str, code: str) -> None:
    pulled = fetch(url)
    assert pulled.folders == ()
    assert codes(pulled) == [code]
    assert "hunter2" not in str(pulled.diagnostics)


def test_a_list_that_is_none_is_told_in_a_line(mcp: McpServer, fetch: Pull) -> None:
    mcp.listing = {"pdf": 1}
    [problem] = fetch(mcp.url).diagnostics
    assert problem.code == "mcp-failed"
    assert problem.message == "the response does not follow the protocol"


def test_a_token_is_sent_and_never_shown(mcp: McpServer, fetch: Pull, cache: Path) -> None:
    mcp.add()
    pulled = fetch(mcp.url.replace("://", "://the-secret@"))
    assert mcp.headers[0]["authorization"] == "Bearer the-secret"
    assert "the-secret" not in str(pulled)
    for file in cache.rglob("*"):
        assert "the-secret" not in str(file)
        assert file.is_dir() or b"the-secret" not in file.read_bytes()


def test_without_the_extra_it_says_how_to_get_it(tree: Tree) -> None:
    code = """
import sys
sys.modules["mcp"] = None
from skillbelt.discovery.sources import pull_all
from skillbelt.values import Limits
[pulled] = pull_all(["mcp+http://127.0.0.1:1/mcp"], cache_dir=sys.argv[1], limits=Limits())
[problem] = pulled.diagnostics
print(problem.code, problem.remedy)
"""
    done = tree.python("-c", code, str(tree.root))
    assert done.stdout == "mcp-missing pip install 'skillbelt[mcp]'\n"


def test_files_are_fetched_by_their_addresses(mcp: McpServer, fetch: Pull) -> None:
    mcp.add({"logo.png": b"\x89PNG\0\xff", "a.md": "ä\r\n".encode()})
    pull_one(fetch, mcp)
    [job] = [job for job in SERVERS.values() if job.source == mcp.url]
    wanted = [("skill://pdf/logo.png", 6), ("skill://pdf/a.md", 4)]
    assert fetch_all(job.url, job.limits, wanted, job.source_hosts()) == {
        uri: mcp.files[uri] for uri, _ in wanted
    }

    async def inside_a_loop() -> dict[str, bytes]:
        return fetch_all(job.url, job.limits, wanted[:1], job.source_hosts())

    assert asyncio.run(inside_a_loop())["skill://pdf/logo.png"] == b"\x89PNG\0\xff"


def pull_one(fetch: Pull, mcp: McpServer) -> None:
    assert fetch(mcp.url).diagnostics == ()


@pytest.mark.parametrize(
    "front",
    [
        {"name": "pdf", "description": "Colons: and \"quotes\" and 'more' # not a comment"},
        {"name": "pdf", "description": "line\nbreak\ttab\x7f\x85\u2028 \U0001f600"},
        {"name": "pdf", "description": "x", "metadata": {"a": [1, 2.5, None, True, {}]}},
        {"name": "pdf", "description": "x", "odd key: yes": "no", "": "---", "2024-01-01": "date"},
    ],
)
def test_a_head_says_what_the_entry_said(front: dict[str, object]) -> None:
    parsed = parse(skill_file(front), path="SKILL.md", folder="pdf")
    assert (parsed.fields, parsed.state) == (front, "strict")
    assert parse_record({"name": "pdf", "uri": "x", "frontmatter": front, "files": {}}) is not None
