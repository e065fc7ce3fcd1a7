"""The facts that a person sees who is asked, for any request."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from skillbelt.permission.rules import Request
from skillbelt.running.question_facts import SECRET, Fact, covered, facts, shown

RUN = Request(
    "run",
    ("python3 scripts/a.py --all",),
    summary="run `python3 scripts/a.py --all` with the skill kit",
    agent="writer",
    session="app/ada/1",
    skill="kit",
    hash="sha256:abc",
    origin="https://skills.example/kit",
    trusted=False,
)


def carried(**metadata: object) -> list[Fact]:
    """The facts that come from the metadata."""
    told = facts(RUN._replace(metadata=metadata))
    return told[len(facts(RUN)) :]


def test_all_of_the_request_is_told() -> None:
    assert facts(RUN) == [
        ("what", "run `python3 scripts/a.py --all` with the skill kit"),
        ("skill", "kit"),
        ("from", "https://skills.example/kit (not trusted)"),
        ("content", "sha256:abc"),
        ("agent", "writer"),
        ("session", "app/ada/1"),
    ]


def test_a_command_that_the_summary_cuts_is_told_whole() -> None:
    long = f"echo {'x' * 900}; rm -rf out"
    assert ("run", long) in facts(RUN._replace(patterns=(long,), summary="run `echo xxx…`"))


def test_metadata_of_any_shape_is_told() -> None:
    packages = [{"name": "six", "version": "1.16", "hash": "sha256:1"}, "attrs==23.1"]
    assert carried(packages=packages, time_limit=30, network=True, nothing="", no=False) == [
        ("packages", "name=six, version=1.16, hash=sha256:1"),
        ("packages", "attrs==23.1"),
        ("time limit", "30"),
        ("network", "yes"),
    ]


def test_the_facts_of_a_call_are_told_one_by_one() -> None:
    call = {
        "command": ["echo", "a b", "it's"],
        "env": {"API_TOKEN": "sha256:abcdef", "MODE": "fast"},
        "stdin": {"bytes": 3, "sha256": "sha256:1"},
        "sandbox": "none",
    }
    assert carried(call=call) == [
        ("command", "echo 'a b' 'it'\"'\"'s'"),
        ("env", f"API_TOKEN={SECRET}"),
        ("env", "MODE=fast"),
        ("stdin", "bytes=3"),
        ("stdin", "sha256=sha256:1"),
        ("sandbox", "none: no isolation, it may do everything that you may do"),
    ]


def test_what_always_covers() -> None:
    assert covered(RUN) == ""
    asked = RUN._replace(always=("python3 a.py", "x" * 900))
    assert covered(asked).startswith("would cover run python3 a.py, xxx")
    assert covered(asked).endswith("x of kit in this project, until the skill changes")
    assert "characters ...]" in covered(asked, whole=False)
    assert "\n" not in covered(RUN._replace(always=("a\nb",)))


def test_a_host_s_own_mark_is_not_told() -> None:
    assert carried(mcp_call="17") == []


def test_bytes_are_told_by_their_length_hash_and_beginning() -> None:
    data = b"one\ntwo" + b"x" * 400
    [fact] = carried(stdin=data)
    assert fact.value.startswith(f"407 bytes, sha256 {hashlib.sha256(data).hexdigest()}, beginning")
    assert "one\\ntwo" in fact.value


def test_secret_variables_are_masked_and_the_others_are_told() -> None:
    told = facts(
        RUN._replace(
            patterns=("curl -H hunter2-secret",),
            summary="run it with hunter2-secret",
            metadata={"env": {"API_TOKEN": "hunter2-secret", "PIN_KEY": "1", "MODE": "fast"}},
        )
    )
    assert [fact.value for fact in told if fact.label == "env"] == [
        f"API_TOKEN={SECRET}",
        f"PIN_KEY={SECRET}",
        "MODE=fast",
    ]
    assert "hunter2" not in str(told)


def test_line_ends_and_blanks_are_told_as_they_are() -> None:
    [fact] = carried(cwd="a\n  b\tc")
    assert fact.value == "a\\n  b\\tc"


@given(st.text(), st.text())
def test_no_fact_opens_a_line_or_moves_the_cursor(label: str, text: str) -> None:
    for fact in facts(Request("run", (text,), metadata={label: text, "env": {label: text}})):
        assert "\n" not in fact.label + fact.value
        assert len((fact.label + fact.value).splitlines()) <= 1
        assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in "".join(fact))


def test_what_is_cut_is_counted_and_its_end_is_shown() -> None:
    many = [Fact("packages", f"p{number}") for number in range(20)]
    short, hidden = shown([Fact("run", "x" * 5_000 + "the end"), *many])
    assert hidden == 13
    assert short[0].value.endswith("the end")
    assert f"[... {5_007 - 300} characters ...]" in short[0].value
    assert short[-1] == ("packages", "(and 12 more)")


def test_what_is_short_is_whole() -> None:
    assert shown(facts(RUN)) == (facts(RUN), 0)
