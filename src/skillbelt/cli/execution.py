"""`skillbelt exec`."""

from __future__ import annotations

import argparse
import os
import sys

from skillbelt.cli.failure import describe_error
from skillbelt.cli.live import LiveOutput
from skillbelt.cli.output import SANDBOX_HELP, SESSION_HELP, print_json, yes_option
from skillbelt.cli.run import (
    TIMED_OUT,
    asker_of,
    file_options,
    open_workbench,
    package_options,
    packages_of,
    parse_inputs,
    print_files,
    print_outcome,
    secret_option,
)
from skillbelt.cli.scanning import open_catalog
from skillbelt.errors import ConfigError, PermissionDenied
from skillbelt.running.following import Watch
from skillbelt.running.json_call import Execution, denied, execute
from skillbelt.text import one_line, shorten
from skillbelt.untrusted_json import read_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `exec`."""
    parser.add_argument("name", metavar="NAME", help="the skill")
    parser.add_argument(
        "--input",
        metavar="JSON",
        default="null",
        help="the input of the script: JSON, @FILE, or @- for standard input",
    )
    parser.add_argument(
        "--script",
        metavar="S",
        default="",
        help="the script or WASM module, by path or name (default: chosen by the action in the "
        "input, or by the skill)",
    )
    parser.add_argument(
        "--timeout-ms",
        metavar="N",
        type=int,
        default=0,
        help="the timeout in milliseconds (default: 30000)",
    )
    file_options(parser, "--file")
    package_options(parser)
    secret_option(parser)
    parser.add_argument("--session", metavar="S", help=SESSION_HELP)
    parser.add_argument("--sandbox", metavar="S", help=SANDBOX_HELP)
    yes_option(parser)


def run(args: argparse.Namespace) -> int:
    """Execute the skill; return the exit code of the script, with --json 0 or 1."""
    value = _parse_input(args.input)
    catalog = open_catalog(args)
    skill = catalog.find(args.name)
    try:
        with LiveOutput() as live, open_workbench(catalog, args, live) as bench:
            done = execute(
                bench,
                skill,
                value,
                who=asker_of(args),
                script=args.script,
                timeout_ms=args.timeout_ms,
                inputs=parse_inputs(args.file),
                outputs=args.output,
                save_as_artifacts=args.save,
                output_dir=args.output_dir and os.path.abspath(args.output_dir),
                packages=packages_of(args),
                install=not args.no_install,
                secrets=args.secret,
                watch=Watch(None if args.json else live),
            )
    except PermissionDenied as error:
        if args.json:
            print_json({**denied(error).document(), "error": describe_error(error)})
        raise
    if args.json:
        print_json(done.document())
    else:  # the output was shown while the script ran
        print_files(done, args)
        warnings = (*done.warnings, *done.errors)
        print_outcome(warnings, done, done.exit_status.kind == "timeout", args)
    return _exit_code(done, args)


def _parse_input(text: str) -> object:
    """Parse the JSON of --input; ConfigError if it is not JSON."""
    source, content = "--input", text
    if text.startswith("@"):
        source = "standard input" if text == "@-" else text[1:]
        content = _read(text[1:])
    try:
        value: object = read_json(content)
    except ValueError as error:
        shown = f"{shorten(one_line(content), 40)!r} is not JSON" if content else "there is no JSON"
        raise ConfigError(f"{source}: {shown}: {error}") from error
    return value


def _read(path: str) -> str:
    try:
        if path == "-":
            return sys.stdin.buffer.read().decode("utf-8-sig")
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise ConfigError(f"--input: {path} is not UTF-8") from error
    except OSError as error:
        raise ConfigError(f"--input: {path} cannot be read: {error.strerror}") from error


def _exit_code(done: Execution, args: argparse.Namespace) -> int:
    if done.exit_status.kind == "timeout":
        return TIMED_OUT
    code = done.exit_status.code or (1 if done.errors else 0)
    return min(code, 1) if args.json else code
