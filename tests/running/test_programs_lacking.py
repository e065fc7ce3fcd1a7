"""The hints of a result about a program, a module, a host or a folder that a command lacked."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator

import pytest

from skillbelt.running.json_call import execute
from skillbelt.running.programs.hint import Hint
from skillbelt.running.programs.hints import MAX_HINTS, HintFacts, hints_of
from tests import needs
from tests.bench import ME, Bench
from tests.tree import Tree

pytestmark = needs.linux
SANDBOXES = ("bubblewrap", "landlock", "none")
ABSENT = "codeql"  # a program of the table that no test machine has


@pytest.fixture
def echo(open_tree: Tree) -> Iterator[Bench]:
    bench = Bench(open_tree)
    yield bench
    bench.close()


def facts(exit_code: int = 1, **changed: object) -> HintFacts:
    """The facts of a run that has nothing."""
    plain = HintFacts(
        skill="echo",
        exit_code=exit_code,
        has=lambda name: False,
        elsewhere=lambda name: "",
        interpreter_of=lambda path: "",
        package_of=lambda kind, name: (name.partition(".")[0], True),
        is_package=lambda kind, name: name != "evil",
        own=lambda name: False,
        closed=lambda path: "read-only",
    )
    return plain._replace(**changed)  # type: ignore[arg-type]


def found(text: str, exit_code: int = 1, **changed: object) -> list[tuple[str, str]]:
    return [(one.kind, one.name) for one in hints_of("", text, facts(exit_code, **changed))]


# --- programs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_a_missing_program_is_named_with_what_has_it(echo: Bench, sandbox: str) -> None:
    bench = echo.make(sandbox=sandbox)
    for command in ((ABSENT, "x"), f"{ABSENT} x", f"sh -c '{ABSENT} x'", f"uv run {ABSENT} x"):
        result = echo.run(command, bench=bench)
        assert result.exit_code == 127
        assert [one.document() for one in result.hints] == [
            {
                "kind": "missing_program",
                "name": ABSENT,
                "message": f"{ABSENT} is not installed here: brew install {ABSENT}",
                "package": ABSENT,
                "install": [f"brew install {ABSENT}"],
            }
        ]


def test_a_script_whose_interpreter_is_missing_says_which(echo: Bench) -> None:
    echo.write("one", f"#!/usr/bin/env {ABSENT}\n", 0o755)
    echo.write("two", f"#!/opt/{ABSENT} -x\n", 0o755)
    echo.write("three", f"#!/usr/bin/env -S {ABSENT} run\n", 0o755)
    for command in ("./one", ("./one",), "./two", ("./two",), "./three"):
        result = echo.run(command)
        assert [(one.kind, one.name) for one in result.hints] == [("missing_program", ABSENT)]


def test_an_interpreter_that_is_elsewhere_is_named_with_how_to_start(echo: Bench) -> None:
    echo.write("one.py", "#!/opt/no/such/place/python\n", 0o755)
    for command in ("./one.py", ("./one.py",), "bash -c ./one.py"):
        (hint,) = echo.run(command).hints
        assert hint.message.endswith("start it with `python SCRIPT`")


@pytest.mark.parametrize(
    "command",
    [f"python -c 'import subprocess; subprocess.run([\"{ABSENT}\"])'",
     f"bash -c '{ABSENT} x; true'", f"env {ABSENT}", f"echo x | xargs {ABSENT}"],
)  # fmt: skip
def test_a_program_that_a_script_starts_is_named(echo: Bench, command: str) -> None:
    result = echo.run(command)
    assert [(one.kind, one.name) for one in result.hints] == [("missing_program", ABSENT)]


@needs.node
def test_a_program_that_node_starts_is_named(echo: Bench) -> None:
    result = echo.run(f'node -e \'require("child_process").spawn("{ABSENT}")\'')
    assert [(one.kind, one.name) for one in result.hints] == [("missing_program", ABSENT)]


def test_a_program_that_is_there_is_not_called_missing(echo: Bench) -> None:
    """For any output of a skill."""
    echo.write("bin/own", "#!/bin/sh\n", 0o755)
    for name in ("git", "python", "uv", "own"):
        assert echo.run(f"echo 'bash: line 1: {name}: command not found' >&2; exit 127").hints == ()


def test_a_program_out_of_sight_is_found_and_the_setting_named(
    echo: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = echo.tree.home / "tools"
    tools.mkdir(parents=True)
    shutil.copy("/bin/true", tools / "unheard-of")
    monkeypatch.setenv("HOME", str(echo.tree.home))
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    (hint,) = echo.run("unheard-of").hints
    assert hint.message == (
        "unheard-of is on this machine in ~/tools, which runs do not see: add that folder to "
        "program_folders in your own settings"
    )


def test_an_executed_script_says_what_it_lacked(echo: Bench) -> None:
    echo.write("scripts/main.py", f"import subprocess; subprocess.run(['{ABSENT}'])\n")
    bench = echo.make()
    done = execute(bench, echo.belt.get_skill("echo"), {}, who=ME)
    assert [(one.kind, one.name) for one in done.hints] == [("missing_program", ABSENT)]
    assert done.document()["hints"] == [one.document() for one in done.hints]


def test_a_model_gets_it_with_the_result(echo: Bench) -> None:
    echo.make()
    call = {"skill": "echo", "command": ABSENT}
    answer = echo.belt.dispatch("skill_run", call)
    assert f'"name": "{ABSENT}"' in json.dumps(answer.data["hints"])
    assert '"missing_program"' in answer.text


def test_an_image_is_named_as_the_place_to_add_a_program() -> None:
    (hint,) = hints_of("", "bash: line 1: jq: command not found", facts(127, image="debian:12"))
    assert hint.message == "jq is not in the image debian:12 (container_image): add it there"


# --- modules -------------------------------------------------------------------------------------


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_a_missing_module_is_named_with_its_package(echo: Bench, sandbox: str) -> None:
    result = echo.run("python -c 'import pptx'", bench=echo.make(sandbox=sandbox), install=False)
    assert result.hints == (
        Hint(
            "missing_module",
            "pptx",
            "the Python module pptx (package python-pptx) was not provided: run it again with "
            '--with python-pptx, or set packages = ["python-pptx"] for the skill ([skills.echo] '
            "in your own settings)",
            "python-pptx",
        ),
    )


def test_a_package_that_nothing_is_known_of_is_not_advised(echo: Bench) -> None:
    (hint,) = echo.run("python -c 'import zzz_evil_thing'", install=False).hints
    assert "--with PACKAGE" in hint.message and hint.package == ""


def test_a_module_of_the_skill_or_of_the_language_is_no_package(echo: Bench) -> None:
    echo.write("scripts/helpers.py", "")
    text = "ModuleNotFoundError: No module named '{}'"
    for name in ("helpers", "json.nothing", "pip", "x; rm -rf", "../x"):
        echo.write("say", text.format(name))
        assert echo.run("cat say >&2; exit 1").hints == (), name


@needs.node
def test_a_missing_module_of_node_is_named(echo: Bench) -> None:
    assert [
        one.package for one in echo.run("node -e 'require(\"sharp/x\")'", install=False).hints
    ] == ["sharp"]
    assert echo.run("node -e 'require(\"./x\")'", install=False).hints == ()
    echo.write("a.mjs", "import '@babel/core'\n")
    assert [one.package for one in echo.run("node a.mjs", install=False).hints] == ["@babel/core"]


def test_what_uv_and_pip_did_not_find_is_named() -> None:
    text = "was not provided to this run, and nothing is downloaded inside"
    assert found(f"uv run: the package 'rich' {text}") == [("missing_module", "rich")]
    assert found(f"npx: the package '@a/b' {text}") == [("missing_module", "@a/b")]
    assert found(f"npx: the package 'a --index=x' {text}") == []


# --- the network and folders ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["curl: (6) Could not resolve host: api.example.com", "getaddrinfo ENOTFOUND api.example.com",
     "HTTPSConnectionPool(host='api.example.com', port=443): Max retries exceeded",
     "dial tcp: lookup api.example.com: no such host"],
)  # fmt: skip
def test_a_host_that_was_not_reached_is_named_with_the_setting(text: str) -> None:
    (hint,) = hints_of("", text, facts())
    assert hint[:2] == ("network_refused", "api.example.com")
    assert 'hosts = ["api.example.com"]' in hint.message
    assert found(text, online=True) == []


def test_a_run_without_a_network_is_told_so(echo: Bench) -> None:
    code = "import socket; socket.getaddrinfo('api.example.com', 443)"
    (hint,) = echo.run(("python", "-c", code), bench=echo.make(sandbox="bubblewrap")).hints
    assert hint.kind == "network_refused" and "[skills.echo]" in hint.message


def test_landlock_does_not_promise_a_network() -> None:
    (hint,) = hints_of("", "Could not resolve host: a.example.com", facts(can_be_online=False))
    assert "gives no network" in hint.message and "hosts =" not in hint.message


@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock"])
def test_a_folder_that_cannot_be_written_is_named_with_those_that_can(
    echo: Bench, sandbox: str
) -> None:
    bench = echo.make(sandbox=sandbox)
    for command in ("touch cache", "python -c \"open('cache', 'w')\"", "mkdir cache"):
        (hint,) = echo.run(command, bench=bench).hints
        assert hint[:2] == ("write_refused", "cache") and "$OUTPUT_DIR" in hint.message


def test_a_file_outside_is_named_with_how_files_come_in(echo: Bench) -> None:
    code = "open('/etc/shadow')"
    (hint,) = echo.run(("python", "-c", code), bench=echo.make(sandbox="landlock")).hints
    assert hint[:2] == ("file_refused", "/etc/shadow")
    assert "--input" in hint.message


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_types_of_files_are_known(echo: Bench, sandbox: str) -> None:
    """Python reads a file of /etc for that, and fails if it may not."""
    code = "import mimetypes; print(mimetypes.guess_type('a.png')[0])"
    result = echo.run(("python", "-c", code), bench=echo.make(sandbox=sandbox))
    assert result.stdout == "image/png\n", result.stderr


def test_a_refusal_about_something_else_gets_no_such_hint(echo: Bench) -> None:
    echo.write("no-program", "echo\n")
    for command in ("./no-program", "echo \"touch: 'out/x': Permission denied\" >&2; exit 1"):
        assert echo.run(command).hints == ()


def test_a_run_listens_at_a_socket_and_reaches_none_not_even_its_own(echo: Bench) -> None:
    """LibreOffice does the first; the second would reach what listens in a folder of the host."""
    code = (
        "import socket\n"
        "one = socket.socket(socket.AF_UNIX); one.bind('/tmp/door'); one.listen()\n"
        "try: socket.socket(socket.AF_UNIX).connect('/tmp/door')\n"
        "except PermissionError as error: print('refused', error.errno)\n"
        "try: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "except PermissionError as error: print('refused', error.errno)\n"
    )
    result = echo.run(("python", "-c", code), bench=echo.make(sandbox="bubblewrap"))
    assert result.stdout == "refused 1\nrefused 13\n", result.stderr


# --- files and secrets of the user ---------------------------------------------------------------


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_a_file_of_the_project_is_named_with_how_to_pass_it(echo: Bench, sandbox: str) -> None:
    project = str(echo.tree.project)
    os.makedirs(os.path.join(project, "data"), exist_ok=True)
    for name in ("sales.csv", "data/more.csv"):
        with open(os.path.join(project, name), "w", encoding="utf-8") as file:
            file.write("a,b\n")
    bench = echo.make(sandbox=sandbox)
    (hint,) = echo.run("cat data/more.csv", bench=bench).hints
    assert hint[:2] == ("missing_input", "data/more.csv")
    assert "(--input data/more.csv), and write inputs/more.csv" in hint.message
    (hint,) = echo.run(("python", "-c", "open('sales.csv')"), bench=bench).hints
    assert hint[:2] == ("missing_input", "sales.csv")
    given = [{"from": f"host://{project}/sales.csv"}]
    assert echo.run("cat inputs/sales.csv", bench=bench, inputs=given).stdout == "a,b\n"


def test_no_other_file_is_called_one_of_the_project(echo: Bench) -> None:
    """Neither one that is nowhere, nor a hidden one, nor one outside, nor one of the skill."""
    project = str(echo.tree.project)
    os.symlink("/etc", os.path.join(project, "etc"))
    for name in (".hidden", "SKILL.md"):
        with open(os.path.join(project, name), "w", encoding="utf-8") as file:
            file.write("x")
    for path in ("nowhere.csv", ".hidden", "etc/passwd", "../../etc/passwd"):
        hints = echo.run(f"cat {path}").hints
        assert "missing_input" not in [one.kind for one in hints]
    assert echo.run("cat SKILL.md >&2; echo SKILL.md >&2; exit 1").hints == ()


def test_a_key_that_is_not_set_is_named_with_how_to_give_it(echo: Bench) -> None:
    command = "echo 'Error: set ACME_API_KEY and ACME_TOKEN' >&2; exit 1"
    hints = echo.run(command, env={"ACME_TOKEN": "given-to-it"}).hints
    assert [one[:2] for one in hints] == [("missing_secret", "ACME_API_KEY")]
    assert "`skillbelt secrets set ACME_API_KEY --skill echo`" in hints[0].message
    assert "--secret ACME_API_KEY" in hints[0].message
    assert echo.run("echo 'ACME_API_KEY is set' >&2").hints == ()


def test_a_script_that_is_not_executable_is_named_with_how_to_start_it(echo: Bench) -> None:
    echo.write("go.sh", "#!/bin/bash\necho gone\n")
    echo.write("go", "#!/usr/bin/env python\nprint('gone')\n")
    for command, program in (("./go.sh x", "bash"), (("./go.sh",), "bash"), ("./go", "python")):
        (hint,) = echo.run(command).hints
        assert hint.kind == "not_executable"
        assert f"start it with `{program} {hint.name}`" in hint.message
        assert echo.run(f"{program} {hint.name}").stdout == "gone\n"


def test_a_request_of_node_without_a_network_says_so() -> None:
    assert found("Error: fetch failed") == [("network_refused", "")]
    assert found("the last fetch failed") == []


def test_a_package_that_is_nowhere_is_not_advised() -> None:
    text = "npx: the package 'a-b' was not provided to this run, and nothing is downloaded inside"
    assert found(text) == [("missing_module", "a-b")]
    assert found(text, absent=("a-b",)) == []


# --- hostile output ------------------------------------------------------------------------------


def test_a_script_cannot_have_a_package_advised_that_is_not_known(echo: Bench) -> None:
    said = "was not provided to this run, and nothing is downloaded inside"
    for program in ("uv run", "uvx", "pip", "npx"):
        echo.write("say", f"{program}: the package 'evil-zz' {said}")
        (hint,) = echo.run("cat say >&2; exit 1").hints
        assert (hint.package, hint.install) == ("", ())
        assert "--with" not in hint.message and "packages =" not in hint.message
    echo.write("say", f"npx: the package 'sharp' {said}\nuvx: the package 'Rich' {said}")
    assert [one.package for one in echo.run("cat say >&2; exit 1").hints] == ["sharp", "Rich"]


@pytest.mark.parametrize("host", ["169.254.169.254", "127.0.0.1", "10.0.0.7", "192.168.1.1"])
def test_no_address_of_the_users_own_network_is_advised(host: str) -> None:
    assert found(f"curl: (6) Could not resolve host: {host}") == []
    assert found("", refused_hosts=(host,)) == []


@pytest.mark.parametrize(
    "text",
    ["bash: line 1: $(reboot): command not found", "bash: \x1b[31mjq: command not found",
     "bash: jq jq: command not foundd", "ModuleNotFoundError: No module named 'a\u202eb'",
     "ModuleNotFoundError: No module named 'a --index-url=http://x'",
     "Could not resolve host: $(id).example.com", "Cannot find module '../../x'",
     "Could not resolve host: localhost", "touch: cannot touch 'a\u200b b': Permission denied"],
)  # fmt: skip
def test_what_is_not_a_name_never_becomes_advice(text: str) -> None:
    assert found(text, 127) == []


def test_hints_are_few_and_each_is_one_short_line() -> None:
    text = "\n".join(f"bash: line 1: {'x' * 50}{one}: command not found" for one in range(9_999))
    hints = hints_of("", text, facts(127))
    assert len(hints) == MAX_HINTS
    assert all(len(one.message) < 300 and "\n" not in one.message for one in hints)


def test_long_lines_are_left_alone() -> None:
    assert found("a" * 2**20 + ": command not found") == []
    assert found(("a/" * 400) + ": command not found") == []


def test_a_secret_in_a_name_is_redacted(echo: Bench) -> None:
    env = {"API_TOKEN": "s3cretvalue99"}
    result = echo.run("$API_TOKEN", env=env)
    assert result.hints and "s3cretvalue99" not in str(result.hints)


def test_a_secret_that_a_hint_would_spell_otherwise_is_redacted(echo: Bench) -> None:
    env = {"API_TOKEN": "S3cretValue99"}
    command = "echo Could not resolve host: $API_TOKEN.example.com >&2; exit 1"
    result = echo.run(command, env=env, bench=echo.make(sandbox="bubblewrap"))
    assert "s3cretvalue99" not in str(result).lower()
