"""Every command that fails with --json prints one JSON document, whatever goes wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from skillbelt.cli import COMMANDS, main
from tests import warm
from tests.test_cli import CALLS, WORDS, called
from tests.tree import Done, Tree

every_command = pytest.mark.parametrize("name", COMMANDS)


def error_of(done: Done) -> dict[str, Any]:
    """The error in the one document on stdout."""
    found: dict[str, Any] = json.loads(done.stdout)["error"]
    assert found["exit_code"] == done.exit_code
    assert found["message"] and found["remedy"]
    return found


@every_command
def test_an_unknown_option(tree: Tree, name: str) -> None:
    found = error_of(tree.run(*called(name, "--json", "--bogus")))
    assert (found["kind"], found["exit_code"]) == ("usage", 2)
    assert "--bogus" in found["message"]
    assert f"skillbelt {name} --help" in found["remedy"]


# The demo has settings of its own; the script for a shell depends on none.
@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"demo", "completion"}))
def test_a_settings_file_that_is_not_there(tree: Tree, name: str) -> None:
    found = error_of(tree.run(*called(name, "--json", "--config", "/nope.toml")))
    assert (found["kind"], found["exit_code"]) == ("config", 2)
    assert "/nope.toml" in found["message"]


@pytest.mark.parametrize("name", ["show", "where", "load", "read", "run", "exec", "build"])
def test_a_skill_that_is_not_there(tree: Tree, name: str) -> None:
    tree.skill("project/.agents/skills/pdf")
    words = [word.replace("pdf", "pfd") for word in CALLS[name]]
    found = error_of(tree.run(name, *words, "--json", *WORDS.get(name, [])))
    assert (found["kind"], found["exit_code"]) == ("skill_not_found", 3)
    assert (found["name"], found["closest"]) == ("pfd", ["pdf"])


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["nosuch", "--json"], "usage"),
        (["--json"], "usage"),
        (["read", "pdf", "../x", "--json"], "path_escape"),
        (["read", "pdf", "x.md", "--json"], "file_unreadable"),
        (["read", "pdf", "SKILL.md", "--section", "Nothing", "--strict", "--json"], "usage"),
        (["run", "pdf", "--json", "--", "true"], "permission_denied"),
        (["exec", "pdf", "--json"], "permission_denied"),
        (["artifacts", "get", "nope", "--json"], "artifact"),
        (["sessions", "show", "a/b/c", "--json"], "not_found"),
        (["sessions", "delete", "a/b/c", "--json"], "not_found"),
        (["trust", "remove", "/nope", "--json"], "not_found"),
        (["run", "pdf", "--sandbox", "nope", "--yes", "--json", "--", "true"], "config"),
        (["ask", "", "--json"], "config"),
    ],
)
def test_each_has_its_kind(tree: Tree, words: list[str], kind: str) -> None:
    tree.skill("project/.agents/skills/pdf")
    tree.write("project/.agents/skills/pdf/scripts/answer.sh", "echo {}\n")
    assert error_of(tree.run(*words))["kind"] == kind


def test_the_words_of_the_command_that_is_run_are_not_ours(tree: Tree) -> None:
    done = tree.run("run", "nope", "--", "--json")
    assert (done.exit_code, done.stdout) == (3, "")


@pytest.mark.parametrize("name", ["log", "watch"])
def test_an_interrupt(tree: Tree, name: str) -> None:
    options = {"log": ["--follow"]}.get(name, [])
    child = warm.Popen[str](
        [sys.executable, "-m", "skillbelt", *called(name, "--json", *options)],
        cwd=tree.project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    assert "Ctrl-C stops it" in child.stderr.readline()
    child.send_signal(signal.SIGINT)
    stdout, _ = child.communicate(timeout=500)
    found = json.loads(stdout.splitlines()[-1])["error"]
    assert (child.returncode, found["kind"], found["exit_code"]) == (130, "interrupted", 130)


def fail(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_args: object) -> int:
        raise error

    monkeypatch.setattr("skillbelt.cli.listing.run", run)


def test_an_interrupt_of_a_command_that_printed_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail(KeyboardInterrupt(), monkeypatch)
    before = signal.getsignal(signal.SIGINT)
    try:
        assert main(["list", "--json"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "interrupted"


def test_a_fault_of_ours_still_shows_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail(ZeroDivisionError("oh"), monkeypatch)
    with pytest.raises(ZeroDivisionError):
        main(["list", "--json"])
    found = json.loads(capsys.readouterr().out)["error"]
    assert (found["kind"], found["message"]) == ("internal", "ZeroDivisionError: oh")


def test_an_error_of_the_system(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf")
    code = (
        "import sys; from skillbelt.cli import main, listing\n"
        "def run(_args): raise PermissionError(13, 'Permission denied', 'file')\n"
        "listing.run = run; sys.exit(main(['list', '--json']))"
    )
    done = warm.run(
        [sys.executable, "-c", "from skillbelt.cli import listing\n" + code],
        cwd=tree.project, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    found = json.loads(done.stdout)["error"]
    assert (done.returncode, found["kind"], found["exit_code"]) == (1, "system", 1)


def test_a_denied_execution_has_its_own_document_with_the_error(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf")
    tree.write("project/.agents/skills/pdf/scripts/answer.sh", "echo {}\n")
    document = tree.run("exec", "pdf", "--json").document
    assert document["exit_status"]["kind"] == document["error"]["kind"] == "permission_denied"


def test_a_question_that_failed_says_why(tree: Tree) -> None:
    tree.skill("project/.agents/skills/pdf", "Reads PDF files.")
    tree.write("project/.agents/skills/pdf/scripts/answer.sh", "exit 3\n")
    done = tree.run("ask", "Read this PDF file.", "--json")
    assert done.exit_code == 4
    assert error_of(done)["kind"] == "permission_denied"


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("artifacts list --output x", "skillbelt artifacts get NAME --output FILE"),
        ("build nowhere/", "skillbelt list"),
        ("check nowhere", "skillbelt check --all"),
        ("fleet join", "skillbelt fleet join HOST:PORT"),
        ("fleet status one", "skillbelt fleet drain NODE"),
        ("mcp clients zed", "skillbelt mcp install CLIENT"),
        ("pack .", "skillbelt init NAME"),
        ("remove", "skillbelt remove --all"),
        ("search", "skillbelt search QUERY"),
        ("secrets list NAME", "skillbelt secrets list --skill SKILL"),
        ("serve mcp --tokens x", "skillbelt serve http --tokens FILE"),
        ("sessions list x", "skillbelt sessions show ID"),
        ("sessions show x --format md", "skillbelt sessions export ID --format md"),
    ],
)
def test_wrong_usage_names_the_command_that_is_meant(tree: Tree, words: str, command: str) -> None:
    done = tree.run(*words.split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"`{command}`" in done.stderr
