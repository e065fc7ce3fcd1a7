"""`skillbelt run`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from skillbelt.cli.asking import open_gate
from skillbelt.cli.live import Live
from skillbelt.cli.output import (
    CLI_SESSION,
    SANDBOX_HELP,
    SESSION_HELP,
    open_catalog,
    print_json,
    say,
    wants_progress,
)
from skillbelt.discovery.catalog import Catalog
from skillbelt.errors import ConfigError
from skillbelt.running.call import RunCall, RunResult
from skillbelt.running.executor import Workbench
from skillbelt.running.following import Watch
from skillbelt.running.run import Asker
from skillbelt.sandbox.protocol import MAX_STDIN_BYTES
from skillbelt.settings import Settings
from skillbelt.store import SessionKey
from skillbelt.text import one_line

if TYPE_CHECKING:
    from skillbelt.running.json_call import Execution

TIMED_OUT = 124
NO_SANDBOX = "none"
# What is shown while it comes is shown to its end, whatever the result keeps of it.
_SHOWN_WHOLE = ("stdout truncated", "stderr truncated")
# The last line of all says that the time was over.
_TOLD_OTHERWISE = ("max_stream_bytes", "run_timeout_seconds")


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of `run`."""
    parser.add_argument("name", metavar="NAME", help="the skill")
    parser.add_argument(
        "--input",
        metavar="FROM[=TO]",
        action="append",
        default=[],
        help="a file for the run: a path, or artifact://, host://, workspace://, skill://; it goes "
        "to work/inputs, or to TO in the workspace; may be repeated",
    )
    parser.add_argument(
        "--output",
        metavar="GLOB",
        action="append",
        default=[],
        help="files to give back, such as 'out/*'; may be repeated",
    )
    parser.add_argument("--save", action="store_true", help="keep those files as artifacts")
    parser.add_argument(
        "--env",
        metavar="K=V",
        action="append",
        default=[],
        help="a variable for the command; may be repeated",
    )
    parser.add_argument("--cwd", metavar="D", default="", help="where to run, below the skill")
    parser.add_argument("--session", metavar="S", help=SESSION_HELP)
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=float,
        default=0.0,
        help="seconds at most (default: the limit run_timeout_seconds)",
    )
    parser.add_argument("--sandbox", metavar="S", help=SANDBOX_HELP)
    parser.add_argument("--yes", action="store_true", help="say yes to what this run asks for")


def run(args: argparse.Namespace) -> int:
    """Run the command; its exit code, with --json whether it failed, 124 when it took too long."""
    if not args.words:
        raise ConfigError("run needs a command after --: skillbelt run NAME -- COMMAND...")
    catalog = open_catalog(args)
    skill = catalog.find(args.name)
    call = _call(args, MAX_STDIN_BYTES)
    who = whose(args)
    with Live() as live, open_workbench(catalog, args, live) as bench:
        result = bench.run(skill, call, who, Watch(None if args.json else live))
    if args.json:
        print_json(result.document())
    else:
        _tell(result, args)
    return _exit_code(result, args)


def whose(args: argparse.Namespace) -> Asker:
    """Whose run it is: of the conversation that is named, or of none."""
    if args.session is not None and not args.session.strip():
        raise ConfigError("--session takes the name of a conversation, such as report-1")
    if args.session is None:
        return Asker(SessionKey(*CLI_SESSION), "user", once="whole" if args.json else "named")
    return Asker(SessionKey(*CLI_SESSION[:2], args.session), "user")


def open_workbench(catalog: Catalog, args: argparse.Namespace, live: Live) -> Workbench:
    """Where a command of the command line runs: asks at the terminal, shows what takes long."""
    settings: Settings = catalog.settings
    if args.sandbox:
        settings = settings._replace(sandbox=args.sandbox)
    gate = open_gate(settings, args)
    progress = live.progress if wants_progress(args) else None
    return Workbench(settings, gate, catalog.find, skills=catalog.current, progress=progress)


def _call(args: argparse.Namespace, most: int) -> RunCall:
    return RunCall(
        command=tuple(args.words),
        cwd=args.cwd,
        env=dict(_pair(text, "--env", "K=V") for text in args.env),
        timeout_seconds=args.timeout,
        inputs=[_input(text) for text in args.input],
        output_files=tuple(args.output),
        save_as_artifacts=args.save,
        stdin=_stdin(most),
    )


def _stdin(most: int) -> bytes:
    """What is piped in, a byte beyond the limit at most; nobody is waited for at a terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        return b""
    return sys.stdin.buffer.read(most + 1)


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark or not name:
        raise ConfigError(f"{option} takes {form}, not {text!r}")
    return name, value


def _input(text: str) -> dict[str, object]:
    """`FROM[=TO]`; a plain path is one of this machine, whatever its name holds."""
    source, mark, target = text.rpartition("=")
    if not mark or os.path.exists(text):
        source, target = text, ""
    if "://" not in source:
        source = f"host://{os.path.abspath(source)}"
    return {"from": source, "to": target} if target else {"from": source}


def _tell(result: RunResult, args: argparse.Namespace) -> None:
    """What there is to say beside what the command printed; that was shown while it ran."""
    for file in result.output_files:
        say(f"{one_line(file.name)}  {file.mime_type}  {file.size_bytes} bytes", args)
    for saved in result.artifact_files:
        say(f"artifact://{one_line(saved.name)}@{saved.version}", args)
    tell_end((*result.warnings, *result.errors), result, result.timed_out, args)


def tell_end(
    texts: Iterable[str], done: RunResult | Execution, timed_out: bool, args: argparse.Namespace
) -> None:
    """How a run went, each thing once: what was amiss, limits, with -v what was enforced."""
    if done.sandbox == NO_SANDBOX:
        say("skillbelt: no sandbox held this back", args)
    for text in texts:
        if text not in _SHOWN_WHOLE:
            say(f"skillbelt: {one_line(text)}", args)
    limits = [name for name in done.limits_hit if name not in _TOLD_OTHERWISE]
    if limits:
        say(f"skillbelt: limits hit: {', '.join(limits)}", args)
    if args.verbose:
        for what, how in done.enforced.items():
            say(f"{what}: {how}", args)
    if timed_out:
        say(f"skillbelt: timed out after {done.duration_ms / 1000:.1f} s", args)


def _exit_code(result: RunResult, args: argparse.Namespace) -> int:
    if result.timed_out:
        return TIMED_OUT
    code = result.exit_code or (1 if result.errors else 0)
    return min(code, 1) if args.json else code
