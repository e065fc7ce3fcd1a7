"""`skillbelt new-version`."""

from __future__ import annotations

import argparse
import os

from skillbelt.cli.init import describe_files
from skillbelt.cli.installing import find_folder
from skillbelt.cli.output import change_options, print_json, say
from skillbelt.errors import ConfigError
from skillbelt.files.contain import open_file, read_handle
from skillbelt.install.lock_file import find_place, read_lock
from skillbelt.install.names import folder_name
from skillbelt.install.new_version import PARTS, next_version, read_version, set_version
from skillbelt.settings import Settings, load_settings
from skillbelt.values import SKILL_FILE

_MAX_BYTES = 8 * 2**20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `new-version`."""
    parser.add_argument(
        "path", metavar="PATH", nargs="?", default=".", help="the skill's folder (default: here)"
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--part", choices=PARTS, default="patch", help="the part to increase (default: patch)"
    )
    group.add_argument("--to", metavar="VERSION", help="the new version, such as 1.0.0")
    change_options(parser)


def run(args: argparse.Namespace) -> int:
    """Raise the version in a SKILL.md; print the old and the new one."""
    settings = load_settings(args.project, config=args.config)
    base = os.path.abspath(args.project or ".")
    folder = find_folder(args.path, base)
    path = os.path.join(folder, SKILL_FILE)
    _check_own(folder, settings)
    data = read_handle(open_file(path, folder), _MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{path} has more than {_MAX_BYTES:,} bytes")
    version = args.to or next_version(read_version(data, path), args.part)
    change = set_version(data, version, path)
    if not args.dry_run:
        _replace(path, change.data)
    if args.json:
        written = describe_files({SKILL_FILE: change.data})
        print_json(
            {"folder": folder, "from": change.before, "to": change.after, "written": written}
        )
        return 0
    print(f"{change.before or 'no version'} -> {change.after}")
    say(f"next: `skillbelt pack {os.path.relpath(folder)}`", args)
    return 0


def _check_own(folder: str, settings: Settings) -> None:
    """Raise ConfigError for a skill that was installed: its version is that of its source."""
    for scope in ("project", "user"):
        place = find_place(settings, "user" if scope == "user" else "project")
        if os.path.realpath(os.path.dirname(folder)) != os.path.realpath(place.skills):
            continue
        for name, entry in read_lock(place).entries.items():
            if folder_name(name) == os.path.basename(folder):
                raise ConfigError(
                    f"{folder} is installed from {entry.source}; raise the version there"
                )


def _replace(path: str, data: bytes) -> None:
    """Put a new file in the place of the old one, with its mode."""
    mode = os.stat(path).st_mode & 0o777
    part = f"{path}.{os.urandom(4).hex()}"
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(handle, mode)
            os.fsync(handle)
        os.rename(part, path)
    except BaseException:
        os.unlink(part)
        raise
