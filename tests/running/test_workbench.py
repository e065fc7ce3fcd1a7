"""One run from start to result, in the real sandbox."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from skillbelt import Answer, Pending, PermissionDenied, Rule
from skillbelt.artifacts.memory import MemoryArtifacts
from skillbelt.errors import RunRefused, SandboxUnavailable
from skillbelt.files.manifest import build_manifest
from skillbelt.permission import command_lines
from skillbelt.running.call import Asker, RunCall, RunResult
from skillbelt.running.following import Watch
from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.registry import choose
from skillbelt.store import SessionKey
from tests import needs
from tests.bench import KEY, ME, Bench
from tests.tree import Tree, settle

pytestmark = needs.linux


@pytest.fixture
def echo(open_tree: Tree) -> Iterator[Bench]:
    bench = Bench(open_tree)
    yield bench
    bench.close()


# --- what comes back -----------------------------------------------------------------------------


def test_a_failing_command_is_a_result_with_all_it_said(echo: Bench) -> None:
    """Case 61."""
    result = echo.run("echo said; echo wrong >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "said\n", "wrong\n")
    assert (result.timed_out, result.cancelled, result.limits_hit) == (False, False, ())


def test_a_file_is_collected_with_its_content(echo: Bench) -> None:
    """Cases 56 and 57."""
    bench = echo.make()
    for pattern in ("out/*.txt", "$OUTPUT_DIR/*.txt"):
        result = echo.run("echo hi > out/a.txt", bench=bench, output_files=(pattern,))
        (file,) = result.output_files
        assert (file.name, file.ref, file.content) == ("out/a.txt", "workspace://out/a.txt", "hi\n")
        assert file.mime_type.startswith("text/") and file.size_bytes == 3


def test_a_run_that_names_no_outputs_shows_its_first_text(echo: Bench) -> None:
    """Case 58."""
    result = echo.run("echo b > out/b.txt; echo a > out/a.txt")
    assert result.primary_output is not None
    assert (result.primary_output.name, result.output_files) == ("out/a.txt", ())


def test_the_way_to_name_a_file_again_is_said_once(echo: Bench) -> None:
    result = echo.run("echo hi > out/a", output_files=("out/a",))
    assert [one for one in result.warnings if "workspace://" in one] == list(result.warnings)
    assert len(result.warnings) == 1


def test_a_long_stream_is_cut_and_that_is_said(echo: Bench) -> None:
    """Case 59."""
    result = echo.run("head -c 16385 /dev/zero | tr '\\0' x")
    assert (len(result.stdout), result.warnings) == (16 * 1024, ("stdout truncated",))
    assert "max_stream_bytes" in result.limits_hit


def test_a_stream_is_not_cut_within_a_character(echo: Bench) -> None:
    """Case 59."""
    result = echo.run("printf x; for i in $(seq 6000); do printf €; done")
    assert set(result.stdout[1:]) == {"€"}
    assert 16 * 1024 - 3 < len(result.stdout.encode()) <= 16 * 1024


def test_whoever_listens_gets_the_output_while_it_comes(echo: Bench) -> None:
    bench, pieces, first = echo.make(), list[tuple[str, bytes]](), threading.Event()

    def listen(stream: str, data: bytes) -> None:
        pieces.append((stream, data))
        first.set()

    call = RunCall("echo one; until test -e work/go; do sleep 0.01; done; echo two")
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(bench.run, echo.belt.get_skill("echo"), call, ME, Watch(listen))
        assert first.wait(150)
        assert not done.done()
        with bench.workspace(KEY) as workspace:
            Path(workspace.path, "work", "go").touch()
        assert done.result(150).stdout == "one\ntwo\n"
    assert b"".join(data for _, data in pieces) == b"one\ntwo\n"


def test_a_time_out_is_said_and_what_came_before_is_kept(echo: Bench) -> None:
    """Case 63."""
    result = echo.run("echo begun; sleep 30", timeout_seconds=2)
    assert (result.timed_out, result.exit_code, result.stdout) == (True, 124, "begun\n")
    assert result.limits_hit == ("run_timeout_seconds",)


def test_the_settings_bound_the_time_whatever_the_call_says(echo: Bench) -> None:
    bench = echo.make(run_timeout_seconds=0.3)
    assert echo.run("sleep 30", bench=bench, timeout_seconds=60).timed_out


def test_a_call_without_a_time_has_the_usual_one(echo: Bench) -> None:
    bench = echo.make()
    skill, call = echo.belt.get_skill("echo"), RunCall("true")
    with bench.prepare(skill, call, ME) as run:
        assert run.job.timeout_seconds == 300
    with bench.prepare(skill, call._replace(timeout_seconds=900), ME) as run:
        assert run.job.timeout_seconds == 900


def test_a_result_says_what_was_enforced_and_by_what(echo: Bench) -> None:
    bench = echo.make()
    result = echo.run("true", bench=bench)
    assert result.sandbox == choose().name
    assert {"files", "network", "time", "memory", "user"} <= set(result.enforced)


def test_a_command_is_never_root(echo: Bench) -> None:
    assert echo.run("id -u").stdout.strip() not in ("", "0")


# --- what a command finds ------------------------------------------------------------------------


def test_words_are_run_without_a_shell(echo: Bench) -> None:
    assert echo.run(("echo", "$HOME;", "a b")).stdout == "$HOME; a b\n"


@pytest.mark.parametrize("command", ["", "  ", (), ("", "x"), (" ",)])
def test_a_blank_command_is_refused(echo: Bench, command: str | tuple[str, ...]) -> None:
    with pytest.raises(RunRefused, match="skill and command are required"):
        echo.run(command)


@pytest.mark.parametrize(
    ("cwd", "place"),
    [
        ("", "skills/echo"),
        ("scripts", "skills/echo/scripts"),
        ("../../..", "skills/echo"),
        ("..\\..", "skills/echo"),
        ("/etc", "skills/echo"),
        ("/work", "work"),
        ("/", ""),
        ("${OUTPUT_DIR}/x", "out/x"),
        ("work", "work"),
    ],
)
def test_a_command_starts_where_it_may(echo: Bench, cwd: str, place: str) -> None:
    """Case 65."""
    echo.write("scripts/a.py", "")
    shown = echo.run("pwd -P; echo $WORKSPACE_DIR", cwd=cwd).stdout.split()
    assert os.path.relpath(shown[0], shown[1]) == (place or ".")


def test_a_command_can_start_in_its_run_folder(echo: Bench) -> None:
    """Case 66."""
    shown = echo.run("pwd; echo $RUN_DIR", cwd="$RUN_DIR").stdout.split()
    assert shown[0] == shown[1]


def test_a_skill_finds_its_links_and_can_not_change_itself(echo: Bench) -> None:
    """Case 68."""
    text = (echo.skill / "SKILL.md").read_bytes()
    command = "readlink out work inputs; test -d .venv && touch .venv/x; echo more >> SKILL.md"
    result = echo.run(command)
    assert result.stdout.split() == ["../../out", "../../work", "../../work/inputs"]
    assert result.exit_code != 0
    assert (echo.skill / "SKILL.md").read_bytes() == text
    assert not (echo.skill / ".venv").exists()


def test_programs_of_the_skill_come_last_and_what_a_run_left_is_none(echo: Bench) -> None:
    """Case 69."""
    for name in ("tool", "ls"):
        echo.write(f"bin/{name}", f"#!/bin/sh\necho skill {name}\n", 0o755)
    bench = echo.make()
    assert echo.run("tool; ls -d .", bench=bench).stdout == "skill tool\n.\n"
    made = "mkdir .venv/bin; printf '#!/bin/sh\\necho venv' > .venv/bin/ls; chmod +x .venv/bin/ls"
    assert echo.run(f"{made}; cp .venv/bin/ls .venv/bin/mine", bench=bench).exit_code == 0
    assert echo.run("ls -d .", bench=bench).stdout == ".\n"
    assert echo.run("mine", bench=bench).exit_code == 127
    assert echo.run(".venv/bin/mine", bench=bench).stdout == "venv\n"


def test_the_callers_environment_is_not_handed_on(echo: Bench) -> None:
    echo.tree.setenv("MY_TOKEN", "secret-value")
    assert "secret-value" not in echo.run("env; cat /proc/self/environ; set").stdout


def test_what_a_call_sets_is_there_but_for_what_runs_other_programs(echo: Bench) -> None:
    """Case 85."""
    given = {
        "COLOUR": "blue",
        "LD_PRELOAD": "/x.so",
        "BASH_ENV": "/x",
        "BASH_FUNC_ls%%": "() { :; }",
    }
    shown = echo.run("env", env=given).stdout
    assert "COLOUR=blue\n" in shown
    assert not any(name in shown for name in ("LD_PRELOAD", "BASH_ENV", "BASH_FUNC"))


def test_under_a_policy_the_path_is_not_the_callers(echo: Bench) -> None:
    """Case 85."""
    bench = echo.make(allowed_commands=("env",))
    assert "PATH=/evil" not in echo.run("env", bench=bench, env={"PATH": "/evil"}).stdout


def test_under_a_policy_what_is_not_listed_is_refused_however_it_is_put(echo: Bench) -> None:
    """Cases 82 and 83."""
    bench = echo.make(allowed_commands=("echo",))
    assert echo.run("echo a b", bench=bench).stdout == "a b\n"
    assert echo.run(("echo", "a b"), bench=bench).stdout == "a b\n"
    for command in ("ls", "echo a; ls", "./evil/echo", ("ls",), ("./echo",)):
        with pytest.raises(RunRefused):
            echo.run(command, bench=bench)


def test_input_is_given_to_the_command(echo: Bench) -> None:
    """Case 70."""
    assert echo.run("cat", stdin=b"hello").stdout == "hello"
    assert echo.run("cat; echo end").stdout == "end\n"


def test_a_path_of_the_caller_is_for_the_commands_own_look_ups(echo: Bench) -> None:
    """Attack 13. Neither a PATH without bash nor a planted one leads astray what starts first."""
    bench = echo.make()
    planted = "printf '#!/bin/sh\necho planted\n' > $WORK_DIR/bash; chmod +x $WORK_DIR/bash"
    echo.run(f"{planted}; cp $WORK_DIR/bash $VIRTUAL_ENV/bash", bench=bench)
    for path in ("/nowhere", "", "/workspace/work"):
        command = 'echo "$0 $PATH"; $EDITOR $WORK_DIR/text; ls'
        done = echo.run(command, bench=bench, env={"PATH": path}, editor_text="x")
        assert (done.exit_code, done.stdout) == (127, f"/bin/bash {path}\n")
        assert done.stderr.startswith("/bin/bash: line 1: ls: ")
    found = echo.run("bash", bench=bench, env={"PATH": "/workspace/work"})
    assert found.stdout == "planted\n"


def test_the_editor_writes_what_was_given(echo: Bench) -> None:
    """Case 70."""
    text = "first\nsecond 'quoted' $HOME\n"
    result = echo.run(
        '$EDITOR "work/a b" && $VISUAL out/c && cat "work/a b" out/c', editor_text=text
    )
    assert (result.stdout, result.stderr) == (text * 2, "")


def test_without_a_text_there_is_no_editor(echo: Bench) -> None:
    assert echo.run("echo ${EDITOR-none}").stdout == "none\n"


def test_a_terminal_is_given_on_request(echo: Bench) -> None:
    assert "terminal" in echo.run("test -t 0 && test -t 1 && echo terminal", terminal=True).stdout
    assert echo.run("test -t 0 || echo none").stdout == "none\n"


def test_an_input_is_there_when_the_command_starts(echo: Bench) -> None:
    """Case 73."""
    echo.tree.write("project/n.txt", "given\n")
    inputs = [{"from": f"host://{echo.tree.project}/n.txt", "to": "work/inputs/n.txt"}]
    assert echo.run("cat inputs/n.txt", inputs=inputs).stdout == "given\n"


def test_another_skill_can_be_an_input(echo: Bench) -> None:
    echo.tree.skill("project/.agents/skills/other", text="Other text.\n")
    inputs = [{"from": "skill://other/SKILL.md", "to": "work/inputs/o.md"}]
    assert "Other text." in echo.run("cat inputs/o.md", inputs=inputs).stdout


def test_artifacts_belong_to_their_conversation_whatever_its_name(echo: Bench) -> None:
    bench = echo.make(artifacts=MemoryArtifacts())
    mine, other = SessionKey("a/b", "c", "d"), SessionKey("a", "b", "c/d")
    for key, text in ((mine, b"mine"), (other, b"other")):
        bench.artifacts(key).save("note.txt", text, "text/plain")
    inputs = [{"from": "artifact://note.txt", "to": "work/inputs/n"}]
    assert echo.run("cat inputs/n", Asker(mine), bench, inputs=inputs).stdout == "mine"
    assert echo.run("cat inputs/n", Asker(other), bench, inputs=inputs).stdout == "other"


def test_files_are_saved_as_artifacts_byte_for_byte(echo: Bench) -> None:
    """Case 81."""
    bench = echo.make(artifacts=MemoryArtifacts())
    outputs = {"globs": ["out/*"], "save": True}
    result = echo.run("printf '\\377\\0\\200' > out/b.bin", bench=bench, outputs=outputs)
    assert [(one.name, one.version) for one in result.artifact_files] == [("out/b.bin", 0)]
    with bench.artifacts(KEY).open("out/b.bin", 0) as file:
        assert file.read() == b"\xff\0\x80"


# --- permission ----------------------------------------------------------------------------------

ASK = (Rule("*", "*", "allow"), Rule("run", "*", "ask"))


def test_a_line_end_in_a_command_is_seen_in_the_question(echo: Bench) -> None:
    echo.run("bash -c 'echo a\nrm  -rf x'", bench=echo.make(ASK))
    (request,) = (one.request for one in echo.asked)
    assert request.summary == r"run `bash -c 'echo a\nrm  -rf x'` with the skill echo"


def test_a_run_is_asked_for_with_what_it_would_do(echo: Bench) -> None:
    bench = echo.make(ASK)
    assert echo.run("git add . && ls", bench=bench).exit_code != 127
    (request,) = (one.request for one in echo.asked)
    assert (request.type, request.patterns) == ("run", ("git add .", "ls"))
    assert request.summary == "run `git add . && ls` with the skill echo"
    assert (request.skill, request.initiator, request.agent) == ("echo", "user", "coder")
    assert (request.session, request.origin) == ("app/me/one", str(echo.skill))


def test_what_is_asked_for_is_the_copy_that_runs(echo: Bench) -> None:
    echo.run("true", bench=echo.make(ASK))
    manifest = build_manifest(str(echo.skill))
    assert echo.asked[0].request.hash == manifest.hash


def test_what_is_refused_does_not_run(echo: Bench) -> None:
    bench = echo.make(ASK, lambda _: Answer("reject", "not today"))
    with pytest.raises(PermissionDenied, match="not today"):
        echo.run("touch work/ran", bench=bench)
    assert echo.run("ls work", bench=echo.make()).stdout == "inputs\n"


def test_a_skill_that_changes_while_it_is_asked_for_is_not_run(echo: Bench) -> None:
    echo.write("a.sh", "echo old\n")

    def answer(_: Pending) -> Answer:
        echo.write("a.sh", "echo new\n")
        return Answer("once")

    bench = echo.make(ASK, answer)
    with pytest.raises(RunRefused, match="'echo' changed while its run was asked for"):
        echo.run("bash a.sh", bench=bench)
    assert echo.events("run") == []
    assert echo.run("bash a.sh", bench=bench).stdout == "new\n"
    first, second = (one.request.hash for one in echo.asked)
    assert first != second


def test_a_skill_that_is_written_anew_as_it_was_runs(echo: Bench) -> None:
    echo.write("a.sh", "echo old\n")

    def answer(_: Pending) -> Answer:
        echo.write("a.sh", "echo old\n")
        return Answer("once")

    assert echo.run("bash a.sh", bench=echo.make(ASK, answer)).stdout == "old\n"


def always(_: Pending) -> Answer:
    return Answer("always")


def test_a_command_is_taken_apart_once(echo: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench, seen = echo.make(), list[str]()
    split = command_lines._commands

    def noted(command: str) -> list[list[command_lines._Word]]:
        seen.append(command)
        return split(command)

    monkeypatch.setattr(command_lines, "_commands", noted)
    echo.run("echo a; echo b", bench=bench)
    assert seen == ["echo a; echo b"]


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("python3 work/scripts/a.py", {}),
        ("python3 scripts/a.py", {"cwd": "/work"}),
        ("python3 scripts/a.py", {"cwd": "work"}),
        ("python3 .venv/scripts/a.py", {}),
        ("python3 kept/a.py", {}),
        ("python3 scripts/a.py", {"env": {"PATH": "/workspace/work:/usr/bin:/bin"}}),
        ("work/python3 scripts/a.py", {}),
    ],
)
def test_what_a_run_could_have_written_is_not_taken_for_the_skills_script(
    echo: Bench, command: str, more: dict[str, Any]
) -> None:
    echo.write("scripts/a.py", "print('own')\n")
    (echo.skill / "kept").symlink_to("work/scripts")
    bench = echo.make(ASK, always)
    planted = (
        "mkdir -p work/scripts .venv/scripts; echo 'print(1)' > work/scripts/a.py;"
        " cp work/scripts/a.py .venv/scripts"
    )
    echo.run(planted, bench=bench)
    echo.run("python3 scripts/a.py", bench=bench)
    before = len(echo.asked)
    echo.run(command, bench=bench, **more)
    assert len(echo.asked) == before + 1


def test_another_command_is_asked_for_again(echo: Bench) -> None:
    bench = echo.make(ASK, always)
    for command in ("echo a", "echo a", "echo b"):
        echo.run(command, bench=bench)
    assert [one.request.always for one in echo.asked] == [("echo a",), ("echo b",)]


def test_a_file_of_the_project_is_given_unasked_and_any_other_asked_for(echo: Bench) -> None:
    echo.tree.write("project/in.txt", "in")
    outside = echo.tree.write("elsewhere/out.txt", "out")
    bench = echo.make((Rule("run", "*", "allow"),))
    for path in (echo.tree.project / "in.txt", outside):
        inputs = [{"from": f"host://{path}", "to": f"work/inputs/{path.name}"}]
        assert echo.run(f"cat inputs/{path.name}", bench=bench, inputs=inputs).exit_code == 0
    (request,) = (one.request for one in echo.asked)
    assert (request.type, request.patterns) == ("host_file", (str(outside),))
    assert request.summary == f"give the file {outside} to the skill echo"


def test_a_file_that_is_refused_is_not_given_and_nothing_runs(echo: Bench) -> None:
    outside = echo.tree.write("elsewhere/out.txt", "out")
    bench = echo.make((Rule("run", "*", "allow"), Rule("host_file", "*", "deny")))
    with pytest.raises(PermissionDenied):
        echo.run("true", bench=bench, inputs=[{"from": f"host://{outside}"}])
    assert echo.events("run") == []


def test_every_run_is_in_the_log_with_the_decision_before_it(echo: Bench) -> None:
    echo.run("echo hi; exit 4", bench=echo.make())
    events = list(echo.belt.gate.audit.read())
    assert [one.type for one in events] == ["decision", "run"]
    (run,) = echo.events("run")
    assert (run["command"], run["exit_code"], run["timed_out"]) == ("echo hi; exit 4", 4, False)
    assert (run["sandbox"], run["limits_hit"], run["hosts"]) == ("bubblewrap", [], [])
    assert (events[1].skill, events[1].session, events[1].agent) == ("echo", "app/me/one", "coder")
    assert events[1].hash == events[0].hash != ""


def test_a_sandbox_that_can_not_be_used_is_a_refusal(
    echo: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case 93."""
    monkeypatch.setattr(LinuxSandbox, "unavailable", lambda self: "it was taken away")
    with pytest.raises(SandboxUnavailable, match="taken away"):
        echo.run("true", bench=echo.make(sandbox="bubblewrap"))
    assert echo.events("run") == []


# --- the workspace -------------------------------------------------------------------------------


def test_a_session_keeps_its_files_and_another_does_not_see_them(echo: Bench) -> None:
    """Case 67."""
    bench = echo.make()
    echo.run("echo kept > work/a", bench=bench)
    assert echo.run("cat work/a", bench=bench).stdout == "kept\n"
    other = Asker(SessionKey("app", "me", "two"))
    assert echo.run("ls work; ls /workspace/..", other, bench).stdout.split()[0] == "inputs"
    assert echo.run("test -e work/a", other, bench).exit_code == 1


def test_a_warm_stage_is_used_again(echo: Bench) -> None:
    bench = echo.make()
    skill = echo.belt.get_skill("echo")
    settle()
    for reused in (False, True, True):
        with bench.prepare(skill, RunCall("true"), ME) as run:
            assert run.staged.reused == reused


def test_a_run_that_left_nothing_leaves_no_folder(echo: Bench) -> None:
    bench = echo.make()
    for _ in range(3):
        echo.run("true", bench=bench)
    echo.run("echo kept > $RUN_DIR/a", bench=bench)
    with bench.workspace(ME.key) as workspace:
        assert len(os.listdir(os.path.join(workspace.path, "runs"))) == 1


def test_runs_of_one_session_go_on_at_once(echo: Bench) -> None:
    bench = echo.make()
    command = "touch work/{0}; until test -e work/{1}; do sleep 0.01; done; echo met"

    def one(pair: tuple[str, str]) -> RunResult:
        return echo.run(command.format(*pair), bench=bench, timeout_seconds=30)

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(one, [("a", "b"), ("b", "a")]))
    assert [one.stdout for one in results] == ["met\n", "met\n"]


def test_many_runs_at_once_keep_their_results_apart(echo: Bench) -> None:
    bench = echo.make()

    def one(number: int) -> tuple[str, str]:
        who = Asker(SessionKey("app", "me", str(number % 3)))
        command = f"echo {number} > $RUN_DIR/n; cat $RUN_DIR/n"
        result = echo.run(command, who, bench, output_files=("$RUN_DIR/n",))
        return result.stdout, result.output_files[0].content

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(24))) == [(f"{n}\n", f"{n}\n") for n in range(24)]


def test_a_folder_that_was_locked_up_does_not_stop_the_next_run(echo: Bench) -> None:
    bench = echo.make()
    echo.run("mkdir -p work/x/y; chmod 0 work/x work/inputs out", bench=bench)
    assert echo.run("echo fine > out/a; cat out/a", bench=bench).stdout == "fine\n"


# --- the end -------------------------------------------------------------------------------------


def test_whoever_is_interrupted_leaves_nothing_running(
    echo: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = echo.make()
    real = LinuxSandbox.start
    waits: list[Any] = []

    def start(*given: Any) -> Any:
        running = real(*given)
        wait = running.wait

        def interrupted(*_: object) -> Any:
            if not waits:
                waits.append(running)
                raise KeyboardInterrupt
            return wait(30)

        monkeypatch.setattr(running, "wait", interrupted)
        return running

    monkeypatch.setattr(LinuxSandbox, "start", start)
    with pytest.raises(KeyboardInterrupt):
        echo.run("sleep 60", bench=bench)
    assert waits[0].wait().cancelled


def test_a_secret_that_a_run_was_given_is_in_neither_result_nor_log(echo: Bench) -> None:
    command = 'echo "$MY_TOKEN" | tee out/a.txt; echo s3cr3t-value >&2'
    result = echo.run(command, env={"MY_TOKEN": "s3cr3t-value"}, output_files=("out/*.txt",))
    assert (result.stdout, result.stderr) == ("[MY_TOKEN]\n", "[MY_TOKEN]\n")
    assert result.output_files[0].content == "[MY_TOKEN]\n"
    assert "s3cr3t-value" not in str(echo.events("run"))
