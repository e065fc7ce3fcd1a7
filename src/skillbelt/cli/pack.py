"""`skillbelt pack`."""

from __future__ import annotations

import argparse
import os

from skillbelt.cli.init import describe_files, write_files
from skillbelt.cli.installing import find_folder, reporter
from skillbelt.cli.output import change_options, print_json
from skillbelt.errors import ConfigError
from skillbelt.install.pack import FORMATS, pack_skills, read_skill_to_pack
from skillbelt.settings import load_settings


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `pack`."""
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        help="the folders of the skills; a plugin has the name of the first",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="skill",
        help="the format of the package (default: skill)",
    )
    parser.add_argument(
        "-o", "--output", metavar="DIR", default=".", help="the folder to write to (default: here)"
    )
    parser.add_argument("--force", action="store_true", help="replace existing files")
    change_options(parser)


def run(args: argparse.Namespace) -> int:
    """Check and pack the skills; the same files always give the same bytes."""
    load_settings(args.project, config=args.config)  # every command refuses a wrong one
    base = os.path.abspath(args.project or ".")
    report, skills = reporter(args), []
    for path in args.paths:
        report(f"packing {path}")
        skills.append(read_skill_to_pack(find_folder(path, base)))
    files = pack_skills(skills, args.format)
    report("")
    output = os.path.normpath(os.path.join(base, os.path.expanduser(args.output)))
    if not args.dry_run:
        _write(output, files, args.force)
    if args.json:
        packed = [{"name": one.name, "digest": one.hashes.content_digest} for one in skills]
        print_json({"folder": output, "written": describe_files(files), "skills": packed})
        return 0
    for one in describe_files(files):
        print(f"{os.path.join(output, str(one['path']))}\t{one['digest']}")
    return 0


def _write(output: str, files: dict[str, bytes], force: bool) -> None:
    there = [path for path in files if os.path.lexists(os.path.join(output, path))]
    if there and not force:
        raise ConfigError(f"{os.path.join(output, there[0])} is there already; --force replaces it")
    os.makedirs(output, exist_ok=True)
    for path in there:
        os.unlink(os.path.join(output, path))
    write_files(output, files)
