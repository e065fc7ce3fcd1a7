"""Documents match their schemas, for every outcome of a run."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from skillbelt import Runtime
from skillbelt.mcp.tools import SCHEMAS
from skillbelt.running.outputs import OutputFile, Saved
from tests.mcp.clients import connected, over_stdio
from tests.tree import Tree

ALLOWED = 'tool_profile = "full"\n[permission]\nrun = "allow"\n'


@pytest.mark.parametrize("kind", sorted(SCHEMAS))
def test_each_is_a_schema(kind: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[kind])
    assert not Draft202012Validator(SCHEMAS[kind]).is_valid({})


def test_a_run_says_what_a_file_and_an_artifact_of_it_have() -> None:
    ended = SCHEMAS["skill_run"]["properties"]
    for file in (ended["output_files"]["items"], ended["primary_output"]):
        assert set(file["properties"]) == set(file["required"]) == set(OutputFile._fields)
    saved = ended["artifact_files"]["items"]
    assert set(saved["properties"]) == set(saved["required"]) == set(Saved._fields)


@pytest.mark.anyio
async def test_every_document_fits(skills: Tree) -> None:
    skills.write("home/.config/skillbelt/config.toml", ALLOWED)
    documents: dict[str, list[Any]] = {kind: [] for kind in SCHEMAS}
    async with over_stdio(skills) as client:
        tools = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
        assert {name: schema for name, schema in tools.items() if schema} == SCHEMAS

        async def call(kind: str, **given: Any) -> Any:
            # The client checks it against the schema too.
            found = (await client.call_tool(kind, given)).structured_content
            documents[kind].append(found)
            return found

        await call("skill_list_docs", skill="pdf")
        await call("skill_list_docs", skill="notes")
        await call("skill_run", skill="pdf", command="exit 3")
        kept = "echo x > $OUTPUT_DIR/a.txt; echo y >&2"
        wanted = {"output_files": ["out/*"], "save_as_artifacts": True}
        ran = await call("skill_run", skill="pdf", command=kept, **wanted)
        assert ran["output_files"] and ran["primary_output"] and ran["artifact_files"]
        await call("skill_run", skill="pdf", command="sleep 9", timeout=1)
        await call("execute_skill", skill="pdf", input={})
        begun = await call("skill_run", skill="pdf", command="cat", background=True)
        await call("skill_poll", run_id=begun["run_id"], stdin="hello\n")
        await call("skill_poll", run_id=begun["run_id"], kill=True, wait=5)
    for kind, found in documents.items():
        for document in found:
            Draft202012Validator(SCHEMAS[kind]).validate(document)


@pytest.mark.anyio
@pytest.mark.parametrize("tool", ["skill_list_docs", "skill_load"])
async def test_what_went_wrong_has_a_kind_with_and_without_a_schema(
    belt: Runtime, tool: str
) -> None:
    async with connected(belt) as client:
        await client.list_tools()
        wrong = await client.call_tool(tool, {"skill": "nothing"})
    assert wrong.is_error
    assert wrong.structured_content == {
        "error": {
            "kind": "skill_not_found",
            "message": "unknown skill: nothing",
            "name": "nothing",
        }
    }
