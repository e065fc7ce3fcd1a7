"""`skillbelt sign`."""

from __future__ import annotations

import argparse
import getpass
import os
import shlex

from skillbelt.cli.installing import find_folder
from skillbelt.cli.keyboard import can_ask
from skillbelt.cli.output import (
    change_options,
    count,
    print_json,
    say,
    show_progress,
    wants_progress,
)
from skillbelt.cli.words import clear_line
from skillbelt.errors import ConfigError, UsageError
from skillbelt.install.sign import SignedSkill, SigningMeans, sign_skill, write_signature
from skillbelt.install.signature_file import SIGNATURE_FILE
from skillbelt.install.signatures import read_trusted
from skillbelt.settings import load_settings


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `sign`."""
    parser.add_argument(
        "paths", metavar="PATH", nargs="+", help="the folders of the skills to sign"
    )
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--key", metavar="FILE", help="sign with a private key (elliptic curve, PEM)")
    how.add_argument(
        "--sigstore",
        action="store_true",
        help="sign with your identity, from this machine or a browser (needs the network)",
    )
    parser.add_argument(
        "--certificate",
        metavar="FILE",
        help="the certificates of the key in PEM, the signer's first, then its issuers'",
    )
    parser.add_argument(
        "--password-file", metavar="FILE", help="the password of the key (default: asked for)"
    )
    parser.add_argument(
        "--identity-token", metavar="FILE", help="a token that says who you are, for --sigstore"
    )
    parser.add_argument(
        "--trust-config",
        metavar="FILE",
        help="your own Sigstore, for --sigstore",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing signature")
    change_options(parser)


def run(args: argparse.Namespace) -> int:
    """Sign every file of the skills; print who signed, and what others need to verify it."""
    load_settings(args.project, config=args.config)  # every command refuses a wrong one
    _check_options(args)
    base = os.path.abspath(args.project or ".")
    folders = [find_folder(path, base) for path in args.paths]
    for folder in folders:
        there = os.path.join(folder, SIGNATURE_FILE)
        if os.path.lexists(there) and not args.force:
            raise ConfigError(f"{there} is there already; --force replaces it")
    means = SigningMeans(
        key=_resolve_path(args.key, base),
        certificates=_resolve_path(args.certificate, base),
        token=_read_secret(_resolve_path(args.identity_token, base)).decode("ascii", "replace"),
        browser=can_ask() and not args.json,
        services=_resolve_path(args.trust_config, base),
    )
    password = _Password(_resolve_path(args.password_file, base), args)
    rows = []
    # A browser is opened by another package, which prints and asks on the same terminal.
    progress = wants_progress(args) and not (args.sigstore and means.browser and not means.token)
    for folder in folders:
        if progress:
            show_progress(f"signing {os.path.basename(folder)}")
        signed = sign_skill(folder, means, password)
        digest = "" if args.dry_run else write_signature(signed)
        if progress:
            show_progress("")
        rows.append(_describe(signed, digest))
        _say(signed, args)
    if args.json:
        print_json({"signed": rows})
    return 0


def _check_options(args: argparse.Namespace) -> None:
    for name in ("certificate", "password_file"):
        if getattr(args, name) and not args.key:
            raise UsageError(f"sign: --{name.replace('_', '-')} is for --key")
    for name in ("identity_token", "trust_config"):
        if getattr(args, name) and not args.sigstore:
            raise UsageError(f"sign: --{name.replace('_', '-')} is for --sigstore")


def _resolve_path(path: str | None, base: str) -> str:
    return os.path.normpath(os.path.join(base, os.path.expanduser(path))) if path else ""


def _read_secret(path: str) -> bytes:
    return read_trusted(path).strip(b"\r\n") if path else b""


class _Password:
    """Reads the password of a key from its file or a terminal, once for all skills."""

    def __init__(self, path: str, args: argparse.Namespace) -> None:
        self._path, self._args = path, args
        self._known: bytes | None = None

    def __call__(self) -> bytes:
        if self._known is None:
            if self._path:
                self._known = _read_secret(self._path)
            elif can_ask() and not self._args.json:
                clear_line()  # it counts the seconds, over what is typed
                self._known = getpass.getpass(f"Password of {self._args.key}: ").encode()
            else:
                raise ConfigError(
                    f"{self._args.key} has a password, and there is no terminal to ask for it; "
                    "give --password-file FILE"
                )
        return self._known


def _describe(signed: SignedSkill, digest: str) -> dict[str, object]:
    return {
        "path": os.path.join(signed.folder, SIGNATURE_FILE),
        "files": signed.files,
        "signer": signed.signer.as_provenance(),
        "digest": digest,
    }


def _say(signed: SignedSkill, args: argparse.Namespace) -> None:
    if args.json:
        return
    path = os.path.join(signed.folder, SIGNATURE_FILE)
    word = "would cover" if args.dry_run else "covers"
    print(f"{path}: {word} {count(signed.files, 'file')}, signed by {signed.signer.text}")
    if signed.others:
        words = shlex.join(signed.others)
        say(f"it covers files of git, so `model_signing verify` needs {words}", args)
