"""Where skills live: clients' folders, remote sources, trust, the index and the catalogue."""

from skillbelt.files.manifest import SkillFiles
from skillbelt.format.skill import FILES_BY_ORIGIN, Skill


def _list_files(skill: Skill) -> SkillFiles:
    from skillbelt.discovery.listed_files import ListedFiles  # cost: the client of MCP servers

    return ListedFiles(skill)


FILES_BY_ORIGIN["mcp"] = _list_files
