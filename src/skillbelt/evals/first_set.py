"""Write a first set of cases for a skill, from its description, its neighbours and its scripts.

They are drafts: what people write is different from what a description says. Each says so.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from skillbelt.errors import ConfigError
from skillbelt.files.contain import NEW_FILE, READ_FOLDER
from skillbelt.format.skill import Skill
from skillbelt.running.trial.scripts import scripts_of
from skillbelt.search.protocol import Result
from skillbelt.text import one_line, shell_word, shorten

EVAL_FOLDER, EVAL_FILE = "evals", "evals.json"
_MOST_POSITIVES = 8
_MOST_NEAR = 6
_MOST_SCRIPTS = 50
_REQUEST_CHARS = 200
_SENTENCE = re.compile(r"(?<=[.!?。！？;])\s+|\n+")
_LEAD = re.compile(
    r"(?i)^(?:also |always )?(?:use|trigger|invoke|activate|apply|load)(?: this| the)?(?: skill)?"
    r"(?: also)? (?:when(?:ever)?|for|if|to|as soon as)\s+"
)
_WHO = re.compile(
    r"(?i)^(?:the )?(?:user|users|someone|anyone|people|you)\s+(?:wants?|needs?|asks?|mentions?"
    r"|says?|requests?|is asking|are asking)(?:\s+(?:you|for help|about|for|to))*\s+"
)
_TALK = (
    "Thank you, that is all for now.",
    "What is the capital of Portugal?",
    "Tell me a short story about a lighthouse.",
    "Which of the two options would you choose, and why?",
)


def first_set(skill: Skill, neighbours: Iterable[Result]) -> dict[str, object]:
    """Return the document of a first set."""
    entries: list[dict[str, object]] = []
    for text in list(dict.fromkeys(_requests(skill)))[:_MOST_POSITIVES]:
        entries.append({"prompt": text, "should_trigger": True, "expected_skill": skill.name})
    near = [one.skill for one in neighbours if one.skill.name != skill.name][:_MOST_NEAR]
    for other in near:
        text = next(iter(_requests(other)), "")
        if text:
            entries.append({"prompt": text, "should_trigger": False, "expected_skill": other.name})
    for text in _TALK:
        entries.append({"prompt": text, "should_trigger": False, "expected_skill": None})
    numbered = [{"id": number, **one, "draft": True} for number, one in enumerate(entries, 1)]
    return {
        "skill_name": skill.name,
        "evals": numbered,
        "scripts": list(_script_cases(skill)),
    }


def _requests(skill: Skill) -> Iterator[str]:
    """Yield requests that the description names: after `use when`, else its own sentences."""
    sentences = _SENTENCE.split(f"{skill.description}\n{skill.when_to_use}")
    plain = [one.strip(" .;") for one in map(one_line, sentences) if one.strip(" .;")]
    for one in sorted(plain, key=lambda text: not _LEAD.match(text)):
        text = _WHO.sub("", _LEAD.sub("", one))
        for part in re.split(r",\s+(?:or\s+)?|\s+or\s+", text) if _LEAD.match(one) else [text]:
            if len(part.split()) > 1:
                yield shorten(part[0].upper() + part[1:], _REQUEST_CHARS)


def _script_cases(skill: Skill) -> Iterator[dict[str, object]]:
    for script in scripts_of(skill)[:_MOST_SCRIPTS]:
        if not script.library and script.example is None:
            yield {
                "id": f"{script.path} --help",
                "script": script.path,
                "arguments": ["--help"],
                "expect": {"exit_code": 0},
            }


def write_first_set(skill: Skill, document: dict[str, object]) -> str:
    """Write the set beside the SKILL.md, and return its path; ConfigError where that cannot be."""
    if skill.origin.kind != "local" or not os.path.isabs(skill.location):
        raise ConfigError(f"{skill.name}: is not in a folder of this machine; copy it first")
    folder = os.path.join(skill.dir, EVAL_FOLDER)
    path = os.path.join(folder, EVAL_FILE)
    with suppress(FileExistsError):
        os.mkdir(folder)
    data = json.dumps(document, indent=2, ensure_ascii=False).encode("utf-8", "replace")
    try:
        # Not through a link: the folder is the skill's, and may have been sent by others.
        inside = os.open(folder, READ_FOLDER)
    except OSError as error:
        raise ConfigError(f"{one_line(folder)}: cannot be used: {error.strerror}") from None
    try:
        with os.fdopen(os.open(EVAL_FILE, NEW_FILE, 0o644, dir_fd=inside), "wb") as file:
            file.write(data + b"\n")
    except FileExistsError:
        raise ConfigError(
            f"{one_line(path)}: is there already; change it, or move it away first "
            f"(mv {shell_word(path)} {shell_word(path + '.old')})"
        ) from None
    finally:
        os.close(inside)
    return path
