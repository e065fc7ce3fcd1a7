from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillbelt.artifacts import read
from skillbelt.artifacts.conformance import KEY
from skillbelt.artifacts.memory import MemoryArtifacts
from skillbelt.errors import RunRefused
from skillbelt.running.outputs import (
    HINT,
    Collected,
    OutputFile,
    Wanted,
    collect,
    parse_output_files,
    parse_outputs,
    primary,
)
from tests.bounds import bounds
from tests.examples import examples
from tests.outputs import ALL, PNG, names, saving, sh

# The primary output


def test_the_primary_output_is_the_first_text(workspace: Path) -> None:
    """Case 58."""
    sh(workspace, "mkdir out/b; echo one > out/b/1.txt; echo two > out/c.txt; touch out/0.txt")
    (workspace / "out/1.png").write_bytes(PNG)
    (workspace / "out/2.txt").write_text(" \n")
    (workspace / "out/3.txt").write_bytes(b"\xff")
    (workspace / "work/0.txt").write_text("not an output")
    found = primary(str(workspace))
    expected = OutputFile(
        name="out/b/1.txt",
        ref="workspace://out/b/1.txt",
        content="one\n",
        mime_type="text/plain",
        size_bytes=4,
    )
    assert found == expected
    assert collect(str(workspace), ALL).primary == expected
    assert collect(str(workspace), Wanted(("out/**",), inline=True)).primary == expected
    assert collect(str(workspace), Wanted(("out/**",))).primary is None


def test_the_primary_output_is_small(workspace: Path) -> None:
    (workspace / "out/a.txt").write_text("x" * (32 * 2**10 + 1))
    assert primary(str(workspace)) is None
    assert collect(str(workspace), ALL).primary is None
    (workspace / "out/b.txt").write_text("x" * 32 * 2**10)
    found = primary(str(workspace))
    assert found is not None
    assert (found.name, len(found.content)) == ("out/b.txt", 32 * 2**10)


def test_the_primary_output_is_among_the_first_files(workspace: Path) -> None:
    for number in range(20):
        (workspace / "out" / f"{number:02}.png").write_bytes(PNG)
    (workspace / "out/99.txt").write_text("text")
    assert primary(str(workspace)) is None
    found = primary(str(workspace), bounds(max_primary_files=21))
    assert found is not None
    assert found.content == "text"


# Saving


def test_bytes_survive_exactly(workspace: Path) -> None:
    """Case 81."""
    data = bytes(range(256)) * 100
    (workspace / "out/a.bin").write_bytes(data)
    (workspace / "out/b.txt").write_bytes(b"text\r\n")
    store = MemoryArtifacts()
    wanted = Wanted(("out/*",), save=True, name_template="pref/")
    found = collect(str(workspace), wanted, save=saving(store), omit_content=True)
    assert found.saved == (("pref/out/a.bin", 0), ("pref/out/b.txt", 0))
    assert found.warnings == ()
    assert read(store, KEY, "pref/out/a.bin")[1] == data
    kept, text = read(store, KEY, "pref/out/b.txt")
    assert (kept.mime, text) == ("text/plain", b"text\r\n")
    assert collect(str(workspace), wanted, save=saving(store)).saved[0].version == 1


def test_without_a_store_the_files_are_still_given(workspace: Path) -> None:
    """Case 80."""
    sh(workspace, "echo hi > out/a.txt")
    found = collect(str(workspace), parse_output_files(["out/*"], save=True))
    assert [file.content for file in found.files] == ["hi\n"]
    assert found.warnings == ("the files were not saved: there is no artifact store", HINT)
    assert found.errors == ()


def test_nothing_is_saved_that_was_not_to_be(workspace: Path) -> None:
    sh(workspace, "echo hi > out/a.txt")
    store = MemoryArtifacts()
    assert collect(str(workspace), ALL, save=saving(store)).saved == ()
    assert store.latest(KEY) == []


def test_a_cut_file_is_an_error_and_not_an_artifact(workspace: Path) -> None:
    """Case 79."""
    sh(workspace, "printf 12345 > out/a; printf 1234 > out/b")
    store = MemoryArtifacts()
    wanted = Wanted(("out/*",), inline=True, save=True, max_file_bytes=4)
    found = collect(str(workspace), wanted, save=saving(store))
    assert found.errors == (
        "'out/a' was not saved: it has 5 bytes, and only 4 may be collected; ask for more with"
        " outputs.max_file_bytes, up to 67,108,864",
    )
    assert [file.truncated for file in found.files] == [True, False]
    assert found.saved == (("out/b", 0),)
    assert [one.name for one in store.latest(KEY)] == ["out/b"]


def test_a_name_the_store_refuses_is_an_error(workspace: Path) -> None:
    sh(workspace, "echo 1 > out/a; echo 1 > out/b")
    store = MemoryArtifacts()
    wanted = Wanted(("out/*",), save=True, name_template="x" * 1019)
    found = collect(str(workspace), wanted._replace(name_template="\n"), save=saving(store))
    assert len(found.errors) == 2
    assert "cannot name an artifact" in found.errors[0]
    assert len(found.files) == 2
    assert len(collect(str(workspace), wanted, save=saving(store)).saved) == 2


def test_parallel_collections_do_not_meet(workspace: Path) -> None:
    sh(workspace, "echo 1 > out/a; echo 2 > out/b")
    store, found = MemoryArtifacts(), list[Collected]()
    wanted = ALL._replace(save=True)
    threads = [
        threading.Thread(
            target=lambda: found.append(collect(str(workspace), wanted, save=saving(store)))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.saved[0].version for one in found) == list(range(8))
    assert {one.files for one in found} == {found[0].files}


# What is asked for


def test_both_spellings_are_read() -> None:
    snake = {
        "globs": ["out/*"], "inline": True, "save": True, "name_template": "p/",
        "max_files": 1, "max_file_bytes": 2, "max_total_bytes": 3,
    }  # fmt: skip
    go = {
        "Globs": ["out/*"], "Inline": True, "Save": True, "NameTemplate": "p/",
        "MaxFiles": 1, "MaxFileBytes": 2, "MaxTotalBytes": 3,
    }  # fmt: skip
    camel = {key[0].lower() + key[1:]: value for key, value in go.items()}
    expected = Wanted(
        globs=("out/*",),
        inline=True,
        save=True,
        name_template="p/",
        max_files=1,
        max_file_bytes=2,
        max_total_bytes=3,
    )
    assert parse_outputs(snake) == parse_outputs(go) == parse_outputs(camel) == expected


@pytest.mark.parametrize(
    "given", [{"max_files": 1, "MaxFiles": 2}, {"MaxFiles": 2, "max_files": 1}]
)
def test_snake_case_wins(given: dict[str, object]) -> None:
    assert parse_outputs(given).max_files == 1


def test_nothing_given_is_the_default() -> None:
    assert parse_outputs({}) == Wanted()
    assert parse_outputs({"globs": None, "max_files": None, "inline": None}) == Wanted()
    assert parse_outputs({"globs": [" out/* ", "", " "]}) == Wanted(("out/*",))
    assert parse_output_files([]) == Wanted((), inline=True)


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("globs", "out/*", "must be a list of patterns"),
        ("globs", [1], "must be a list of patterns"),
        ("globs", {"a": 1}, "must be a list of patterns"),
        ("globs", ["workspace://out/a.txt"], "is a URI"),
        ("globs", ["HTTP://x/*"], "is a URI"),
        ("globs", ["{a,b}" * 20], "more than"),
        ("globs", ["a" * 2000], "more than"),
        ("Inline", 1, "must be true or false"),
        ("save", "true", "must be true or false"),
        ("NameTemplate", 1, "must be text"),
        ("max_files", "1", "must be a whole number"),
        ("max_files", True, "must be a whole number"),
        ("MaxFileBytes", 1.5, "must be a whole number"),
        ("max_total_bytes", -1, "must be a whole number"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object, why: str) -> None:
    with pytest.raises(RunRefused, match=why) as refused:
        parse_outputs({field: value})
    snake = {"Inline": "inline", "NameTemplate": "name_template", "MaxFileBytes": "max_file_bytes"}
    assert str(refused.value).startswith(f"outputs.{snake.get(field, field)}")


def test_an_unknown_field_is_named_with_the_known_ones() -> None:
    with pytest.raises(RunRefused, match=r"no field 'max_fils'; it has: globs, inline"):
        parse_outputs({"max_fils": 1})


@pytest.mark.parametrize("given", [None, 1, "out/*", ["a", None], [b"a"]])
def test_output_files_must_be_a_list_of_text(given: object) -> None:
    with pytest.raises(RunRefused, match="output_files must be a list of patterns"):
        parse_output_files(given)


def test_outputs_must_be_an_object() -> None:
    with pytest.raises(RunRefused, match="outputs must be an object"):
        parse_outputs(["out/*"])  # type: ignore[arg-type]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
KEYS = (
    st.sampled_from(["globs", "Globs", "inline", "Save", "max_files", "NameTemplate"]) | st.text()
)


@settings(max_examples=examples(200))
@given(st.dictionaries(KEYS, JSON, max_size=4))
def test_whatever_is_asked_for_is_taken_or_refused(given: dict[str, object]) -> None:
    try:
        wanted = parse_outputs(given)
    except RunRefused as refused:
        assert str(refused).startswith("outputs")
    else:
        found = collect("/nowhere", wanted)
        assert found.files == ()


@settings(max_examples=examples(200))
@given(st.lists(st.text(max_size=30), max_size=4))
def test_whatever_pattern_is_asked_for_collects_or_says_why(globs: list[str]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "out").mkdir()
        (Path(folder) / "out" / "a").write_text("x")
        found = collect(folder, Wanted(tuple(globs)))
        assert names(found) in ([], ["out/a"])
        assert len(found.warnings) >= bool(globs)
