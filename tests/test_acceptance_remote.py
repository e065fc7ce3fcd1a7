"""Remote sources from end to end: a real server on one side, a catalogue on the other."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator

import pytest

from skillbelt import Catalog
from tests.discovery.sources.archives import SKILL, member, tarred, tree_of, zipped
from tests.discovery.sources.server import Reply, Server, running
from tests.tree import Tree

OTHER = b"---\nname: text\ndescription: Reads text.\n---\nBody.\n"


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


def remote(tree: Tree, *urls: str) -> Catalog:
    return tree.catalog(urls=list(urls), cache_dir=str(tree.path("cache")))


def skill_files(tree: Tree) -> dict[str, bytes]:
    """What lies in the cache of what was published, by the path below its copy."""
    kept = tree_of(tree.path("cache/remote"))
    return {
        path.partition("/skills/")[2]: data for path, data in kept.items() if "/skills/" in path
    }


def index(*skills: object) -> bytes:
    return json.dumps({"skills": skills}).encode()


def ready_marks(tree: Tree) -> list[str]:
    return [path for path in tree_of(tree.path("cache")) if os.path.basename(path) == ".ready"]


def test_an_archive_is_downloaded_once(tree: Tree, server: Server) -> None:
    """Case 26."""
    server.pages["/skills.zip"] = zipped({"pdf/SKILL.md": SKILL, "text/SKILL.md": OTHER})
    url = f"{server.url}/skills.zip"
    for _ in range(2):
        catalog = remote(tree, url)
        assert [skill.name for skill in catalog.all()] == ["pdf", "text"]
        assert not catalog.diagnostics
    assert server.requests == ["/skills.zip"]
    assert len(ready_marks(tree)) == 1
    skill = catalog["pdf"]
    assert (skill.scope, str(skill.origin), skill.trusted) == ("remote", f"archive:{url}", False)


def test_an_archive_cut_short_is_not_marked_ready(tree: Tree, server: Server) -> None:
    """Case 26. Only after full extraction."""
    whole = zipped({"pdf/SKILL.md": SKILL, "big": os.urandom(50_000)})
    server.pages["/skills.zip"] = whole[: len(whole) // 2]
    catalog = remote(tree, f"{server.url}/skills.zip")
    assert not list(catalog)
    assert not ready_marks(tree)
    (said,) = catalog.diagnostics
    assert said.severity == "error"
    assert said.path == f"{server.url}/skills.zip"


@pytest.mark.parametrize("form", ["url", "file", "path"])
def test_skills_root_takes_an_archive_in_every_form(tree: Tree, server: Server, form: str) -> None:
    """Case 26. Through `SKILLS_ROOT` and the command line."""
    server.pages["/s.zip"] = data = zipped({"pdf/SKILL.md": SKILL})
    file = tree.write("s.zip", data)
    source = {"url": f"{server.url}/s.zip", "file": f"file://{file}", "path": str(file)}[form]
    tree.setenv("SKILLS_ROOT", source)
    tree.setenv("SKILLS_CACHE_DIR", tree.path("elsewhere"))
    for _ in range(2):
        done = tree.run("list", "--json")
        (skill,) = json.loads(done.stdout)["skills"]
        assert skill["name"] == "pdf"
        assert skill["location"].startswith(str(tree.path("elsewhere")))
        assert skill["scope"] == ("remote" if form == "url" else "explicit")
    assert server.requests == (["/s.zip"] if form == "url" else [])


HOSTILE_NAMES = ["../x", "/abs", "C:x", "a/../../x", "..\\x", "C:\\x", "a/./../../x"]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize("ending", ["zip", "tar"])
def test_an_archive_that_leads_out_is_refused_whole(
    tree: Tree, server: Server, name: str, ending: str
) -> None:
    """Case 27."""
    files = [("pdf/SKILL.md", SKILL), (name, b"evil")]
    pages = {"zip": zipped(files), "tar": tarred((member(n, d), d) for n, d in files)}
    server.pages[f"/s.{ending}"] = pages[ending]
    before = tree_of(tree.root)
    catalog = remote(tree, f"{server.url}/s.{ending}")
    assert not list(catalog)
    (said,) = catalog.diagnostics
    assert said.code == "archive-refused"
    assert not skill_files(tree)
    outside = {path for path in tree_of(tree.root) if not path.startswith("cache/")}
    assert outside == set(before)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_an_archive_with_a_link_is_refused_whole(tree: Tree, server: Server, kind: bytes) -> None:
    """Case 27. Links and devices in a tar."""
    link = member("pdf/link", kind=kind, linkname="pdf/SKILL.md")
    server.pages["/s.tar"] = tarred([(member("pdf/SKILL.md", SKILL), SKILL), (link, b"")])
    catalog = remote(tree, f"{server.url}/s.tar")
    assert not list(catalog)
    assert [said.code for said in catalog.diagnostics] == ["archive-refused"]
    assert not skill_files(tree)


def test_a_zip_with_a_link_is_refused_whole(tree: Tree, server: Server) -> None:
    """Case 27. Links in a zip."""
    server.pages["/s.zip"] = zipped({"pdf/SKILL.md": b"/etc/passwd"}, mode=0o120777)
    catalog = remote(tree, f"{server.url}/s.zip")
    assert not list(catalog)
    assert [said.code for said in catalog.diagnostics] == ["archive-refused"]


def test_an_archive_over_64_mib_is_refused(tree: Tree, server: Server) -> None:
    """Case 28. The download."""
    server.pages["/s.tar"] = bytes(65 * 2**20)
    catalog = remote(tree, f"{server.url}/s.tar")
    assert not list(catalog)
    (said,) = catalog.diagnostics
    assert said.severity == "error"
    assert not ready_marks(tree)


@pytest.mark.long
def test_an_archive_that_grows_over_256_mib_is_refused(tree: Tree, server: Server) -> None:
    """Case 28. What comes out of it, each file within its own bound."""
    files = [("pdf/SKILL.md", SKILL), *((f"pdf/f{n}", bytes(52 * 2**20)) for n in range(5))]
    server.pages["/s.zip"] = zipped(files)
    catalog = remote(tree, f"{server.url}/s.zip")
    assert not list(catalog)
    (said,) = catalog.diagnostics
    assert said.severity == "error"
    assert not skill_files(tree)


HOSTILE_ENTRIES = [
    {"name": "../outside", "files": ["SKILL.md"]},
    {"name": "a/b", "files": ["SKILL.md"]},
    {"name": "pdf", "files": ["SKILL.md", "../x"]},
    {"name": "pdf", "files": ["SKILL.md", "/tmp/x"]},
    {"name": "pdf", "files": ["SKILL.md", "https://other/x"]},
    {"name": "pdf", "files": ["SKILL.md", "..\\x"]},
]


@pytest.mark.parametrize("entry", HOSTILE_ENTRIES, ids=str)
def test_a_list_that_leads_out_makes_no_request(
    tree: Tree, server: Server, entry: dict[str, object]
) -> None:
    """Case 29."""
    server.pages["/index.json"] = index(entry)
    for page in ("/pdf/SKILL.md", "/SKILL.md", "/x", "/outside/SKILL.md", "/a/b/SKILL.md"):
        server.pages[page] = SKILL
    catalog = remote(tree, f"{server.url}/index.json")
    assert not list(catalog)
    assert server.requests == ["/index.json"]
    assert not skill_files(tree)
    (said,) = catalog.diagnostics
    assert said.code == "remote-entry-refused"


def test_a_bad_entry_hides_no_good_one(tree: Tree, server: Server) -> None:
    """Case 29. The rest of the list is used."""
    server.pages["/index.json"] = index(
        {"name": "../outside", "files": ["SKILL.md"]}, {"name": "pdf", "files": ["SKILL.md"]}
    )
    server.pages["/pdf/SKILL.md"] = SKILL
    assert list(remote(tree, server.url)) == ["pdf"]


def test_a_new_version_replaces_the_old_one_whole_or_not_at_all(tree: Tree, server: Server) -> None:
    """Case 30."""

    def publish(version: str, *files: str) -> None:
        entry = {"name": "pdf", "version": version, "files": ["SKILL.md", *files]}
        server.pages["/index.json"] = index(entry)
        server.pages["/pdf/SKILL.md"] = SKILL.replace(b"Reads", f"{version} reads".encode())

    publish("one", "a.md")
    server.pages["/pdf/a.md"] = b"A"
    catalog = remote(tree, server.url)
    assert catalog["pdf"].description == "one reads PDF files."

    publish("two", "b.md")
    catalog.refresh()
    assert catalog["pdf"].description == "one reads PDF files."
    assert sorted(os.listdir(catalog["pdf"].dir)) == ["SKILL.md", "a.md"]
    assert "404" in catalog.problems[0].message

    server.pages["/pdf/b.md"] = b"B"
    assert catalog.refresh().changed == ("pdf",)
    assert catalog["pdf"].description == "two reads PDF files."
    assert sorted(os.listdir(catalog["pdf"].dir)) == ["SKILL.md", "b.md"]
    assert not catalog.diagnostics


@pytest.mark.parametrize(
    "page", [None, b"no JSON", b"[1]", b'{"skills": 1}', b"[" * 100_000, Reply(status=500), b""]
)
def test_a_list_that_is_none_gives_nothing(
    tree: Tree, server: Server, page: bytes | Reply | None
) -> None:
    """Case 31."""
    if page is not None:
        server.pages["/index.json"] = page
    tree.skill("project/.agents/skills/local")
    catalog = remote(tree, f"{server.url}/index.json")
    assert list(catalog) == ["local"]
    assert [said.severity for said in catalog.diagnostics] == ["error"]


def test_a_server_that_is_gone_leaves_the_last_good_copy(tree: Tree) -> None:
    """Case 31. And nothing when there never was one."""
    with running() as server:
        server.pages["/s.zip"] = zipped({"pdf/SKILL.md": SKILL})
        url = f"{server.url}/s.zip"
        assert list(remote(tree, url)) == ["pdf"]
    catalog = remote(tree, url, f"{url}.other.zip")
    catalog.refresh()
    assert list(catalog) == ["pdf"]
    assert sorted((d.path, d.severity) for d in catalog.diagnostics) == [
        (url, "warning"),
        (f"{url}.other.zip", "error"),
    ]
