"""Discovery by somebody who may not read everything, even where the tests run as root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests import warm

_NOBODY = 65534
_CHILD = f"""
import json, os, sys
from skillbelt import Catalog

def look():
    settings = dict(paths=sys.argv[2:], project_roots=False, user_roots=False, use_index=False)
    catalog = Catalog(sys.argv[1], **settings)
    return [s.name for s in catalog.discover()], [(d.code, d.path) for d in catalog.diagnostics]

look()  # imports what is needed, while it still may
if os.getuid() == 0:
    os.setgroups([])
    os.setgid({_NOBODY})
    os.setuid({_NOBODY})
json.dump(look(), sys.stdout)
"""


class Seen(NamedTuple):
    """The names of the skills, and (code, path) of each diagnostic."""

    names: list[str]
    said: list[tuple[str, str]]


@contextmanager
def open_folder() -> Iterator[Path]:
    """A scratch folder that everybody can reach; pytest's own are for their owner alone."""
    with TemporaryDirectory(prefix="skillbelt-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def discover(project: Path, *roots: Path) -> Seen:
    """What a catalogue of these roots gives to somebody without privileges."""
    arguments = [str(path) for path in (project, *roots)]
    child = warm.run(
        [sys.executable, "-c", _CHILD, *arguments],
        cwd="/",
        env={**os.environ, "HOME": "/"},  # that of whoever runs the tests can not be read
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=500,
    )
    assert child.returncode == 0, child.stderr.decode()
    names, said = json.loads(child.stdout)
    return Seen(names, [(code, path) for code, path in said])
