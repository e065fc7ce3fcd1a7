"""What the acceptance cases say about a run: its result, its time, its place."""

from __future__ import annotations

import json
import os
import stat
import uuid

import pytest

from skillbelt import Rule
from skillbelt.errors import RunRefused, SkillNotFound
from skillbelt.running.call import Asker, RunCall
from skillbelt.store import SessionKey
from tests.benches import GUARDING, SKILL, Bench, alive, need

KIB = 2**10
STREAM = 16 * KIB
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))


def one_file(bench: Bench, pattern: str) -> None:
    result = bench.tool("echo hi > out/a.txt", output_files=[pattern])
    assert not result.error
    [file] = json.loads(result.text)["output_files"]
    assert file == {
        "name": "out/a.txt",
        "ref": "workspace://out/a.txt",
        "content": "hi\n",
        "mime_type": "text/plain",
        "size_bytes": 3,
        "truncated": False,
    }


def test_an_output_comes_with_its_text_and_its_reference(bench: Bench) -> None:
    """Case 56."""
    one_file(bench, "out/*.txt")


@pytest.mark.parametrize("pattern", ["$OUTPUT_DIR/*.txt", "${OUTPUT_DIR}/*.txt"])
def test_a_pattern_may_begin_with_a_variable(bench: Bench, pattern: str) -> None:
    """Case 57."""
    one_file(bench, pattern)


def test_without_outputs_the_first_text_is_the_primary_one(bench: Bench) -> None:
    """Case 58."""
    bench.write("plot.png", PNG)
    result = bench.run(
        "mkdir out/c; echo deep > out/c/z.txt; echo second > out/d.txt; cp plot.png out/a.png;"
        "echo ' ' > out/b.txt"
    )
    assert result.output_files == ()
    assert result.primary_output is not None
    assert result.primary_output.name == "out/c/z.txt"
    assert result.primary_output.content == "deep\n"


def test_a_stream_is_cut_at_sixteen_kib(bench: Bench) -> None:
    """Case 59."""
    result = bench.run(f"head -c {STREAM + 1} /dev/zero | tr '\\0' x")
    assert result.stdout == "x" * STREAM
    assert result.warnings == ("stdout truncated",)


def test_sixteen_kib_are_not_cut(bench: Bench) -> None:
    """Case 59."""
    result = bench.run(f"head -c {STREAM} /dev/zero | tr '\\0' x >&2")
    assert result.stderr == "x" * STREAM
    assert result.warnings == ()


@pytest.mark.parametrize(("character", "blanks"), [("é", 1), ("€", 0), ("😀", 3)])
def test_a_stream_is_cut_between_two_characters(bench: Bench, character: str, blanks: int) -> None:
    """Case 59."""
    bench.write("scripts/say.py", f"print({'-' * blanks!r} + {character!r} * {STREAM})\n")
    result = bench.run("python3 scripts/say.py >&2")
    size = len(character.encode())
    whole = (STREAM - blanks) // size
    assert result.stderr == "-" * blanks + character * whole
    assert STREAM - size < len(result.stderr.encode()) < STREAM
    assert result.warnings == ("stderr truncated",)


def test_a_picture_comes_without_content(bench: Bench) -> None:
    """Case 60."""
    bench.write("plot.png", PNG)
    result = bench.run("cp plot.png out/", outputs=["out/*"])
    [file] = result.output_files
    assert (file.mime_type, file.content, file.size_bytes) == ("image/png", "", len(PNG))
    assert file.ref == "workspace://out/plot.png"


def test_the_content_of_a_text_can_be_left_out(bench: Bench) -> None:
    """Case 60."""
    result = bench.run("echo text > out/a.txt", outputs=["out/*"], omit_inline_content=True)
    [file] = result.output_files
    assert (file.content, file.size_bytes, file.ref) == ("", 5, "workspace://out/a.txt")
    assert result.primary_output is not None
    assert result.primary_output.content == ""


def test_a_command_that_fails_is_a_result(bench: Bench) -> None:
    """Case 61."""
    result = bench.tool("echo printed; echo wrong >&2; exit 3")
    assert not result.error
    document = json.loads(result.text)
    assert document["exit_code"] == 3
    assert (document["stdout"], document["stderr"]) == ("printed\n", "wrong\n")


def test_a_program_that_is_not_there_is_a_result(bench: Bench) -> None:
    """Case 61."""
    result = bench.run(["no-such-program", "x"])
    assert result.exit_code == 127
    assert "no-such-program" in result.stderr


def test_what_a_failed_redirection_left_is_omitted(bench: Bench) -> None:
    """Case 62."""
    result = bench.run("echo kept > out/full.txt; false > out/empty.txt", outputs=["out/*.txt"])
    assert result.exit_code == 1
    assert [file.name for file in result.output_files] == ["out/full.txt"]
    assert any("'out/empty.txt' is left out" in warning for warning in result.warnings)


def test_an_empty_file_of_a_command_that_went_well_is_kept(bench: Bench) -> None:
    """Case 62."""
    result = bench.run("true > out/empty.txt", outputs=["out/*.txt"])
    assert [file.size_bytes for file in result.output_files] == [0]


def nap() -> str:
    """A time to sleep that no other process has: a word to find its own by."""
    return f"30.{uuid.uuid4().int % 10**12:012}"


@pytest.mark.parametrize("sandbox", GUARDING)
@pytest.mark.parametrize(
    "command",
    [
        "sleep {}",
        "sleep {} & sleep {} & wait",
        "setsid sleep {} & wait",
        "(setsid setsid sleep {} > /dev/null 2>&1 &) ; sleep {}",
    ],
)
def test_a_run_that_takes_too_long_leaves_nobody_behind(
    bench: Bench, command: str, sandbox: str
) -> None:
    """Case 63."""
    need(sandbox)
    mark = nap()
    bench.runtime = bench.open(sandbox=sandbox)
    result = bench.run(command.replace("{}", mark), timeout_seconds=1)
    assert result.timed_out
    assert result.duration_ms < 30_000
    assert result.exit_code == 124
    assert alive(mark) == []


@pytest.mark.parametrize("sandbox", GUARDING)
def test_no_call_reaches_into_the_folder_of_another(bench: Bench, sandbox: str) -> None:
    """In some sandboxes it is the home of a command, which takes its settings from there."""
    need(sandbox)
    bench.runtime = bench.open(sandbox=sandbox)
    first = bench.run("echo kept > $RUN_DIR/log; echo -n $RUN_DIR").stdout
    tries = ("cat {0}/log", "echo x >> {0}/log", "echo x > {0}/.bash_profile", "rm {0}/log",
             "mv {0} {0}-x", "mkdir $RUN_DIR/../more", "echo x > $RUN_DIR/../more")  # fmt: skip
    command = "; ".join(f"({one.format(first)}) && echo done" for one in tries)
    assert bench.run(command).stdout == ""
    assert bench.read(f"workspace://runs/{first.rpartition('/')[2]}/log") == "kept\n"
    assert bench.run("echo x > $RUN_DIR/a && cat $RUN_DIR/a").stdout == "x\n"


@pytest.mark.parametrize("sandbox", GUARDING)
def test_git_works_whatever_the_machine_sets_for_it(bench: Bench, sandbox: str) -> None:
    """Its file in /etc is not there to be read, which is fatal to git where the file exists."""
    need(sandbox)
    bench.runtime = bench.open(sandbox=sandbox)
    done = bench.run("cd $RUN_DIR && git init -q new && git -C new status --short")
    assert (done.exit_code, done.stderr) == (0, "")


def test_what_is_left_in_the_background_ends_with_the_command(bench: Bench) -> None:
    """Case 63."""
    mark = nap()
    assert bench.run(f"(setsid sleep {mark} > /dev/null 2>&1 &); true").exit_code == 0
    assert alive(mark) == []


@pytest.mark.parametrize("sandbox", GUARDING)
def test_a_child_that_ignores_the_polite_signal_dies_too(bench: Bench, sandbox: str) -> None:
    """Case 64."""
    need(sandbox)
    mark = nap()
    bench.runtime = bench.open(sandbox=sandbox)
    command = f"trap '' TERM INT HUP; while :; do sleep {mark}; done"
    result = bench.run(command, timeout_seconds=1)
    assert result.timed_out
    assert result.duration_ms < 30_000
    assert alive(mark) == []


@pytest.mark.parametrize(
    ("cwd", "place"),
    [
        ("", "skills/kit"),
        ("../../..", "skills/kit"),
        ("..\\..", "skills/kit"),
        ("/etc", "skills/kit"),
        ("/work", "work"),
        ("/", ""),
        ("${OUTPUT_DIR}/x", "out/x"),
        ("$WORK_DIR/inputs", "work/inputs"),
        ("scripts", "skills/kit/scripts"),
    ],
)
def test_where_a_command_runs(bench: Bench, cwd: str, place: str) -> None:
    """Case 65."""
    bench.write("scripts/a.sh")
    result = bench.run('echo "$WORKSPACE_DIR"; echo "$PWD"', cwd=cwd)
    workspace, found = result.stdout.splitlines()
    assert found == os.path.normpath(os.path.join(workspace, place))


def test_a_folder_that_the_skill_does_not_have_is_refused(bench: Bench) -> None:
    with pytest.raises(RunRefused, match="cannot run in 'skills/kit/nowhere'"):
        bench.run("true", cwd="nowhere")


@pytest.mark.parametrize("cwd", ["$RUN_DIR", "${RUN_DIR}"])
def test_a_command_can_run_in_the_folder_of_the_run(bench: Bench, cwd: str) -> None:
    """Case 66."""
    result = bench.run('test "$PWD" = "$RUN_DIR" && touch here && ls', cwd=cwd)
    assert (result.exit_code, result.stdout) == (0, "here\n")


def test_the_calls_of_a_conversation_share_their_files(bench: Bench) -> None:
    """Case 67."""
    bench.run("echo first > work/a.txt; echo first > out/b.txt")
    assert bench.run("cat work/a.txt out/b.txt").stdout == "first\nfirst\n"


def test_another_conversation_sees_nothing_of_them(bench: Bench) -> None:
    """Case 67."""
    bench.run("echo first > work/a.txt; echo first > out/b.txt; echo first > $RUN_DIR/c.txt")
    found = bench.run("cd $WORKSPACE_DIR; find work out runs -type f", chat="other")
    assert (found.exit_code, found.stdout) == (0, "")


def test_what_lies_in_the_folder_of_a_skill(bench: Bench) -> None:
    """Case 68."""
    result = bench.run(
        "for f in out work inputs; do readlink $f; done; test -d .venv -a ! -L .venv"
    )
    assert (result.exit_code, result.stdout) == (0, "../../out\n../../work\n../../work/inputs\n")


def test_a_skill_can_not_change_its_own_files(bench: Bench) -> None:
    """Case 68."""
    before = (bench.skill / "SKILL.md").read_bytes()
    tries = ["echo x >> SKILL.md", "rm -f SKILL.md", "mv SKILL.md x", "echo x > new", "chmod u+w ."]
    for command in tries:
        assert bench.run(command).exit_code != 0, command
    assert bench.run("cat SKILL.md").stdout == before.decode()
    assert (bench.skill / "SKILL.md").read_bytes() == before
    assert os.listdir(bench.skill) == ["SKILL.md"]


def test_the_source_of_a_skill_is_left_as_it_is(bench: Bench) -> None:
    """Case 68."""
    file = bench.write("scripts/a.sh", "#!/bin/sh\necho ran\n")
    before = os.stat(file)
    assert bench.run("scripts/a.sh").stdout == "ran\n"
    after = os.stat(file)
    assert (after.st_mtime_ns, after.st_ctime_ns) == (before.st_mtime_ns, before.st_ctime_ns)
    assert stat.S_IMODE(after.st_mode) == 0o755


def test_a_program_that_a_run_left_is_not_taken_for_one_of_the_system(bench: Bench) -> None:
    """Case 69."""
    script = "printf '#!/bin/sh\\necho mine\\n' > .venv/bin/date; chmod +x .venv/bin/date"
    assert bench.run(f"mkdir .venv/bin; {script}").exit_code == 0
    assert bench.run("date").stdout != "mine\n"
    assert bench.run(".venv/bin/date").stdout == "mine\n"


def test_a_program_of_the_skill_comes_after_that_of_the_system(bench: Bench) -> None:
    """Case 69."""
    for name in ("date", "kit-tool"):
        bench.write(f"bin/{name}", "#!/bin/sh\necho mine\n")
    assert bench.run("kit-tool").stdout == "mine\n"
    assert bench.run("date").stdout != "mine\n"


def test_the_command_reads_what_it_is_given(bench: Bench) -> None:
    """Case 70."""
    document = json.loads(bench.tool("wc -c; echo read", stdin="grüße\n").text)
    assert document["stdout"].split() == ["8", "read"]


def test_without_input_there_is_none(bench: Bench) -> None:
    """Case 70."""
    assert bench.tool("cat; echo end").data["stdout"] == "end\n"


def test_an_editor_writes_the_text(bench: Bench) -> None:
    """Case 70."""
    text = "subject: it's $HOME\n\n`date` \\n\n"
    given = bench.tool("echo old > work/m; $EDITOR work/m; cat work/m", editor_text=text)
    assert given.data["stdout"] == text
    assert given.data["exit_code"] == 0


@pytest.mark.parametrize("name", ["EDITOR", "VISUAL"])
def test_an_editor_is_not_set_twice(bench: Bench, name: str) -> None:
    """Case 70."""
    given = bench.tool("touch out/ran", editor_text="x", env={name: "vi"})
    assert given.error == f"editor_text sets {name}; leave it out of env"
    assert bench.run("ls out").stdout == ""


def test_a_skill_is_loaded_before_it_is_run(bench: Bench) -> None:
    """Case 71."""
    bench.runtime = bench.open(require_load=True)
    refused = bench.tool("true")
    assert refused.error == f'skill_run requires skill_load first for "{SKILL}"'
    assert bench.call("skill_load", skill=SKILL).text == f"loaded: {SKILL}"
    assert bench.tool("true").data["exit_code"] == 0


def test_what_is_put_away_is_loaded_again_before_it_is_run(bench: Bench) -> None:
    """Case 71."""
    bench.runtime = bench.open(require_load=True)
    bench.call("skill_load", skill=SKILL)
    bench.call("skill_unload", skill=SKILL)
    assert "requires skill_load first" in bench.tool("true").error


@pytest.mark.parametrize("name", ["../evil", "..", "a/b", "/evil", ""])
def test_a_name_that_leads_out_is_not_staged(bench: Bench, name: str) -> None:
    """Case 72."""
    skill = bench.runtime.get_skill(SKILL)._replace(name=name)
    who = Asker(SessionKey("skillbelt", "ada", "chat"), "user")
    with pytest.raises(RunRefused, match="is not a name for a skill"):
        bench.runtime.workbench.run(skill, RunCall("true"), who)
    assert {path.name for path in bench.tree.root.glob("**/evil")} == set()


def test_a_skill_that_says_such_a_name_has_that_of_its_folder(bench: Bench) -> None:
    """Case 72."""
    bench.tree.skill("project/.agents/skills/evil", name="../evil")
    with pytest.raises(SkillNotFound):
        bench.runtime.run_sync("../evil", "true")
    assert bench.call("skill_run", skill="../evil", command="true").error == (
        "unknown skill: ../evil"
    )
    result = bench.runtime.run_sync("evil", 'test "$PWD" = "$SKILLS_DIR/evil"')
    assert result.exit_code == 0


# As an ordinary user


def test_an_ordinary_user_runs_a_command(bench: Bench) -> None:
    """Case 56."""
    document = bench.as_user(
        'result = run("id -u; echo hi > out/a.txt", outputs=["out/*.txt"])\n'
        "json.dump([os.getuid(), result.document()], sys.stdout)"
    )
    uid, result = document
    assert uid != 0
    assert result["stdout"] == f"{uid}\n"
    assert result["output_files"][0]["content"] == "hi\n"


def test_a_run_of_an_ordinary_user_leaves_nobody_behind(bench: Bench) -> None:
    """Case 63."""
    mark = nap()
    result = bench.as_user(
        f"command = '(setsid sleep {mark} &); trap \"\" TERM; sleep {mark}'\n"
        "json.dump(run(command, timeout_seconds=1).document(), sys.stdout)"
    )
    assert result["timed_out"]
    assert alive(mark) == []


def test_a_skill_of_an_ordinary_user_can_not_change_its_own_files(bench: Bench) -> None:
    """Case 68."""
    before = (bench.skill / "SKILL.md").read_bytes()
    codes = bench.as_user(
        'tries = ["echo x >> SKILL.md", "rm -f SKILL.md", "chmod u+w .", "echo x > new"]\n'
        "json.dump([run(command).exit_code for command in tries], sys.stdout)"
    )
    assert 0 not in codes
    assert (bench.skill / "SKILL.md").read_bytes() == before


def test_the_calls_of_an_ordinary_user_share_their_files(bench: Bench) -> None:
    """Case 67."""
    outputs = bench.as_user(
        'run("echo first > work/a.txt")\n'
        'again = run("cat work/a.txt").stdout\n'
        'session = belt.session("ada", "other")\n'
        'json.dump([again, run("ls work").stdout], sys.stdout)'
    )
    assert outputs == ["first\n", "inputs\n"]


def test_no_rule_for_runs_means_that_nothing_runs(bench: Bench) -> None:
    bench.runtime = bench.open(rules=[Rule("skill", "*", "allow")])
    assert bench.tool("touch out/ran").error
    bench.runtime = bench.open()
    assert bench.run("ls out").stdout == ""
