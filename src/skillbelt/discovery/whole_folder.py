"""Where all files of a skill are on this disk."""

from __future__ import annotations

from skillbelt.format.skill import Skill


def whole_folder(skill: Skill) -> tuple[str, str]:
    """Return the folder with the files of a skill, and the fence around it.

    Those of a skill that an MCP server lists are fetched; FileUnreadable if one cannot be.
    """
    if skill.origin.kind != "mcp":
        return skill.dir, skill.fence
    from skillbelt.discovery.listed_files import folder  # cost: 40 ms, only for MCP

    found = folder(skill)
    return found, found
