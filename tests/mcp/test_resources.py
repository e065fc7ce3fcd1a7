"""Skills as resources, and the skills extension."""

from __future__ import annotations

import base64
import hashlib
import os

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND, BlobResourceContents, TextResourceContents

from mcp import Client
from skillbelt import Runtime
from skillbelt.mcp import protocol, resources
from tests.mcp.clients import (
    Unknown,
    connected,
    get_skill,
    list_skills,
    read_folder,
    send,
)
from tests.mcp.conftest import SKILLS
from tests.tree import Tree

pytestmark = pytest.mark.anyio
every_era = pytest.mark.parametrize("mode", ["legacy", "auto"])


async def content(client: Client, uri: str) -> bytes:
    [found] = (await client.read_resource(uri)).contents
    if isinstance(found, TextResourceContents):
        return found.text.encode()
    assert isinstance(found, BlobResourceContents)
    return base64.b64decode(found.blob)


async def refused(what: object) -> str:
    with pytest.raises(MCPError) as caught:
        await what  # type: ignore[misc]
    assert caught.value.code == INVALID_PARAMS
    return str(caught.value)


@every_era
async def test_every_file_of_every_entry_can_be_read_and_is_what_the_entry_says(
    belt: Runtime, mode: str
) -> None:
    async with connected(belt, mode) as client:
        listed = await list_skills(client)
        assert [skill["frontmatter"]["name"] for skill in listed["skills"]] == ["notes", "pdf"]
        count = 0
        for skill in listed["skills"]:
            for file in skill["resources"]:
                data = await content(client, file["uri"])
                assert len(data) == file["size"]
                assert f"sha256:{hashlib.sha256(data).hexdigest()}" == file["digest"]
                count += 1
    assert count == 6
    assert listed["resultType"] == "complete"
    assert (listed["ttlMs"], listed["cacheScope"]) == (0, "private")
    assert "nextCursor" not in listed


async def test_the_extension_is_declared_in_both_eras(belt: Runtime) -> None:
    wanted = {"io.modelcontextprotocol/skills": {"directoryRead": True}}
    async with connected(belt) as client:
        assert client.server_capabilities.extensions == wanted
        assert client.server_capabilities.resources is not None
    async with connected(belt, "legacy") as client:
        assert client.server_capabilities.experimental == wanted


async def test_a_listed_entry_is_the_one_that_is_got(belt: Runtime) -> None:
    async with connected(belt) as client:
        [_, listed] = (await list_skills(client))["skills"]
        got = await get_skill(client, "skill://pdf/SKILL.md")
    assert got["skill"] == listed
    assert (got["ttlMs"], got["cacheScope"], got["resultType"]) == (0, "private", "complete")


async def test_long_lists_come_in_pages(skills: Tree) -> None:
    for number in range(250):
        skills.skill(f"{SKILLS}/many-{number:03}")
    with Runtime(skills.project) as belt:
        async with connected(belt) as client:
            sizes, names, cursor = [], list[str](), None
            while True:
                page = await list_skills(client, cursor)
                sizes.append(len(page["skills"]))
                names += [skill["frontmatter"]["name"] for skill in page["skills"]]
                cursor = page.get("nextCursor")
                if cursor is None:
                    break
            assert (await client.list_resources()).next_cursor is not None
            assert "cursor" in await refused(list_skills(client, "!"))
    assert sizes == [protocol.PAGE_SIZE, protocol.PAGE_SIZE, 52]
    assert names == sorted(names)
    assert len(set(names)) == 252


async def test_a_page_of_large_skills_is_shorter(
    belt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_MAX_PAGE_FILES", 0)
    async with connected(belt) as client:
        first = await list_skills(client)
        second = await list_skills(client, first["nextCursor"])
    assert [len(page["skills"]) for page in (first, second)] == [1, 1]
    assert "nextCursor" not in second


async def test_what_has_one_page_takes_no_cursor(belt: Runtime) -> None:
    async with connected(belt) as client:
        for listed in (client.list_tools, client.list_resource_templates):
            assert "cursor" in await refused(listed(cursor="cGRm"))


async def test_folders_are_listed_level_by_level(belt: Runtime) -> None:
    async with connected(belt) as client:
        root = (await read_folder(client, "skill://pdf"))["resources"]
        below = (await read_folder(client, "skill://pdf/forms"))["resources"]
    assert [(one["name"], one["mimeType"]) for one in root] == [
        ("pdf", "text/markdown"),
        ("forms", "inode/directory"),
        ("guide.md", "text/markdown"),
        ("logo.png", "image/png"),
        ("scripts", "inode/directory"),
    ]
    assert [one["uri"] for one in below] == ["skill://pdf/forms/a%20b.md"]


async def test_empty_folders_are_listed_too(belt: Runtime, skills: Tree) -> None:
    async with connected(belt) as client:
        before = (await read_folder(client, "skill://notes"))["resources"]
        skills.path(f"{SKILLS}/notes/empty/inner").mkdir(parents=True)
        after = (await read_folder(client, "skill://notes"))["resources"]
        inside = (await read_folder(client, "skill://notes/empty"))["resources"]
        nothing = (await read_folder(client, "skill://notes/empty/inner"))["resources"]
        await refused(read_folder(client, "skill://notes/empt"))
    assert [one["name"] for one in before] == ["notes"]
    assert [(one["name"], one["mimeType"]) for one in after[1:]] == [("empty", "inode/directory")]
    assert [one["uri"] for one in inside] == ["skill://notes/empty/inner"]
    assert nothing == []


@every_era
@pytest.mark.parametrize(
    "uri",
    [
        "skill://pdf/../../../../etc/passwd",
        "skill://pdf/%2e%2e/notes/SKILL.md",
        "skill://pdf/..%2f..%2fetc%2fpasswd",
        "skill://pdf//etc/passwd",
        "skill://pdf/scripts/../SKILL.md",
        "skill://pdf/nothing.md",
        "skill://pdf",
        "skill://nothing/SKILL.md",
        "file:///etc/passwd",
        "/etc/passwd",
        "",
        "\x1b[2J",
    ],
)
async def test_no_address_leads_out_of_a_skill(belt: Runtime, mode: str, uri: str) -> None:
    async with connected(belt, mode) as client:
        told = await refused(client.read_resource(uri))
        assert "\x1b" not in told
        await refused(get_skill(client, uri))
        if uri != "skill://pdf":
            await refused(read_folder(client, uri))


async def test_a_file_is_no_folder_and_a_folder_no_skill(belt: Runtime) -> None:
    async with connected(belt) as client:
        assert "no such folder" in await refused(read_folder(client, "skill://pdf/SKILL.md"))
        assert "no such skill" in await refused(get_skill(client, "skill://pdf/guide.md"))


async def test_a_link_in_a_skill_is_not_followed(belt: Runtime, skills: Tree) -> None:
    skills.path(f"{SKILLS}/pdf/leak.md").symlink_to("/etc/passwd")
    async with connected(belt) as client:
        await refused(client.read_resource("skill://pdf/leak.md"))


async def test_an_unknown_method_is_not_found(belt: Runtime) -> None:
    async with connected(belt) as client:
        with pytest.raises(MCPError) as caught:
            await send(client, Unknown())
    assert caught.value.code == METHOD_NOT_FOUND


async def test_a_skill_that_is_not_trusted_is_listed_and_not_given(skills: Tree) -> None:
    with Runtime(skills.project, trust_project="ask") as belt:
        async with connected(belt) as client:
            assert len((await list_skills(client))["skills"]) == 2
            told = await refused(client.read_resource("skill://pdf/SKILL.md"))
    assert "Permission to load the skill pdf" in told


async def test_what_is_read_is_in_the_log(belt: Runtime) -> None:
    async with connected(belt) as client:
        await client.read_resource("skill://pdf/scripts/say.sh")
    [loaded] = belt.gate.audit.read(type="load")
    assert (loaded.skill, loaded.data["path"]) == ("pdf", "scripts/say.sh")
    assert loaded.session.startswith("skillbelt/mcp/")


async def test_a_name_that_is_no_text_is_served_all_the_same(skills: Tree) -> None:
    name = os.fsdecode(b"odd\xff.md")
    skills.write(f"{SKILLS}/pdf/{name}", "Odd.\n")
    with Runtime(skills.project) as belt:
        async with connected(belt) as client:
            [_, pdf] = (await list_skills(client))["skills"]
            [uri] = [one["uri"] for one in pdf["resources"] if "odd" in one["uri"]]
            assert uri == "skill://pdf/odd%FF.md"
            assert await content(client, uri) == b"Odd.\n"
            names = [one["name"] for one in (await read_folder(client, "skill://pdf"))["resources"]]
            assert "odd?.md" in names
            for tool, arguments in (
                ("skill_load", {"skill": "pdf"}),
                ("skill_list_docs", {"skill": "pdf"}),
                ("load_resource", {"skill": "pdf", "relative_path": "\ud800"}),
            ):
                given = await client.call_tool(tool, arguments)
                given.model_dump_json()


async def test_how_addresses_are_made_is_told(belt: Runtime) -> None:
    async with connected(belt) as client:
        [template] = (await client.list_resource_templates()).resource_templates
    assert template.uri_template == "skill://{skill}/{+path}"
