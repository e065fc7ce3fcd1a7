"""A request to the console, and the page that answers it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlencode

from starlette.responses import RedirectResponse, Response

from skillbelt.console.parts import ConsoleParts
from skillbelt.console.people import Person


class Visit(NamedTuple):
    """An authorized request. `root` is the path where the console is mounted."""

    parts: ConsoleParts
    person: Person
    root: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str]

    def url(self, path: str, **query: object) -> str:
        """Return the URL of a page of the console."""
        given = {name: str(value) for name, value in query.items() if value not in ("", None)}
        tail = f"?{urlencode(given, errors='replace')}" if given else ""
        return f"{self.root}{quote(path, safe='/', errors='replace')}{tail}"

    def go_to(self, path: str, **query: object) -> Response:
        """Return a redirect to a page, after a form was sent."""
        return RedirectResponse(self.url(path, **query), 303)

    def number(self, name: str, default: int, most: int) -> int:
        """Return a number from the query string, within bounds."""
        text = self.query.get(name, "")
        return min(int(text), most) if text.isdecimal() and len(text) < 10 else default


class ShownPage(NamedTuple):
    """A page: its template, its values, and the HTTP status."""

    template: str
    facts: Mapping[str, object]
    status: int = 200
