"""What a signature proves: every installed file, and nothing that a hostile file claims."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.errors import ConfigError
from skillbelt.install.hashes import hash_folder
from skillbelt.install.sign import SigningMeans, sign_skill, write_signature
from skillbelt.install.signature_file import (
    MAX_SIGNATURE_BYTES,
    SIGNATURE_FILE,
    SignatureFault,
    parse_bundle,
    signed_files,
)
from skillbelt.install.signatures import SignatureCheck, check_signature
from skillbelt.source_rules import TrustedSigner
from tests.install.signing import Authority, Keypair, make_key, run_peer
from tests.install.sigstore_services import SigstoreServices


def no_password() -> bytes:
    raise AssertionError


def sign(folder: Path, key: Path, certificates: Path | str = "") -> None:
    means = SigningMeans(key=str(key), certificates=str(certificates))
    write_signature(sign_skill(str(folder), means, no_password))


def check(folder: Path, *trusted: TrustedSigner) -> SignatureCheck:
    return check_signature(str(folder), hash_folder(str(folder), partial=True), trusted)


def by_key(pair: Keypair) -> TrustedSigner:
    return TrustedSigner("**", "key", str(pair.public))


@pytest.fixture
def key(tmp_path: Path) -> Keypair:
    return make_key(tmp_path, "mine")


@pytest.fixture
def skill(tmp_path: Path, key: Keypair) -> Path:
    made = tmp_path / "alpha"
    (made / "scripts").mkdir(parents=True)
    (made / "SKILL.md").write_text("---\nname: alpha\ndescription: d\n---\nhello\n")
    (made / "scripts" / "run.sh").write_text("echo one\n")
    sign(made, key.private)
    return made


def change(skill: Path) -> None:
    (skill / "scripts" / "run.sh").write_text("echo two\n")


def add(skill: Path) -> None:
    (skill / "extra.md").write_text("x")


def add_hidden(skill: Path) -> None:
    (skill / ".gitattributes").write_text("x")


def remove(skill: Path) -> None:
    (skill / "scripts" / "run.sh").unlink()


def link(skill: Path) -> None:
    os.symlink("SKILL.md", skill / "link.md")


def link_away(skill: Path) -> None:
    os.symlink("/etc/passwd", skill / "passwd")


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (change, "was made for another content of scripts/run.sh"),
        (add, "does not cover extra.md"),
        (add_hidden, "does not cover .gitattributes"),
        (remove, "covers files that are not there: scripts/run.sh"),
        (link, "covers no links, and the skill has link.md"),
        (link_away, "cannot cover passwd"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_skill_that_is_not_exactly_what_was_signed_is_named(
    skill: Path, key: Keypair, tamper: Callable[[Path], None], reason: str
) -> None:
    assert check(skill, by_key(key)).state == "trusted"
    tamper(skill)
    assert check(skill, by_key(key)) == SignatureCheck("bad", None, f"{SIGNATURE_FILE} {reason}")


def test_what_is_no_part_of_a_skill_changes_nothing(skill: Path, key: Keypair) -> None:
    (skill / "__pycache__").mkdir()
    (skill / "__pycache__" / "x.pyc").write_text("x")
    assert check(skill, by_key(key)).state == "trusted"


def test_without_a_trusted_signer_a_signature_is_not_known(skill: Path, tmp_path: Path) -> None:
    other = make_key(tmp_path, "other")
    assert check(skill).state == "unknown"
    assert check(skill, by_key(other)).state == "unknown"
    assert check(skill, TrustedSigner("**", "sigstore", "a@b", issuer="c")).state == "unknown"


def test_a_second_trusted_key_counts(skill: Path, key: Keypair, tmp_path: Path) -> None:
    other = make_key(tmp_path, "other")
    assert check(skill, by_key(other), by_key(key)).state == "trusted"


def test_the_hint_of_another_key_does_not_make_it_that_key(
    skill: Path, tmp_path: Path, key: Keypair
) -> None:
    """The hint is the signer's own word: the bytes decide."""
    other = make_key(tmp_path, "other")
    theirs = json.loads((skill / SIGNATURE_FILE).read_bytes())
    sign(skill, other.private)
    forged = json.loads((skill / SIGNATURE_FILE).read_bytes())
    forged["verificationMaterial"] = theirs["verificationMaterial"]
    (skill / SIGNATURE_FILE).write_text(json.dumps(forged))
    found = check(skill, by_key(key))
    assert (found.state, "was not made by the key" in found.reason) == ("bad", True)
    forged["verificationMaterial"]["publicKey"]["hint"] = ""
    (skill / SIGNATURE_FILE).write_text(json.dumps(forged))
    assert check(skill, by_key(key)).state == "bad"


def test_a_signature_over_other_content_is_not_one_over_this(
    skill: Path, tmp_path: Path, key: Keypair
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "SKILL.md").write_text("---\nname: other\ndescription: d\n---\n")
    sign(other, key.private)
    (skill / SIGNATURE_FILE).write_bytes((other / SIGNATURE_FILE).read_bytes())
    assert check(skill, by_key(key)).state == "bad"


def test_a_list_of_files_that_was_changed_is_not_signed(skill: Path, key: Keypair) -> None:
    change(skill)
    bundle = json.loads((skill / SIGNATURE_FILE).read_bytes())
    fresh = skill.parent / "fresh"
    other = make_key(skill.parent, "other")
    fresh.mkdir()
    for path in ("SKILL.md", "scripts/run.sh"):
        (fresh / path).parent.mkdir(exist_ok=True)
        (fresh / path).write_bytes((skill / path).read_bytes())
    sign(fresh, other.private)
    payload = json.loads((fresh / SIGNATURE_FILE).read_bytes())["dsseEnvelope"]["payload"]
    bundle["dsseEnvelope"]["payload"] = payload
    (skill / SIGNATURE_FILE).write_text(json.dumps(bundle))
    found = check(skill, by_key(key))
    assert (found.state, "its list of files was changed" in found.reason) == ("bad", True)


def test_a_trusted_key_that_cannot_be_read_is_the_users_to_correct(skill: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        check(skill, TrustedSigner("**", "key", str(skill / "none.pub")))
    with pytest.raises(ConfigError, match="not one in PEM"):
        check(skill, TrustedSigner("**", "key", str(skill / "SKILL.md")))


# --- certificates --------------------------------------------------------------------------------


def by_root(authority: Authority, **options: str) -> TrustedSigner:
    return TrustedSigner("**", "certificate", str(authority.root), **options)


def test_a_certificate_leads_to_the_root_that_is_named_and_no_other(
    skill: Path, tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "Other")
    pair, chain = authority.issue("release")
    sign(skill, pair.private, chain)
    assert check(skill, by_root(authority)).state == "trusted"
    assert check(skill, by_root(other)).state == "unknown"


def test_the_identity_and_the_issuer_of_a_certificate_count(skill: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, chain = authority.issue("release")
    sign(skill, pair.private, chain)
    for options, state in (
        ({"identity": "release@example.com"}, "trusted"),
        ({"identity": "CN=release"}, "trusted"),
        ({"identity": "someone@example.com"}, "unknown"),
        ({"issuer": "CN=Root"}, "trusted"),
        ({"issuer": "CN=Other"}, "unknown"),
    ):
        assert check(skill, by_root(authority, **options)).state == state, options


def replace_certificates(skill: Path, *certificates: x509.Certificate) -> None:
    """Put other certificates beside a signature that stays as it is."""
    bundle = json.loads((skill / SIGNATURE_FILE).read_bytes())
    listed = [base64.b64encode(one.public_bytes(Encoding.DER)).decode() for one in certificates]
    bundle["verificationMaterial"]["x509CertificateChain"]["certificates"] = [
        {"rawBytes": one} for one in listed
    ]
    (skill / SIGNATURE_FILE).write_text(json.dumps(bundle))


def test_a_certificate_of_a_certificate_that_is_no_authority_is_refused(
    skill: Path, tmp_path: Path
) -> None:
    """Anyone with a certificate could otherwise issue one in any name."""
    authority = Authority(tmp_path)
    pair, chain = authority.issue("release")
    sign(skill, pair.private, chain)
    release, root = x509.load_pem_x509_certificates(chain.read_bytes())
    false = Authority(tmp_path, "False")
    false.key, false.name = pair, release.subject
    boss = false.make(root.subject, pair, days=30, email="boss@example.com")
    replace_certificates(skill, boss, release, root)
    assert check(skill, by_root(authority)).state == "unknown"


@pytest.mark.parametrize("days", [-1, -60])
def test_an_expired_certificate_is_refused(skill: Path, tmp_path: Path, days: int) -> None:
    """The tool of others looks at the time when it began to be valid, and accepts it for ever."""
    authority = Authority(tmp_path)
    pair, chain = authority.issue("release")
    sign(skill, pair.private, chain)
    replace_certificates(skill, authority.make(authority.name, pair, days=days, email="r@e.com"))
    found = check(skill, by_root(authority))
    assert (found.state, "expired on" in found.reason) == ("bad", True)


def test_an_expired_root_is_not_trusted(skill: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path, days=-1)
    pair, chain = authority.issue("release")
    sign(skill, pair.private, chain)
    assert check(skill, by_root(authority)).state == "unknown"


def test_a_certificate_for_another_use_is_refused(skill: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, chain = authority.issue("release")
    sign(skill, pair.private, chain)
    uses = (ExtendedKeyUsageOID.SERVER_AUTH,)
    replace_certificates(
        skill, authority.make(authority.name, pair, days=30, email="r@e.com", uses=uses)
    )
    found = check(skill, by_root(authority))
    assert (found.state, "another use than signing code" in found.reason) == ("bad", True)


# --- hostile files -------------------------------------------------------------------------------


def statement(**values: Any) -> dict[str, Any]:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "x", "digest": {"sha256": empty}}],
        "predicateType": "https://model_signing/signature/v1.0",
        "predicate": {
            "serialization": {"method": "files", "hash_type": "sha256"},
            "resources": [],
        },
        **values,
    }


def resource(name: str, digest: str = "0" * 64) -> dict[str, str]:
    return {"name": name, "algorithm": "sha256", "digest": digest}


def predicate(*resources: Any, **how: str) -> dict[str, Any]:
    means = {"method": "files", "hash_type": "sha256", **how}
    return {"serialization": means, "resources": list(resources)}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"_type": "x"}, "_type is not"),
        ({"predicateType": "https://model_signing/Digests/v0.1"}, "predicateType is not"),
        ({"subject": []}, "subject is not a list of one"),
        ({"subject": [{"name": "x", "digest": "y"}]}, "digest is not an object"),
        ({"predicate": predicate(method="shards")}, "is not one SHA-256 for each file"),
        ({"predicate": predicate(hash_type="blake2b")}, "is not one SHA-256 for each file"),
        ({"predicate": predicate(resource("a"))}, "subject is not the hash of the resources"),
        ({"predicate": predicate(resource("a"), resource("a"))}, "names 'a' again"),
        ({"predicate": predicate(resource("a", "0" * 63))}, "is not a SHA-256"),
        ({"predicate": predicate(resource("a", "0" * 64 + "\n"))}, "is not a SHA-256"),
        ({"predicate": predicate(resource("a")) | {"resources": {}}}, "is not a list"),
        ({"predicate": predicate("a")}, "is not an object"),
    ],
)
def test_a_statement_that_is_not_of_the_format_is_named(
    values: dict[str, Any], reason: str
) -> None:
    assert signed_files(json.dumps(statement()).encode()) == {}
    with pytest.raises(SignatureFault, match=reason):
        signed_files(json.dumps(statement(**values)).encode())


def test_equal_keys_are_refused_so_that_no_other_reader_sees_another_list() -> None:
    text = json.dumps(statement())
    with pytest.raises(SignatureFault, match="is not JSON"):
        signed_files(text.replace('"_type"', '"predicate": {}, "_type"').encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"a": 1}'])
def test_a_malformed_file_is_a_bad_signature(skill: Path, key: Keypair, data: bytes) -> None:
    (skill / SIGNATURE_FILE).write_bytes(data)
    assert check(skill, by_key(key)).state == "bad"


def test_a_huge_file_is_not_read_whole(skill: Path, key: Keypair) -> None:
    with open(skill / SIGNATURE_FILE, "wb") as file:
        file.truncate(MAX_SIGNATURE_BYTES + 1)
    found = check(skill, by_key(key))
    assert (found.state, "has more than" in found.reason) == ("bad", True)


def test_a_link_a_pipe_or_a_folder_is_no_signature(skill: Path, key: Keypair) -> None:
    path = skill / SIGNATURE_FILE
    kept = path.read_bytes()
    path.unlink()
    (skill / "kept").write_bytes(kept)
    os.symlink("kept", path)
    assert check(skill, by_key(key)).state == "bad"
    path.unlink()
    os.mkfifo(path)
    assert check(skill, by_key(key)).state == "bad"
    path.unlink()
    path.mkdir()
    assert check(skill, by_key(key)).state == "bad"


def test_a_false_sigstore_bundle_is_bad_and_a_false_root_is_the_users_to_correct(
    skill: Path, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    bundle = json.loads((skill / SIGNATURE_FILE).read_bytes())
    own = base64.b64encode(authority.certificate.public_bytes(Encoding.DER)).decode()
    bundle["verificationMaterial"] = {"certificate": {"rawBytes": own}, "tlogEntries": []}
    (skill / SIGNATURE_FILE).write_text(json.dumps(bundle))
    signer = TrustedSigner("**", "sigstore", "a@example.com", issuer="https://e.example")
    found = check(skill, signer)
    assert (found.state, "is not by a@example.com" in found.reason) == ("bad", True)
    (tmp_path / "root.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"root\.json: cannot be used"):
        check(skill, signer._replace(root=str(tmp_path / "root.json")))


WHO, WHERE = "signer@example.com", "https://login.example"


def by_identity(services: SigstoreServices, who: str = WHO, where: str = WHERE) -> TrustedSigner:
    return TrustedSigner("**", "sigstore", who, issuer=where, root=str(services.root))


def notarize(services: SigstoreServices, skill: Path, key: Keypair) -> dict[str, Any]:
    """Turn the signature by a key into one by an identity."""
    bundle: dict[str, Any] = json.loads((skill / SIGNATURE_FILE).read_bytes())
    services.notarize(bundle, services.certify(key.key.public_key(), WHO, WHERE))
    (skill / SIGNATURE_FILE).write_text(json.dumps(bundle))
    return bundle


def test_an_identity_is_verified_with_the_trust_root_of_a_file_and_no_network(
    skill: Path, key: Keypair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = SigstoreServices(tmp_path)
    notarize(services, skill, key)

    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("socket.socket.connect", refuse)
    found = check(skill, by_identity(services))
    assert (found.state, found.reason) == ("trusted", "")
    assert found.signer is not None
    assert (found.signer.identity, found.signer.issuer) == (WHO, WHERE)


def test_model_signing_verifies_the_same_bundle_with_the_same_file(
    skill: Path, key: Keypair, tmp_path: Path
) -> None:
    services = SigstoreServices(tmp_path)
    notarize(services, skill, key)
    trusted = by_identity(services)._replace(root=str(services.config))
    assert check(skill, trusted).state == "trusted"
    words = ("verify", "sigstore", skill, "--signature", skill / SIGNATURE_FILE)
    config = ("--trust_config", services.config, "--identity_provider", WHERE)
    assert run_peer(*words, *config, "--identity", WHO)[0] == 0
    assert run_peer(*words, *config, "--identity", "other@example.com")[0] != 0


@pytest.mark.parametrize(
    ("who", "where"), [("other@example.com", WHERE), (WHO, "https://x.example")]
)
def test_another_identity_or_issuer_is_not_the_trusted_one(
    skill: Path, key: Keypair, tmp_path: Path, who: str, where: str
) -> None:
    services = SigstoreServices(tmp_path)
    notarize(services, skill, key)
    assert check(skill, by_identity(services, who, where)).state == "unknown"


def test_an_identity_of_services_that_the_root_does_not_name_is_bad(
    skill: Path, key: Keypair, tmp_path: Path
) -> None:
    others = tmp_path / "others"
    others.mkdir()
    notarize(SigstoreServices(others), skill, key)
    assert check(skill, by_identity(SigstoreServices(tmp_path))).state == "bad"


def test_a_file_that_changed_after_an_identity_signed_is_bad(
    skill: Path, key: Keypair, tmp_path: Path
) -> None:
    services = SigstoreServices(tmp_path)
    notarize(services, skill, key)
    change(skill)
    assert check(skill, by_identity(services)).state == "bad"


def _without_promise(entry: dict[str, Any]) -> None:
    del entry["inclusionPromise"]


def _other_time(entry: dict[str, Any]) -> None:
    entry["integratedTime"] = str(int(entry["integratedTime"]) + 86_400)


def _other_root(entry: dict[str, Any]) -> None:
    entry["inclusionProof"]["rootHash"] = base64.b64encode(bytes(32)).decode()


def _other_body(entry: dict[str, Any]) -> None:
    entry["canonicalizedBody"] = base64.b64encode(b"{}").decode()


@pytest.mark.parametrize("forge", [_without_promise, _other_time, _other_root, _other_body])
def test_a_receipt_of_the_log_that_was_changed_is_bad(
    skill: Path, key: Keypair, tmp_path: Path, forge: Callable[[dict[str, Any]], None]
) -> None:
    services = SigstoreServices(tmp_path)
    bundle = notarize(services, skill, key)
    forge(bundle["verificationMaterial"]["tlogEntries"][0])
    (skill / SIGNATURE_FILE).write_text(json.dumps(bundle))
    assert check(skill, by_identity(services)).state == "bad"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
_PLACES = [
    ("mediaType",), ("verificationMaterial",), ("verificationMaterial", "publicKey"),
    ("verificationMaterial", "publicKey", "hint"), ("verificationMaterial", "tlogEntries"),
    ("verificationMaterial", "certificate"), ("verificationMaterial", "x509CertificateChain"),
    ("dsseEnvelope",), ("dsseEnvelope", "payload"), ("dsseEnvelope", "payloadType"),
    ("dsseEnvelope", "signatures"),
]  # fmt: skip


@given(place=st.sampled_from(_PLACES), value=_JSON)
def test_any_value_at_any_place_is_read_or_refused_by_name(
    place: tuple[str, ...], value: Any
) -> None:
    whole = {
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"publicKey": {"hint": "x"}, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": "e30=",
            "payloadType": "application/vnd.in-toto+json",
            "signatures": [{"sig": "AAAA", "keyid": ""}],
        },
    }
    here: Any = whole
    for name in place[:-1]:
        here = here[name]
    here[place[-1]] = value
    try:
        parse_bundle(json.dumps(whole).encode())
    except SignatureFault as error:
        assert error.reason


@given(values=st.dictionaries(st.sampled_from(sorted(statement())), _JSON))
def test_any_statement_is_read_or_refused_by_name(values: dict[str, Any]) -> None:
    try:
        signed_files(json.dumps(statement(**values)).encode())
    except SignatureFault as error:
        assert error.reason


@given(at=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_no_changed_byte_of_a_signature_makes_it_another_trusted_one(
    signed: tuple[Path, Keypair, bytes], at: int, byte: int
) -> None:
    """A change is refused, or says the same: blanks, and what the format does not look at."""
    skill, key, data = signed
    place = at % len(data)
    changed = data[:place] + bytes((byte,)) + data[place + 1 :]
    (skill / SIGNATURE_FILE).write_bytes(changed)
    found = check(skill, by_key(key))
    if found.state == "trusted":
        assert parse_bundle(changed).payload == parse_bundle(data).payload


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Keypair, bytes]:
    folder = tmp_path_factory.mktemp("signed")
    key = make_key(folder, "mine")
    skill = folder / "alpha"
    skill.mkdir()
    (skill / "SKILL.md").write_text("---\nname: alpha\ndescription: d\n---\nhello\n")
    sign(skill, key.private)
    return skill, key, (skill / SIGNATURE_FILE).read_bytes()
