"""`skillbelt completion`, as real shells use it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import Any

import pytest

from skillbelt.cli import completion_names
from skillbelt.cli.completion import SCRIPTS, complete
from skillbelt.store import SessionKey, open_store
from tests.needs import not_run
from tests.tree import Tree

HANG_SECONDS = 500
_STYLE = re.compile(r"\x1b\[[0-?]*[@-~]|\x1b[=>]")
# Names that would run something, were they read by a shell; the format allows none of them.
HOSTILE = ("$(touch x)", "`touch x`", "a b", "a\nb", "a;touch x", "'touch x'", "a|b", "~", "*", "&")
# What the skills of these folders are called.
CLEANED = ["a-b", "a-touch-x", "csv", "pdf-form", "pdf-read", "skill", "touch-x"]


@pytest.fixture
def skills(tree: Tree) -> Tree:
    tree.skill("project/.agents/skills/pdf-form", description="Fills forms.")
    tree.skill("project/.agents/skills/pdf-read", description="Reads PDF files.")
    tree.skill("project/.agents/skills/csv", description="Reads tables.")
    for name in HOSTILE:
        block = f"---\nname: {json.dumps(name)}\ndescription: {json.dumps(name)}\n---\nText.\n"
        tree.write(f"project/.agents/skills/{name}/SKILL.md", block)
    os.chdir(tree.project)
    return tree


@pytest.fixture(autouse=True)
def _folder() -> Iterator[None]:
    before = os.getcwd()
    yield
    os.chdir(before)


def words(*typed: str, splits: bool = False) -> list[str]:
    kind, found = complete(("skillbelt", *typed), splits=splits)
    assert kind == "words"
    return [one.word for one in found]


# what may come next


def test_commands() -> None:
    assert words("se") == ["search", "sessions", "secrets", "serve"]
    assert words("--v") == ["--version"]
    assert "list" in words("")
    assert words("nonsense", "") == []
    assert words("help", "exit") == ["exit-codes"]
    assert words("mcp", "install", "claude-") == ["claude-code", "claude-desktop"]


def test_options_and_their_choices() -> None:
    assert words("list", "--sc") == ["--scope"]
    assert words("list", "--scope", "p") == ["project"]
    assert words("list", "--scope=p") == ["--scope=project"]
    assert words("list", "--client", "claud") == ["claude"]
    assert words("trust", "a") == ["add"]
    assert words("list", "--all", "--scope", "user", "--") == words("list", "--")


def test_files_and_folders() -> None:
    assert complete(("skillbelt", "ask", "x", "--file", "")) == ("files", [])
    assert complete(("skillbelt", "list", "--project", "")) == ("folders", [])
    assert complete(("skillbelt", "list", "--project=")) == ("folders", [])
    assert complete(("skillbelt", "run", "pdf", "--", "python3", "")) == ("files", [])


def test_names_of_skills(skills: Tree) -> None:
    assert words("show", "pdf") == ["pdf-form", "pdf-read"]
    assert words("run", "--timeout", "3", "c") == ["csv"]
    assert words("permissions", "why", "c") == ["csv"]
    assert words("permissions", "allow", "c") == []
    assert words("log", "--skill=c") == ["--skill=csv"]
    assert words("show", "csv", "") == []  # it takes one
    assert words("disable", "csv", "pdf-f") == ["pdf-form"]
    assert words("where", "--project", str(skills.root), "") == []


def test_only_disabled_skills_can_be_enabled(skills: Tree) -> None:
    assert words("enable", "") == []
    assert skills.run("disable", "csv").exit_code == 0
    assert words("enable", "") == ["csv"]
    assert "csv" not in words("disable", "")


def test_sessions_on_this_machine(tree: Tree) -> None:
    store = open_store(tree.settings())
    for name in ("talk", "$(touch x)"):
        store.append(SessionKey("skillbelt", "me", name), [])
    os.chdir(tree.project)
    assert words("sessions", "show", "") == ["skillbelt/me/talk"]
    assert words("artifacts", "--session", "skill") == ["skillbelt/me/talk"]


def test_no_server_is_asked(tree: Tree) -> None:
    started = tree.path("started")
    command = f"local=touch {started}"
    text = f"urls = ['mcp+https://127.0.0.1:9/mcp#x']\nmcp_commands = [{json.dumps(command)}]\n"
    tree.write("home/.config/skillbelt/config.toml", text)
    os.chdir(tree.project)
    assert words("show", "") == []
    assert not started.exists()


def test_wrong_settings_give_no_names(skills: Tree) -> None:
    skills.write("project/skillbelt.toml", "nonsense = 1\n")
    assert words("show", "") == []
    assert words("list", "--sc") == ["--scope"]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("list", "--scope", "=", "p"), ["project"]),
        (("trust", "list", "--project", "="), None),
        (("log", "--skill", "=", "pdf-f"), ["pdf-form"]),
        (("permissions", "--initiator", "="), ["model", "user"]),
    ],
)
def test_bash_cuts_words_at_its_marks(
    skills: Tree, typed: tuple[str, ...], offered: list[str] | None
) -> None:
    kind, found = complete(("skillbelt", *typed), splits=True)
    assert kind == ("folders" if offered is None else "words")
    assert [one.word for one in found] == (offered or [])


def test_a_name_that_a_shell_would_read_is_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [(name, "") for name in (*HOSTILE, "-rf", "--json", "ok", "ü-李", "server.name", "a:b")]
    monkeypatch.setattr(completion_names, "find_names", lambda *_: names)
    assert words("show", "") == ["ok", "ü-李", "server.name", "a:b"]
    assert words("show", "a", ":", splits=True) == ["b"]


# the command


def test_the_script_is_printed_and_says_nothing_else(tree: Tree) -> None:
    for shell, script in SCRIPTS.items():
        assert tree.run("completion", shell) == (0, script, "")
    document = tree.run("completion", "fish", "--json").document
    assert document == {"shell": "fish", "script": SCRIPTS["fish"]}


def test_help_says_how_to_install_it(tree: Tree) -> None:
    said = " ".join(tree.run("completion", "--help").stdout.split())
    for line in (
        'eval "$(skillbelt completion bash)"',
        'eval "$(skillbelt completion zsh)"',
        "skillbelt completion fish | source",
    ):
        assert line in said


def test_options_are_completed_without_the_catalogue(tree: Tree) -> None:
    code = (
        "import sys; from skillbelt.cli import main; main(sys.argv[1:]); "
        "print([m for m in sys.modules if m in ('sqlite3', 'skillbelt.settings', 'yaml', 'rich')])"
    )
    command = [sys.executable, "-c", code, "completion", "bash", "--"]
    done = subprocess.run(
        [*command, "skillbelt", "run", "--out"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "words\n--output\n--output-dir\n[]\n"


# in real shells


def shell(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        not_run(f"needs {name}, which scripts/setup.sh installs")
    return found


def program(tree: Tree) -> str:
    """Return a PATH on which `skillbelt` is this one."""
    own = tree.write("bin/skillbelt", f'#!/bin/sh\nexec "{sys.executable}" -m skillbelt "$@"\n')
    own.chmod(0o755)
    return f"{own.parent}:{os.environ['PATH']}"


def check_nothing_ran(tree: Tree) -> None:
    assert not [path for path in tree.root.rglob("x") if path.is_file()]


def run_shell(tree: Tree, command: list[str], script: str) -> list[str]:
    """Run a script in the project; return the lines it prints."""
    done = subprocess.run(
        command,
        input=script,
        cwd=tree.project,
        env={**os.environ, "PATH": program(tree), "TERM": "dumb"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    check_nothing_ran(tree)
    return done.stdout.splitlines()


def test_bash(skills: Tree) -> None:
    script = """
offer() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _skillbelt; echo "${COMPREPLY[*]}"; }
compopt() { echo "compopt $*"; }
offer skillbelt sess
offer skillbelt show pdf
offer skillbelt list --scope = p
offer skillbelt show '$(touch x)'
offer skillbelt show ''
offer skillbelt ask --file ''
complete -p skillbelt
"""
    assert run_shell(skills, [shell("bash"), "--norc"], SCRIPTS["bash"] + script) == [
        "sessions",
        "pdf-form pdf-read",
        "project",
        "",
        " ".join(CLEANED),
        "compopt -o default",
        "",
        "complete -F _skillbelt skillbelt",
    ]


def test_fish(skills: Tree) -> None:
    script = """
complete -C 'skillbelt sess'
complete -C 'skillbelt show pdf-'
complete -C 'skillbelt list --scope=p'
complete -C 'skillbelt show $(touch x)'
complete -C 'skillbelt show '
"""
    lines = run_shell(skills, [shell("fish"), "--no-config"], SCRIPTS["fish"] + script)
    assert [line.partition("\t")[0] for line in lines] == [
        "sessions",
        "pdf-form",
        "pdf-read",
        "--scope=project",
        *CLEANED,
    ]
    assert "pdf-read\tReads PDF files." in lines


def test_zsh(skills: Tree) -> None:
    """At a terminal, since zsh completes nowhere else."""
    own = program(skills)
    skills.write("functions/_skillbelt", SCRIPTS["zsh"])
    environ = {"PATH": own, "TERM": "xterm", "HOME": str(skills.home), "PYTHONUTF8": "1"}
    environ |= {name: value for name, value in os.environ.items() if name.startswith("XDG_")}
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    command = [shell("zsh"), "-f", "-i"]
    options: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    options |= {"cwd": skills.project, "env": environ, "start_new_session": True}
    with subprocess.Popen[bytes](command, **options) as child:
        try:
            os.write(ours, f"fpath=({skills.root}/functions $fpath); PS1='ready''> '\n".encode())
            read_until(ours, "ready> ")
            os.write(ours, b"autoload -Uz compinit; compinit -u -D; echo load''ed\n")
            read_until(ours, "loaded")
            for typed, shown in (
                ("skillbelt sessi\t", "sessions"),
                ("skillbelt show cs\t", "csv"),
                ("skillbelt list --scope=pro\t", "--scope=project"),
                ("skillbelt show pdf-r\t", "pdf-read"),
                ("skillbelt show pdf-\t", "Reads PDF files."),
                ("skillbelt show \t", "Fills forms."),
            ):
                os.write(ours, typed.encode())
                read_until(ours, shown)
                os.write(ours, b'\x15\x0becho "e"nd\n')
                read_until(ours, "\nend")
        finally:
            child.kill()
            os.close(theirs)
            os.close(ours)
    check_nothing_ran(skills)


def read_until(handle: int, text: str) -> str:
    """Read a terminal until it shows the text."""
    seen = ""
    while text not in _STYLE.sub("", seen).replace("\r", ""):
        assert select.select([handle], [], [], HANG_SECONDS)[0], f"{text!r} did not come: {seen!r}"
        seen += os.read(handle, 65536).decode("utf-8", "replace")
    return seen
