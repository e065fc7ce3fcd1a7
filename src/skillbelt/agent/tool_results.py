"""What one call of a model gives, whoever carries it out: a skill's tool, the host's, or a fork."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence

from skillbelt.agent.events import ToolResponse
from skillbelt.agent.forks import forking
from skillbelt.agent.history import Place
from skillbelt.agent.models import Called
from skillbelt.agent.tool_calls import Arguments, Outlet, unfit
from skillbelt.agent.transaction import Page
from skillbelt.errors import SkillbeltError
from skillbelt.format.skill import Skill
from skillbelt.running.background import MAX_SESSION_RUNS
from skillbelt.running.following import Watch
from skillbelt.runtime.threads import in_thread
from skillbelt.settings import Settings
from skillbelt.text import one_line, shorten
from skillbelt.tools.handlers import failed
from skillbelt.tools.handlers import printable as shown
from skillbelt.tools.schema import Tool, ToolResult

# Calls of one answer; the model gets an error for the others.
MAX_ANSWER_CALLS = 64

# A tool that is not for skills: its arguments, and what follows a command it may run.
Own = Callable[[dict[str, object], Watch], ToolResult]
_WAITING = "skill_poll"  # asks for the same again and again, and rightly
_SHOWN = 300


class Job:
    """One call on its way to its result, and the part of the step that it writes."""

    def __init__(self, call: Called, page: Page, finished: bool = True) -> None:
        self.call, self.page = call, page
        self.arguments = Arguments(call, finished)
        self.result: ToolResult | None = None
        self.repeated = False  # not carried out: it gave the same often enough

    def response(self) -> ToolResponse:
        """What is told of the result."""
        given = self.result or failed("cancelled")
        delta = dict(self.page.delta)
        return ToolResponse(self.call.id, self.call.name, *given, delta)


class Repeats:
    """How often a call gave the same result. A model that goes in a circle is told, then ended."""

    def __init__(self, most: int) -> None:
        self._most, self._last = most, dict[str, tuple[str, int]]()
        self.refused = 0

    def refusal(self, job: Job) -> str:
        """What to say to a call that was made often enough; "" to carry it out."""
        _, times = self._last.get(_key(job), ("", 0))
        if times < self._most:
            return ""
        self.refused += 1
        return (
            f"{shown(job.call.name)} was called with these arguments {times} times and gave the "
            "same each time, so it was not called again. Do something else, or answer the user."
        )

    @property
    def endless(self) -> bool:
        """Whether the model was told as often as it may be."""
        return self.refused >= self._most

    def note(self, job: Job) -> None:
        """Count a result, unless it says only that there were enough of them."""
        if job.result is not None and not job.repeated:
            last, times = self._last.get(_key(job), ("", 0))
            text = job.result.text
            self._last[_key(job)] = (text, times + 1 if text == last else 1)


def _key(job: Job) -> str:
    call = job.call
    said = str(call.arguments) if job.arguments.fault else job.arguments.key
    return json.dumps([call.name, said])


class Workshop:
    """Carries out calls for one place, so many at a time as it may have runs.

    `fork` works on a skill apart and gives its result.
    """

    def __init__(
        self,
        place: Place,
        own: Mapping[str, tuple[Tool, Own]],
        fork: Callable[[Skill, Job, Outlet], Awaitable[ToolResult]],
    ) -> None:
        self.place, self._own, self._fork = place, own, fork
        self._kinds = {name: kind for kind, name in place.agent.runtime.names.items()}
        self.repeats = Repeats(max(place.agent.max_repeats, 1))
        self._room = asyncio.Semaphore(max(MAX_SESSION_RUNS, 1))

    @property
    def settings(self) -> Settings:
        """The settings of the runtime."""
        return self.place.settings

    def kind(self, name: str) -> str:
        """What the tool for skills of that name is called in this library; "" for another one."""
        return self._kinds.get(name, "")

    def jobs(self, calls: Sequence[Called], finished: bool) -> list[Job]:
        """The calls of one answer, not begun."""
        return [Job(call, self.place.journal.page(), finished) for call in calls]

    async def carry_out(self, job: Job, outlet: Outlet, number: int = 0) -> None:
        """See to it that the job has a result; whatever goes wrong is one."""
        try:
            waits = self.kind(job.call.name) == _WAITING
            repeated = "" if waits else self.repeats.refusal(job)
            job.repeated = bool(repeated)
            refusal = failed(repeated) if repeated else self._refused(job, number)
            async with self._room:
                job.result = refusal or await self._result(job, outlet)
        except SkillbeltError as error:
            job.result = failed(shorten(one_line(str(error)), _SHOWN))
        except Exception as error:
            reason = shorten(one_line(str(error)), _SHOWN)
            job.result = failed(f"{shown(job.call.name)} failed: {type(error).__name__}: {reason}")

    def _refused(self, job: Job, number: int) -> ToolResult | None:
        """The answer to a call that is not carried out."""
        name = job.call.name
        most = MAX_ANSWER_CALLS
        if number >= most:
            return failed(f"not done: an answer may hold {most} calls; make it in the next")
        if job.arguments.fault:
            return failed(f"{shown(name)}: {job.arguments.fault}")
        if name not in self._own and name not in self._kinds:
            there = ", ".join([*self._kinds, *self._own]) or "none"
            return failed(f"there is no tool {shown(name)!r}; there are: {there}")
        fault = unfit(job.arguments.given, self._own[name][0].schema) if name in self._own else ""
        return failed(f"{shown(name)}: {fault}; nothing was done") if fault else None

    async def _result(self, job: Job, outlet: Outlet) -> ToolResult:
        call, given = job.call, job.arguments.given
        watch = outlet.watch(call.id, given.get("env"))
        if call.name in self._own:
            return await self._own_result(self._own[call.name][1], given, watch)
        skill = await self._forking(self._kinds[call.name], given)
        if skill is not None:
            return await self._forked(skill, job, outlet)
        return await self._called(job, watch)

    async def _forked(self, skill: Skill, job: Job, outlet: Outlet) -> ToolResult:
        # As if it were loaded here, so that whoever may not load it is told; nothing of it is kept.
        loaded = await self._called(Job(job.call, Page(self.place.journal, -1)), Watch())
        return loaded if loaded.error else await self._fork(skill, job, outlet)

    @in_thread
    def _forking(self, kind: str, given: Mapping[str, object]) -> Skill | None:
        return forking(self.place, kind, given)

    @in_thread
    def _called(self, job: Job, watch: Watch) -> ToolResult:
        session = self.place.on(job.page)
        return session.call_sync(job.call.name, job.arguments.given, job.call.id, watch=watch)

    @in_thread
    def _own_result(self, tool: Own, given: dict[str, object], watch: Watch) -> ToolResult:
        return tool(given, watch)
