"""The programs that a command finds: the interpreter by both names, and uv, pip and npx."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillbelt.running.programs import folder
from skillbelt.running.programs.folder import PROGRAMS, provide_programs
from skillbelt.running.programs.office import read_conversion
from skillbelt.running.programs.outside import find_outside, folder_of_programs
from skillbelt.sandbox.linux.identity import interpreter
from tests import needs
from tests.bench import Bench
from tests.tree import Tree

pytestmark = needs.linux
SANDBOXES = ("bubblewrap", "landlock", "none")


@pytest.fixture
def echo(open_tree: Tree) -> Iterator[Bench]:
    bench = Bench(open_tree)
    yield bench
    bench.close()


# --- python --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_both_names_are_the_interpreter_of_the_run(echo: Bench, sandbox: str) -> None:
    bench = echo.make(sandbox=sandbox)
    python = interpreter()
    assert python is not None
    command = " && ".join(
        f'readlink -f "$({name} -c "import sys; print(sys.executable)")"'
        for name in ("python", "python3")
    )
    result = echo.run(command, bench=bench)
    assert result.stdout.split() == [os.path.realpath(python.path)] * 2, result.stderr


def test_a_file_named_python_in_the_skill_is_not_what_python_means(echo: Bench) -> None:
    for name in ("python", "bin/python", "bin/python3", "python3", "uv", "bin/uv"):
        echo.write(name, "#!/bin/sh\necho mine\n", 0o755)
    result = echo.run("python -c 'print(1)'; python3 -c 'print(2)'; uv run python -c 'print(3)'")
    assert result.stdout == "1\n2\n3\n"


def test_a_file_named_python_that_a_run_left_is_not_what_python_means(echo: Bench) -> None:
    bench = echo.make()
    left = "for p in work out .venv .venv/bin; do mkdir -p $p; cp /bin/true $p/python; done"
    assert echo.run(left, bench=bench).exit_code == 0
    for cwd in ("", "work", "$OUTPUT_DIR"):
        result = echo.run("python -c 'print(1)'", bench=bench, cwd=cwd)
        assert result.stdout == "1\n", (cwd, result)


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_nothing_that_a_run_can_write_stands_before_the_programs_of_the_system(
    echo: Bench, sandbox: str
) -> None:
    command = (
        'IFS=:; for folder in $PATH; do [ "$folder" = /bin ] && break; '
        'touch "$folder/planted" 2>/dev/null && echo "$folder"; done; true'
    )
    result = echo.run(command, bench=echo.make(sandbox=sandbox))
    if sandbox == "none" and os.getuid() != 0:
        return  # nothing is held back there, and the command has the rights of the user
    assert result.stdout == ""


def test_a_folder_that_was_changed_is_made_again(open_tree: Tree) -> None:
    place = str(open_tree.project / PROGRAMS)
    made = provide_programs(place, path="", project="")
    uv = Path(made.folder, "uv")
    text = uv.read_text()
    uv.unlink()
    uv.write_text("#!/bin/sh\necho planted\n")
    Path(made.folder, "git").symlink_to("/bin/true")
    folder._is_intact.cache_clear()  # another process
    again = provide_programs(place, path="", project="")
    assert again == made and uv.read_text() == text
    assert not Path(made.folder, "git").is_symlink()
    assert os.listdir(place) == [os.path.basename(made.folder)]


def test_an_image_keeps_its_own_programs_first(open_tree: Tree) -> None:
    made = provide_programs(str(open_tree.project / "p"), path="", project="", foreign=True)
    assert not made.first and os.listdir(made.folder) == ["python"]


# --- uv, pip -------------------------------------------------------------------------------------


@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_uv_runs_a_script_with_the_interpreter_of_the_run(echo: Bench, sandbox: str) -> None:
    echo.write("scripts/a.py", "import sys; print(sys.argv[1:])\n")
    result = echo.run("uv run scripts/a.py --x 1", bench=echo.make(sandbox=sandbox))
    assert (result.stdout, result.stderr) == ("['--x', '1']\n", "")


@pytest.mark.parametrize(
    "command",
    ["uv run python scripts/a.py x", "uv run --no-project --script scripts/a.py x",
     "uv run -m a x", "uv --quiet run -q --python 3.99 scripts/a.py x", "./scripts/a.py x",
     "uv run bash -c 'python scripts/a.py x'", "uv --directory . run scripts/a.py x"],
)  # fmt: skip
def test_uv_run_takes_what_it_always_takes(echo: Bench, command: str) -> None:
    text = "#!/usr/bin/env -S uv run --script\nimport sys; print(sys.argv[1:])\n"
    echo.write("scripts/a.py", text, 0o755)
    echo.write("a.py", text)
    assert echo.run(command).stdout == "['x']\n"


@pytest.mark.parametrize(
    "command",
    ["uv run --with no-such-thing python", "uvx no-such-thing", "pip install No_Such.Thing",
     "uv pip install -q no-such-thing", "cp block /tmp/a && uv run --script /tmp/a",
     "pip3 install -r list.txt"],
)  # fmt: skip
def test_what_was_not_provided_is_named_and_nothing_is_asked_of_a_network(
    echo: Bench, command: str
) -> None:
    echo.write("block", "# /// script\n# dependencies = ['no-such-thing>=1']\n# ///\nprint(1)\n")
    echo.write("list.txt", "# comment\n--index-url x\nno-such-thing==1\n")
    result = echo.run(command, install=False)
    assert result.exit_code != 0 and result.stdout == ""
    assert "the package 'no-such-thing' was not provided to this run" in result.stderr


def test_pip_shows_what_was_provided(echo: Bench) -> None:
    result = echo.run("pip list --format json && uv pip freeze && python -m this | head -1")
    assert result.exit_code == 0 and result.stdout.startswith("[")


# --- npx -----------------------------------------------------------------------------------------


@needs.node
def test_npx_runs_a_program_of_a_package_and_downloads_none(echo: Bench) -> None:
    setup = (
        "cd work && mkdir -p node_modules/.bin node_modules/@a/hello && "
        "printf '#!/bin/sh\\necho hello \"$@\"\\n' > node_modules/.bin/hello && "
        "chmod +x node_modules/.bin/hello && "
        'printf \'{"bin": {"hello": "x.js"}}\' > node_modules/@a/hello/package.json && '
    )
    command = f"{setup} npx hello 1; npx -y @a/hello@latest 2; npx -p @a/hello hello 3"
    result = echo.run(command, install=False)
    assert result.stdout == "hello 1\nhello 2\nhello 3\n"
    result = echo.run("npx --yes no-such-thing@1.0 x", install=False)
    assert result.exit_code == 127
    assert "the package 'no-such-thing' was not provided to this run" in result.stderr


@needs.node
@pytest.mark.parametrize("sandbox", ["landlock", "bubblewrap"])
def test_typescript_runs_where_no_socket_may_be_listened_at(echo: Bench, sandbox: str) -> None:
    """Under Landlock tsx may not listen at the socket that it opens for changes of files."""
    tsx = "work/node_modules/tsx/dist"
    setup = (
        f"mkdir -p {tsx} work/node_modules/.bin && "
        f"echo 'globalThis.loaded = 6' > {tsx}/loader.mjs && "
        "printf '#!/bin/sh\\necho the program \"$@\"\\n' > work/node_modules/.bin/tsx && "
        "chmod +x work/node_modules/.bin/tsx && cd work && "
        "echo 'console.log(globalThis.loaded * 7, process.argv[2])' > one.mjs && "
    )
    calls = "npx tsx one.mjs x; npx tsx watch one.mjs"
    result = echo.run(f"{setup} {calls}", bench=echo.make(sandbox=sandbox), install=False)
    first = "42 x" if sandbox == "landlock" else "the program one.mjs x"
    assert result.stdout == f"{first}\nthe program watch one.mjs\n", result.stderr


# --- LibreOffice ---------------------------------------------------------------------------------


def _office(open_tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program called soffice on the PATH that only says its arguments."""
    monkeypatch.setenv("HOME", str(open_tree.home))
    tools = open_tree.home / "office"
    tools.mkdir(parents=True)
    shutil.copy("/bin/echo", tools / "soffice")
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")


def test_libreoffice_itself_starts_where_it_may_listen(
    echo: Bench, open_tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    _office(open_tree, monkeypatch)
    assert echo.run("soffice --headless x").stdout == "--headless x\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [("--accept=x", "it only converts files"), ("--convert-to pdf a.docx", "library cannot be")],
)
def test_what_libreoffice_cannot_do_under_landlock_is_said_in_one_line(
    echo: Bench, open_tree: Tree, monkeypatch: pytest.MonkeyPatch, words: str, said: str
) -> None:
    _office(open_tree, monkeypatch)
    result = echo.run(f"soffice --headless {words}", bench=echo.make(sandbox="landlock"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert said in result.stderr and "Landlock" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.long
@needs.libreoffice
@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_libreoffice_converts_in_every_sandbox(echo: Bench, sandbox: str) -> None:
    echo.write("a b.txt", "hello")
    command = (
        "soffice --headless --convert-to pdf --outdir out 'a b.txt' && head -c 4 'out/a b.pdf'"
    )
    result = echo.run(command, bench=echo.make(sandbox=sandbox))
    assert result.stdout.endswith("%PDF"), result.stderr


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("--headless --convert-to pdf a.docx b.docx", ("pdf", "", ".", ("a.docx", "b.docx"))),
        ("-headless --convert-to csv:Text:44,34 --outdir o a", ("csv", "44,34", "o", ("a",))),
        ("-env:UserInstallation=file:///x --convert-to=pdf a", ("pdf", "", ".", ("a",))),
        ("--headless --infilter=x --convert-to pdf a", None),
        ("--headless macro:///a", None),
        ("--convert-to", None),
    ],
)  # fmt: skip
def test_a_conversion_is_read_as_libreoffice_reads_it(words: str, wanted: object) -> None:
    assert read_conversion(words.split()) == wanted


# --- programs outside the system's folders -------------------------------------------------------


@pytest.fixture
def tools(open_tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs in a home, as installers for one user make it."""
    monkeypatch.setenv("HOME", str(open_tree.home))
    tools = open_tree.home / "tools"
    tools.mkdir(parents=True)
    shutil.copy("/bin/true", tools / "rg")
    shutil.copy("/bin/true", tools / "unheard-of")
    (tools / "jq").write_text("#!/bin/sh\necho a script\n")
    (tools / "jq").chmod(0o755)
    (tools / "gh").symlink_to("/etc/passwd")
    return tools


def test_a_program_in_one_file_is_shown_alone(tools: Path) -> None:
    """Not the folder it is in, no scripts, which need more, and nothing that only a link names."""
    found = find_outside(f"{tools}:/usr/bin:relative", "")
    assert found == ((("rg", str(tools / "rg")),), (str(tools / "rg"),))


def test_what_the_system_has_first_is_the_systems(tools: Path) -> None:
    shutil.copy("/bin/true", tools / "jq")
    system = {name for name in ("jq", "rg") if os.path.exists(f"/usr/bin/{name}")}
    found = find_outside(f"/usr/bin:{tools}", "")
    assert {name for name, _ in found.links} == {"jq", "rg"} - system


def test_what_a_project_brings_is_not_taken(tools: Path) -> None:
    assert find_outside(str(tools), str(tools.parent / "tools")) == ((), ())
    assert find_outside(str(tools), "/").links  # a start in no project at all


def test_a_link_into_the_project_is_not_taken(tools: Path, open_tree: Tree) -> None:
    shutil.copy("/bin/true", open_tree.project / "fd")
    (tools / "fd").symlink_to(open_tree.project / "fd")
    assert [name for name, _ in find_outside(str(tools), str(open_tree.project)).links] == ["rg"]


def test_what_others_can_change_is_not_taken(tools: Path) -> None:
    tools.chmod(0o777)
    assert find_outside(str(tools), "") == ((), ())


def test_a_node_comes_with_its_own_folder_and_never_with_the_home(tools: Path) -> None:
    home = tools.parent
    for prefix in (home / "versions/v22", home):
        (prefix / "bin").mkdir(parents=True)
        shutil.copy("/bin/true", prefix / "bin/node")
        cli = prefix / "lib/node_modules/npm/bin/npm-cli.js"
        cli.parent.mkdir(parents=True)
        cli.write_text("#!/usr/bin/env node\n")
        cli.chmod(0o755)
        (prefix / "bin/npm").symlink_to("../lib/node_modules/npm/bin/npm-cli.js")
    own = find_outside(str(home / "versions/v22/bin"), "")
    assert [name for name, _ in own.links] == ["node", "npm"]
    assert own.shown == (str(home / "versions/v22"),)
    at_home = find_outside(str(home / "bin"), "")
    assert at_home.shown == (str(home / "bin/node"),)


def test_such_a_program_runs_inside_and_its_folder_stays_away(
    echo: Bench, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy("/bin/echo", tools / "terraform")
    (tools / "secret").write_text("secret")
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    result = echo.run(f"terraform it runs; cat {tools}/secret")
    assert result.stdout == "it runs\n" and "No such file" in result.stderr


def test_a_user_can_show_a_folder_of_programs(echo: Bench, tools: Path) -> None:
    bench = echo.make(program_folders=[str(tools)])
    (tools / "own-thing").write_text("#!/bin/sh\necho a script\n")
    (tools / "own-thing").chmod(0o755)
    assert echo.run("unheard-of && own-thing", bench=bench).stdout == "a script\n"
    path = echo.run("echo $PATH", bench=bench).stdout.strip().split(":")
    assert path.index("/usr/bin") < path.index(str(tools))


@pytest.mark.parametrize("below", ["", "..", "nowhere"])
def test_a_home_is_never_shown_as_a_folder_of_programs(
    echo: Bench, tools: Path, below: str
) -> None:
    path = os.path.normpath(tools.parent / below)
    result = echo.run("true", bench=echo.make(program_folders=[path]))
    assert [one for one in result.warnings if "program_folders" in one and "not shown" in one]
    with pytest.raises(ValueError, match=r"private|no such folder"):
        folder_of_programs(path)
