"""Trees of generated skills on disk, kept between runs.

full    every skill with its scripts, references and assets (about 4.5 files a skill)
bare    the same skills, SKILL.md only
strict  like full, but every file keeps to the letter of the specification; for readers that
        stop at the first file that does not
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import zlib
from typing import Literal, get_args

from benchmarks import documents

Kind = Literal["full", "bare", "strict"]
KINDS: tuple[Kind, ...] = get_args(Kind)

# A file changed within the clock's last tick can not be told from an unchanged one, so caches
# distrust young files. A tree that is measured must be older than that.
SETTLE_SECONDS = 3.0


def cache_folder() -> str:
    """Return the folder where trees and the environments of peers are kept between runs."""
    folder = os.environ.get("BENCH_CACHE") or os.path.join(tempfile.gettempdir(), "skillbelt-bench")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return folder


def ensure(kind: Kind, count: int, cache: str | None = None) -> str:
    """The root of the tree of `count` skills, written now unless an earlier run left it."""
    folder = os.path.join(cache or cache_folder(), "trees", f"{kind}-{count}-{_fingerprint():08x}")
    root = os.path.join(folder, "skills")
    if os.path.exists(os.path.join(folder, "complete")):
        return root
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    write(root, count, kind)
    with open(os.path.join(folder, "complete"), "w", encoding="utf-8"):
        time.sleep(SETTLE_SECONDS)
    return root


def _fingerprint() -> int:
    """Changes with the generator, so that no tree of an older one is measured."""
    with open(documents.__file__, "rb") as source:
        return zlib.crc32(source.read())


def write(root: str, count: int, kind: Kind) -> int:
    """Write the tree below `root`; returns how many files were written."""
    os.mkdir(root)
    return sum(_write_skill(root, number, kind) for number in range(count))


def _write_skill(root: str, number: int, kind: Kind) -> int:
    skill = documents.document(number, strict=kind == "strict")
    folder = f"{root}/{skill.name}"
    os.mkdir(folder)
    _write_file(f"{folder}/SKILL.md", skill.data)
    others = [] if kind == "bare" else documents.bundled(number)
    made: set[str] = set()
    for path, data in others:
        parent = f"{folder}/{path.rpartition('/')[0]}"
        if parent not in made:
            os.makedirs(parent, exist_ok=True)
            made.add(parent)
        _write_file(f"{folder}/{path}", data)
    return 1 + len(others)


def _write_file(path: str, data: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(handle, data)
    finally:
        os.close(handle)
