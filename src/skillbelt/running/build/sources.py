"""Find the source of a skill: declared in its frontmatter, or by the usual names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from skillbelt.disclosure.body import read_file, walk
from skillbelt.errors import PathEscape, RunRefused
from skillbelt.files.contain import check_relative
from skillbelt.format.skill import Skill
from skillbelt.running.build.protocol import Source
from skillbelt.running.build.registry import builders
from skillbelt.running.staging import MAX_STAGED_BYTES
from skillbelt.text import one_line

OUTPUT = "wasm/skill.wasm"
_STEMS = ("src/main", "src/index")
_KEY = "metadata.skillbelt.build"


class Declared(NamedTuple):
    """The build settings in a skill's frontmatter."""

    source: str = ""
    plugin: str = ""


def declared(skill: Skill) -> Declared:
    """Parse `metadata.skillbelt.build`: a path, or `source` and `plugin`; raises RunRefused."""
    value = skill.told("build")
    if value is None:
        return Declared()
    if isinstance(value, str):
        return Declared(value.strip())
    if isinstance(value, Mapping) and all(isinstance(one, str) for one in value.values()):
        unknown = set(value).difference(Declared._fields)
        if not unknown:
            return Declared(**{str(key): str(one) for key, one in value.items()})
    raise RunRefused(
        f"{skill.location}: {_KEY} is {one_line(str(value))[:80]!r}; it can be the path of the "
        "source, or a mapping with source and plugin"
    )


def source_of(skill: Skill) -> Source:
    """Read the source of the skill with all files; raises RunRefused when there is none."""
    paths = sorted(walk(skill))
    entry = _entry(skill, declared(skill).source, paths)
    left, files = MAX_STAGED_BYTES, {}
    for path in paths:
        if path == OUTPUT or path.startswith("."):
            continue
        files[path] = read_file(skill, path, left)
        left -= len(files[path])
    return Source(entry, files)


def _entry(skill: Skill, wanted: str, paths: list[str]) -> str:
    if wanted:
        try:
            path = check_relative(wanted, skill.dir)
        except PathEscape as escape:
            raise PathEscape(wanted[:200], skill.dir, "is outside the skill's folder") from escape
        if path not in paths:
            raise RunRefused(f"{skill.location}: {_KEY} names {one_line(wanted)!r}: no such file")
        return path
    endings = [ending for builder in builders().values() for ending in builder.endings]
    found = [f"{stem}{ending}" for stem in _STEMS for ending in endings]
    there = [path for path in found if path in paths]
    if len(there) == 1:
        return there[0]
    if there:
        raise RunRefused(
            f"skill {skill.name!r} has more than one source ({', '.join(there)}); "
            f"choose one with {_KEY}"
        )
    raise RunRefused(
        f"skill {skill.name!r} has no source to build: no src/main or src/index with an ending of "
        f"{', '.join(endings)}; set its path with {_KEY}"
    )
