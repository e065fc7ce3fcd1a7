"""Signing in: a link that works once, and a signed cookie from then on.

The cookie is signed and not kept, so that each server with the same tokens takes it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Container
from typing import Any, NamedTuple, cast

from skillbelt.console.people import ROLES, Person, Role
from skillbelt.untrusted_json import BadJson, read_json

COOKIE = "skillbelt_console"
SESSION_SECONDS = 12 * 3600
# How long a person may take at an OpenID provider, and the addresses before and after that.
FLOW_SECONDS = 600.0
OIDC_BEGIN, OIDC_END = "/sign-in/openid", "/sign-in/openid/back"
_MAX_COOKIE_BYTES = 4_096
_MAX_GROUPS_CHARS = 1_500  # of the groups in a cookie
_MAX_ENDED = 10_000  # sign-outs before those of cookies that are too old are forgotten
_LINK_SECONDS = 600.0


class ProviderWord(NamedTuple):
    """What an OpenID provider said of a person: the role comes of it with each request."""

    issuer: str
    name: str
    groups: tuple[str, ...] = ()

    def fit_cookie(self, known: Container[str]) -> ProviderWord:
        """Return it with as many groups as a cookie holds, those that give a role now first."""
        kept: list[str] = []
        for one in sorted(self.groups, key=lambda group: group not in known):
            if len(json.dumps([*kept, one])) <= _MAX_GROUPS_CHARS:
                kept.append(one)
        return self._replace(groups=tuple(kept))


class BrowserSession(NamedTuple):
    """A browser that is signed in; `id` is random, and `until` in Unix seconds.

    With `word`, the person is only who it was at the sign-in.
    """

    id: str
    person: Person
    until: float
    word: ProviderWord | None = None


class Signer:
    """Signs what a browser keeps for us, and reads it back."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, purpose: str, document: object) -> str:
        """Return the document as text that only this key could have made."""
        data = json.dumps(document, separators=(",", ":")).encode()
        text = base64.urlsafe_b64encode(data).decode().rstrip("=")
        return f"{text}.{self.mark(purpose, text)}"

    def read(self, purpose: str, text: str) -> Any:
        """Return the document; None unless the text was signed for this purpose."""
        body, _, mark = text.rpartition(".")
        if len(text) > _MAX_COOKIE_BYTES or not text.isascii():
            return None
        if not hmac.compare_digest(mark, self.mark(purpose, body)):
            return None
        try:
            return read_json(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (BadJson, ValueError):
            return None

    def mark(self, purpose: str, text: str) -> str:
        """Return the signature of a text."""
        made = hmac.new(self._secret, f"{purpose}\0{text}".encode(), hashlib.sha256)
        return made.hexdigest()


class SignIns:
    """Who is signed in. Thread-safe."""

    def __init__(self, secret: bytes | None = None) -> None:
        self.signer = Signer(secret or secrets.token_bytes(32))
        self._lock = threading.Lock()
        self._links: dict[str, tuple[Person, float]] = {}
        self._ended: dict[str, float] = {}

    def make_link_token(self, person: Person) -> str:
        """Return a token for one sign-in as this person, within ten minutes."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._links[_digest(token)] = person, now() + _LINK_SECONDS
        return token

    def use_link_token(self, token: str) -> Person | None:
        """Return whom the token signs in, and let it count no more."""
        with self._lock:
            person, until = self._links.pop(_digest(token), (None, 0.0))
        return person if now() < until else None

    def begin(self, person: Person, word: ProviderWord | None = None) -> str:
        """Return the value of a cookie that says who signed in, and by whose word."""
        until = now() + SESSION_SECONDS
        document = [secrets.token_urlsafe(16), person.name, person.role, until, word]
        return self.signer.sign("session", document)

    def find(self, cookie: str) -> BrowserSession | None:
        """Return the session of a cookie; None if it is not ours, too old or ended."""
        found = self.signer.read("session", cookie)
        if not isinstance(found, list) or len(found) != 5:
            return None
        id, name, role, until, said = found
        if role not in ROLES or until < now() or id in self._ended:
            return None
        word = ProviderWord(said[0], said[1], tuple(said[2])) if said else None
        return BrowserSession(id, Person(name, cast(Role, role)), until, word)

    def end(self, session: BrowserSession) -> None:
        """Sign out: the cookie counts no more here."""
        with self._lock:
            if len(self._ended) >= _MAX_ENDED:
                self._ended = {id: until for id, until in self._ended.items() if until > now()}
            self._ended[session.id] = session.until

    def form_token(self, session: BrowserSession) -> str:
        """Return what each form of this browser must carry."""
        return self.signer.mark("form", session.id)

    def accepts_form(self, session: BrowserSession, token: str) -> bool:
        """Whether a form came from a page of ours."""
        given, wanted = token.encode("utf-8", "replace"), self.form_token(session).encode()
        return hmac.compare_digest(given, wanted)


def now() -> float:
    """Return the time in Unix seconds."""
    return time.time()


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
