"""What the acceptance cases say about what goes into a run and what is kept of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skillbelt import Rule
from skillbelt.artifacts import ArtifactStore, read
from skillbelt.artifacts.memory import MemoryArtifacts
from skillbelt.errors import ArtifactError, PermissionDenied, RunRefused
from skillbelt.permission.rules import Answer
from skillbelt.permission.waiting import Pending
from skillbelt.store import SessionKey
from tests.benches import ALLOW, SKILL, Bench

CHAT = SessionKey("skillbelt", "ada", "chat")
SECRET = "the password"
EVERY_BYTE = bytes(range(256)) * 16


def host(path: Path, **fields: object) -> dict[str, object]:
    return {"from": f"host://{path}", **fields}


def with_store(bench: Bench) -> ArtifactStore:
    store = MemoryArtifacts()
    bench.runtime = bench.open(artifacts=store)
    return store


# Inputs


def test_a_file_of_the_host_is_put_exactly_there(bench: Bench) -> None:
    """Case 73."""
    file = bench.tree.write("project/data/notes.txt", "text\n")
    given = [host(file, to="work/inputs/n.txt", mode="copy")]
    result = bench.run("cd work; find . -type f; cat inputs/n.txt", inputs=given)
    assert result.stdout == "./inputs/n.txt\ntext\n"


def test_a_folder_of_the_host_is_put_exactly_there(bench: Bench) -> None:
    """Case 73."""
    file = bench.tree.write("project/data/deep/notes.txt", "text\n")
    given = [host(file.parent.parent, to="work/inputs/set")]
    result = bench.run("cd work; find . -type f", inputs=given)
    assert result.stdout == "./inputs/set/deep/notes.txt\n"


def test_an_input_without_a_place_goes_among_the_inputs(bench: Bench) -> None:
    """Case 73."""
    file = bench.tree.write("project/data/notes.txt", "text\n")
    assert bench.run("cat inputs/notes.txt", inputs=[f"host://{file}"]).stdout == "text\n"


def test_what_a_run_does_to_its_input_leaves_the_file_alone(bench: Bench) -> None:
    """Case 73."""
    file = bench.tree.write("project/notes.txt", "text\n")
    result = bench.run("echo more >> inputs/notes.txt", inputs=[host(file, mode="link")])
    assert result.exit_code == 0
    assert file.read_text() == "text\n"
    assert "a file of the host is always copied" in result.warnings


@pytest.mark.parametrize(
    "to", ["../../x", "/etc/x", "skills/kit/x", "work/../../x", "metadata.json"]
)
def test_an_input_stays_where_runs_may_write(bench: Bench, to: str) -> None:
    """Case 74."""
    file = bench.tree.write("project/notes.txt", "text\n")
    result = bench.tool("touch out/ran", inputs=[host(file, to=to)])
    assert "an input cannot be put at" in result.error
    found = [path for path in bench.tree.root.glob("**/*") if path.name in ("x", "ran", file.name)]
    assert found == [file]


@pytest.mark.parametrize(
    "source",
    [
        "workspace://../../etc/passwd",
        "workspace:///etc/passwd",
        "workspace://metadata.json",
        "skill://kit/../../../etc/passwd",
        "skill://../kit/SKILL.md",
        "host://etc/passwd",
    ],
)
def test_an_input_comes_from_where_it_says(bench: Bench, source: str) -> None:
    """Case 74."""
    result = bench.tool("touch out/ran", inputs=[{"from": source}])
    assert result.error
    assert "root:" not in result.text
    assert bench.run("ls out; ls inputs").stdout == ""


def test_a_file_elsewhere_on_the_host_is_asked_for(bench: Bench) -> None:
    file = bench.tree.write("elsewhere/secret.txt", SECRET)
    with pytest.raises(PermissionDenied):
        bench.run("true", inputs=[host(file)])
    bench.runtime = bench.open(rules=[ALLOW, Rule("host_file", str(file), "allow")])
    assert bench.run("cat inputs/secret.txt", inputs=[host(file)]).stdout == SECRET


def test_a_link_in_the_project_does_not_lead_out(bench: Bench) -> None:
    file = bench.tree.write("elsewhere/secret.txt", SECRET)
    link = bench.tree.project / "notes.txt"
    link.symlink_to(file)
    with pytest.raises(PermissionDenied):
        bench.run("cat inputs/notes.txt", inputs=[host(link)])


def test_a_pinned_artifact_stays_at_its_version(bench: Bench) -> None:
    """Case 75."""
    store = with_store(bench)
    for text in (b"v0", b"v1"):
        store.save(CHAT, "data.txt", text)
    given = [{"from": "artifact://data.txt", "to": "work/inputs/d.txt", "pin": True}]
    assert bench.tool("cat inputs/d.txt", inputs=given).data["stdout"] == "v1"
    store.save(CHAT, "data.txt", b"v2")
    assert bench.tool("cat inputs/d.txt", inputs=given).data["stdout"] == "v1"


def test_an_artifact_without_a_pin_is_the_newest(bench: Bench) -> None:
    """Case 75."""
    store = with_store(bench)
    given = [{"from": "artifact://data.txt"}]
    for text in ("v0", "v1"):
        store.save(CHAT, "data.txt", text.encode())
        assert bench.tool("cat inputs/data.txt", inputs=given).data["stdout"] == text


def test_a_version_can_be_named(bench: Bench) -> None:
    """Case 75."""
    store = with_store(bench)
    for text in (b"v0", b"v1"):
        store.save(CHAT, "data.txt", text)
    given = [{"from": "artifact://data.txt@0"}]
    assert bench.tool("cat inputs/data.txt", inputs=given).data["stdout"] == "v0"


def test_a_name_may_hold_an_at_sign(bench: Bench) -> None:
    """Case 76."""
    with_store(bench).save(CHAT, "a@b.txt", b"text")
    result = bench.tool("ls inputs", inputs=[{"from": "artifact://a@b.txt"}])
    assert result.data["stdout"] == "a@b.txt\n"


@pytest.mark.parametrize(
    "source", ["artifact://@0", "artifact://", "artifact://gone", "artifact://gone@7"]
)
def test_an_artifact_that_is_not_there_is_an_error(bench: Bench, source: str) -> None:
    """Case 76."""
    result = bench.tool("touch out/ran", inputs=[{"from": source}])
    assert "artifact" in result.error
    assert bench.run("ls out").stdout == ""


def test_without_a_store_no_artifact_can_be_an_input(bench: Bench) -> None:
    """Case 76."""
    bench.runtime = bench.open(artifacts_url="none")
    result = bench.tool("touch out/ran", inputs=[{"from": "artifact://a"}])
    assert result.error == "input 'artifact://a': there is no artifact store"
    assert bench.run("ls out").stdout == ""


@pytest.mark.parametrize("source", ["http://x", "https://x/y", "file:///etc/passwd", "notes.txt"])
def test_other_schemes_are_not_supported(bench: Bench, source: str) -> None:
    """Case 77."""
    assert bench.tool("true", inputs=[{"from": source}]).error == f"unsupported input: {source}"


def test_a_file_of_another_skill_can_be_an_input(bench: Bench) -> None:
    bench.tree.skill("project/.agents/skills/other", text="Its text.\n")
    given = [{"from": "skill://other/SKILL.md", "to": "work/inputs/"}]
    assert "Its text." in bench.tool("cat inputs/SKILL.md", inputs=given).text


def test_a_file_of_another_skill_is_as_it_is_now(bench: Bench) -> None:
    for text in ("old\n", "new\n"):
        bench.tree.skill("project/.agents/skills/other", text=text)
        given = ["skill://other/SKILL.md"]
        assert bench.run("tail -n1 inputs/SKILL.md", inputs=given).stdout == text


def test_the_skill_that_runs_stays_the_copy_that_was_asked_for(bench: Bench) -> None:
    bench.write("a.sh", "echo old\n")

    def ask(_: Pending) -> Answer:
        bench.write("a.sh", "echo new\n")
        return Answer("once")

    bench.runtime = bench.open(rules=[], ask=ask)
    command, inputs = "bash a.sh; cat inputs/a.sh", [f"skill://{SKILL}/a.sh"]
    with pytest.raises(RunRefused, match="changed while its run was asked for"):
        bench.run(command, inputs=inputs)
    assert bench.run(command, inputs=inputs).stdout == "new\necho new\n"


@pytest.mark.parametrize("name", ["hidden", "denied", "nowhere"])
def test_a_skill_that_the_model_may_not_see_is_no_input(bench: Bench, name: str) -> None:
    """Case 53."""
    for other in ("hidden", "denied"):
        bench.tree.skill(f"project/.agents/skills/{other}", text=SECRET)
    bench.runtime = bench.open(
        rules=[ALLOW, Rule("skill", "denied", "deny")],
        visible=lambda skill: skill.name != "hidden",
    )
    result = bench.tool("cat inputs/SKILL.md", inputs=[{"from": f"skill://{name}/SKILL.md"}])
    assert result.error == f"unknown skill: {name}"


# Outputs


@pytest.mark.parametrize("pattern", ["../*", "out/../../*", "/etc/*", "$OUTPUT_DIR/../../**"])
def test_a_pattern_does_not_lead_out(bench: Bench, pattern: str) -> None:
    """Case 78."""
    result = bench.run("echo a > out/a.txt", outputs=[pattern])
    assert result.output_files == ()
    assert any("collects nothing" in warning for warning in result.warnings)


@pytest.mark.parametrize("outputs", [["out/**"], {"globs": ["out/**"], "inline": True}, []])
def test_a_link_that_leads_out_is_not_collected(bench: Bench, outputs: Any) -> None:
    """Case 78."""
    secret = bench.tree.write("project/secret.txt", SECRET)
    links = f"ln -s {secret} out/a.txt; ln -s /etc out/b; ln -s /etc/passwd out/c"
    result = bench.run(f"{links}; echo mine > out/z.txt", outputs=outputs)
    names = [file.name for file in result.output_files]
    assert names == (["out/z.txt"] if outputs else [])
    assert result.primary_output is not None
    assert result.primary_output.name == "out/z.txt"


def test_no_more_files_than_wanted_are_collected(bench: Bench) -> None:
    """Case 79."""
    outputs = {"globs": ["out/*"], "max_files": 1}
    result = bench.run("echo a > out/a.txt; echo b > out/b.txt", outputs=outputs)
    assert [file.name for file in result.output_files] == ["out/a.txt"]
    assert result.limits_hit == ("max_output_files",)


def test_a_file_beyond_the_limit_is_cut_and_says_so(bench: Bench) -> None:
    """Case 79."""
    outputs = {"globs": ["out/*"], "max_file_bytes": 4, "inline": True}
    result = bench.run("printf 123456 > out/a.txt", outputs=outputs)
    [file] = result.output_files
    assert (file.content, file.size_bytes, file.truncated) == ("1234", 6, True)
    assert result.limits_hit == ("max_output_file_bytes",)


def test_a_file_that_was_cut_is_never_saved(bench: Bench) -> None:
    """Case 79."""
    store = with_store(bench)
    outputs = {"globs": ["out/*"], "max_file_bytes": 4, "save": True}
    result = bench.tool("printf 123456 > out/a.txt; printf 12 > out/b.txt", outputs=outputs)
    assert "'out/a.txt' was not saved" in result.error
    assert json.loads(result.text)["errors"] == [result.error]
    assert [artifact.name for artifact in store.latest(CHAT)] == ["out/b.txt"]


def test_without_a_store_files_are_given_and_the_result_says_why(bench: Bench) -> None:
    """Case 80."""
    bench.runtime = bench.open(artifacts_url="none")
    result = bench.tool("echo a > out/a.txt", output_files=["out/*"], save_as_artifacts=True)
    assert not result.error
    document = json.loads(result.text)
    assert document["output_files"][0]["content"] == "a\n"
    assert "the files were not saved: there is no artifact store" in document["warnings"]
    assert "artifact_files" not in document


def test_without_a_store_no_artifact_can_be_read(bench: Bench) -> None:
    """Case 80."""
    bench.runtime = bench.open(artifacts_url="none")
    assert "there is no artifact store" in bench.call("read_file", file_name="artifact://a").error


def test_a_store_that_the_host_gives_counts_more_than_none(bench: Bench) -> None:
    store = MemoryArtifacts()
    bench.runtime = bench.open(artifacts_url="none", artifacts=store)
    result = bench.run("echo a > out/a.txt", outputs=["out/*"], save_as_artifacts=True)
    assert result.artifact_files == (("out/a.txt", 0),)


def test_the_bytes_of_an_artifact_are_those_of_the_file(bench: Bench) -> None:
    """Case 81."""
    bench.write("all.bin", EVERY_BYTE)
    store = with_store(bench)
    result = bench.tool("cp all.bin out/", output_files=["out/*"], save_as_artifacts=True)
    document = json.loads(result.text)
    assert document["artifact_files"] == [{"name": "out/all.bin", "version": 0}]
    assert document["output_files"][0]["content"] == ""
    assert read(store, CHAT, "out/all.bin")[1] == EVERY_BYTE


def test_an_artifact_goes_into_the_next_run_as_it_came_out(bench: Bench) -> None:
    """Case 81."""
    bench.write("all.bin", EVERY_BYTE)
    bench.run("cp all.bin out/", outputs={"globs": ["out/*"], "save": True, "name_template": "x/"})
    result = bench.run("cmp all.bin inputs/all.bin", inputs=["artifact://x/out/all.bin@0"])
    assert result.exit_code == 0, result.stderr


def test_the_default_store_keeps_what_another_process_reads(bench: Bench) -> None:
    """Case 81."""
    bench.run("echo kept > out/a.txt", outputs=["out/*"], save_as_artifacts=True)
    bench.runtime = bench.open()
    assert bench.read("artifact://out/a.txt@0") == "kept\n"


def test_another_conversation_has_other_artifacts(bench: Bench) -> None:
    bench.run("echo a > out/a.txt", outputs=["out/*"], save_as_artifacts=True)
    with pytest.raises(ArtifactError, match="there is no artifact"):
        bench.run("true", chat="other", inputs=["artifact://out/a.txt"])


def test_a_pattern_is_no_reference(bench: Bench) -> None:
    with pytest.raises(RunRefused, match="is a URI"):
        bench.run("true", outputs=["workspace://out/*"])
    assert SKILL not in bench.run("ls out").stdout


# As an ordinary user


def test_an_ordinary_user_gives_and_keeps_files(bench: Bench) -> None:
    """Case 73."""
    file = bench.tree.write("project/notes.txt", "text\n")
    document = bench.as_user(
        f"given = [{{'from': 'host://{file}', 'to': 'work/inputs/n.txt'}}]\n"
        "save = {'outputs': ['out/*'], 'save_as_artifacts': True}\n"
        "result = run('cp inputs/n.txt out/; ls -A work/inputs', inputs=given, **save)\n"
        "json.dump(result.document(), sys.stdout)"
    )
    assert document["stdout"] == "n.txt\n"
    assert document["artifact_files"] == [{"name": "out/n.txt", "version": 0}]


def test_a_link_of_an_ordinary_user_is_not_collected(bench: Bench) -> None:
    """Case 78."""
    bench.tree.write("project/secret.txt", SECRET)
    command = f"ln -s {bench.tree.project}/secret.txt out/a.txt"
    document = bench.as_user(
        f"json.dump(run({command!r}, outputs=['out/*']).document(), sys.stdout)"
    )
    assert document["exit_code"] == 0
    assert document["output_files"] == []
