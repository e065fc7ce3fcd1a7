"""The documentation as a site, built by the real builder."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def build_site(folder: Path) -> Path:
    """Return the folder of the built site; a broken link, anchor or warning fails the build."""
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "zensical.toml", folder)
    done = subprocess.run(
        [str(Path(sys.executable).with_name("zensical")), "build", "--strict"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build" / "site"


def built(site: Path, page: Path) -> Path:
    """Return the file that the builder makes of a page."""
    place = page.relative_to(ROOT / "docs").with_suffix("")
    return site / ("" if place.name == "index" else place) / "index.html"
