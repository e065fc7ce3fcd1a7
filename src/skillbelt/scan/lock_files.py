"""Find packages of a lock file that come from another place than a usual registry.

A lock file may be long, and no one reads it. It is searched as bytes, and not parsed. What it
pins is installed as it says, so one changed address is enough for an attack.
"""

from __future__ import annotations

import re
from collections import Counter
from posixpath import basename

from skillbelt.scan.addresses import clean_host, is_reserved
from skillbelt.scan.ledger import Ledger
from skillbelt.text import Lazy

# The form of an address in each kind of file; what stands before it says that it is installed.
_QUOTED = Lazy(rb"\"resolved\"\s{0,9}:\s{0,9}\"([^\"\n]{1,2000})\"")
_YARN = Lazy(rb"\n[ \t]{1,9}\"?resolv(?:ed|ution)\"?:?[ \t]{1,9}\"?([^\"\s]{1,2000})")
_PNPM = Lazy(rb"\b(?:tarball|registry|repo):[ \t]{1,9}[\"']?([^\"'\s,}]{1,2000})")
_TOML = Lazy(
    rb"\b(?:url|registry|git|source|index)\b[\"']?[ \t]{0,9}[=:][ \t]{0,9}[\"']([^\"'\n]{1,2000})"
)
_RUBY = Lazy(rb"\n[ \t]{1,9}remote:[ \t]{1,9}(\S{1,2000})")
_COMPOSER = Lazy(
    rb"\"type\"\s{0,9}:\s{0,9}\"(?:zip|tar|git|path)\"\s{0,9},\s{0,40}\"url\"\s{0,9}:\s{0,9}"
    rb"\"([^\"\n]{1,2000})\""
)
_ANY = Lazy(rb"(https?://[^\s\"'<>]{1,2000})")
_FORMS = {
    "package-lock.json": (_QUOTED,), "npm-shrinkwrap.json": (_QUOTED,), "yarn.lock": (_YARN,),
    "pnpm-lock.yaml": (_PNPM,), "poetry.lock": (_TOML,), "uv.lock": (_TOML,),
    "pdm.lock": (_TOML,), "pylock.toml": (_TOML,), "pipfile.lock": (_TOML,),
    "cargo.lock": (_TOML,), "gemfile.lock": (_RUBY,), "gems.locked": (_RUBY,),
    "composer.lock": (_COMPOSER,), "bun.lock": (_ANY,), "deno.lock": (_ANY,),
}  # fmt: skip
# An address with a scheme; the host stands behind the last sign that ends a name and a password.
_ADDRESS = Lazy(
    rb"(?i)\b(?:https?|git|ssh)://"
    rb"(?:[^/\s?#]{0,200}@)?(\[[0-9a-f:]{2,45}\]|[^/:?#\s]{1,253})(:\d{1,5})?"
)
_USUAL = Lazy(
    r"(?:[\w-]{1,60}\.){0,3}(?:npmjs\.(?:org|com)|yarnpkg\.com|npmmirror\.com|jsr\.io|deno\.land"
    r"|esm\.sh|pypi\.org|pythonhosted\.org|pytorch\.org|pypi\.nvidia\.com|rubygems\.org"
    r"|github\.com|githubusercontent\.com|gitlab\.com|bitbucket\.org|packagist\.org|golang\.org"
    r"|huggingface\.co|taobao\.org|drupal\.org|tsinghua\.edu\.cn|ustc\.edu\.cn"
    r"|crates\.(?:io))\Z"
)
# Hosts where each customer has a registry: usual for a whole file, and not for some packages of it.
_RENTED = Lazy(
    r"(?:[\w-]{1,60}\.){1,4}(?:pkg\.github\.com|pkg\.dev|jfrog\.io|amazonaws\.com|azure\.com"
    r"|visualstudio\.com|aliyun\.com|tencentyun\.com|tencent\.com|huaweicloud\.com)\Z"
)
_ESCAPE = Lazy(rb"\\u00([0-7][0-9a-fA-F])|\\(/)")
_MOST_HOSTS = 5


def is_lock_file(path: str) -> bool:
    """Whether a file is one that package managers write and install from."""
    return basename(path).lower() in _FORMS


def judge_lock_file(path: str, data: bytes, ledger: Ledger) -> None:
    """Note each host of a lock file from which no registry serves packages."""
    if b"\\" in data:  # JSON may spell any letter by its number
        data = _ESCAPE.sub(_unescape, data)
    found: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for form in _FORMS[basename(path).lower()]:
        for match in form.finditer(b"\n" + data):
            host = _host_of(match[1])
            if host:
                found.setdefault(host, match.start(1))
                counts[host] += 1
    whole = sum(counts.values())
    odd = [host for host in found if not _is_usual(host, counts[host] * 2 > whole)]
    for host in odd[:_MOST_HOSTS]:
        line = data.count(b"\n", 0, max(found[host] - 1, 0)) + 1
        others = whole - counts[host]
        beside = f", the other {others:,} from elsewhere" if others else ""
        ledger.find("package-elsewhere", line, f"{counts[host]:,} of {host}{beside}")


def _unescape(match: re.Match[bytes]) -> bytes:
    return match[2] or bytes((int(match[1], 16),))


def _host_of(address: bytes) -> str:
    match = _ADDRESS.search(address)
    if match is None:
        return ""
    raw = match[1].decode("utf-8", "replace")
    return (clean_host(raw) or "a host without a name") + (match[2] or b"").decode("ascii")


def _is_usual(host: str, is_most: bool) -> bool:
    plain = host.removesuffix(":443").removesuffix(":80")
    return is_reserved(plain) or bool(_USUAL.match(plain) or (is_most and _RENTED.match(plain)))
