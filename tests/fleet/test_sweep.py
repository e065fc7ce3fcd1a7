from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from skillbelt.fleet.sweep import sweep_folders, take_folder

ACTOR = """
import signal, sys
from skillbelt.fleet.sweep import take_folder
print(take_folder(sys.argv[1], sys.argv[2]), flush=True)
signal.pause()
"""


def start_actor(nodes: Path, name: str) -> tuple[subprocess.Popen[str], Path]:
    """A process that holds the folder of that name, and has a workspace in it."""
    words = [sys.executable, "-c", ACTOR, str(nodes), name]
    actor = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert actor.stdout
    folder = Path(actor.stdout.readline().strip())
    (folder / "workspaces" / "one").mkdir(parents=True)
    return actor, folder


def test_the_folder_of_a_killed_actor_is_swept_and_that_of_a_living_one_stays(
    tmp_path: Path,
) -> None:
    (dead, left), (alive, used) = (start_actor(tmp_path, name) for name in ("one", "two"))
    with dead, alive:
        try:
            dead.send_signal(signal.SIGKILL)
            dead.wait()
            assert sweep_folders(str(tmp_path)) == ["one"]
            assert not left.exists()
            assert (used / "workspaces" / "one").is_dir()
        finally:
            alive.kill()
    mine = take_folder(str(tmp_path), "three")
    assert [one.name for one in tmp_path.iterdir() if one.is_dir()] == [Path(mine).name]


def test_there_is_nothing_to_sweep_on_a_new_machine(tmp_path: Path) -> None:
    assert sweep_folders(str(tmp_path / "nodes")) == []
