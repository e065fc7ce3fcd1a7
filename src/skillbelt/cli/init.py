"""`skillbelt init`."""

from __future__ import annotations

import argparse
import hashlib
import os

from skillbelt.cli.output import change_options, print_json, say
from skillbelt.errors import ConfigError
from skillbelt.files.contain import create_beneath, open_folder
from skillbelt.install.lock_file import SKILLS_FOLDER
from skillbelt.install.new_skill import SCRIPT_KINDS, new_skill
from skillbelt.settings import load_settings


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `init`."""
    parser.add_argument("name", metavar="NAME", help="the name: letters, digits and hyphens")
    parser.add_argument(
        "--path", metavar="DIR", help=f"the folder to put it in (default: {SKILLS_FOLDER})"
    )
    parser.add_argument("--description", metavar="TEXT", default="", help="when to use it")
    parser.add_argument(
        "--script", choices=SCRIPT_KINDS, default="none", help="add a script (default: none)"
    )
    parser.add_argument("--tests", action="store_true", help="add a test set, evals/evals.json")
    parser.add_argument("--license", metavar="NAME", default="", help="such as MIT or Apache-2.0")
    change_options(parser)


def run(args: argparse.Namespace) -> int:
    """Write a new skill; never overwrite a file."""
    settings = load_settings(args.project, config=args.config)
    files = new_skill(
        args.name,
        description=args.description,
        script=args.script,
        tests=args.tests,
        license=args.license,
    )
    folder = os.path.normpath(os.path.join(settings.project, args.path or SKILLS_FOLDER, args.name))
    if os.path.lexists(folder):
        raise ConfigError(f"{folder} is there already; give another name or --path")
    if not args.dry_run:
        os.makedirs(folder)
        write_files(folder, files)
    if args.json:
        print_json({"folder": folder, "written": describe_files(files)})
        return 0
    for path in files:
        print(os.path.join(folder, path))
    say(f"next: write what it does, then `skillbelt check {os.path.relpath(folder)}`", args)
    return 0


def describe_files(files: dict[str, bytes]) -> list[dict[str, object]]:
    """Return the written files, as --json documents have them."""
    return [
        {
            "path": path,
            "size": len(data),
            "digest": f"sha256:{hashlib.sha256(data).hexdigest()}",
        }
        for path, data in files.items()
    ]


def write_files(folder: str, files: dict[str, bytes]) -> None:
    """Write new files below a folder that others may read."""
    handle = open_folder(folder)
    try:
        for path, data in files.items():
            runnable = data.startswith(b"#!")
            with os.fdopen(create_beneath(handle, path, executable=runnable), "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), 0o755 if runnable else 0o644)
        for path in {os.path.dirname(path) for path in files} - {""}:
            parts = path.split("/")
            for number in range(len(parts)):
                os.chmod("/".join(parts[: number + 1]), 0o755, dir_fd=handle)
    finally:
        os.close(handle)
