"""Signatures by a Sigstore identity. Needs the extra `signing`; loading it takes long.

Verifying fetches nothing: the trust root is the file that is named, or the one that the package
`sigstore` comes with. Signing needs the network, and an identity.
"""

from __future__ import annotations

import logging
from pathlib import Path

from sigstore.dsse import Statement
from sigstore.models import Bundle, ClientTrustConfig, TrustedRoot
from sigstore.oidc import IdentityToken, Issuer, detect_credential
from sigstore.sign import SigningContext
from sigstore.verify import Verifier
from sigstore.verify.policy import Identity, UnsafeNoOp

from skillbelt.errors import ConfigError
from skillbelt.install.signature_file import (
    PAYLOAD_TYPE,
    SignatureBundle,
    SignatureFault,
    SkillSigner,
)
from skillbelt.source_rules import TrustedSigner
from skillbelt.text import one_line, shorten
from skillbelt.untrusted_json import read_json

# Otherwise it logs on every call that it fetches nothing.
logging.getLogger("sigstore").setLevel(logging.ERROR)


def verify_sigstore(bundle: SignatureBundle, trusted: TrustedSigner) -> SkillSigner:
    """Return the signer if the identity made the signature; SignatureFault otherwise."""
    verifier = Verifier(trusted_root=_read_root(trusted.root))
    policy = Identity(identity=trusted.value, issuer=trusted.issuer)
    try:
        kind, payload = verifier.verify_dsse(Bundle.from_json(bundle.data), policy)
    except Exception as error:  # hostile input: any exception of the parser means not verified
        raise SignatureFault(
            f"is not by {one_line(trusted.value)}: {_describe_error(error)}",
            unknown=_is_by_another(verifier, bundle),
        ) from error
    if kind != PAYLOAD_TYPE or payload != bundle.payload:
        raise SignatureFault("says two things")
    return SkillSigner("sigstore", trusted.value, trusted.issuer)


def _is_by_another(verifier: Verifier, bundle: SignatureBundle) -> bool:
    """Whether the signature holds, and is by an identity that is not trusted."""
    try:
        verifier.verify_dsse(Bundle.from_json(bundle.data), UnsafeNoOp())
    except Exception:  # hostile input
        return False
    return True


def _read_root(path: str) -> TrustedRoot:
    try:
        if path:
            text = Path(path).read_text("utf-8")
            if "signingConfig" in read_json(text.encode()):  # the file that `model_signing` takes
                return ClientTrustConfig.from_json(text).trusted_root
            return TrustedRoot.from_file(path)
        return ClientTrustConfig.production(offline=True).trusted_root
    except Exception as error:  # from the file or the package
        where = path or "the trust root of the package sigstore"
        raise ConfigError(f"{where}: cannot be used: {_describe_error(error)}") from error


def _read_services(path: str) -> ClientTrustConfig:
    try:
        return ClientTrustConfig.from_json(Path(path).read_text("utf-8"))
    except Exception as error:
        raise ConfigError(
            f"--trust-config {one_line(path)}: cannot be used: {_describe_error(error)}; "
            "give the trust configuration of a Sigstore, in JSON"
        ) from error


def _describe_error(error: Exception) -> str:
    return shorten(one_line(str(error) or type(error).__name__), 200)


def sign_with_sigstore(
    statement: bytes, token: str, *, browser: bool, services: str = ""
) -> tuple[bytes, SkillSigner]:
    """Return a signature by an identity: of a token, of this machine, or of a browser.

    It needs the network. `services` is the file that names other services than the public ones.
    ConfigError, with what to do, where there is no identity.
    """
    try:
        found = token or detect_credential()
    except Exception as error:
        raise ConfigError(
            f"the identity of this machine cannot be used: {_describe_error(error)}"
        ) from error
    if not found and not browser:
        raise ConfigError(
            "Sigstore needs to know who you are, and there is no token of this machine and no "
            "terminal for a browser; give --identity-token FILE, or sign with --key FILE"
        )
    given = _read_services(services) if services else None
    try:
        config = given or ClientTrustConfig.production()
        login = Issuer(config.signing_config.get_oidc_url()) if not found else None
        identity = login.identity_token() if login else IdentityToken(str(found))
        with SigningContext.from_trust_config(config).signer(identity) as signer:
            bundle = signer.sign_dsse(Statement(statement))
    except Exception as error:  # from the network, the service or the token
        raise ConfigError(
            f"Sigstore cannot sign now: {_describe_error(error)}; see that the network "
            "reaches it, or sign with --key FILE"
        ) from error
    signer_is = SkillSigner("sigstore", identity.identity, identity.federated_issuer)
    return bundle.to_json().encode(), signer_is
