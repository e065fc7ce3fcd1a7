"""`skillbelt load`."""

from __future__ import annotations

import argparse
import os
import sys

from skillbelt.cli.gates import open_gate
from skillbelt.cli.output import print_json, say
from skillbelt.cli.scanning import open_catalog
from skillbelt.disclosure.body import (
    Loaded,
    Report,
    list_docs,
    load_document,
    load_skill_body,
    walk,
)
from skillbelt.disclosure.overflow import Storage
from skillbelt.errors import FileTypeRefused, FileUnreadable, LoadError, PathEscape
from skillbelt.format.skill import Skill
from skillbelt.scan.inspector import SkillInspector
from skillbelt.scan.report import describe_level
from skillbelt.settings import Settings
from skillbelt.store import open_store
from skillbelt.text import hidden, one_line

_REPORTED = (
    "sha256",
    "excerpt_sha256",
    "bytes_read",
    "chars_returned",
    "truncated",
    "strategy",
    "references",
    "storage_ref",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `load`."""
    parser.add_argument("name", metavar="NAME", help="the skill")
    parser.add_argument("--docs", metavar="A,B", default="", help="documents to print with it")
    parser.add_argument("--all-docs", action="store_true", help="print every document with it")


def run(args: argparse.Namespace) -> int:
    """Print the body of a skill and the requested documents."""
    catalog = open_catalog(args)
    skill = catalog.find(args.name)
    settings = catalog.settings
    gate = open_gate(settings, args)
    request = gate.require(gate.load_request(skill, "user"))
    _tell_of_scan(skill, settings, args)
    storage = open_storage(settings)
    body = load_skill_body(skill, settings.limits, overflow=settings.body_overflow, storage=storage)
    gate.record_load(request, body, skill)
    docs = [
        _load_document(skill, path.strip(), settings, storage)
        for path in args.docs.split(",")
        if path.strip()
    ]
    if args.all_docs:
        docs += _load_others(skill, {doc.path for doc in docs}, settings, storage, args)
    if args.json:
        print_json(_document(body, docs))
    else:
        _print(body, docs, args)
    return 0


def _tell_of_scan(skill: Skill, settings: Settings, args: argparse.Namespace) -> None:
    """Say what a scan finds in a remote skill: what a user loads is not asked about."""
    if skill.origin.remote:
        scanned = SkillInspector(settings, lambda: open_store(settings)).scan(skill)
        if told := describe_level(scanned):
            say(f"skillbelt: {one_line(skill.name)}: {told}", args)


def _load_document(skill: Skill, path: str, settings: Settings, storage: Storage) -> Loaded:
    try:
        return load_document(skill, path, settings.limits, storage=storage)
    except FileTypeRefused as error:
        if path.removeprefix("./") in walk(skill):
            raise
        there = ", ".join(map(one_line, list_docs(skill))) or "none"
        reason = f"{skill.name} has no such document; it has: {there}"
        raise FileUnreadable(path, reason) from error


def open_storage(settings: Settings) -> Storage:
    """Open the storage for the full text of what is cut."""
    return Storage(os.path.join(settings.state_dir, "texts"))


def _load_others(
    skill: Skill, had: set[str], settings: Settings, storage: Storage, args: argparse.Namespace
) -> list[Loaded]:
    """Load every other document; report those that cannot be loaded and go on."""
    limits, loaded = settings.limits, []
    for path in list_docs(skill):
        if path not in had:
            try:
                loaded.append(load_document(skill, path, limits, storage=storage))
            except (LoadError, PathEscape) as error:
                say(f"skillbelt: skipped: {one_line(str(error))}", args)
    return loaded


def _document(body: Loaded, docs: list[Loaded]) -> object:
    return {
        "name": body.name,
        "text": body.text,
        "docs": [
            {"path": doc.path, "text": doc.text, "report": report_json(doc.report)} for doc in docs
        ],
        "report": report_json(body.report),
    }


def report_json(report: Report) -> dict[str, object]:
    """Return a report as `load` and `read` print it."""
    fields = report._asdict()
    return {key: fields[key] for key in _REPORTED}


def _print(body: Loaded, docs: list[Loaded], args: argparse.Namespace) -> None:
    print_text(body.text)
    print_truncation(body, args)
    for doc in docs:
        print(f"\n[Doc] {one_line(doc.path)}\n")
        print_text(doc.text)
        print_truncation(doc, args)


def print_text(text: str) -> None:
    """Print the text; on a terminal escape characters that move the cursor or hide text."""
    if sys.stdout.isatty():
        for mark in {*hidden(text), "\r"}:
            text = text.replace(mark, one_line(f"a{mark}b")[1:-1].strip())
    print(text, end="" if text.endswith("\n") or not text else "\n")


def print_truncation(loaded: Loaded, args: argparse.Namespace) -> None:
    """Say on stderr that the text was cut, and where the full text is."""
    report = loaded.report
    if report.truncated:
        where = f"; all of it: {one_line(report.storage_ref)}" if report.storage_ref else ""
        path = one_line(loaded.path)
        say(f"skillbelt: {path} was cut to {report.chars_returned:,} characters{where}", args)
