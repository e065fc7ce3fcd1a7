"""Find the trusted signer of a skill.

The cryptography is in `signature_crypto`, which needs an extra.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Literal

from skillbelt.errors import ConfigError, MissingExtra
from skillbelt.files.contain import open_file, read_handle
from skillbelt.install.hashes import FolderHashes
from skillbelt.install.signature_file import (
    SIGNATURE_FILE,
    SignatureBundle,
    SignatureFault,
    SkillSigner,
    check_same,
    compare_signed,
    parse_bundle,
    read_signature,
    signed_files,
)
from skillbelt.records import NamedTuple
from skillbelt.source_rules import TrustedSigner

MAX_TRUST_BYTES = 2**20
SignatureState = Literal["unsigned", "trusted", "unknown", "bad"]
_MEANS = {"key": "key", "certificate": "certificate", "sigstore": "Sigstore identity"}


class SignatureCheck(NamedTuple):
    """The verified state of a skill's signature. `reason` says why it is not trusted."""

    state: SignatureState
    signer: SkillSigner | None = None
    reason: str = ""


def check_signature(
    folder: str, hashes: FolderHashes, trusted: Sequence[TrustedSigner]
) -> SignatureCheck:
    """Say who signed the files of a skill's folder, of those that are trusted.

    `hashes` are those of the folder. The paths of the trusted signers are absolute. ConfigError for
    a file of theirs that cannot be used.
    """
    try:
        data = read_signature(folder)
        if data is None:
            return SignatureCheck("unsigned", reason=f"there is no {SIGNATURE_FILE}")
        check_same(data, hashes)
        bundle = parse_bundle(data)
        compare_signed(signed_files(bundle.payload), hashes)
    except SignatureFault as error:
        return SignatureCheck("bad", reason=f"{SIGNATURE_FILE} {error.reason}")
    said = [one for one in trusted if one.method == bundle.method]
    if not said:
        return SignatureCheck(
            "unknown",
            reason=f"{SIGNATURE_FILE} is by a {_MEANS[bundle.method]}, and no such signer is "
            "trusted for this source",
        )
    reasons = []
    unknown = True
    for one in said:
        try:
            return SignatureCheck("trusted", verify_bundle(bundle, one))
        except SignatureFault as error:
            reasons.append(error.reason)
            unknown = unknown and error.unknown
    return SignatureCheck(
        "unknown" if unknown else "bad",
        reason=f"{SIGNATURE_FILE} {'; '.join(dict.fromkeys(reasons))}",
    )


def verify_bundle(bundle: SignatureBundle, trusted: TrustedSigner) -> SkillSigner:
    """Return the signer if a trusted signer signed the bundle; SignatureFault otherwise."""
    crypto = load_crypto("verifying a signature")
    signer: SkillSigner
    if trusted.method == "key":
        signer = crypto.verify_key(bundle, read_trusted(trusted.value))
    elif trusted.method == "certificate":
        signer = crypto.verify_certificate(
            bundle,
            read_trusted(trusted.value),
            identity=trusted.identity,
            issuer=trusted.issuer,
        )
    else:
        signer = load_sigstore("verifying a Sigstore signature").verify_sigstore(bundle, trusted)
    return signer


def read_trusted(path: str) -> bytes:
    """Return the bytes of a key or of certificates that the user names; ConfigError otherwise."""
    try:
        data = read_handle(open_file(path), MAX_TRUST_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read: {error.strerror or error}; trusted_signers names it"
        ) from error
    if len(data) > MAX_TRUST_BYTES:
        raise ConfigError(f"{path}: has more than {MAX_TRUST_BYTES:,} bytes")
    return data


def load_crypto(purpose: str) -> ModuleType:
    """Return the module that signs and verifies; MissingExtra where its packages are missing."""
    try:
        from skillbelt.install import signature_crypto  # extra: signing
    except ImportError as error:
        raise MissingExtra("signing", purpose) from error
    return signature_crypto


def load_sigstore(purpose: str) -> ModuleType:
    """Return the module for Sigstore; MissingExtra where its packages are missing."""
    try:
        from skillbelt.install import signature_sigstore  # extra: signing
    except ImportError as error:
        raise MissingExtra("signing", purpose) from error
    return signature_sigstore
