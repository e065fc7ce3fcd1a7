"""`skillbelt try`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator

from skillbelt.cli.build import find_skill
from skillbelt.cli.live import LiveOutput
from skillbelt.cli.output import (
    CLI_SESSION,
    SANDBOX_HELP,
    count,
    print_json,
    print_table,
    say,
    wants_progress,
    yes_option,
)
from skillbelt.cli.run import NO_SANDBOX, open_workbench
from skillbelt.cli.scanning import open_catalog
from skillbelt.errors import ConfigError
from skillbelt.running.call import Asker
from skillbelt.running.trial.trial import (
    MAX_TRIALS,
    TRIAL_SECONDS,
    ScriptTrial,
    Trial,
    TrialBounds,
    try_skill,
)
from skillbelt.store import SessionKey
from skillbelt.text import one_line

_HEAD = ("script", "starts", "how, or what it lacked")
_HOW = {
    "help": "answers --help",
    "ran": "ran to its end",
    "example": "ran with its example",
    "imports": "a module, imports cleanly",
    "arguments": "asks for other arguments",
    "input": "fails on its input",
    "secret": "asks for a key",
    "host": "fails without the network",
    "waits": "keeps running, as a server does",
    "program": "a program is missing",
    "module": "a module is missing",
    "package": "its packages cannot be provided",
    "permission": "the sandbox does not permit it",
    "limit": "reached a limit",
    "crash": "crashes",
    "refused": "was not run",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `try`."""
    parser.add_argument("skill", metavar="SKILL", help="a skill, or its folder")
    parser.add_argument(
        "scripts", metavar="SCRIPT", nargs="*", help="a script by its path (default: all)"
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=float,
        default=TRIAL_SECONDS,
        help=f"seconds for each script (default: {TRIAL_SECONDS:g})",
    )
    parser.add_argument("--sandbox", metavar="S", help=SANDBOX_HELP)
    yes_option(parser)


def run(args: argparse.Namespace) -> int:
    """Try the scripts; return 0 when all of them start."""
    if not 0 < args.timeout < math.inf:
        raise ConfigError(f"--timeout takes a number of seconds above 0, not {args.timeout:g}")
    catalog = open_catalog(args)
    skill = find_skill(args.skill, catalog)
    who = Asker(SessionKey(*CLI_SESSION), "user", once="whole")
    with LiveOutput() as live, open_workbench(catalog, args, live) as bench:
        trial = try_skill(
            bench,
            skill,
            who,
            only=args.scripts,
            bounds=TrialBounds(seconds=args.timeout),
            one_question=not args.yes,
            told=_TrialProgress(live) if wants_progress(args) else None,
        )
    if args.json:
        print_json(trial.document())
    else:
        _print_trial(trial, args)
    return 0 if trial.started else 1


class _TrialProgress:
    """Shows how many scripts are done, until there is other output."""

    def __init__(self, live: LiveOutput) -> None:
        self._live, self._done = live, 0

    def __call__(self, done: ScriptTrial) -> None:
        self._done += 1
        self._live.progress(f"{self._done} tried: {one_line(done.path)}")


def _print_trial(trial: Trial, args: argparse.Namespace) -> None:
    if not trial.scripts:
        say(f"{one_line(trial.skill)} has no scripts", args)
        return
    rows = [(one.path, "yes" if one.started else "no", describe(one)) for one in trial.scripts]
    print_table(_HEAD, rows, wrap=True)
    started = sum(one.started for one in trial.scripts)
    say(f"{started} of {count(len(trial.scripts), 'script')} started", args)
    if trial.left_out:
        say(f"not tried, as only {MAX_TRIALS} are: {len(trial.left_out)} more", args)
    if trial.sandbox == NO_SANDBOX:
        say("skillbelt: this ran without a sandbox", args)


def describe(one: ScriptTrial) -> str:
    """Describe the result of a script in one line."""
    return "; ".join(_describe(one))


def _describe(one: ScriptTrial) -> Iterator[str]:
    named = [f"{lack.kind} {lack.name}" for lack in one.lacked if lack.name]
    yield _HOW.get(one.how, one.how)
    if named:
        yield f"lacked {', '.join(named)}"
    refused = [reached.host for reached in one.reached if not reached.allowed]
    if refused:
        yield f"was refused {', '.join(refused)}"
    surprises = [f"{use.kind} {use.value}" for use in one.observed if use.is_surprise]
    if surprises:
        yield f"neither declares nor contains {', '.join(surprises)}"
    if one.how != "help" and (not one.started or not named):
        yield from filter(None, (one.remedy or one.line,))
