"""The variables that a skill requires."""

from __future__ import annotations

import json

import pytest

from skillbelt import Skill
from skillbelt.format.variables import MAX_VARIABLES


def needs(lines: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    found = Skill.from_text(f"---\nname: a\ndescription: d\n{lines}\n---\nDo it.\n").requirements
    return found.env, found.optional_env


@pytest.mark.parametrize(
    "lines",
    [
        "required_environment_variables: [A_KEY, B_KEY]",
        "required-environment-variables:\n  - A_KEY\n  - B_KEY",
        "required-secrets:\n  - name: A_KEY\n  - name: B_KEY\n    description: of b",
        "required_env: A_KEY, B_KEY",
        "required_env_vars: A_KEY B_KEY",
        "requires:\n  env: [A_KEY, B_KEY]\n  mcp: [rube]",
        "metadata:\n  requires:\n    env: [A_KEY, B_KEY]",
        'metadata: {"openclaw": {"requires": {"env": ["A_KEY", "B_KEY"]}, "primaryEnv": "A_KEY"}}',
        'metadata: {"anyclaw": {"envVars": [{"name": "A_KEY"}, {"name": "B_KEY"}]}}',
        "metadata:\n  hermes:\n    requires:\n      env: [{key: A_KEY}, {key: B_KEY}]",
        "metadata:\n  x:\n    env:\n      A_KEY: for a\n      B_KEY: for b",
    ],
)
def test_clients_have_many_spellings(lines: str) -> None:
    assert needs(lines) == (("A_KEY", "B_KEY"), ())


@pytest.mark.parametrize(
    "lines",
    [
        "required-secrets: [{name: A_KEY, optional: true}]",
        'required_environment_variables: [{"name": "A_KEY", "required_for": "optional features"}]',
        'metadata: {"openclaw": {"envVars": [{"name": "A_KEY", "required": false}]}}',
        'metadata: {"openclaw": {"primaryEnv": "A_KEY", "optionalEnv": ["A_KEY"]}}',
        "optional_env: [A_KEY]",
        "compatibility: Works better with A_KEY set",
        "compatibility: Needs A_KEY\nrequired_env: [A_KEY]",
    ],
)
def test_what_is_called_optional_anywhere_is_optional(lines: str) -> None:
    assert needs(lines) == ((), ("A_KEY",))


@pytest.mark.parametrize(
    "lines",
    [
        "env:\n  A_KEY: a value of another tool",
        "env: [A_KEY]",
        "required_env: 7",
        "required_env: [[A_KEY], 7, {}, 'A KEY', 'A=b', '']",
        "requires: A_KEY",
        "metadata: A_KEY",
        "compatibility: Needs a KEY, a_key or KEY_FILE",
    ],
)
def test_what_is_no_declaration_says_nothing(lines: str) -> None:
    assert needs(lines) == ((), ())


def test_only_so_many_names_count() -> None:
    names = [f"KEY_{number}" for number in range(1_000)]
    assert needs(f"required_env: {json.dumps(names)}")[0] == tuple(names[:MAX_VARIABLES])
