"""Sigstore's services on loopback: they certify an identity, log a signature and date it.

The log has the interface of Rekor 2, which gives no time: that is what the authority for timestamps
(RFC 3161) is for. `openssl ts` signs the timestamps.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.install.sigstore_services import START, SigstoreServices, encoded

ISSUER = "https://login.example"
_ORIGIN = "log.example"


def token(identity: str) -> str:
    """Return what a login gives: nothing on loopback looks at its signature."""
    now = int(datetime.now(UTC).timestamp())
    claims = {"aud": "sigstore", "sub": identity, "iss": ISSUER, "iat": now, "exp": now + 600}
    parts = ({"alg": "HS256", "typ": "JWT"}, claims)
    texts = [base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in parts]
    return b".".join((*texts, b"c2lnbmF0dXJl")).decode()


class LiveSigstore(SigstoreServices):
    """The services; `config` names them and how to reach them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=5))
        self.folder = folder
        self._make_clock()

    def _make_clock(self) -> None:
        """Make the key and the certificate of the authority for timestamps."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "clock")])
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(START)
            .not_valid_after(START + timedelta(days=800))
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING]), True)
            .sign(self.authority.key, hashes.SHA256())
        )
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (self.folder / "clock.key").write_bytes(private)
        (self.folder / "clock.pem").write_bytes(made.public_bytes(Encoding.PEM))
        (self.folder / "clock.conf").write_text(
            "[tsa]\ndefault_tsa = one\n[one]\n"
            f"serial = {self.folder}/clock.serial\nsigner_cert = {self.folder}/clock.pem\n"
            f"signer_key = {self.folder}/clock.key\nsigner_digest = sha256\n"
            "default_policy = 1.2.3.4\ndigests = sha256\nordering = no\naccuracy = secs:1\n"
        )
        chain = [made, self._top]
        self.document["timestampAuthorities"] = [
            {
                "subject": {"organization": "example", "commonName": "clock"},
                "uri": "https://clock.example",
                "certChain": {
                    "certificates": [
                        {"rawBytes": encoded(one.public_bytes(Encoding.DER))} for one in chain
                    ]
                },
                "validFor": {"start": f"{START:%Y-%m-%dT%H:%M:%SZ}"},
            }
        ]
        self.root.write_text(json.dumps(self.document))

    def write_config(self, url: str) -> None:
        """Write the file that names the services at an address."""
        since = {"start": f"{START:%Y-%m-%dT%H:%M:%SZ}"}

        def service(path: str, version: int) -> list[dict[str, Any]]:
            return [
                {
                    "url": f"{url}{path}",
                    "majorApiVersion": version,
                    "validFor": since,
                    "operator": "example",
                }
            ]

        signing = {
            "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
            "caUrls": service("", 1),
            "oidcUrls": service("", 1),
            "rekorTlogUrls": service("", 2),
            "rekorTlogConfig": {"selector": "ANY"},
            "tsaUrls": service("/timestamp", 1),
            "tsaConfig": {"selector": "ANY"},
        }
        both = {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": self.document,
            "signingConfig": signing,
        }
        self.config.write_text(json.dumps(both))

    def answer(self, path: str, data: bytes, authorization: str) -> bytes:
        """Return what a service answers."""
        if path == "/api/v2/signingCert":
            return self._certify_request(json.loads(data), authorization)
        if path == "/api/v2/log/entries":
            return self._log(json.loads(data)["hashedRekordRequestV002"])
        return self._date(data)

    def _certify_request(self, request: dict[str, Any], authorization: str) -> bytes:
        wanted = x509.load_pem_x509_csr(base64.b64decode(request["certificateSigningRequest"]))
        middle = authorization.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
        key: Any = wanted.public_key()
        made = self.certify(key, claims["sub"], claims["iss"])
        chain = [one.public_bytes(Encoding.PEM).decode() for one in (made, self._top)]
        return json.dumps(
            {"signedCertificateEmbeddedSct": {"chain": {"certificates": chain}}}
        ).encode()

    def _log(self, request: dict[str, Any]) -> bytes:
        record = {
            "data": {"algorithm": "SHA2_256", "digest": request["digest"]},
            "signature": request["signature"],
        }
        entry = {
            "apiVersion": "0.0.2",
            "kind": "hashedrekord",
            "spec": {"hashedRekordV002": record},
        }
        body = json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()
        root = hashlib.sha256(b"\0" + body).digest()  # of a log with one entry
        note = f"{_ORIGIN}\n1\n{encoded(root)}\n"
        signed = encoded(self.signatures.id[:4] + self.signatures.sign(note.encode()))
        return json.dumps(
            {
                "logIndex": "0",
                "logId": {"keyId": encoded(self.signatures.id)},
                "kindVersion": {"kind": "hashedrekord", "version": "0.0.2"},
                "integratedTime": "0",
                "inclusionProof": {
                    "logIndex": "0",
                    "rootHash": encoded(root),
                    "treeSize": "1",
                    "hashes": [],
                    "checkpoint": {"envelope": f"{note}\n\u2014 {_ORIGIN} {signed}\n"},
                },
                "canonicalizedBody": encoded(body),
            }
        ).encode()

    def _date(self, query: bytes) -> bytes:
        asked = self.folder / "query.tsq"
        asked.write_bytes(query)
        words = ["openssl", "ts", "-reply", "-config", str(self.folder / "clock.conf")]
        done = subprocess.run(
            [*words, "-section", "one", "-queryfile", str(asked)], capture_output=True, check=True
        )
        return done.stdout


@contextmanager
def live_sigstore(folder: Path) -> Iterator[LiveSigstore]:
    """Run the services until the end of the block."""
    services = LiveSigstore(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            size = int(self.headers["Content-Length"])
            given = self.headers.get("Authorization", "")
            answer = services.answer(self.path, self.rfile.read(size), given)
            self.send_response(201)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    services.write_config(f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield services
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
