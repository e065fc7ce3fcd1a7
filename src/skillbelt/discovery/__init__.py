"""Find skills: clients' folders, remote sources, trust, the index and the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skillbelt.format.skill import FILES_BY_ORIGIN, Skill

if TYPE_CHECKING:
    from skillbelt.files.manifest import SkillFiles


def _list_files(skill: Skill) -> SkillFiles:
    from skillbelt.discovery.listed_files import ListedFiles  # cost: 40 ms, only for MCP

    return ListedFiles(skill)


FILES_BY_ORIGIN["mcp"] = _list_files
