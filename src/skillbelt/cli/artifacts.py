"""`skillbelt artifacts`."""

from __future__ import annotations

import argparse
import sys
import time
from difflib import get_close_matches

from skillbelt.artifacts import (
    Artifact,
    ArtifactStore,
    open_artifacts,
    parse_reference,
    read,
)
from skillbelt.artifacts.disk import DiskArtifacts
from skillbelt.artifacts.objects import ObjectArtifacts
from skillbelt.artifacts.protocol import SCHEME
from skillbelt.cli.load import print_text
from skillbelt.cli.output import CLI_SESSION, count, print_json, print_table, say
from skillbelt.cli.sessions import parse_id, session_id
from skillbelt.errors import ArtifactError, ConfigError
from skillbelt.running.workbench import NO_ARTIFACTS
from skillbelt.settings import Settings, load_settings
from skillbelt.store import SessionKey
from skillbelt.text import one_line

_SHOWN_VERSIONS = 10


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `artifacts`."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=("list", "get", "delete"),
        default="list",
        help="what to do (default: list)",
    )
    parser.add_argument("name", metavar="NAME[@V]", nargs="?", help="the artifact")
    parser.add_argument(
        "--session",
        metavar="ID",
        default=session_id(SessionKey(*CLI_SESSION)),
        help="the session, as `skillbelt sessions list` prints it: app/user/session",
    )
    parser.add_argument(
        "--output", metavar="FILE", help="with get: write the bytes to this file instead of stdout"
    )


def run(args: argparse.Namespace) -> int:
    """List the saved artifacts, print one version, or delete all versions of one."""
    store = _open(load_settings(args.project, config=args.config))
    key = parse_id(args.session, "--session takes an ID")
    if args.output is not None and args.action != "get":
        raise ConfigError(
            f"artifacts {args.action} takes no --output; `skillbelt artifacts get NAME --output "
            "FILE` does"
        )
    if args.action == "list":
        return _list(store, key, args)
    if args.name is None:
        need = f"artifacts {args.action} needs a NAME"
        raise ConfigError(f"{need}; `skillbelt artifacts list` prints them")
    return _get(store, key, args) if args.action == "get" else _delete(store, key, args)


def _open(settings: Settings) -> ArtifactStore:
    if settings.artifacts_url == NO_ARTIFACTS:
        raise ArtifactError("artifacts are turned off by the setting artifacts_url")
    return open_artifacts(settings, settings.artifacts_url)


def _list(store: ArtifactStore, key: SessionKey, args: argparse.Namespace) -> int:
    found = store.latest(key) if args.name is None else _versions(store, key, args.name)
    if args.json:
        print_json({"artifacts": [artifact._asdict() for artifact in found]})
    elif found:
        head = ("artifact", "version", "size", "saved", "type")
        print_table(head, [_row(artifact) for artifact in found])
    else:
        say(f"no artifacts in {session_id(key)}", args)
    # A warning names the damaged ones, which are left out.
    whole = not isinstance(store, DiskArtifacts | ObjectArtifacts) or not store.damaged(key)
    return 0 if whole else 1


def _versions(store: ArtifactStore, key: SessionKey, text: str) -> list[Artifact]:
    name, version = _parse(text)
    if version is not None:
        return [_find(store, key, name, version)]
    found = store.versions(key, name)
    return found or [_find(store, key, name, None)]


def _row(artifact: Artifact) -> tuple[str, ...]:
    saved = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(artifact.time))
    return artifact.name, str(artifact.version), str(artifact.size), saved, artifact.mime


def _get(store: ArtifactStore, key: SessionKey, args: argparse.Namespace) -> int:
    name, version = _parse(args.name)
    artifact = _find(store, key, name, version)
    # Exactly this version: a newer one may appear meanwhile.
    if args.output is not None:
        with open(args.output, "wb") as file:
            file.write(read(store, key, name, artifact.version)[1])
    elif not args.json:
        _print(read(store, key, name, artifact.version)[1], artifact)
    if args.json:
        print_json(artifact._asdict())
    return 0


def _delete(store: ArtifactStore, key: SessionKey, args: argparse.Namespace) -> int:
    name, version = _parse(args.name)
    if version is not None and args.name in {one.name for one in store.latest(key)}:
        name, version = args.name, None  # its name ends like a version
    if version is not None:
        raise ConfigError(
            "artifacts delete takes a NAME without a version; it deletes all versions"
        )
    _find(store, key, name, None)
    store.delete(key, name)
    if args.json:
        print_json({"deleted": name})
    else:
        say(f"deleted {one_line(name)}", args)
    return 0


def _print(data: bytes, artifact: Artifact) -> None:
    """Write the exact bytes; a terminal gets text only, with control characters escaped."""
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(data)
        return
    try:
        text = data.decode()
        if "\0" in text:
            raise ValueError
    except ValueError as error:
        reason = f"{artifact.name!r} is not text ({artifact.mime}, {artifact.size} bytes)"
        refused = ArtifactError(f"{reason}; write it to a file with --output FILE")
        refused.remedy = "write it to a file with --output FILE"
        raise refused from error
    print_text(text)


def _parse(text: str) -> tuple[str, int | None]:
    return parse_reference(text if text.startswith(SCHEME) else f"{SCHEME}{text}")


def _find(store: ArtifactStore, key: SessionKey, name: str, version: int | None) -> Artifact:
    try:
        return store.find(key, name, version)
    except ArtifactError as error:
        raise ArtifactError(f"{error}; {_hint(store, key, name)}") from error


def _hint(store: ArtifactStore, key: SessionKey, name: str) -> str:
    """Suggest versions or names for an artifact that does not exist."""
    known = [str(artifact.version) for artifact in store.versions(key, name)]
    if known:
        return f"there is version {', '.join(known[-_SHOWN_VERSIONS:])}"
    names = [artifact.name for artifact in store.latest(key)]
    close = get_close_matches(name, names, n=3)
    if close:
        return f"closest: {', '.join(map(one_line, close))}"
    return f"session {session_id(key)} has " + (count(len(names), "other") if names else "none")
