"""Find orders in the descriptions of tools: a model reads them whole, and a person rarely does."""

from __future__ import annotations

import re

from skillbelt.scan.ledger import Ledger
from skillbelt.scan.markdown import number_lines
from skillbelt.scan.places import find_paths, place_class
from skillbelt.scan.prose import read_prose
from skillbelt.text import Lazy

# A list of tools has one of these keys beside the descriptions.
_BESIDE = ('"inputSchema"', '"input_schema"', '"tools"', '"parameters"')
_DESCRIPTION = Lazy(
    r"\"(?:description|title|instructions?|prompt|system)\"\s{0,99}:\s{0,99}"
    r"\"((?:[^\"\\]|\\.){20,20000}+)\""
)
_MAX_DESCRIPTIONS = 2_000
_ESCAPE = Lazy(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_NAMED = {"n": "\n", "r": "\n", "t": "\t", "b": "", "f": "\n"}
_PADDING = Lazy(r"(?<!\s)\s{100,}+(?=\S)")
_SECRETS = ("credential", "service", "settings", "history")
_HANDS_OVER = Lazy(
    r"(?i)\b(?:pass|put|include|send|paste|provide|supply|add|attach|insert|give|fill|copy|hand|set)"
    r"\b[^\n]{0,90}\b(?:parameters?|arguments?|fields?|inputs?|context|notes?|header|body|call"
    r"|request|property|it|them|this tool)\b"
)
_MARKED = Lazy(
    r"(?i)<(?:important|system|instructions?|critical|secret|hidden|admin)>[^\n]{0,400}?\b(?:must"
    r"|before|first|always|never|read|do not|otherwise)\b"
)
_KEEPS = Lazy(
    r"(?i)\b(?:tell|show|inform|report to) (?:the )?(?:user|them|people) only\b"
    r"|\b(?:user|they)\b[^.\n]{0,40}\b(?:need not|should not|must not|does not have to"
    r"|do not have to) (?:know|see|learn|notice)\b"
)


def judge_descriptions(text: str, line: int, ledger: Ledger) -> None:
    """Note what the descriptions in a list of tools tell the model."""
    if '"' not in text or not any(key in text for key in _BESIDE):
        return
    for number, (match, at) in enumerate(number_lines(_DESCRIPTION.finditer(text), text, line)):
        if number >= _MAX_DESCRIPTIONS:
            return
        plain = _ESCAPE.sub(_unescape, match[1]) if "\\" in match[1] else match[1]
        ledger.spend(1 + len(plain) // 500)
        padded = _PADDING.search(plain)
        if padded is not None:
            ledger.find("padded-text", at, plain[padded.end() :])
        squeezed = " ".join(plain.split())
        if squeezed != match[1]:  # else it was read with its line
            read_prose(squeezed, at, ledger)
        _judge(squeezed, at, ledger)


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _NAMED.get(match[2], match[2])


def _judge(text: str, line: int, ledger: Ledger) -> None:
    secrets = [path for path, _ in find_paths(text) if place_class(path) in _SECRETS]
    if secrets and _HANDS_OVER.search(text):
        ledger.find("ask-for-secret", line, f"a tool is to be given {', '.join(secrets[:3])}")
    if marked := _MARKED.search(text):
        ledger.find("fake-role", line, marked[0])
    if kept := _KEEPS.search(text):
        ledger.find("hide-from-user", line, kept[0])
