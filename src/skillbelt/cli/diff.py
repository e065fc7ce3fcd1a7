"""`skillbelt diff`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack

from skillbelt.cli.capabilities import print_capabilities
from skillbelt.cli.output import print_json
from skillbelt.cli.scan import find_targets
from skillbelt.cli.words import print_words
from skillbelt.errors import ConfigError
from skillbelt.format.skill import Skill
from skillbelt.install.merge import show_difference
from skillbelt.scan.report import compare_statements
from skillbelt.scan.scanner import scan_skill
from skillbelt.scan.values import Capability, Finding
from skillbelt.settings import Settings, load_settings
from skillbelt.text import one_line


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `diff`."""
    for name in ("old", "new"):
        parser.add_argument(
            name,
            metavar=name.upper(),
            help="a skill's name, a folder, or a source as `add` takes it",
        )
    parser.add_argument(
        "--capabilities", action="store_true", help="compare what they can do, not their lines"
    )


def run(args: argparse.Namespace) -> int:
    """Print the differences between two skills; 1 if there are any."""
    settings = load_settings(args.project, config=args.config)
    with ExitStack() as stack:
        old, new = (_one(word, args, settings, stack) for word in (args.old, args.new))
        if args.capabilities:
            return _compare(old, new, settings, args)
        text = show_difference(old.files.whole_folder()[0], new.files.whole_folder()[0])
        same = old.files.digest() == new.files.digest()
    if args.json:
        print_json({"same": same, "diff": text})
    else:
        for line in text.split("\n") if text else ():
            print(" ".join(one_line(word) for word in line.split(" ")))
    return 0 if same else 1


def _one(word: str, args: argparse.Namespace, settings: Settings, stack: ExitStack) -> Skill:
    found = list(find_targets([word], args, settings, stack))
    if len(found) != 1:
        raise ConfigError(f"{one_line(word)} has {len(found)} skills; name one of them")
    return found[0]


def _compare(old: Skill, new: Skill, settings: Settings, args: argparse.Namespace) -> int:
    before, after = (scan_skill(one, cache_dir=settings.cache_dir) for one in (old, new))
    gained, lost = compare_statements(before.statement, after.statement)
    known = {(one.rule, one.path, one.message) for one in before.findings}
    found = [one for one in after.findings if (one.rule, one.path, one.message) not in known]
    if args.json:
        print_json(
            {
                "added": [_plain(one) for one in gained],
                "removed": [_plain(one) for one in lost],
                "findings": [one._asdict() for one in found],
            }
        )
    else:
        _print(gained, lost, found)
    return 1 if gained or lost or found else 0


def _plain(one: Capability) -> dict[str, object]:
    return {"kind": one.kind, "value": one.value, "origin": one.origin, "path": one.path,
            "line": one.line}  # fmt: skip


def _print(
    gained: Sequence[Capability], lost: Sequence[Capability], found: Sequence[Finding]
) -> None:
    for mark, values in (("+", gained), ("-", lost)):
        print_capabilities(values, f"{mark} ")
    for one in found:
        place = f"{one.path}:{one.line}" if one.line else one.path
        print_words(f"! {one.kind} {one.rule}: {one_line(place)}: {one.message}", "  ")
    if not (gained or lost or found):
        print("they can do the same")
