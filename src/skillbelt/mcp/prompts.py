"""`prompts/list` and `prompts/get`: the skills that a user may call."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    TextContent,
)

from skillbelt.errors import SkillNotFound
from skillbelt.format.skill import Skill
from skillbelt.mcp.protocol import page_of, sendable
from skillbelt.mcp.requests import Context, RequestRunner
from skillbelt.mcp.sessions import ServedSessions
from skillbelt.runtime.runtime import Command, Runtime, RuntimeSession
from skillbelt.text import one_line, shorten
from skillbelt.values import Frontmatter

ARGUMENTS = "arguments"
_MAX_SHOWN_CHARS = 128


class Prompts:
    """Answers `prompts/list` and `prompts/get`."""

    def __init__(self, runtime: Runtime, sessions: ServedSessions, runner: RequestRunner) -> None:
        self._runtime, self._sessions, self._runner = runtime, sessions, runner

    async def list_all(
        self, ctx: Context, params: PaginatedRequestParams | None
    ) -> ListPromptsResult:
        """List the skills that a user may call, with their arguments."""
        listed, cursor = await self._runner.run(
            ctx, lambda _watch: self._page(params.cursor if params else None)
        )
        return ListPromptsResult(prompts=listed, next_cursor=cursor)

    async def get(
        self, ctx: Context, params: GetPromptRequestParams
    ) -> GetPromptResult | InputRequiredResult:
        """Return the text of a skill as if the user had called it."""
        session = self._sessions.of(ctx)
        return await self._runner.run_interactive(
            ctx, params, lambda _: self._call_skill(session, params)
        )

    def _page(self, cursor: str | None) -> tuple[list[Prompt], str | None]:
        offered = {one.name: one for one in self._runtime.discover_skills() if _callable(one)}
        page = page_of(sorted(offered), cursor)
        return [_prompt(offered[name]) for name in page.names], page.cursor

    def _call_skill(
        self, session: RuntimeSession, params: GetPromptRequestParams
    ) -> GetPromptResult:
        skill = self._skill(params.name)
        given = arguments_text(_head(skill), params.arguments or {})
        command = session.user_command(f"/{params.name} {given}") if skill else None
        if skill is None or command is None:
            shown = shorten(one_line(params.name), _MAX_SHOWN_CHARS)
            raise MCPError(INVALID_PARAMS, f"there is no prompt {shown!r}")
        if command.error:
            raise MCPError(INVALID_PARAMS, command.error)
        return _result(skill, command)

    def _skill(self, name: str) -> Skill | None:
        skill = self._runtime.skills().get(name) or self._runtime.look().get(name)
        return skill if skill and self._runtime._is_admitted(skill) and _callable(skill) else None


def _callable(skill: Skill) -> bool:
    return skill.user_invocable and not skill.hidden


def _head(skill: Skill | None) -> Frontmatter:
    try:
        return skill.frontmatter if skill is not None else Frontmatter()
    except SkillNotFound:
        return Frontmatter()


def _prompt(skill: Skill) -> Prompt:
    head = _head(skill)
    named = [PromptArgument(name=name, required=False) for name in head.arguments]
    about = head.argument_hint or "The arguments of the skill, as one text."
    whole = [PromptArgument(name=ARGUMENTS, description=about, required=False)]
    title = skill.title if skill.title != skill.name else None
    return Prompt(
        name=skill.name, title=title, description=skill.description, arguments=named or whole
    )


def arguments_text(head: Frontmatter, given: Mapping[str, str]) -> str:
    """Return the arguments as a user would type them after the skill's name."""
    known = head.arguments or (ARGUMENTS,)
    for name in given:
        if name not in known:
            raise MCPError(
                INVALID_PARAMS, f"unknown argument {name[:80]!r}; known: {', '.join(known)}"
            )
    if not head.arguments:
        return given.get(ARGUMENTS, "")
    last = max((place for place, name in enumerate(known, 1) if name in given), default=0)
    return " ".join(shlex.quote(given.get(name, "")) for name in known[:last])


def _result(skill: Skill, command: Command) -> GetPromptResult:
    content = TextContent(text=sendable(command.text))
    return GetPromptResult(
        description=skill.description, messages=[PromptMessage(role="user", content=content)]
    )
