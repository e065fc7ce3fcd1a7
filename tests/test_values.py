from __future__ import annotations

import pytest

from skillbelt import Diagnostic, FileEntry, Frontmatter, Limits, Manifest, Origin
from skillbelt.values import OriginKind


def test_a_diagnostic_prints_where_what_and_how_to_mend_it() -> None:
    found = Diagnostic(
        code="no-name",
        severity="error",
        path="/x/SKILL.md",
        line=3,
        message="has no name",
        remedy="add one",
    )
    assert str(found) == "/x/SKILL.md:3: error no-name: has no name (add one)"


def test_a_diagnostic_without_line_and_remedy_prints_neither() -> None:
    assert (
        str(Diagnostic(code="c", severity="info", path="/x", line=None, message="m"))
        == "/x: info c: m"
    )


@pytest.mark.parametrize(
    ("kind", "remote"),
    [
        ("local", False),
        ("builtin", False),
        ("archive", True),
        ("index", True),
        ("well-known", True),
        ("url", True),
        ("mcp", True),
    ],
)
def test_an_origin_knows_whether_it_came_over_a_network(kind: OriginKind, remote: bool) -> None:
    assert Origin(kind).remote is remote


def test_an_origin_prints_its_url() -> None:
    assert str(Origin()) == "local"
    assert str(Origin("archive", "https://host/a.zip")) == "archive:https://host/a.zip"


@pytest.mark.parametrize(
    "value",
    [
        Diagnostic(code="c", severity="info", path="/x", line=None, message="m"),
        FileEntry("SKILL.md", 1, "00", "text/markdown"),
        Frontmatter(),
        Limits(),
        Manifest((), ""),
        Origin(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_frozen_and_compared_by_content(value: tuple[object, ...]) -> None:
    with pytest.raises(AttributeError):
        setattr(value, type(value)._fields[0], "other")  # type: ignore[attr-defined]
    assert type(value)._make(value) == value  # type: ignore[attr-defined]


def test_shared_defaults_can_not_be_changed() -> None:
    for default in (Frontmatter().metadata, Frontmatter().hooks, Frontmatter().extra):
        with pytest.raises(TypeError):
            default["x"] = 1  # type: ignore[index]


def test_every_limit_has_its_unit_in_its_name_and_is_positive() -> None:
    units = {"bytes", "chars", "depth", "aliases", "directories", "entries", "seconds", "files",
             "connections",
             "skills", "redirects", "documents", "references",
             "tokens", "lines", "share", "calls", "sessions",
             "processes", "runs", "words", "results", "scripts",
             "steps", "repeats", "retries", "blocks", "messages", "events",
             "fuel", "elements", "instances", "workers", "containers"}  # fmt: skip
    for name, value in Limits()._asdict().items():
        assert name.rpartition("_")[2] in units
        assert value > 0
