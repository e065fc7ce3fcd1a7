from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.format.arguments import MAX_ADDED_CHARS, split_arguments, substitute


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        ("Do $ARGUMENTS now", "a b", "Do a b now"),
        ("$0 then $1", "a b", "a then b"),
        ("$0", "'one word' two", "one word"),
        ("$0|$1", 'a "b c"', "a|b c"),
        ("$ARGUMENTS[1]", "a b", "b"),
        ("$ARGUMENTS[0]$ARGUMENTS[1]", "a b", "ab"),
        ("$0 $1 $2", "a", "a $1 $2"),
        ("$ARGUMENTS[7] $0", "a", "$ARGUMENTS[7] a"),
        ("$ARGUMENTS", "", ""),
        ("$10 costs $100 $0", "a", "$10 costs $100 a"),
        ("$0th $0", "a", "$0th a"),
        ("$ARGUMENTSX $0", "a", "$ARGUMENTSX a"),
        (r"\$0 $0", "a", "$0 a"),
        (r"\$ARGUMENTS $0", "a", "$ARGUMENTS a"),
        (r"\$5 $0", "a", "$5 a"),
        (r"\$HOME $0", "a", r"\$HOME a"),
        ("$HOME ${HOME} $0", "a", "$HOME ${HOME} a"),
        ("$0", "it's", "it's"),
    ],
)
def test_placeholders(text: str, arguments: str, expected: str) -> None:
    assert substitute(text, arguments) == expected


def test_names_stand_for_places() -> None:
    text = "from $source to $target ($sources, $missing)"
    names = ["source", "target", "missing"]
    assert substitute(text, "a b", names=names) == "from a to b ($sources, )"


def test_of_two_names_the_longer_is_meant() -> None:
    assert substitute("$a $ab", "1 2", names=["a", "ab"]) == "1 2"
    assert substitute("$a-b", "1 2", names=["a", "a-b"]) == "2"


def test_variables_are_put_in() -> None:
    variables = {"CLAUDE_SKILL_DIR": "/s", "CLAUDE_EFFORT": "high"}
    text = r"run ${CLAUDE_SKILL_DIR}/x ${CLAUDE_EFFORT} ${OTHER} \${CLAUDE_EFFORT} $CLAUDE_EFFORT"
    expected = "run /s/x high ${OTHER} ${CLAUDE_EFFORT} $CLAUDE_EFFORT"
    assert substitute(text, None, variables=variables) == expected


def test_without_arguments_only_variables_are_put_in() -> None:
    text = r"$ARGUMENTS $0 \$0 $name ${V}"
    assert substitute(text, None, names=["name"], variables={"V": "v"}) == text[:-4] + "v"


def test_arguments_nobody_took_are_added_at_the_end() -> None:
    assert substitute("Do it.", "a b") == "Do it.\n\nARGUMENTS: a b\n"
    assert substitute("Pay $5.", "a b") == "Pay $5.\n\nARGUMENTS: a b\n"
    assert substitute(r"Say \$0.", "a") == "Say $0.\n\nARGUMENTS: a\n"
    assert substitute("Do it.", "") == "Do it."


@pytest.mark.parametrize("text", ["$0", "$ARGUMENTS", "$ARGUMENTS[0]", "$n", "${V}"])
@pytest.mark.parametrize("value", ["$0", "$ARGUMENTS", "${V}", "$n", r"\$0", "!`id`", r"\1"])
def test_what_is_put_in_is_not_looked_at_again(text: str, value: str) -> None:
    quoted = f"'{value}'" if text != "$ARGUMENTS" else value
    assert substitute(text, quoted, names=["n"], variables={"V": value}).startswith(value)


@pytest.mark.parametrize(
    "text",
    [
        "!`git log $0`",
        "Now: !`echo ${V} $ARGUMENTS`",
        "```!\necho $0\n${V}\n```\n",
        "a\n```! sh\necho $0",
    ],
)
def test_commands_are_left_as_they_are(text: str) -> None:
    assert substitute(text, "; rm -rf /", variables={"V": "v"}).startswith(text)


def test_what_only_looks_like_a_command_is_filled() -> None:
    assert substitute("`$0` a!`$0` ```!\n$0", "x") == "`x` a!`x` ```!\nx"
    assert substitute("```!\n$0\n```\n$0", "x") == "```!\n$0\n```\nx"


def test_a_text_can_not_multiply_an_argument_without_bound() -> None:
    filled = substitute("$ARGUMENTS " * 10_000, "x" * 10_000)
    assert len(filled) < MAX_ADDED_CHARS + 200_000
    assert filled.endswith("$ARGUMENTS ")


def test_quotes_that_do_not_close_are_letters() -> None:
    assert split_arguments("it's a b") == ["it's", "a", "b"]
    assert split_arguments("a\\") == ["a\\"]
    assert split_arguments("") == []
    assert split_arguments("a#b #c") == ["a#b", "#c"]


@given(st.text(), st.text(), st.lists(st.text(max_size=4), max_size=3))
def test_nothing_raises(text: str, arguments: str, names: list[str]) -> None:
    substitute(text, arguments, names=names, variables={"V": text})


@given(st.text(alphabet="$\\AB01[]{}!`\n ARGUMENTS"), st.sampled_from(["$0", "$ARGUMENTS", "a b"]))
def test_a_text_without_dollars_stays(text: str, arguments: str) -> None:
    bare = text.replace("$", "")
    assert substitute(bare, arguments).startswith(bare)
    assert substitute(bare, None) == bare


@given(st.text(alphabet="$0aARGUMENTS {}V"))
def test_values_are_counted_once(value: str) -> None:
    """Each placeholder gives the value itself, for every value."""
    filled = substitute("<${V}|${V}>", None, variables={"V": value})
    assert filled == f"<{value}|{value}>"


@pytest.mark.parametrize("piece", ["$", "!`", "```!", "\n```!", "\\", "${", "$ARGUMENTS[", "!` "])
def test_a_hostile_text_takes_no_long_time(piece: str) -> None:
    substitute(piece * 100_000, "a b")
