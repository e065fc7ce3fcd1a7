"""The command policy of `skill_run`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skillbelt.errors import ConfigError, RunRefused
from skillbelt.permission.command_policy import (
    CommandPolicy,
    check_vector,
    clean_environment,
    first_words,
    policy_from,
    prepare,
    split_words,
)
from skillbelt.settings import COMMAND_LISTS, load_settings
from tests.examples import examples

ECHO = CommandPolicy(allowed=("echo",))


def program(name: str) -> str:
    found = shutil.which(name, path="/usr/bin:/bin")
    assert found
    return os.path.join(os.path.realpath(os.path.dirname(found)), name)


def refused(command: str, policy: CommandPolicy, **options: str) -> str:
    with pytest.raises(RunRefused) as caught:
        prepare(command, policy, **options)
    return str(caught.value)


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """A folder of programs that replaces the system's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("good", "evil"):
        (folder / name).write_text(f"#!/bin/sh\necho {name}\n")
        (folder / name).chmod(0o755)
    return folder


# --- without a policy ----------------------------------------------------------------------------


def test_without_a_policy_bash_reads_the_command() -> None:
    assert prepare("echo $HOME | cat; ls *") == ("bash", "-c", "echo $HOME | cat; ls *")


@pytest.mark.parametrize("command", ["", "  ", "\n\t"])
@pytest.mark.parametrize("policy", [CommandPolicy(), ECHO])
def test_a_blank_command_is_refused(command: str, policy: CommandPolicy) -> None:
    assert refused(command, policy) == "skill and command are required"


@pytest.mark.parametrize("policy", [CommandPolicy(), ECHO])
@pytest.mark.parametrize(
    ("command", "reason"),
    [("echo a\0b", "NUL"), ("echo \ud800", "Unicode"), ("echo " + "x" * 2**17, "inputs")],
)
def test_a_command_that_can_not_be_passed_on_is_refused(
    command: str, reason: str, policy: CommandPolicy
) -> None:
    assert reason in refused(command, policy)


@pytest.mark.parametrize(
    ("words", "env", "reason"),
    [
        (["echo", "a\0b.py"], {}, "NUL"),
        (["echo", "x" * 2**17], {}, "131072 bytes: more than 131071"),
        (["x" * 100] * 10_000, {}, "more than 1048576"),
        (["echo"], {f"A{number}": "x" * 100_000 for number in range(11)}, "more than 1048576"),
        (
            ["echo"],
            {f"A{number}": "" for number in range(1001)},
            "1001 variables, more than 1000; give",
        ),
    ],
)
def test_what_no_program_can_be_started_with_is_refused(
    words: list[str], env: dict[str, str], reason: str
) -> None:
    with pytest.raises(RunRefused, match=reason):
        check_vector(words, env)


def test_as_much_as_fits_is_taken() -> None:
    check_vector(["echo", "\udcff", ""], {"A": "x" * 100_000, "B": "\udcff"})


# --- one command ---------------------------------------------------------------------------------


def test_a_listed_command_runs_with_its_words() -> None:
    """Case 82."""
    assert prepare("echo a b", ECHO) == (program("echo"), "a", "b")


def test_python_means_python3_where_there_is_no_other(tmp_path: Path) -> None:
    """By name, in both lists: a program denied by one name is not allowed by the other."""
    program = tmp_path / "python3"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for allowed in ("python", "python3"):
        policy = policy_from((allowed,), ())
        assert prepare("python a.py", policy, path=str(tmp_path)) == (str(program), "a.py")
    with pytest.raises(RunRefused, match="denied"):
        prepare("python a.py", policy_from((), ("python3",)), path=str(tmp_path))


def test_another_command_is_refused_and_both_are_named() -> None:
    """Case 82."""
    assert refused("ls", ECHO) == "command 'ls' is not allowed by allowed_commands (echo)"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("echo a; ls", "';'"),
        ("echo a > f", "'>'"),
        ("echo a | cat", "'|'"),
        ("echo a & ls", "'&'"),
        ("echo a && ls", "'&'"),
        ("echo a\nls", "a newline"),
        ("echo a\\\nls", "a newline"),
        ("echo a\rls", "a carriage return"),
        ("echo `ls`", "'`'"),
        ('echo "`ls`"', "'`'"),
        ("echo $(ls)", "'$'"),
        ('echo "$(ls)"', "'$'"),
        ("echo $HOME", "'$'"),
        ('echo "${HOME}"', "'$'"),
        ("echo $'a'", "'$'"),
        ("echo *.py", "'*'"),
        ("echo a?", "'?'"),
        ("echo [ab]", "'['"),
        ("echo {a,b}", "'{'"),
        ("echo ~", "'~'"),
        ("echo a=~", "'~'"),
        ("echo << EOF", "'<'"),
        ("echo a 2>&1", "'>'"),
        ("(echo a)", "'('"),
        ("echo a #b", "'#'"),
        ("A=b echo", "'='"),
        (" A+=b echo", "'='"),
    ],
)
def test_shell_syntax_is_refused_and_named(command: str, shown: str) -> None:
    """Case 82."""
    assert f"command policy: {shown};" in refused(command, ECHO)


@pytest.mark.parametrize("command", ["echo 'a", 'echo "a', "echo a\\", 'echo "a\\"'])
def test_a_quote_without_its_end_is_refused(command: str) -> None:
    assert "end" in refused(command, ECHO)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("echo '$(ls) | a; b' ''", ["$(ls) | a; b", ""]),
        (r"echo \$HOME \* \; a\ b", ["$HOME", "*", ";", "a b"]),
        (r"""echo "a\$b\"c\d" 'x'"y"z""", ['a$b"c\\d', "xyz"]),
        ("echo 'two\nlines'", ["two\nlines"]),
        ("echo a#b c~ d=e", ["a#b", "c~", "d=e"]),
        ("\techo\t é ", ["é"]),
    ],
)
def test_quotes_are_read_as_a_shell_reads_them(command: str, words: list[str]) -> None:
    assert prepare(command, ECHO)[1:] == tuple(words)


ALPHABET = "ab '\"\\$`|&;<>(){}[]*?~#=!:+-\n\r\t%^,/."


@settings(max_examples=examples(300))
@given(st.lists(st.text(ALPHABET, max_size=24), min_size=1, max_size=40))
@example(["a 'b' \"c\" \\d", "a\\'b", '"\\\\"', "a!b", "a=b:c", "--x=y"])
def test_what_passes_means_the_same_to_bash(texts: list[str]) -> None:
    """Bash gets every text that passes; it must see one command with exactly those words."""
    passed: list[tuple[str, list[str]]] = []
    for text in texts:
        try:
            passed.append((text, split_words(f"_probe {text}")))
        except RunRefused:
            continue
    assert [words for _, words in passed] == bash_words([text for text, _ in passed])


def bash_words(texts: list[str]) -> list[list[str]]:
    """Return bash's words of each text, from a function that prints its arguments."""
    if not texts:
        return []
    probe = '_probe() { printf "%s\\0" "_probe" "$@"; printf "\\1\\0"; }\n'
    script = probe + "".join(f"_probe {text}\n" for text in texts)
    done = subprocess.run(
        ["bash", "--norc", "-c", script], cwd="/usr/bin", env={"HOME": "/nowhere"},
        capture_output=True, timeout=500, check=True,
    )  # fmt: skip
    assert done.stderr == b""
    calls = done.stdout.decode().split("\1\0")
    assert calls.pop() == ""
    return [call.split("\0")[:-1] for call in calls]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("a 'b c' d", ["a", "b c"]),
        ("a $b c", ["a"]),
        ("*.py a", []),
        ("A=b c", []),
        ("'a", []),
        ("a", ["a"]),
        ("", []),
    ],
)
def test_the_first_words_end_where_the_shell_does_more(command: str, words: list[str]) -> None:
    assert first_words(command, 2) == words


@given(st.lists(st.text(ALPHABET, max_size=8), max_size=4).map(" ".join))
def test_the_first_words_are_those_of_the_whole(command: str) -> None:
    try:
        words = split_words(command)
    except RunRefused:
        return
    assert first_words(command, 2) == words[:2]


@given(st.text(max_size=40))
def test_no_text_raises_anything_but_a_refusal(text: str) -> None:
    for policy in (ECHO, CommandPolicy(denied=("rm",))):
        try:
            argv = prepare(text, policy)
        except RunRefused:
            continue
        assert argv[0].startswith("/")


# --- which program -------------------------------------------------------------------------------


def test_a_name_does_not_open_a_file_of_that_name_elsewhere(tmp_path: Path) -> None:
    """Case 83."""
    evil = tmp_path / "evil" / "python3"
    evil.parent.mkdir()
    evil.write_text("#!/bin/sh\n")
    evil.chmod(0o755)
    python = CommandPolicy(allowed=("python3",))
    for command in ("./evil/python3", "evil/python3", str(evil), "../python3"):
        assert "is not allowed by allowed_commands" in refused(command, python)


def test_a_name_is_looked_up_where_only_the_owner_writes(
    bin_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack 13."""
    (bin_folder / "echo").symlink_to("evil")
    monkeypatch.setenv("PATH", str(bin_folder))
    assert prepare("echo", ECHO) == (program("echo"),)


def test_the_full_path_of_a_listed_program_is_that_program() -> None:
    assert prepare(program("echo"), ECHO) == (program("echo"),)


def test_a_listed_path_is_that_file_only(bin_folder: Path) -> None:
    policy = CommandPolicy(allowed=(str(bin_folder / "good"),))
    assert prepare(f"{bin_folder}/good x", policy) == (str(bin_folder / "good"), "x")
    assert "not allowed" in refused("good", policy)
    assert "not allowed" in refused(f"{bin_folder}/evil", policy)


def test_one_file_of_many_programs_is_allowed_by_the_name_it_has(bin_folder: Path) -> None:
    (bin_folder / "busybox").write_bytes(b"#!/bin/sh\n")
    (bin_folder / "busybox").chmod(0o755)
    for name in ("ls", "sh"):
        (bin_folder / name).symlink_to("busybox")
    path = str(bin_folder)
    assert prepare("ls", CommandPolicy(allowed=("ls",)), path=path) == (f"{path}/ls",)
    assert "not allowed" in refused("sh", CommandPolicy(allowed=("ls",)), path=path)
    assert prepare("ls", CommandPolicy(denied=("rm",)), path=path) == (f"{path}/ls",)
    assert "starts other programs" in refused("sh", CommandPolicy(denied=("rm",)), path=path)
    assert "starts other" in refused("busybox rm", CommandPolicy(denied=("rm",)), path=path)


@pytest.mark.parametrize("command", ["nosuchprogram", "cd /", "export A"])
def test_what_is_no_program_is_refused(command: str) -> None:
    assert "is not a program in" in refused(command, CommandPolicy(denied=("rm",)))
    assert "not allowed" in refused(command, ECHO)


def test_a_listed_program_that_is_not_found_is_said_to_be_missing() -> None:
    said = refused("no-such-tool x", CommandPolicy(allowed=("no-such-tool",)))
    assert said.startswith("command 'no-such-tool' is not a program in /usr/local/sbin:")
    assert said.endswith(": name its path in allowed_commands")


def test_an_allow_list_without_entries_allows_nothing() -> None:
    assert "not allowed" in refused("echo", CommandPolicy(allowed=()))


# --- denied programs -----------------------------------------------------------------------------


def test_a_denied_program_is_refused_and_others_run() -> None:
    policy = CommandPolicy(denied=("rm",))
    assert refused("rm -rf x", policy) == "command 'rm' is denied by denied_commands"
    assert prepare("echo a", policy) == (program("echo"), "a")


def test_deny_wins_over_allow() -> None:
    """Case 84."""
    assert "denied by" in refused("echo a", CommandPolicy(allowed=("echo",), denied=("echo",)))


def test_a_denied_program_is_denied_by_all_its_names(bin_folder: Path) -> None:
    (bin_folder / "soft").symlink_to("evil")
    os.link(bin_folder / "evil", bin_folder / "hard")
    (bin_folder / "softer").symlink_to("hard")
    path = str(bin_folder)
    for policy in (
        CommandPolicy(denied=("evil",)),
        CommandPolicy(denied=("hard",)),
        CommandPolicy(allowed=("evil", "soft", "hard", "softer"), denied=(f"{path}/soft",)),
    ):
        for name in ("evil", "soft", "hard", "softer", f"{path}/soft"):
            assert "denied by denied_commands" in refused(name, policy, path=path)
    assert prepare("good", CommandPolicy(denied=("evil",)), path=path) == (f"{path}/good",)


def test_a_link_outside_the_system_to_a_denied_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").symlink_to("/bin/rm")
    shutil.copy("/bin/rm", tmp_path / "y")
    policy = CommandPolicy(denied=("rm",))
    assert "denied by" in refused(f"{tmp_path}/x", policy)
    assert "lies outside" in refused(f"{tmp_path}/y", policy)
    assert "is not a program" in refused("./x", policy)


@pytest.mark.parametrize(
    "command",
    [
        "env rm x",
        "sh -c 'rm x'",
        "bash -c 'rm x'",
        "dash x.sh",
        "xargs rm",
        "nice rm x",
        "timeout 5 rm x",
        "nohup rm x",
        "setsid rm x",
        "/usr/bin/env rm x",
        "prlimit rm x",
        "find . -exec rm '{}' +",
        "find . -ok rm",
        "tar xf a --to-command=rm",
        "python3 -c 'import os'",
        "python3 -Ic 'import os'",
        "python3 -W ignore -c x",
        "python3 -m timeit x",
        "python3 -",
        "python3",
        "perl -e x",
        "perl -ne x",
        "/lib64/ld-linux-x86-64.so.2 /bin/rm x",
    ],
)
def test_a_wrapper_can_not_smuggle_a_denied_program(command: str) -> None:
    word = command.split()[0]
    if not (os.path.exists(word) if "/" in word else shutil.which(word, path="/usr/bin:/bin")):
        pytest.skip(f"needs {word}, which is not installed")
    said = refused(command, CommandPolicy(denied=("rm",)))
    assert said.endswith("; it runs only when allowed_commands names it")


@pytest.mark.parametrize(
    "command", ["find . -name x", "python3 a.py -c x", "python3 -u a.py", "python3 --version"]
)
def test_what_only_could_be_a_wrapper_runs(command: str) -> None:
    argv = prepare(command, CommandPolicy(denied=("rm",)))
    assert argv[1:] == tuple(command.split()[1:])


def test_with_an_allow_list_a_wrapper_must_be_listed() -> None:
    for command in ("env echo", "bash -c echo", "sudo echo", "xargs echo"):
        assert "not allowed by allowed_commands" in refused(command, ECHO)
    assert prepare("env echo", CommandPolicy(allowed=("env",))) == (program("env"), "echo")


def test_a_listed_wrapper_is_not_handed_a_denied_program(tmp_path: Path) -> None:
    policy = CommandPolicy(allowed=("env", "timeout"), denied=("rm",))
    (tmp_path / "x").symlink_to("/bin/rm")
    for command in ("env rm x", "timeout 5 /bin/rm x", f"env {tmp_path}/x"):
        assert "denied by denied_commands" in refused(command, policy)
    assert prepare("env ls", policy)[1:] == ("ls",)


ALLOWED, DENIED = COMMAND_LISTS["allowed_commands"], COMMAND_LISTS["denied_commands"]


# --- where the lists come from -------------------------------------------------------------------


def policy_of(tmp_path: Path, environ: Mapping[str, str], **lists: list[str]) -> CommandPolicy:
    """The policy under an environment, with lists set in code."""
    settings = load_settings(tmp_path, environ={"HOME": str(tmp_path), **environ}, overrides=lists)
    return policy_from(settings.allowed_commands, settings.denied_commands)


def test_the_environment_gives_lists_separated_by_commas_or_blanks(tmp_path: Path) -> None:
    environ = {ALLOWED: "echo, ls  cat", DENIED: "rm,mv"}
    assert policy_of(tmp_path, environ) == CommandPolicy(("echo", "ls", "cat"), ("rm", "mv"))


def test_lists_in_code_override_the_environment(tmp_path: Path) -> None:
    """Case 84."""
    environ = {ALLOWED: "ls", DENIED: "echo"}
    policy = policy_of(tmp_path, environ, allowed_commands=["echo"], denied_commands=["ls"])
    assert policy == CommandPolicy(("echo",), ("ls",))
    assert prepare("echo a", policy)[1:] == ("a",)


def test_each_list_is_overridden_by_itself(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, {DENIED: "rm"}, allowed_commands=["echo"])
    assert policy == CommandPolicy(("echo",), ("rm",))


def test_no_lists_are_no_policy(tmp_path: Path) -> None:
    assert not policy_of(tmp_path, {ALLOWED: " , ", DENIED: ""}).active


@pytest.mark.parametrize("entry", ["./tool", "bin/tool", "git status", "a\0b"])
def test_an_entry_that_is_no_program_is_a_wrong_setting(entry: str) -> None:
    with pytest.raises(ConfigError, match=r"allowed_commands: .* absolute path"):
        policy_from([entry])
    with pytest.raises(ConfigError, match=r"argument allowed_commands: .* absolute path"):
        load_settings(overrides={"allowed_commands": [entry]})


# --- the environment of a command ----------------------------------------------------------------

HOSTILE = [
    "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "ENV",
    "BASH_FUNC_x%%", "BASH_FUNC_x()", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "NODE_OPTIONS",
    "GIT_SSH_COMMAND", "GIT_EXEC_PATH", "IFS", "PS4", "SHELLOPTS", "PERL5OPT", "RUBYOPT",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_variables_that_make_programs_run_others_are_dropped(name: str) -> None:
    """Case 85. Attack 61."""
    assert clean_environment({name: "x", "PLAIN": "y"}) == {"PLAIN": "y"}


def test_a_path_is_taken_but_not_under_a_policy() -> None:
    """Case 85."""
    given = {"PATH": "/evil", "A": "b"}
    assert clean_environment(given) == given
    assert clean_environment(given, policy=True) == {"A": "b"}


@pytest.mark.parametrize("name", ["", "a b", "a=b", "1a", "a-b", "é", "a\0", "a\n"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(RunRefused, match="is not the name of a variable"):
        clean_environment({name: "x"})


@pytest.mark.parametrize("value", ["a\0b", "\ud800", "x" * 2**17])
def test_a_value_that_can_not_be_passed_on_is_refused(value: str) -> None:
    with pytest.raises(RunRefused, match="env: the value of A"):
        clean_environment({"A": value})


def test_a_preload_does_not_reach_bash(tmp_path: Path) -> None:
    """Case 85. What is kept is given to a real bash."""
    hook = tmp_path / "hook"
    hook.write_text("echo smuggled\n")
    given = {"BASH_ENV": str(hook), "ENV": str(hook), "BASH_FUNC_echo%%": "() { printf evil; }"}
    done = subprocess.run(
        ["bash", "-c", "echo fine"], env=clean_environment(given), capture_output=True, check=True
    )
    assert done.stdout == b"fine\n"
    done = subprocess.run(["bash", "-c", "echo fine"], env=given, capture_output=True, check=True)
    assert done.stdout != b"fine\n"
