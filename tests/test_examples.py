"""The skills in examples/ are well formed and their scripts do what their SKILL.md says."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import warm
from tests.examples import first_one
from tests.tree import Tree

EXAMPLES = Path(__file__).parents[1] / "examples"
SKILLS = sorted((EXAMPLES / "skills").iterdir())
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
FIELDS = {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}


def run(
    skill: str, script: str, *arguments: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    path = EXAMPLES / "skills" / skill / "scripts" / script
    return subprocess.run(
        [sys.executable, str(path), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_bytes(text.encode())
    return str(path)


@pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.name)
def test_frontmatter_follows_the_format_to_the_letter(skill: Path) -> None:
    head, body = (skill / "SKILL.md").read_text("utf-8").split("\n---\n", 1)
    fields = yaml.safe_load(head.removeprefix("---\n"))
    assert fields.keys() <= FIELDS
    assert fields["name"] == skill.name
    assert NAME.fullmatch(skill.name)
    assert len(skill.name) <= 64
    assert 1 <= len(fields["description"]) <= 1024
    assert "Use when" in fields["description"]
    assert len(fields["compatibility"]) <= 500
    assert all(isinstance(value, str) for value in fields["metadata"].values())
    assert len(body.splitlines()) < 100


@pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.name)
def test_every_file_a_skill_names_is_there_and_every_file_is_named(skill: Path) -> None:
    text = (skill / "SKILL.md").read_text("utf-8")
    named = set(re.findall(r"\b(?:scripts|references|assets)/[\w.-]+\w", text))
    kept = {
        path.relative_to(skill).as_posix()
        for path in skill.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    # What a module is built from is for who changes it.
    assert named == {path for path in kept if not path.startswith(("SKILL.md", "src/", "wasm/"))}


@pytest.mark.parametrize("skill", SKILLS, ids=lambda path: path.name)
def test_every_script_explains_itself_and_refuses_wrong_usage(skill: Path) -> None:
    for script in sorted(skill.glob("scripts/*.py")):
        assert "usage:" in run(skill.name, script.name, "--help").stdout
        assert run(skill.name, script.name, "--no-such-option").returncode == 2


def test_csv_report_gives_type_gaps_range_and_commonest_values(tmp_path: Path) -> None:
    table = "name;born;score;paid\nAnn;1980-01-02;1.5;yes\nBo;;2;no\nAnn;1990-05-06;NA;yes\nCy;1\n"
    done = run("csv-report", "report.py", write(tmp_path, "people.csv", table))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2] == "4 rows, 4 columns, 1 short or long rows."
    assert "| `name` | text | 0 | 3 | `Ann` (2), `Bo` (1), `Cy` (1) |" in done.stdout
    assert "| `score` | number | 2 | 2 | 1.5 to 2, mean 1.75 |" in done.stdout
    assert "| `paid` | boolean | 1 | 2 | `yes` (2), `no` (1) |" in done.stdout


def test_csv_report_stops_at_the_row_limit_and_says_so(tmp_path: Path) -> None:
    table = write(tmp_path, "long.tsv", "n\tday\n" + "7\t2026-01-01\n" * 10)
    target = tmp_path / "report.md"
    done = run("csv-report", "report.py", table, "--max-rows", "4", "--output", str(target))
    assert (done.returncode, done.stdout) == (0, "")
    assert "4 rows (more were left out)" in target.read_text()
    assert "| `n` | integer | 0 | 1 | 7 to 7, mean 7 |" in target.read_text()
    assert "| `day` | date | 0 | 1 | 2026-01-01 to 2026-01-01 |" in target.read_text()


@pytest.mark.parametrize("content", ["", "\n\n", "a,b\n\xff"])
def test_csv_report_refuses_what_is_no_table(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(content.encode("latin-1"))
    done = run("csv-report", "report.py", str(path))
    assert done.returncode == 2
    assert "bad.csv" in done.stderr


def test_csv_report_keeps_cell_text_inside_its_cell(tmp_path: Path) -> None:
    done = run("csv-report", "report.py", write(tmp_path, "x.csv", 'a\n"one | two\nthree"\n'))
    assert r"`one \| two three` (1)" in done.stdout


def test_changelog_entry_makes_file_section_and_headings_in_order(tmp_path: Path) -> None:
    path = str(tmp_path / "CHANGELOG.md")
    for kind, sentence in [("fixed", "B."), ("added", "A."), ("fixed", "C."), ("security", "D.")]:
        assert run("changelog-entry", "insert.py", kind, sentence, "--file", path).returncode == 0
    assert Path(path).read_text() == (
        "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A.\n\n"
        "### Fixed\n\n- B.\n- C.\n\n### Security\n\n- D.\n"
    )


def test_changelog_entry_changes_nothing_else_and_keeps_line_endings(tmp_path: Path) -> None:
    before = "# Changelog\r\n\r\nAll of it.\r\n\r\n## [1.0.0]\r\n\r\n### Added\r\n\r\n- Old.\r\n"
    path = write(tmp_path, "CHANGELOG.md", before)
    assert run("changelog-entry", "insert.py", "added", "New.", "--file", path).returncode == 0
    after = Path(path).read_bytes().decode()
    added = "## [Unreleased]\r\n\r\n### Added\r\n\r\n- New.\r\n\r\n"
    assert after == before.replace("## [1.0.0]", added + "## [1.0.0]")


def test_changelog_entry_is_not_written_twice_nor_in_a_dry_run(tmp_path: Path) -> None:
    path = write(tmp_path, "CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n### Fixed\n\n- Same.\n")
    again = run("changelog-entry", "insert.py", "fixed", "Same.", "--file", path)
    assert (again.returncode, again.stderr) == (1, "the entry is there already\n")
    before = Path(path).read_text()
    dry = run("changelog-entry", "insert.py", "added", "More.", "--file", path, "--dry-run")
    assert dry.stdout.index("- More.") < dry.stdout.index("- Same.")
    assert Path(path).read_text() == before


LOG = """2026-03-01 10:00:00 INFO start id=1
2026-03-01 10:00:05 ERROR can not reach 10.0.0.7:5432 after 3 tries
2026-03-01 10:00:06 WARN retry 1 of "orders"
2026-03-01 10:00:07 ERROR can not reach 10.0.0.8:5432 after 4 tries
2026-03-01 10:00:09 CRITICAL giving up
Traceback (most recent call last):
  File "/srv/app.py", line 3
"""


def test_log_triage_groups_equal_messages_worst_first(tmp_path: Path) -> None:
    done = run("log-triage", "triage.py", write(tmp_path, "app.log", LOG), "--json")
    groups = json.loads(done.stdout)["groups"]
    assert [group["level"] for group in groups] == [
        "fatal", "error", "error", "error", "warning", "info",
    ]  # fmt: skip
    assert groups[1] == {
        "level": "error",
        "count": 2,
        "first": "2026-03-01 10:00:05",
        "last": "2026-03-01 10:00:07",
        "line": 2,
        "message": "<time> ERROR can not reach <ip> after <n> tries",
    }
    assert groups[4]["message"] == "<time> WARN retry <n> of <str>"


def test_log_triage_reads_standard_input_and_compressed_files(tmp_path: Path) -> None:
    packed = tmp_path / "app.log.gz"
    packed.write_bytes(gzip.compress(LOG.encode()))
    done = run("log-triage", "triage.py", str(packed), "-", "--level", "fatal", stdin=LOG)
    assert done.stdout.splitlines()[2].startswith("| fatal | 2 | 2026-03-01 10:00:09 |")
    assert len(done.stdout.splitlines()) == 3


def test_log_triage_says_when_groups_were_left_out_and_when_none_matched(tmp_path: Path) -> None:
    path = write(tmp_path, "app.log", LOG)
    assert "4 more groups" in run("log-triage", "triage.py", path, "--limit", "2").stdout
    calm = write(tmp_path, "calm.log", "all is well\n")
    assert run("log-triage", "triage.py", calm, "--level", "error").returncode == 1
    assert run("log-triage", "triage.py", str(tmp_path / "none.log")).returncode == 2


def test_json_diff_lists_what_was_added_removed_and_changed(tmp_path: Path) -> None:
    old = write(tmp_path, "old.json", '{"a": 1, "b": {"x/y": [1, 2]}, "gone": null}')
    new = write(tmp_path, "new.json", '{"b": {"x/y": [1, 3, true]}, "a": 1.0}')
    done = run("json-diff", "diff.py", old, new)
    assert done.returncode == 1
    assert done.stdout.splitlines() == ["~ /b/x~1y/1 2 -> 3", "+ /b/x~1y/2 true", "- /gone null"]


def test_json_diff_compares_list_elements_by_key_and_leaves_out_what_it_is_told(
    tmp_path: Path,
) -> None:
    old = write(tmp_path, "old.json", '[{"id": 1, "n": 1, "t": 5}, {"id": 2, "n": 2, "t": 6}]')
    new = write(tmp_path, "new.json", '[{"id": 2, "n": 9, "t": 7}, {"id": 1, "n": 1, "t": 8}]')
    done = run("json-diff", "diff.py", old, new, "--key", "id", "--ignore", "/*/t", "--json")
    assert json.loads(done.stdout) == {
        "same": False,
        "differences": [{"op": "change", "pointer": "/id=2/n", "old": 2, "new": 9}],
    }


def test_json_diff_tells_same_different_and_unreadable_apart(tmp_path: Path) -> None:
    one = write(tmp_path, "one.json", '{"a": [1], "b": 2}')
    assert run("json-diff", "diff.py", one, "-", stdin='{"b":2,"a":[1]}').returncode == 0
    truth = run("json-diff", "diff.py", one, "-", stdin='{"b":2,"a":[true]}')
    assert (truth.returncode, truth.stdout) == (1, "~ /a/0 1 -> true\n")
    assert run("json-diff", "diff.py", one, "-", stdin="{").returncode == 2
    deep = "[" * 100_000 + "]" * 100_000
    assert run("json-diff", "diff.py", one, "-", stdin=deep).returncode == 2


def counted(script: str, **given: object) -> object:
    done = run("text-stats", script, stdin=json.dumps(given))
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_text_stats_counts_as_a_reader_would() -> None:
    text = "Cafe\u0301 \u00e0 c\u00f4te\nOne-way, isn't it?! Yes"
    assert counted("count.py", text=text, words_per_minute=60) == {
        "characters": 35,
        "words": 7,
        "sentences": 2,
        "lines": 2,
        "reading_seconds": 7,
    }


def test_text_stats_lists_what_is_repeated_most_first() -> None:
    text = "To be, or not to be: that is the question. BE!"
    assert counted("repeated.py", text=text) == {
        "distinct": 8,
        "repeated": [{"word": "be", "count": 3}, {"word": "to", "count": 2}],
    }
    short = counted("repeated.py", text=text, most=1, shortest=2)
    assert short == {"distinct": 8, "repeated": [{"word": "be", "count": 3}]}
    assert counted("repeated.py", text=text, shortest=3) == {"distinct": 4, "repeated": []}


@pytest.mark.parametrize("script", ["count.py", "repeated.py"])
@pytest.mark.parametrize("stdin", ["", "[]", "{}", '{"text": 1}', "null"])
def test_text_stats_refuses_what_is_no_text(script: str, stdin: str) -> None:
    done = run("text-stats", script, stdin=stdin)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("cannot count: ")


COUNTED = 'printed: {"characters": 19, "words": 6,'
SAYS = {
    "agent_loop.py": ["I was told: [Loaded] log-triage"],
    "ask.py": ["asked: run `python3 scripts/count.py`", "No language model was used."],
    "list_skills.py": ["csv-report"],
    "load_modes.py": ["load_mode = once", "second turn                          body there"],
    "skill_hashes.py": ["csv-report"],
    "with_functions.py": ["skill_load(*, skill: str", COUNTED, "answer: 6 words."],
    "with_google_adk.py": [COUNTED, "answer: Six words."],
    "with_langchain.py": [COUNTED, "answer: Six words."],
    "with_openai_agents.py": [COUNTED, "answer: Six words."],
    "with_pydantic_ai.py": [COUNTED, "answer: Six words."],
}
PROGRAMS = [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("frameworks/*.py")]
# Keys of this machine are of no use to them.
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY")


# To import a framework takes a second or two.
@pytest.mark.parametrize(
    "script",
    [*sorted(EXAMPLES.glob("*.py")), *first_one(*sorted(EXAMPLES.glob("frameworks/*.py")))],
    ids=lambda path: path.name,
)
def test_every_example_program_runs(script: Path, open_tree: Tree) -> None:
    """Those of `mcp` are run beside the tests of the server."""
    shutil.copytree(EXAMPLES / "skills", open_tree.project / ".agents" / "skills")
    done = warm.run(
        [sys.executable, str(script)],
        cwd=open_tree.project,
        env={name: value for name, value in os.environ.items() if name not in KEYS},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for said in SAYS[script.name]:
        assert said in done.stdout


def test_every_example_program_is_explained() -> None:
    text = (EXAMPLES / "README.md").read_text("utf-8").replace("with_*.py", " ".join(SAYS))
    programs = [*PROGRAMS, *EXAMPLES.glob("mcp/*.py")]
    assert [path.name for path in programs if path.name not in text] == []


SAMPLE = str(EXAMPLES / "skills" / "pdf-text" / "assets" / "sample.pdf")


def test_pdf_text_gives_facts_and_pages() -> None:
    done = run("pdf-text", "extract.py", stdin=json.dumps({"path": SAMPLE}))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["title"], found["page_count"]) == ("The lighthouse at Tern Point", 2)
    assert [page["page"] for page in found["pages"]] == [1, 2]
    assert "34 metres tall" in found["pages"][0]["text"]


def test_pdf_text_gives_only_the_pages_that_are_asked_for() -> None:
    done = run("pdf-text", "extract.py", stdin=json.dumps({"path": SAMPLE, "pages": "2"}))
    (page,) = json.loads(done.stdout)["pages"]
    assert page["text"].startswith("What the log says")


def test_pdf_text_stops_where_it_would_be_too_much() -> None:
    done = run("pdf-text", "extract.py", stdin=json.dumps({"path": SAMPLE, "max_chars": 210}))
    found = json.loads(done.stdout)
    assert (len(found["pages"]), found["truncated"], found["next_page"]) == (1, True, 2)


def test_pdf_text_as_a_command_writes_pages_apart() -> None:
    done = run("pdf-text", "extract.py", SAMPLE)
    assert [part.strip()[:8] for part in done.stdout.split("\f")] == ["The ligh", "What the"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"path": "nothing.pdf"}, "nothing.pdf cannot be read"),
        ({"path": SAMPLE, "pages": "3"}, "there is no page 3, there are 2"),
        ({"path": SAMPLE, "pages": "x"}, "'x' is not like 1-3,7"),
        ({"path": __file__}, "cannot be read"),
        ({}, 'give an object with a "path"'),
    ],
)
def test_pdf_text_says_what_is_wrong(given: dict[str, str], told: str) -> None:
    done = run("pdf-text", "extract.py", stdin=json.dumps(given))
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
