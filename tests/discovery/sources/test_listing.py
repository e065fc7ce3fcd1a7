from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from skillbelt.discovery.sources import Pulled
from skillbelt.discovery.sources.skill_index import SCHEMA
from tests.bounds import bounds
from tests.discovery.sources.archives import SKILL, tgz_of, tree_of, zipped
from tests.discovery.sources.conftest import QUICK, Pull
from tests.discovery.sources.server import Reply, Server, running
from tests.tree import codes

Files = Callable[[Pulled], dict[str, bytes]]


def offer(
    server: Server, *entries: Mapping[str, object], at: str = "/index.json", **facts: object
) -> None:
    server.pages[at] = json.dumps({**facts, "skills": entries}).encode()


def published(name: str, data: bytes, kind: str, url: str) -> dict[str, object]:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    return {"name": name, "type": kind, "description": "d", "url": url, "digest": digest}


def test_every_file_of_every_skill(server: Server, fetch: Pull, files: Files) -> None:
    offer(
        server,
        {"name": "a", "files": ["SKILL.md", "ref/x y.md"]},
        {"name": "b", "files": ["SKILL.md"]},
    )
    server.pages |= {"/a/SKILL.md": SKILL, "/a/ref/x%20y.md": b"x", "/b/SKILL.md": SKILL}
    pulled = fetch(f"{server.url}/index.json")
    assert pulled.diagnostics == ()
    assert files(pulled) == {"a/SKILL.md": SKILL, "a/ref/x y.md": b"x", "b/SKILL.md": SKILL}
    assert str(pulled.folders[0].origin) == f"index:{server.url}/index.json"


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "../outside", "files": ["SKILL.md"]},
        {"name": "pdf", "files": ["SKILL.md", "../x"]},
        {"name": "pdf", "files": ["SKILL.md", "/tmp/x"]},
        {"name": "pdf", "files": ["SKILL.md", "https://other/x"]},
    ],
)
def test_an_entry_that_leads_out_asks_for_nothing(
    server: Server, fetch: Pull, entry: dict[str, object], cache: Path, tmp_path: Path
) -> None:
    """Case 29."""
    offer(server, entry, at="/s/index.json")
    pulled = fetch(f"{server.url}/s")
    assert pulled.folders == ()
    assert codes(pulled) == ["remote-entry-refused"]
    assert all(path.endswith("/index.json") for path in server.requests)
    assert list(cache.iterdir()) == []
    assert tree_of(tmp_path) == {}


def test_a_missing_file_keeps_the_old_copy_and_the_next_version_replaces_it(
    server: Server, fetch: Pull, files: Files
) -> None:
    """Case 30."""
    url = f"{server.url}/index.json"
    offer(server, {"name": "a", "version": "1", "files": ["SKILL.md", "old.md"]})
    server.pages |= {"/a/SKILL.md": b"one", "/a/old.md": b"old"}
    first = files(fetch(url))
    assert first == {"a/SKILL.md": b"one", "a/old.md": b"old"}

    offer(server, {"name": "a", "version": "2", "files": ["SKILL.md", "new.md"]})
    server.pages["/a/SKILL.md"] = b"two"
    broken = fetch(url, refresh=True)
    assert files(broken) == first
    [problem] = broken.diagnostics
    assert (problem.code, problem.severity) == ("remote-status", "warning")
    assert "/a/new.md" in problem.message and "404" in problem.message

    offer(server, {"name": "a", "version": "3", "files": ["SKILL.md", "new.md"]})
    server.pages["/a/new.md"] = b"new"
    whole = fetch(url, refresh=True)
    assert whole.diagnostics == ()
    assert files(whole) == {"a/SKILL.md": b"two", "a/new.md": b"new"}


def test_one_broken_skill_hides_no_other(server: Server, fetch: Pull, files: Files) -> None:
    offer(
        server,
        {"name": "a", "files": ["SKILL.md", "gone.md"]},
        {"name": "b", "files": ["SKILL.md"]},
    )
    server.pages |= {"/a/SKILL.md": SKILL, "/b/SKILL.md": SKILL}
    pulled = fetch(f"{server.url}/index.json")
    assert files(pulled) == {"b/SKILL.md": SKILL}
    assert codes(pulled) == ["remote-status"]
    assert pulled.diagnostics[0].severity == "error"


def test_a_skill_whose_version_stays_is_not_fetched_again(
    server: Server, fetch: Pull, files: Files
) -> None:
    url = f"{server.url}/index.json"
    a: dict[str, object] = {"name": "a", "version": "1", "files": ["SKILL.md"]}
    offer(server, a, {"name": "b", "version": "1", "files": ["SKILL.md"]})
    server.pages |= {"/a/SKILL.md": b"a1", "/b/SKILL.md": b"b1"}
    before = fetch(url)
    server.requests.clear()
    assert fetch(url, refresh=True) == before
    assert server.requests == ["/index.json"]

    offer(server, a, {"name": "b", "version": "2", "files": ["SKILL.md"]})
    server.pages |= {"/a/SKILL.md": b"never asked for", "/b/SKILL.md": b"b2"}
    server.requests.clear()
    assert files(fetch(url, refresh=True)) == {"a/SKILL.md": b"a1", "b/SKILL.md": b"b2"}
    assert server.requests == ["/index.json", "/b/SKILL.md"]
    assert files(before) == {"a/SKILL.md": b"a1", "b/SKILL.md": b"b1"}


def test_a_skill_that_left_the_list_is_gone(server: Server, fetch: Pull, files: Files) -> None:
    url = f"{server.url}/index.json"
    a: dict[str, object] = {"name": "a", "version": "1", "files": ["SKILL.md"]}
    offer(server, a, {"name": "b", "version": "1", "files": ["SKILL.md"]})
    server.pages |= {"/a/SKILL.md": b"a", "/b/SKILL.md": b"b"}
    fetch(url)
    offer(server, a)
    assert files(fetch(url, refresh=True)) == {"a/SKILL.md": b"a"}
    offer(server)
    assert files(fetch(url, refresh=True)) == {}


def test_without_a_version_every_file_is_asked_about(
    server: Server, fetch: Pull, files: Files
) -> None:
    url = f"{server.url}/index.json"
    offer(server, {"name": "a", "files": ["SKILL.md", "b.md"]})
    server.pages["/index.json"] = Reply(server.pages["/index.json"], etag='"i"')  # type: ignore[arg-type]
    server.pages |= {"/a/SKILL.md": Reply(b"one", etag='"1"'), "/a/b.md": b"b"}
    before = fetch(url)
    server.requests.clear()
    assert fetch(url, refresh=True) == before
    assert sorted(server.requests) == ["/a/SKILL.md", "/a/b.md", "/index.json"]

    server.pages["/a/b.md"] = b"new"
    assert files(fetch(url, refresh=True)) == {"a/SKILL.md": b"one", "a/b.md": b"new"}


def test_a_file_may_not_come_from_another_host(server: Server, fetch: Pull) -> None:
    with running() as other:
        other.pages["/x"] = SKILL
        offer(server, {"name": "a", "files": ["SKILL.md"]})
        server.pages["/a/SKILL.md"] = Reply(status=302, headers={"Location": f"{other.url}/x"})
        pulled = fetch(f"{server.url}/index.json")
        assert pulled.folders == ()
        assert codes(pulled) == ["remote-redirect"]
        assert other.requests == []


def test_only_so_many_files_at_a_time(server: Server, fetch: Pull, files: Files) -> None:
    bounds(source_timeout_seconds=100)  # even on a busy machine
    names = [f"{i}.md" for i in range(20)]
    offer(server, *({"name": f"s{i}", "files": ["SKILL.md", *names]} for i in range(6)))
    for i in range(6):
        for name in ("SKILL.md", *names):
            server.pages[f"/s{i}/{name}"] = Reply(b"x", stall=0.005)
    assert len(files(fetch(f"{server.url}/index.json"))) == 126
    assert 1 < server.most_busy <= 8


def test_bounds_hold_for_a_list_too(server: Server, fetch: Pull, files: Files) -> None:
    """Case 28."""
    offer(server, *({"name": name, "files": ["SKILL.md"]} for name in "abc"))
    server.pages |= {"/a/SKILL.md": b"x" * 600, "/b/SKILL.md": b"x" * 300, "/c/SKILL.md": b"x" * 99}
    limits = bounds(QUICK, max_extracted_file_bytes=500)
    pulled = fetch(f"{server.url}/index.json", limits=limits)
    assert set(files(pulled)) == {"b/SKILL.md", "c/SKILL.md"}
    assert codes(pulled) == ["remote-too-large"]


def test_all_skills_share_one_bound(server: Server, fetch: Pull, files: Files) -> None:
    """Case 28."""
    offer(server, *({"name": name, "files": ["SKILL.md"]} for name in "abcdefgh"))
    server.pages |= {f"/{name}/SKILL.md": b"x" * 300 for name in "abcdefgh"}
    limits = bounds(QUICK, max_extracted_bytes=1000)
    pulled = fetch(f"{server.url}/index.json", limits=limits)
    assert len(files(pulled)) == 3
    assert codes(pulled) == ["remote-too-large"] * 5


def test_a_skill_that_stalls_hides_no_other_and_is_tried_again(
    server: Server, fetch: Pull, files: Files
) -> None:
    offer(server, *({"name": name, "version": "1", "files": ["SKILL.md"]} for name in "ab"))
    server.pages |= {"/a/SKILL.md": Reply(b"a", chunk=1, pause=30, length=9), "/b/SKILL.md": b"b"}
    # A tenth of the time is left to assemble the copy, which a busy machine needs.
    limits = bounds(http_timeout_seconds=30, source_timeout_seconds=6)
    pulled = fetch(f"{server.url}/index.json", limits=limits)
    assert files(pulled) == {"b/SKILL.md": b"b"}
    assert codes(pulled) == ["remote-timeout"]
    server.pages["/a/SKILL.md"] = b"a"
    server.requests.clear()
    assert files(fetch(f"{server.url}/index.json")) == {"a/SKILL.md": b"a", "b/SKILL.md": b"b"}
    assert server.requests == ["/index.json", "/a/SKILL.md"]


def test_published_artifacts_of_both_types(server: Server, fetch: Pull, files: Files) -> None:
    archive, packed = tgz_of({"SKILL.md": b"t", "x": b"1"}), zipped({"SKILL.md": b"z"})
    with running() as other:
        other.pages["/z.bin"] = packed
        server.pages |= {"/w/pdf/SKILL.md": SKILL, "/t.tar.gz": archive}
        offer(
            server,
            published("pdf", SKILL, "skill-md", "pdf/SKILL.md"),
            published("tar", archive, "archive", "/t.tar.gz"),
            published("zip", packed, "archive", f"{other.url}/z.bin"),
            at="/w/index.json",
            **{"$schema": SCHEMA},
        )
        pulled = fetch(f"{server.url}/w/index.json")
    assert pulled.diagnostics == ()
    assert pulled.folders[0].origin.kind == "well-known"
    assert files(pulled) == {
        "pdf/SKILL.md": SKILL,
        "tar/SKILL.md": b"t",
        "tar/x": b"1",
        "zip/SKILL.md": b"z",
    }


def test_a_wrong_digest_keeps_nothing(server: Server, fetch: Pull, cache: Path) -> None:
    entry = published("pdf", b"something else", "skill-md", "SKILL.md")
    offer(server, entry, **{"$schema": SCHEMA})
    server.pages["/SKILL.md"] = SKILL
    pulled = fetch(f"{server.url}/index.json")
    assert pulled.folders == ()
    assert codes(pulled) == ["remote-digest-mismatch"]
    assert tree_of(cache) == {}


def test_the_digest_is_the_key(server: Server, fetch: Pull, files: Files) -> None:
    url = f"{server.url}/index.json"
    offer(server, published("pdf", b"1", "skill-md", "SKILL.md"), **{"$schema": SCHEMA})
    server.pages["/SKILL.md"] = b"1"
    assert files(fetch(url)) == {"pdf/SKILL.md": b"1"}
    server.requests.clear()
    fetch(url, refresh=True)
    assert server.requests == ["/index.json"]
    server.pages["/SKILL.md"] = b"2"
    offer(server, published("pdf", b"2", "skill-md", "SKILL.md"), **{"$schema": SCHEMA})
    assert files(fetch(url, refresh=True)) == {"pdf/SKILL.md": b"2"}


def test_a_hostile_archive_in_a_list_hides_no_other(
    server: Server, fetch: Pull, files: Files, tmp_path: Path
) -> None:
    evil = zipped({"SKILL.md": b"x", "../../../evil": b"x"})
    server.pages |= {"/evil.zip": evil, "/SKILL.md": SKILL}
    offer(
        server,
        published("evil", evil, "archive", "evil.zip"),
        published("pdf", SKILL, "skill-md", "SKILL.md"),
        **{"$schema": SCHEMA},
    )
    pulled = fetch(f"{server.url}/index.json")
    assert files(pulled) == {"pdf/SKILL.md": SKILL}
    assert codes(pulled) == ["archive-refused"]
    assert not [path for path in tree_of(tmp_path) if "evil" in path]


def test_what_was_refused_is_said_again_from_the_cache(server: Server, fetch: Pull) -> None:
    offer(server, {"name": "a", "files": ["SKILL.md"]}, {"name": "../b", "files": ["SKILL.md"]})
    server.pages["/a/SKILL.md"] = SKILL
    first = fetch(f"{server.url}/index.json")
    assert codes(first) == ["remote-entry-refused"]
    assert fetch(f"{server.url}/index.json") == first
