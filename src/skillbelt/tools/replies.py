"""What a model is given of a skill: its body, its documents, and the block they come in."""

from __future__ import annotations

import os

from skillbelt.disclosure.body import Loaded, load_resource, load_skill_body, place_of
from skillbelt.disclosure.overflow import Storage
from skillbelt.format.skill import Skill
from skillbelt.settings import Settings
from skillbelt.text import one_line, xml
from skillbelt.tools.schema import Access

STORED = "stored:"


def content(skill: Skill, text: str, files: list[str]) -> str:
    """The block a skill's instructions come in."""
    # A body that closes the block would speak as the host from there on.
    safe = text.strip().replace("</skill_content", "<\\/skill_content")
    return "\n".join(
        [
            f'<skill_content name="{xml(skill.name)}">',
            f"# Skill: {skill.name}",
            "",
            safe,
            "",
            f"Base directory for this skill: {_path(place_of(skill))}",
            "Relative paths in this skill (e.g., scripts/, reference/) are relative to this base "
            "directory.",
            "Note: file list is sampled.",
            "",
            "<skill_files>",
            *(f"<file>{xml(path)}</file>" for path in files),
            "</skill_files>",
            "</skill_content>",
        ]
    )


def _path(path: str) -> str:
    """A path to the letter, unless it holds what a path should not."""
    return path if path.isprintable() else one_line(path)


def already(skill: Skill) -> str:
    """The answer to who asks again for a text that it has before it."""
    return f"Skill {skill.name} is loaded already: its text is in an earlier result, unchanged."


def body(skill: Skill, access: Access, arguments: str | None = None) -> Loaded:
    """The body as a model gets it, and its report."""
    settings = access.settings
    loaded = load_skill_body(
        skill,
        settings.limits,
        overflow=settings.body_overflow,
        storage=readable(access),
        arguments=arguments,
        variables=variables_of(
            skill, settings, access.session.key.session if access.session else ""
        ),
    )
    return loaded._replace(text=presentable(loaded.text, access))


def readable(access: Access) -> Storage | None:
    """Where to store what is cut: nowhere, if the model has no tool to read it with."""
    return access.storage if "read_file" in access.names else None


def document(skill: Skill, path: str, access: Access) -> str:
    """A whole document, as far as the limit allows."""
    limits = access.settings.limits
    loaded = load_resource(skill, path, None, limits, full=True, storage=readable(access))
    return presentable(loaded.text, access)


def report(loaded: Loaded) -> dict[str, object]:
    """What a program may want to know of what was loaded."""
    facts: dict[str, object] = loaded.report._asdict()
    reference = loaded.report.storage_ref
    facts["storage_ref"] = STORED + os.path.basename(reference) if reference else ""
    return facts


def presentable(text: str, access: Access) -> str:
    """The text without the folder that stored text lies in: a model asks for it by name."""
    folder = os.path.join(access.storage.folder, "")
    return text.replace(folder, STORED).replace(one_line(folder), STORED)


def variables_of(skill: Skill, settings: Settings, session: str = "") -> dict[str, str]:
    """What `${NAME}` in a skill's text stands for."""
    values = {
        "CLAUDE_SKILL_DIR": place_of(skill),
        "CLAUDE_PROJECT_DIR": settings.project,
        "CLAUDE_SESSION_ID": session,
    }
    return {name: value for name, value in values.items() if value}
