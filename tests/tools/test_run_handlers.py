"""The tools that run commands: their arguments, their results, and the files they leave."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skillbelt.artifacts import Artifact
from skillbelt.artifacts.memory import MemoryArtifacts
from skillbelt.errors import RunRefused
from skillbelt.running.inputs import skills_named
from skillbelt.tools.run_handlers import run_call
from tests.benches import FOLDER, SKILL, Bench

LONE = "\ud800"  # half of a character: JSON can write it, nothing else can


# Arguments


def test_every_argument_has_its_place_in_the_call() -> None:
    call = run_call(
        {
            "skill": SKILL,
            "command": "ls",
            "cwd": "work",
            "env": {"A": "1"},
            "timeout": 7,
            "inputs": [{"from": "artifact://a"}],
            "output_files": ["out/*"],
            "outputs": {"globs": ["out/**"]},
            "save_as_artifacts": True,
            "artifact_prefix": "p/",
            "omit_inline_content": True,
            "stdin": "é",
            "editor_text": "text",
            "terminal": True,
            "output_dir": "/etc",
            "all_outputs": True,
            "secrets": ["A_KEY"],
        }
    )
    assert call == (
        "ls",
        "work",
        {"A": "1"},
        7.0,
        ({"from": "artifact://a"},),
        ("out/*",),
        {"globs": ["out/**"]},
        True,
        "p/",
        True,
        "é".encode(),
        "text",
        True,
        "",  # only a user copies files to the host
        False,
        (),  # only a user names secrets
        (),  # a model names packages in its command
        True,
    )


def test_what_is_not_given_is_the_default() -> None:
    call = run_call({"skill": SKILL, "command": "ls"})
    assert (call.cwd, call.timeout_seconds, call.outputs, call.stdin) == ("", 0.0, None, b"")
    assert call.editor_text is None


@pytest.mark.parametrize("command", ["", " \n\t"])
def test_a_blank_command_is_refused(command: str) -> None:
    with pytest.raises(RunRefused, match="skill and command are required"):
        run_call({"skill": SKILL, "command": command})


@pytest.mark.parametrize("value", [1, None, ["a"], True])
def test_a_variable_is_text(value: object) -> None:
    with pytest.raises(RunRefused, match="env: A must be text"):
        run_call({"skill": SKILL, "command": "ls", "env": {"A": value}})


def test_the_skills_that_a_call_takes_files_of() -> None:
    inputs = [{"from": "skill://a/x"}, {"from": "skill://b"}, {"from": "host:///skill://c"}, {}]
    assert skills_named(inputs) == ["a", "b"]
    copies = ["workspace://skills/a/x", "workspace://./skills/b", "workspace://work/skills/c"]
    assert skills_named([{"from": one} for one in copies]) == ["a", "b"]
    assert skills_named(None) == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": LONE},
        {"command": "true\0"},
        {"command": "x" * 200_000},
        {"env": {LONE: "x"}},
        {"env": {"A": LONE}},
        {"env": {"A=B": "x"}},
        {"env": {"A": "\0"}},
        {"timeout": 10**400},
        {"inputs": [{}]},
        {"inputs": [{"from": 1}]},
        {"inputs": [{"from": "workspace://" + LONE}]},
        {"inputs": [{"from": "workspace://a\0b"}]},
        {"inputs": [{"from": "skill://" + LONE + "/a"}]},
        {"inputs": [{"from": "skill://"}]},
        {"inputs": [{"from": "artifact://" + LONE}]},
        {"inputs": [{"from": "host:///" + LONE}]},
        {"inputs": [{"from": f"skill://{SKILL}/SKILL.md", "to": LONE}]},
        {"inputs": [{"from": f"skill://{SKILL}/SKILL.md", "to": "work/" + "a" * 300}]},
        {"inputs": [{"from": f"skill://{SKILL}/SKILL.md", "mode": "move"}]},
        {"outputs": {"globs": "out/*"}},
        {"outputs": {"glob": []}},
        {"outputs": {"max_files": -1}},
        {"output_files": ["{" * 5000]},
        {"editor_text": "x", "env": {"EDITOR": "vi"}},
    ],
    ids=lambda given: repr(given)[:40],
)
def test_what_is_not_accepted_is_told_and_nothing_runs(
    bench: Bench, arguments: dict[str, Any]
) -> None:
    result = bench.call("skill_run", **{"skill": SKILL, "command": "touch out/ran", **arguments})
    assert result.error
    assert str(bench.tree.root) not in result.error
    assert bench.run("ls out").stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        {"cwd": LONE},
        {"cwd": "work/\0"},
        {"cwd": "/work/" + "a" * 5000},
        {"cwd": "/work/" + "a/" * 500},
        {"stdin": LONE},
        {"editor_text": LONE},
        {"output_files": [LONE]},
        {"output_files": ["out/\0"]},
        {"artifact_prefix": LONE},
    ],
    ids=lambda given: repr(given)[:40],
)
def test_what_is_merely_odd_does_no_harm(bench: Bench, arguments: dict[str, Any]) -> None:
    result = bench.tool("echo ran", **arguments)
    assert json.loads(result.text)["stdout"] == "ran\n"


# Results


def test_a_model_does_not_read_what_was_enforced_and_its_host_does(bench: Bench) -> None:
    result = bench.tool("true")
    assert "enforced" not in json.loads(result.text)
    assert "network" in str(result.data["enforced"])


def test_a_model_reads_letters_as_they_are(bench: Bench) -> None:
    assert '"stdout": "grüße 你好\\n"' in bench.tool("echo grüße 你好").text


def test_what_is_no_text_is_shown_as_far_as_it_is(bench: Bench) -> None:
    result = bench.tool(r"printf 'a\xffb\0c'; head -c 100 /dev/urandom >&2")
    document = json.loads(result.text)
    assert document["stdout"] == "a\ufffdb\0c"
    document["stderr"].encode()


def test_what_could_not_be_saved_is_an_error_with_the_result(bench: Bench) -> None:
    arguments = {"output_files": ["out/*"], "save_as_artifacts": True, "artifact_prefix": "\n"}
    result = bench.tool("echo a > out/a.txt; exit 3", **arguments)
    assert "'out/a.txt' was not saved" in result.error
    assert json.loads(result.text)["exit_code"] == 3


class _UnreachableArtifacts(MemoryArtifacts):
    def save(self, *_: Any) -> Artifact:
        raise ConnectionError("the bucket cannot be reached")


def test_the_result_of_a_run_survives_a_store_that_fails(bench: Bench) -> None:
    bench.runtime = bench.open(artifacts=_UnreachableArtifacts())
    arguments = {"output_files": ["out/*"], "save_as_artifacts": True}
    result = bench.tool("echo a > out/a.txt; echo done", **arguments)
    assert "'out/a.txt' was not saved: the artifact store failed" in result.error
    assert "the bucket cannot be reached" in result.error
    assert json.loads(result.text)["stdout"] == "done\n"


# In the background


def test_a_run_in_the_background_is_read_by_its_id(bench: Bench) -> None:
    begun = bench.tool("echo ran; exit 3", background=True)
    assert begun.data["running"] is True
    polled = bench.call("skill_poll", run_id=begun.data["run_id"], wait=20)
    while json.loads(polled.text)["running"]:
        polled = bench.call("skill_poll", run_id=begun.data["run_id"], wait=20)
    document = json.loads(polled.text)["result"]
    assert (document["exit_code"], document["stdout"]) == (3, "ran\n")


def test_a_run_that_does_not_exist_can_not_be_read(bench: Bench) -> None:
    assert bench.call("skill_poll", run_id="nothing").error


def test_a_run_in_the_background_is_asked_for(bench: Bench) -> None:
    bench.runtime = bench.open(rules=[])
    begun = bench.tool("touch out/ran", background=True)
    if not begun.error:
        begun = bench.call("skill_poll", run_id=begun.data["run_id"], wait=20)
    assert "ermission" in begun.error
    bench.runtime = bench.open()
    assert bench.run("ls out").stdout == ""


# Reading what was left


def test_a_file_of_the_workspace_is_read_in_pieces(bench: Bench) -> None:
    bench.run("seq 1 9 > out/n.txt")
    result = bench.call("read_file", file_name="workspace://out/n.txt", start_line=3, num_lines=2)
    assert result.text == "(line 3 on, of 9; next: start_line 5)\n3\n4\n"


@pytest.mark.parametrize(
    "name", ["out/a.txt", "work/a.txt", "work/inputs/a.txt", "inputs/a.txt", "$RUN_DIR/a.txt"]
)
def test_a_file_is_read_wherever_a_run_may_leave_it(bench: Bench, name: str) -> None:
    place = name.replace("inputs/", "work/inputs/") if name.startswith("inputs/") else name
    command = f"cd $WORKSPACE_DIR; echo text > {place}; echo -n ${{RUN_DIR#$WORKSPACE_DIR/}}"
    own = bench.run(command).stdout
    assert bench.read(f"workspace://{name.replace('$RUN_DIR', own)}") == "text\n"


def test_a_file_of_the_skill_that_a_run_gave_is_read_by_its_reference(bench: Bench) -> None:
    given = bench.tool("true", output_files=[f"skills/{SKILL}/SKILL.md"])
    [file] = json.loads(given.text)["output_files"]
    assert bench.read(file["ref"]) == file["content"]


def test_a_staged_file_is_for_those_who_may_have_the_skill(bench: Bench) -> None:
    bench.tree.skill(f"{FOLDER.removesuffix(SKILL)}other")
    bench.run("true")
    hidden = bench.open(visible=lambda skill: skill.name != SKILL).session("ada", "chat")
    arguments = {"file_name": f"workspace://skills/{SKILL}/SKILL.md"}
    assert hidden.call_sync("read_file", arguments).error == f"unknown skill: {SKILL}"
    given = {"skill": "other", "command": "true"}
    inputs = [{"from": f"workspace://skills/{SKILL}/SKILL.md"}]
    assert hidden.call_sync("skill_run", given | {"inputs": inputs}).error == (
        f"unknown skill: {SKILL}"
    )


@pytest.mark.parametrize("name", ["out/a.txt", "./out/a.txt", "inputs/a.txt", "inputs/out/a.txt"])
def test_a_file_of_the_workspace_is_read_by_its_path(bench: Bench, name: str) -> None:
    bench.run("echo text | tee out/a.txt > inputs/a.txt")
    assert bench.read(name) == "text\n"


@pytest.mark.parametrize("scheme", ["skill://", "workspace://skills/"])
def test_a_link_to_the_copy_of_another_skill_leads_there(bench: Bench, scheme: str) -> None:
    bench.tree.skill(f"{FOLDER.removesuffix(SKILL)}other")
    bench.run("true")
    inputs = [{"from": f"{scheme}{SKILL}/SKILL.md", "mode": "link"}]
    given = bench.call(
        "skill_run", skill="other", command="grep name: inputs/SKILL.md", inputs=inputs
    )
    assert given.data["stdout"] == f"name: {SKILL}\n"


def test_no_link_of_a_run_leads_read_file_beside_the_folder_it_is_in(bench: Bench) -> None:
    """Such as the metadata of the workspace, or the copy of a skill that is denied."""
    bench.run("ln -s .. out/up; ln -s ../work out/work; echo text > work/a.txt")
    for name in ("out/up/metadata.json", "out/up/out/a.txt", "out/work/a.txt"):
        refused = bench.call("read_file", file_name=name)
        assert refused.error == f"{name!r} refused: is a link that leads out of the folder"


def test_a_link_of_a_run_inside_its_folder_is_read(bench: Bench) -> None:
    bench.run("echo text > out/a-1.txt; ln -s a-1.txt out/a.txt")
    assert bench.read("out/a.txt") == "text\n"
    assert bench.read(f"skills/{SKILL}/out/a.txt") == "text\n"


def test_a_large_file_and_artifact_are_read_in_pieces(bench: Bench) -> None:
    bench.run("seq 400000 > out/n.txt", outputs=["out/*"], save_as_artifacts=True)
    for name in ("workspace://out/n.txt", "artifact://out/n.txt"):
        result = bench.call("read_file", file_name=name, start_line=399_998, num_lines=2)
        expected = "(line 399998 on, of 400000; next: start_line 400000)\n399998\n399999\n"
        assert result.text == expected


def test_a_file_too_large_to_count_its_lines_is_read_in_pieces(bench: Bench) -> None:
    bench.run("yes 123456789 | head -c 17000000 > out/n.txt")
    result = bench.call("read_file", file_name="out/n.txt", start_line=3, num_lines=1)
    assert result.text == "(line 3 on; next: start_line 4)\n123456789\n"


def test_a_line_too_long_for_an_answer_is_read_in_pieces(bench: Bench) -> None:
    bench.run("{ head -c 20000 /dev/zero | tr '\\0' x; echo end; } > out/line.txt")
    first = bench.call("read_file", file_name="out/line.txt")
    assert "next: start_line 1, start_char 12001)\n" in first.text
    last = bench.call("read_file", file_name="out/line.txt", start_line=1, start_char=12_001)
    assert last.text == f"(line 1 on, of 1; this is the end)\n{'x' * 8000}end\n"


def test_an_artifact_that_was_damaged_is_not_given(bench: Bench) -> None:
    bench.run("echo text > out/a.txt", outputs=["out/*"], save_as_artifacts=True)
    [blob] = [path for path in bench.tree.root.rglob("blobs/*/*") if path.is_file()]
    blob.chmod(0o600)
    blob.write_text("tex!\n")
    refused = bench.call("read_file", file_name="artifact://out/a.txt")
    assert "was damaged since it was saved" in refused.error


def test_a_call_that_asks_for_too_much_is_told_of_the_setting(bench: Bench) -> None:
    belt = bench.open(run_timeout_seconds=50, max_output_file_bytes=5000)
    session = belt.session("ada", "chat")
    outputs = {"globs": ["out/*"], "max_file_bytes": 6000, "save": True}
    arguments = {"skill": SKILL, "command": "seq 2000 > out/n", "timeout": 60, "outputs": outputs}
    result = session.call_sync("skill_run", arguments)
    warnings = json.loads(result.text)["warnings"]
    lowered = "timeout was lowered from 60 to 50 seconds, the maximum: run_timeout_seconds"
    assert any(lowered in one for one in warnings)
    lowered = "max_file_bytes was lowered from 6,000 to 5,000, the maximum: max_output_file_bytes"
    assert any(lowered in one for one in warnings)
    assert "max_output_file_bytes of the settings is the maximum" in result.error


def test_a_call_may_ask_for_larger_files(bench: Bench) -> None:
    command = "head -c 5000000 /dev/zero > out/b.bin"
    refused = bench.tool(command, outputs={"globs": ["out/*"], "save": True})
    assert "ask for more with outputs.max_file_bytes, up to 67,108,864" in refused.error
    outputs = {"globs": ["out/*"], "save": True, "max_file_bytes": 6_000_000}
    assert bench.tool(command, outputs=outputs).data["artifact_files"]


def test_outputs_that_are_not_inline_are_nowhere_in_the_answer(bench: Bench) -> None:
    outputs = {"globs": ["out/*"], "inline": False}
    result = bench.tool("echo needle > out/a.txt", outputs=outputs)
    assert "needle" not in result.text


def test_saving_without_patterns_says_that_nothing_was_saved(bench: Bench) -> None:
    result = bench.tool("echo text > out/a.txt", save_as_artifacts=True)
    assert "nothing was saved" in json.loads(result.text)["warnings"][0]


def test_a_folder_of_the_skill_that_a_run_cannot_see_is_told(bench: Bench) -> None:
    bench.write("out/own.txt", "x")
    said = json.loads(bench.tool("true").text)["warnings"]
    assert said == [
        "'out' is hidden in a run: the workspace has its own there; give it another name"
    ]


def test_the_primary_output_is_of_this_run(bench: Bench) -> None:
    bench.tool("echo old > out/a.txt")
    result = json.loads(bench.tool("echo new > out/b.txt").text)
    assert result["primary_output"]["content"] == "new\n"
    assert "primary_output" not in json.loads(bench.tool("true").text)
    changed = json.loads(bench.tool("echo more >> out/a.txt").text)
    assert changed["primary_output"]["content"] == "old\nmore\n"


def test_an_artifact_is_read_in_the_version_that_is_named(bench: Bench) -> None:
    for text in ("old", "new"):
        bench.run(f"echo {text} > out/a.txt", outputs=["out/*"], save_as_artifacts=True)
    assert bench.read("artifact://out/a.txt") == "new\n"
    assert bench.read("artifact://out/a.txt@0") == "old\n"


@pytest.mark.parametrize(
    "name",
    [
        "workspace://../../../../etc/passwd",
        "workspace:///etc/passwd",
        "workspace://out/../metadata.json",
        "workspace://metadata.json",
        "workspace://private",
        "workspace://",
        "workspace://out",
        "workspace://out/link",
        "workspace://out/folder/passwd",
        "workspace://out/pipe",
        "workspace://out/binary",
        "workspace://out/gone",
        "workspace://out/a\0b",
        f"workspace://out/{LONE}",
        "artifact://",
        "artifact://gone",
        f"artifact://{LONE}",
    ],
)
def test_nothing_else_can_be_read(bench: Bench, name: str) -> None:
    bench.run(
        "ln -s /etc/passwd out/link; ln -s /etc out/folder; mkfifo out/pipe;"
        "printf 'a\\0b' > out/binary; head -c 3000000 /dev/zero | tr '\\0' x > out/large",
        outputs=["out/large"],
        save_as_artifacts=True,
    )
    result = bench.call("read_file", file_name=name)
    assert result.error
    assert "root:" not in result.text
    assert str(bench.tree.root) not in result.text


def test_another_conversation_reads_nothing_of_it(bench: Bench) -> None:
    bench.run("echo secret > out/a.txt", chat="other", outputs=["out/*"], save_as_artifacts=True)
    for name in ("workspace://out/a.txt", "artifact://out/a.txt"):
        assert bench.call("read_file", file_name=name).error
