"""Consoles in this process, and browsers without a screen for them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from skillbelt import Runtime
from skillbelt.console.people import AccessRules, Person, ReadAccess, Role
from skillbelt.console.serve import ALL_ENDPOINTS, Gateway, Served, build_console
from skillbelt.console.sign_in import COOKIE, SignIns
from skillbelt.serving.api import HttpApi
from skillbelt.serving.guard import guarded
from skillbelt.serving.probes import Probes
from skillbelt.serving.tokens import TokenBook
from tests.tree import Tree

TOKEN = "a-token-of-the-test"
URL = "http://127.0.0.1:8766"
SKILLS = "project/.agents/skills"
ALLOW = '[permission]\nrun = { "*" = "ask", "echo *" = "allow", "sleep *" = "allow" }\n'


def fill(tree: Tree) -> Tree:
    """A project with a skill whose simple commands run unasked."""
    tree.skill(f"{SKILLS}/pdf", "Reads PDF files.", text="# How\n\nThe body of pdf.\n")
    tree.write(f"{SKILLS}/pdf/guide.md", "The guide of pdf.\n")
    tree.write("home/.config/skillbelt/config.toml", ALLOW)
    return tree


class Browser:
    """A person at the console, without a screen."""

    def __init__(self, client: httpx2.AsyncClient, signs: SignIns, app: Gateway) -> None:
        self.client, self.signs, self.app = client, signs, app

    def sign_in(self, name: str = "ada", role: Role = "admin") -> None:
        """Have the cookie of a person."""
        self.client.cookies.set(COOKIE, self.signs.begin(Person(name, role)))

    async def get(self, path: str, **options: Any) -> httpx2.Response:
        return await self.client.get(path, **options)

    async def read(self, path: str) -> str:
        """The text of a page that must be there."""
        answer = await self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text

    async def send(self, path: str, form: Mapping[str, str], **options: Any) -> httpx2.Response:
        """Send a form as a page of the console has it."""
        session = self.signs.find(self.client.cookies.get(COOKIE) or "")
        token = self.signs.form_token(session) if session else ""
        return await self.client.post(path, data={"form_token": token, **form}, **options)


@asynccontextmanager
async def console(
    belt: Runtime,
    *,
    access: AccessRules | ReadAccess | None = None,
    caller: str = "127.0.0.1",
    origins: tuple[str, ...] = (),
    root: str = "",
    listens: bool = True,
    tokens: TokenBook | None = None,
) -> AsyncIterator[Browser]:
    """A console with the API, and a browser that is signed in as its admin."""
    fixed = AccessRules() if access is None else access
    rules = fixed if callable(fixed) else lambda: fixed
    book, signs = tokens or TokenBook.of(TOKEN), SignIns()
    api = HttpApi(belt, book, ALL_ENDPOINTS)
    inner = guarded(Probes(api, belt, "http"), tokens=book, host="127.0.0.1", port=8766)
    served = Served(
        host="127.0.0.1",
        port=8766,
        origins=origins,
        access=rules,
        root=root,
        listens=listens,
    )
    app = build_console(inner, belt=belt, tokens=book, sign_ins=signs, served=served)
    transport = httpx2.ASGITransport(app, client=(caller, 1234))
    try:
        async with httpx2.AsyncClient(transport=transport, base_url=URL, timeout=500) as client:
            browser = Browser(client, signs, app)
            browser.sign_in()
            yield browser
    finally:
        app.close()
        api.close()


def ids_of(page: str) -> list[str]:
    """The requests on a page of the inbox."""
    return re.findall(r'id="request-(\w+)"', page)
