"""What every command has in common: options, exit codes, and what may reach a terminal."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillbelt import __version__, cli
from skillbelt.cli import COMMANDS
from skillbelt.cli.failure import INTERRUPTED
from skillbelt.cli.help_texts import EXAMPLES, GROUPS, TOPICS, suggest
from skillbelt.errors import SkillbeltError, UsageError
from skillbelt.settings import DEFAULTS
from tests import needs, warm
from tests.examples import MANY, first_one
from tests.terminal import on_terminal
from tests.tree import Done, Tree

# Each command with what it needs to do its work.
CALLS = {
    "list": [],
    "show": ["pdf"],
    "where": ["pdf"],
    "search": ["read pdf files"],
    "check": [],
    "doctor": [],
    "prompt": [],
    "load": ["pdf"],
    "read": ["pdf", "notes.md"],
    "run": ["pdf", "--yes"],
    "exec": ["pdf", "--yes"],
    "try": ["pdf", "--yes"],
    "eval": ["route"],
    "ask": ["Read this PDF.", "--yes"],
    "build": ["pdf"],
    "sessions": ["list"],
    "store": ["expire", "--days", "9"],
    "artifacts": ["list"],
    "permissions": [],
    "secrets": [],
    "trust": [],
    "log": [],
    "mcp": [],
    "refresh": [],
    "config": [],
    "sync": [],
    "update": [],
    "outdated": [],
    "verify": [],
    "remove": ["--all"],
    "add": [".agents/skills", "--skill", "pdf", "--dry-run"],
    "init": ["new-skill", "--dry-run"],
    "pack": [".agents/skills/pdf", "--dry-run"],
    "new-version": [".agents/skills/pdf", "--dry-run"],
    "export": ["claude", "--dry-run"],
    "import": ["--dry-run"],
    "scan": [],
    "diff": ["pdf", "pdf"],
    "enable": ["pdf"],
    "disable": ["pdf"],
}
# They do not end by themselves, do everything that the others do one by one, need a cluster or a
# key, or do not look at the project.
ENDLESS: dict[str, list[str]] = {
    "chat": [],
    "completion": ["bash"],
    "console": [],
    "demo": [],
    "fleet": ["status"],
    "link": ["."],
    "serve": ["mcp"],
    "sign": [".", "--key", "key.pem"],
    "watch": [],
}
# What a command gives for skills with such names: these refuse them.
ENDS = {"add": (0, 4), "pack": (0, 2), "new-version": (0, 2)}
WORDS = {"run": ["--", "true"]}  # what stands after all options
every_call = pytest.mark.parametrize("name", CALLS)
# Everything that moves a cursor, hides text or turns it round.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
HOSTILE = "Fine\x1b[2J\x1b]0;owned\x07 \u202eevil\u202c \x9b31m \u200bhidden\r\nnext\x08"


def called(name: str, *options: str) -> list[str]:
    """A command with what it needs, and options."""
    return [name, *(CALLS | ENDLESS)[name], *options, *WORDS.get(name, [])]


def timeless(done: Done) -> Done:
    return done._replace(stdout=re.sub(r'"(duration_ms|seconds)": [\d.]+', "", done.stdout))


@pytest.fixture
def skills(tree: Tree) -> Tree:
    tree.skill("project/.agents/skills/pdf", description="Reads PDF files.")
    tree.write("project/.agents/skills/pdf/notes.md", "# Notes\n")
    tree.write("project/.agents/skills/pdf/scripts/answer.sh", "echo {}\n")
    tree.write("project/.agents/skills/pdf/src/main.wat", '(module (func (export "_start")))')
    return tree


def test_every_command_is_tried_here() -> None:
    assert COMMANDS.keys() == CALLS.keys() | ENDLESS.keys()


def test_no_command_gives_the_overview(tree: Tree) -> None:
    done = tree.run()
    assert done.exit_code == 2
    shown = " ".join(done.stdout.split())
    for name, command in COMMANDS.items():
        assert re.search(rf"^  {name} ", done.stdout, re.M)
        assert f"{name} {command.summary}" in shown
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_what_may_be_left_out_is_not_called_required() -> None:
    with pytest.raises(UsageError, match=r"are required: CLIENT$"):
        cli.parser("export").parse_args([])


@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_help(tree: Tree, word: str) -> None:
    done = tree.run(word)
    assert done.exit_code == 0
    assert done.stdout.startswith("usage: skillbelt COMMAND")
    assert not done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command(tree: Tree, name: str) -> None:
    done = tree.run(name, "--help")
    assert done.exit_code == 0
    assert done.stdout.startswith(f"usage: skillbelt {name}")
    for option in ("--json", "--project DIR", "--config FILE", "-q, --quiet", "-v, --verbose"):
        assert option in done.stdout
    assert done.stdout.count("\n  skillbelt ") == 2
    assert not done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_command_are_understood(name: str) -> None:
    assert len(EXAMPLES[name]) == 2
    for one in EXAMPLES[name]:
        program, command, *words = shlex.split(one.line)
        assert (program, command) == ("skillbelt", name)
        made = cli.parser(name)
        if COMMANDS[name].words:
            words = cli._split_command(made, words, COMMANDS[name].own_words)[0]
        made.parse_intermixed_args(words)


def test_every_command_is_in_one_group() -> None:
    assert Counter(name for names in GROUPS.values() for name in names) == Counter(COMMANDS.keys())


@pytest.mark.parametrize("topic", TOPICS)
def test_help_of_a_topic(tree: Tree, topic: str) -> None:
    done = tree.run("help", topic)
    assert done == (0, f"{TOPICS[topic]}\n", "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert topic in tree.run("--help").stdout
    document = tree.run("help", topic, "--json").document
    assert document == {"topic": topic, "text": TOPICS[topic]}


def test_help_of_a_command_is_its_help(tree: Tree) -> None:
    assert tree.run("help", "list") == tree.run("list", "--help")


def test_help_of_what_is_no_topic(tree: Tree) -> None:
    done = tree.run("help", "exitcodes")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "did you mean 'exit-codes'?" in done.stderr


def test_the_exit_codes_of_errors_are_explained() -> None:
    explained = {
        int(line.split()[0]) for line in TOPICS["exit-codes"].splitlines() if line[:1].isdigit()
    }
    raised = {one.exit_code for one in every_error()}
    assert raised | {0, INTERRUPTED, 124} == explained


def every_error(base: type[SkillbeltError] = SkillbeltError) -> list[type[SkillbeltError]]:
    return [base, *(one for below in base.__subclasses__() for one in every_error(below))]


def test_what_stands_after_the_dashes_is_in_the_usage(tree: Tree) -> None:
    assert re.search(r"NAME -- COMMAND\.\.\.\n\n", tree.run("run", "--help").stdout)
    assert "NAME -- COMMAND..." in tree.run("run").stderr


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_version(tree: Tree, word: str) -> None:
    assert tree.run(word) == (0, f"skillbelt {__version__}\n", "")


def test_an_unknown_command_is_answered_with_the_closest(tree: Tree) -> None:
    done = tree.run("lsit")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "skillbelt: no command named 'lsit'; did you mean 'list'?\n"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("lint", "did you mean 'check'?"),
        ("ls", "did you mean 'list'?"),
        ("find", "did you mean 'search'?"),
        ("Info", "did you mean 'show'?"),
        ("trsut", "did you mean 'trust'?"),
        ("settings", "did you mean 'config'?"),
        ("publish", "did you mean 'pack'?"),
        ("version", "did you mean '--version'?"),
    ],
)
def test_an_unknown_command_is_answered_by_what_is_meant(tree: Tree, word: str, said: str) -> None:
    assert tree.run(word).stderr == f"skillbelt: no command named {word!r}; {said}\n"


@pytest.mark.parametrize("word", ["remove", "rm", "test", "new", "install", "create", "update"])
def test_what_is_suggested_can_be_done(word: str) -> None:
    """Which commands there are differs from version to version; `letters` is no meaning."""
    said = suggest(word, COMMANDS)
    named = re.fullmatch(r"did you mean '(\w+).*'\?", said)
    assert named[1] in COMMANDS if named else ".agents/skills/NAME" in said
    assert suggest(word, ()) == "" or ".agents" in suggest(word, ())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("list", "--clinet", "x"), "did you mean '--client'?"),
        (("mcp", "install", "claud-code"), "did you mean 'claude-code'?"),
        (("list", "--scope", "projct"), "did you mean 'project'?"),
    ],
)
def test_a_mistyped_option_or_choice_is_answered_by_the_closest(
    tree: Tree, words: tuple[str, ...], said: str
) -> None:
    *_, told, remedy = tree.run(*words).stderr.splitlines()
    assert told.endswith(said)
    assert remedy == f"    `skillbelt {words[0]} --help` shows what it takes"


def test_what_to_do_is_below_an_error_that_does_not_say_it(skills: Tree) -> None:
    done = skills.run("read", "pdf", "../x")
    assert done.stderr.splitlines()[-1] == "    give a path inside the folder"
    assert skills.run("show", "pfd").stderr.count("\n") == 1


def test_an_error_on_a_terminal_breaks_no_word(skills: Tree) -> None:
    screen = on_terminal(skills, "mcp", "install", "claud-code", columns=60)
    choices = next(n for n, line in enumerate(screen.lines) if "invalid choice" in line)
    shown = screen.lines[choices:]
    assert max(map(len, shown)) <= 60
    assert "'claude-desktop'," in " ".join(shown).split()


def test_help_on_a_terminal_is_in_colour(tree: Tree) -> None:
    plain = on_terminal(tree, "list", "--help", NO_COLOR="1")
    assert "\x1b[" not in plain.written
    painted = on_terminal(tree, "list", "--help")
    assert "\x1b[36m  --wide\x1b[0m" in painted.written
    assert painted.lines == plain.lines


def test_an_unknown_command_like_no_other_is_answered_with_the_help(tree: Tree) -> None:
    assert "`skillbelt --help`" in tree.run("xyzzy").stderr


def test_an_option_before_the_command_is_answered_with_its_place(tree: Tree) -> None:
    done = tree.run("--json", "list")
    assert done.exit_code == 2
    assert "after the command" in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option_is_wrong_usage(tree: Tree, name: str) -> None:
    done = tree.run(*called(name, "--no-such-option"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--no-such-option" in done.stderr
    assert f"usage: skillbelt {name}" in done.stderr


def test_options_are_not_abbreviated(tree: Tree) -> None:
    """So that a new option never changes what an old script means."""
    assert tree.run("list", "--js").exit_code == 2


@every_call
def test_json_is_one_document_and_nothing_else(skills: Tree, name: str) -> None:
    """The one that docs/reference/commands.md shows: what is in braces is always there."""
    tree = skills
    tree.write("project/.agents/skills/broken/SKILL.md", "Only text.\n")
    done = tree.run(*called(name, "--json"))
    document, (always, sometimes) = json.loads(done.stdout), documented()[name]
    assert set(document) - sometimes == always
    assert done.exit_code == 0


def documented() -> dict[str, tuple[set[str], set[str]]]:
    """For each command the keys of its document: those that are always there, and others."""
    text = Path(__file__).parents[1].joinpath("docs", "reference", "commands.md").read_text("utf-8")
    rows = re.findall(r"^- (`[\w`, -]+`): `?([^`|]*)`?(.*)$", text, re.M)
    return {
        name: (keys(shown), set(re.findall(r"`(\w+)`", rest)))
        for names, shown, rest in rows
        for name in re.findall(r"[\w-]+", names)
    }


def keys(shown: str) -> set[str]:
    """The keys of the outer object of a document as it is shown."""
    if shown.startswith("{SETTING"):
        return set(DEFAULTS)
    outer = shown.strip()[1:-1]
    while (inner := re.sub(r"[\[{][^\[\]{}]*[\]}]", "", outer)) != outer:
        outer = inner
    return set(re.findall(r'"(\w+)"', outer))


def test_the_document_of_every_command_is_shown() -> None:
    assert documented().keys() == COMMANDS.keys()


@every_call
def test_json_with_verbose_is_still_one_document(skills: Tree, name: str) -> None:
    assert isinstance(json.loads(skills.run(*called(name, "--json", "-v")).stdout), dict)


@every_call
def test_quiet_says_nothing_beside_the_answer(skills: Tree, name: str) -> None:
    tree = skills
    tree.write("project/.agents/skills/broken/SKILL.md", "Only text.\n")
    assert tree.run(*called(name, "-q")).stderr == ""


@every_call
def test_project_is_another_folder(skills: Tree, name: str) -> None:
    elsewhere = skills.path("elsewhere")
    elsewhere.mkdir()
    # All of them find the index as it will be, and the skill switched already.
    skills.run(*(called(name) if name == "disable" else ["list"]))
    here = skills.run(*called(name, "--json"))
    arguments = called(name, "--json", "--project", str(skills.project))
    there = skills.run(*arguments, project=elsewhere)
    assert timeless(there) == timeless(here)


@every_call
def test_a_project_that_is_not_there_is_wrong_usage(skills: Tree, name: str) -> None:
    done = skills.run(*called(name, "--project", "nowhere"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "nowhere: no such folder" in done.stderr


@every_call
def test_a_config_that_is_not_there_is_wrong_usage(skills: Tree, name: str) -> None:
    done = skills.run(*called(name, "--config", "nowhere.toml"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "nowhere.toml: no such file" in done.stderr


@every_call
def test_a_wrong_setting_names_file_and_line(skills: Tree, name: str) -> None:
    file = skills.write("project/skillbelt.toml", "# mine\nmax_dept = 3\n")
    done = skills.run(*called(name))
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{file}:2: unknown setting 'max_dept'; did you mean 'max_depth'?" in done.stderr


def hostile(tree: Tree) -> None:
    """A skill that would do something to a terminal, in every place that is printed."""
    name = "evil\x1b[31m\u202e"
    text = json.dumps(HOSTILE)
    folder = tree.path(f"project/.agents/skills/{name}")
    block = f'name: "pdf"\ndescription: {text}\n"a\\e[1m": {text}\nlicense: {text}'
    tree.write(folder / "SKILL.md", f"---\n{block}\nmetadata: {{a: {text}}}\n---\n# T\n")
    tree.write(folder / "bad\x1b[5m\u202e.md", "text")
    tree.write("project/.agents/skills/b\x1b[7m/SKILL.md", b"---\nname: \xff\n---\n")
    tree.write("project/.agents/skills/c\x1b[7m/SKILL.md", f"---\nname: {text}\n---\n")


@every_call
@pytest.mark.parametrize(
    "more", first_one(["-v"], [], ["--json"]), ids=["verbose", "plain", "json"]
)
def test_nothing_from_a_skill_reaches_the_terminal(tree: Tree, name: str, more: list[str]) -> None:
    hostile(tree)
    extra = ["--all"] if name == "list" else []
    screen = on_terminal(tree, *called(name, *extra, *more))
    assert screen.exit_code in ENDS.get(name, (0, 1))
    assert not CONTROL.search("\n".join(screen.lines))
    assert "\x1b]" not in screen.written
    assert "\x1b[2J" not in screen.written


@pytest.mark.parametrize("name", [name for name in CALLS if name != "where"])
def test_nothing_from_a_skill_reaches_a_pipe(tree: Tree, name: str) -> None:
    """`where` gives the very path, for scripts."""
    hostile(tree)
    done = tree.run(*called(name, "-v"))
    assert not CONTROL.search((done.stdout + done.stderr).replace("\t", ""))


@every_call
def test_a_closed_pipe_is_no_error(skills: Tree, name: str) -> None:
    """As `skillbelt list | head -0` closes it, before anything is written."""
    read, write = os.pipe()
    os.close(read)
    done = warm.run(
        [sys.executable, "-m", "skillbelt", *called(name)],
        cwd=skills.project,
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=500,
        check=False,
    )
    os.close(write)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert b"Broken" not in done.stderr


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["list", "--help"]], ids=str)
def test_a_closed_pipe_is_no_error_for_help(tree: Tree, words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "skillbelt", *words]
    done = warm.run(command, stdout=write, stderr=subprocess.PIPE, timeout=500, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


@needs.full_device
@every_call
def test_a_full_disk_is_told_in_a_line(skills: Tree, name: str) -> None:
    with open("/dev/full", "wb") as full:
        done = warm.run(
            [sys.executable, "-m", "skillbelt", *called(name, "--json")],
            cwd=skills.project,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=500,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"skillbelt: ")
    assert b"No space left" in done.stderr
    assert done.stderr.count(b"\n") == 1


@needs.full_device
def test_an_error_that_a_full_disk_does_not_take_is_a_line_too(tree: Tree) -> None:
    command = [sys.executable, "-m", "skillbelt", "show", "nope", "--json"]
    with open("/dev/full", "wb") as full:
        done = warm.run(command, stdout=full, stderr=subprocess.PIPE, timeout=500, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(b"skillbelt: no skill named 'nope'")
    assert done.stderr.count(b"\n") == 1


@every_call
@pytest.mark.property
@pytest.mark.parametrize("encoding", first_one("ascii", "latin-1", "utf-8"))
def test_any_locale_will_do(tree: Tree, name: str, encoding: str) -> None:
    tree.skill("project/.agents/skills/pdf", description="Liest Dateien für 李 … 🙂", license="“x”")
    tree.write("project/.agents/skills/pdf/ü-李.md", "text")
    tree.skill("project/.agents/skills/ü-李", description=None)
    environ = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    # The start chooses the encodings; the warm process has one with these too.
    run: Callable[..., Any] = subprocess.run if name == "list" else warm.run
    # What is printed in many words is what an encoding may lack; JSON has only ASCII.
    for more in ([], ["--json"], ["-v"]) if encoding == "ascii" or MANY else (["-v"],):
        done = run(
            [sys.executable, "-m", "skillbelt", *called(name, *more)],
            cwd=tree.project,
            env=environ,
            capture_output=True,
            timeout=500,
            check=False,
        )
        assert done.returncode in ENDS.get(name, (0, 1))
        assert b"Traceback" not in done.stderr
        done.stdout.decode(encoding if name != "where" else "utf-8")


def test_a_folder_whose_name_is_no_text(tree: Tree) -> None:
    name = os.fsdecode(b"pdf-\xff")
    tree.skill(f"project/.agents/skills/{name}", name="pdf", text="Text.\n")
    for command in CALLS:
        for more in ([], ["--json"]):
            done = tree.run(*called(command, *more))
            # The folder that is to be packed is named by its path, and there is none of that name.
            assert done.exit_code in ((2,) if command in ("pack", "new-version") else (0, 1))
            assert "Traceback" not in done.stderr
    tree.run("enable", "pdf")
    assert os.fsencode(tree.run("where", "pdf").stdout).endswith(b"pdf-\xff\n")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (MemoryError(), "there is not enough memory for this (see ulimit -v)"),
        (ImportError("x.so: failed to map segment from shared object"), "not enough memory"),
        (RuntimeError("can't start new thread"), "no thread can be started"),
    ],
)
def test_a_shortage_is_one_line(
    error: Exception,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr(cli, "_dispatch", fail)
    assert cli.main(["list"]) == 1
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


def test_a_mistake_of_ours_is_not_taken_for_a_shortage(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> int:
        raise RuntimeError("something else")

    monkeypatch.setattr(cli, "_dispatch", fail)
    with pytest.raises(RuntimeError, match="something else"):
        cli.main(["list"])


@pytest.mark.parametrize("most", [6, 8, 10, 14])
def test_few_file_handles_give_one_line(tree: Tree, most: int) -> None:
    tree.skill("project/.agents/skills/pdf")
    code = (
        "import resource, sys; from skillbelt.cli import main\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({most}, {most}))\n"
        "sys.exit(main(['run', 'pdf', '--yes', '--', 'true']))"
    )
    done = warm.run([sys.executable, "-c", code], cwd=tree.project, capture_output=True, text=True)
    assert done.returncode in (1, 2, 3, 5)
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("skillbelt: ")


# --- the end of the process ----------------------------------------------------------------------


def end_of(code: str) -> subprocess.CompletedProcess[str]:
    """Run `skillbelt --version` as a process in which `code` was executed before."""
    given = f"import sys; sys.argv = ['skillbelt', '--version']\n{code}\n"
    return subprocess.run(
        [sys.executable, "-c", f"{given}from skillbelt.cli import run_process\nrun_process()"],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def test_a_process_ends_with_the_exit_code_and_all_of_its_output() -> None:
    done = end_of("")
    assert (done.returncode, done.stdout) == (0, f"skillbelt {__version__}\n")
    assert end_of("sys.argv[1:] = ['nonsense']").returncode == 2


def test_ctrl_c_while_the_command_is_loaded_prints_no_traceback() -> None:
    code = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "skillbelt.cli.help_texts":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from skillbelt.__main__ import start
start()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=500)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


def test_what_is_registered_for_the_end_of_the_process_is_called() -> None:
    done = end_of("import atexit; atexit.register(print, 'at the end')")
    assert done.stdout.endswith("\nat the end\n")


def test_a_process_waits_for_its_threads() -> None:
    code = """
import threading
def late():
    threading.main_thread().join()  # the interpreter ends it before it waits for the others
    print("late")
threading.Thread(target=late).start()
"""
    assert end_of(code).stdout.endswith("\nlate\n")


def test_output_that_cannot_be_written_is_no_success() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "skillbelt", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=500,
            check=False,
        )
    assert done.returncode != 0
