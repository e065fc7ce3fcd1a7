"""A workspace as a run leaves it, for the tests of what is collected."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from skillbelt.artifacts import ArtifactStore, SessionArtifacts
from skillbelt.artifacts.conformance import KEY
from skillbelt.running.outputs import Collected, Save, Wanted

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff\xfe"
ALL = Wanted(("out/**",), inline=True)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace as a run finds it."""
    for name in ("out", "work", "skills", "runs/1", "private"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "metadata.json").write_text("{}")
    return tmp_path


def sh(workspace: Path, command: str) -> int:
    """Run a command in the workspace; its exit code."""
    return subprocess.run(["sh", "-c", command], cwd=workspace, timeout=500, check=False).returncode


def names(found: Collected) -> list[str]:
    return [file.name for file in found.files]


def saving(store: ArtifactStore) -> Save:
    return SessionArtifacts(store, KEY).save
