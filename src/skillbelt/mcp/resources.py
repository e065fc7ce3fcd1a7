"""The files of skills as resources, and the three methods of the skills extension."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from mcp.server.extension import Extension, MethodBinding
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    BlobResourceContents,
    InputRequiredResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    RequestParams,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from skillbelt.mcp.pages import cursor_of, only_page, page_of
from skillbelt.mcp.published import FOLDER, Located, Offer, Published, read_bytes
from skillbelt.mcp.requests import Carrier, Context
from skillbelt.mcp.sessions import Sessions
from skillbelt.mcp.uris import sendable, uri_of
from skillbelt.runtime.runtime import RuntimeSession
from skillbelt.text import one_line, shorten
from skillbelt.values import SKILL_FILE, FileEntry

IDENTIFIER = "io.modelcontextprotocol/skills"
# Nothing is fresh for longer than it takes to ask; changes are told as they happen.
_CACHE = {"ttlMs": 0, "cacheScope": "private"}
_SHOWN = 200
_PAGE_FILES = 10_000  # that the skills of a page may have, so that it stays a message


class SkillParams(RequestParams):
    """The parameters of `skills/get`."""

    uri: str


class FolderParams(PaginatedRequestParams):
    """The parameters of `resources/directory/read`."""

    uri: str


class Resources:
    """What answers `resources/...`: the published skills and every file of theirs."""

    def __init__(self, offer: Offer, sessions: Sessions, carrier: Carrier) -> None:
        self._offer, self._sessions, self._carrier = offer, sessions, carrier

    async def list_all(
        self, ctx: Context, params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        """The SKILL.md of each skill; what lies beside it is found from there."""
        given, cursor = await self._carrier.plain(
            ctx, lambda _watch: published_page(self._offer, params.cursor if params else None)
        )
        listed = [_resource(one, SKILL_FILE, one.files[SKILL_FILE]) for one in given]
        return ListResourcesResult(resources=listed, next_cursor=cursor)

    async def templates(
        self, ctx: Context, params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        """How the addresses of files are made."""
        only_page(params)
        about = "A file of a skill; skills/list and resources/directory/read say which there are."
        template = ResourceTemplate(
            name="skill-file", uri_template="skill://{skill}/{+path}", description=about
        )
        return ListResourceTemplatesResult(resource_templates=[template])

    async def read(
        self, ctx: Context, params: ReadResourceRequestParams
    ) -> ReadResourceResult | InputRequiredResult:
        """One file, byte for byte, once the skill may be read."""
        session = self._sessions.of(ctx)
        return await self._carrier.carry(ctx, params, lambda _: self._read(session, params.uri))

    def _read(self, session: RuntimeSession, uri: str) -> ReadResourceResult:
        found = self._offer.find(uri)
        file = found.published.files.get(found.path) if found else None
        if found is None or file is None:
            raise unknown(uri, "there is no such resource")
        refused = session.approve(found.published.skill)
        if refused:
            raise MCPError(INVALID_PARAMS, refused)
        data = read_bytes(found.published, file)
        if data is None:
            raise unknown(uri, "it changed just now; ask again for the skill")
        session.gave(found.published.skill, file.path, file.sha256)
        return ReadResourceResult(contents=[_contents(uri, file, data)])


class SkillsExtension(Extension):
    """Skills as such: `skills/list`, `skills/get` and `resources/directory/read`."""

    identifier = IDENTIFIER

    def __init__(self, offer: Offer, carrier: Carrier) -> None:
        self._offer, self._carrier = offer, carrier

    def settings(self) -> dict[str, Any]:
        """What is there beyond the two methods that every server has."""
        return {"directoryRead": True}

    def methods(self) -> Sequence[MethodBinding]:
        """The methods, in both protocols."""
        return (
            MethodBinding("skills/list", PaginatedRequestParams, self._list),
            MethodBinding("skills/get", SkillParams, self._get),
            MethodBinding("resources/directory/read", FolderParams, self._folder),
        )

    async def _list(self, ctx: Context, params: PaginatedRequestParams) -> dict[str, Any]:
        given, cursor = await self._carrier.plain(
            ctx, lambda _watch: published_page(self._offer, params.cursor)
        )
        result = {"resultType": "complete", "skills": [one.entry() for one in given], **_CACHE}
        return {**result, "nextCursor": cursor} if cursor is not None else result

    async def _get(self, ctx: Context, params: SkillParams) -> dict[str, Any]:
        found = await self._found(ctx, params.uri)
        if found is None or found.path != SKILL_FILE:
            raise unknown(params.uri, "no skill is served there")
        return {"resultType": "complete", "skill": found.published.entry(), **_CACHE}

    async def _folder(self, ctx: Context, params: FolderParams) -> dict[str, Any]:
        found = await self._found(ctx, params.uri)
        children = found.published.children(found.path) if found else None
        if found is None or children is None:
            raise unknown(params.uri, "there is no such folder")
        names, cursor = page_of(list(children), params.cursor)
        below = f"{found.path}/" if found.path else ""
        listed = [_resource(found.published, below + name, children[name]) for name in names]
        result: dict[str, Any] = {
            "resultType": "complete",
            "resources": [one.model_dump(by_alias=True, exclude_none=True) for one in listed],
            **_CACHE,
        }
        return {**result, "nextCursor": cursor} if cursor is not None else result

    async def _found(self, ctx: Context, uri: str) -> Located | None:
        return await self._carrier.plain(ctx, lambda _watch: self._offer.find(uri))


def published_page(offer: Offer, cursor: str | None) -> tuple[list[Published], str | None]:
    """The published skills of a page. A page may hold fewer than it could, and even none."""
    page = page_of(offer.names(), cursor)
    found: list[Published] = []
    files = 0
    for name in page.names:
        one = offer.published(name)
        if one is not None:
            found.append(one)
            files += len(one.files)
        if files > _PAGE_FILES and name != page.names[-1]:
            return found, cursor_of(name)
    return found, page.cursor


def unknown(uri: str, reason: str) -> MCPError:
    """The error for an address that names nothing here."""
    shown = shorten(one_line(uri), _SHOWN)
    return MCPError(INVALID_PARAMS, f"{shown}: {reason}", {"uri": shown})


def _resource(published: Published, path: str, file: FileEntry | None) -> Resource:
    uri, name = uri_of(published.place, path), sendable(path.rpartition("/")[2])
    if file is None:
        return Resource(uri=uri, name=name, mime_type=FOLDER)
    if path != SKILL_FILE:
        return Resource(uri=uri, name=name, mime_type=file.kind, size=file.size)
    about = str(published.frontmatter["description"])
    written = str(published.frontmatter["name"])
    return Resource(
        uri=uri, name=written, description=about, mime_type="text/markdown", size=file.size
    )


def _contents(
    uri: str, file: FileEntry, data: bytes
) -> TextResourceContents | BlobResourceContents:
    kind = "text/markdown" if file.path == SKILL_FILE else file.kind
    try:
        if b"\0" not in data:
            return TextResourceContents(uri=uri, mime_type=kind, text=data.decode("utf-8"))
    except UnicodeDecodeError:
        pass
    return BlobResourceContents(uri=uri, mime_type=kind, blob=b64encode(data).decode("ascii"))
