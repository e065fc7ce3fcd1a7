"""The cryptography of signatures by keys and certificates. Needs the extra `signing`.

What `model-signing` 1.1.1 accepts and this does not: a certificate that expired, one of any
authority of the system, one for another use, files that the signer left out, and the form from
before its version 1.0.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID

from skillbelt.errors import ConfigError
from skillbelt.install.signature_file import (
    BUNDLE_TYPE,
    PAYLOAD_TYPE,
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    SignatureBundle,
    SignatureFault,
    SkillSigner,
)
from skillbelt.text import one_line, shorten

_HASHES = {256: hashes.SHA256(), 384: hashes.SHA384(), 521: hashes.SHA512()}
_MAX_DEPTH = 8


def encode_payload(payload: bytes) -> bytes:
    """Return what is signed, by DSSE version 1."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def key_identity(key: ec.EllipticCurvePublicKey) -> str:
    """Return the SHA-256 of a public key in DER, as `sha256:` and hex digits."""
    der = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


def _hash_pem(key: ec.EllipticCurvePublicKey) -> str:
    """Return what a bundle says of the key that made it: the SHA-256 of its PEM."""
    pem = key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(pem).hexdigest()


def _choose_algorithm(key: object) -> ec.ECDSA:
    """Return how a key signs; ValueError for a key that the format does not know."""
    if not isinstance(key, ec.EllipticCurvePublicKey | ec.EllipticCurvePrivateKey):
        raise ValueError("is not an elliptic curve key")
    if key.curve.name not in ("secp256r1", "secp384r1", "secp521r1"):
        raise ValueError(f"is on the curve {key.curve.name}; P-256, P-384 and P-521 are known")
    return ec.ECDSA(_HASHES[key.key_size])


def _check_bytes(bundle: SignatureBundle, key: ec.EllipticCurvePublicKey, whose: str) -> None:
    try:
        key.verify(bundle.signature, encode_payload(bundle.payload), _choose_algorithm(key))
    except InvalidSignature:
        raise SignatureFault(f"was not made by {whose}, or its list of files was changed") from None


# --- verifying -----------------------------------------------------------------------------------


def load_public_key(data: bytes) -> ec.EllipticCurvePublicKey:
    """Return a public key of PEM text; ConfigError for anything else."""
    try:
        key = serialization.load_pem_public_key(data)
        _choose_algorithm(key)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"a trusted key is not one in PEM that can be used: {error}") from error
    assert isinstance(key, ec.EllipticCurvePublicKey)
    return key


def verify_key(bundle: SignatureBundle, pem: bytes) -> SkillSigner:
    """Return the signer if the trusted key made the signature; SignatureFault otherwise."""
    key = load_public_key(pem)
    if bundle.hint and bundle.hint != _hash_pem(key):
        other = f"was made by another key than the trusted {key_identity(key)}"
        raise SignatureFault(other, unknown=True)
    _check_bytes(bundle, key, f"the key {key_identity(key)}")
    return SkillSigner("key", key_identity(key))


def verify_certificate(
    bundle: SignatureBundle,
    roots: bytes,
    *,
    identity: str = "",
    issuer: str = "",
    now: datetime | None = None,
) -> SkillSigner:
    """Return the signer if a certificate of these roots made the signature.

    The certificates must be valid now: nothing in the file proves an earlier time.
    """
    try:
        store = verification.Store(x509.load_pem_x509_certificates(roots))
    except ValueError as error:
        raise ConfigError(f"trusted certificates are not certificates in PEM: {error}") from error
    try:
        own, *between = map(x509.load_der_x509_certificate, bundle.certificates)
        key = own.public_key()
        _choose_algorithm(key)
        names = _list_names(own)
        by = own.issuer.rfc4514_string()
        _check_use(own)
    except (ValueError, UnsupportedAlgorithm, x509.DuplicateExtension) as error:
        raise SignatureFault(f"has a certificate that {_describe_error(error)}") from error
    _check_chain(own, between, store, now or datetime.now(UTC))
    assert isinstance(key, ec.EllipticCurvePublicKey)
    _check_bytes(bundle, key, "the key of its certificate")
    if identity and identity not in names:
        other = f"was made by {one_line(names[0])}, not by {one_line(identity)}"
        raise SignatureFault(other, unknown=True)
    if issuer and issuer != by:
        other = f"has a certificate that was issued by {one_line(by)}, not by {one_line(issuer)}"
        raise SignatureFault(other, unknown=True)
    return SkillSigner("certificate", identity or names[0], by)


def _describe_error(error: Exception) -> str:
    return shorten(one_line(str(error) or type(error).__name__), 200)


def _list_names(certificate: x509.Certificate) -> list[str]:
    """Return the names of a certificate: the alternative ones, then the subject."""
    found: list[str] = []
    try:
        listed = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        for kind in (x509.RFC822Name, x509.UniformResourceIdentifier, x509.DNSName):
            found += listed.get_values_for_type(kind)
    except x509.ExtensionNotFound:
        pass
    subject = certificate.subject.rfc4514_string()
    found += [subject] if subject else []
    if not found:
        raise ValueError("names no one")
    return found


def _check_use(certificate: x509.Certificate) -> None:
    """Raise ValueError for a certificate that was not issued for signing code."""
    extensions = certificate.extensions
    signs = False
    try:
        if not extensions.get_extension_for_class(x509.KeyUsage).value.digital_signature:
            raise ValueError("may not be used for signatures (KeyUsage)")
        signs = True
    except x509.ExtensionNotFound:
        pass
    try:
        uses = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        wanted = (ExtendedKeyUsageOID.CODE_SIGNING, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE)
        if not any(one in uses for one in wanted):
            raise ValueError("was issued for another use than signing code (ExtendedKeyUsage)")
    except x509.ExtensionNotFound:
        if not signs:
            raise ValueError("says nothing of signatures (KeyUsage)") from None


def _check_authority(
    policy: verification.Policy, certificate: x509.Certificate, constraints: x509.BasicConstraints
) -> None:
    if not constraints.ca:
        raise ValueError("is not an authority")


def _check_chain(
    own: x509.Certificate,
    between: Sequence[x509.Certificate],
    store: verification.Store,
    now: datetime,
) -> None:
    """Raise SignatureFault unless the certificate leads to a root, each valid at the time."""
    start, end = own.not_valid_before_utc, own.not_valid_after_utc
    if not start <= now <= end:
        when = f"expired on {end:%Y-%m-%d}" if now > end else f"is not valid before {start}"
        raise SignatureFault(f"has a certificate that {when}")
    authority = verification.ExtensionPolicy.permit_all().require_present(
        x509.BasicConstraints, verification.Criticality.AGNOSTIC, _check_authority
    )
    try:
        verifier = (
            verification.PolicyBuilder()
            .store(store)
            .time(now.replace(tzinfo=None))
            .max_chain_depth(_MAX_DEPTH)
            .extension_policies(
                ca_policy=authority, ee_policy=verification.ExtensionPolicy.permit_all()
            )
            .build_client_verifier()
        )
        verifier.verify(own, list(between))
    except (verification.VerificationError, ValueError, UnsupportedAlgorithm) as error:
        raise SignatureFault(
            f"has a certificate that does not lead to a trusted one: {_describe_error(error)}",
            unknown=True,
        ) from error


# --- signing -------------------------------------------------------------------------------------


def make_statement(name: str, files: Iterable[tuple[str, str]], ignored: Iterable[str]) -> bytes:
    """Return the statement about files, each a path and its SHA-256, as JSON."""
    listed = sorted(files)
    over = hashlib.sha256(b"".join(bytes.fromhex(digest) for _, digest in listed))
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": over.hexdigest()}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "serialization": {
                "method": "files",
                "hash_type": "sha256",
                "allow_symlinks": False,
                "ignore_paths": sorted(ignored),
            },
            "resources": [
                {"name": path, "algorithm": "sha256", "digest": digest} for path, digest in listed
            ],
        },
    }
    return json.dumps(statement, indent=2).encode()


def load_private_key(data: bytes, password: Callable[[], bytes]) -> ec.EllipticCurvePrivateKey:
    """Return a private key of PEM text; the password is asked for only if there is one."""
    try:
        try:
            key = serialization.load_pem_private_key(data, None)
        except TypeError:
            key = serialization.load_pem_private_key(data, password())
        _choose_algorithm(key)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"the key cannot be used: {_describe_error(error)}; `openssl ecparam "
            "-name prime256v1 -genkey -noout -out key.pem` makes one"
        ) from error
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


def sign_with_key(statement: bytes, key: ec.EllipticCurvePrivateKey) -> tuple[bytes, SkillSigner]:
    """Return the signature file, and who signed."""
    public = key.public_key()
    material = {"publicKey": {"hint": _hash_pem(public)}, "tlogEntries": []}
    return _make_bundle(statement, key, material), SkillSigner("key", key_identity(public))


def sign_with_certificate(
    statement: bytes, key: ec.EllipticCurvePrivateKey, chain: bytes
) -> tuple[bytes, SkillSigner]:
    """Return the signature file with a chain of certificates in it, the key's own first."""
    try:
        certificates = x509.load_pem_x509_certificates(chain)
        own = certificates[0]
        if own.public_key() != key.public_key():
            raise ValueError("the first one is not that of the key")
        _check_use(own)
        now = datetime.now(UTC)
        if not own.not_valid_before_utc <= now <= own.not_valid_after_utc:
            raise ValueError(f"it is valid until {own.not_valid_after_utc:%Y-%m-%d} only")
        names = _list_names(own)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"the certificates cannot be used: {_describe_error(error)}") from error
    der = [one.public_bytes(serialization.Encoding.DER) for one in certificates]
    listed = [{"rawBytes": base64.b64encode(one).decode()} for one in der]
    material = {"x509CertificateChain": {"certificates": listed}, "tlogEntries": []}
    signer = SkillSigner("certificate", names[0], own.issuer.rfc4514_string())
    return _make_bundle(statement, key, material), signer


def _make_bundle(
    statement: bytes, key: ec.EllipticCurvePrivateKey, material: dict[str, Any]
) -> bytes:
    signature = key.sign(encode_payload(statement), _choose_algorithm(key))
    bundle = {
        "mediaType": BUNDLE_TYPE,
        "verificationMaterial": material,
        "dsseEnvelope": {
            "payload": base64.b64encode(statement).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"sig": base64.b64encode(signature).decode(), "keyid": ""}],
        },
    }
    return json.dumps(bundle).encode()
