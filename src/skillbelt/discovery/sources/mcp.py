"""Skills that an MCP server lists: entries are held, and files are fetched when they are read.

What a server lists becomes a folder that can be scanned: a SKILL.md with the frontmatter and no
text, and an empty file for each other one. The text itself is asked for by `foreign`, one file at
a time, and kept beside it by its digest.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from skillbelt.discovery.sources.bounds import (
    MAX_REMOTE_INDEX_BYTES,
    MAX_REMOTE_SKILLS,
    SOURCE_TIMEOUT_SECONDS,
)
from skillbelt.discovery.sources.cache import link_file
from skillbelt.discovery.sources.failure import OutOfTime, SourceFailure
from skillbelt.discovery.sources.mcp_entries import Entry as Skill
from skillbelt.discovery.sources.mcp_entries import entries_of
from skillbelt.discovery.sources.transfer import Update
from skillbelt.errors import SourceError
from skillbelt.files.contain import create_beneath, open_folder
from skillbelt.text import one_line, shorten
from skillbelt.values import SKILL_FILE

if TYPE_CHECKING:
    from mcp import Client
    from skillbelt.discovery.sources.addresses import Door
    from skillbelt.discovery.sources.bounds import Deadline
    from skillbelt.discovery.sources.cache import Entry, Ready, Stage
    from skillbelt.values import Limits

BLOBS = "blobs"
EXTENSION = "io.modelcontextprotocol/skills"
_MAX_PAGES = 1_000
_MAX_EMPTY_PAGES = 50
_BESIDE_BYTES = 2**20  # of an answer, beside what was asked for
_ESCAPED = 6  # bytes that JSON may need for one of a text
_SHOWN = 200
_VALIDATOR = re.compile(r"\d+ validation errors? for .*", re.DOTALL)
_REQUEST_TIMEOUT = -32001  # as the official client calls it
T = TypeVar("T")


def update(
    url: str,
    entry: Entry,
    old: Ready | None,
    stage: Stage,
    limits: Limits,
    deadline: Deadline,
    door: Door,
) -> Update:
    """Bring the stage up to date with what the server lists; raises SourceError."""
    most = MAX_REMOTE_INDEX_BYTES + _BESIDE_BYTES
    label, listed = _asked(url, limits, deadline.left(), most, _list, door)
    found, problems = entries_of(listed, label, url, limits)
    records = {one.id: one.record() for one in found}
    before = entry.entries(old) if old else {}
    if old is not None and records == before:
        return Update("mcp", False, url, problems=problems)
    for one in found:
        _place(stage, one)
    _keep_blobs(entry, old, stage, found)
    return Update("mcp", True, url, problems=problems, entries=records)


def fetch(
    url: str, limits: Limits, uris: Iterable[tuple[str, int]], door: Door
) -> dict[str, bytes]:
    """The server's files at these addresses, each at most so large; raises SourceError."""
    wanted = list(uris)

    async def read(client: Client, _url: str, _limits: Limits) -> dict[str, bytes]:
        return {uri: await _read(client, url, uri, size) for uri, size in wanted}

    most = _ESCAPED * max((size for _, size in wanted), default=0) + _BESIDE_BYTES
    return _asked(url, limits, SOURCE_TIMEOUT_SECONDS, most, read, door)[1]


# On the disk


def _place(stage: Stage, skill: Skill) -> None:
    """A folder to be scanned, in one that is called as the skill is called here."""
    part = stage.part()
    folder = open_folder(part)
    try:
        for path in skill.files:
            # One that lies deeper is a document of this skill, and no skill of its own.
            if path == SKILL_FILE or os.path.basename(path) != SKILL_FILE:
                data = head_of(skill.frontmatter) if path == SKILL_FILE else b""
                with os.fdopen(create_beneath(folder, f"{skill.name}/{path}"), "wb") as file:
                    file.write(data)
    except OSError as error:
        reason = f"{skill.id} has names that can not lie beside each other: {error.strerror}"
        raise SourceFailure(
            skill.uri, reason, code="mcp-entry-refused", remedy="ask its server to mend it"
        ) from error
    finally:
        os.close(folder)
    stage.adopt(part, skill.id)


def head_of(frontmatter: Mapping[str, Any]) -> bytes:
    """A SKILL.md that has this frontmatter and nothing else. JSON is YAML too."""
    lines = [f"{_yaml(key)}: {_yaml(value)}\n" for key, value in frontmatter.items()]
    return f"---\n{''.join(lines)}---\n".encode("utf-8", "replace")


def _yaml(value: object) -> str:
    """JSON, without what YAML takes for the end of a line or does not take at all."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(char: str) -> str:
    return char if char.isprintable() else f"\\U{ord(char):08x}"


def _keep_blobs(entry: Entry, old: Ready | None, stage: Stage, skills: Iterable[Skill]) -> None:
    """What was fetched before and is still listed need not be fetched again."""
    folder = os.path.join(stage.path, BLOBS)
    os.mkdir(folder, 0o700)
    if old is None:
        return
    before = os.path.join(os.path.dirname(entry.folder(old)), BLOBS)
    for digest in {file.sha256 for skill in skills for file in skill.files.values()}:
        with suppress(FileNotFoundError):
            link_file(os.path.join(before, digest), os.path.join(folder, digest))


# Over the wire


def _asked(
    url: str,
    limits: Limits,
    seconds: float,
    most: int,
    what: Callable[[Client, str, Limits], Coroutine[Any, Any, T]],
    door: Door,
) -> tuple[str, T]:
    """What the server gives, and its label; in a thread with a loop of its own.

    Of no answer more than `most` bytes are taken.
    """
    try:
        from skillbelt.discovery.sources.mcp_link import connected, server_of
    except ImportError as error:
        remedy = "pip install 'skillbelt[mcp]'"
        raise SourceFailure(
            url, "MCP servers need the 'mcp' extra", code="mcp-missing", remedy=remedy
        ) from error
    server = server_of(url)

    async def main() -> T:
        async with (
            asyncio.timeout(seconds),
            connected(server, url, limits, most, door) as client,
        ):
            return await what(client, url, limits)

    return server.label, _apart(lambda: asyncio.run(main()), url, seconds)


def _apart(run: Callable[[], T], url: str, seconds: float) -> T:
    """Whoever calls may be in a loop already."""
    outcome: list[T] = []
    errors: list[BaseException] = []

    def carry() -> None:
        try:
            outcome.append(run())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=carry, name="skillbelt-mcp-source", daemon=True)
    thread.start()
    thread.join(seconds + 5.0)
    if outcome:
        return outcome[0]
    raise _failure(url, errors[0] if errors else TimeoutError(), seconds)


def _failure(url: str, error: BaseException, seconds: float) -> SourceError:
    """The one thing to tell of whatever went wrong."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = next((one for one in error.exceptions if _telling(one)), error.exceptions[0])
    if isinstance(error, SourceError):
        return error
    if isinstance(error, TimeoutError):
        return OutOfTime(url, f"no answer within {seconds:g} s")
    if getattr(error, "code", 0) == _REQUEST_TIMEOUT:
        return OutOfTime(url, "no answer in time")
    # What a validator has to say goes on for lines; what was being done may stand before it.
    said = re.sub(_VALIDATOR, "the answer is not what the protocol says", str(error))
    reason = shorten(one_line(said or type(error).__name__), _SHOWN)
    remedy = "check the server and its address, then `skillbelt refresh`"
    return SourceFailure(url, reason, code="mcp-failed", remedy=remedy)


def _telling(error: BaseException) -> bool:
    return isinstance(error, SourceError) or (
        isinstance(error, BaseExceptionGroup) and any(map(_telling, error.exceptions))
    )


async def _list(client: Client, url: str, limits: Limits) -> list[object]:
    from mcp.shared.exceptions import MCPError
    from mcp_types import METHOD_NOT_FOUND

    from skillbelt.discovery.sources.mcp_messages import Listing, ListSkills, Page

    found: list[object] = []
    cursor: str | None = None
    size = empty = 0
    for _ in range(_MAX_PAGES):
        before = cursor
        try:
            page = await client.session.send_request(
                ListSkills(params=Page(cursor=cursor)), Listing
            )
        except MCPError as error:
            if error.code == METHOD_NOT_FOUND:
                raise _no_skills(url) from error
            raise
        size += len(json.dumps([page.skills, page.next_cursor]))
        found += page.skills
        if len(found) > MAX_REMOTE_SKILLS or size > MAX_REMOTE_INDEX_BYTES:
            reason = f"lists more than {MAX_REMOTE_SKILLS} skills, or too much of them"
            remedy = "serve fewer skills, or name the ones that are needed"
            raise SourceFailure(url, reason, code="remote-too-large", remedy=remedy)
        cursor = page.next_cursor
        if cursor is None:
            return found + await _unlisted(client, url, found)
        empty += not page.skills
        if cursor == before or empty > _MAX_EMPTY_PAGES:
            break
    raise SourceFailure(url, "its list has no end", code="mcp-failed", remedy="mend the server")


async def _unlisted(client: Client, url: str, found: list[object]) -> list[object]:
    """The skills that the source names and the list does not; an unknown one by its name alone."""
    from mcp.shared.exceptions import MCPError

    from skillbelt.discovery.sources.mcp_link import server_of
    from skillbelt.discovery.sources.mcp_messages import GetSkill, Given, SkillParams

    known = {item.get("uri") for item in found if isinstance(item, dict)}
    more: list[object] = []
    for uri in server_of(url).unlisted:
        if uri in known:
            continue
        try:
            given = await client.session.send_request(GetSkill(params=SkillParams(uri=uri)), Given)
            same = isinstance(given.skill, dict) and given.skill.get("uri") == uri
            more.append(given.skill if same else {"uri": uri})
        except MCPError:
            more.append({"uri": uri})  # which is refused like any entry without content
    return more


def _no_skills(url: str) -> SourceFailure:
    reason = f"the server has no skills: it does not know the extension {EXTENSION}"
    return SourceFailure(url, reason, code="mcp-no-skills", remedy="take it out of the settings")


async def _read(client: Client, source: str, uri: str, size: int) -> bytes:
    """The bytes of a resource; too many of them are not decoded."""
    given = await client.session.read_resource(uri, allow_input_required=True)
    found = getattr(given, "contents", [])
    if len(found) != 1:
        reason = f"{uri} was answered with something else"
        raise SourceFailure(source, reason, code="mcp-failed", remedy="mend the server")
    text, blob = getattr(found[0], "text", None), getattr(found[0], "blob", None)
    if isinstance(text, str):
        return text.encode("utf-8", "surrogatepass")
    if not isinstance(blob, str) or len(blob) > 2 * size + 16:
        return b""  # which has another digest than any file that is longer
    try:
        return base64.b64decode(blob, validate=True)
    except ValueError:
        return b""
