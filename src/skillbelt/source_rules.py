"""Rules about the sources of skills: patterns for addresses, and trusted signers.

Both are texts of settings. A pattern is compared with the address that is opened, never with the
name that a lock gives it.
"""

from __future__ import annotations

import os
import re
from typing import Literal

from skillbelt.records import NamedTuple
from skillbelt.text import Lazy

SigningMethod = Literal["key", "certificate", "sigstore"]
METHODS: tuple[SigningMethod, ...] = ("key", "certificate", "sigstore")
SIGNATURE_RULES = ("off", "warn", "require")  # the strictest last
# The severity of scan findings from which a skill is refused, the strictest last.
SCAN_LEVELS = ("block", "ask", "note")
_OPTIONS: dict[str, tuple[str, ...]] = {
    "key": (),
    "certificate": ("identity", "issuer"),
    "sigstore": ("issuer", "root"),
}
_HOSTS = {"github.com": "github", "gitlab.com": "gitlab"}
_WORD = Lazy(r'(?:"[^"]*"|[^\s"])+')
_SCHEME = Lazy(r"[A-Za-z][\w+.@-]*:")
_EVERYTHING = ("*", "**")
# As urllib reads an address; importing urllib would cost processes that compare none.
_ADDRESS = Lazy(
    r"([a-z][a-z0-9+.-]*)://(?:[^/?#]*@)?([^/?#:\[\]@]*|\[[0-9a-f:.]*\])(?::(\d*))?(/[^?#]*)?([?#].*)?",
    re.IGNORECASE,
)
# Text that a server may take for a step up, so that the path is not what it seems.
_STEPS = Lazy(r"(?:^|/)\.\.?(?:/|$)|\\|%2e|%2f|%5c", re.IGNORECASE)


class TrustedSigner(NamedTuple):
    """A party that may sign the skills of the sources that match the pattern.

    `value` is the file of a public key or of root certificates, or a Sigstore identity. `identity`
    and `issuer` restrict whose certificate it is; `root` is a file with the trust root of Sigstore.
    """

    pattern: str
    method: SigningMethod
    value: str
    identity: str = ""
    issuer: str = ""
    root: str = ""


def parse_signer(text: str) -> TrustedSigner:
    """Parse `PATTERN METHOD VALUE [OPTION=VALUE]…`; ValueError with the reason."""
    words = [word.replace('"', "") for word in _WORD.findall(text)]
    if len(words) < 3 or not text.isprintable():
        raise ValueError("is not PATTERN METHOD VALUE, such as `acme/* key acme.pub`")
    pattern, method, value, *rest = words
    check_pattern(pattern)
    if method not in METHODS:
        raise ValueError(f"has the method {method!r}; there are {', '.join(METHODS)}")
    options = {}
    for word in rest:
        name, _, given = word.partition("=")
        if name not in _OPTIONS[method] or not given:
            known = ", ".join(f"{one}=" for one in _OPTIONS[method]) or "none"
            raise ValueError(f"has the option {word!r}; for {method} there are: {known}")
        options[name] = given
    if method == "sigstore" and "issuer" not in options:
        raise ValueError("names no issuer=URL, without which anyone can claim the identity")
    return TrustedSigner(pattern=pattern, method=method, value=value, **options)


def check_pattern(pattern: str) -> None:
    """Raise ValueError for a text that is not a pattern of sources."""
    if not pattern or not pattern.isprintable() or len(pattern) > 500 or " " in pattern:
        raise ValueError(f"{pattern[:80]!r} is not a pattern, such as acme/* or https://host/**")


def matches_source(pattern: str, url: str, folder: str) -> bool:
    """Whether a pattern covers the address of a source.

    `*` stays within one part of a path, `**` does not. `owner/repo` means GitHub; a pattern that
    begins with `./` is a folder below `folder`.
    """
    if pattern in _EVERYTHING:
        return True
    if pattern.startswith((".", "~")):
        pattern = os.path.normpath(os.path.join(folder, os.path.expanduser(pattern)))
    elif not pattern.startswith("/") and not _SCHEME.match(pattern):
        pattern = f"github:{pattern}"
    known = _normal(url)
    return any(_translate(pattern).fullmatch(one) is not None for one in known)


def _translate(pattern: str) -> re.Pattern[str]:
    if pattern.startswith(("github:", "gitlab:")):
        pattern = pattern.lower()
    parts = re.split(r"(\*\*|\*)", pattern)
    stand = {"*": "[^/]*", "**": ".*"}
    return re.compile("".join(stand.get(part) or re.escape(part) for part in parts), re.DOTALL)


def _normal(url: str) -> tuple[str, ...]:
    """Return the equivalent spellings of an address; none if its path may lead elsewhere."""
    if url.startswith("/"):
        return (os.path.normpath(url),)
    if "://" not in url:
        return (url,)  # clawhub:slug, git@host:path
    found = _ADDRESS.fullmatch(url)
    if found is None or _STEPS.search(found[4] or ""):
        return ()
    scheme, host, port, path, rest = (one or "" for one in found.groups())
    plain = f"{scheme.lower()}://{host.lower()}{port and ':' + port}{path or '/'}{rest}"
    name = _HOSTS.get(host.lower(), "") if scheme.lower() == "https" and not port else ""
    if not name:
        return (plain,)
    return plain, f"{name}:{path.strip('/').removesuffix('.git').lower()}"
