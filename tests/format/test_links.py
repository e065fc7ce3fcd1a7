from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.format.links import MAX_REFERENCES, Reference, references

MOST = MAX_REFERENCES


def targets(text: str) -> list[str]:
    return [reference.target for reference in references(text, most=MOST)]


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("[a](references/a.md)", "references/a.md"),
        ("![a](assets/a.png 'title')", "assets/a.png"),
        ("[a](<my file.md>)", "my file.md"),
        ("[a](my%20file.md#part)", "my file.md"),
        ("[a](./a.md?x=1)", "./a.md"),
        ("[a]: references/a.md", "references/a.md"),
        ("[a](../b/a.md)", "../b/a.md"),
        ("run `scripts/a.py --fast`", "scripts/a.py"),
        ("run `python ./scripts/a.py:12`", "scripts/a.py"),
        ("see `${CLAUDE_SKILL_DIR}/references/a.md`", "references/a.md"),
    ],
)
def test_what_is_a_reference(text: str, target: str) -> None:
    assert targets(text) == [target]


@pytest.mark.parametrize(
    "text",
    [
        "[a](https://example.org/a.md)",
        "[a](mailto:a@example.org)",
        "[a](//example.org/a)",
        "[a](#part)",
        "[a]({path}/a.md)",
        "[a](<name>.md)",
        "[a](a%00.md)",
        "`[a](a.md)`",
        "`src/a.py`",
        "`scripts/*.py`",
        "`scripts/`",
        "```\n[a](a.md)\n`scripts/a.py`\n```",
        "~~~md\n```\n[a](a.md)\n~~~",
        "<!-- [a](a.md)\n[b](b.md) -->",
        "[a](x<name>.md)",
    ],
)
def test_what_is_not(text: str) -> None:
    assert targets(text) == []


def test_lines_are_those_of_the_file() -> None:
    text = "one\n```\n[x](x.md)\n```\n<!-- a\nb -->[a](a.md)\r\n`scripts/b.py`"
    assert list(references(text, 10, most=MOST)) == [
        Reference("a.md", 15, link=True),
        Reference("scripts/b.py", 16, link=False),
    ]


def test_their_number_is_bounded() -> None:
    assert len(targets("[a](a.md)\n" * (MOST + 5))) == MOST


@pytest.mark.parametrize(
    "text", ["](", "`", "<!--", "[a]: ", "```", "[![", "]( ", "`a", "](<", "<!-- -->"]
)
def test_hostile_repetition_ends(text: str) -> None:
    list(references(text * (2**20 // len(text)), most=MOST))


@given(st.text(alphabet="[]()`<>!-~ab/.\n:{}#", max_size=300))
def test_no_text_raises_and_lines_lie_inside(text: str) -> None:
    for reference in references(text, most=MOST):
        assert reference.target
        assert 1 <= reference.line <= text.count("\n") + 1
