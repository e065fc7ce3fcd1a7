"""Recognise files that probably hold secrets, by their names and first bytes.

None of them is copied from the project without asking. A file that is not recognised may still hold
a secret.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

# Folders that hold credentials or history.
_PRIVATE = """
.git .hg .svn .ssh .gnupg .aws .azure .kube .docker .gcloud .password-store .1password .terraform
"""
_FOLDERS = frozenset(_PRIVATE.split())
_NAMES = """
.env .env.* *.env .envrc .netrc _netrc .npmrc .yarnrc.yml .pypirc .pgpass .my.cnf .git-credentials
.htpasswd .dockercfg .s3cfg .boto .vault-token .terraformrc terraform.rc *.tfstate *.tfstate.*
*.tfvars id_rsa* id_dsa* id_ecdsa* id_ed25519* *.pem *.key *.p8 *.p12 *.pfx *.pkcs12 *.jks
*.keystore *.kdbx *.ppk *.ovpn *.kwallet *.keychain *.keytab credentials credentials.*
*credentials.json secret secret.* secrets secrets.* *.secret *.secrets service-account*.json
service_account*.json client_secret*.json kubeconfig *.kubeconfig .bash_history .zsh_history
.python_history .psql_history .mysql_history .node_repl_history shadow master.passwd
"""
# The parts between the stars of each pattern: compiling regular expressions takes 15 ms.
_PATTERNS = tuple(one.split("*") for one in _NAMES.split())
_HARMLESS = tuple(
    one.split("*") for one in (".env.example", ".env.sample", ".env.template", ".env.dist", "*.pub")
)
_BEGINNINGS = (b"-----BEGIN ", b"PuTTY-User-Key-File", b"openssh-key-v1")
HEAD_BYTES = 4096


def looks_secret(path: str, head: bytes = b"") -> bool:
    """Whether the path or the first bytes of the file suggest a secret."""
    # Other systems ignore case and trailing dots and spaces in names.
    *folders, name = (part.casefold().rstrip(". ") or part for part in path.split("/"))
    if _FOLDERS.intersection((*folders, name)):
        return True
    if any(_matches(name, parts) for parts in _HARMLESS):
        return False
    return any(_matches(name, parts) for parts in _PATTERNS) or _is_key(head)


def _matches(name: str, parts: Sequence[str]) -> bool:
    """Whether the name consists of the parts in their order, with any text between them."""
    first, *middle = parts
    if not middle:
        return name == first
    *middle, last = middle
    at, end = len(first), len(name) - len(last)
    if end < at or not name.startswith(first) or not name.endswith(last):
        return False
    for part in middle:
        at = name.find(part, at, end) + len(part)
        if at < len(part):
            return False
    return True


def _is_key(head: bytes) -> bool:
    begins = head.lstrip().startswith(_BEGINNINGS)
    return begins and (b"PRIVATE KEY" in head or not head.lstrip().startswith(_BEGINNINGS[0]))


def named(folder: str, name: str) -> str:
    """Return the path of a name in the folder; the folder itself for an empty name."""
    return posixpath.join(folder, name) if name else folder
