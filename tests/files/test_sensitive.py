"""Files that look as if they held secrets."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt.files.sensitive import _matches, looks_secret


@pytest.mark.parametrize(
    "path",
    [".env", ".env.production", "app/.env", ".ENV", ".env.", ".git", ".git/config", "a/.git/HEAD",
     ".GIT/config", "id_rsa", "id_ed25519.bak", "server.key", "cert.pem", ".netrc", ".npmrc",
     ".pypirc", "credentials", "Credentials.json", "secrets.yaml", ".ssh/config", ".aws/config",
     "terraform.tfstate", "prod.tfvars", ".kube/config", ".git-credentials"],
)  # fmt: skip
def test_a_name_that_says_secret(path: str) -> None:
    assert looks_secret(path)


@pytest.mark.parametrize(
    "path",
    ["notes.txt", "src/env.py", ".gitignore", ".github/workflows/ci.yml", ".env.example",
     "id_rsa.pub", "keys.md", "monkey.txt", "secretary.txt", "environment"],
)  # fmt: skip
def test_a_name_that_says_nothing(path: str) -> None:
    assert not looks_secret(path)


@pytest.mark.parametrize(
    ("head", "secret"),
    [
        (b"-----BEGIN RSA PRIVATE KEY-----\n", True),
        (b"\n-----BEGIN ENCRYPTED PRIVATE KEY-----\n", True),
        (b"PuTTY-User-Key-File-3: ssh-ed25519\n", True),
        (b"-----BEGIN CERTIFICATE-----\n", False),
        (b"how to write PRIVATE KEY\n", False),
    ],
)
def test_a_beginning_that_says_secret(head: bytes, secret: bool) -> None:
    assert looks_secret("notes.txt", head) is secret


@given(st.text("ab.", max_size=8), st.text("ab.*", max_size=5))
def test_a_star_stands_for_anything(name: str, pattern: str) -> None:
    assert _matches(name, pattern.split("*")) is fnmatchcase(name, pattern)
