"""Keys and certificates that are made for a test, and the signing tool of others."""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

PEM, PKCS8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8


class Keypair(NamedTuple):
    """A key, and the files of its two halves."""

    key: ec.EllipticCurvePrivateKey
    private: Path
    public: Path


def make_key(
    folder: Path, name: str, *, curve: ec.EllipticCurve | None = None, password: bytes = b""
) -> Keypair:
    key = ec.generate_private_key(curve or ec.SECP256R1())
    locked: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password:
        locked = serialization.BestAvailableEncryption(password)
    private, public = folder / f"{name}.pem", folder / f"{name}.pub"
    private.write_bytes(key.private_bytes(PEM, PKCS8, locked))
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(PEM, form))
    return Keypair(key, private, public)


class Authority:
    """A root certificate, and what it issues."""

    def __init__(self, folder: Path, name: str = "Root", *, days: int = 30) -> None:
        self.folder, self.key = folder, make_key(folder, name)
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self.make(self.name, self.key, days=days, authority=True)
        self.root = folder / f"{name}.crt"
        self.root.write_bytes(self.certificate.public_bytes(PEM))

    def make(
        self,
        subject: x509.Name,
        pair: Keypair,
        *,
        days: int,
        authority: bool = False,
        email: str = "",
        uses: Iterable[ObjectIdentifier] = (),
    ) -> x509.Certificate:
        """Return a certificate for a key."""
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(pair.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=90))
            .not_valid_after(now + timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        usage: dict[str, Any] = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
             "encipher_only", "decipher_only", "crl_sign"), False
        )  # fmt: skip
        made = made.add_extension(
            x509.KeyUsage(digital_signature=not authority, key_cert_sign=authority, **usage), True
        )
        if email:
            made = made.add_extension(
                x509.SubjectAlternativeName([x509.RFC822Name(email)]), critical=False
            )
        if uses:
            made = made.add_extension(x509.ExtendedKeyUsage(list(uses)), critical=False)
        return made.sign(self.key.key, hashes.SHA256())

    def issue(
        self,
        name: str,
        *,
        days: int = 30,
        authority: bool = False,
        uses: Iterable[ObjectIdentifier] = (ExtendedKeyUsageOID.CODE_SIGNING,),
    ) -> tuple[Keypair, Path]:
        """Return a key and the file of its certificate, with that of the root behind it."""
        pair = make_key(self.folder, name)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        email = f"{name}@example.com"
        made = self.make(subject, pair, days=days, authority=authority, email=email, uses=uses)
        chain = self.folder / f"{name}.chain"
        chain.write_bytes(made.public_bytes(PEM) + self.root.read_bytes())
        return pair, chain


_DRIVER = """
import contextlib, io, json, sys
from model_signing._cli import main
for line in sys.stdin:
    said, code = io.StringIO(), 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(json.loads(line), prog_name="model_signing")
        except SystemExit as end:
            code = end.code or 0
    print(json.dumps([code, said.getvalue()]), flush=True)
"""


@cache
def _peer() -> subprocess.Popen[str]:
    """Start the tool once for all tests of a worker: it takes seconds to load."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _DRIVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(process.kill)
    return process


def run_peer(*words: str | Path) -> tuple[int, str]:
    """Run `model_signing`, the tool of OpenSSF; return its exit code and what it said."""
    peer = _peer()
    assert peer.stdin is not None
    assert peer.stdout is not None
    peer.stdin.write(json.dumps([*map(str, words)]) + "\n")
    peer.stdin.flush()
    code, said = json.loads(peer.stdout.readline())
    return int(code), str(said)
