from __future__ import annotations

from pathlib import Path

import pytest

from skillbelt.discovery.sources.bounds import Deadline, PullBudget, Refusal
from skillbelt.discovery.sources.failure import OutOfTime
from skillbelt.files.contain import open_folder
from tests.bounds import bounds


def test_a_deadline_passes() -> None:
    late = Deadline("http://a/x", 0)
    assert late.left() == 0
    with pytest.raises(OutOfTime, match="http://a/x: not done after 0 s") as raised:
        late.check()
    assert "no setting" in raised.value.remedy
    Deadline("http://a/x", 60).check()


def test_a_budget_counts_each_file_and_all_of_them(tmp_path: Path) -> None:
    bounds(max_extracted_file_bytes=10, max_extracted_bytes=15)
    budget = PullBudget(Deadline("x", 60))
    folder = open_folder(str(tmp_path))
    with budget.file(folder, "a") as write:
        write(b"12345")
        write(b"67890")
        with pytest.raises(Refusal, match="'a' has more than 10 bytes"):
            write(b"1")
    with budget.file(folder, "b") as write:
        write(b"12345")
        with pytest.raises(Refusal, match="more than 15 bytes in all"):
            write(b"6")
    assert (tmp_path / "a").read_bytes() == b"1234567890"
    assert (tmp_path / "b").read_bytes() == b"12345"


def test_a_budget_ends_with_its_time(tmp_path: Path) -> None:
    budget = PullBudget(Deadline("x", 0))
    with pytest.raises(OutOfTime), budget.file(open_folder(str(tmp_path)), "a") as write:
        write(b"1")
