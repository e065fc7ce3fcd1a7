"""The file of a signature, `skill.oms.sig`: read with bounds, and compared with what is installed.

It is hostile like every other file of a skill. What it says counts only if the signed list is
exactly the files that are there: the signer's list of ignored files is not used.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from skillbelt.errors import PathEscape, SourceError
from skillbelt.files.contain import READ_FILE, open_beneath, open_folder, read_handle
from skillbelt.files.tree import MAX_MANIFEST_FILES
from skillbelt.install.hashes import FolderHashes
from skillbelt.late import Late
from skillbelt.records import NamedTuple
from skillbelt.source_rules import SigningMethod
from skillbelt.text import Lazy, one_line, shorten
from skillbelt.untrusted_json import BadJson, read_json

if TYPE_CHECKING:
    import base64
    import binascii
else:  # cost: 1 ms, only for signed skills
    base64, binascii = Late("base64"), Late("binascii")

SIGNATURE_FILE = "skill.oms.sig"
MAX_SIGNATURE_BYTES = 8 * 2**20
_ONE_MORE = MAX_SIGNATURE_BYTES + 1
MAX_CERTIFICATES = 16
BUNDLE_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://model_signing/signature/v1.0"
_SHA256 = Lazy(r"[0-9a-f]{64}\Z")
_SHOWN = 5


class SignatureFault(SourceError):
    """A signature that does not hold; the reason names the file or the field.

    `unknown` says that it may be right, and is by another signer than the one that was asked for.
    """

    def __init__(self, reason: str, *, unknown: bool = False) -> None:
        super().__init__(SIGNATURE_FILE, reason)
        self.unknown = unknown


class SkillSigner(NamedTuple):
    """The signer of a skill, as a lock records it.

    `identity` is the SHA-256 of a public key, the name in a certificate or a Sigstore identity;
    `issuer` is who vouches for the name.
    """

    method: SigningMethod
    identity: str
    issuer: str = ""

    @property
    def text(self) -> str:
        """The signer on one line that is safe to show."""
        by = f" (by {self.issuer})" if self.issuer else ""
        return one_line(f"{self.method} {self.identity}{by}")

    def as_provenance(self) -> dict[str, str]:
        """Return the object that a lock has."""
        made = {"method": self.method, "identity": self.identity}
        return made | ({"issuer": self.issuer} if self.issuer else {})


class SignatureBundle(NamedTuple):
    """A signature file, parsed. `certificates` are DER, the signer's own first."""

    method: SigningMethod
    payload: bytes
    signature: bytes
    hint: str = ""
    certificates: tuple[bytes, ...] = ()
    data: bytes = b""


def signer_of(provenance: Mapping[str, object]) -> SkillSigner | None:
    """Return the signer that a lock's `provenance` records; None without one that is whole."""
    written = provenance.get("signer")
    if not isinstance(written, Mapping):
        return None
    method, identity = written.get("method"), written.get("identity")
    issuer = written.get("issuer", "")
    if method not in ("key", "certificate", "sigstore") or not isinstance(identity, str):
        return None
    if not identity or not isinstance(issuer, str):
        return None
    return SkillSigner(method, identity, issuer)


# --- reading -------------------------------------------------------------------------------------


def read_signature(folder: str) -> bytes | None:
    """Return the bytes of a skill's signature; None without one. SignatureFault for no file."""
    try:
        handle = open_folder(folder)
        try:
            data = read_handle(open_beneath(handle, SIGNATURE_FILE, READ_FILE), _ONE_MORE)
        finally:
            os.close(handle)
    except FileNotFoundError:
        return None
    except (OSError, PathEscape) as error:
        raise SignatureFault("is not a plain file") from error
    if len(data) > MAX_SIGNATURE_BYTES:
        raise SignatureFault(f"has more than {MAX_SIGNATURE_BYTES:,} bytes")
    return data


def parse_bundle(data: bytes) -> SignatureBundle:
    """Parse a signature file; SignatureFault names the field that is wrong."""
    try:
        document = read_json(data, most=MAX_SIGNATURE_BYTES, unique=True)
    except BadJson as error:
        raise SignatureFault(f"is not JSON: {error}") from error
    document = _read_object(document, "the document")
    if document.get("mediaType") != BUNDLE_TYPE:
        raise _make_fault("mediaType", f"is not {BUNDLE_TYPE}")
    material = _read_object(document.get("verificationMaterial"), "verificationMaterial")
    envelope = _read_object(document.get("dsseEnvelope"), "dsseEnvelope")
    if envelope.get("payloadType") != PAYLOAD_TYPE:
        raise _make_fault("dsseEnvelope.payloadType", f"is not {PAYLOAD_TYPE}")
    signatures = envelope.get("signatures")
    if not isinstance(signatures, list) or len(signatures) != 1:
        raise _make_fault("dsseEnvelope.signatures", "is not a list of one")
    signature = _read_object(signatures[0], "dsseEnvelope.signatures[0]")
    method, hint, certificates = _read_material(material)
    return SignatureBundle(
        method=method,
        payload=_read_bytes(envelope.get("payload"), "dsseEnvelope.payload"),
        signature=_read_bytes(signature.get("sig"), "dsseEnvelope.signatures[0].sig"),
        hint=hint,
        certificates=certificates,
        data=data,
    )


def _read_material(material: dict[str, Any]) -> tuple[SigningMethod, str, tuple[bytes, ...]]:
    kinds = ("publicKey", "x509CertificateChain", "certificate")
    found = [kind for kind in kinds if material.get(kind) is not None]
    if len(found) != 1:
        raise _make_fault("verificationMaterial", f"has not exactly one of {', '.join(kinds)}")
    where = f"verificationMaterial.{found[0]}"
    value = _read_object(material[found[0]], where)
    if found[0] == "publicKey":
        hint = value.get("hint") or ""
        if not isinstance(hint, str):
            raise _make_fault(f"{where}.hint", "is not text")
        return "key", hint, ()
    if found[0] == "certificate":
        return "sigstore", "", (_read_bytes(value.get("rawBytes"), f"{where}.rawBytes"),)
    listed = value.get("certificates")
    if not isinstance(listed, list) or not 0 < len(listed) <= MAX_CERTIFICATES:
        raise _make_fault(f"{where}.certificates", f"is not a list of 1 to {MAX_CERTIFICATES}")
    return (
        "certificate",
        "",
        tuple(
            _read_bytes(_read_object(one, where).get("rawBytes"), f"{where}.certificates[{number}]")
            for number, one in enumerate(listed)
        ),
    )


def _read_object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _make_fault(where, "is not an object")
    return value


def _read_bytes(value: object, where: str) -> bytes:
    try:
        data = base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except (binascii.Error, ValueError) as error:
        raise _make_fault(where, "is not base64") from error
    if not data:
        raise _make_fault(where, "is empty or not a text")
    return data


def _make_fault(where: str, reason: str) -> SignatureFault:
    return SignatureFault(f"{where} {reason}")


def signed_files(payload: bytes) -> dict[str, str]:
    """Return the files that a statement covers, each with its SHA-256; SignatureFault otherwise."""
    try:
        statement = read_json(payload, most=MAX_SIGNATURE_BYTES, unique=True)
    except BadJson as error:
        raise _make_fault("the statement", f"is not JSON: {error}") from error
    statement = _read_object(statement, "the statement")
    for key, wanted in (("_type", STATEMENT_TYPE), ("predicateType", PREDICATE_TYPE)):
        if statement.get(key) != wanted:
            raise _make_fault(f"the statement's {key}", f"is not {wanted}")
    predicate = _read_object(statement.get("predicate"), "predicate")
    how = _read_object(predicate.get("serialization"), "predicate.serialization")
    if (how.get("method"), how.get("hash_type")) != ("files", "sha256"):
        raise _make_fault("predicate.serialization", "is not one SHA-256 for each file")
    listed = predicate.get("resources")
    if not isinstance(listed, list) or len(listed) > MAX_MANIFEST_FILES:
        raise _make_fault("predicate.resources", f"is not a list of at most {MAX_MANIFEST_FILES:,}")
    files: dict[str, str] = {}
    over = hashlib.sha256()
    for number, one in enumerate(listed):
        name, digest = _read_resource(one, f"predicate.resources[{number}]")
        if name in files:
            raise _make_fault(f"predicate.resources[{number}]", f"names {one_line(name)!r} again")
        files[name] = digest
        over.update(bytes.fromhex(digest))
    if _read_subject(statement.get("subject")) != over.hexdigest():
        raise _make_fault("subject", "is not the hash of the resources")
    return files


def _read_resource(one: object, where: str) -> tuple[str, str]:
    resource = _read_object(one, where)
    name, digest = resource.get("name"), resource.get("digest")
    if not isinstance(name, str) or not name:
        raise _make_fault(f"{where}.name", "is not text")
    if resource.get("algorithm") != "sha256" or not isinstance(digest, str):
        raise _make_fault(where, "has no SHA-256")
    if not _SHA256.match(digest):
        raise _make_fault(f"{where}.digest", "is not a SHA-256")
    return name, digest


def _read_subject(subject: object) -> object:
    if not isinstance(subject, list) or len(subject) != 1:
        raise _make_fault("subject", "is not a list of one")
    return _read_object(
        _read_object(subject[0], "subject[0]").get("digest"), "subject[0].digest"
    ).get("sha256")


# --- comparing -----------------------------------------------------------------------------------


def compare_signed(signed: Mapping[str, str], hashes: FolderHashes) -> None:
    """Raise SignatureFault, by the names of files, unless exactly what is there was signed."""
    links = [file.path for file in hashes.files if file.kind == "link"]
    if links:
        raise SignatureFault(f"covers no links, and the skill has {_join_names(links)}")
    if hashes.problems:
        raise SignatureFault(f"cannot cover {_join_names(one.path for one in hashes.problems)}")
    found = {file.path: file.sha256 for file in hashes.files if file.path != SIGNATURE_FILE}
    for what, paths in (
        ("does not cover", found.keys() - signed.keys()),
        ("covers files that are not there:", signed.keys() - found.keys()),
        (
            "was made for another content of",
            {path for path in found.keys() & signed.keys() if found[path] != signed[path]},
        ),
    ):
        if paths:
            raise SignatureFault(f"{what} {_join_names(paths)}")


def check_same(data: bytes, hashes: FolderHashes) -> None:
    """Raise SignatureFault if the file is not the one that was hashed."""
    hashed = next((one.sha256 for one in hashes.files if one.path == SIGNATURE_FILE), "")
    if hashlib.sha256(data).hexdigest() != hashed:
        raise SignatureFault("is a link, or changed while it was read")


def _join_names(paths: Iterable[str]) -> str:
    listed = sorted(paths)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(shorten(one_line(path), 120) for path in listed[:_SHOWN]) + more
