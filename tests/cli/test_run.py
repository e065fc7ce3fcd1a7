"""`skillbelt run`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skillbelt.sandbox.protocol import MAX_STDIN_BYTES
from skillbelt.sandbox.registry import sandboxes
from tests import needs, warm
from tests.benches import FOLDER, SKILL, Bench, alive
from tests.registries import wheel
from tests.terminal import CHOICE, REASON, on_terminal
from tests.tree import Done, Tree, settle

KEYS = ["stdout", "stderr", "exit_code", "timed_out", "duration_ms", "output_files", "limits_hit",
        "sandbox", "enforced"]  # fmt: skip


@pytest.fixture
def kit(bench: Bench) -> Tree:
    """A project with the skill `kit`; nothing is allowed yet."""
    return bench.tree


def run(tree: Tree, *arguments: str) -> Done:
    """Run a command that everything is allowed to; options first, the words after `--`."""
    return tree.run("run", SKILL, "--yes", *arguments)


def document(tree: Tree, *arguments: str) -> Any:
    done = run(tree, "--json", *arguments)
    return json.loads(done.stdout)


def piped(tree: Tree, data: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """The same with something on standard input, and all output as bytes."""
    return warm.run(
        [sys.executable, "-m", "skillbelt", "run", SKILL, "--yes", *arguments],
        cwd=tree.project,
        input=data,
        capture_output=True,
        timeout=500,
        check=False,
    )


# Exit codes


def test_a_command_that_went_well(kit: Tree) -> None:
    assert run(kit, "--", "echo", "hello") == Done(0, "hello\n", "")


def test_the_exit_code_is_that_of_the_command(kit: Tree) -> None:
    done = run(kit, "--", "bash", "-c", "echo out; echo err >&2; exit 7")
    assert done == Done(7, "out\n", "err\n")


def test_a_skill_that_does_not_exist(kit: Tree) -> None:
    done = kit.run("run", "kid", "--yes", "--", "true")
    assert (done.exit_code, done.stdout) == (3, "")
    assert "closest: kit" in done.stderr


def test_where_nobody_can_be_asked_nothing_runs(kit: Tree) -> None:
    done = kit.run("run", SKILL, "--", "touch", "out/ran")
    assert (done.exit_code, done.stdout) == (4, "")
    assert run(kit, "--", "ls", "out").stdout == ""


def test_yes_is_no_answer_to_a_rule_that_denies(kit: Tree) -> None:
    kit.write("home/.config/skillbelt/config.toml", '[permission.run]\n"touch *" = "deny"\n')
    assert run(kit, "--", "touch", "out/ran").exit_code == 4
    assert run(kit, "--", "ls", "out") == Done(0, "", "")


def test_yes_is_not_remembered(kit: Tree) -> None:
    assert run(kit, "--", "true").exit_code == 0
    assert kit.run("run", SKILL, "--", "true").exit_code == 4


def test_a_sandbox_that_can_not_be_used_here(kit: Tree) -> None:
    missing = [sandbox.name for sandbox in sandboxes() if sandbox.unavailable()]
    if not missing:
        pytest.skip("needs a system on which one of the sandboxes cannot be used")
    done = run(kit, "--sandbox", missing[-1], "--", "touch", "out/ran")
    assert (done.exit_code, done.stdout) == (5, "")
    assert f"the sandbox {missing[-1]!r} cannot be used" in done.stderr
    assert run(kit, "--", "ls", "out").stdout == ""


def test_a_secret_is_not_shown_while_it_is_printed(kit: Tree) -> None:
    given = ["--env", "MY_TOKEN=s3cr3t-value"]
    done = run(kit, *given, "--", "bash", "-c", 'printf "$MY_TOKEN s3"; printf "$MY_TOKEN" >&2')
    assert (done.stdout, done.stderr) == ("[MY_TOKEN] s3", "[MY_TOKEN]")


def test_a_command_that_takes_too_long(kit: Tree) -> None:
    done = run(kit, "--timeout", "3", "--", "bash", "-c", "echo begun; sleep 300")
    assert (done.exit_code, done.stdout) == (124, "begun\n")
    assert re.match(r"skillbelt: timed out after \d+\.", done.stderr)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("dashes", [["--"], []])
def test_the_dashes_may_be_left_out(kit: Tree, dashes: list[str]) -> None:
    given = ["--env", "A=b", "--timeout=50", *dashes, "bash", "-c", 'echo "$A $1"', "x", "--one"]
    assert run(kit, *given).stdout == "b --one\n"


@pytest.mark.parametrize("word", ["--yes", "-v", "--env=A=b", "--"])
def test_what_may_be_an_option_of_either_needs_the_dashes(kit: Tree, word: str) -> None:
    done = run(kit, "echo", "a", word, "b")
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{word} may belong to skillbelt run or to the command" in done.stderr
    assert "skillbelt run NAME [options] -- COMMAND..." in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "run needs a command after --"),
        (["--"], "run needs a command after --"),
        (["--env", "NAME", "--", "true"], "--env takes K=V, not 'NAME'"),
        (["--env", "=x", "--", "true"], "--env takes K=V"),
        (["--with=x", "--no-install", "--", "true"], "--with and --no-install are both given"),
        (["--sandbox", "jail", "--", "true"], "no sandbox named 'jail'"),
        (["--timeout", "soon", "--", "true"], "invalid float value"),
    ],
)
def test_wrong_usage(kit: Tree, arguments: list[str], message: str) -> None:
    done = run(kit, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--timeout", "-1", "--", "true"], "timeout must be a number of seconds above 0"),
        (["--input", "http://x", "--", "true"], "unsupported input: http://x"),
        (["--output", "workspace://out/*", "--", "true"], "is a URI"),
        (["--cwd", "nowhere", "--", "true"], "cannot run in 'skills/kit/nowhere'"),
        (["--", " "], "skill and command are required"),
    ],
)
def test_what_is_refused_is_told_and_nothing_runs(
    kit: Tree, arguments: list[str], message: str
) -> None:
    done = run(kit, *arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert message in done.stderr


def test_that_nothing_holds_a_command_back_is_said(kit: Tree) -> None:
    done = run(kit, "--sandbox", "none", "--", "echo", "ran")
    assert done == Done(0, "ran\n", "skillbelt: this ran without a sandbox\n")


def test_who_takes_the_programs_away_is_told(kit: Tree) -> None:
    done = run(kit, "--env", "PATH=/nowhere", "--", "bash", "-c", "ls")
    assert done.exit_code == 127
    assert "env sets a PATH without /usr/bin" in done.stderr


def test_a_project_can_not_choose_the_sandbox(kit: Tree) -> None:
    kit.write("project/skillbelt.toml", 'sandbox = "none"\n')
    done = run(kit, "--", "true")
    assert done.exit_code == 2
    assert "skillbelt.toml:1: sandbox cannot be set by a project" in done.stderr


# JSON


def test_the_document_of_a_run(kit: Tree) -> None:
    found = document(kit, "--", "bash", "-c", "echo out; echo err >&2")
    assert list(found) == KEYS
    assert (found["stdout"], found["stderr"]) == ("out\n", "err\n")
    assert (found["exit_code"], found["timed_out"]) == (0, False)
    assert found["enforced"]["network"].startswith("none")


def test_the_document_holds_the_files(kit: Tree) -> None:
    command = ["bash", "-c", "echo hi > out/a.txt"]
    found = document(kit, "--output", "out/*", "--save", "--", *command)
    assert list(found) == [*KEYS[:6], "primary_output", "artifact_files", *KEYS[6:]]
    [file] = found["output_files"]
    assert (file["name"], file["content"]) == ("out/a.txt", "hi\n")
    assert found["artifact_files"] == [{"name": "out/a.txt", "version": 0}]


@pytest.mark.parametrize(
    ("command", "seconds", "own", "code"),
    [("exit 0", 150, 0, 0), ("exit 7", 150, 7, 1), ("sleep 300", 1, 124, 124)],
)
def test_with_a_document_the_exit_code_says_whether_it_failed(
    kit: Tree, command: str, seconds: int, own: int, code: int
) -> None:
    done = run(kit, "--json", "--timeout", str(seconds), "--", "bash", "-c", command)
    assert done.exit_code == code
    assert json.loads(done.stdout)["exit_code"] == own


def test_a_file_that_could_not_be_saved_is_a_failure(kit: Tree) -> None:
    kit.setenv("SKILLBELT_MAX_OUTPUT_FILE_BYTES", "2")
    arguments = ["--output", "out/*", "--save", "--", "bash", "-c", "echo long > out/a.txt"]
    done = run(kit, *arguments)
    assert done.exit_code == 1
    assert "'out/a.txt' was not saved" in done.stderr
    assert run(kit, "--json", *arguments).exit_code == 1


# What goes in


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("notes.txt", "inputs/notes.txt"),
        ("notes.txt=work/n.txt", "work/n.txt"),
        ("./notes.txt=inputs/", "inputs/notes.txt"),
        ("skill://kit/SKILL.md=work/n.txt", "work/n.txt"),
        ("a=b.txt", "inputs/a=b.txt"),
    ],
)
def test_an_input(kit: Tree, given: str, place: str) -> None:
    for name in ("notes.txt", "a=b.txt"):
        kit.write(f"project/{name}", "# kit\n")
    done = run(kit, "--input", given, "--", "tail", "-n1", place)
    assert done == Done(0, "# kit\n", "")


def test_an_input_outside_the_project_is_asked_for(kit: Tree) -> None:
    kit.write("elsewhere.txt", "text\n")
    kit.write("home/.config/skillbelt/config.toml", '[permission]\nrun = "allow"\n')
    given = ["--input", "../elsewhere.txt", "--", "cat", "inputs/elsewhere.txt"]
    assert kit.run("run", SKILL, *given).exit_code == 4
    assert run(kit, *given).stdout == "text\n"


def test_variables(kit: Tree) -> None:
    done = run(kit, "--env", "A=1=2", "--env", "B=", "--", "bash", "-c", 'echo "$A-$B-$SKILL_NAME"')
    assert done.stdout == "1=2--kit\n"


def test_where_to_run(kit: Tree) -> None:
    kit.write(f"{FOLDER}/scripts/a.sh")
    assert run(kit, "--cwd", "scripts", "--", "ls").stdout == "a.sh\n"


def test_words_are_no_shell(kit: Tree) -> None:
    done = run(kit, "--", "printf", "%s\\n", "$HOME;", "*", "a b", "--json")
    assert done.stdout == "$HOME;\n*\na b\n--json\n"


def test_what_is_piped_in_is_read_by_the_command(kit: Tree) -> None:
    data = bytes(range(256)) * 1000
    done = piped(kit, data, "--", "cat")
    assert (done.returncode, done.stdout, done.stderr) == (0, data, b"")


@pytest.mark.long
def test_more_than_may_be_piped_in_is_refused(kit: Tree) -> None:
    most = b"x" * MAX_STDIN_BYTES
    assert piped(kit, most, "--", "wc", "-c").stdout.split() == [b"%d" % len(most)]
    done = piped(kit, most + b"x", "--", "wc", "-c")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"stdin is longer than %d bytes" % len(most) in done.stderr


def test_a_closed_input_is_an_empty_one(kit: Tree) -> None:
    command = f"{sys.executable} -m skillbelt run {SKILL} --yes -- wc -c <&-"
    done = subprocess.run(
        ["sh", "-c", command], cwd=kit.project, capture_output=True, timeout=500, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"0\n"), done.stderr


# What comes out


def test_the_files_are_listed_beside_the_output(kit: Tree) -> None:
    command = ["bash", "-c", "echo text > out/a.txt; echo done"]
    done = run(kit, "--output", "out/*", "--save", "--", *command)
    assert done == Done(0, "done\n", "out/a.txt  text/plain  5 bytes\nartifact://out/a.txt@0\n")


def test_a_saved_file_can_be_the_input_of_another_run(kit: Tree) -> None:
    run(kit, "--output", "out/*", "--save", "--", "bash", "-c", "echo kept > out/a.txt")
    done = run(kit, "--input", "artifact://out/a.txt@0=work/b.txt", "--", "cat", "work/b.txt")
    assert done.stdout == "kept\n"


def test_a_run_finds_nothing_of_another(kit: Tree) -> None:
    kit.skill("project/.agents/skills/other")
    kit.write("project/private.txt", "mine")
    run(kit, "--input", "private.txt", "--", "touch", "work/left", ".venv/left")
    for name in (SKILL, "other"):
        done = kit.run("run", name, "--yes", "--", "bash", "-c", "ls -A work/inputs .venv; ls work")
        assert done.stdout == ".venv:\n\nwork/inputs:\ninputs\n"


def test_runs_of_a_session_find_what_it_left_and_others_do_not(kit: Tree) -> None:
    run(kit, "--session", "s1", "--", "touch", "out/left")
    assert run(kit, "--session", "s1", "--", "ls", "out").stdout == "left\n"
    assert run(kit, "--session", "s2", "--", "ls", "out").stdout == ""
    assert run(kit, "--", "ls", "out").stdout == ""
    kit.write(f"{FOLDER}/main.sh", "ls out")
    assert kit.run("exec", SKILL, "--yes", "--session", "s1").stdout == "left\n"
    assert kit.run("exec", SKILL, "--yes").stdout == ""


def test_a_session_of_the_same_name_in_another_project_is_another(kit: Tree) -> None:
    kit.skill("elsewhere/.agents/skills/kit")
    here, there = str(kit.project), str(kit.path("elsewhere"))
    options = ("run", SKILL, "--yes", "--session", "s1")
    kit.run(*options, "--project", here, "--", "touch", "out/left")
    assert kit.run(*options, "--project", there, "--", "ls", "out").stdout == ""
    assert kit.run(*options, "--project", here, "--", "ls", "out").stdout == "left\n"


def test_a_session_needs_a_name(kit: Tree) -> None:
    done = run(kit, "--session", " ", "--", "true")
    assert (done.exit_code, "--session takes the name" in done.stderr) == (2, True)


def test_output_files_are_copied_to_a_folder(kit: Tree) -> None:
    done = run(kit, "--output-dir", "got", "--", "bash", "-c", "echo text > out/a.txt")
    assert kit.path("project/got/a.txt").read_text() == "text\n"
    said = f"out/a.txt  text/plain  5 bytes\nwrote {kit.project}/got/a.txt\n"
    assert done == Done(0, "", said)


def test_files_that_are_only_named_are_kept_where_it_says(kit: Tree) -> None:
    done = run(kit, "--output", "out/*", "--", "bash", "-c", "echo text > out/a.txt")
    (place,) = re.findall(r"its files are kept in (\S+) until", done.stderr)
    assert Path(place, "out", "a.txt").read_text() == "text\n"


def test_what_runs_is_what_was_asked_for(kit: Tree) -> None:
    """Somebody changes the script while it is asked for, and has another run stage it."""
    script = kit.write(f"{FOLDER}/scripts/report.py", "print('first')\n")
    settle()  # so that the copy is kept for the next run

    def meanwhile() -> Iterator[tuple[str, str]]:
        yield CHOICE, ""
        script.write_text("print('NEVER APPROVED')\n")
        refused = kit.run("run", SKILL, "--session", "s", "--", "echo", "x")
        assert refused.exit_code == 4
        yield "", "o\n"

    words = ("run", SKILL, "--session", "s", "--", "python3", "scripts/report.py")
    code, shown = on_terminal(kit, *words, answers=meanwhile())
    assert "NEVER APPROVED" not in shown
    assert (code, "changed while its run was asked for" in " ".join(shown.split())) == (1, True)
    assert kit.run("log", "--type", "run", "--json").document["events"] == []


def test_all_of_the_output_is_shown_however_long_it_is(kit: Tree) -> None:
    done = piped(kit, b"", "--", "bash", "-c", "head -c 300000 /dev/zero")
    assert done.stdout == bytes(300_000)
    assert done.stderr == b""


def test_verbose_says_what_was_enforced(kit: Tree) -> None:
    done = run(kit, "-v", "--", "true")
    assert "network: none" in done.stderr
    assert done.stdout == ""


def test_quiet_says_nothing_but_what_the_command_does(kit: Tree) -> None:
    command = ["bash", "-c", "echo text > out/a.txt; echo err >&2; sleep 300"]
    done = run(kit, "-q", "--timeout", "3", "--output", "out/*", "--", *command)
    assert done == Done(124, "", "err\n")


def test_output_comes_while_the_command_runs_and_an_interrupt_ends_it(kit: Tree) -> None:
    mark = f"30.{uuid.uuid4().int % 10**12:012}"
    command = ["bash", "-c", f"echo begun; (setsid sleep {mark} &); sleep {mark}"]
    child = warm.Popen[bytes](
        [sys.executable, "-m", "skillbelt", "run", SKILL, "--yes", "--", *command],
        cwd=kit.project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == b"begun\n"
        assert child.poll() is None
        child.send_signal(signal.SIGINT)
        assert child.wait(150) == 130
        assert child.stderr.read() == b""
    assert alive(mark) == []


def test_a_run_ends_when_nobody_reads_any_more(kit: Tree) -> None:
    mark = f"30.{uuid.uuid4().int % 10**12:012}"
    command = f"{sys.executable} -m skillbelt run {SKILL} --yes -- bash -c"
    script = f"{command} 'sleep {mark} & yes' | head -n1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", script],
        cwd=kit.project,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=500,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"y\n", b"")
    assert alive(mark) == []


@needs.full_device
@pytest.mark.parametrize("size", [1, 300_000])
def test_output_that_can_not_be_written_is_told(kit: Tree, size: int) -> None:
    command = ["bash", "-c", f"head -c {size} /dev/zero"]
    with open("/dev/full", "wb") as full:
        done = warm.run(
            [sys.executable, "-m", "skillbelt", "run", SKILL, "--yes", "--", *command],
            cwd=kit.project,
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=500,
            check=False,
        )
    assert done.returncode == 1
    assert b"No space left" in done.stderr
    assert done.stderr.count(b"\n") == 1


# At a terminal


def test_a_terminal_shows_both_streams_in_their_order(kit: Tree) -> None:
    """The command goes on once its last line is shown: two pipes have no order of their own."""
    wait = "until [ -e out/{} ]; do sleep 0.05; done; rm out/*"
    command = f"echo one; {wait.format(1)}; echo two >&2; {wait.format(2)}; echo three"

    def go_on() -> Iterator[tuple[str, str]]:
        for number, line in enumerate(("one\r\n", "two\r\n"), 1):
            yield line, ""
            for folder in list(kit.root.rglob("out")):  # the workspace, and copies of it
                (folder / str(number)).touch()

    words = ("run", SKILL, "--yes", "--", "bash", "-c", command)
    screen = on_terminal(kit, *words, answers=go_on())
    assert [line for line in screen.lines if line] == ["one", "two", "three"]


def test_a_terminal_is_not_played_with(kit: Tree) -> None:
    command = r"printf '\033[2J\033]0;title\007\033[31mred\033[0m\rover\n\xe2\x80\xae'"
    screen = on_terminal(kit, "run", SKILL, "--yes", "--", "bash", "-c", command)
    after = screen.written.rpartition("\x1b[K")[2]
    assert "\x1b" not in after
    assert "\x07" not in after
    assert "\u202e" not in after
    assert "\\x1b[31mred" in after


def test_the_columns_of_a_table_stay_where_they_are(kit: Tree) -> None:
    command = r"printf 'a   b\n  c d\n\n'; sleep 0.2; printf '\xc3'; sleep 0.2; printf '\xa9 e\n'"
    screen = on_terminal(kit, "run", SKILL, "--yes", "--", "bash", "-c", command)
    assert screen.written.replace("\r\n", "\n").endswith("a   b\n  c d\n\né e\n")


def test_what_goes_on_is_said_until_there_is_output(kit: Tree) -> None:
    screen = on_terminal(kit, "run", SKILL, "--yes", "--", "bash", "-c", "printf no-newline")
    before, _, after = screen.written.rpartition("\x1b[K")
    assert "staging kit" in before
    assert after == "no-newline"


def test_nothing_of_it_is_left_when_there_is_no_output(kit: Tree) -> None:
    screen = on_terminal(kit, "run", SKILL, "--yes", "--", "true")
    assert screen.written.endswith("\r\x1b[K")
    assert screen.lines == []


def test_a_question_begins_its_own_line(kit: Tree) -> None:
    screen = on_terminal(kit, "run", SKILL, "--", "true", answers=[(CHOICE, "o\n")])
    assert "Permission needed" in screen.lines


def test_a_person_is_asked_once(kit: Tree) -> None:
    screen = on_terminal(kit, "run", SKILL, "--", "echo", "ran", answers=[(CHOICE, "o\n")])
    assert screen.exit_code == 0
    assert screen.written.count("Permission needed") == 1
    assert any("run `echo ran` with the skill kit" in line for line in screen.lines)
    assert screen.lines[-1].endswith("ran")
    assert kit.run("run", SKILL, "--", "echo", "ran").exit_code == 4


def test_a_person_says_no(kit: Tree) -> None:
    screen = on_terminal(
        kit,
        "run",
        SKILL,
        "--",
        "touch",
        "out/ran",
        answers=[(CHOICE, "r\n"), (REASON, "not now\n")],
    )
    assert screen.exit_code == 4
    assert "not now" in screen.lines[-1]
    assert run(kit, "--", "ls", "out").stdout == ""


def test_a_person_says_always(kit: Tree) -> None:
    kit.write(f"{FOLDER}/scripts/a.sh", "echo $1\n")
    screen = on_terminal(
        kit, "run", SKILL, "--", "bash", "scripts/a.sh", "1", answers=[(CHOICE, "a\n")]
    )
    assert screen.exit_code == 0
    assert kit.run("run", SKILL, "--", "bash", "scripts/a.sh", "1") == Done(0, "1\n", "")
    shown = kit.run("permissions").stdout
    assert "bash scripts/a.sh 1" in shown
    assert kit.run("run", SKILL, "--", "bash", "scripts/a.sh", "2").exit_code == 4
    changed = kit.run(
        "run", SKILL, "--env", "HOME=/workspace/work", "--", "bash", "scripts/a.sh", "1"
    )
    assert changed.exit_code == 4
    kit.write(f"{FOLDER}/scripts/a.sh", "echo changed\n")
    assert kit.run("run", SKILL, "--", "bash", "scripts/a.sh", "1").exit_code == 4


def test_what_a_person_is_asked_is_shown_as_it_is(kit: Tree) -> None:
    screen = on_terminal(kit, "run", SKILL, "--", "echo", "\x1b[2J\nfake", answers=[(CHOICE, "\n")])
    assert "\x1b[2J" not in screen.written
    assert "fake" not in [line.strip() for line in screen.lines]


def test_what_is_typed_is_not_the_input_of_the_command(kit: Tree) -> None:
    screen = on_terminal(
        kit, "run", SKILL, "--", "wc", "-c", answers=[(CHOICE, "o\n"), ("\n", "more\n")]
    )
    assert screen.exit_code == 0
    assert screen.lines[-1].endswith("0")


# Packages


@pytest.fixture
def index(kit: Tree) -> Tree:
    """A package index with one package, and a script that imports it without a word."""
    folder = kit.path("packages")
    folder.mkdir()
    wheel(folder, "scrapy", {"scrapy.py": "word = 'provided'\n"})
    kit.setenv("UV_NO_INDEX", 1)
    kit.setenv("UV_FIND_LINKS", folder)
    return kit


@needs.linux
def test_a_package_is_named_for_one_run_or_none_is_installed(index: Tree) -> None:
    code = "print(__import__('scr' + 'apy').word)"
    assert run(index, "--with", "scrapy>=1", "--", "python3", "-c", code).stdout == "provided\n"
    index.write(f"{FOLDER}/main.sh", f'python3 -c "{code}"')
    done = index.run("exec", SKILL, "--yes", "--with", "scrapy>=1")
    assert done.stdout == "provided\n"
    done = run(index, "--no-install", "--", "python3", "-c", "import scrapy")
    assert "No module named 'scrapy'" in done.stderr
    refused = run(index, "--with=--index-url=x", "--", "true")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "--with: '--index-url=x' is not accepted" in refused.stderr
