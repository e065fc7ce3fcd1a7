"""Short runs do not fill a disk one after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from skillbelt.errors import RunRefused
from skillbelt.running import quota
from skillbelt.running.call import Asker
from skillbelt.running.workbench import Workbench
from skillbelt.sandbox.process.usage import Space
from tests import needs
from tests.bench import KEY, Bench
from tests.tree import Tree

pytestmark = needs.linux
LIMITS: dict[str, Any] = {"max_workspace_bytes": 4 * 2**20, "max_workspace_files": 400}


@pytest.fixture
def echo(open_tree: Tree) -> Iterator[Bench]:
    bench = Bench(open_tree)
    yield bench
    bench.close()


def fill(echo: Bench, bench: Workbench, command: str) -> int:
    """Run until it is refused; how many runs there were."""
    for number in range(400):
        try:
            echo.run(command, bench=bench)
        except RunRefused as refusal:
            said = str(refusal)
            assert "max_workspace_" in said and "sessions delete" in said and "raise" in said
            return number
    raise AssertionError("it is never refused")


def test_short_runs_are_refused_when_the_workspace_is_full(echo: Bench) -> None:
    bench = echo.make(**LIMITS)
    fill(echo, bench, "head -c 900000 /dev/urandom > $(mktemp -p $WORK_DIR)")
    with pytest.raises(RunRefused, match="max_workspace_bytes"):
        echo.run("true", bench=bench)
    with bench.workspace(KEY) as workspace:
        taken = sum(one.stat().st_size for one in os.scandir(f"{workspace.path}/work"))
    assert taken < 3 * LIMITS["max_workspace_bytes"]


@pytest.mark.long
def test_many_files_are_too(echo: Bench) -> None:
    bench = echo.make(**LIMITS)
    fill(echo, bench, "for n in 1 2 3 4 5 6 7 8 9; do mktemp -p $WORK_DIR; done > /dev/null")


def test_what_the_disk_does_not_show_is_found_after_some_runs(
    echo: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other processes may free as much space as a run takes."""
    monkeypatch.setattr(quota, "free_space", lambda _path: Space(0, 0))
    monkeypatch.setattr(quota, "_SHARE", 4)
    bench = echo.make(**LIMITS)
    echo.run("head -c 9000000 /dev/urandom > $WORK_DIR/x", bench=bench)
    assert fill(echo, bench, "true") == 3


def test_there_is_room_again_when_it_is_freed_or_the_limit_raised(echo: Bench) -> None:
    bench = echo.make(**LIMITS)
    echo.run("head -c 9000000 /dev/urandom > $WORK_DIR/x", bench=bench)
    with pytest.raises(RunRefused, match=r"full.*max_workspace_bytes"):
        echo.run("true", bench=bench)
    wider = echo.make()
    assert echo.run("true", bench=wider).exit_code == 0
    assert bench.forget(KEY)
    assert echo.run("true", bench=bench).exit_code == 0


def test_a_run_of_no_conversation_is_not_concerned(echo: Bench) -> None:
    bench = echo.make(**LIMITS)
    once = Asker(KEY, "user", "coder", once="whole")
    for _ in range(2):
        # It goes on until it is measured: the disk may show nothing where others free as much.
        result = echo.run("head -c 9000000 /dev/urandom > $WORK_DIR/x; sleep 60", once, bench)
        assert result.limits_hit == ("max_workspace_bytes",)


def test_notes_that_are_damaged_are_passed_over(echo: Bench) -> None:
    bench = echo.make(**LIMITS)
    with bench.workspace(KEY) as workspace, open(f"{workspace.path}/written", "wb") as file:
        file.write(b"x" * 7)
    assert echo.run("true", bench=bench).exit_code == 0
