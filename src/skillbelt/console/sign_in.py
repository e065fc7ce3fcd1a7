"""Sign-in: a link that works once, and then a signed cookie.

The server stores no sessions, so that every server with the same tokens accepts the cookie.
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
from skillbelt.serving.tokens import hash_token
from skillbelt.untrusted_json import BadJson, read_json

COOKIE = "skillbelt_console"
SESSION_SECONDS = 12 * 3600
# How long a sign-in at an OpenID provider may take, and the paths before and after it.
FLOW_SECONDS = 600.0
OIDC_BEGIN, OIDC_END = "/sign-in/openid", "/sign-in/openid/back"
_MAX_COOKIE_BYTES = 4_096
_MAX_GROUPS_CHARS = 1_500  # size of the groups in a cookie
_MAX_ENDED = 10_000  # sign-outs that are kept before expired ones are removed
_LINK_SECONDS = 600.0


class ProviderWord(NamedTuple):
    """The claims of an OpenID provider about a person; each request derives the role from them."""

    issuer: str
    name: str
    groups: tuple[str, ...] = ()

    def fit_cookie(self, known: Container[str]) -> ProviderWord:
        """Return it with as many groups as fit in a cookie, those that grant a role first."""
        kept: list[str] = []
        for one in sorted(self.groups, key=lambda group: group not in known):
            if len(json.dumps([*kept, one])) <= _MAX_GROUPS_CHARS:
                kept.append(one)
        return self._replace(groups=tuple(kept))


class BrowserSession(NamedTuple):
    """A browser that is signed in; `id` is random, and `until` in Unix seconds.

    With `word`, the role of `person` is only the one at the sign-in.
    """

    id: str
    person: Person
    until: float
    word: ProviderWord | None = None


class Signer:
    """Signs documents that a browser keeps for us, and verifies them."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, purpose: str, document: object) -> str:
        """Return the document as signed text."""
        data = json.dumps(document, separators=(",", ":")).encode()
        text = base64.urlsafe_b64encode(data).decode().rstrip("=")
        return f"{text}.{self.mark(purpose, text)}"

    def read(self, purpose: str, text: str) -> Any:
        """Return the document; None unless it was signed with this key for this purpose."""
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
    """The sign-ins of one server. Thread-safe."""

    def __init__(self, secret: bytes | None = None) -> None:
        self.signer = Signer(secret or secrets.token_bytes(32))
        self._lock = threading.Lock()
        self._links: dict[str, tuple[Person, float]] = {}
        self._ended: dict[str, float] = {}

    def make_link_token(self, person: Person) -> str:
        """Return a token for one sign-in as this person, within ten minutes."""
        token = secrets.token_urlsafe(32)
        with self._lock:
            self._links[hash_token(token)] = person, now() + _LINK_SECONDS
        return token

    def use_link_token(self, token: str) -> Person | None:
        """Return the person for a link token, and invalidate it."""
        with self._lock:
            person, until = self._links.pop(hash_token(token), (None, 0.0))
        return person if now() < until else None

    def begin(self, person: Person, word: ProviderWord | None = None) -> str:
        """Return the cookie value for a sign-in."""
        until = now() + SESSION_SECONDS
        document = [secrets.token_urlsafe(16), person.name, person.role, until, word]
        return self.signer.sign("session", document)

    def find(self, cookie: str) -> BrowserSession | None:
        """Return the session of a cookie; None if it is invalid, expired or signed out."""
        found = self.signer.read("session", cookie)
        if not isinstance(found, list) or len(found) != 5:
            return None
        id, name, role, until, said = found
        if role not in ROLES or until < now() or id in self._ended:
            return None
        word = ProviderWord(said[0], said[1], tuple(said[2])) if said else None
        return BrowserSession(id, Person(name, cast(Role, role)), until, word)

    def end(self, session: BrowserSession) -> None:
        """Sign out: this server no longer accepts the cookie."""
        with self._lock:
            if len(self._ended) >= _MAX_ENDED:
                self._ended = {id: until for id, until in self._ended.items() if until > now()}
            self._ended[session.id] = session.until

    def form_token(self, session: BrowserSession) -> str:
        """Return the CSRF token for the forms of this browser."""
        return self.signer.mark("form", session.id)

    def accepts_form(self, session: BrowserSession, token: str) -> bool:
        """Whether a form has the right CSRF token."""
        given, wanted = token.encode("utf-8", "replace"), self.form_token(session).encode()
        return hmac.compare_digest(given, wanted)


def now() -> float:
    """Return the time in Unix seconds."""
    return time.time()
