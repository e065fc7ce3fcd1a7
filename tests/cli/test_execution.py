from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tests import warm
from tests.terminal import CHOICE, on_terminal
from tests.tree import Done, Tree

FOLDER = "project/.agents/skills/sums"
SUM = "import json, sys\nprint(json.dumps({'sum': sum(json.load(sys.stdin)['numbers'])}))\n"
FAIL = "echo half; echo bad >&2; exit 3\n"
NUMBERS = '{"numbers": [1, 2]}'


@pytest.fixture
def sums(open_tree: Tree) -> Tree:
    """A skill with two scripts; the one to be taken is declared."""
    open_tree.skill(FOLDER, metadata={"script": "scripts/sum.py"}, allowed_tools=["Read"])
    open_tree.write(f"{FOLDER}/scripts/sum.py", SUM)
    open_tree.write(f"{FOLDER}/scripts/fail.sh", FAIL)
    return open_tree


def document(tree: Tree, *options: str, code: int = 0) -> dict[str, Any]:
    done = tree.run("exec", "sums", "--yes", "--json", *options)
    assert done.exit_code == code, done.stderr
    found: dict[str, Any] = done.document
    return found


def test_json_has_the_promised_keys(sums: Tree) -> None:
    found = document(sums, "--input", NUMBERS)
    enforced = found.pop("enforced")
    assert enforced["network"].startswith("none")
    assert found == {
        "output": {"sum": 3},
        "stdout": '{"sum": 3}\n',
        "stderr": "",
        "permissions_used": ["Read"],
        "exit_status": {"kind": "success", "code": 0},
        "sandbox": found["sandbox"],
    }


def test_without_json_it_is_the_script_that_speaks(sums: Tree) -> None:
    assert sums.run("exec", "sums", "--yes", "--input", NUMBERS) == Done(0, '{"sum": 3}\n', "")


def test_the_exit_code_is_the_scripts_own(sums: Tree) -> None:
    assert sums.run("exec", "sums", "--yes", "--script", "fail") == Done(3, "half\n", "bad\n")


def test_with_json_the_exit_code_says_that_it_failed(sums: Tree) -> None:
    found = document(sums, "--script", "fail", code=1)
    assert found["exit_status"] == {"kind": "failed", "code": 3}
    assert (found["output"], found["stdout"], found["stderr"]) == (None, "half\n", "bad\n")


def test_input_from_a_file(sums: Tree) -> None:
    sums.write("project/numbers.json", f"\ufeff{NUMBERS}")
    assert document(sums, "--input", "@numbers.json")["output"] == {"sum": 3}


def test_input_from_standard_input(sums: Tree) -> None:
    done = warm.run(
        [sys.executable, "-m", "skillbelt", "exec", "sums", "--yes", "--input", "@-"],
        cwd=sums.project,
        input=json.dumps({"numbers": [1] * 200_000}).encode(),
        capture_output=True,
        timeout=500,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, b'{"sum": 200000}\n')
    assert b"SKILL_INPUT is not set" in done.stderr


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("{numbers}", "'{numbers}' is not JSON"),
        ("", "there is no JSON"),
        ("@nowhere.json", "nowhere.json cannot be read: No such file or directory"),
        ("@bad.json", "bad.json: '[1' is not JSON"),
        ("@latin.json", "latin.json is not UTF-8"),
    ],
)
def test_an_input_that_is_none_is_wrong_usage(sums: Tree, value: str, said: str) -> None:
    sums.write("project/bad.json", "[1")
    sums.write("project/latin.json", b'"\xff"')
    done = sums.run("exec", "sums", "--yes", "--input", value)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr


MAKE = "import pathlib\nfrom_it = pathlib.Path('inputs/letter.txt').read_text()\n"
MAKE += "pathlib.Path('out/answer.txt').write_text(from_it.upper())\n"
MAKE += "pathlib.Path('out/answer.bin').write_bytes(b'\\0\\xff')\n"


@pytest.fixture
def letters(sums: Tree) -> Tree:
    """A script that takes a file and leaves two; the folder with the file is not the project."""
    sums.write(f"{FOLDER}/scripts/make.py", MAKE)
    sums.write("elsewhere/letter.txt", "dear")
    return sums


LETTER = ("--script", "make", "--file", "../elsewhere/letter.txt")


def test_files_go_in_and_come_out(letters: Tree) -> None:
    found = document(letters, *LETTER)
    assert [(one["name"], one["content"]) for one in found["output_files"]] == [
        ("out/answer.bin", ""),
        ("out/answer.txt", "DEAR"),
    ]


def test_a_file_of_the_host_is_asked_for(letters: Tree) -> None:
    letters.write("home/.config/skillbelt/config.toml", '[permission.run]\n"*" = "allow"\n')
    done = letters.run("exec", "sums", *LETTER)
    assert (done.exit_code, done.stdout) == (4, "")
    assert "elsewhere/letter.txt" in done.stderr


def test_output_files_are_copied_to_a_folder(letters: Tree) -> None:
    done = letters.run("exec", "sums", "--yes", *LETTER, "--output-dir", "got/here")
    assert (done.exit_code, done.stdout) == (0, "")
    assert letters.path("project/got/here/answer.txt").read_text() == "DEAR"
    assert letters.path("project/got/here/answer.bin").read_bytes() == b"\0\xff"
    assert f"wrote {letters.project}/got/here/answer.bin\n" in done.stderr
    assert "are kept in" not in done.stderr


def test_only_the_wanted_files_are_copied(letters: Tree) -> None:
    found = document(letters, *LETTER, "--output-dir", "got", "--output", "out/*.txt")
    path = letters.path("project/got/answer.txt")
    assert found["written_files"] == [{"name": "out/answer.txt", "path": str(path)}]
    assert os.listdir(path.parent) == ["answer.txt"]


def test_no_file_of_the_user_is_replaced(letters: Tree) -> None:
    mine = letters.write("project/got/answer.txt", "mine")
    done = letters.run("exec", "sums", "--yes", *LETTER, "--output-dir", "got")
    assert done.exit_code == 1
    assert "'out/answer.txt' was not written: there is such a file already" in done.stderr
    assert mine.read_text() == "mine"


def test_neither_a_link_nor_a_hidden_name_leads_anywhere(letters: Tree) -> None:
    script = """
import os
for path in ("to/x", ".envrc", ".git/config"):
    os.makedirs(os.path.dirname(f"out/{path}"), exist_ok=True)
    open(f"out/{path}", "w").write("x")
"""
    letters.write(f"{FOLDER}/scripts/hide.py", script)
    letters.path("project/got").mkdir()
    letters.path("project/got/to").symlink_to(letters.path("home"))
    patterns = ("--output", "out/**", "--output", "out/.envrc", "--output", "out/.git/*")
    found = document(letters, "--script", "hide", "--output-dir", "got", *patterns, code=1)
    assert sorted(found["errors"]) == [
        "'out/.envrc' was not written: its name begins with a dot",
        "'out/.git/config' was not written: its name begins with a dot",
        "'out/to/x' was not written: a link is in the way, or its name is unsafe",
    ]
    assert os.listdir(letters.path("project/got")) == ["to"]
    assert not letters.path("home/x").exists()


def test_no_file_is_written_whose_name_hides_what_it_is(letters: Tree) -> None:
    letters.write(f"{FOLDER}/scripts/hide.py", 'open("out/\\u202egpj.sh", "w").write("x")')
    found = document(letters, "--script", "hide", "--output-dir", "got", code=1)
    [said] = found["errors"]
    assert said.endswith("was not written: its name has characters that cannot be seen")
    assert not letters.path("project/got").exists()


def test_a_run_writes_no_settings_into_a_project(letters: Tree) -> None:
    script = """
for name, text in {
    "skillbelt.toml": "[permission]\\nrun = 'allow'",
    "Opencode.json": "{}",
    "pyproject.toml": "[tool.skillbelt.permission]\\nrun = 'allow'",
    "sub-pyproject.toml": "[tool.skillbelt]",
}.items():
    open(f"out/{name}", "w").write(text)
"""
    letters.write(f"{FOLDER}/scripts/hide.py", script)
    found = document(letters, "--script", "hide", "--output-dir", ".", code=1)
    why = "was not written: it would be read as settings and rules of a project"
    names = ("Opencode.json", "pyproject.toml", "skillbelt.toml")
    assert sorted(found["errors"]) == [f"'out/{name}' {why}" for name in names]
    assert letters.path("project/sub-pyproject.toml").exists()
    assert not letters.path("project/skillbelt.toml").exists()


def test_a_folder_that_is_none_is_refused_before_anything_runs(letters: Tree) -> None:
    letters.write("project/file", "")
    done = letters.run("exec", "sums", "--yes", *LETTER, "--output-dir", "file/below")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "file' is not a folder" in done.stderr


def test_a_session_gives_back_what_is_named(letters: Tree) -> None:
    options = (*LETTER, "--session", "s")
    assert "output_files" not in document(letters, *options)
    found = document(letters, *options, "--output", "out/*.txt", "--save")
    assert [one["name"] for one in found["output_files"]] == ["out/answer.txt"]
    assert found["artifact_files"] == [{"name": "out/answer.txt", "version": 0}]


def test_more_than_one_script_is_an_answer_of_no(sums: Tree) -> None:
    sums.skill(FOLDER)
    done = sums.run("exec", "sums", "--yes")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "(scripts/fail.sh, scripts/sum.py)" in done.stderr


def test_an_unknown_skill(sums: Tree) -> None:
    assert sums.run("exec", "smus", "--yes").exit_code == 3


def test_with_nobody_to_ask_it_is_denied(sums: Tree) -> None:
    done = sums.run("exec", "sums", "--input", NUMBERS)
    assert (done.exit_code, done.stdout) == (4, "")
    assert "no user or callback can grant it" in done.stderr


def test_a_denial_as_json(sums: Tree) -> None:
    done = sums.run("exec", "sums", "--json")
    assert done.exit_code == 4
    status = done.document["exit_status"]
    assert (status["kind"], status["code"]) == ("permission_denied", None)
    assert status["reason"] in done.stderr


def test_yes_does_not_override_a_deny(sums: Tree) -> None:
    sums.write("home/.config/skillbelt/config.toml", '[permission.run]\n"*" = "deny"\n')
    done = sums.run("exec", "sums", "--yes", "--input", NUMBERS)
    assert done.exit_code == 4
    assert "denied by the user's rules" in done.stderr


def test_somebody_at_a_terminal_is_asked(sums: Tree) -> None:
    screen = on_terminal(sums, "exec", "sums", "--input", NUMBERS, answers=[(CHOICE, "o\n")])
    assert screen.exit_code == 0
    assert any("run `python3 scripts/sum.py` with the skill sums" in line for line in screen.lines)
    assert screen.lines[-1].endswith('{"sum": 3}')


def test_a_script_that_takes_too_long(sums: Tree) -> None:
    sums.write(f"{FOLDER}/scripts/slow.sh", "echo begun; while :; do :; done\n")
    done = sums.run("exec", "sums", "--yes", "--script", "slow", "--timeout-ms", "500")
    assert (done.exit_code, done.stdout) == (124, "begun\n")
    assert done.stderr.startswith("skillbelt: timed out after 0.")
    assert done.stderr.count("\n") == 1
    found = document(sums, "--script", "slow", "--timeout-ms", "500", code=124)
    assert found["exit_status"] == {"kind": "timeout", "code": 124}


def test_a_module_needs_a_sandbox_that_is_not_there(sums: Tree) -> None:
    sums.write(f"{FOLDER}/wasm/skill.wasm", "")
    done = sums.run("exec", "sums", "--yes", "--sandbox", "landlock")
    assert (done.exit_code, done.stdout) == (5, "")
    assert "needs the sandbox 'wasm'" in done.stderr


def test_a_sandbox_is_chosen_by_name(sums: Tree) -> None:
    assert document(sums, "--sandbox", "none", "--input", NUMBERS)["sandbox"] == "none"
    assert sums.run("exec", "sums", "--yes", "--sandbox", "paper").exit_code == 2


def test_verbose_says_what_was_enforced(sums: Tree) -> None:
    done = sums.run("exec", "sums", "--yes", "-v", "--input", NUMBERS)
    assert "network: none" in done.stderr


def test_who_interrupts_it_leaves_nothing_running(sums: Tree) -> None:
    slow = f"slow{time.time_ns()}"
    sums.write(f"{FOLDER}/scripts/{slow}.sh", "echo begun; while :; do :; done\n")
    with warm.Popen[bytes](
        [sys.executable, "-m", "skillbelt", "exec", "sums", "--yes", "--script", slow],
        cwd=sums.project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"begun\n"
        os.kill(child.pid, signal.SIGINT)
        assert child.wait(150) == 130
    deadline = time.monotonic() + 150
    while running(slow) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(slow)


def running(argument: str) -> list[str]:
    """The processes of this machine with the argument, or a path that ends in such a script."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if any(word.endswith((argument.encode(), f"/{argument}.sh".encode())) for word in words):
            found.append(pid)
    return found
