from __future__ import annotations

from pathlib import Path

import pytest

from skillbelt.evals.cases import CHECKS, EvalCheck
from skillbelt.evals.checks import EvalEvidence, decide
from skillbelt.files.manifest import LocalFiles

SEEN = EvalEvidence(
    text="Hello, world\nsecond line",
    files={"out/report.md": "# Report", "data.json": '{"n": 1}', "out/a.xml": "<a><b/></a>"},
    exit_code=3,
    tools=("skill_load", "skill_run"),
    skills=("pdf",),
    commands=("python3 scripts/join.py a",),
    asked=("run",),
    surprises=("example.com:443",),
    seconds=2.5,
    tokens=100,
    cost=0.5,
)


def passed(tmp_path: Path, *given: object, **named: object) -> bool | None:
    check = EvalCheck(*given, **named)  # type: ignore[arg-type]
    return decide(check, SEEN, LocalFiles(str(tmp_path))).passed


@pytest.mark.parametrize(
    ("check", "opposite"),
    [
        (EvalCheck("contains", ("Hello", "second")), EvalCheck("contains", ("Hello", "third"))),
        (EvalCheck("icontains", ("hello",)), EvalCheck("icontains", ("bye",))),
        (EvalCheck("contains-any", ("third", "Hello")), EvalCheck("contains-any", ("third",))),
        (EvalCheck("equals", "Hello, world\nsecond line\n"), EvalCheck("equals", "Hello")),
        (EvalCheck("equals", {"n": 1}, "data.json"), EvalCheck("equals", {"n": True}, "data.json")),
        (EvalCheck("starts-with", "Hello"), EvalCheck("starts-with", "world")),
        (EvalCheck("regex", r"^second \w+$"), EvalCheck("regex", r"^third")),
        (EvalCheck("min-length", 24), EvalCheck("min-length", 25)),
        (EvalCheck("max-length", 24), EvalCheck("max-length", 23)),
        (EvalCheck("min-words", 4), EvalCheck("min-words", 5)),
        (EvalCheck("max-words", 4), EvalCheck("max-words", 3)),
        (EvalCheck("is-json", None, "data.json"), EvalCheck("is-json")),
        (EvalCheck("contains-json", None, "data.json"), EvalCheck("contains-json")),
        (EvalCheck("contains-json", {"required": ["n"]}, "data.json"),
         EvalCheck("contains-json", {"required": ["m"]}, "data.json")),
        (EvalCheck("is-xml", None, "a.xml"), EvalCheck("is-xml")),
        (EvalCheck("is-xml", {"requiredElements": ["a.b"]}, "a.xml"),
         EvalCheck("is-xml", {"requiredElements": ["a.c"]}, "a.xml")),
        (EvalCheck("contains", ("b",), "**/*.xml"), EvalCheck("contains", ("c",), "**/*.xml")),
        (EvalCheck("json-schema", {"required": ["n"]}, "data.json"),
         EvalCheck("json-schema", {"required": ["m"]}, "data.json")),
        (EvalCheck("file-exists", "report.md"), EvalCheck("file-exists", "other.md")),
        (EvalCheck("file-exists", "*.json"), EvalCheck("file-exists", "*.csv")),
        (EvalCheck("contains", ("# Rep",), "report.md"), EvalCheck("contains", ("x",), "no.md")),
        (EvalCheck("exit-code", 3), EvalCheck("exit-code", 0)),
        (EvalCheck("max-seconds", 3), EvalCheck("max-seconds", 2)),
        (EvalCheck("max-tokens", 100), EvalCheck("max-tokens", 99)),
        (EvalCheck("max-cost", 0.5), EvalCheck("max-cost", 0.4)),
        (EvalCheck("max-tool-calls", 2), EvalCheck("max-tool-calls", 1)),
        (EvalCheck("min-tool-calls", 2), EvalCheck("min-tool-calls", 3)),
        (EvalCheck("tool-used", "skill_run"), EvalCheck("tool-used", "read_file")),
        (EvalCheck("tools-in-order", ("skill_load", "skill_run")),
         EvalCheck("tools-in-order", ("skill_run", "skill_load"))),
        (EvalCheck("tools-exactly", ("skill_load", "skill_run")),
         EvalCheck("tools-exactly", ("skill_load",))),
        (EvalCheck("skills-in-order", ("pdf",)), EvalCheck("skills-in-order", ("pdf", "csv"))),
        (EvalCheck("command-matches", r"join\.py a$"), EvalCheck("command-matches", r"^join")),
        (EvalCheck("skill-used", "pdf"), EvalCheck("skill-used", "csv")),
        (EvalCheck("script-run", "scripts/join.py"), EvalCheck("script-run", "scripts/cut.py")),
        (EvalCheck("permission-asked", "run"), EvalCheck("permission-asked", "network")),
    ],
)  # fmt: skip
def test_each_check_and_its_opposite(check: EvalCheck, opposite: EvalCheck, tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    assert [decide(one, SEEN, files).passed for one in (check, opposite)] == [True, False]
    assert decide(check._replace(negated=True), SEEN, files).passed is False


def test_every_kind_is_decided(tmp_path: Path) -> None:
    for kind in CHECKS:
        grade = decide(EvalCheck(kind, 1), SEEN, LocalFiles(str(tmp_path)))
        assert grade.text


def test_a_missing_file_fails_also_a_check_that_something_is_absent(tmp_path: Path) -> None:
    assert passed(tmp_path, "contains", ("x",), "missing.md", True) is False


def test_a_surprise_is_named(tmp_path: Path) -> None:
    grade = decide(EvalCheck("no-surprises"), SEEN, LocalFiles(str(tmp_path)))
    assert (grade.passed, grade.evidence) == (False, "example.com:443")


def test_a_golden_file_and_its_difference(tmp_path: Path) -> None:
    (tmp_path / "want.txt").write_text("Hello, world\nother line\n")
    grade = decide(EvalCheck("golden", "want.txt"), SEEN, LocalFiles(str(tmp_path)))
    assert grade.passed is False
    assert "-other line\n+second line" in grade.evidence
    (tmp_path / "want.txt").write_text("Hello, world\nsecond line\n")
    assert passed(tmp_path, "golden", "want.txt") is True


def test_a_golden_file_outside_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "skill").mkdir()
    (tmp_path / "secret").write_text("Hello, world\nsecond line")
    grade = decide(EvalCheck("golden", "../secret"), SEEN, LocalFiles(str(tmp_path / "skill")))
    assert grade.passed is None


def test_a_pattern_without_end_is_not_decided(tmp_path: Path) -> None:
    seen = SEEN._replace(text="a" * 50 + "!")
    grade = decide(EvalCheck("regex", "(a|aa)+$"), seen, LocalFiles(str(tmp_path)))
    assert grade.passed is None
    assert "took more than" in grade.evidence


def test_a_wrong_pattern_is_not_decided(tmp_path: Path) -> None:
    assert passed(tmp_path, "regex", "(") is None


def test_evidence_says_what_was_found(tmp_path: Path) -> None:
    seen, files = EvalEvidence("a secret"), LocalFiles(str(tmp_path))
    found = decide(EvalCheck("contains", ("secret",), negated=True), seen, files)
    assert (found.passed, found.evidence) == (False, "'secret' is in: a secret")
    absent = decide(EvalCheck("contains", ("other",), negated=True), seen, files)
    assert (absent.passed, absent.evidence) == (True, "")


def test_text_that_is_not_json_does_not_equal_a_value(tmp_path: Path) -> None:
    check = EvalCheck("equals", {"rows": 3})
    assert decide(check, EvalEvidence("three rows"), LocalFiles(str(tmp_path))).passed is False


def test_what_a_part_of_the_output_lacks_is_not_decided(tmp_path: Path) -> None:
    seen, files = EvalEvidence("first", cut=True, exit_code=0), LocalFiles(str(tmp_path))

    def grade(kind: str, expected: object = None, *, negated: bool = False) -> bool | None:
        return decide(EvalCheck(kind, expected, negated=negated), seen, files).passed

    assert grade("contains", ("first",)) is True
    assert grade("contains", ("last",)) is None
    assert grade("contains", ("last",), negated=True) is None
    assert grade("contains", ("first",), negated=True) is False
    assert grade("regex", "^last$") is None
    assert grade("is-json") is None
    assert grade("exit-code", 0) is True
    assert grade("exit-code", 1) is False


def test_json_is_found_in_a_text(tmp_path: Path) -> None:
    seen = EvalEvidence('[see below]\n```json\n{"n": [1]}\n```')
    check = EvalCheck("contains-json", {"required": ["n"]})
    assert decide(check, seen, LocalFiles(str(tmp_path))).passed is True


def test_json_that_may_begin_anywhere_is_not_decided(tmp_path: Path) -> None:
    grade = decide(EvalCheck("contains-json"), EvalEvidence("[" * 900), LocalFiles(str(tmp_path)))
    assert grade.passed is None


def test_entities_of_xml_are_not_read(tmp_path: Path) -> None:
    text = '<!DOCTYPE a [<!ENTITY b "x">]><a>&b;</a>'
    grade = decide(EvalCheck("is-xml"), EvalEvidence(text), LocalFiles(str(tmp_path)))
    assert (grade.passed, grade.evidence) == (
        None,
        "has a document type, whose entities are not read",
    )


def test_a_cost_without_a_price_is_not_decided(tmp_path: Path) -> None:
    grade = decide(EvalCheck("max-cost", 1), EvalEvidence("text"), LocalFiles(str(tmp_path)))
    assert grade.passed is None
    assert "--price" in grade.evidence


def test_an_upper_bound_of_a_part_of_the_output_is_not_decided(tmp_path: Path) -> None:
    seen = EvalEvidence("first", cut=True)
    grade = decide(EvalCheck("max-length", 10), seen, LocalFiles(str(tmp_path)))
    assert grade.passed is None


@pytest.mark.parametrize(
    ("check", "decided"),
    [
        (EvalCheck("tool-used", "bash"), None),
        (EvalCheck("tools-in-order", ("skill_load", "bash")), None),
        (EvalCheck("tool-used", "bash", negated=True), True),
        (EvalCheck("tool-used", "skill_*"), True),
        (EvalCheck("tool-used", "skill_search"), False),
    ],
)
def test_a_tool_that_nobody_has_decides_nothing(
    check: EvalCheck, decided: bool | None, tmp_path: Path
) -> None:
    seen = SEEN._replace(offered=("skill_load", "skill_run", "skill_search"))
    assert decide(check, seen, LocalFiles(str(tmp_path))).passed is decided
