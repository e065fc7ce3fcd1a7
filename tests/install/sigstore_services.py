"""What Sigstore runs, made for a test: an authority, a log of certificates, a log of signatures.

Each has a key of its own, and all are named in one trust root, the file that a verifier reads.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

SCT_LIST = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
ISSUER = ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
START = datetime.now(UTC).replace(microsecond=0) - timedelta(days=400)
_ORIGIN = "log.example - 1"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def der(kind: bytes, data: bytes) -> bytes:
    """Return octets (4) or another value of ASN.1."""
    long = b"\x81" if len(data) > 127 else b""
    return kind + long + bytes([len(data)]) + data


class Service:
    """A key, and the id that others know it by."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        form = PublicFormat.SubjectPublicKeyInfo
        self.public = self.key.public_key().public_bytes(Encoding.DER, form)
        self.id = hashlib.sha256(self.public).digest()

    def sign(self, data: bytes) -> bytes:
        return self.key.sign(data, ec.ECDSA(hashes.SHA256()))

    def describe(self, url: str) -> dict[str, Any]:
        return {
            "baseUrl": url,
            "hashAlgorithm": "SHA2_256",
            "publicKey": {
                "rawBytes": encoded(self.public),
                "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                "validFor": {"start": f"{START - timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"},
            },
            "logId": {"keyId": encoded(self.id)},
        }


class SigstoreServices:
    """All of them; `root` is the file that names them."""

    def __init__(self, folder: Path, start: datetime = START) -> None:
        self.start, self.signed = start, start + timedelta(minutes=5)
        self.authority, self.certificates, self.signatures = Service(), Service(), Service()
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        self._top = self._certify(self.authority.key.public_key(), "", "", ())
        self.root = folder / "trusted-root.json"
        since = f"{START - timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"
        chain = {"certificates": [{"rawBytes": encoded(self._top.public_bytes(Encoding.DER))}]}
        document = {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [self.signatures.describe("https://log.example")],
            "certificateAuthorities": [
                {
                    "subject": {"organization": "example", "commonName": "authority"},
                    "uri": "https://authority.example",
                    "certChain": chain,
                    "validFor": {"start": since},
                }
            ],
            "ctlogs": [self.certificates.describe("https://certificates.example")],
        }
        self.document = document
        self.root.write_text(json.dumps(document))
        # The file that `model_signing` takes has the trust root, and where to sign.
        self.config = folder / "trust-config.json"
        signing = {
            "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
            "caUrls": [],
            "oidcUrls": [],
            "rekorTlogUrls": [],
            "rekorTlogConfig": {"selector": "ANY"},
            "tsaUrls": [],
            "tsaConfig": {"selector": "ANY"},
        }
        both = {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": document,
            "signingConfig": signing,
        }
        self.config.write_text(json.dumps(both))

    def certify(
        self, key: ec.EllipticCurvePublicKey, identity: str, issuer: str
    ) -> x509.Certificate:
        """Return a certificate of ten minutes for an identity, with the receipt of the log."""
        before = self._certify(key, identity, issuer, ())
        when = int(self.signed.timestamp() * 1000)
        tbs = before.tbs_certificate_bytes
        entry = self.authority.id + struct.pack("!I", len(tbs))[1:] + tbs
        signature = self.certificates.sign(
            struct.pack("!BBQH", 0, 0, when, 1) + entry + struct.pack("!H", 0)
        )
        receipt = b"\0" + self.certificates.id + struct.pack("!QH", when, 0)
        receipt += struct.pack("!BBH", 4, 3, len(signature)) + signature
        listed = struct.pack("!HH", len(receipt) + 2, len(receipt)) + receipt
        more = (x509.UnrecognizedExtension(SCT_LIST, der(b"\x04", listed)),)
        return self._certify(key, identity, issuer, more, serial=before.serial_number)

    def _certify(
        self,
        key: ec.EllipticCurvePublicKey,
        identity: str,
        issuer: str,
        more: tuple[x509.UnrecognizedExtension, ...],
        *,
        serial: int = 0,
    ) -> x509.Certificate:
        is_top = not identity
        made = (
            x509.CertificateBuilder()
            .subject_name(self._name if is_top else x509.Name([]))
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(serial or x509.random_serial_number())
            .not_valid_before(START - timedelta(days=1) if is_top else self.start)
            .not_valid_after(
                START + timedelta(days=900) if is_top else self.start + timedelta(minutes=10)
            )
        )
        usage: dict[str, Any] = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
             "encipher_only", "decipher_only"), False
        )  # fmt: skip
        made = made.add_extension(
            x509.KeyUsage(
                digital_signature=not is_top, key_cert_sign=is_top, crl_sign=is_top, **usage
            ),
            critical=True,
        )
        public = self.authority.key.public_key()
        if is_top:
            made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), False)
        else:
            name = x509.SubjectAlternativeName([x509.RFC822Name(identity)])
            made = made.add_extension(name, critical=True)
            uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING])
            made = made.add_extension(uses, critical=False)
            above = x509.AuthorityKeyIdentifier.from_issuer_public_key(public)
            made = made.add_extension(above, critical=False)
            login = x509.UnrecognizedExtension(ISSUER, issuer.encode())
            made = made.add_extension(login, critical=False)
        for one in more:
            made = made.add_extension(one, critical=False)
        return made.sign(self.authority.key, hashes.SHA256())

    def notarize(self, bundle: dict[str, Any], certificate: x509.Certificate) -> None:
        """Put a certificate and the receipt of the log into a bundle, in place of a key."""
        envelope = bundle["dsseEnvelope"]
        payload = base64.b64decode(envelope["payload"])
        pem = encoded(certificate.public_bytes(Encoding.PEM))
        body = {
            "apiVersion": "0.0.1",
            "kind": "dsse",
            "spec": {
                "envelopeHash": {"algorithm": "sha256", "value": "0" * 64},
                "payloadHash": {
                    "algorithm": "sha256", "value": hashlib.sha256(payload).hexdigest(),
                },
                "signatures": [
                    {"signature": one["sig"], "verifier": pem} for one in envelope["signatures"]
                ],
            },
        }  # fmt: skip
        data = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
        time = int(self.signed.timestamp())
        promise = {
            "body": encoded(data), "integratedTime": time,
            "logID": self.signatures.id.hex(), "logIndex": 0,
        }  # fmt: skip
        promised = json.dumps(promise, sort_keys=True, separators=(",", ":")).encode()
        root = hashlib.sha256(b"\0" + data).digest()  # of a log with one entry
        note = f"{_ORIGIN}\n1\n{encoded(root)}\n"
        signed = encoded(self.signatures.id[:4] + self.signatures.sign(note.encode()))
        bundle["verificationMaterial"] = {
            "certificate": {"rawBytes": encoded(certificate.public_bytes(Encoding.DER))},
            "tlogEntries": [
                {
                    "logIndex": "0",
                    "logId": {"keyId": encoded(self.signatures.id)},
                    "kindVersion": {"kind": "dsse", "version": "0.0.1"},
                    "integratedTime": str(time),
                    "inclusionPromise": {
                        "signedEntryTimestamp": encoded(self.signatures.sign(promised))
                    },
                    "inclusionProof": {
                        "logIndex": "0",
                        "rootHash": encoded(root),
                        "treeSize": "1",
                        "hashes": [],
                        "checkpoint": {"envelope": f"{note}\n\u2014 log.example {signed}\n"},
                    },
                    "canonicalizedBody": encoded(data),
                }
            ],
        }
