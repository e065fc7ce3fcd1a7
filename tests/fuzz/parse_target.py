"""Coverage-guided fuzzing of everything that reads a SKILL.md.

    python tests/fuzz/parse_target.py -runs=20000 WORK tests/fuzz/corpus

libFuzzer writes what it finds into the first folder, so name a scratch one first.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import atheris

with atheris.instrument_imports(include=["skillbelt"]):
    from skillbelt.format import fields, frontmatter, yaml, yaml_fast, yaml_repair

STATES = ("strict", "repaired", "derived", "skipped")


def one_input(data: bytes) -> None:
    """Every promise that holds for any bytes at all."""
    for derive in (True, False):
        parsed = frontmatter.parse(data, path="x/SKILL.md", folder="x", derive=derive)
        assert parsed.state in STATES
        assert 0 <= parsed.body_offset <= len(data)
        assert parsed.diagnostics or parsed.state == "strict"
        json.dumps(parsed.fields, allow_nan=False).encode()
        fields.to_frontmatter(parsed.fields)
        assert fields.skill_name(parsed.fields, "x").id
    assert isinstance(frontmatter.needs_more(data), bool)
    frontmatter.key_lines(data)
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    yaml_repair.read(text)
    yaml_repair.find(text)
    agree(text + "\n")


def agree(text: str) -> None:
    """The fast reader says what libyaml says, or nothing."""
    fast = yaml_fast.read(text)
    if fast is not None:
        full = yaml.full(text)
        assert isinstance(full, yaml.LoadedYaml), full
        assert repr(full.fields) == repr(fast), (full.fields, fast)


def main() -> Any:
    """Fuzzes until libFuzzer's own limits end it."""
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
