"""Write a first set of cases for a skill, from its description, its neighbours and its scripts.

They are drafts, and marked as drafts: people write differently from a description.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from skillbelt.errors import ConfigError, SkillbeltError
from skillbelt.files.contain import NEW_FILE, READ_FOLDER
from skillbelt.format.bounds import MAX_RESOURCE_FILE_BYTES
from skillbelt.format.skill import Skill
from skillbelt.running.trial.scripts import scripts_of
from skillbelt.search.protocol import Result
from skillbelt.text import one_line, shell_word

EVAL_FOLDER, EVAL_FILE = "evals", "evals.json"
_MOST_POSITIVES = 8
_MOST_NEAR = 6
_MOST_RULED_OUT = 4
_MOST_SCRIPTS = 50
_REQUEST_CHARS = 200
_SENTENCE = re.compile(r"(?<=[.!?。！？;])\s+|\n+")
_LEAD = re.compile(
    r"(?i)^(?:also |always |you should |claude should )?(?:use|trigger|invoke|activate|apply|load)"
    r"(?: this| the| it)?(?: skill)?(?: also| especially)? "
    r"(?:when(?:ever)?(?: asked to)?|for|if|to|any time|as soon as)\s+"
)
_WHO = re.compile(
    r"(?i)^(?:the )?(?:user|users|someone|anyone|people|you)\s+(?:wants?|needs?|asks?|mentions?"
    r"|says?|requests?|is asking|are asking)(?:\s+(?:you|for help|about|for|to))*\s+"
)
# A sentence that says what a skill is not for.
_EXCLUDES = re.compile(r"(?i)\b(?:do not|don't|never|skip|not for|instead of|rather than)\b")
# The same, where what follows is a list of such requests.
_RULES_OUT = re.compile(
    r"(?i)\b(?:(?:do not|don't|never) (?:use|trigger|invoke|activate|apply|load)(?: \w+){0,3}?"
    r" (?:for|when|if|to)|not for)\b:? "
)
_BRACKETS = re.compile(r"\([^()]*\)")
_CONDITION = re.compile(r"(?i)^if (.+?),? (?:then )?(?:use|load|trigger|invoke) (?:this|the)\b.*$")
_INCLUDES = re.compile(
    r"(?i)^(?:this |it |triggers? |examples? )?(?:also )?(?:includes?|covers?|supports?)\b:?\s+"
)
# Words that refer to the text around them.
_DEPENDS = re.compile(
    r"(?i)^(?:regardless|whether|similar|any mention|this|these|those|there|the deliverable|or|even"
    r"|trigger)\b|\bthis skill\b|\betc$"
)
_HELP = re.compile(
    rb"--help|\b(?:argparse|optparse|click|typer|docopt|fire|commander|yargs|minimist|OptionParser)\b"
)
_JOINER = re.compile(r"(?i)^(?:and|or)\s+")
_TALK = (
    "Thank you, that is all for now.",
    "What is the capital of Portugal?",
    "Tell me a short story about a lighthouse.",
    "Which of the two options would you choose, and why?",
)


def first_set(skill: Skill, neighbours: Iterable[Result]) -> dict[str, object]:
    """Return the document of a first set."""
    entries: list[dict[str, object]] = []
    for text in list(dict.fromkeys(_find_requests(skill)))[:_MOST_POSITIVES]:
        entries.append({"prompt": text, "should_trigger": True, "expected_skill": skill.name})
    near = [one.skill for one in neighbours if one.skill.name != skill.name][:_MOST_NEAR]
    for other in near:
        text = next(iter(_find_requests(other)), "")
        if text:
            entries.append({"prompt": text, "should_trigger": False, "expected_skill": other.name})
    for text in list(dict.fromkeys(_find_ruled_out(skill)))[:_MOST_RULED_OUT]:
        entries.append({"prompt": text, "should_trigger": False, "expected_skill": None})
    for text in _TALK:
        entries.append({"prompt": text, "should_trigger": False, "expected_skill": None})
    numbered = [{"id": number, **one, "draft": True} for number, one in enumerate(entries, 1)]
    return {
        "skill_name": skill.name,
        "evals": numbered,
        "scripts": list(_script_cases(skill)),
    }


def _find_requests(skill: Skill) -> Iterator[str]:
    """Yield requests that the description names: after `use when`, in its lists, then the rest."""
    usable = [one for one in _split_sentences(skill) if not _EXCLUDES.search(one)]
    for one in sorted(usable, key=_rank_sentence):
        text = _CONDITION.sub(r"\1", one)
        lists = bool(_LEAD.match(text) or _INCLUDES.match(text))
        text = _WHO.sub("", _INCLUDES.sub("", _LEAD.sub("", text)))
        for part in _split_list(text) if lists else [text]:
            if _is_request(part):
                yield part[0].upper() + part[1:]


def _find_ruled_out(skill: Skill) -> Iterator[str]:
    """Yield what the description says that the skill is not for."""
    for sentence in _split_sentences(skill):
        found = _RULES_OUT.search(sentence)
        listed = _BRACKETS.sub("", sentence[found.end() :]) if found else ""
        for part in _split_list(listed):
            text = one_line(_WHO.sub("", part))
            if _is_request(text):
                yield text[0].upper() + text[1:]


def _split_sentences(skill: Skill) -> list[str]:
    sentences = _SENTENCE.split(f"{skill.description}\n{skill.when_to_use}")
    plain = [one.strip(" .;") for one in map(one_line, sentences)]
    return [one for one in plain if one]


def _is_request(text: str) -> bool:
    """Whether a part of a description is a request by itself: some words, and nothing cut off."""
    pairs = all(text.count(one) == text.count(other) for one, other in ("()", "[]", "“”"))
    whole = pairs and not text.count('"') % 2
    short = len(text.split()) > 1 and len(text) <= _REQUEST_CHARS
    return short and whole and not _DEPENDS.search(text)


def _rank_sentence(sentence: str) -> int:
    """Return how well a sentence says what people ask for; the best first."""
    return 0 if _LEAD.match(sentence) else 1 if _INCLUDES.match(sentence) else 2


def _split_list(text: str) -> list[str]:
    """Return the items of a list in a sentence; commas in brackets and quotes do not count."""
    items, depth, quoted = [""], 0, False
    for letter in text:
        quoted ^= letter in '"“”'
        depth += (letter in "([{") - (letter in ")]}")
        if letter in ",;" and depth <= 0 and not quoted:
            items.append("")
        else:
            items[-1] += letter
    return [_JOINER.sub("", one.strip()).strip(" .:") for one in items]


def _script_cases(skill: Skill) -> Iterator[dict[str, object]]:
    for script in scripts_of(skill)[:_MOST_SCRIPTS]:
        if not script.library and script.example is None and _answers_help(skill, script.path):
            yield {
                "id": f"{script.path} --help",
                "script": script.path,
                "arguments": ["--help"],
                "expect": {"exit_code": 0},
            }


def _answers_help(skill: Skill, path: str) -> bool:
    """Whether a script seems to understand `--help`; a wrong guess would be a case that fails."""
    try:
        with skill.files.open(path, MAX_RESOURCE_FILE_BYTES) as file:
            return bool(_HELP.search(file.read()))
    except (OSError, SkillbeltError):
        return False


def advise_cases(skill: Skill, wanted: str) -> str:
    """Return how a skill gets what it lacks: a first set, or a change of the one it has."""
    path = os.path.join(skill.dir, EVAL_FOLDER, EVAL_FILE)
    if os.path.lexists(path):
        return f"add {wanted} to {one_line(path)}"
    return f"`skillbelt eval init {shell_word(skill.name)}` writes the first"


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
