from __future__ import annotations

import pytest

from skillbelt import (
    ArchiveRefused,
    ConfigError,
    FileTooLarge,
    FileTypeRefused,
    FileUnreadable,
    InvalidFrontmatter,
    LoadError,
    MissingExtra,
    NotFound,
    PathEscape,
    SectionNotFound,
    SkillbeltError,
    SkillNotFound,
    SourceError,
    UsageError,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SkillbeltError("x"), 1),
        (ConfigError("x"), 2),
        (UsageError("x"), 2),
        (MissingExtra("watch", "watching"), 2),
        (NotFound("no session", "see the list"), 1),
        (NotFound("no session", "see the list", exit_code=3), 3),
        (SkillNotFound("x", ()), 3),
        (PathEscape("../x", "/skill"), 4),
        (SourceError("https://host", "down"), 1),
        (LoadError("a.md", "can not be given"), 1),
        (InvalidFrontmatter("SKILL.md", "is not text"), 1),
        (FileTooLarge("a.md", "has too many bytes"), 1),
        (SectionNotFound("a.md", "has no such heading"), 1),
        (FileTypeRefused("a.bin", "is binary"), 1),
        (FileUnreadable("a.md", "is not there"), 1),
        (ArchiveRefused("https://host/a.zip", "too large"), 1),
    ],
)
def test_each_error_has_its_exit_code_and_one_root(error: SkillbeltError, code: int) -> None:
    assert isinstance(error, SkillbeltError)
    assert error.exit_code == code


def test_a_missing_extra_says_what_to_install() -> None:
    error = MissingExtra("watch", "watching folders")
    assert isinstance(error, ConfigError)
    assert error.extra == "watch"
    assert str(error) == "watching folders needs the 'watch' extra: pip install 'skillbelt[watch]'"


def test_capitals_do_not_hide_the_closest_name() -> None:
    assert SkillNotFound("A-ALL", ["a-all", "b"]).closest == ("a-all",)


def test_not_found_names_the_closest() -> None:
    error = SkillNotFound("csv-reprot", ["csv-report", "pdf", "csv-reports"])
    assert error.name == "csv-reprot"
    assert error.closest == ("csv-report", "csv-reports")
    assert str(error) == "no skill named 'csv-reprot'; closest: csv-report, csv-reports"


def test_not_found_without_anything_close_says_where_to_look() -> None:
    error = SkillNotFound("zzz", ["pdf"])
    assert error.closest == ()
    assert "skillbelt list --all" in str(error)


def test_an_escape_names_path_folder_and_reason() -> None:
    error = PathEscape("../x\n", "/skill", "is absolute")
    assert (error.path, error.root) == ("../x\n", "/skill")
    assert str(error) == "'../x\\n' refused: is absolute (/skill)"


def test_a_refused_archive_is_a_source_error() -> None:
    error = ArchiveRefused("https://host/a.zip", "has a link")
    assert isinstance(error, SourceError)
    assert (error.source, error.reason) == ("https://host/a.zip", "has a link")
    assert str(error) == "https://host/a.zip: has a link"
