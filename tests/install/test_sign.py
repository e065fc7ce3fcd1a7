"""`sign` covers every file; the tool of OpenSSF verifies what we sign, and we what it signs."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from skillbelt.cli import main
from skillbelt.cli.words import ProgressLine
from skillbelt.install.hashes import hash_folder
from skillbelt.install.signatures import SignatureCheck
from skillbelt.install.signatures import check_signature as product_check
from skillbelt.source_rules import TrustedSigner
from tests import needs
from tests.install.live_sigstore import ISSUER, LiveSigstore, live_sigstore, token
from tests.install.signing import Authority, make_key, run_peer
from tests.tree import Done, Tree

OPENSSL = needs.needs(bool(shutil.which("openssl")), "needs openssl: install it")


@pytest.fixture
def skill(tree: Tree) -> Path:
    tree.skill("project/skills/alpha", name="alpha")
    tree.write("project/skills/alpha/scripts/run.sh", "echo one\n")
    return tree.path("project/skills/alpha")


def signature(skill: Path) -> Path:
    return skill / "skill.oms.sig"


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=str)
def test_a_signature_is_verified_by_its_key_alone(
    tree: Tree, skill: Path, curve: ec.EllipticCurve
) -> None:
    mine, other = make_key(tree.root, "mine", curve=curve), make_key(tree.root, "other")
    done = tree.run("sign", str(skill), "--key", str(mine.private), "--json")
    assert done.exit_code == 0, done.stderr
    (made,) = done.document["signed"]
    assert (made["files"], made["signer"]["method"]) == (2, "key")
    good = tree.run("verify", f"{skill}/", "--signed-by", f"key {mine.public}", "--json")
    assert good.document["signatures"][0]["signer"] == made["signer"]
    bad = tree.run("verify", f"{skill}/", "--signed-by", f"key {other.public}")
    assert (bad.exit_code, "by another key" in bad.stdout) == (2, True)


def test_the_tool_of_others_verifies_what_we_sign(tree: Tree, skill: Path) -> None:
    """Also beside what is no part of a skill, which is left out by name."""
    tree.write("project/skills/alpha/scripts/__pycache__/x.pyc", "x")
    mine = make_key(tree.root, "mine")
    tree.run("sign", str(skill), "--key", str(mine.private))
    words = ("key", skill, "--signature", signature(skill), "--public_key", mine.public)
    done = run_peer("verify", *words)
    assert done == (0, "Verification succeeded\n")
    tree.write("project/skills/alpha/scripts/run.sh", "echo two\n")
    assert run_peer("verify", *words)[0] == 1


@OPENSSL
def test_the_tool_of_others_verifies_our_certificates_and_we_verify_theirs(
    tree: Tree, skill: Path
) -> None:
    authority = Authority(tree.root)
    pair, chain = authority.issue("release")
    tree.run("sign", str(skill), "--key", str(pair.private), "--certificate", str(chain))
    words = ("--signature", signature(skill))
    done = run_peer("verify", "certificate", skill, *words, "--certificate_chain", authority.root)
    assert done[0] == 0, done
    signature(skill).unlink()
    own = tree.root / "own.crt"
    own.write_text(chain.read_text().partition("-----END CERTIFICATE-----\n")[0])
    own.write_text(own.read_text() + "-----END CERTIFICATE-----\n")
    done = run_peer(
        "sign", "certificate", skill, *words, "--private_key", pair.private,
        "--signing_certificate", own, "--certificate_chain", authority.root,
    )  # fmt: skip
    assert done[0] == 0, done
    signer = f"certificate {authority.root} identity=release@example.com"
    found = tree.run("verify", f"{skill}/", "--signed-by", signer, "--json")
    assert found.document["signatures"][0]["signer"] == {
        "method": "certificate",
        "identity": "release@example.com",
        "issuer": "CN=Root",
    }


def test_we_verify_what_the_tool_of_others_signs(tree: Tree, skill: Path) -> None:
    mine = make_key(tree.root, "mine")
    words = ("--signature", signature(skill), "--private_key", mine.private)
    assert run_peer("sign", "key", skill, *words)[0] == 0
    done = tree.run("verify", f"{skill}/", "--signed-by", f"key {mine.public}")
    assert done.exit_code == 0, done.stdout


def test_what_the_signer_chose_to_ignore_is_not_believed(tree: Tree, skill: Path) -> None:
    """The tool of others accepts this: the signer's own list says what it need not look at."""
    mine = make_key(tree.root, "mine")
    words = ("--signature", signature(skill), "--private_key", mine.private)
    run_peer("sign", "key", skill, *words, "--ignore-paths", skill / "scripts")
    tree.write("project/skills/alpha/scripts/run.sh", "echo evil\n")
    peer = ("key", skill, "--signature", signature(skill), "--public_key", mine.public)
    assert run_peer("verify", *peer)[0] == 0
    done = tree.run("verify", f"{skill}/", "--signed-by", f"key {mine.public}")
    assert done.exit_code == 2
    assert done.stdout.endswith("skill.oms.sig does not cover scripts/run.sh\n")


def test_the_files_of_git_are_covered_and_the_option_for_others_is_named(
    tree: Tree, skill: Path
) -> None:
    tree.write("project/skills/alpha/.gitignore", "x\n")
    mine = make_key(tree.root, "mine")
    done = tree.run("sign", str(skill), "--key", str(mine.private))
    assert "--no-ignore-git-paths" in done.stderr
    words = ("key", skill, "--signature", signature(skill), "--public_key", mine.public)
    assert run_peer("verify", *words, "--no-ignore-git-paths")[0] == 0


def test_a_password_is_read_from_its_file_and_a_wrong_one_is_refused(
    tree: Tree, skill: Path
) -> None:
    mine = make_key(tree.root, "mine", password=b"right")
    tree.write("right", "right\n")
    tree.write("wrong", "wrong\n")
    words = ("sign", str(skill), "--key", str(mine.private))
    asked = tree.run(*words)
    assert (asked.exit_code, "give --password-file FILE" in asked.stderr) == (2, True)
    refused = tree.run(*words, "--password-file", str(tree.path("wrong")))
    assert (refused.exit_code, "Incorrect password" in refused.stderr) == (2, True)
    assert not signature(skill).exists()
    assert tree.run(*words, "--password-file", str(tree.path("right"))).exit_code == 0


def test_no_line_of_progress_is_shown_over_a_password_that_is_typed(
    tree: Tree, skill: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    def type_password(prompt: str) -> str:
        shown.append(ProgressLine.text)
        return "right"

    monkeypatch.setattr(ProgressLine, "ticking", True)  # no thread draws it anew
    monkeypatch.setattr("skillbelt.cli.sign.wants_progress", lambda args: True)
    monkeypatch.setattr("skillbelt.cli.sign.can_ask", lambda: True)
    monkeypatch.setattr("getpass.getpass", type_password)
    mine = make_key(tree.root, "mine", password=b"right")
    command = ["sign", str(skill), "--key", str(mine.private), "--project", str(tree.project)]
    assert main(command) == 0
    assert shown == [""]


def test_a_signature_that_is_there_stays_without_force(tree: Tree, skill: Path) -> None:
    mine = make_key(tree.root, "mine")
    words = ("sign", str(skill), "--key", str(mine.private))
    tree.run(*words)
    before = signature(skill).read_bytes()
    done = tree.run(*words, "--json")
    assert (done.exit_code, "--force replaces it" in done.document["error"]["message"]) == (2, True)
    assert signature(skill).read_bytes() == before
    assert tree.run(*words, "--force").exit_code == 0
    assert signature(skill).read_bytes() != before


def test_a_dry_run_writes_nothing(tree: Tree, skill: Path) -> None:
    mine = make_key(tree.root, "mine")
    done = tree.run("sign", str(skill), "--key", str(mine.private), "--dry-run")
    assert (done.exit_code, "would cover 2 files" in done.stdout) == (0, True)
    assert not signature(skill).exists()


def test_a_skill_with_a_link_cannot_be_signed(tree: Tree, skill: Path) -> None:
    os.symlink("SKILL.md", skill / "link.md")
    mine = make_key(tree.root, "mine")
    done = tree.run("sign", str(skill), "--key", str(mine.private))
    assert (done.exit_code, "'link.md' is a link" in done.stderr) == (2, True)


@pytest.mark.parametrize("what", ["", "no key", "-----BEGIN PRIVATE KEY-----\nAA==\n"])
def test_a_file_that_is_no_key_is_refused_with_the_way_to_make_one(
    tree: Tree, skill: Path, what: str
) -> None:
    tree.write("bad.pem", what)
    done = tree.run("sign", str(skill), "--key", str(tree.path("bad.pem")))
    assert (done.exit_code, "openssl ecparam" in done.stderr) == (2, True)


def test_certificates_must_be_those_of_the_key_and_for_signing(tree: Tree, skill: Path) -> None:
    authority = Authority(tree.root)
    _, chain = authority.issue("release")
    other = make_key(tree.root, "other")
    words = ("sign", str(skill), "--key")
    done = tree.run(*words, str(other.private), "--certificate", str(chain))
    assert "the first one is not that of the key" in done.stderr
    pair, expired = authority.issue("old", days=-1)
    done = tree.run(*words, str(pair.private), "--certificate", str(expired))
    assert (done.exit_code, "valid until" in done.stderr) == (2, True)


def test_sigstore_without_an_identity_says_what_to_give(tree: Tree, skill: Path) -> None:
    done = tree.run("sign", str(skill), "--sigstore", "--json")
    assert done.exit_code == 2
    assert "--identity-token FILE" in done.document["error"]["message"]


def test_options_of_the_other_way_to_sign_are_refused(tree: Tree, skill: Path) -> None:
    done = tree.run("sign", str(skill), "--sigstore", "--certificate", "x")
    assert (done.exit_code, "--certificate is for --key" in done.stderr) == (2, True)


def test_the_bundle_is_that_of_the_format(tree: Tree, skill: Path) -> None:
    mine = make_key(tree.root, "mine")
    tree.run("sign", str(skill), "--key", str(mine.private))
    bundle = json.loads(signature(skill).read_bytes())
    assert bundle["mediaType"] == "application/vnd.dev.sigstore.bundle.v0.3+json"
    assert bundle["dsseEnvelope"]["payloadType"] == "application/vnd.in-toto+json"


WHO = "signer@example.com"


@pytest.fixture
def services(tree: Tree) -> Iterator[LiveSigstore]:
    folder = tree.root / "services"
    folder.mkdir()
    with live_sigstore(folder) as made:
        (folder / "token").write_text(token(WHO))
        yield made


def sign_as(tree: Tree, skill: Path, services: LiveSigstore, *more: str) -> Done:
    token_file = services.folder / "token"
    words = ("--sigstore", "--identity-token", str(token_file), *more)
    return tree.run("sign", str(skill), *words, "--trust-config", str(services.config), "--json")


@OPENSSL
def test_an_identity_signs_with_the_services_of_a_file(
    tree: Tree, skill: Path, services: LiveSigstore
) -> None:
    """The log is one of Rekor 2, the time that of an authority; verifying reaches no service."""
    done = sign_as(tree, skill, services)
    assert done.exit_code == 0, done.stderr
    (made,) = done.document["signed"]
    assert (made["signer"]["method"], made["signer"]["identity"]) == ("sigstore", WHO)
    material = json.loads(signature(skill).read_text())["verificationMaterial"]
    assert material["tlogEntries"][0]["kindVersion"] == {"kind": "hashedrekord", "version": "0.0.2"}
    assert len(material["timestampVerificationData"]["rfc3161Timestamps"]) == 1
    found = check_signature(skill, services)
    assert (found.state, found.reason) == ("trusted", "")


@OPENSSL
@pytest.mark.parametrize("part", ["timestamp", "checkpoint", "entry"])
def test_a_bundle_of_rekor_2_without_its_time_or_with_another_receipt_is_bad(
    tree: Tree, skill: Path, services: LiveSigstore, part: str
) -> None:
    assert sign_as(tree, skill, services).exit_code == 0
    bundle = json.loads(signature(skill).read_text())
    material = bundle["verificationMaterial"]
    entry = material["tlogEntries"][0]
    if part == "timestamp":
        del material["timestampVerificationData"]
    elif part == "checkpoint":
        text = entry["inclusionProof"]["checkpoint"]["envelope"]
        entry["inclusionProof"]["checkpoint"]["envelope"] = text.replace("\n1\n", "\n2\n")
    else:
        entry["canonicalizedBody"] = base64.b64encode(b"{}").decode()
    signature(skill).write_text(json.dumps(bundle))
    assert check_signature(skill, services).state == "bad"


@OPENSSL
def test_a_time_of_another_authority_is_bad(
    tree: Tree, skill: Path, services: LiveSigstore
) -> None:
    assert sign_as(tree, skill, services).exit_code == 0
    others = tree.root / "others"
    others.mkdir()
    root = json.loads(services.root.read_text())
    root["timestampAuthorities"] = LiveSigstore(others).document["timestampAuthorities"]
    services.root.write_text(json.dumps(root))
    assert check_signature(skill, services).state == "bad"


@pytest.mark.parametrize("content", [None, "{}", "no JSON"])
def test_services_that_cannot_be_read_are_named(
    tree: Tree, skill: Path, content: str | None
) -> None:
    tree.write("project/token", token(WHO))
    if content is not None:
        tree.write("project/services.json", content)
    words = ("--sigstore", "--identity-token", "token", "--trust-config", "services.json")
    done = tree.run("sign", str(skill), *words)
    assert done.exit_code == 2
    assert "services.json: cannot be used" in done.stderr
    assert "network" not in done.stderr
    assert not signature(skill).exists()


def test_services_without_an_identity_are_a_mistake(tree: Tree, skill: Path) -> None:
    mine = make_key(tree.root, "mine")
    done = tree.run("sign", str(skill), "--key", str(mine.private), "--trust-config", "x.json")
    assert (done.exit_code, "--trust-config is for --sigstore" in done.stderr) == (2, True)


def check_signature(skill: Path, services: LiveSigstore) -> SignatureCheck:
    trusted = TrustedSigner("**", "sigstore", WHO, issuer=ISSUER, root=str(services.root))
    return product_check(str(skill), hash_folder(str(skill)), (trusted,))
