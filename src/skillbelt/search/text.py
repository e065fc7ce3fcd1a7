"""The searched text of a skill: its SKILL.md, file names, and descriptions in its scripts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from skillbelt.check.folder import UnusableFile, read
from skillbelt.errors import SkillbeltError
from skillbelt.files.manifest import SkillFiles
from skillbelt.files.tree import is_skill_file
from skillbelt.format.frontmatter import MAX_CHECKED_BYTES
from skillbelt.format.skill import Skill
from skillbelt.search.document import Parts

# File names of one skill that are indexed; more would let one skill match everything.
MAX_INDEXED_FILES = 200
# Scripts of one skill whose first comment is indexed; each costs one open file.
MAX_INDEXED_SCRIPTS = 16

_SCRIPT_BYTES = 2048
_SCRIPTS = (".py", ".sh", ".bash", ".js", ".mjs", ".ts", ".rb", ".pl", ".ps1")
_DOCSTRING = re.compile(r'^\s*(?:#[^\n]*\n\s*)*[rRuU]?("""|\'\'\')(.*?)(?:\1|\Z)', re.DOTALL)
_COMMENT = re.compile(r"\A(?:#![^\n]*\n)?((?:[ \t]*(?:#|//|\*|/\*)[^\n]*\n|[ \t]*\n)+)")


def text_of(skill: Skill) -> str:
    """Return the SKILL.md up to the limit; "" when it cannot be read."""
    if not os.path.isabs(skill.location):
        return skill.source
    try:
        content = read(skill.location, MAX_CHECKED_BYTES, skill.fence)
        return content.data.decode("utf-8", "replace")
    except UnusableFile:
        return ""


def parts_of(skill: Skill) -> Parts:
    """Return the skill's texts by part."""
    text = text_of(skill)
    head, body = split(text, skill.body_offset)
    name = skill.name if skill.title == skill.name else f"{skill.name} {skill.title}"
    about = f"{skill.description}\n{skill.when_to_use}"
    return Parts(name=name, description=about, head=head, body=body, files="\n".join(_files(skill)))


def split(text: str, offset: int) -> tuple[str, str]:
    """Split the text into the frontmatter and the body; the offset counts bytes."""
    if not offset:
        return "", text
    if not text.isascii():
        data = text.encode("utf-8", "replace")
        return data[:offset].decode("utf-8", "replace"), data[offset:].decode("utf-8", "replace")
    return text[:offset], text[offset:]


def _files(skill: Skill) -> Iterator[str]:
    """Yield the names of the skill's files, and how its scripts describe themselves."""
    files = skill.files
    paths = [
        entry.path
        for entry in files.entries()
        if entry.kind == "file" and not is_skill_file(os.path.basename(entry.path))
    ][:MAX_INDEXED_FILES]
    for path in paths:
        yield path.rpartition(".")[0] or path
    if skill.origin.kind != "mcp":  # a server's files are fetched only when they are used
        scripts = [path for path in paths if path.endswith(_SCRIPTS)]
        for path in scripts[:MAX_INDEXED_SCRIPTS]:
            yield _describe(_read_start(files, path))


def _read_start(files: SkillFiles, path: str) -> str:
    try:
        with files.open(path) as file:
            return file.read(_SCRIPT_BYTES).decode("utf-8", "replace")
    except (OSError, SkillbeltError):
        return ""  # its name is indexed all the same


def _describe(text: str) -> str:
    found = _DOCSTRING.match(text)
    if found:
        return found[2]
    comment = _COMMENT.match(text)
    return comment[1] if comment else ""
