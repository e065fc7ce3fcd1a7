from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from skillbelt.cli import main, parser
from skillbelt.cli.check import CheckTargets, targets
from skillbelt.errors import ConfigError
from tests import warm
from tests.hostile import FILES, Shape
from tests.tree import Tree

ROOT = Path(__file__).parents[2]
BROKEN = "---\nname: pdf\ndescription: a: b\n---\nText.\n"
WHOLE = BROKEN.replace("a: b", '"a: b"')
WORST = "---\nname: pdf\n---\nText.\n"


@pytest.fixture
def here(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """A tree whose project is the current folder."""
    monkeypatch.chdir(tree.project)
    return tree


class Result:
    """What one call of the command gave."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def json(self) -> Any:
        return json.loads(self.out)

    def codes(self) -> list[str]:
        return [found["code"] for found in self.json()["diagnostics"]]


class Check:
    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self.captured = captured

    def __call__(self, *arguments: str) -> Result:
        self.captured.readouterr()
        code = main(["check", *arguments])
        return Result(code, *self.captured.readouterr())


@pytest.fixture
def check(here: Tree, capsys: pytest.CaptureFixture[str]) -> Check:
    return Check(capsys)


def files(found: CheckTargets, root: Path) -> list[str]:
    return [os.path.relpath(path, root) for path in found.files]


# --- which folders ---


@pytest.fixture
def everywhere(here: Tree) -> Tree:
    """A skill in the project, one in a client's folder of the home, and an empty folder there."""
    here.skill("project/.agents/skills/pdf")
    here.write("home/.codex/skills/csv/SKILL.md", BROKEN)
    here.path("home/.agents/skills").mkdir(parents=True)
    return here


@pytest.mark.parametrize(
    ("option", "number", "codes"), [((), 1, False), (("--user",), 1, True), (("--all",), 2, True)]
)
def test_the_skills_of_the_user_are_checked_too(
    everywhere: Tree, check: Check, option: tuple[str, ...], number: int, codes: bool
) -> None:
    found = check("--json", *option)
    assert found.json()["files"] == number
    assert ("yaml-repaired" in found.codes()) == codes
    assert "no-skill" not in found.codes()


def test_a_path_and_all_folders_is_wrong_usage(everywhere: Tree, check: Check) -> None:
    assert check("--all", ".").code == 2


# --- what is checked -----------------------------------------------------------------------------


def test_a_file_a_folder_and_a_folder_of_folders(here: Tree) -> None:
    here.skill("project/a/pdf")
    here.skill("project/a/deep/er/csv")
    settings = here.settings()
    pdf, csv = "a/pdf/SKILL.md", "a/deep/er/csv/SKILL.md"
    for path, wanted in [(pdf, [pdf]), ("a/pdf", [pdf]), ("a", [csv, pdf]), (".", [csv, pdf])]:
        assert files(targets([path], settings), here.project) == wanted


def test_a_file_named_twice_is_checked_once(here: Tree) -> None:
    here.skill("project/a/pdf")
    found = targets(["a", "a/pdf", "./a/pdf/SKILL.md"], here.settings())
    assert files(found, here.project) == ["a/pdf/SKILL.md"]


def test_without_a_path_the_projects_own_skills_are_checked(here: Tree) -> None:
    here.skill("project/.agents/skills/pdf")
    here.skill("project/.claude/skills/csv")
    here.skill("project/vendor/other")
    here.skill("home/.agents/skills/mine")
    assert sorted(files(targets([], here.settings()), here.project)) == [
        ".agents/skills/pdf/SKILL.md",
        ".claude/skills/csv/SKILL.md",
    ]


def test_without_a_path_and_folders_of_its_own_everything_below_is_checked(here: Tree) -> None:
    here.skill("project/anywhere/pdf")
    assert files(targets([], here.settings()), here.project) == ["anywhere/pdf/SKILL.md"]


def test_a_project_that_is_a_skill(here: Tree) -> None:
    here.write("project/SKILL.md", WHOLE)
    here.skill("project/inner/csv")
    assert files(targets([], here.settings()), here.project) == ["SKILL.md"]


@pytest.mark.parametrize("path", ["nowhere", "README.md", "a/nowhere/SKILL.md"])
def test_what_can_not_be_checked_is_wrong_usage(here: Tree, check: Check, path: str) -> None:
    here.write("project/README.md", "text")
    with pytest.raises(ConfigError):
        targets([path], here.settings())
    result = check(path)
    assert (result.code, result.out) == (2, "")
    assert path in result.err


def test_wrong_format_is_wrong_usage(check: Check) -> None:
    assert check("--format", "xml").code == 2


@pytest.mark.parametrize("name", ["skill.md", "Skill.md", "SKILL.MD"])
def test_other_spellings_of_the_file_are_found_and_reported_once(
    here: Tree, check: Check, name: str
) -> None:
    here.write(f"project/a/pdf/{name}", WHOLE)
    result = check("a", "--json")
    assert (result.code, result.codes()) == (1, ["file-name"])


def test_a_folder_without_skills_is_a_warning(here: Tree, check: Check) -> None:
    (here.project / "empty").mkdir()
    assert (check("empty", "--json").code, check("empty", "--json").codes()) == (0, ["no-skill"])
    assert check("empty", "--strict").code == 1


# --- exit codes and output -----------------------------------------------------------------------


def test_exit_codes(here: Tree, check: Check) -> None:
    here.write("project/good/pdf/SKILL.md", WHOLE)
    here.write("project/odd/pdf/SKILL.md", BROKEN)
    here.write("project/bad/pdf/SKILL.md", WORST)
    assert [check(each).code for each in ("good", "odd", "bad")] == [0, 0, 1]
    assert [check(each, "--strict").code for each in ("good", "odd", "bad")] == [0, 1, 1]


def test_text_has_a_line_a_finding_and_a_summary(here: Tree, check: Check) -> None:
    here.write("project/a/pdf/SKILL.md", BROKEN.replace("---\nText", "author: me\n---\nText"))
    result = check("a")
    line, remedy, summary = result.out.splitlines()
    assert line.startswith("a/pdf/SKILL.md:3: warning yaml-repaired: ")
    assert remedy.startswith("    put the value in quotes")
    assert summary == "1 file checked: 0 errors, 1 warning, 1 note (-v shows them)"
    assert "a/pdf/SKILL.md:4: info field-unknown: " in check("a", "-v").out
    assert check("a", "-q").out.splitlines() == [line, remedy]


def test_json_is_one_document_alone(here: Tree, check: Check) -> None:
    file = here.write("project/a/pdf/SKILL.md", WORST)
    result = check("a", "--json")
    document = result.json()
    assert list(document) == ["files", "errors", "warnings", "diagnostics"]
    assert (document["files"], document["errors"], document["warnings"]) == (1, 1, 0)
    [found] = document["diagnostics"]
    assert list(found) == ["code", "severity", "path", "line", "message", "remedy"]
    assert (found["code"], found["severity"]) == ("description-missing", "error")
    assert found["path"] == str(file)
    assert result.err == ""
    assert check("a", "--format", "json").json() == document


def test_sarif_is_one_document_alone(here: Tree, check: Check) -> None:
    here.write("project/a/pdf/SKILL.md", WORST)
    result = check("a", "--format", "sarif", "--strict")
    [run] = result.json()["runs"]
    [found] = run["results"]
    location = found["locations"][0]["physicalLocation"]["artifactLocation"]
    assert location == {"uri": "a/pdf/SKILL.md", "uriBaseId": "SRCROOT"}
    assert (result.code, result.err) == (1, "")


def test_nothing_a_skill_says_reaches_the_terminal_raw(here: Tree, check: Check) -> None:
    evil = '---\nname: "a\\e[31m\\u202e"\ndescription: b: \x1b]0;x\x07\n"\\u200b": c\n---\n'
    here.write("project/a/e\x1b[2Jvil/SKILL.md", evil)
    for options in ([], ["-v"], ["--strict", "-v"], ["--dry-run"], ["--json"]):
        result = check("a", *options)
        assert not set(result.out + result.err) & set("\x1b\x07\u202e\u200b\x08")


def test_names_taken_twice(here: Tree, check: Check) -> None:
    here.skill("project/a/pdf")
    here.skill("project/b/pdf")
    assert check("a", "b", "--json").codes() == ["name-duplicate"]


def test_colours_only_on_a_terminal(here: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    here.write("project/a/pdf/SKILL.md", BROKEN)
    assert "\x1b" not in here.run("check", "a", "--dry-run").stdout
    shown = on_terminal("check", "a", "--dry-run")
    assert "\x1b[33mwarning\x1b[0m" in shown
    assert '\x1b[32m+description: "a: b"\x1b[0m' in shown
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in on_terminal("check", "a", "--dry-run")


def test_a_terminal_breaks_findings_between_words(here: Tree) -> None:
    link = "gone/quite/far/away/and/further/document.md"
    here.write("project/a/pdf/SKILL.md", f"---\nname: pdf\ndescription: b\n---\n[x]({link})\n")
    lines = on_terminal("check", "a").splitlines()
    assert max(map(len, lines)) <= 80 + len("\x1b[33m\x1b[0m")
    assert sum(link in line for line in lines) == 1
    assert " ".join(line.strip() for line in lines).count(f"the link '{link}' leads to a file") == 1


def on_terminal(*arguments: str) -> str:
    """What the command shows on a terminal."""
    import sys

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "skillbelt", *arguments]
    with warm.Popen[bytes](command, stdout=theirs, stderr=theirs, stdin=theirs) as process:
        os.close(theirs)
        shown = b"".join(chunks(ours))
        process.wait(150)
    os.close(ours)
    return shown.decode()


def chunks(handle: int) -> Iterator[bytes]:
    while True:
        try:
            chunk = os.read(handle, 65536)
        except OSError:  # how Linux says that the other side is closed
            return
        if not chunk:
            return
        yield chunk


# --- fixing ---------------------------------------------------------------------------------------


def test_fix_shows_the_change_and_what_remains(here: Tree, check: Check) -> None:
    file = here.write("project/a/pdf/SKILL.md", BROKEN.replace("pdf", "csv"))
    result = check("a", "--fix")
    assert '-description: a: b\n+description: "a: b"\n' in result.out
    assert "name-folder" in result.out
    assert "yaml-repaired" not in result.out
    assert result.err == "a/pdf/SKILL.md: fixed: put values in quotes\n"
    assert file.read_text() == WHOLE.replace("pdf", "csv")
    again = check("a", "--fix")
    assert "+description" not in again.out
    assert again.err == ""


def test_exit_code_after_a_fix_is_that_of_what_remains(here: Tree, check: Check) -> None:
    here.write("project/a/pdf/SKILL.md", BROKEN)
    here.write("project/b/pdf/SKILL.md", BROKEN.replace("pdf", "csv"))
    assert check("a", "--fix", "--strict").code == 0
    assert check("b", "--fix", "--strict").code == 1


def test_dry_run_changes_nothing(here: Tree, check: Check) -> None:
    file = here.write("project/a/pdf/SKILL.md", BROKEN)
    for options in (["--dry-run"], ["--fix", "--dry-run"]):
        result = check("a", *options)
        assert "+description" in result.out
        assert "yaml-repaired" in result.out
        assert "would be fixed" in result.err
    assert file.read_text() == BROKEN


def test_a_renamed_file_is_checked_under_its_new_name(here: Tree, check: Check) -> None:
    here.write("project/a/pdf/skill.md", WHOLE)
    result = check("a", "--fix", "--json")
    assert (result.code, result.codes()) == (0, [])
    assert "rename to a/pdf/SKILL.md" in result.err
    assert os.listdir(here.path("project/a/pdf")) == ["SKILL.md"]


def test_diffs_stay_out_of_documents(here: Tree, check: Check) -> None:
    for form in ("json", "sarif"):
        here.write("project/a/pdf/SKILL.md", BROKEN)
        result = check("a", "--fix", "--format", form)
        assert result.json()
        assert "+description" in result.err


def test_what_is_not_fixed_is_reported(here: Tree, check: Check) -> None:
    here.write("elsewhere.md", BROKEN)
    here.path("project/a/pdf").mkdir(parents=True)
    os.symlink("../../../elsewhere.md", here.path("project/a/pdf/SKILL.md"))
    result = check("a", "--fix", "--json")
    assert sorted(result.codes()) == ["link-outside"]


@pytest.mark.parametrize("shape", FILES, ids=[shape.name for shape in FILES])
def test_hostile_files_end_in_a_report(here: Tree, check: Check, shape: Shape) -> None:
    folder = here.path("project/a") / shape.name
    folder.mkdir(parents=True)
    shape.write(str(folder))
    for options in ([], ["--fix"]):
        result = check("a", "--json", *options)
        if shape.description is None and shape.code not in ("link-cycle", "file-name"):
            assert result.code == 1
            # Not even what kind of thing lies outside the project is looked at.
            code = "link-outside" if shape.name == "link-to-device" else shape.code
            assert code in result.codes()
        assert result.code in (0, 1)
    shutil.rmtree(folder)


# --- workflows ------------------------------------------------------------------------------------


def test_annotations_for_a_workflow(here: Tree, check: Check) -> None:
    here.write("project/a/pdf/SKILL.md", WORST)
    done = check("a", "--format", "github")
    first, *_, last = done.out.splitlines()
    assert done.code == 1
    assert first.startswith(
        "::error file=a/pdf/SKILL.md,line=1,title=skillbelt description-missing::"
    )
    assert "To fix: add" in first
    assert last == "1 file checked: 1 error, 0 warnings"


def test_no_text_of_a_skill_is_a_command_of_the_workflow(here: Tree, check: Check) -> None:
    folder = "project/a/x%0A,line=9::error::y"
    here.write(
        f"{folder}/SKILL.md",
        '---\nname: "a\\n::add-mask::b%0A::error::c"\ndescripton: x\ndescription: a: b\n---\n'
        "::stop-commands::x\n",
    )
    for options in ([], ["--fix", "--unsafe-fixes", "--dry-run"], ["--fix", "--unsafe-fixes"]):
        done = check("a", "--format", "github", "-v", *options)
        for line in (done.out + done.err).splitlines():
            command, _, text = line.partition(" ")
            assert command in ("::error", "::warning", "::notice", "skillbelt:", "1")
            if command.startswith("::"):
                place = text.partition("::")[0]
                assert place.startswith("file=a/x%250A%2Cline=9%3A%3Aerror%3A%3Ay/SKILL.md,line=")
                assert len(place.split(",")) == 3


def test_guesses_are_made_only_on_request(here: Tree, check: Check) -> None:
    text = "---\nname: PDF Tools\ndescripton: Reads PDF files.\n---\nText.\n"
    file = here.write("project/a/pdf/SKILL.md", text)
    assert check("a", "--fix").code == 1
    assert file.read_text("utf-8") == text
    assert check("a", "--dry-run", "--unsafe-fixes").code == 1
    assert file.read_text("utf-8") == text
    done = check("a", "--fix", "--unsafe-fixes")
    assert (done.code, done.out.splitlines()[-1]) == (0, "1 file checked: 0 errors, 0 warnings")
    assert file.read_text("utf-8") == "---\nname: pdf\ndescription: Reads PDF files.\n---\nText.\n"


def test_guesses_alone_are_wrong_usage(here: Tree, check: Check) -> None:
    done = check("--unsafe-fixes")
    assert (done.code, done.out) == (2, "")
    assert "needs --fix" in done.err


def test_the_hooks_name_commands_that_there_are() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert [hook["id"] for hook in hooks] == ["skillbelt-check", "skillbelt-fix"]
    for hook in hooks:
        program, command, *options = hook["entry"].split()
        assert (program, hook["language"], hook["pass_filenames"]) == ("skillbelt", "python", False)
        parser(command).parse_args(options)


def test_the_action_puts_no_input_into_its_script() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    steps = action["runs"]["steps"]
    assert action["runs"]["using"] == "composite"
    assert all("${{" not in step["run"] and step["shell"] == "bash" for step in steps)
    named = {value for step in steps for value in step.get("env", {}).values()}
    assert named == {f"${{{{ inputs.{name} }}}}" for name in action["inputs"]}


def test_the_script_of_the_action_checks_what_it_is_given(here: Tree) -> None:
    """Its last step, with a program in place of skillbelt that prints its arguments."""
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    program = here.write("runner/skillbelt/bin/skillbelt", '#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    given = {"SKILL_PATHS": "a b\n--fix\n\n/abs\n$(touch x)", "SKILL_STRICT": "true"}
    done = subprocess.run(
        ["bash", "-e", "-c", action["runs"]["steps"][-1]["run"]],
        env={"PATH": os.environ["PATH"], "RUNNER_TEMP": str(here.path("runner")), **given},
        cwd=here.project,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        *("check", "--format", "github", "--strict", "./a b", "./--fix", "/abs", "./$(touch x)"),
    ]
    assert not here.path("project/x").exists()
