"""`skillbelt eval init` and `skillbelt eval route`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET

import pytest

from tests.terminal import on_terminal
from tests.tree import Tree

SKILLS = "project/.agents/skills"
SETS = {
    "pdf-merge": [
        {"query": "join pdf pages", "should_trigger": True},
        {"query": "chart of sales", "should_trigger": True},
        {"query": "resize a photo", "should_trigger": False, "expected_skill": "images"},
    ],
    "csv-report": [{"query": "make a chart of this table", "should_trigger": True}],
}


@pytest.fixture
def skills(tree: Tree) -> Tree:
    tree.skill(f"{SKILLS}/pdf-merge", description="Joins PDF files. Use when pages are joined.")
    tree.skill(f"{SKILLS}/csv-report", description="Makes a chart of a table, such as sales.")
    tree.skill(f"{SKILLS}/images", description="Resizes a photo or an image.")
    for name, rows in SETS.items():
        tree.write(f"{SKILLS}/{name}/evals/evals.json", json.dumps(rows))
    return tree


def test_each_skill_is_measured_among_its_neighbours(skills: Tree) -> None:
    done = skills.run("eval", "route", "--json")
    assert done.exit_code == 0
    by_name = {one["name"]: one["measures"] for one in done.document["skills"]}
    merge = by_name["pdf-merge"]["hit@1"]
    assert (merge["hits"], merge["total"], merge["rate"]) == (1, 2, 0.5)
    assert 0 < merge["low"] < 0.5 < merge["high"] < 1
    assert by_name["pdf-merge"]["negatives"]["rate"] == 1.0
    assert by_name["csv-report"]["steals"]["hits"] == 1
    assert done.document["measures"]["hit@1"]["total"] == 3
    assert set(done.document["ranking"]) >= {"Hit@1", "MRR@10"}


def test_a_stolen_request_names_the_thief_and_the_words(skills: Tree) -> None:
    done = skills.run("eval", "route")
    said = "csv-report takes what is meant for pdf-merge (sales, chart): chart of sales"
    assert said in done.stderr
    [confusion] = skills.run("eval", "route", "--json").document["confusions"]
    assert (confusion["meant"], confusion["found"]) == ("pdf-merge", "csv-report")
    assert confusion["words"] == ["sales", "chart"]


def test_names_that_a_set_gives_cannot_steer_a_terminal(skills: Tree) -> None:
    name = "\x1b]0;other title\x07"
    cases = [{"prompt": "Merge PDF files", "expected_skill": name, "acceptable_skills": [name]}]
    skills.write("project/set.json", json.dumps(cases))
    done = skills.run("eval", "route", "pdf-merge", "--set", "set.json", "-v")
    assert "takes what is meant for \\x1b]0;other title\\x07" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def commit(tree: Tree) -> None:
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "one"]):
        name = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
        subprocess.run(["git", *name, *words], cwd=tree.root / "project", check=True)


def test_versions_are_revisions_of_git(skills: Tree) -> None:
    commit(skills)
    skills.skill(f"{SKILLS}/pdf-merge", description="Reads tables.")
    folder = ".agents/skills/pdf-merge"
    for old in ("HEAD", f"HEAD:{folder}"):
        told = skills.run("eval", "diff", old, folder, "--json").document
        assert told["description"]["old"].startswith("Joins PDF files.")
        assert told["description"]["new"] == "Reads tables."
    assert "-description: Joins PDF" in skills.run("diff", f"HEAD:{folder}", folder).stdout


@pytest.mark.parametrize("place", [".git", ""])
def test_a_repository_starts_no_program_when_a_revision_is_looked_up(
    skills: Tree, place: str
) -> None:
    commit(skills)
    skill, mark = skills.project / ".agents/skills/pdf-merge", skills.project.parent / "started"
    folder = shutil.copytree(skills.project / ".git", skill / place, dirs_exist_ok=True)
    program = skills.write("evil.sh", f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    git = ["git", "-C", str(folder), f"--git-dir={folder}"]
    for name, value in (
        ("core.repositoryformatversion", "1"),
        ("core.bare", "false"),
        ("core.worktree", str(skill)),
        ("extensions.partialClone", "evil"),
        ("remote.evil.url", str(skill)),
        ("remote.evil.promisor", "true"),
        ("remote.evil.uploadpack", str(program)),
    ):
        subprocess.run([*git, "config", name, value], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    (folder / "objects" / head.stdout[:2] / head.stdout.strip()[2:]).unlink()
    skills.run("eval", "diff", "HEAD", str(skill))
    assert not mark.exists()


@pytest.mark.parametrize(
    ("old", "said"),
    [
        ("HEAD~7", "HEAD~7: no skill, folder or revision of git"),
        ("HEAD:none", "HEAD:none: the commit"),
    ],
)
def test_a_version_that_is_not_there_is_named(skills: Tree, old: str, said: str) -> None:
    commit(skills)
    done = skills.run("eval", "diff", old, "pdf-merge")
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_key_of_a_script_case_that_is_not_read_is_an_error(skills: Tree) -> None:
    case = {"script": "scripts/a.py", "checks": [{"contains": "4"}]}
    skills.write(f"{SKILLS}/images/evals/evals.json", json.dumps({"scripts": [case]}))
    done = skills.run("eval", "script", "images")
    assert done.exit_code == 2
    assert "evals.json: scripts[1]: checks is not read; a script's case takes" in done.stderr


def test_under_a_bar_is_a_no(skills: Tree) -> None:
    assert skills.run("eval", "route", "--min", "0.5").exit_code == 0
    done = skills.run("eval", "route", "--min", "0.8")
    assert done.exit_code == 1
    assert "under the bar: pdf-merge hit@1 0.50 < 0.8" in done.stderr
    assert skills.run("eval", "route", "csv-report", "--min", "0.8").exit_code == 0
    assert skills.run("eval", "route", "--min", "negatives=1").exit_code == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--min", "2"), "--min takes a share"),
        (("--min", "taste=0.5"), "there is no measure 'taste'"),
        (("--report", "r.doc"), "ends in none of"),
        (("--set", "none.json"), "none.json: cannot be read: No such file or directory\n"),
        (("--min", "80%"), "such as 0.8"),
        (("--min", "recall@3=1"), "with --k 3 there is recall@3"),
        (("--sandbox", "cage"), "no sandbox named 'cage'; there are: auto"),
        (("--model", "offline"), "--model is for `eval trigger` and `eval run`"),
        (("--judge", "offline"), "--judge is for `eval run`"),
        (("--max-steps", "3"), "`skillbelt eval --help` shows what it takes"),
        (("pdf-merge", "images", "--set", "s.json"), "`skillbelt eval --help` shows"),
    ],
)
def test_wrong_options_are_wrong_usage(skills: Tree, options: tuple[str, ...], said: str) -> None:
    done = skills.run("eval", "route", *options)
    assert done.exit_code == 2
    assert said in done.stderr


def test_a_wrong_file_is_named(skills: Tree) -> None:
    skills.write(f"{SKILLS}/images/evals/evals.json", "[{}]")
    done = skills.run("eval", "route", "--json")
    assert done.exit_code == 2
    assert "images/evals/evals.json" in done.document["error"]["message"]
    # A neighbour's mistake does not keep a skill from being measured, and is reported.
    done = skills.run("eval", "route", "csv-report")
    assert done.exit_code == 0
    assert "images/evals/evals.json: its cases are left out: this is not an" in done.stderr


def test_an_unknown_skill_and_one_without_cases(skills: Tree) -> None:
    assert skills.run("eval", "route", "none").exit_code == 3
    done = skills.run("eval", "route", "images")
    assert "`skillbelt eval init images` writes the first" in done.stderr


def test_a_bar_is_not_reached_by_what_nothing_measures(skills: Tree) -> None:
    named = skills.run("eval", "route", "images", "pdf-merge", "--min", "0.1")
    assert named.exit_code == 2
    assert "images has no requests to measure; `skillbelt eval init images`" in named.stderr
    measure = skills.run("eval", "route", "csv-report", "--min", "negatives=0.1")
    assert measure.exit_code == 2
    assert "no case counts for negatives" in measure.stderr
    for name in SETS:
        skills.path(f"{SKILLS}/{name}/evals/evals.json").unlink()
    every = skills.run("eval", "route", "--min", "0.1")
    assert every.exit_code == 2
    assert "`skillbelt eval init NAME` writes the first" in every.stderr


@pytest.mark.parametrize("action", ["route", "script", "trigger"])
def test_a_set_that_is_empty_is_to_be_changed(skills: Tree, action: str) -> None:
    path = skills.write(f"{SKILLS}/images/evals/evals.json", "[]")
    options = ("--model", "offline") if action == "trigger" else ()
    done = skills.run("eval", action, "images", *options)
    assert f"to {path}" in done.stderr
    assert "eval init" not in done.stderr


def test_an_action_alone_needs_no_name(skills: Tree) -> None:
    done = skills.run("eval")
    assert done.exit_code == 2
    assert "required: action\n" in done.stderr


def test_the_cases_of_a_file(skills: Tree) -> None:
    skills.write("project/set.json", json.dumps([{"query": "resize", "should_trigger": True}]))
    done = skills.run("eval", "route", "--set", "set.json", "images", "--json")
    assert done.document["skills"][0]["measures"]["hit@1"]["rate"] == 1.0
    done = skills.run("eval", "route", "--set", "set.json")
    assert done.exit_code == 2
    assert "does not say which skill its cases are about; name it: " in done.stderr
    assert "skillbelt eval route NAME --set set.json\n" in done.stderr


def test_reports_hold_every_case_and_escape_what_skills_say(skills: Tree) -> None:
    hostile = '<script>alert(1)</script> | @team ]]> & "x" `code`\x00'
    rows = [{"query": hostile, "should_trigger": True}]
    skills.write(f"{SKILLS}/images/evals/evals.json", json.dumps(rows))
    names = ("r.html", "r.md", "r.xml", "r.json")
    options = [word for name in names for word in ("--report", name)]
    assert skills.run("eval", "route", *options).exit_code == 0
    page, text, junit, document = (skills.path(f"project/{name}").read_text() for name in names)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "default-src 'none'" in page
    assert 'role="img"' in page
    row = next(line for line in text.splitlines() if "alert" in line)
    assert r"`<script>alert(1)</script> \| @team ]]> &" in row
    suites = ET.fromstring(junit)
    assert [one.get("tests") for one in suites] == ["1", "1", "3"]
    assert len(suites.findall(".//failure")) == 2
    assert len(json.loads(document)["cases"]) == 5


def test_a_report_is_not_written_through_a_link(skills: Tree) -> None:
    """A checkout can contain the link, and lead the report to any file of the user's."""
    kept = skills.write("kept.md", "kept")
    report = skills.path("project/report.md")
    report.symlink_to(kept)
    done = skills.run("eval", "route", "--report", "report.md")
    assert (done.exit_code, kept.read_text()) == (2, "kept")
    assert "--report report.md: is a link or not a plain file; give another" in done.stderr
    report.unlink()
    report.write_text("older")
    assert skills.run("eval", "route", "--report", "report.md").exit_code == 0
    assert report.read_text().startswith("## Routing")


def test_reports_show_what_would_turn_a_line_round(skills: Tree) -> None:
    rows = [{"query": "resize\u202egnp.exe\u200b\x1b[2J", "should_trigger": True}]
    skills.write(f"{SKILLS}/images/evals/evals.json", json.dumps(rows))
    skills.run("eval", "route", "--report", "r.html", "--report", "r.xml")
    for name in ("r.html", "r.xml"):
        text = skills.path(f"project/{name}").read_text()
        assert r"resize\u202egnp.exe\u200b\x1b[2J" in text
        assert not {"\u202e", "\u200b", "\x1b"}.intersection(text)


def test_a_first_set_is_written_once(skills: Tree) -> None:
    done = skills.run("eval", "init", "images", "--json")
    assert done.exit_code == 0
    made = json.loads(skills.path(f"{SKILLS}/images/evals/evals.json").read_text())
    assert made["skill_name"] == "images"
    expected = [(one["should_trigger"], one["expected_skill"]) for one in made["evals"]]
    assert (True, "images") in expected
    assert (False, None) in expected
    assert done.document["positives"] >= 1
    again = skills.run("eval", "init", "images")
    assert again.exit_code == 2
    assert "is there already" in again.stderr


def test_a_first_set_has_the_items_of_a_description(skills: Tree) -> None:
    text = (
        "Use whenever the user wants to do anything with photos. This includes resizing (also of "
        'many files, at once), cutting edges, and saying "thumb, nail". If the user mentions a '
        ".png, use this skill. Do NOT use for video."
    )
    skills.skill(f"{SKILLS}/images", description=text)
    skills.run("eval", "init", "images")
    made = json.loads(skills.path(f"{SKILLS}/images/evals/evals.json").read_text())
    assert [one["prompt"] for one in made["evals"] if one["should_trigger"]] == [
        "Do anything with photos",
        "Resizing (also of many files, at once)",
        "Cutting edges",
        'Saying "thumb, nail"',
        "A .png",
    ]


def test_a_first_set_has_near_misses_from_what_a_description_rules_out(skills: Tree) -> None:
    text = (
        "Cuts photos. Do NOT use this skill for moving pictures, vector drawings (SVG), or sound."
    )
    skills.skill(f"{SKILLS}/images", description=text)
    skills.run("eval", "init", "images")
    made = json.loads(skills.path(f"{SKILLS}/images/evals/evals.json").read_text())
    wrong = [(one["prompt"], one["should_trigger"]) for one in made["evals"]]
    assert ("Moving pictures", False) in wrong
    assert ("Vector drawings", False) in wrong
    assert [one for one, _ in wrong if "NOT" in one or one == "Sound"] == []


def test_a_note_in_markdown_mentions_no_user_and_links_nowhere(skills: Tree) -> None:
    name = "scripts/@team see https:__example.org.py"
    skills.write(f"{SKILLS}/images/{name}", "print(1)\n")
    rows = [{"query": "@all http://example.org", "should_trigger": True}] * 2
    skills.write(f"{SKILLS}/images/evals/evals.json", json.dumps(rows))
    skills.run("eval", "route", "--report", "r.md")
    text = skills.path("project/r.md").read_text()
    plain = re.sub(r"`[^`]*`", "", text)
    assert not re.search(r"(?<!\w)@\w|://", plain)


def test_a_first_set_is_measured_and_called_a_draft(skills: Tree) -> None:
    skills.run("eval", "init", "images")
    done = skills.run("eval", "route", "images")
    assert done.exit_code == 0
    assert "are drafts of `eval init`" in done.stderr


def test_a_first_set_is_not_written_through_a_link(skills: Tree) -> None:
    skills.path("project/elsewhere").mkdir()
    skills.path(f"{SKILLS}/images/evals").symlink_to(skills.path("project/elsewhere"))
    done = skills.run("eval", "init", "images")
    assert done.exit_code == 2
    assert list(skills.path("project/elsewhere").iterdir()) == []


def test_scripts_get_a_first_case(skills: Tree) -> None:
    skills.write(
        f"{SKILLS}/images/scripts/resize.py",
        "import argparse\nargparse.ArgumentParser().parse_args()\n",
    )
    skills.write(f"{SKILLS}/images/scripts/plain.py", "print(1)\n")  # does not know --help
    skills.run("eval", "init", "images")
    made = json.loads(skills.path(f"{SKILLS}/images/evals/evals.json").read_text())
    assert [one["script"] for one in made["scripts"]] == ["scripts/resize.py"]


def test_a_terminal_shows_a_table_with_its_head(skills: Tree) -> None:
    screen = on_terminal(skills, "eval", "route", "csv-report")
    assert "hit@1" in str(screen)


def test_a_narrow_terminal_names_and_shows_every_measure(skills: Tree) -> None:
    screen = on_terminal(skills, "eval", "route", "csv-report", columns=70)
    shown = [line.split("  ") for line in screen.lines if "(" in line]
    for name in ("hit@1", "recall@5", "steals"):
        [line] = [words for words in shown if name in words]
        assert line[-1].endswith(")")
