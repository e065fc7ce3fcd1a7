"""Servers of the HTTP API in this process, and clients for them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from skillbelt import Runtime
from skillbelt.serving.api import HttpApi
from skillbelt.serving.guard import guarded
from skillbelt.serving.probes import Probes
from skillbelt.serving.tokens import TokenBook
from tests.tree import Tree

TOKEN = "a-token-of-the-test"
SKILLS = "project/.agents/skills"
ALLOW = '[permission]\nrun = { "*" = "ask", "echo *" = "allow", "sleep *" = "allow" }\n'


def fill(tree: Tree) -> Tree:
    """A project with a skill whose simple commands run unasked."""
    tree.skill(f"{SKILLS}/pdf", "Reads PDF files.", text="The body of pdf.\n")
    tree.write(f"{SKILLS}/pdf/guide.md", "The guide of pdf.\n")
    tree.write("home/.config/skillbelt/config.toml", ALLOW)
    return tree


@asynccontextmanager
async def api(belt: Runtime, tokens: TokenBook | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a server in this process, with all that stands before the API."""
    book = tokens or TokenBook.of(TOKEN)
    served = HttpApi(belt, book)
    app = guarded(Probes(served, belt, "http"), tokens=book, host="127.0.0.1", port=8765)
    transport = httpx2.ASGITransport(app)
    headers = {"authorization": f"Bearer {TOKEN}"}
    try:
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8765", headers=headers, timeout=500
        ) as client:
            yield client
    finally:
        served.close()


def events(text: str) -> list[tuple[str, Any]]:
    """The events of a stream, by name."""
    found = []
    for one in text.split("\n\n"):
        if one.startswith("event: "):
            name, _, data = one.removeprefix("event: ").partition("\ndata: ")
            found.append((name, json.loads(data)))
    return found


def error_of(answer: httpx2.Response) -> Mapping[str, Any]:
    """The content of an error document."""
    document = answer.json()
    assert set(document) == {"error"}
    found: Mapping[str, Any] = document["error"]
    assert found["message"]
    return found
