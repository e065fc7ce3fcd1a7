"""Write diagnostics as a SARIF 2.1.0 log, which code hosts show beside the code."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from urllib.parse import quote

from skillbelt.check.rules import RULES, CheckRule
from skillbelt.text import one_line
from skillbelt.values import Diagnostic

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
ROOT_ID = "SRCROOT"
FINGERPRINT = "skillbeltFinding/v1"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def log(
    diagnostics: Sequence[Diagnostic],
    *,
    root: str,
    version: str,
    strict: bool = False,
    rules: Mapping[str, CheckRule] = RULES,
) -> dict[str, object]:
    """Return the log of one run; paths below `root` are relative to it, for use on any machine."""
    codes = sorted({found.code for found in diagnostics} | set(rules))
    results = _results(diagnostics, codes, os.path.abspath(root))
    driver = {
        "name": "skillbelt",
        "semanticVersion": version,
        "rules": [_rule(code, rules.get(code), strict) for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {ROOT_ID: {"description": {"text": "The folder that was checked."}}},
        "results": results,
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: str, rule: CheckRule | None, strict: bool) -> dict[str, object]:
    if rule is None:
        return {"id": code, "shortDescription": {"text": code.replace("-", " ")}}
    level = _LEVELS[rule.strict if strict else rule.severity]
    what = f"{rule.what[0].upper()}{rule.what[1:]}."
    return {
        "id": code,
        "shortDescription": {"text": what},
        "fullDescription": {"text": f"{what} {rule.why}"},
        "help": {"text": f"{rule.why} To fix: {rule.fix}."},
        "defaultConfiguration": {"level": level},
    }


def _results(diagnostics: Sequence[Diagnostic], codes: list[str], root: str) -> list[object]:
    places = {code: place for place, code in enumerate(codes)}
    seen: Counter[str] = Counter()
    results: list[object] = []
    for found in diagnostics:
        location = _location(found.path, root)
        print_ = _fingerprint(found, location["uri"], seen)
        results.append(_result(found, places[found.code], location, print_))
    return results


def _result(
    found: Diagnostic, place: int, location: dict[str, str], fingerprint: str
) -> dict[str, object]:
    text = one_line(f"{found.message}. To fix: {found.remedy}." if found.remedy else found.message)
    # A finding about a whole file gets its first line: code hosts drop those without one.
    physical = {"artifactLocation": location, "region": {"startLine": found.line or 1}}
    return {
        "ruleId": found.code,
        "ruleIndex": place,
        "level": _LEVELS[found.severity],
        "message": {"text": text},
        "locations": [{"physicalLocation": physical}],
        "partialFingerprints": {FINGERPRINT: fingerprint},
    }


def _location(path: str, root: str) -> dict[str, str]:
    """Return the file's location: relative to the root, or absolute when it is elsewhere."""
    path = os.path.abspath(path)
    try:
        relative = os.path.relpath(path, root)
    except ValueError:  # another drive
        relative = os.pardir
    if relative.split(os.sep, 1)[0] == os.pardir:
        return {"uri": "file://" + _quote("/" + path.replace(os.sep, "/").lstrip("/"))}
    return {"uri": _quote(relative.replace(os.sep, "/")), "uriBaseId": ROOT_ID}


def _quote(path: str) -> str:
    return quote(path.encode("utf-8", "surrogateescape"))


def _fingerprint(found: Diagnostic, uri: str, seen: Counter[str]) -> str:
    """Return a key that survives moved lines; equal findings in a file are numbered."""
    key = "\0".join((found.code, uri, found.message))
    seen[key] += 1
    return sha256(f"{key}\0{seen[key]}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
