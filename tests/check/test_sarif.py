from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from skillbelt.check.rules import RULES, finding
from skillbelt.check.sarif import FINGERPRINT, ROOT_ID, log
from skillbelt.values import Diagnostic

# Exactly the parts of SARIF 2.1.0 that are written: no other property is allowed.
MESSAGE = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": {"type": "string", "minLength": 1}},
    "additionalProperties": False,
}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
LOCATION = {
    "type": "object",
    "required": ["physicalLocation"],
    "properties": {
        "physicalLocation": {
            "type": "object",
            "required": ["artifactLocation", "region"],
            "properties": {
                "artifactLocation": {
                    "type": "object",
                    "required": ["uri"],
                    "properties": {
                        "uri": {"type": "string", "pattern": r"^[A-Za-z0-9%/._~:-]+$"},
                        "uriBaseId": {"const": ROOT_ID},
                    },
                    "additionalProperties": False,
                },
                "region": {
                    "type": "object",
                    "required": ["startLine"],
                    "properties": {"startLine": {"type": "integer", "minimum": 1}},
                    "additionalProperties": False,
                },
            },
            "additionalProperties": False,
        }
    },
    "additionalProperties": False,
}
RESULT = {
    "type": "object",
    "required": ["ruleId", "ruleIndex", "level", "message", "locations", "partialFingerprints"],
    "properties": {
        "ruleId": {"type": "string"},
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": LEVEL,
        "message": MESSAGE,
        "locations": {"type": "array", "minItems": 1, "maxItems": 1, "items": LOCATION},
        "partialFingerprints": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"type": "string", "minLength": 1},
        },
    },
    "additionalProperties": False,
}
RULE = {
    "type": "object",
    "required": ["id", "shortDescription"],
    "properties": {
        "id": {"type": "string", "pattern": "^[a-z0-9-]+$"},
        "shortDescription": MESSAGE,
        "fullDescription": MESSAGE,
        "help": MESSAGE,
        "defaultConfiguration": {
            "type": "object",
            "required": ["level"],
            "properties": {"level": LEVEL},
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}
RUN = {
    "type": "object",
    "required": ["tool", "results", "originalUriBaseIds"],
    "properties": {
        "tool": {
            "type": "object",
            "required": ["driver"],
            "properties": {
                "driver": {
                    "type": "object",
                    "required": ["name", "semanticVersion", "rules"],
                    "properties": {
                        "name": {"const": "skillbelt"},
                        "semanticVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+"},
                        "rules": {"type": "array", "uniqueItems": True, "items": RULE},
                    },
                    "additionalProperties": False,
                }
            },
            "additionalProperties": False,
        },
        "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
        "originalUriBaseIds": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "properties": {"description": MESSAGE},
                "additionalProperties": False,
            },
        },
        "results": {"type": "array", "items": RESULT},
    },
    "additionalProperties": False,
}
SCHEMA = {
    "type": "object",
    "required": ["$schema", "version", "runs"],
    "properties": {
        "$schema": {"type": "string", "pattern": "^https://.*sarif-schema-2\\.1\\.0\\.json$"},
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "minItems": 1, "maxItems": 1, "items": RUN},
    },
    "additionalProperties": False,
}
FOUND = [
    finding("name-folder", "/root/skills/a/SKILL.md", 2, "differs"),
    finding("body-long", "/root/skills/a/SKILL.md", 7, "long"),
    finding("field-unknown", "/root/skills/a/SKILL.md", 3, "unknown"),
    finding("file-name", "/root/my skills/ü#?:/skill.md", None, "wrong"),
    finding("name-folder", "/elsewhere/SKILL.md", 2, "differs"),
    Diagnostic(
        code="of-another-module", severity="warning", path="/root/a", line=None, message="odd"
    ),
]


def made(found: list[Diagnostic], root: str = "/root", *, strict: bool = False) -> Any:
    """Return the log as a reader gets it: parsed from its text."""
    return json.loads(json.dumps(log(found, root=root, version="0.1.0", strict=strict)))


def results(found: list[Diagnostic], root: str = "/root") -> list[Any]:
    return list(made(found, root)["runs"][0]["results"])


def place(result: Any) -> Any:
    return result["locations"][0]["physicalLocation"]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("found", [[], FOUND], ids=["nothing", "something"])
def test_the_log_fits_the_schema(found: list[Diagnostic], strict: bool) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    Draft202012Validator(SCHEMA).validate(made(found, strict=strict))


def test_every_result_points_at_its_rule() -> None:
    run = made(FOUND)["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert len(run["results"]) == len(FOUND)
    for result, found in zip(run["results"], FOUND, strict=True):
        assert result["ruleId"] == found.code == rules[result["ruleIndex"]]["id"]


def test_every_rule_is_listed_with_its_help_and_level() -> None:
    for strict in (False, True):
        rules = made([], strict=strict)["runs"][0]["tool"]["driver"]["rules"]
        assert [rule["id"] for rule in rules] == sorted(RULES)
        levels = {"error": "error", "warning": "warning", "info": "note"}
        for rule in rules:
            row = RULES[rule["id"]]
            assert row.fix in rule["help"]["text"]
            level = levels[row.strict if strict else row.severity]
            assert rule["defaultConfiguration"] == {"level": level}


def test_severities_become_levels() -> None:
    assert [result["level"] for result in results(FOUND)] == [
        "warning", "warning", "note", "error", "warning", "warning",
    ]  # fmt: skip


def test_paths_are_relative_to_the_root_and_encoded() -> None:
    locations = [place(result)["artifactLocation"] for result in results(FOUND)]
    assert locations[0] == {"uri": "skills/a/SKILL.md", "uriBaseId": ROOT_ID}
    assert locations[3] == {"uri": "my%20skills/%C3%BC%23%3F%3A/skill.md", "uriBaseId": ROOT_ID}
    assert locations[4] == {"uri": "file:///elsewhere/SKILL.md"}
    assert ROOT_ID in made(FOUND)["runs"][0]["originalUriBaseIds"]


def test_a_folder_beside_the_root_with_a_longer_name_is_elsewhere() -> None:
    [result] = results([finding("body-long", "/root2/SKILL.md", 1, "m")])
    assert place(result)["artifactLocation"] == {"uri": "file:///root2/SKILL.md"}


def test_a_finding_without_a_line_stands_at_the_first() -> None:
    assert [place(result)["region"]["startLine"] for result in results(FOUND)] == [2, 7, 3, 1, 2, 1]


def test_the_message_says_how_to_fix_and_hides_nothing() -> None:
    [result] = results([finding("name-folder", "/root/a", 1, "bad \x1b[31m\u202e", "do this")])
    assert result["message"]["text"] == "bad \\x1b[31m\\u202e. To fix: do this."


def test_fingerprints_are_different_and_survive_moved_lines() -> None:
    twice = [*FOUND, FOUND[0]]
    prints = [result["partialFingerprints"][FINGERPRINT] for result in results(twice)]
    assert len(set(prints)) == len(twice)
    moved = [found._replace(line=(found.line or 0) + 5) for found in twice]
    assert [result["partialFingerprints"][FINGERPRINT] for result in results(moved)] == prints


def test_fingerprints_do_not_depend_on_where_the_root_lies() -> None:
    there = [finding("body-long", "/x/a/SKILL.md", 1, "m")]
    here = [finding("body-long", "/y/z/a/SKILL.md", 1, "m")]
    [one], [other] = results(there, "/x"), results(here, "/y/z")
    assert one == other


def test_names_that_are_no_unicode_can_be_written() -> None:
    [result] = results([finding("body-long", "/root/\udcff/SKILL.md", 1, "in \udcff")])
    assert place(result)["artifactLocation"]["uri"] == "%FF/SKILL.md"
