"""What the documentation shows is run: Python and console blocks, links, settings, help texts."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from skillbelt.cli import _split_words, parser
from skillbelt.files.remove import remove_tree
from skillbelt.settings import DEFAULTS, REMOVED, USER_ONLY
from tests import warm
from tests.openai_server import Answer, Server, called, said, serving

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = [*PAGES, *sorted(ROOT.glob("*.md")), *sorted((ROOT / "design").glob("*.md"))]
FENCE = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
GUIDES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
FRAMEWORKS = (
    ROOT / "docs" / "how-to" / "frameworks.md"
)  # each block is a program of its own, with a model
MAX_FRAMEWORK_LINES = 10
MAX_WORDS = 30_000
SHELL = re.compile(r"[|&;<>$`*?\[~#]")  # means something to a shell
EXIT = re.compile(r"\s+# exit (\d+)$")
BROKEN = (
    "---\nname: Note Taker\ndescription: Takes notes: use when asked to\n---\n\nWrite it down.\n"
)


class Step(NamedTuple):
    """One command of a console block and what it must give. An output of "" is not compared."""

    line: int
    command: str
    exit_code: int
    output: str


def blocks(page: Path, language: str) -> Iterator[tuple[int, str]]:
    """The line of the first line of each block of a language, and its text."""
    text = page.read_text("utf-8")
    for match in FENCE.finditer(text):
        if match[1] == language and not match[2]:
            yield text.count("\n", 0, match.start(3)) + 1, match[3]


PROGRAMS = list(blocks(FRAMEWORKS, "python"))


def write_files(page: Path, project: Path) -> None:
    """Put the blocks with a title where they belong; whoever follows the page does so too."""
    for _, title, text in FENCE.findall(page.read_text("utf-8")):
        if title:
            path = project / title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")


def steps(page: Path) -> Iterator[Step]:
    for first, text in blocks(page, "console"):
        for match in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            code = EXIT.search(match[1])
            line = first + text.count("\n", 0, match.start())
            yield Step(line, EXIT.sub("", match[1]), int(code[1]) if code else 0, match[2])


def matches(shown: str, real: str) -> bool:
    """Whether the output is the one shown, with `...` for anything and ends of lines trimmed."""
    pattern = ".*?".join(re.escape(part) for part in trimmed(shown).split("..."))
    return re.fullmatch(pattern, trimmed(real), re.DOTALL) is not None


def trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that whoever runs commands can reach; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="skillbelt-docs-"))
    folder.chmod(0o755)
    yield folder
    remove_tree(str(folder))


@pytest.fixture
def project(reachable: Path) -> Path:
    """A project with the example skills, and beside them a folder with a skill that has faults."""
    folder = reachable / "project"
    shutil.copytree(
        ROOT / "examples" / "skills",
        folder / ".agents" / "skills",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    (folder / "drafts" / "note-taker").mkdir(parents=True)
    (folder / "drafts" / "note-taker" / "SKILL.md").write_text(BROKEN)
    tool = reachable / "bin" / "skillbelt"
    tool.parent.mkdir()
    main = "import sys; from skillbelt.cli import main; sys.exit(main())"
    tool.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "{main}" "$@"\n')
    tool.chmod(0o755)
    return folder


def environ(project: Path) -> dict[str, str]:
    home = project.parent
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SKILL")}
    return {
        **kept,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_STATE_HOME": str(home / ".local" / "state"),
        "PATH": f"{home / 'bin'}{os.pathsep}{kept['PATH']}",
        "PYTHONWARNINGS": "error",
        # The order in which a terminal shows the two streams.
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "100",
        # No page writes to the keyring of whoever runs the tests.
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
    }


def with_block(language: str) -> list[Path]:
    """The pages with blocks of a language that are run by themselves."""
    alone = [page for page in PAGES if page not in GUIDES and page != FRAMEWORKS]
    return [page for page in alone if any(True for _ in blocks(page, language))]


def program_of(page: Path) -> str:
    """All blocks of a page as one program; a failure's line number is the page's own."""
    lines: list[str] = []
    for first, text in blocks(page, "python"):
        lines += [""] * (first - 1 - len(lines)) + text.splitlines()
    return "\n".join(lines) + "\n"


def python(text: str, page: Path, project: Path, **environment: str) -> str:
    """What the program prints."""
    program = project.parent / f"{page.stem}_page.py"  # not the name of a package that it uses
    program.write_text(text, "utf-8")
    done = warm.run(
        [sys.executable, str(program)],
        cwd=project,
        env={**environ(project), **environment},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, f"{page.name}: {done.stderr}"
    return str(done.stdout)


@pytest.mark.parametrize("page", with_block("python"), ids=lambda page: page.name)
def test_python_blocks_of_a_page_run(page: Path, project: Path) -> None:
    write_files(page, project)
    python(program_of(page), page, project)


# To import a framework takes seconds; each has tests of its own in tests/integrations.
@pytest.mark.parametrize(
    ("first", "text"),
    [
        pytest.param(*one, marks=[pytest.mark.long] if number else [])
        for number, one in enumerate(PROGRAMS)
    ],
    ids=[f"line {one}" for one, _ in PROGRAMS],
)
def test_every_framework_runs_with_a_model(first: int, text: str, project: Path) -> None:
    """Each by itself: to import all of them takes long where others are at work too."""
    page, asks = FRAMEWORKS, 0 if "skill_functions" in text else 1
    with serving(helpful) as server:
        printed = python("\n" * (first - 1) + text, page, project, **model_at(server))
    assert printed.count("There are two rows.") == asks
    assert sum("Turn a CSV file into a report" in body for body in server.bodies) == asks


def test_there_are_five_frameworks() -> None:
    assert len(PROGRAMS) == 5


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_a_guide_leads_where_it_says(page: Path, project: Path) -> None:
    """Its commands first, then its program; whoever follows it has made the first skill."""
    write_files(ROOT / "docs" / "start" / "first-skill.md", project)
    write_files(page, project)
    shell(page, project)
    with serving(helpful) as server:
        printed = python(program_of(page), page, project, **model_at(server))
    asked = program_of(page).count("agent.run_sync")
    assert printed.count("It comes to 6.00.") == asked
    assert bool(server.bodies) == bool(asked)


def model_at(server: Server) -> dict[str, str]:
    """The environment in which the clients of models go to this server."""
    return {
        "OPENAI_BASE_URL": server.url,
        "OPENAI_API_KEY": "key",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "GOOGLE_GEMINI_BASE_URL": server.url.removesuffix("/v1"),
        "GOOGLE_API_KEY": "key",
    }


def helpful(request: dict[str, Any]) -> Answer:
    """A model that loads a skill for each message of the user's, runs its script and answers."""
    history = request.get("messages") or request.get("input") or request["contents"]
    last = history[-1] if isinstance(history, list) else {"role": "user"}
    text, id = json.dumps(last), f"call_{len(history)}"
    if last.get("role") == "user" and "functionResponse" not in text:
        skill = "receipt-total" if "receipt" in text else "csv-report"
        return called("skill_load", {"skill": skill}, id)
    if "receipt-total" in text:
        command = {"skill": "receipt-total", "command": "python3 scripts/total.py"}
        return called("skill_run", {**command, "stdin": "tea 2.40, cake 3.60"}, id)
    return said("It comes to ", "6.00.") if "total: 6.00" in text else said("There are two rows.")


def test_a_framework_takes_ten_lines_at_most() -> None:
    for _, text in blocks(FRAMEWORKS, "python"):
        assert len([line for line in text.splitlines() if line.strip()]) <= MAX_FRAMEWORK_LINES


@pytest.mark.parametrize("page", [ROOT / "README.md", *GUIDES], ids=lambda page: page.name)
def test_a_page_to_follow_has_no_block_that_is_not_run(page: Path) -> None:
    kinds = {kind for kind, title, _ in FENCE.findall(page.read_text("utf-8")) if not title}
    assert kinds <= {"python", "console"} | ({"sh"} if page.name == "README.md" else set())
    assert kinds


def test_the_first_commands_are_what_the_makefile_does() -> None:
    """`make test` can not be run by itself; `skillbelt demo` has tests of its own."""
    [(_, text)] = blocks(ROOT / "README.md", "sh")
    targets = [line.split("#")[0].split() for line in text.splitlines()]
    assert targets == [["make", "demo"], ["make", "test"]]
    # A make inside another one says where it is, and takes on the other's options.
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = [
        subprocess.run(
            [*line, "-n"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=500
        )
        for line in targets
    ]
    assert [one.returncode for one in done] == [0, 0]
    assert done[0].stdout.splitlines()[-1] == ".venv/bin/skillbelt demo"
    command = shlex.split(done[1].stdout.splitlines()[-1])
    assert command == [".venv/bin/python", "-m", "pytest", "-m", "not long"]


SHELL_LINES = [
    words
    for page in PAGES
    for _, text in blocks(page, "sh")
    for line in text.splitlines()
    if (words := shlex.split(line, comments=True))
]


DATABASE_OPTIONS = {"--owner", "--encoding", "--template"}


@pytest.mark.parametrize("words", SHELL_LINES, ids=lambda words: " ".join(words)[:40])
def test_a_command_that_is_not_run_is_one(words: list[str]) -> None:
    """Those of `sh` blocks go on for ever, fetch something, or need what is not everywhere."""
    program, *rest = words
    if program == "make":
        assert re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    elif program in ("pip", "uv", "uvx", "pipx"):
        assert is_an_installation(program, rest)
    elif program in ("createdb", "createuser"):  # of PostgreSQL
        assert {word.split("=")[0] for word in rest if word.startswith("-")} <= DATABASE_OPTIONS
    else:
        assert Path(program).name == "skillbelt"
        options, _ = _split_words(rest[1:])
        parser(rest[0]).parse_intermixed_args(options)


def is_an_installation(program: str, rest: list[str]) -> bool:
    """Whether it is of a form that `test_install.py` runs, from where there is a package."""
    if program == "uvx":
        return rest == ["--from", ".", "skillbelt", "list"]
    if rest[0] == "wheel":
        return rest == ["wheel", "--no-deps", "-w", "dist", "."]
    extra = f"(?:{'|'.join(extras())})"
    source = (
        rf"(skillbelt(?=\[)|\.|dist/skillbelt-[\d.]+-py3-none-any\.whl)(\[{extra}(,{extra})*\])?"
    )
    ways = {"pip": ["install"], "pipx": ["install"], "uv": ["pip install", "tool install"]}
    return " ".join(rest[:-1]) in ways[program] and bool(re.fullmatch(source, rest[-1]))


def test_the_library_is_shown_in_five_lines() -> None:
    [(_, text)] = blocks(ROOT / "README.md", "python")
    assert len([line for line in text.splitlines() if line.strip()]) == 5


@pytest.mark.parametrize("page", with_block("console"), ids=lambda page: page.name)
def test_console_blocks_of_a_page_do_what_they_show(page: Path, project: Path) -> None:
    write_files(page, project)
    shell(page, project)


def shell(page: Path, project: Path) -> None:
    """Run each command of a page and compare what it gives."""
    for step in steps(page):
        program, *words = shlex.split(step.command)
        alone = program == "skillbelt" and not SHELL.search(step.command)
        # Most need no shell, and then no start of Python either.
        run: Callable[..., subprocess.CompletedProcess[str]] = warm.run if alone else subprocess.run
        python = [sys.executable, "-m", "skillbelt", *words]
        done = run(
            python if alone else ["sh", "-c", step.command],
            cwd=project,
            env=environ(project),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=500,
            check=False,
        )
        where = f"{page.name}:{step.line}: {step.command}\n{done.stdout}"
        assert done.returncode == step.exit_code, where
        assert not step.output or matches(step.output, done.stdout), where


def test_a_console_block_shows_only_the_product() -> None:
    shown = [(page.name, step) for page in PAGES for step in steps(page)]
    assert len(shown) >= 10
    assert [s for s in shown if not re.match(r"skillbelt |cat |cd |SKILL\w+=", s[1].command)] == []


def test_output_is_compared() -> None:
    assert matches("a ...\nb\n", "a 12\n3 \nb")
    assert not matches("a ...\nb\n", "a 12\nc\n")


@pytest.mark.parametrize("page", sorted(set(TEXTS)), ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text("utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        linked = (page.parent / path) if path else page
        assert linked.exists(), f"{page.name}: {target}"
        # A site is made of docs/ alone.
        docs = ROOT / "docs"
        assert docs not in page.parents or docs in linked.resolve().parents, f"{page}: {target}"
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked), f"{page.name}: {target}"


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).lower().replace(" ", "-") for title in titles}


def test_every_page_is_in_the_navigation() -> None:
    navigation = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    docs = ROOT / "docs"
    assert sorted(listed(navigation)) == sorted(
        str(page.relative_to(docs)) for page in docs.rglob("*.md")
    )


def listed(navigation: Any) -> list[str]:
    """The pages of the navigation, and of its sections."""
    if isinstance(navigation, str):
        return [navigation]
    entries = navigation.values() if isinstance(navigation, dict) else navigation
    return [page for entry in entries for page in listed(entry)]


def test_there_are_few_settings() -> None:
    """What few would change is a constant; a new setting needs an old one to go.

    Five are for many machines: `project_name`, without which they could not know that a project is
    the same, `store`, `objects`, `executor` and `ray_address`. One is for services:
    `max_upload_bytes`, which they choose by their disk and their users. Five are what a team
    demands of the skills that are installed: no default fits two teams.
    """
    assert len(DEFAULTS) <= 82


def test_what_a_page_says_a_project_can_not_set_it_can_not() -> None:
    text = (ROOT / "docs" / "how-to" / "containers.md").read_text("utf-8")
    [told] = re.findall(r"^(.*)A project's own file can set none of these\.$", text, re.MULTILINE)
    named = set(re.findall(r"`(\w+)", told)) & DEFAULTS.keys()
    assert len(named) > 5
    assert named <= USER_ONLY


def test_every_extra_is_documented() -> None:
    text = (ROOT / "docs" / "start" / "install.md").read_text("utf-8")
    rows = re.findall(r"^- `([\w-]+)`(?: \(|: )\S", text, re.MULTILINE)
    assert sorted(rows) == extras()


def extras() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return sorted(project["optional-dependencies"])


GENERATORS = (
    "cli_reference",
    "completion_words",
    "man_page",
    "reference",
    "drawings",
    "llms",
)


@cache
def generator(name: str) -> ModuleType:
    """One of the scripts that write parts of the documentation."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", GENERATORS)
def test_what_is_generated_is_current(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [name])
    code = generator(name).main()
    assert (code, capsys.readouterr().err) == (0, "")


def test_a_page_that_drifted_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["reference"])
    script = generator("reference")
    shutil.copytree(script.PAGES, tmp_path / "reference")
    monkeypatch.setattr(script, "PAGES", tmp_path / "reference")
    page = tmp_path / "reference" / "errors.md"
    page.write_text(page.read_text("utf-8").replace("`path_escape`", "`other`", 1), "utf-8")
    assert script.main() == 1
    assert "errors.md differs from the code; run `make docs`" in capsys.readouterr().err


def test_every_setting_error_and_name_is_described() -> None:
    script = generator("reference")
    assert script.TEXTS["settings"].keys() == DEFAULTS.keys()
    assert len(script.constants()) > 50
    assert REMOVED.keys() <= set(re.findall(r"`(\w+)`", script.fixed()))
    assert not DEFAULTS.keys() & REMOVED.keys()


def test_the_pages_stay_short() -> None:
    """A reader does not read more; a passage that comes needs another to go.

    Counted as `wc -w` counts all of docs/**/*.md: code, tables and generated pages too.
    """
    counted = {page: len(page.read_bytes().split()) for page in PAGES[1:]}
    assert sum(counted.values()) <= MAX_WORDS, sorted(counted.items(), key=lambda one: -one[1])[:9]
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) < 120
