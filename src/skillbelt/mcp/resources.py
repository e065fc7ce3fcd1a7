"""`resources/...`: the files of skills; and the three methods of the skills extension."""

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

from skillbelt.mcp.protocol import cursor_after, page_of, refuse_cursor, sendable
from skillbelt.mcp.published import (
    FOLDER,
    Published,
    PublishedSkills,
    SkillLocation,
    read_bytes,
    uri_of,
)
from skillbelt.mcp.requests import Context, RequestRunner
from skillbelt.mcp.sessions import ServedSessions
from skillbelt.runtime.runtime import RuntimeSession
from skillbelt.text import one_line, shorten
from skillbelt.values import SKILL_FILE, FileEntry

IDENTIFIER = "io.modelcontextprotocol/skills"
# Clients must not cache: notifications report changes as they happen.
_CACHE = {"ttlMs": 0, "cacheScope": "private"}
_MAX_SHOWN_CHARS = 200
_MAX_PAGE_FILES = 10_000  # files of all skills of a page, to limit the size of the message


class SkillsGetParams(RequestParams):
    """The parameters of `skills/get`."""

    uri: str


class ReadFolderParams(PaginatedRequestParams):
    """The parameters of `resources/directory/read`."""

    uri: str


class Resources:
    """Answers `resources/...` with the published skills and their files."""

    def __init__(
        self, published: PublishedSkills, sessions: ServedSessions, runner: RequestRunner
    ) -> None:
        self._published, self._sessions, self._runner = published, sessions, runner

    async def list_all(
        self, ctx: Context, params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        """List the SKILL.md of each skill; clients find the other files from there."""
        skills, cursor = await self._runner.run(
            ctx, lambda _watch: published_page(self._published, params.cursor if params else None)
        )
        listed = [_resource(one, SKILL_FILE, one.files[SKILL_FILE]) for one in skills]
        return ListResourcesResult(resources=listed, next_cursor=cursor)

    async def templates(
        self, ctx: Context, params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        """Return the template of file addresses."""
        refuse_cursor(params)
        about = "A file of a skill; skills/list and resources/directory/read say which there are."
        template = ResourceTemplate(
            name="skill-file", uri_template="skill://{skill}/{+path}", description=about
        )
        return ListResourceTemplatesResult(resource_templates=[template])

    async def read(
        self, ctx: Context, params: ReadResourceRequestParams
    ) -> ReadResourceResult | InputRequiredResult:
        """Read one file byte for byte, after permission to read the skill."""
        session = self._sessions.of(ctx)
        return await self._runner.run_interactive(
            ctx, params, lambda _: self._read(session, params.uri)
        )

    def _read(self, session: RuntimeSession, uri: str) -> ReadResourceResult:
        found = self._published.find(uri)
        file = found.published.files.get(found.path) if found else None
        if found is None or file is None:
            raise unknown(uri, "there is no such resource")
        refused = session._approve(found.published.skill)
        if refused:
            raise MCPError(INVALID_PARAMS, refused)
        data = read_bytes(found.published, file)
        if data is None:
            raise unknown(uri, "the file changed just now; get the skill again")
        session._record_given(found.published.skill, file.path, file.sha256)
        return ReadResourceResult(contents=[_contents(uri, file, data)])


class SkillsExtension(Extension):
    """`skills/list`, `skills/get` and `resources/directory/read`."""

    identifier = IDENTIFIER

    def __init__(self, published: PublishedSkills, runner: RequestRunner) -> None:
        self._published, self._runner = published, runner

    def settings(self) -> dict[str, Any]:
        """Return the capabilities of this server beyond the two required methods."""
        return {"directoryRead": True}

    def methods(self) -> Sequence[MethodBinding]:
        """Return the methods, for both protocols."""
        return (
            MethodBinding("skills/list", PaginatedRequestParams, self._list),
            MethodBinding("skills/get", SkillsGetParams, self._get),
            MethodBinding("resources/directory/read", ReadFolderParams, self._folder),
        )

    async def _list(self, ctx: Context, params: PaginatedRequestParams) -> dict[str, Any]:
        skills, cursor = await self._runner.run(
            ctx, lambda _watch: published_page(self._published, params.cursor)
        )
        result = {"resultType": "complete", "skills": [one.entry() for one in skills], **_CACHE}
        return {**result, "nextCursor": cursor} if cursor is not None else result

    async def _get(self, ctx: Context, params: SkillsGetParams) -> dict[str, Any]:
        found = await self._find(ctx, params.uri)
        if found is None or found.path != SKILL_FILE:
            raise unknown(params.uri, "there is no such skill")
        return {"resultType": "complete", "skill": found.published.entry(), **_CACHE}

    async def _folder(self, ctx: Context, params: ReadFolderParams) -> dict[str, Any]:
        found = await self._find(ctx, params.uri)
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

    async def _find(self, ctx: Context, uri: str) -> SkillLocation | None:
        return await self._runner.run(ctx, lambda _watch: self._published.find(uri))


def published_page(
    published: PublishedSkills, cursor: str | None
) -> tuple[list[Published], str | None]:
    """Return the published skills of a page, and the next cursor; a page may even be empty."""
    page = page_of(published.names(), cursor)
    found: list[Published] = []
    files = 0
    for name in page.names:
        one = published.find_skill(name)
        if one is not None:
            found.append(one)
            files += len(one.files)
        if files > _MAX_PAGE_FILES and name != page.names[-1]:
            return found, cursor_after(name)
    return found, page.cursor


def unknown(uri: str, reason: str) -> MCPError:
    """Return the error for an address without a resource."""
    shown = shorten(one_line(uri), _MAX_SHOWN_CHARS)
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
