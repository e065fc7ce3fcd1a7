from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillbelt.files.globs import MAX_ALTERNATIVES, MAX_GLOB_CHARS, MAX_GLOBS, Globs, alternatives
from tests.examples import examples


def matching(globs: list[str], path: str) -> set[int]:
    """The numbers of the patterns that match the path."""
    patterns = Globs(globs)
    state = patterns.start
    for name in path.split("/"):
        state = patterns.step(state, name)
    return patterns.accepted(state)


def matches(glob: str, path: str) -> bool:
    return matching([glob], path) == {0}


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("out/*.txt", "out/a.txt"),
        ("./out//*.txt", "out/a.txt"),
        ("out/**", "out/a.txt"),
        ("out/**", "out/a/b/c.txt"),
        ("out/**/*.txt", "out/a.txt"),
        ("out/**/**/*.txt", "out/a/b/c.txt"),
        ("**/a.txt", "a.txt"),
        ("**", "a/b"),
        ("a/**/b/**/c", "a/x/b/y/b/c"),
        ("out/?.txt", "out/é.txt"),
        ("out/[a-c]*", "out/b1"),
        ("out/[!a]", "out/b"),
        ("out/[^a]", "out/b"),
        ("out/[", "out/["),
        ("out/[*]", "out/*"),
        ("out/*", "out/a\nb"),
        ("out/.*", "out/.hidden"),
        ("out/.env", "out/.env"),
        ("out/*.{png,csv}", "out/a.csv"),
        ("{out,work}/{a,{b,c}}.txt", "work/c.txt"),
        ("out/{a}.txt", "out/{a}.txt"),
        ("out/a**b", "out/aXb"),
    ],
)
def test_it_matches(glob: str, path: str) -> None:
    assert matches(glob, path)


@pytest.mark.parametrize(
    ("glob", "path"),
    [
        ("out/*.txt", "out/a/b.txt"),
        ("out/*.txt", "out/a.txt/b"),
        ("*.txt", "out/a.txt"),
        ("out/a.txt", "out/A.txt"),
        ("out/*", "out/.hidden"),
        ("out/?x", "out/.x"),
        ("out/[.]x", "out/.x"),
        ("out/**", "out/.git/config"),
        ("**/c", "a/.b/c"),
        ("out/[^a]", "out/a"),
        ("out/[z-a]", "out/z"),
        ("out/*.{png,csv}", "out/a.txt"),
        ("", "a"),
        ("out", "out/a"),
        ("a/**/b", "a/c"),
        ("é", "e\u0301"),
    ],
)
def test_it_does_not_match(glob: str, path: str) -> None:
    assert not matches(glob, path)


def test_each_pattern_that_matches_is_told() -> None:
    assert matching(["out/*", "out/**", "work/*", "out/{a,a*}"], "out/a") == {0, 1, 3}


def test_a_folder_is_left_when_nothing_below_can_match() -> None:
    patterns = Globs(["out/*.txt", "work/**"])
    assert patterns.step(patterns.start, "skills") == ()
    out = patterns.step(patterns.start, "out")
    assert patterns.goes_on(out)
    assert not patterns.goes_on(patterns.step(out, "a.txt"))
    assert patterns.goes_on(patterns.step(patterns.step(patterns.start, "work"), "deep"))


@pytest.mark.parametrize("glob", ["../*", "out/../../x", "..", "{..,a}/x"])
def test_a_pattern_that_leads_out_is_refused(glob: str) -> None:
    with pytest.raises(ValueError, match="leads out"):
        Globs([glob])


@pytest.mark.parametrize(
    "globs",
    [
        ["{a,b}" * 11],
        ["{" + "," * MAX_ALTERNATIVES + "}"],
        ["a" * (MAX_GLOB_CHARS + 1)],
        ["a"] * (MAX_GLOBS + 1),
        ["{a,b}{a,b}{a,b}{a,b}{c,d}{e,f}"] * 50,
    ],
)
def test_too_many_patterns_are_refused(globs: list[str]) -> None:
    with pytest.raises(ValueError, match="more than"):
        Globs(globs)


def test_alternatives_come_in_order_and_once() -> None:
    assert alternatives("{b,a,b}{1,2}") == ["b1", "b2", "a1", "a2"]
    assert alternatives("{a,{b,c}}") == ["a", "b", "c"]
    assert alternatives("{,x}y") == ["y", "xy"]


def test_hostile_patterns_and_names_end_soon() -> None:
    """A hundred thousand of the worst names: the patterns are given up long before the last."""
    worst = ["*" + "?" * 120 + "b", "*a" * 100 + "b", "*[ab]" * 60 + "c", "**/a*b*/" * 100 + "x"]
    hostile = worst * 25
    patterns = Globs(hostile)
    state = patterns.start
    for _ in range(100_000):
        state = patterns.step(patterns.start, "a" * 255)
        if patterns.exhausted:
            break
    assert patterns.exhausted
    assert state == () or patterns.step(state, "a") == ()


def test_ordinary_patterns_are_never_exhausted() -> None:
    patterns = Globs(["out/**/*.txt", "work/*.{csv,json}", "out/report-[0-9]*.md"])
    out = patterns.step(patterns.start, "out")
    for number in range(100_000):
        patterns.step(out, f"a file with a rather long name {number}.txt")
    assert not patterns.exhausted


def reference(glob: str, path: str) -> bool:
    """The meaning of a pattern, by a slow and simple implementation."""

    @cache
    def names(at: int, below: int) -> bool:
        if at == len(parts):
            return below == len(path_parts)
        if below == len(path_parts):
            return parts[at] == "**" and names(at + 1, below)
        name = path_parts[below]
        if parts[at] == "**":
            return names(at + 1, below) or (not name.startswith(".") and names(at, below + 1))
        hidden = name.startswith(".") and not parts[at].startswith(".")
        return not hidden and chars(parts[at], name) and names(at + 1, below + 1)

    @cache
    def chars(part: str, name: str) -> bool:
        if not part:
            return not name
        if part[0] == "*":
            return chars(part[1:], name) or (name != "" and chars(part, name[1:]))
        return name != "" and part[0] in ("?", name[0]) and chars(part[1:], name[1:])

    parts = [part for part in glob.split("/") if part not in ("", ".")]
    path_parts = path.split("/")
    return names(0, 0)


PARTS = st.text("ab.*?", min_size=1, max_size=5).filter(lambda part: part != "..") | st.just("**")
GLOBS = st.lists(PARTS, min_size=1, max_size=5).map("/".join)
PATHS = st.lists(st.text("ab.", min_size=1, max_size=4), min_size=1, max_size=5).map("/".join)


@settings(max_examples=examples(500))
@given(GLOBS, PATHS)
def test_it_matches_what_the_reference_matches(glob: str, path: str) -> None:
    assert matches(glob, path) == reference(glob, path)


@settings(max_examples=examples(300))
@given(st.text(max_size=40), st.text(max_size=20))
def test_any_text_is_a_pattern_or_refused(glob: str, path: str) -> None:
    try:
        found = matching([glob], path)
    except ValueError as error:
        assert str(error)
    else:
        assert found <= {0}


@settings(max_examples=examples(200))
@given(st.lists(st.text("ab./-é ", min_size=1, max_size=6), min_size=1, max_size=3).map("/".join))
def test_plain_text_matches_itself_alone(path: str) -> None:
    names = [name for name in path.split("/") if name not in ("", ".")]
    if names and ".." not in names:
        assert matches(path, "/".join(names))
        assert not matches(path, "/".join([*names, "x"]))
