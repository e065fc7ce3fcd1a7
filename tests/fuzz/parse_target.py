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
    from skillbelt import fields, parse, quick, repair, strict
    from skillbelt.values import Limits

LIMITS = Limits()
STATES = ("strict", "repaired", "derived", "skipped")


def one_input(data: bytes) -> None:
    """Every promise that holds for any bytes at all."""
    for derive in (True, False):
        parsed = parse.parse(data, path="x/SKILL.md", folder="x", derive=derive)
        assert parsed.state in STATES
        assert 0 <= parsed.body_offset <= len(data)
        assert parsed.diagnostics or parsed.state == "strict"
        json.dumps(parsed.fields, allow_nan=False).encode()
        fields.to_frontmatter(parsed.fields)
        assert fields.skill_name(parsed.fields, "x").id
    assert isinstance(parse.needs_more(data, LIMITS), bool)
    parse.key_lines(data)
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    repair.read(text, LIMITS)
    repair.find(text)
    agree(text + "\n")


def agree(text: str) -> None:
    """The fast reader says what libyaml says, or nothing."""
    fast = quick.read(text)
    if fast is not None:
        full = strict.full(text, LIMITS)
        assert isinstance(full, strict.Loaded), full
        assert repr(full.fields) == repr(fast), (full.fields, fast)


def main() -> Any:
    """Fuzzes until libFuzzer's own limits end it."""
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
