"""Sign a skill: every file of it, so that `skillbelt` and `model_signing` verify it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from skillbelt.errors import ConfigError, PathEscape, SourceError
from skillbelt.files.private import replace_file
from skillbelt.files.tree import LEFT_OUT, SkillTree, TreeRules
from skillbelt.install.content_store import check_installable
from skillbelt.install.hashes import FolderHashes, hash_folder
from skillbelt.install.signature_file import (
    SIGNATURE_FILE,
    SkillSigner,
    compare_signed,
    parse_bundle,
    signed_files,
)
from skillbelt.install.signatures import load_crypto, load_sigstore, read_trusted
from skillbelt.text import one_line

# `model_signing verify` leaves these out by default.
_GIT_FILES = frozenset((".gitattributes", ".github", ".gitignore"))
_EVERYTHING = TreeRules(left_out=frozenset(), exact=True)


class SigningMeans(NamedTuple):
    """The means to sign: the file of a private key, of certificates, or a Sigstore token.

    `services` is the file that names the Sigstore services; "" for the public ones.
    """

    key: str = ""
    certificates: str = ""
    token: str = ""
    browser: bool = False
    services: str = ""


class SignedSkill(NamedTuple):
    """A signature that was made and not written yet. `others` are options for other verifiers."""

    folder: str
    signer: SkillSigner
    data: bytes
    files: int
    hashes: FolderHashes
    others: tuple[str, ...] = ()


def sign_skill(folder: str, means: SigningMeans, password: Callable[[], bytes]) -> SignedSkill:
    """Sign the files of a skill; ConfigError for one that cannot be signed.

    Nothing is written. `password` is called for a key that has one.
    """
    hashes = _read_skill(folder)
    files = [(one.path, one.sha256) for one in hashes.files if one.path != SIGNATURE_FILE]
    crypto = load_crypto("signing a skill")
    name = os.path.basename(os.path.realpath(folder))
    statement = crypto.make_statement(name, files, (SIGNATURE_FILE, *_left_out(folder)))
    data: bytes
    signer: SkillSigner
    if means.key:
        key = crypto.load_private_key(_read(means.key), password)
        if means.certificates:
            data, signer = crypto.sign_with_certificate(statement, key, _read(means.certificates))
        else:
            data, signer = crypto.sign_with_key(statement, key)
    else:
        sigstore = load_sigstore("signing with Sigstore")
        data, signer = sigstore.sign_with_sigstore(
            statement, means.token, browser=means.browser, services=means.services
        )
    compare_signed(signed_files(parse_bundle(data).payload), hashes)
    git = any(path.split("/")[0] in _GIT_FILES for path, _ in files)
    return SignedSkill(
        folder=folder,
        signer=signer,
        data=data,
        files=len(files),
        hashes=hashes,
        others=("--no-ignore-git-paths",) if git else (),
    )


def write_signature(signed: SignedSkill) -> str:
    """Write the signature into the skill and return its content digest now.

    ConfigError, and nothing is written, if the skill changed since it was signed.
    """
    if _read_skill(signed.folder).tree_sha != signed.hashes.tree_sha:
        raise ConfigError(f"{signed.folder} changed while it was signed; run the command again")
    replace_file(os.path.join(signed.folder, SIGNATURE_FILE), signed.data, mode=0o644)
    return hash_folder(signed.folder).content_digest


def _read_skill(folder: str) -> FolderHashes:
    try:
        hashes = hash_folder(folder)
        check_installable(folder, hashes)
    except SourceError as error:
        raise ConfigError(f"{folder} cannot be signed: {error.reason}") from error
    for file in hashes.files:
        shown = one_line(file.path)
        if file.kind == "link":
            raise ConfigError(
                f"{folder}: {shown!r} is a link, which no signature covers; copy the file"
            )
        try:
            file.path.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(f"{folder}: {shown!r} is not UTF-8; rename the file") from error
    return hashes


def _left_out(folder: str) -> Iterable[str]:
    """Yield what is not part of a skill, so that another verifier leaves it out too."""
    try:
        with SkillTree(folder, folder, _EVERYTHING) as tree:
            for entry in tree.entries():
                *above, name = entry.path.split("/")
                if name in LEFT_OUT and not LEFT_OUT.intersection(above):
                    yield entry.path
    except (OSError, PathEscape) as error:
        raise ConfigError(f"{folder} cannot be signed: {error}") from error


def _read(path: str) -> bytes:
    try:
        return read_trusted(path)
    except ConfigError as error:
        raise ConfigError(str(error).removesuffix("; trusted_signers names it")) from error
