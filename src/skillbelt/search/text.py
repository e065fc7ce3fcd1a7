"""What of a skill is searched: its text, its files' names, what its scripts say of themselves."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice

from skillbelt.check.folder import SKIPPED_FOLDERS, Unusable, read
from skillbelt.errors import SkillbeltError
from skillbelt.files.contain import FOLLOW_FILE, READ_FOLDER, open_beneath, open_dir
from skillbelt.format.frontmatter import MAX_CHECKED_BYTES
from skillbelt.format.skill import Skill
from skillbelt.search.document import Parts
from skillbelt.values import SKILL_FILE, Limits

# File names of one skill that are indexed; more would let one skill match everything.
MAX_INDEXED_FILES = 200
# Scripts of one skill whose first comment is indexed; each costs one open file.
MAX_INDEXED_SCRIPTS = 16

_SCRIPT_BYTES = 2048
_SCRIPTS = (".py", ".sh", ".bash", ".js", ".mjs", ".ts", ".rb", ".pl", ".ps1")
_DOCSTRING = re.compile(r'^\s*(?:#[^\n]*\n\s*)*[rRuU]?("""|\'\'\')(.*?)(?:\1|\Z)', re.DOTALL)
_COMMENT = re.compile(r"\A(?:#![^\n]*\n)?((?:[ \t]*(?:#|//|\*|/\*)[^\n]*\n|[ \t]*\n)+)")


def text_of(skill: Skill, limits: Limits) -> str:
    """The whole SKILL.md, as far as the limit goes; empty when it can not be read."""
    if not os.path.isabs(skill.location):
        return skill.source
    try:
        content = read(skill.location, MAX_CHECKED_BYTES, skill.fence)
        return content.data.decode("utf-8", "replace")
    except Unusable:
        return ""


def parts_of(skill: Skill, limits: Limits) -> Parts:
    """The skill's texts by what they are."""
    text = text_of(skill, limits)
    head, body = split(text, skill.body_offset)
    name = skill.name if skill.title == skill.name else f"{skill.name} {skill.title}"
    about = f"{skill.description}\n{skill.when_to_use}"
    return Parts(
        name=name, description=about, head=head, body=body, files="\n".join(_files(skill, limits))
    )


def split(text: str, offset: int) -> tuple[str, str]:
    """The frontmatter and what comes after it; the offset counts bytes."""
    if not offset:
        return "", text
    if not text.isascii():
        data = text.encode("utf-8", "replace")
        return data[:offset].decode("utf-8", "replace"), data[offset:].decode("utf-8", "replace")
    return text[:offset], text[offset:]


def _files(skill: Skill, limits: Limits) -> Iterator[str]:
    """The names of the skill's files, and what its scripts begin with."""
    scripts: list[str] = []
    most = MAX_INDEXED_FILES
    try:
        folder = open_dir(skill.dir, skill.fence)
    except (OSError, SkillbeltError):
        return
    try:
        for path in islice(_below(folder, most), most):
            yield path.rpartition(".")[0] or path
            if path.endswith(_SCRIPTS) and len(scripts) < MAX_INDEXED_SCRIPTS:
                scripts.append(path)
        for path in scripts:
            yield _about(_beginning(folder, path))
    finally:
        os.close(folder)


def _below(folder: int, most: int, inside: str = "") -> Iterator[str]:
    """The files of a folder and of the folders in it, by relative path; links are left out."""
    try:
        handle = open_beneath(folder, inside or ".", READ_FOLDER)
    except (OSError, SkillbeltError):
        return
    try:
        with os.scandir(handle) as found:
            entries = sorted(
                (entry.name, entry.is_dir(follow_symlinks=False))
                for entry in islice(found, most)
                if not entry.is_symlink()
            )
    except OSError:
        return
    finally:
        os.close(handle)
    for name, is_folder in entries:
        path = f"{inside}/{name}" if inside else name
        if not is_folder:
            if name.upper() != SKILL_FILE.upper():
                yield path
        elif not inside and name not in SKIPPED_FOLDERS:
            yield from _below(folder, most, path)


def _beginning(folder: int, path: str) -> str:
    try:
        handle = open_beneath(folder, path, FOLLOW_FILE)
        try:
            return os.read(handle, _SCRIPT_BYTES).decode("utf-8", "replace")
        finally:
            os.close(handle)
    except (OSError, SkillbeltError):
        return ""


def _about(text: str) -> str:
    found = _DOCSTRING.match(text)
    if found:
        return found[2]
    comment = _COMMENT.match(text)
    return comment[1] if comment else ""
