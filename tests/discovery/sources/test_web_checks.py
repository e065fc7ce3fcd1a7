from __future__ import annotations

import io
from pathlib import Path

import pytest

from skillbelt.discovery.sources.archive import unpack_into
from skillbelt.discovery.sources.bounds import Deadline, PullBudget, Refusal
from skillbelt.discovery.sources.failure import SourceFailure, too_large
from skillbelt.discovery.sources.http import HttpResponse
from skillbelt.discovery.sources.web import check_encoding, check_text
from skillbelt.errors import ArchiveRefused
from tests.discovery.sources.archives import tree_of, zipped

ANSWER = HttpResponse(
    url="http://a/x",
    unchanged=False,
    etag="",
    modified="",
    content_type="text/markdown",
    encoding="",
    sha256="00",
)


def test_a_page_is_no_skill() -> None:
    check_text("http://a/x", ANSWER)
    with pytest.raises(SourceFailure, match="HTML") as caught:
        check_text("http://a/x", ANSWER._replace(content_type="text/html"))
    assert "raw" in caught.value.remedy


def test_bytes_encoded_on_the_way_are_not_the_files_own() -> None:
    check_encoding("http://a/x", ANSWER)
    for check in (check_text, check_encoding):
        with pytest.raises(SourceFailure, match="gzip") as caught:
            check("http://a/x", ANSWER._replace(encoding="gzip"))
        assert caught.value.code == "remote-encoding"


def test_a_broken_bound_is_a_failure() -> None:
    failure = too_large("http://a/x", Refusal("more than 3 bytes"))
    assert (failure.code, failure.reason) == ("remote-too-large", "more than 3 bytes")


def test_an_archive_is_unpacked_below_the_folder(tmp_path: Path) -> None:
    budget = PullBudget(Deadline("x", 20))
    data = io.BytesIO(zipped({"a/SKILL.md": b"1"}))
    unpack_into(str(tmp_path), data, "http://a/x.zip", budget)
    assert tree_of(tmp_path) == {"a/SKILL.md": b"1"}
    with pytest.raises(ArchiveRefused, match=r"http://a/x\.zip"):
        unpack_into(str(tmp_path), io.BytesIO(b""), "http://a/x.zip", budget)
