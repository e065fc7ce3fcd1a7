"""The console as an ASGI application: authentication, roles, and routing to the pages."""

from __future__ import annotations

import hashlib
import logging
import mimetypes
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl

import anyio
from anyio import to_thread
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from skillbelt import __version__
from skillbelt.console.limits import CHANGE, READ, SIGN_IN, Buckets, name_caller
from skillbelt.console.parts import ConsoleParts
from skillbelt.console.people import (
    AccessRules,
    OidcProvider,
    Person,
    ReadAccess,
    Role,
    admit_holder,
    admit_tokens_only,
)
from skillbelt.console.render import HERE, templates
from skillbelt.console.sign_in import (
    COOKIE,
    FLOW_SECONDS,
    OIDC_BEGIN,
    OIDC_END,
    SESSION_SECONDS,
    BrowserSession,
    ProviderWord,
    SignIns,
)
from skillbelt.console.visit import ShownPage, Visit
from skillbelt.errors import SkillbeltError
from skillbelt.runtime.runtime import Runtime
from skillbelt.serving.answers import HttpRefusal, status_of
from skillbelt.serving.endpoints import path_pattern
from skillbelt.serving.guard import ServedHosts, refuse_headers
from skillbelt.serving.tokens import TokenBook

if TYPE_CHECKING:
    from skillbelt.console.oidc import OidcSignIn

logger = logging.getLogger(__name__)
MAX_FORM_BYTES = 2**18
MAX_PARALLEL_PAGES = 16
# Nothing loads from another origin, pages have no inline script or style, and no page may frame
# this one.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # With `no-referrer` a browser would also hide the origin of a form from us.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_STATIC = os.path.join(HERE, "static")
_OPEN = ("GET", "HEAD")


class ConsolePage(NamedTuple):
    """A page or an action: its path, its handler, and the role it needs."""

    method: str
    path: str
    handler: str
    role: Role = "viewer"

    @property
    def pattern(self) -> re.Pattern[str]:
        """The regular expression for its path; `{name...}` may contain slashes."""
        return path_pattern(self.path)


PAGES: tuple[ConsolePage, ...] = (
    ConsolePage("GET", "/", "inbox.show"),
    ConsolePage("POST", "/inbox/{id}", "inbox.answer", "approver"),
    ConsolePage("GET", "/skills", "skills.show_all"),
    ConsolePage("GET", "/skills/{name}", "skills.show_one"),
    ConsolePage("POST", "/skills/{name}", "skills.change", "admin"),
    ConsolePage("GET", "/skills/{name}/files/{path...}", "skills.show_file"),
    ConsolePage("GET", "/install", "install_pages.show_all"),
    ConsolePage("POST", "/install", "install_pages.begin", "admin"),
    ConsolePage("GET", "/install/{id}", "install_pages.show_one"),
    ConsolePage("POST", "/install/{id}", "install_pages.answer", "admin"),
    ConsolePage("GET", "/runs", "runs.show_all"),
    ConsolePage("GET", "/runs/{id}", "runs.show_one"),
    ConsolePage("POST", "/runs/{id}/stop", "runs.stop", "approver"),
    ConsolePage("POST", "/runs/{id}/again", "runs.repeat", "admin"),
    ConsolePage("GET", "/runs/{id}/files/{name...}", "runs.show_file"),
    ConsolePage("GET", "/conversations", "conversations.show_all"),
    ConsolePage("GET", "/conversations/{app}/{user}/{session}", "conversations.show_one"),
    ConsolePage(
        "GET", "/conversations/{app}/{user}/{session}/requests/{number}", "sent_requests.show"
    ),
    ConsolePage("GET", "/log", "log.show"),
    ConsolePage("GET", "/log/export", "log.export"),
    ConsolePage("GET", "/doctor", "health.show"),
    ConsolePage("POST", "/doctor/attack", "health.attack", "admin"),
    ConsolePage("GET", "/usage", "usage.show"),
)


NAV = (
    ("/", "Inbox"),
    ("/skills", "Skills"),
    ("/runs", "Runs"),
    ("/conversations", "Conversations"),
    ("/log", "Log"),
    ("/doctor", "Health"),
    ("/usage", "Usage"),
)


class SignInWays(NamedTuple):
    """The ways to sign in: tokens, links, a proxy or an OpenID provider."""

    sign_ins: SignIns
    tokens: TokenBook
    open_oidc: Callable[[OidcProvider], OidcSignIn]
    access: ReadAccess = admit_tokens_only
    secure: bool = False  # whether browsers reach it by https
    root: str = ""  # the path of the console

    @property
    def cookie(self) -> str:
        """The name of the cookie.

        Its prefix keeps pages without https from setting it, and at the root also other hosts of
        the same domain.
        """
        return f"__Host-{COOKIE}" if self.secure and not self.root else self._cookie_name(COOKIE)

    @property
    def flow_cookie(self) -> str:
        """The name of the cookie for a sign-in at a provider; it has its own path."""
        return self._cookie_name(f"{COOKIE}_oidc")

    def _cookie_name(self, name: str) -> str:
        return f"__Secure-{name}" if self.secure else name


class Console:
    """The application. `close` ends the event streams."""

    def __init__(
        self,
        belt: Runtime,
        sign_in_ways: SignInWays,
        *,
        hosts: ServedHosts,
        origins: Collection[str],
        listens: bool,
    ) -> None:
        self.parts = ConsoleParts(belt, listens=listens)
        self.sign_in_ways = sign_in_ways
        self._hosts, self._origins = hosts, frozenset(origins)
        self._patterns = [(one.pattern, one) for one in PAGES]
        self._reads, self._changes, self._tries = Buckets(READ), Buckets(CHANGE), Buckets(SIGN_IN)
        self._limiter: anyio.CapacityLimiter | None = None
        self._oidc: OidcSignIn | None = None
        self._find_oidc()  # fails at the start if an extra is missing

    def close(self) -> None:
        """End the event streams, and stop answering requests of other processes."""
        self.parts.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            answer = await self._answer(request)
        except ClientDisconnect:
            return
        except SkillbeltError as error:
            answer = self._show_error(request, error)
        except Exception:
            logger.exception("a page of the console failed")
            answer = self._show_error(request, HttpRefusal("internal", "see the log of the server"))
        await answer(scope, receive, partial(_send_guarded, send))

    async def _answer(self, request: Request) -> Response:
        refusal = refuse_headers(request.headers, self._hosts, self._origins)
        if refusal is not None:
            raise refusal
        path = _path_of(request)
        if path.startswith("/static/"):
            return _send_static(path.removeprefix("/static/"), request.method)
        if request.method not in (*_OPEN, "POST"):
            raise HttpRefusal("method_not_allowed", f"{request.method} is not possible here")
        if path.startswith("/sign-in"):
            return await self._sign_in(request, path)
        session = self._find_session(request)
        if session is None:
            return self._send_to_sign_in(request, path)
        self._check_rate(request, session.person)
        if path == "/events" and request.method == "GET":
            return self._stream(request, session.person)
        if path == "/sign-out":
            return await self._sign_out(request, session)
        return await self._visit(request, session, path)

    async def _visit(self, request: Request, session: BrowserSession, path: str) -> Response:
        page, found = self._find(request.method, path)
        if not session.person.may(page.role):
            raise HttpRefusal(
                "forbidden", f"this needs the role {page.role}; you are {session.person.role}"
            )
        form = await self._read_form(request, session) if request.method == "POST" else {}
        visit = Visit(
            parts=self.parts,
            person=session.person,
            root=request.scope.get("root_path", ""),
            path=found,
            query=dict(request.query_params),
            form=form,
        )
        result = await to_thread.run_sync(_handler(page.handler), visit, limiter=self._threads())
        if isinstance(result, Response):
            return result
        facts = {
            "person": session.person,
            "form_token": self.sign_in_ways.sign_ins.form_token(session),
        }
        draw = partial(self._draw, request, result, facts)
        return await to_thread.run_sync(draw, limiter=self._threads())

    def _draw(self, request: Request, shown: ShownPage, facts: Mapping[str, object]) -> Response:
        root = request.scope.get("root_path", "")
        project = self.parts.belt.settings.project
        text = (
            templates()
            .get_template(shown.template)
            .render(
                {
                    "root": root,
                    "version": __version__,
                    "assets": _assets_mark(),
                    "nav": NAV,
                    "project": project,
                    "home": self.parts.belt.settings.home,
                    "here": _path_of(request),
                    "person": None,
                    "waiting": None,
                    **facts,
                    **shown.facts,
                }
            )
        )
        return Response(text.encode("utf-8", "replace"), shown.status, media_type="text/html")

    def _find(self, method: str, path: str) -> tuple[ConsolePage, Mapping[str, str]]:
        known, wanted = False, "GET" if method == "HEAD" else method
        for pattern, page in self._patterns:
            if found := pattern.fullmatch(path):
                known = True
                if page.method == wanted:
                    return page, found.groupdict()
        if known:
            raise HttpRefusal("method_not_allowed", f"{method} is not possible here")
        raise HttpRefusal("not_found", "there is no such page")

    async def _read_form(self, request: Request, session: BrowserSession) -> Mapping[str, str]:
        form = await _read_pairs(request)
        if not self.sign_in_ways.sign_ins.accepts_form(session, form.pop("form_token", "")):
            raise HttpRefusal("forbidden", "the form is too old; go back, reload the page, repeat")
        return form

    def _threads(self) -> anyio.CapacityLimiter:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(MAX_PARALLEL_PAGES)
        return self._limiter

    # Authentication

    def _find_session(self, request: Request) -> BrowserSession | None:
        """Return the signed-in person with their current role; HttpRefusal if they have none."""
        rules = self.sign_in_ways.access()
        proxy = rules.proxy
        if proxy is not None and proxy.header:
            named = request.headers.getlist(proxy.header)
            if len(named) == 1 and proxy.trusts(_peer(request)):
                person = _admit(rules, named[0])
                # No cookie: the proxy names the person in each request.
                return BrowserSession(f"proxy {person.name}", person, 0.0)
        found = self.sign_in_ways.sign_ins.find(request.cookies.get(self.sign_in_ways.cookie, ""))
        if found is None or found.word is None:
            return found
        word = found.word
        if rules.oidc is None or rules.oidc.issuer != word.issuer:
            return None  # that provider is no longer configured
        return found._replace(person=_admit(rules, word.name, word.groups))

    def _find_oidc(self) -> OidcSignIn | None:
        """Return the sign-in at the configured provider; None without one."""
        provider = self.sign_in_ways.access().oidc
        if provider is None:
            self._oidc = None
        elif self._oidc is None or self._oidc.provider != provider:
            self._oidc = self.sign_in_ways.open_oidc(provider)
        return self._oidc

    def _check_rate(self, request: Request, person: Person) -> None:
        buckets = self._reads if request.method in _OPEN else self._changes
        if not buckets.take(person.name):
            raise HttpRefusal("busy", "too many requests; wait a moment")

    def _send_to_sign_in(self, request: Request, path: str) -> Response:
        if request.method != "GET" or "hx-request" in request.headers or path == "/events":
            raise HttpRefusal("unauthorized", "you are not signed in; open the sign-in page")
        return RedirectResponse(f"{request.scope.get('root_path', '')}/sign-in", 303)

    async def _sign_in(self, request: Request, path: str) -> Response:
        oidc = self._find_oidc()
        if oidc is not None and request.method == "GET" and path in (OIDC_BEGIN, OIDC_END):
            self._check_tries(request)
            return await (self._begin if path == OIDC_BEGIN else self._finish)(request, oidc)
        if path != "/sign-in":
            raise HttpRefusal("not_found", "there is no such page")
        token, once = "", request.method != "POST"
        if not once:
            token = (await _read_pairs(request)).get("token", "").strip()
        elif request.method == "GET":  # programs that preview a link ask with HEAD
            token = request.query_params.get("token", "")
        if not token:
            return await self._greet(request)
        # Before the rate limit: failed attempts of others must not lock out the holder of a link.
        person = self.sign_in_ways.sign_ins.use_link_token(token)
        if person is None and not once:
            self._check_tries(request)
            holder = self.sign_in_ways.tokens.find(token)
            person = admit_holder(holder) if holder is not None else None
        if person is None:
            notice = "This link was used already." if once else "This token signs no one in."
            return self._show_sign_in(request, notice, 403)
        return self._welcome(request, person)

    def _check_tries(self, request: Request) -> None:
        proxy, address = self.sign_in_ways.access().proxy, _peer(request)
        if proxy is not None:
            given = request.headers.getlist(proxy.client_header)
            address = proxy.find_client(address, given)
        if not self._tries.take(name_caller(address)):
            raise HttpRefusal("busy", "too many tries to sign in; wait a minute")

    async def _greet(self, request: Request) -> Response:
        """Return the sign-in page; after a sign-out it links to the sign-out of the provider."""
        left, oidc = "left" in request.query_params, self._find_oidc()
        elsewhere = await oidc.find_sign_out() if left and oidc is not None else ""
        return self._show_sign_in(
            request, "You are signed out." if left else "", elsewhere=elsewhere
        )

    async def _begin(self, request: Request, oidc: OidcSignIn) -> Response:
        begun = await oidc.begin()
        answer = RedirectResponse(begun.address, 303)
        # Not strict: the provider is another site, and redirects the browser to us.
        answer.set_cookie(
            self.sign_in_ways.flow_cookie,
            begun.cookie,
            max_age=int(FLOW_SECONDS),
            path=f"{request.scope.get('root_path', '')}/sign-in",
            httponly=True,
            samesite="lax",
            secure=self.sign_in_ways.secure,
        )
        return answer

    async def _finish(self, request: Request, oidc: OidcSignIn) -> Response:
        name = self.sign_in_ways.flow_cookie
        word = await oidc.finish(dict(request.query_params), request.cookies.get(name, ""))
        rules = self.sign_in_ways.access()
        person = _admit(rules, word.name, word.groups)
        answer = self._welcome(request, person, word.fit_cookie(rules.groups))
        path = f"{request.scope.get('root_path', '')}/sign-in"
        answer.delete_cookie(name, path=path, httponly=True, secure=self.sign_in_ways.secure)
        return answer

    def _show_sign_in(
        self, request: Request, notice: str = "", status: int = 200, *, elsewhere: str = ""
    ) -> Response:
        facts = {
            "notice": notice,
            "has_oidc": self._find_oidc() is not None,
            "elsewhere": elsewhere,
        }
        return self._draw(request, ShownPage("sign_in.html", facts, status), {})

    def _welcome(
        self, request: Request, person: Person, word: ProviderWord | None = None
    ) -> Response:
        """Return the response that signs a person in and leads to the first page."""
        # Not a redirect: after a link from another site it would lack the strict cookie.
        answer = self._draw(request, ShownPage("welcome.html", {}), {})
        answer.set_cookie(
            self.sign_in_ways.cookie,
            self.sign_in_ways.sign_ins.begin(person, word),
            max_age=SESSION_SECONDS,
            path=request.scope.get("root_path", "") or "/",
            httponly=True,
            samesite="strict",
            secure=self.sign_in_ways.secure,
        )
        return answer

    async def _sign_out(self, request: Request, session: BrowserSession) -> Response:
        if request.method != "POST":
            raise HttpRefusal("method_not_allowed", "sign out with the button")
        await self._read_form(request, session)
        self.sign_in_ways.sign_ins.end(session)
        root = request.scope.get("root_path", "")
        answer = RedirectResponse(f"{root}/sign-in?left=1", 303)
        answer.delete_cookie(
            self.sign_in_ways.cookie,
            path=root or "/",
            httponly=True,
            samesite="strict",
            secure=self.sign_in_ways.secure,
        )
        return answer

    # Other responses

    def _stream(self, request: Request, person: Person) -> Response:
        stream = self.parts.live.open(person.name, partial(self._is_admitted, request))
        if stream is None:
            raise HttpRefusal("busy", "too many pages are open; close some")
        return _EventResponse(
            stream.events(),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
            leave=partial(self.parts.live.leave, stream),
        )

    def _is_admitted(self, request: Request) -> bool:
        """Whether the person who opened a stream may still read it."""
        with suppress(HttpRefusal):
            return self._find_session(request) is not None
        return False

    def _show_error(self, request: Request, error: SkillbeltError) -> Response:
        status = status_of(error.kind)
        # The remedy of the base class is too general to show.
        remedy = "" if error.remedy == SkillbeltError.remedy else error.remedy
        facts = {"status_code": status, "message": str(error), "remedy": remedy}
        session = None
        if error.kind not in ("wrong_host", "unauthorized"):
            with suppress(HttpRefusal):
                session = self._find_session(request)
        known: Mapping[str, object] = {}
        if session is not None:
            token = self.sign_in_ways.sign_ins.form_token(session)
            known = {"person": session.person, "form_token": token}
        answer = self._draw(request, ShownPage("error.html", facts, status), known)
        if status == 429:
            answer.headers["retry-after"] = "2"
        return answer


class _EventResponse(StreamingResponse):
    """A stream of events that is closed when the browser disconnects."""

    def __init__(self, *args: object, leave: Callable[[], None], **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


def _peer(request: Request) -> str:
    """Return the peer address of the connection, without looking at headers."""
    return request.client.host if request.client else ""


def _admit(rules: AccessRules, name: str, groups: Iterable[str] = ()) -> Person:
    person = rules.admit(name, groups)
    if person is None:
        raise HttpRefusal("forbidden", "you have no role here; see the access file")
    return person


def _path_of(request: Request) -> str:
    """Return the path relative to where the console is mounted."""
    root, path = request.scope.get("root_path", ""), request.scope["path"]
    return path.removeprefix(root) or "/"


@cache
def _handler(name: str) -> Callable[[Visit], ShownPage | Response]:
    """Return the handler of a page; its module is imported on the first request."""
    module, _, function = name.partition(".")
    found: Callable[[Visit], ShownPage | Response] = getattr(
        import_module(f"skillbelt.console.{module}"), function
    )
    return found


async def _send_guarded(send: Send, message: Message) -> None:
    """Send a part of a response, with the security headers."""
    if message["type"] == "http.response.start":
        headers = MutableHeaders(scope=message)
        for name, value in HEADERS.items():
            headers.setdefault(name, value)
        headers.setdefault("cache-control", "no-store")
    await send(message)


async def _read_pairs(request: Request) -> dict[str, str]:
    """Read the form of a request."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise HttpRefusal("wrong_arguments", "send a form")
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > MAX_FORM_BYTES:
            raise HttpRefusal("too_large", f"a form has at most {MAX_FORM_BYTES} bytes")
    try:
        pairs = parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=100)
    except ValueError as error:
        raise HttpRefusal("wrong_arguments", "the form cannot be read") from error
    return dict(pairs)


@cache
def _static_files() -> Mapping[str, tuple[bytes, str]]:
    """Return the static files by name, with their MIME types."""
    found = {}
    for folder, _, names in os.walk(_STATIC):
        for name in names:
            path = os.path.join(folder, name)
            kind = {".woff2": "font/woff2"}.get(os.path.splitext(name)[1])
            with open(path, "rb") as file:
                data = file.read()
            kind = kind or mimetypes.guess_type(name)[0] or "text/plain"
            found[os.path.relpath(path, _STATIC)] = (data, kind)
    return found


@cache
def _assets_mark() -> str:
    """Return a version of the static files, which changes with their content."""
    mark = hashlib.sha256()
    for name, (data, _) in sorted(_static_files().items()):
        mark.update(name.encode() + data)
    return mark.hexdigest()[:12]


def _send_static(name: str, method: str) -> Response:
    found = _static_files().get(name)
    if found is None or method not in _OPEN:
        raise HttpRefusal("not_found", "there is no such file")
    data, kind = found
    # Pages add the version to the name.
    return Response(data, media_type=kind, headers={"cache-control": "public, max-age=86400"})
