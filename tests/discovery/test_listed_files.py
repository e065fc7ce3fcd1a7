"""Skills of another MCP server: fetched when they are read, always verified, never mixed up."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skillbelt import Answer, Pending, Runtime
from skillbelt.discovery.catalog import Catalog
from skillbelt.errors import ConfigError, FileUnreadable, LoadError, SkillNotFound
from skillbelt.files.manifest import is_complete
from skillbelt.permission.rules import Request
from skillbelt.scan import cache
from skillbelt.trust import Trust
from tests.discovery.sources.mcp_server import TEXT, McpServer, listed, serving
from tests.tree import Tree

URI = "skill://pdf/SKILL.md"
ALL_FILES = (URI, "skill://pdf/guide.md", "skill://pdf/scripts/say.py")
LOAD = {"skill": "docs.pdf"}


@pytest.fixture
def mcp() -> Iterator[McpServer]:
    with serving() as server:
        server.add({"guide.md": b"The guide.\n", "scripts/say.py": b"print('{\"said\": 1}')\n"})
        yield server


@pytest.fixture
def project(open_tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Tree:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    return open_tree


Open = Callable[..., Runtime]


@pytest.fixture
def belt(mcp: McpServer, project: Tree) -> Iterator[Open]:
    """A runtime whose skills are those of the server, called `docs` here."""
    made: list[Runtime] = []

    def belt(**options: Any) -> Runtime:
        named = {"urls": [f"{mcp.url}#docs"], **options}
        made.append(Runtime(project.project, **named))
        return made[-1]

    yield belt
    for one in made:
        one.close()


@pytest.fixture(autouse=True)
def nothing_scanned_before() -> None:
    """Empty the cache of scans: a skill of the same content is scanned, and so fetched, once."""
    cache._remember.cache_clear()


def saying(kind: Any, asked: list[Request]) -> Callable[[Pending], Answer]:
    def ask(pending: Pending) -> Answer:
        asked.append(pending.request)
        return Answer(kind)

    return ask


def again(belt: Runtime) -> None:
    """Ask the server for its list again."""
    belt.catalog.refresh()
    belt.look()


def cached(project: Tree, data: bytes) -> list[Path]:
    files = (project.home / ".cache").rglob("blobs/*")
    return [file for file in files if file.read_bytes() == data]


def test_a_skill_is_fetched_when_it_is_loaded_and_no_sooner(mcp: McpServer, belt: Open) -> None:
    """Nothing is fetched early or twice. A load needs all of it, for a scan."""
    runtime = belt()
    assert [skill.name for skill in runtime.discover_skills()] == ["docs.pdf"]
    assert "Reads PDF files." in runtime.overview().text
    assert mcp.requests == ["skills/list"]
    loaded = runtime.load("docs.pdf")
    assert "The body of pdf." in loaded.text
    assert mcp.requests == ["skills/list", *ALL_FILES]
    guide = runtime.load_resource("docs.pdf", "guide.md")
    assert "The guide." in guide.text
    assert belt().load("docs.pdf").text == loaded.text
    assert len(mcp.requests) == 1 + len(ALL_FILES)


def test_a_model_can_tell_whose_text_it_is(mcp: McpServer, belt: Open) -> None:
    loaded = belt().load("docs.pdf")
    assert loaded.text.startswith(f"(Text of the MCP server {mcp.url.removeprefix('mcp+')}")


def test_a_model_finds_its_files_by_name(belt: Open) -> None:
    runtime = belt(ask=saying("once", []), tools=["skill", "read_file"])
    session = runtime.session("ada", "chat")
    given = session.call_sync("skill", {"name": "docs.pdf"})
    assert "<file>skill://docs.pdf/guide.md</file>" in given.text
    assert ".cache" not in given.text
    read = session.call_sync("read_file", {"file_name": "skill://docs.pdf/guide.md"})
    assert "The guide." in read.text


def test_its_documents_are_known_from_its_list(mcp: McpServer, belt: Open) -> None:
    session = belt(ask=saying("once", [])).session("ada", "chat")
    given = session.call_sync("skill_list_docs", LOAD)
    assert json.loads(given.text) == ["guide.md"]
    assert mcp.requests == ["skills/list", *ALL_FILES], "a scan read them"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (TEXT.replace(b"body", b"soul"), "is not what its server listed"),
        (TEXT + b"more", "is not what its server listed"),
        (b"", "is not what its server listed"),
        (None, "cannot be fetched: "),
    ],
    ids=["changed", "longer", "empty", "gone"],
)
def test_what_is_not_what_was_listed_is_not_given(
    mcp: McpServer, belt: Open, project: Tree, data: bytes | None, told: str
) -> None:
    runtime = belt()
    runtime.look()
    if data is None:
        del mcp.files[URI]
    else:
        mcp.files[URI] = data
    with pytest.raises(FileUnreadable, match=told):
        runtime.load("docs.pdf")
    kept = [file.read_bytes() for file in (project.home / ".cache").rglob("blobs/*")]
    assert (data or TEXT) not in kept


def test_a_head_that_is_another_than_was_listed_is_not_given(mcp: McpServer, belt: Open) -> None:
    mcp.entries[0]["frontmatter"]["description"] = "Quite harmless."
    with pytest.raises(FileUnreadable, match="another frontmatter"):
        belt().load("docs.pdf")


def test_a_file_that_is_not_listed_is_not_asked_for(mcp: McpServer, belt: Open) -> None:
    mcp.files["skill://pdf/secret.md"] = b"x"
    runtime = belt()
    with pytest.raises(FileUnreadable, match="not among the files"):
        runtime.load_resource("docs.pdf", "secret.md")
    assert mcp.requests == ["skills/list", *ALL_FILES]


def test_what_lies_in_the_cache_is_verified_each_time(
    mcp: McpServer, belt: Open, project: Tree
) -> None:
    runtime = belt()
    runtime.load("docs.pdf")
    [blob] = cached(project, TEXT)
    blob.write_bytes(TEXT.replace(b"body", b"soul"))
    assert "The body of pdf." in runtime.load("docs.pdf").text
    assert mcp.requests.count(URI) == 2


def test_offline_what_was_read_before_can_be_read(
    mcp: McpServer, belt: Open, project: Tree
) -> None:
    belt().load("docs.pdf")
    runtime = belt(offline=True)
    assert "The body of pdf." in runtime.load("docs.pdf").text
    for file in (project.home / ".cache").rglob("blobs/*"):
        file.unlink()
    with pytest.raises(FileUnreadable, match="may not be contacted now"):
        runtime.load_resource("docs.pdf", "guide.md")


def test_an_approval_is_bound_to_every_file(mcp: McpServer, belt: Open) -> None:
    asked: list[Request] = []
    runtime = belt(ask=saying("always", asked))
    session = runtime.session("ada", "chat")
    for _ in range(2):
        assert not session.call_sync("skill_load", LOAD, inline=True).error
    assert len(asked) == 1
    assert asked[0].origin.startswith("mcp:http://127.0.0.1")
    mcp.files["skill://pdf/guide.md"] = b"Another.\n"
    mcp.entries[0]["resources"][1] = listed("skill://pdf/guide.md", b"Another.\n")
    again(runtime)
    assert not session.call_sync("skill_load", LOAD, inline=True).error
    assert len(asked) == 2, "a document changed, so it is asked for again"
    assert asked[0].hash != asked[1].hash


def test_the_hash_is_that_of_the_files_once_they_are_here(belt: Open) -> None:
    """What was allowed for loading and for running is bound to the same."""
    asked: list[Request] = []
    runtime = belt(ask=saying("always", asked))
    session = runtime.session("ada", "chat")
    assert not session.call_sync("skill_load", LOAD).error
    for _ in range(2):
        run = {**LOAD, "command": "python3 scripts/say.py"}
        ran = session.call_sync("skill_run", run)
        assert not ran.error
        assert ran.data["stdout"] == '{"said": 1}\n'
    assert not session.call_sync("skill_load", LOAD).error
    assert [request.type for request in asked] == ["skill", "run"]
    assert asked[0].hash == asked[1].hash


def test_a_script_of_it_is_executed_like_any_other(belt: Open) -> None:
    done = belt(ask=saying("once", [])).execute_skill_sync("docs.pdf")
    assert done.output == {"said": 1}


def test_running_fetches_everything_and_refuses_what_is_not_whole(
    mcp: McpServer, belt: Open
) -> None:
    runtime = belt(ask=saying("once", []))
    runtime.look()
    mcp.files["skill://pdf/guide.md"] = b"forged"
    session = runtime.session("ada", "chat")
    ran = session.call_sync("skill_run", {**LOAD, "command": "true"})
    assert "cannot be fetched" in ran.error


def test_what_a_server_declares_for_its_skills_is_asked_for(
    mcp: McpServer, belt: Open, project: Tree
) -> None:
    text = TEXT.replace(b"---\nThe", b"allowed-tools: Bash(git *)\n---\nThe")
    mcp.files[URI] = text
    mcp.entries[0]["frontmatter"]["allowed-tools"] = "Bash(git *)"
    mcp.entries[0]["resources"][0] = listed(URI, text)
    Trust(belt().settings.state_dir).add(mcp.url.removeprefix("mcp+"))
    runtime = belt()
    session = runtime.session("ada", "chat")
    assert not session.call_sync("skill_load", LOAD).error, "its text is trusted"
    decision = session.permits("Bash", "git push", sandboxed=True)
    assert not decision.allowed


def test_servers_are_never_mixed_up_and_nothing_of_the_user_is_hidden(
    mcp: McpServer, belt: Open, project: Tree
) -> None:
    project.skill("project/.agents/skills/pdf", text="The user's own.\n")
    with serving() as other:
        other.add()
        runtime = belt(urls=[f"{mcp.url}#docs", f"{other.url}#more"])
        assert [s.name for s in runtime.discover_skills()] == ["docs.pdf", "more.pdf", "pdf"]
        assert "The user's own." in runtime.load("pdf").text
        runtime.load("more.pdf")
        assert other.requests == ["skills/list", URI]
        assert mcp.requests == ["skills/list"]
        assert runtime.catalog.problems == ()


def test_a_skill_inside_a_skill_is_a_document_of_it(mcp: McpServer, belt: Open) -> None:
    mcp.entries.clear()
    mcp.add({"deep/other/SKILL.md": b"---\nname: other\ndescription: x\n---\n"})
    runtime = belt(nested=True)
    assert [skill.name for skill in runtime.discover_skills()] == ["docs.pdf"]


def test_consent_to_a_skill_is_none_to_the_skill_inside_it(mcp: McpServer, belt: Open) -> None:
    inner = b"---\nname: other\ndescription: Reads PDF files.\n---\nThe inner text.\n"
    mcp.entries.clear()
    mcp.add({"deep/other/SKILL.md": inner})
    mcp.add(name="other", prefix="pdf/deep/")
    mcp.files["skill://pdf/deep/other/SKILL.md"] = inner
    mcp.entries[1]["resources"] = [listed("skill://pdf/deep/other/SKILL.md", inner)]
    asked: list[Request] = []
    runtime = belt(ask=saying("always", asked))
    assert [skill.name for skill in runtime.discover_skills()] == ["docs.other", "docs.pdf"]
    session = runtime.session("ada", "chat")
    assert not session.call_sync("skill_load", LOAD, inline=True).error
    path = {"skill": "docs.pdf", "relative_path": "deep/other/SKILL.md"}
    assert "The inner text." in session.call_sync("load_resource", path).text
    assert [one.name for one in session.loaded()] == ["docs.pdf"], "a document loads no skill"
    assert len(asked) == 1
    assert not session.call_sync("skill_load", {"skill": "docs.other"}, inline=True).error
    assert [request.skill for request in asked] == ["docs.pdf", "docs.other"]


def test_what_a_server_gave_is_used_for_no_other_once_it_is_gone(
    mcp: McpServer, belt: Open
) -> None:
    """Not without the server, and not under the name or the digests of another."""
    belt().load("docs.pdf")
    with pytest.raises(SkillNotFound):
        belt(urls=[]).load("docs.pdf")
    with serving() as other:
        other.entries = [dict(mcp.entries[0])]  # lists the same, and serves none of it
        with pytest.raises(LoadError):
            belt(urls=[f"{other.url}#docs"]).load("docs.pdf")
        assert URI in other.requests


def test_a_project_can_not_start_anything(project: Tree) -> None:
    project.write("project/skillbelt.toml", 'mcp_commands = ["x=touch /tmp/owned"]\n')
    with pytest.raises(ConfigError, match="mcp_commands cannot be set by a project"):
        project.catalog()


def test_a_command_among_the_addresses_is_not_started(project: Tree, tmp_path: Path) -> None:
    mark = tmp_path / "started"
    project.write("project/skillbelt.toml", f'urls = ["mcp+stdio://x?touch%20{mark}"]\n')
    Trust(project.settings().state_dir).add(str(project.project))
    catalog = project.catalog()
    assert [problem.code for problem in catalog.problems] == ["mcp-command-wrong"]
    assert not mark.exists()


def test_a_project_that_nobody_trusts_has_nobody_asked(mcp: McpServer, project: Tree) -> None:
    project.write("project/skillbelt.toml", f'urls = ["{mcp.url}"]\n')
    assert [problem.code for problem in project.catalog().problems] == ["untrusted-source"]
    assert mcp.requests == []


def test_a_command_of_the_user_is_a_source(project: Tree) -> None:
    project.skill("server/.agents/skills/pdf", "Reads.", text="From the command.\n")
    words = f"own={sys.executable} -m skillbelt serve mcp --project {project.path('server')}"
    project.write("home/.config/skillbelt/config.toml", f"mcp_commands = [{words!r}, 'wrong']\n")
    with Runtime(project.project) as belt:
        assert "From the command." in belt.load("own.pdf").text
        [problem] = belt.catalog.problems
        assert (problem.code, problem.severity) == ("mcp-command-wrong", "error")


def test_the_command_line_uses_a_skill_of_a_server_from_end_to_end(
    mcp: McpServer, project: Tree
) -> None:
    project.write(
        "home/.config/skillbelt/config.toml",
        f'urls = ["{mcp.url}#docs"]\n[permission]\nskill = "allow"\nrun = "allow"\n',
    )
    assert project.run("list").stdout.startswith("docs.pdf\tremote, untrusted\t")
    loaded = project.run("load", "docs.pdf").stdout
    assert "The body of pdf." in loaded
    assert f"(Text of the MCP server {mcp.url.removeprefix('mcp+')}" in loaded
    ran = project.run("run", "docs.pdf", "--", "cat", "guide.md")
    assert (ran.exit_code, ran.stdout) == (0, mcp.files["skill://pdf/guide.md"].decode())
    mcp.files[URI] += b"More.\n"
    mcp.files["skill://pdf/guide.md"] = b"Other.\n"
    assert project.run("load", "docs.pdf").stdout == loaded, "it was verified and kept"


def test_a_server_that_fails_is_told_where_nothing_else_is_found(project: Tree) -> None:
    project.setenv("SKILLBELT_URLS", "mcp+http://127.0.0.1:1/mcp#docs")
    told = project.run("list")
    assert told.exit_code == 0
    assert "0 skills; 1 problem: `skillbelt doctor` shows more" in told.stderr + told.stdout


def test_showing_a_skill_fetches_nothing(mcp: McpServer, project: Tree) -> None:
    project.setenv("SKILLBELT_URLS", f"{mcp.url}#docs")
    done = project.run("show", "docs.pdf", "--json")
    shown = json.loads(done.stdout)
    assert [file["path"] for file in shown["files"]] == ["SKILL.md", "guide.md", "scripts/say.py"]
    assert shown["origin"] == mcp.url.replace("mcp+", "mcp:")
    assert shown["trusted"] is False
    assert shown["diagnostics"] == []
    assert mcp.requests == ["skills/list"]


def test_a_copy_that_lost_its_list_gives_nothing(belt: Open, project: Tree) -> None:
    skill = belt().get_skill("docs.pdf")
    assert is_complete(skill.files.digest())
    assert skill.files.manifest().hash == skill.files.digest()
    lost = skill._replace(location=skill.location.replace("docs.pdf/", "docs.other/"))
    assert not is_complete(lost.files.digest())
    with pytest.raises(FileUnreadable, match="not listed"):
        lost.files.open("SKILL.md")
    assert isinstance(belt().catalog, Catalog)
