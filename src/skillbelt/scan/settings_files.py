"""Find risky settings: container rights, unknown login keys, secrets and commands.

Each form is looked for only in a text that has its words, and takes time in proportion to the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from posixpath import splitext

from skillbelt.records import NamedTuple
from skillbelt.scan.addresses import classify, find_urls, is_reserved
from skillbelt.scan.ledger import Ledger, Traced
from skillbelt.scan.machine_settings import note_automatic, read_machine_settings
from skillbelt.scan.markdown import number_lines
from skillbelt.scan.places import find_paths, place_class
from skillbelt.scan.values import KINDS, FindingKind
from skillbelt.text import Lazy


class _RiskySetting(NamedTuple):
    """A rule, the words that a text needs, and the form."""

    rule: str
    needs: tuple[str, ...]
    form: re.Pattern[str]
    kind: FindingKind = "ask"


_RISKY_SETTINGS = (
    _RiskySetting(
        "environment-read", ("toJSON(", "secrets"), Lazy(r"(?i)tojson\(\s{0,9}secrets\s{0,9}\)")
    ),
    _RiskySetting(
        "privilege",
        ("privileged",),
        Lazy(r"(?m)^[^#\n`]{0,80}\bprivileged[\"']?:[ \t]{0,9}true\b"),
    ),
    _RiskySetting(
        "privilege",
        ("docker.sock",),
        Lazy(r"/docker\.sock:|path:[ \t]{0,9}/var/run/docker\.sock"),
        "note",
    ),
    # The whole disk of the machine
    _RiskySetting(
        "privilege", ("volumes",), Lazy(r"(?:-[ \t]{1,9}|[\[,][ \t]{0,9})[\"']?/:/[\w/-]{1,60}")
    ),
    _RiskySetting(
        "privilege",
        ("hostPath",),
        Lazy(r"(?m)hostPath:\s{0,99}(?:path:[ \t]{0,9})?[\"']?/[\"']?[ \t]{0,9}$"),
    ),
    # Requests copied to another server with their keys
    _RiskySetting(
        "data-to-unknown-host",
        ("mirror", "proxy_pass https"),
        Lazy(r"(?m)^[^#\n]{0,200}\bmirror[ \t]{1,9}/[\w/]{1,60};"),
    ),
    # A login key
    _RiskySetting(
        "persistence",
        ("authorized", "AAAA"),
        Lazy(r"\bssh-(?:ed25519|rsa|dss) AAAA[A-Za-z0-9+/]{40,9000}"),
    ),
)
# The sections of a file of git, and keys in them whose value is a command.
_GIT_SECTION = Lazy(
    r"\n\[(?:core|alias|credential|filter|diff|pager|sequence|merge|gpg|interactive|init)\b"
)
_GIT_COMMAND = Lazy(
    r"(?m)^[ \t]{0,20}(?:(fsmonitor|sshcommand|hookspath)|helper|pager|editor|\w{1,40})"
    r"[ \t]{0,9}=[ \t]{0,9}([^\n]{3,2000})$",
    re.IGNORECASE,
)
_RUN_BY_GIT = Lazy(
    r"(?i)(?:clean|smudge|process|textconv|driver|helper|external|fsmonitor|program|command|cmd)\b"
)
_PLAIN_VALUE = Lazy(r"(?i)(?:true|false|yes|no|on|off|\.githooks|\.husky)\s*\Z")
# A block of settings that hands variables of the user to a program.
_HANDED = Lazy(
    r"\"env\"\s{0,40}:\s{0,40}\{([^{}]{0,4000}(?:\{[^{}]{0,200}\}[^{}]{0,4000}){0,40})\}"
)
_HANDED_NAME = Lazy(r"\$\{(?:env:)?([A-Z][A-Z0-9_]{2,80})\}")
_MAX_LISTED_LINE = 80
# A line with a path alone; a line break at the beginning is fast to find.
_LISTED = Lazy(r"\n[ \t,\"'-]*+([.~/][^\n]*+)")


def read_settings(text: str, line: int, ledger: Ledger) -> None:
    """Note the risky values in a settings file or block."""
    for setting in _RISKY_SETTINGS:
        if all(word in text for word in setting.needs):
            for match, at in number_lines(setting.form.finditer(text), text, line):
                ledger.find(setting.rule, at, match[0].strip()[:80], setting.kind)
    if _GIT_SECTION.search(f"\n{text}"):
        _read_git_settings(text, line, ledger)
    if '"env"' in text and "${" in text:
        for match, at in number_lines(_HANDED.finditer(text), text, line):
            names = {f"variable:{name}" for name in _HANDED_NAME.findall(match[1])}
            ledger.judge_collection(frozenset(names), at)
    _read_list_of_keys(text, line, ledger)
    _read_steps(text, line, ledger)
    read_machine_settings(text, line, ledger)


def _read_git_settings(text: str, line: int, ledger: Ledger) -> None:
    """Note the commands in a file of git's settings."""
    for match, at in number_lines(_GIT_COMMAND.finditer(text), text, line):
        value = match[2].strip().strip('"')
        always = match[1] is not None and not _PLAIN_VALUE.match(value)
        if always:
            ledger.find("persistence", at, match[0].strip())
        if _RUN_BY_GIT.match(match[0].strip()):
            note_automatic(value, "a program that git runs", ledger)
        if always or value.startswith("!"):
            ledger.runs_shell(Traced(text=value.removeprefix("!")), at, "git config")


# A step that sends, and the most lines between it and the step that reads.
_SENDING_STEP = Lazy(
    r"(?i)\b(?:method[\"']?\s{0,9}[:=]\s{0,9}[\"']?(?:post|put|patch)\b|body\b|http_(?:request|post|put)\b"
    r"|upload|webhook|send_?\w{0,20}\b)"
)
_STEP_LINES = 14
_MAX_STEP = 300
_PLACES_OF_USERS = ("~", "$", "%", ".", "/etc/", "/home/", "/root/", "/Users/")
_KEYS = ("credential", "service", "settings", "history")


def _read_steps(text: str, line: int, ledger: Ledger) -> None:
    """Note a list of steps, one of which reads a file with keys and another one sends."""
    if "://" not in text or not _may_send(text):
        return
    paths = [
        (path, start)
        for path, start in find_paths(text)
        if path.startswith(_PLACES_OF_USERS) and place_class(path) in _KEYS
    ]
    if not paths:
        return
    lines = text.split("\n")
    starts = list(accumulate(len(one) + 1 for one in lines))
    hosts = [
        (bisect_right(starts, found.at), found.host)
        for found in find_urls(text)
        if not is_reserved(found.host) and classify(found.host) != "own"
    ]
    for path, start in paths:
        at = bisect_right(starts, start)
        if len(lines[at]) > _MAX_STEP:
            continue
        near = [host for number, host in hosts if abs(number - at) <= _STEP_LINES]
        part = "\n".join(lines[max(at - _STEP_LINES, 0) : at + _STEP_LINES + 1])
        if near and _SENDING_STEP.search(part):
            kind = ledger.judge_named_key(near[0], (path,), ())
            ledger.find(
                "secret-to-network",
                line + at,
                f"{path}, {near[0]}",
                max(kind, "ask", key=KINDS.index),
            )


def _may_send(text: str) -> bool:
    """Whether a text has a word without which no step sends."""
    folded = text.lower()
    return any(one in folded for one in ("method", "body", "http_", "upload", "webhook", "send"))


def _read_list_of_keys(text: str, line: int, ledger: Ledger) -> None:
    """Note a list of files with credentials, one a line, from which code may read it."""
    if splitext(ledger.path)[0].endswith("ignore") or ledger.path.endswith("ignore"):
        return
    found = list(_find_listed(text))
    if len(found) > 1:
        ledger.find("credential-access", line + found[0][1], ", ".join(one for one, _ in found))


def _find_listed(text: str) -> Iterator[tuple[str, int]]:
    lines = f"\n{text}"
    for match, number in number_lines(_LISTED.finditer(lines), lines):
        path = match[1].rstrip(" \t,\"'-")
        if not 4 < len(path) < _MAX_LISTED_LINE or " " in path or "." not in path:
            continue
        if place_class(path) in ("credential", "service", "settings"):
            yield path, number
