from __future__ import annotations

import pytest

from skillbelt.discovery.sources.failure import OutOfTime, SourceFailure, diagnose, redact
from skillbelt.errors import ArchiveRefused


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:secret@host:8443/a?b#c", "https://host:8443/a?b#c"),
        ("https://host/a@b", "https://host/a@b"),
        ("http://me:secret@[::1", "[::1"),
        ("relative/path", "relative/path"),
    ],
)
def test_no_password_is_shown(url: str, shown: str) -> None:
    assert redact(url) == shown
    failure = SourceFailure(url, "broken", code="x")
    assert "secret" not in str(failure)
    assert "secret" not in str(diagnose(failure, url, copy=True))


def test_a_failure_elsewhere_names_the_place() -> None:
    failure = SourceFailure("http://b/y", "broken", code="some-code", remedy="mend it")
    found = diagnose(failure, "http://a/x", copy=False)
    assert (found.code, found.severity, found.path) == ("some-code", "error", "http://a/x")
    assert (found.message, found.remedy) == ("http://b/y: broken", "mend it")
    assert diagnose(failure, "http://b/y", copy=False).message == "broken"


def test_a_copy_in_use_makes_it_a_warning() -> None:
    found = diagnose(OutOfTime("http://a", "late"), "http://a", copy=True)
    assert (found.code, found.severity) == ("remote-timeout", "warning")
    assert found.message == "late; the last good copy is in use"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ArchiveRefused("a.zip", "is a link"), "archive-refused"),
        (PermissionError(13, "Permission denied"), "cache-unusable"),
        (RuntimeError("odd"), "remote-failed"),
    ],
)
def test_every_error_has_a_code_and_a_remedy(error: Exception, code: str) -> None:
    found = diagnose(error, "a.zip", copy=False)
    assert found.code == code
    assert found.remedy and found.message


def test_hostile_text_is_made_safe_and_short() -> None:
    found = diagnose(ArchiveRefused("a", "\x1b[2J\u202e" + "x" * 9999), "http://a\x1b", copy=False)
    assert "\x1b" not in str(found) and "\u202e" not in str(found)
    assert len(found.message) < 500
