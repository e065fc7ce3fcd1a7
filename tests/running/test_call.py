"""The arguments and the result of a run."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.errors import RunRefused
from skillbelt.permission.command_lines import simple_commands
from skillbelt.running.call import (
    RunCall,
    RunResult,
    check_stdin,
    describe_call,
    end_warnings,
    environment_warnings,
    path_warnings,
    script_of,
    scripts_named,
    stream,
    stream_warnings,
    timeout_of,
    wanted_outputs,
)
from skillbelt.running.outputs import OutputFile, Saved
from skillbelt.sandbox.protocol import Captured, Outcome
from skillbelt.values import Limits
from tests.bounds import bounds

LIMITS = Limits()


@pytest.fixture(autouse=True)
def small() -> None:
    bounds(max_stdin_bytes=10)


def having(*paths: str) -> Callable[[str], bool]:
    return lambda path: path in paths


def script_in(command: str, is_file: Callable[[str], bool]) -> str:
    return script_of(command, simple_commands(command), is_file)


# --- the call ------------------------------------------------------------------------------------


def test_a_line_is_its_own_text() -> None:
    assert RunCall("echo  a |  cat").text == "echo  a |  cat"


def test_words_make_a_line_that_a_shell_takes_apart_again() -> None:
    assert RunCall(("echo", "a b", "$HOME")).text == "echo 'a b' '$HOME'"


def test_a_call_without_a_time_may_take_the_most_there_is() -> None:
    assert timeout_of(RunCall("true"), 300.0) == 300.0


def test_a_call_may_only_ask_for_less_time() -> None:
    assert timeout_of(RunCall("true", timeout_seconds=2.5), 300.0) == 2.5
    assert timeout_of(RunCall("true", timeout_seconds=900), 300.0) == 300.0


@pytest.mark.parametrize("seconds", [-1, -0.001, float("inf"), float("nan"), float("-inf")])
def test_what_is_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(RunRefused, match="timeout must be a number of seconds"):
        timeout_of(RunCall("true", timeout_seconds=seconds), 300.0)


def test_input_up_to_the_limit_is_taken() -> None:
    check_stdin(RunCall("cat", stdin=b"x" * 10))
    check_stdin(RunCall("cat", stdin=None))


def test_too_much_input_is_refused_with_the_limit_and_the_way_round() -> None:
    with pytest.raises(RunRefused, match=r"10 bytes \(max_stdin_bytes\).*input file"):
        check_stdin(RunCall("cat", stdin=b"x" * 11))


@pytest.mark.parametrize("name", ["EDITOR", "VISUAL"])
def test_an_editor_can_not_be_set_twice(name: str) -> None:
    """Case 70."""
    with pytest.raises(RunRefused, match=name):
        check_stdin(RunCall("git commit", env={name: "vi"}, editor_text="hi"))
    check_stdin(RunCall("git commit", env={name: "vi"}))


def test_a_call_that_names_no_outputs_wants_none() -> None:
    assert wanted_outputs(RunCall("true")) is None


def test_output_files_are_given_with_their_content_and_saved_on_request() -> None:
    call = RunCall("true", output_files=("out/*",), save_as_artifacts=True, artifact_prefix="a/")
    wanted = wanted_outputs(call)
    assert wanted is not None
    assert (wanted.globs, wanted.inline, wanted.save, wanted.name_template) == (
        ("out/*",), True, True, "a/",
    )  # fmt: skip


def test_output_files_win_over_outputs() -> None:
    call = RunCall("true", output_files=("out/a",), outputs={"globs": ["out/b"]})
    wanted = wanted_outputs(call)
    assert wanted is not None and wanted.globs == ("out/a",)


def test_outputs_say_how_they_are_wanted() -> None:
    wanted = wanted_outputs(RunCall("true", outputs={"Globs": ["out/b"], "MaxFiles": 2}))
    assert wanted is not None
    assert (wanted.globs, wanted.max_files, wanted.inline) == (("out/b",), 2, False)


def test_outputs_without_patterns_are_still_outputs() -> None:
    assert wanted_outputs(RunCall("true", outputs={})) is not None


# --- what is told --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/nowhere", "", "/opt/bin:/sbin"])
def test_who_takes_the_programs_away_is_told_when_one_is_not_found(path: str) -> None:
    [warning] = path_warnings(RunCall("ls", env={"PATH": path}), Outcome(127))
    assert "/usr/bin" in warning


@pytest.mark.parametrize(
    ("env", "code"),
    [({}, 127), ({"PATH": "/opt:/usr/bin"}, 127), ({"PATH": "/bin"}, 127), ({"PATH": "/x"}, 1)],
)
def test_a_path_is_not_blamed_for_anything_else(env: dict[str, str], code: int) -> None:
    assert path_warnings(RunCall("ls", env=env), Outcome(code)) == []


def test_variables_that_are_not_set_are_named() -> None:
    call = RunCall("ls", env={"LD_PRELOAD": "/x", "A": "1", "PATH": "/bin"})
    assert environment_warnings(call, False)[0].startswith("not set: LD_PRELOAD; ")
    assert environment_warnings(call, True)[0].startswith("not set: LD_PRELOAD, PATH; ")
    assert environment_warnings(RunCall("ls", env={"A": "1"}), True) == ()


# --- scripts that are named ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        'cd scripts && python3 "my script.py" a',
        "python3 my\\ script.py; ls",
        """bash -c 'python3 "my script.py" a'""",
        shlex.join(["bash", "-c", "python3 'my script.py' a"]),
        shlex.join(["bash", "-c", shlex.join(["sh", "-c", "python3 my\\ script.py"])]),
        'X=1 "my script.py"|cat',
        'python3 "my script.py" "and no end',
    ],
)
def test_a_script_with_a_blank_in_its_name_is_seen_wherever_it_stands(command: str) -> None:
    assert "my script.py" in list(scripts_named(command))


def test_scripts_are_seen_among_what_a_shell_reads() -> None:
    command = "cat <a.sh|node --file=b.mjs;(c.ts)>d.txt && e.py:12 f.pyc"
    assert list(scripts_named(command)) == ["a.sh", "b.mjs", "c.ts", "e.py"]


@pytest.mark.parametrize("piece", ["a", "a.", "'", '"', "\\", "' ", "\"' ", "'a b'", "a.py "])
def test_a_line_is_looked_through_in_one_go(piece: str) -> None:
    """Looking at each place again would take minutes for the longest line there may be."""
    line = (piece * 130_000)[:130_000]
    begun = time.process_time()
    assert len(list(scripts_named(line))) <= 26_000
    assert time.process_time() - begun < 30


# --- what is remembered --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python3 scripts/a.py x y", "scripts/a.py"),
        ("bash ./scripts/a.py", "scripts/a.py"),
        ("scripts/a.py --all", "scripts/a.py"),
        ("./run.sh", "run.sh"),
        ("python3 run.sh", "run.sh"),
        ("run.sh", ""),  # looked up on the PATH
        ("work/python3 scripts/a.py", ""),  # any program may be called so
        ("/tmp/python3 scripts/a.py", ""),
        ("python3 -c pass", ""),
        ("python3 -m scripts/a.py", ""),
        ("python3 scripts/other.py", ""),
        ("python3 /etc/run.sh", ""),
        ("python3 scripts/../run.sh", ""),
        ("cat scripts/a.py", ""),
        ("python3 scripts/a.py; ls", ""),
        ("python3 scripts/a.py > x", ""),
        ("python3 $(echo scripts/a.py)", ""),
        ("FOO=1 python3 scripts/a.py", ""),
        ("python3", ""),
        ("", ""),
        ("'", ""),
    ],
)
def test_a_script_is_told_from_other_commands(command: str, script: str) -> None:
    assert script_in(command, having("scripts/a.py", "run.sh", "-c", "/etc/run.sh")) == script


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python3 'scripts/a b.py' x", "scripts/a b.py"),
        ('"scripts/a b.py" *.csv', "scripts/a b.py"),
        ('"scripts/a b.py" $HOME', ""),
        ("scripts/'a b'.py", "scripts/a b.py"),
        ("python3 scripts/a\\ b.py", "scripts/a b.py"),
        ('python3 "scripts/it\'s.py"', "scripts/it's.py"),
        ("scripts/it\\'s.py --all", "scripts/it's.py"),
        ("'scripts/$x.py'", "scripts/$x.py"),
        ("bash './- odd.sh'", "- odd.sh"),
        ("python3 scripts/$x.py", ""),  # the shell puts something else there
        ("scripts/*.py", ""),
        ("python3 $'scripts/a b.py'", ""),
        ("X=scripts/a rm -rf work", ""),  # sets a variable, and runs something else
        ("python3 #scripts/a", ""),
        ("~/a", ""),
    ],
)
def test_the_splitting_of_the_shell_says_what_the_script_is(command: str, script: str) -> None:
    every_name = having(
        "scripts/a b.py", "scripts/it's.py", "scripts/$x.py", "- odd.sh", "scripts/*.py",
        "$scripts/a b.py", "X=scripts/a", "#scripts/a", "~/a",
    )  # fmt: skip
    assert script_in(command, every_name) == script


def test_a_script_among_words_that_no_shell_reads() -> None:
    call = RunCall(("python3", "scripts/it's a.py", "$HOME"))
    assert script_in(call.text, having("scripts/it's a.py")) == "scripts/it's a.py"


@given(st.text(), st.text())
def test_whatever_the_command_is_the_script_is_a_file_that_was_looked_at(
    command: str, name: str
) -> None:
    seen: list[str] = []

    def is_file(path: str) -> bool:
        seen.append(path)
        return True

    script = script_in(f"python3 {name} {command}", is_file)
    assert script == "" or seen == [script]
    assert not script.startswith("/") and ".." not in script.split("/")


# --- streams -------------------------------------------------------------------------------------


@given(st.text(), st.integers(0, 200))
def test_a_stream_is_cut_between_two_characters(text: str, keep: int) -> None:
    data = text.encode("utf-8", "replace")
    shown = stream(Captured(data[:keep], len(data)))
    assert text.encode("utf-8", "replace").decode().startswith(shown)
    assert len(data[:keep]) - len(shown.encode()) < 4


@given(st.binary(), st.integers(0, 40))
def test_any_bytes_give_text_and_lose_no_whole_character(data: bytes, keep: int) -> None:
    shown = stream(Captured(data[:keep], len(data)))
    whole = data[:keep].decode("utf-8", "replace")
    assert whole.startswith(shown)
    assert len(whole) - len(shown) <= 3


def test_a_stream_that_came_whole_is_kept_whole() -> None:
    assert stream(Captured(b"a\xc3", 2)) == "a\ufffd"


def test_a_stream_that_was_cut_ends_before_the_character_that_was() -> None:
    assert stream(Captured(b"a\xc3", 3)) == "a"


@pytest.mark.parametrize("sign", ["é", "€", "😀"])
def test_every_length_of_character_is_seen_whole_or_not_at_all(sign: str) -> None:
    data = sign.encode()
    for keep in range(len(data)):
        assert stream(Captured(b"x" + data[:keep], 99)) == "x"
    assert stream(Captured(b"x" + data, 99)) == "x" + sign


def test_invalid_bytes_are_replaced_not_dropped() -> None:
    assert stream(Captured(b"a\xffb", 3)) == "a\ufffdb"
    assert stream(Captured(b"a\x80\x80\x80", 99)) == "a\ufffd\ufffd\ufffd"


def test_each_stream_that_is_cut_is_said() -> None:
    """Case 59."""
    assert stream_warnings(Outcome(0)) == []
    both = Outcome(0, stdout=Captured(b"", 1), stderr=Captured(b"a", 2))
    assert stream_warnings(both) == ["stdout truncated", "stderr truncated"]


def test_a_process_that_may_be_alive_is_said() -> None:
    assert end_warnings(Outcome(0)) == []
    [warning] = end_warnings(Outcome(0, left=True))
    assert "may still be alive" in warning


# --- the result ----------------------------------------------------------------------------------


def test_a_document_has_the_fields_that_every_run_has() -> None:
    document = RunResult(
        stdout="", stderr="", exit_code=0, timed_out=False, duration_ms=5
    ).document()
    assert set(document) == {
        "stdout", "stderr", "exit_code", "timed_out", "duration_ms", "output_files", "limits_hit",
        "sandbox", "enforced",
    }  # fmt: skip


def test_a_document_is_json() -> None:
    file = OutputFile(
        name="out/a.txt",
        ref="workspace://out/a.txt",
        content="hi",
        mime_type="text/plain",
        size_bytes=2,
    )
    result = RunResult(
        stdout="out",
        stderr="err",
        exit_code=3,
        timed_out=True,
        duration_ms=5,
        output_files=(file,),
        primary_output=file,
        artifact_files=(Saved("a", 0),),
        warnings=("careful",),
        limits_hit=("max_processes",),
        sandbox="bubblewrap",
        enforced={"files": "held"},
        hosts=("example.com:443",),
        cancelled=True,
        errors=("not saved",),
    )
    document = json.loads(json.dumps(result.document()))
    assert document["output_files"] == [file._asdict()]
    assert document["primary_output"] == file._asdict()
    assert document["artifact_files"] == [{"name": "a", "version": 0}]
    assert document["enforced"] == {"files": "held"}
    assert document["hosts"] == ["example.com:443"]
    assert (document["cancelled"], document["errors"]) == (True, ["not saved"])


def test_whoever_is_asked_is_told_what_does_not_stand_in_the_command() -> None:
    call = RunCall("bash", "$WORK_DIR", {"A": "secret"}, stdin=b"xyz", terminal=True)
    assert (
        describe_call(call) == ", in $WORK_DIR, with A set, with 3 bytes of input, with a terminal"
    )
    assert describe_call(RunCall("ls")) == ""
