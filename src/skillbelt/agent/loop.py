"""One run of an agent in one session: ask the model, carry out its calls, keep both, until done.

Each step is kept whole: what a request changes with the answer to it, what calls change with their
results. Whatever ends a run, the session is as after its last whole step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from anyio import CancelScope

from skillbelt.agent import code, compaction
from skillbelt.agent.compaction import COMPACT_KEPT_SHARE
from skillbelt.agent.events import (
    AgentEvent,
    Compaction,
    Final,
    Reason,
    Retry,
    TextDelta,
    ToolCall,
    Usage,
)
from skillbelt.agent.forks import Fork, Relay, fork, forks, returned
from skillbelt.agent.history import CANCELLED, INTERRUPTED, Place, answer_to
from skillbelt.agent.models import (
    NONE,
    Called,
    Model,
    ModelFailure,
    Prompt,
    Reply,
    asking,
    keepable,
)
from skillbelt.agent.stream import Listening
from skillbelt.agent.tool_calls import Outlet
from skillbelt.agent.tool_results import MAX_ANSWER_CALLS, Job, Own, Workshop
from skillbelt.conversation.messages import Message
from skillbelt.errors import ConfigError, SkillbeltError
from skillbelt.format.skill import Skill
from skillbelt.permission.gate import session_id
from skillbelt.running.following import Watch
from skillbelt.runtime.runtime import Command
from skillbelt.runtime.threads import in_thread
from skillbelt.settings import Settings
from skillbelt.text import one_line, shorten
from skillbelt.tools.handlers import failed
from skillbelt.tools.schema import Tool, ToolResult

# Answers of a model for one message, forks included: bounds what a loop can cost.
MAX_RUN_STEPS = 200
# Before the first retry; each further one waits twice as long.
RETRY_WAIT_SECONDS = 0.5
# A cancelled run waits so long for its tool calls to end.
CANCEL_TIMEOUT_SECONDS = 10.0
# Fenced blocks of one answer that are run, when the agent has `run_code`.
MAX_CODE_BLOCKS = 8

_RUNS = ("skill_run",)  # what is not done twice without anybody having seen how the first ended
_SHOWN = 300
_FLOOD = 16  # times as many calls as are carried out: each of them must be answered
_EMPTY = "the model gave no answer"

# A model for a place, and its tools beside those for skills.
Outfit = Callable[[Place], tuple[Model, Mapping[str, tuple[Tool, Own]]]]


def _open(model: Model) -> AbstractAsyncContextManager[object]:
    """The model for as long as it is needed, if it wants to know."""
    return model if isinstance(model, AbstractAsyncContextManager) else nullcontext()


def _is_command(message: Message) -> bool:
    """Whether a message may call a skill by name."""
    return str(message["content"]).lstrip()[:1] in ("/", "$")


class Budget:
    """How many answers a run and its forks may take together."""

    def __init__(self, most: int) -> None:
        self.most = self._left = max(most, 1)

    def take(self) -> bool:
        """Take one; whether there was one left."""
        self._left -= 1
        return self._left >= 0


class Turn:
    """The run itself. `answered`: whoever is told answers requests for permission.

    The `budget` is that of the run it was forked from, if it was.
    """

    def __init__(
        self,
        place: Place,
        outfit: Outfit,
        told: Listening,
        *,
        answered: bool,
        budget: Budget | None = None,
    ) -> None:
        self._budget = budget or Budget(MAX_RUN_STEPS)
        self.place, self.agent, self._told = place, place.agent, told
        self._outfit, self._answered, self._limits = outfit, answered, place.limits
        self.model, own = outfit(place)
        self._more = tuple(tool for tool, _ in own.values())
        self._shop = Workshop(place, own, self._fork)
        self._usage, self._text = NONE, ""
        self._ready: Prompt | None = None
        self._fault, self._again, self._wait_seconds = "", False, 0.0

    @property
    def settings(self) -> Settings:
        """The settings of the runtime."""
        return self.place.settings

    async def play(self, message: Message | None) -> None:
        """Go on from the message, or without one from where the last run was ended."""
        try:
            async with _open(self.model):
                reason, error = await self._played(message)
            await self._told.tell(Final(self._text, reason, error, self._usage))
        finally:
            self.place.drop()

    async def _played(self, message: Message | None) -> tuple[Reason, str]:
        """How it ended. What only a developer can mend is raised."""
        try:
            return await self._play(message)
        except ConfigError:
            raise
        except SkillbeltError as error:
            return "error", one_line(str(error))

    async def _tell(self, event: AgentEvent) -> None:
        if isinstance(event, Usage):
            self._usage = self._usage.plus(event)
        await self._told.tell(event)

    async def _said(self, text: str) -> None:
        """Tell an answer that no model gives just now."""
        self._text = text
        if text:
            await self._tell(TextDelta(text))

    async def _tell_usage(self, usage: Usage) -> None:
        if usage != NONE:
            await self._tell(usage)

    async def _play(self, message: Message | None) -> tuple[Reason, str]:
        plain = message is not None and not _is_command(message)
        await self._open(message if plain else None)
        ended = None
        if message is None:
            ended = await self._resumed()
        elif not plain:
            ended = await self._commanded(message)
        return ended or await self._steps()

    # How it begins

    @in_thread
    def _open(self, message: Message | None) -> None:
        """Take up the history; with a message, all up to the first request in one go."""
        self.place.read()
        if message is not None:
            self._keep_said(message)
            self._ready = self.place.prompt(self._more)

    def _keep_said(self, message: Message) -> None:
        """Keep a message, and an answer to each call that an earlier run left open."""
        place = self.place
        left = [answer_to(call, INTERRUPTED, INTERRUPTED) for call in place.pending()]
        place.commit([*left, message])

    _say = in_thread(_keep_said)

    async def _commanded(self, message: Message) -> tuple[Reason, str] | None:
        """Do what `/name arguments` asks for; how it ends, if no model is needed for that."""
        content = str(message["content"])
        said = str(message.get("said") or content)
        command = await self._allowed(said)
        if command is None:
            await self._say(message)
            return None
        if command.error:
            return "error", command.error
        files = content.removeprefix(said)
        await self._say({**message, "content": f"{command.text}{files}", "said": said})
        skill = self.agent.runtime.get_skill(command.skill)
        if not forks(self.place, skill):
            return None
        return await self._forked_by_user(skill, command.text)

    async def _allowed(self, text: str) -> Command | None:
        """The command, once it was asked for what must be."""
        found: list[Command | None] = []

        async def work() -> None:
            found.append(await self._command(text))

        await self._outlet().all([work()])
        return found[0]

    @in_thread
    def _command(self, text: str) -> Command | None:
        return self.place.session.user_command(text)

    async def _resumed(self) -> tuple[Reason, str] | None:
        """Carry out what an earlier run could not; how it ended, if there is nothing left."""
        place = self.place
        if not place.history:
            return "error", "there is nothing to go on with in this session"
        calls = place.pending()
        if calls:
            await self._carry_out(calls, again=True)
        elif place.history[-1]["role"] == "assistant":
            await self._said(str(place.history[-1]["content"]))
            return "answer", ""
        return None

    # Steps

    async def _steps(self) -> tuple[Reason, str]:
        most = max(self._limits.max_steps, 1)
        for _ in range(most):
            if not self._budget.take():
                together = f"{self._budget.most} steps with its forks (max_run_steps)"
                return "max_steps", f"the model wanted more than {together}"
            reply = await self._asked()
            if reply is None:
                return "error", self._fault
            self._text = reply.text
            blocks = self._code(reply)
            if reply.calls:
                await self._carry_out(reply.calls, reply.finished)
            elif blocks:
                await self._run(blocks)
            else:
                return "answer", reply.fault or ("" if reply.text else _EMPTY)
            if self._shop.repeats.endless:
                return "loop", "the model made the same calls again and again"
        return "max_steps", f"the model wanted more than {most} steps (max_steps)"

    def _code(self, reply: Reply) -> list[code.Block]:
        """What of an answer is run: nothing, unless the host switched it on."""
        if not self.agent.run_code or reply.calls:
            return []
        return code.blocks(reply.text, MAX_CODE_BLOCKS)

    async def _asked(self) -> Reply | None:
        """One answer of the model, kept; None when it could not be had."""
        most = max(self.agent.max_retries, 0)
        for attempt in range(most + 1):
            reply = await self._attempt()
            if reply is not None:
                await self._tell_usage(reply.usage)
                return reply
            if not self._again or attempt == most:
                break
            await self._tell(Retry(self._fault))
            await asyncio.sleep(self._wait_seconds * 2**attempt)
        return None

    async def _attempt(self) -> Reply | None:
        ready, self._ready = self._ready, None
        prompt = ready or await self._prompt()
        if self._is_long(prompt) and await self._compact():
            prompt = await self._prompt()
        try:
            found = await self._pieces(prompt)
        except ModelFailure as failure:
            self.place.drop()
            self._fault = str(failure)
            self._again = await self._compact() if failure.too_long else failure.again
            self._wait_seconds = 0.0 if failure.too_long else RETRY_WAIT_SECONDS
            return None
        return await self._kept(found)

    async def _pieces(self, prompt: Prompt) -> Reply:
        """Tell the pieces of an answer and give the whole; whatever a model raises is a failure."""
        found: Reply | None = None
        try:
            async with asking(self.model, prompt) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Reply):
                        found = piece
                    else:
                        await self._tell(piece)
        except (ModelFailure, ConfigError):
            raise
        except Exception as error:
            reason = shorten(one_line(str(error)), _SHOWN)
            raise ModelFailure(f"{type(error).__name__}: {reason}", again=True) from error
        if found is None:
            raise ModelFailure(_EMPTY, again=True)
        if len(found.calls) > _FLOOD * max(MAX_ANSWER_CALLS, 1):
            raise ModelFailure(f"an answer with {len(found.calls)} calls (max_answer_calls)")
        return found

    @in_thread
    def _prompt(self) -> Prompt:
        return self.place.prompt(self._more)

    @in_thread
    def _kept(self, reply: Reply) -> Reply:
        reply = keepable(reply)
        self.place.answered(reply)
        return reply

    # What is too long

    @property
    def _window_tokens(self) -> int:
        own, most = self.model.window_tokens, self.settings.context_window_tokens
        return min(own, most) if own and most else own or most

    def _is_long(self, prompt: Prompt) -> bool:
        most = self._window_tokens * self.agent.compact_share
        size = compaction.size_of(prompt.messages)
        if not most or size * 2 < most:  # where tools are most of it, a shorter history is no help
            return False
        return size + compaction.size_of_tools(prompt.tools) > most

    async def _compact(self) -> bool:
        """Tell the older part of the history in short from now on; whether there was one."""
        history = self.place.history
        start = compaction.kept_from(history, self._window_tokens, self._limits)
        if not start:
            return False
        made = await compaction.summary_of(history[:start], self.model, self._window_tokens)
        text = f"{made.text}{compaction.gone(history[:start])}"
        await self._shorten(len(history) - start, text, self._lost(start))
        await self._tell_usage(made.usage)
        await self._tell(Compaction(start, text))
        return True

    def _lost(self, start: int) -> list[str]:
        """The skills to bring back when what is before `start` is told in short."""
        tool = self.place.agent.runtime.names.get("skill", "")
        room = self._window_tokens * COMPACT_KEPT_SHARE or float("inf")
        return compaction.lost(self.place.history, start, tool, room)

    @in_thread
    def _shorten(self, kept: int, summary: str, lost: Sequence[str]) -> None:
        self.place.shorten(kept, summary, lost)

    # Calls

    def _outlet(self) -> Outlet:
        gate, session = self.place.session.gate, session_id(self.place.key)
        seconds = CANCEL_TIMEOUT_SECONDS
        return Outlet(
            told=self._told,
            desk=lambda: gate.desk,
            session=session,
            answered=self._answered,
            end_seconds=seconds,
        )

    async def _carry_out(
        self, calls: Sequence[Called], finished: bool = True, *, again: bool = False
    ) -> None:
        """Carry out the calls at the same time; their results are kept and told in their order.

        What is done `again` after a crash may have been done before, so nothing is run twice.
        """
        jobs, outlet = self._shop.jobs(calls, finished), self._outlet()
        for job in jobs:
            await self._tell(ToolCall(job.call.id, job.call.name, job.call.arguments))
            if again and self._shop.kind(job.call.name) in _RUNS:
                job.result = failed(INTERRUPTED)
        try:
            await outlet.all(
                [
                    self._shop.carry_out(job, outlet, number)
                    for number, job in enumerate(jobs)
                    if job.result is None
                ]
            )
        except BaseException:
            self._keep(jobs)
            raise
        await self._keep_soon(jobs)
        for job in jobs:
            self._shop.repeats.note(job)
            await self._tell(job.response())

    def _keep(self, jobs: Sequence[Job]) -> None:
        """Keep what came of the jobs; those that were ended are answered, so that none is open."""
        done = [job for job in jobs if job.result is not None]
        events = [event for job in done for event in job.page.written]
        results = [(job.call, job.result or failed(CANCELLED)) for job in jobs]
        answers = [answer_to(call, result.text, result.error) for call, result in results]
        self.place.commit(answers, events, [job.page for job in done])

    _keep_soon = in_thread(_keep)

    # Code in answers

    async def _run(self, blocks: Sequence[code.Block]) -> None:
        """Run fenced code, one block after the other, and tell the model what came of it."""
        results: list[ToolResult] = []
        outlet = self._outlet()

        async def work() -> None:
            for number, block in enumerate(blocks, 1):
                results.append(await self._run_block(block, outlet.watch(f"code-{number}")))

        await outlet.all([work()])
        text = code.told(blocks, results)
        await self._say({"role": "user", "content": text, "goes_on": True})

    @in_thread
    def _run_block(self, block: code.Block, watch: Watch) -> ToolResult:
        return code.run(self.place.session, block, watch)

    # Forks

    async def _fork(self, skill: Skill, job: Job, outlet: Outlet, wanted: str = "") -> ToolResult:
        """Work on the skill in a session of its own; only questions and the bill come through."""
        made = await self._forked(skill, wanted)
        relay = Relay(self._told)
        turn = Turn(made.place, self._outfit, relay, answered=self._answered, budget=self._budget)
        with CancelScope() as scope:
            outlet.on_stop(scope.cancel)
            await turn.play({"role": "user", "content": made.message})
        self._usage = self._usage.plus(relay.usage)
        result, noted = returned(made, skill, relay.final)
        job.page.append(self.place.key, [noted._replace(agent=self.agent.name)])
        return result

    @in_thread
    def _forked(self, skill: Skill, wanted: str) -> Fork:
        return fork(self.place, skill, wanted)

    async def _forked_by_user(self, skill: Skill, wanted: str) -> tuple[Reason, str]:
        """What a fork gives that the user asked for is the answer itself."""
        job, outlet = Job(Called("", "fork", {}), self.place.journal.page()), self._outlet()

        async def work() -> None:
            job.result = await self._fork(skill, job, outlet, wanted)

        await outlet.all([work()])
        result = job.result or failed(CANCELLED)
        answer: Message = {"role": "assistant", "content": result.text}
        self.place.commit([answer], job.page.written, [job.page])
        await self._said("" if result.error else result.text)
        return "error" if result.error else "answer", result.error
