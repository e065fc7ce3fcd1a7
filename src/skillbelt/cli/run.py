"""`skillbelt run`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping

from skillbelt.cli.gates import open_gate
from skillbelt.cli.live import LiveOutput
from skillbelt.cli.output import (
    CLI_SESSION,
    SANDBOX_HELP,
    SESSION_HELP,
    print_json,
    say,
    wants_progress,
    yes_option,
)
from skillbelt.cli.scanning import open_catalog
from skillbelt.discovery.catalog import Catalog
from skillbelt.errors import ConfigError
from skillbelt.fleet.choose import make_workbench
from skillbelt.running.call import Asker, RunCall, RunResult
from skillbelt.running.following import Watch
from skillbelt.running.json_call import Execution
from skillbelt.running.workbench import Workbench
from skillbelt.sandbox.protocol import MAX_STDIN_BYTES
from skillbelt.settings import Settings, with_sandbox
from skillbelt.store import SessionKey
from skillbelt.text import one_line

TIMED_OUT = 124
NO_SANDBOX = "none"
# Live output is never truncated, so these warnings about the result do not apply.
_NOT_FOR_LIVE = ("stdout truncated", "stderr truncated")
# The last line reports the timeout.
_REPORTED_ELSEWHERE = (
    "max_stream_bytes", "run_timeout_seconds", "exec_timeout_seconds", "timeout_ms",
)  # fmt: skip
_PIECE_BYTES = 2**16


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `run`."""
    parser.add_argument("name", metavar="NAME", help="the skill")
    file_options(parser, "--input")
    parser.add_argument(
        "--env",
        metavar="K=V",
        action="append",
        default=[],
        help="an environment variable for the command; may be repeated",
    )
    secret_option(parser)
    parser.add_argument(
        "--cwd", metavar="D", default="", help="the working folder, relative to the skill"
    )
    package_options(parser)
    parser.add_argument("--session", metavar="S", help=SESSION_HELP)
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=float,
        default=0.0,
        help="the timeout in seconds, up to run_timeout_seconds (default: 300)",
    )
    parser.add_argument("--sandbox", metavar="S", help=SANDBOX_HELP)
    yes_option(parser)


def package_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the packages of a run."""
    parser.add_argument(
        "--with",
        dest="packages",
        metavar="PKG",
        action="append",
        default=[],
        help="a package that the script needs in addition to the skill's, such as 'rich>=13'; may "
        "be repeated",
    )
    parser.add_argument(
        "--no-install", action="store_true", help="run without providing any packages"
    )


def packages_of(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the packages of --with; ConfigError for options that contradict each other."""
    if args.packages and args.no_install:
        raise ConfigError("--with and --no-install are both given; leave one of them out")
    return tuple(args.packages)


def secret_option(parser: argparse.ArgumentParser) -> None:
    """Add the option for stored secrets."""
    parser.add_argument(
        "--secret",
        metavar="NAME",
        action="append",
        default=[],
        help="a secret of `skillbelt secrets` for the command, as the variable NAME; may be "
        "repeated",
    )


def file_options(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the options for files into and out of a run; `name` is that of the input files."""
    parser.add_argument(
        name,
        metavar="FROM[=TO]",
        action="append",
        default=[],
        help="an input file: a path, or artifact://, host://, workspace://, skill://; it is put "
        "into work/inputs, or at TO in the workspace; may be repeated",
    )
    parser.add_argument(
        "--output",
        metavar="GLOB",
        action="append",
        default=[],
        help="output files to return, such as 'out/*'; may be repeated",
    )
    parser.add_argument("--save", action="store_true", help="save the output files as artifacts")
    parser.add_argument(
        "--output-dir",
        metavar="DIR",
        default="",
        help="copy the output files to this folder (without --output: all in out); no file "
        "there is replaced",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; return its exit code, with --json 0 or 1, 124 after a timeout."""
    if not args.words:
        raise ConfigError("run needs a command after --: skillbelt run NAME -- COMMAND...")
    catalog = open_catalog(args)
    skill = catalog.find(args.name)
    call = _build_call(args)
    who = asker_of(args)
    with LiveOutput() as live, open_workbench(catalog, args, live) as bench:
        result = bench.run(skill, call, who, Watch(None if args.json else live))
    if args.json:
        print_json(result.document())
    else:
        _print_result(result, args)
    return _exit_code(result, args)


def asker_of(args: argparse.Namespace) -> Asker:
    """Return the session of the run: the one of --session, or a temporary one."""
    if args.session is not None and not args.session.strip():
        raise ConfigError("--session takes the name of a conversation, such as report-1")
    if args.session is None:
        return Asker(SessionKey(*CLI_SESSION), "user", once="whole" if args.json else "named")
    return Asker(SessionKey(*CLI_SESSION[:2], args.session), "user")


def open_workbench(
    catalog: Catalog, args: argparse.Namespace, live: LiveOutput, *, stream_bytes: int = 0
) -> Workbench:
    """Open a workbench that asks for permission at the terminal and shows progress.

    `stream_bytes`: the least that a result has room for of each stream.
    """
    settings: Settings = catalog.settings
    limits = settings.limits
    room = max(limits.max_stream_bytes, stream_bytes)
    settings = settings._replace(limits=limits._replace(max_stream_bytes=room))
    if args.sandbox:
        settings = with_sandbox(settings, args.sandbox)
    gate = open_gate(settings, args)
    progress = live.progress if wants_progress(args) else None
    return make_workbench(settings, gate, catalog.find, skills=catalog.current, progress=progress)


def _build_call(args: argparse.Namespace) -> RunCall:
    return RunCall(
        command=tuple(args.words),
        cwd=args.cwd,
        env=dict(_parse_variable(text) for text in args.env),
        timeout_seconds=args.timeout,
        inputs=parse_inputs(args.input),
        output_files=tuple(args.output),
        save_as_artifacts=args.save,
        output_dir=args.output_dir and os.path.abspath(args.output_dir),
        stdin=_read_stdin(),
        packages=packages_of(args),
        install=not args.no_install,
        secrets=tuple(args.secret),
    )


def _read_stdin() -> bytes:
    """Read piped input, at most one byte above the limit; nothing from a terminal."""
    if sys.stdin is None or sys.stdin.isatty():
        return b""
    pieces, rest = [], MAX_STDIN_BYTES + 1
    # In pieces: one large read would allocate that much memory even without input.
    while piece := sys.stdin.buffer.read(min(_PIECE_BYTES, rest)):
        pieces.append(piece)
        rest -= len(piece)
    return b"".join(pieces)


def _parse_variable(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark or not name:
        raise ConfigError(f"--env takes K=V, not {text!r}")
    return name, value


def parse_inputs(texts: Iterable[str]) -> list[Mapping[str, object]]:
    """Parse the options for input files."""
    return [_parse_input(text) for text in texts]


def _parse_input(text: str) -> dict[str, object]:
    """Parse `FROM[=TO]`; an existing path is taken as it is, even with a `=` in its name."""
    source, mark, target = text.rpartition("=")
    if not mark or os.path.exists(text):
        source, target = text, ""
    if "://" not in source:
        source = f"host://{os.path.abspath(source)}"
    return {"from": source, "to": target} if target else {"from": source}


def _print_result(result: RunResult, args: argparse.Namespace) -> None:
    """Print the files of a run and its outcome; its output was shown while it ran."""
    print_files(result, args)
    print_outcome((*result.warnings, *result.errors), result, result.timed_out, args)


def print_files(done: RunResult | Execution, args: argparse.Namespace) -> None:
    """Print the files of a run, and where they are now."""
    for file in done.output_files:
        say(f"{one_line(file.name)}  {file.mime_type}  {file.size_bytes} bytes", args)
    for saved in done.artifact_files:
        say(f"artifact://{one_line(saved.name)}@{saved.version}", args)
    for written in done.written_files:
        say(f"wrote {one_line(written.path)}", args)


def print_outcome(
    texts: Iterable[str], done: RunResult | Execution, timed_out: bool, args: argparse.Namespace
) -> None:
    """Print warnings and limits of a run, with -v also what was enforced."""
    if done.sandbox == NO_SANDBOX:
        say("skillbelt: this ran without a sandbox", args)
    for text in texts:
        if text not in _NOT_FOR_LIVE:
            say(f"skillbelt: {one_line(text)}", args)
    for hint in done.hints:
        say(f"skillbelt: {one_line(hint.message)}", args)
    limits = [name for name in done.limits_hit if name not in _REPORTED_ELSEWHERE]
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
