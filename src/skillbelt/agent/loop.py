"""One run of an agent in one session: ask the model, run its calls, store both, repeat.

Each step is stored atomically: the changes of a request with its answer, those of calls with their
results. No matter how a run ends, the session is as after its last complete step.
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
    SkillCalled,
    TextDelta,
    ToolCall,
    Usage,
)
from skillbelt.agent.forks import Fork, ForkSink, fork_result, open_fork, wants_fork
from skillbelt.agent.history import CANCELLED, INTERRUPTED, AgentContext, result_message
from skillbelt.agent.models import (
    NONE,
    OFFLINE,
    Called,
    Model,
    ModelFailure,
    Prompt,
    Reply,
    ask_model,
    make_storable,
)
from skillbelt.agent.stream import EventSink
from skillbelt.agent.tool_calls import (
    MAX_ANSWER_CALLS,
    CallGroup,
    HostHandler,
    PendingCall,
    ToolRunner,
)
from skillbelt.conversation.compaction import estimate_tokens
from skillbelt.conversation.messages import Message
from skillbelt.conversation.requests import RequestLog
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

# Answers of a model for one message, forks included: limits the cost of a loop.
MAX_RUN_STEPS = 200
# Before the first retry; each further one waits twice as long.
RETRY_WAIT_SECONDS = 0.5
# How long a cancelled run waits for its tool calls to end.
CANCEL_TIMEOUT_SECONDS = 10.0
# Fenced blocks of one answer that are run, when the agent has `run_code`.
MAX_CODE_BLOCKS = 8

# Never repeated when the outcome of the first call is unknown.
_RUNS = ("skill_run", "execute_skill", "claude_bash")
_MAX_ERROR_CHARS = 300
_FLOOD = 16  # an answer with this many times the allowed calls is an error
_EMPTY = "the model gave no answer"

# Returns the model of a context, and its tools in addition to those for skills.
Equip = Callable[[AgentContext], tuple[Model, Mapping[str, tuple[Tool, HostHandler]]]]


def _enter(model: Model) -> AbstractAsyncContextManager[object]:
    """Return the model if it is a context manager, else an empty one."""
    return model if isinstance(model, AbstractAsyncContextManager) else nullcontext()


def _is_command(message: Message) -> bool:
    """Whether a message may call a skill by name."""
    return str(message["content"]).lstrip()[:1] in ("/", "$")


class StepBudget:
    """The number of answers that a run and its forks may take together."""

    def __init__(self, most: int) -> None:
        self.most = self._left = max(most, 1)

    def take(self) -> bool:
        """Take one; return whether one was left."""
        self._left -= 1
        return self._left >= 0


class Turn:
    """One run. `answered` tells whether the receiver of events answers permission requests.

    A fork shares the `budget` of its parent.
    """

    def __init__(
        self,
        context: AgentContext,
        equip: Equip,
        sink: EventSink,
        *,
        answered: bool,
        budget: StepBudget | None = None,
    ) -> None:
        self._budget = budget or StepBudget(MAX_RUN_STEPS)
        self.context, self.agent, self._sink = context, context.agent, sink
        self._equip, self._answered = equip, answered
        self.model, own = equip(context)
        self._more = tuple(tool for tool, _ in own.values())
        self._tools = ToolRunner(context, own, self._fork)
        self._usage, self._text = NONE, ""
        # Whether the model got a note that code in its language is not run.
        self._noted_code = False
        self._first_prompt: Prompt | None = None
        self._error, self._may_retry, self._wait_seconds = "", False, 0.0

    @property
    def settings(self) -> Settings:
        """The settings of the runtime."""
        return self.context.settings

    async def run(self, message: Message | None) -> None:
        """Answer the message, or without one resume the interrupted run."""
        try:
            async with _enter(self.model):
                reason, error = await self._run_caught(message)
            await self._sink.send(Final(self._text, reason, error, self._usage))
        finally:
            self.context.drop()

    async def run_compaction(self) -> None:
        """Replace the older part of the history by a summary, even if the history is short."""
        try:
            async with _enter(self.model):
                await self._begin(None)
                done = await self._compact()
            error = "" if done else "the conversation is too short to be summarized"
            reason: Reason = "answer" if done else "error"
            await self._sink.send(Final("", reason, error, self._usage))
        finally:
            self.context.drop()

    async def _run_caught(self, message: Message | None) -> tuple[Reason, str]:
        """Return how the run ended; ConfigError is for the developer and is raised."""
        try:
            return await self._run(message)
        except ConfigError:
            raise
        except SkillbeltError as error:
            return "error", one_line(str(error))

    async def _send(self, event: AgentEvent) -> None:
        if isinstance(event, Usage):
            self._usage = self._usage.plus(event)
        await self._sink.send(event)

    async def _send_answer(self, text: str) -> None:
        """Send an answer that does not come from a model request."""
        self._text = text
        if text:
            await self._send(TextDelta(text))

    async def _send_usage(self, usage: Usage) -> None:
        if usage != NONE:
            await self._send(usage)

    async def _run(self, message: Message | None) -> tuple[Reason, str]:
        plain = message is not None and not _is_command(message)
        await self._begin(message if plain else None)
        ended = None
        if message is None:
            ended = await self._resume()
        elif not plain:
            ended = await self._run_command(message)
        return ended or await self._run_steps()

    # Begin

    @in_thread
    def _begin(self, message: Message | None) -> None:
        """Read the history; with a message, also store it and build the first request."""
        self.context.read()
        if message is not None:
            self._store_message_sync(message)
            self._first_prompt = self.context.prompt(self._more, self._restore_tokens)

    def _store_message_sync(self, message: Message) -> None:
        """Store a message, after a result for each call that an earlier run left open."""
        context = self.context
        left = [result_message(call, INTERRUPTED, INTERRUPTED) for call in context.pending()]
        context.commit([*left, message])

    _store_message = in_thread(_store_message_sync)

    async def _run_command(self, message: Message) -> tuple[Reason, str] | None:
        """Handle `/name arguments`; return the outcome if no model is needed."""
        content = str(message["content"])
        text = str(message.get("said") or content)
        command = await self._read_command(text)
        if command is None:
            await self._store_message(message)
            return None
        if command.error:
            return "error", command.error
        files = content.removeprefix(text)
        await self._store_message({**message, "content": f"{command.text}{files}", "said": text})
        await self._send(SkillCalled(command.skill, command.arguments))
        skill = self.agent.runtime.get_skill(command.skill)
        if not wants_fork(self.context, skill):
            return None
        return await self._run_fork_for_user(skill, command.text)

    async def _read_command(self, text: str) -> Command | None:
        """Return the command after its permission requests.

        None if the message is not a command.
        """
        found: list[Command | None] = []

        async def work() -> None:
            found.append(await self._parse_command(text))

        await self._new_group().run_all([work()])
        return found[0]

    @in_thread
    def _parse_command(self, text: str) -> Command | None:
        return self.context.session.user_command(text)

    async def _resume(self) -> tuple[Reason, str] | None:
        """Run the calls that an earlier run left open; return the outcome if nothing is left."""
        context = self.context
        if not context.history:
            return "error", "there is nothing to resume in this session"
        calls = context.pending()
        if calls:
            await self._run_calls(calls, repeated=True)
        elif context.history[-1]["role"] == "assistant":
            await self._send_answer(str(context.history[-1]["content"]))
            return "answer", ""
        return None

    # Steps

    async def _run_steps(self) -> tuple[Reason, str]:
        most = max(self.context.limits.max_steps, 1)
        for _ in range(most):
            if not self._budget.take():
                together = f"{self._budget.most} steps with its forks (max_run_steps)"
                return "max_steps", f"the model needs more than {together}"
            reply = await self._ask()
            if reply is None:
                return "error", self._error
            self._text = reply.text
            blocks = self._find_code(reply)
            if reply.calls:
                await self._run_calls(reply.calls, reply.finished)
            elif blocks:
                await self._run_code(blocks)
            else:
                return "answer", reply.fault or ("" if reply.text else _EMPTY)
            if self._tools.repeats.endless:
                return "loop", "the model repeats the same calls"
        return "max_steps", f"the model needs more than {most} steps (max_steps)"

    def _find_code(self, reply: Reply) -> list[code.CodeBlock]:
        """Return the code of an answer to run: nothing, unless the host enabled it."""
        if not self.agent.run_code or reply.calls:
            return []
        blocks = code.find_blocks(reply.text, MAX_CODE_BLOCKS)
        if any(block.runs for block in blocks):
            return blocks
        # After one note, a model that answers with such code again means it as its answer.
        repeated, self._noted_code = self._noted_code, self._noted_code or bool(blocks)
        return [] if repeated else blocks

    async def _ask(self) -> Reply | None:
        """Get and store one answer of the model, with retries; None when all fail."""
        most = max(self.agent.max_retries, 0)
        for attempt in range(most + 1):
            reply = await self._attempt()
            if reply is not None:
                await self._send_usage(reply.usage)
                return reply
            if not self._may_retry or attempt == most:
                break
            await self._send(Retry(self._error))
            await asyncio.sleep(self._wait_seconds * 2**attempt)
        return None

    async def _attempt(self) -> Reply | None:
        first, self._first_prompt = self._first_prompt, None
        prompt = first or await self._build_prompt()
        if self._is_long(prompt) and await self._compact():
            prompt = await self._build_prompt()
        try:
            reply = await self._stream_reply(prompt)
        except ModelFailure as failure:
            self.context.drop()
            self._error = str(failure)
            self._may_retry = await self._compact() if failure.too_long else failure.again
            self._wait_seconds = 0.0 if failure.too_long else RETRY_WAIT_SECONDS
            return None
        return await self._store_reply(reply)

    async def _stream_reply(self, prompt: Prompt) -> Reply:
        """Send the deltas of an answer and return it; every error of a model is a ModelFailure."""
        found: Reply | None = None
        await self._keep_request(prompt)
        try:
            async with ask_model(self.model, prompt) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Reply):
                        found = piece
                    else:
                        await self._send(piece)
        except (ModelFailure, ConfigError):
            raise
        except Exception as error:
            reason = shorten(one_line(str(error)), _MAX_ERROR_CHARS)
            raise ModelFailure(f"{type(error).__name__}: {reason}", again=True) from error
        if found is None:
            raise ModelFailure(_EMPTY, again=True)
        if len(found.calls) > _FLOOD * max(MAX_ANSWER_CALLS, 1):
            raise ModelFailure(f"an answer with {len(found.calls)} calls (max_answer_calls)")
        return found

    @in_thread
    def _build_prompt(self) -> Prompt:
        return self.context.prompt(self._more, self._restore_tokens)

    @in_thread
    def _keep_request(self, prompt: Prompt, purpose: str = "") -> None:
        """Record the request to the model, if recording is on.

        Nothing is recorded for a runner with its own store.
        """
        own = self.context.store is not self.agent.runtime.store
        if own or self.agent.model == OFFLINE or not self.context.session.gate.is_recorded:
            return
        tools = [
            {"name": one.name, "description": one.description, "parameters": one.schema}
            for one in prompt.tools
        ]
        who = " ".join(filter(None, (self.agent.name, purpose)))
        log = RequestLog(self.context.store, self.context.key)
        log.add(prompt.messages, tools=tools, agent=who, model=self.model.name)

    @in_thread
    def _store_reply(self, reply: Reply) -> Reply:
        reply = make_storable(reply)
        self.context.store_reply(reply)
        return reply

    # Compaction

    @property
    def _window_tokens(self) -> int:
        own, most = self.model.window_tokens, self.settings.context_window_tokens
        return min(own, most) if own and most else own or most

    @property
    def _restore_tokens(self) -> int | None:
        """The room for texts that are put back after a compaction."""
        return int(self._window_tokens * COMPACT_KEPT_SHARE) or None

    def _is_long(self, prompt: Prompt) -> bool:
        most = self._window_tokens * self.agent.compact_share
        size = estimate_tokens(prompt.messages)
        if not most or size * 2 < most:  # a shorter history does not help if tools are most of it
            return False
        return size + compaction.estimate_tool_tokens(prompt.tools) > most

    async def _compact(self) -> bool:
        """Replace the older part of the history by a summary; return whether there was one."""
        history = self.context.history
        start = compaction.find_split(history, self._window_tokens)
        if not start:
            return False
        asked = compaction.prompt_for_summary(history[:start], self._window_tokens)
        await self._keep_request(asked, "(summary)")
        made = await compaction.summarize(history[:start], self.model, self._window_tokens)
        known = await self._find_given()
        text = f"{made.text}{compaction.describe_dropped(history[:start], known)}"
        await self._store_summary(len(history) - start, text)
        await self._send_usage(made.usage)
        await self._send(Compaction(start, text))
        return True

    @in_thread
    def _find_given(self) -> set[str]:
        """Return the skills that the model was ever given in this session."""
        events = self.context.session.session.events()
        return {str(one.data.get("name")) for one in events if one.type == "skill_loaded"}

    @in_thread
    def _store_summary(self, kept: int, summary: str) -> None:
        self.context.compact(kept, summary)

    # Calls

    def _new_group(self) -> CallGroup:
        gate, session = self.context.session.gate, session_id(self.context.key)
        return CallGroup(
            sink=self._sink,
            desk=lambda: gate.desk,
            session=session,
            answered=self._answered,
            end_seconds=CANCEL_TIMEOUT_SECONDS,
        )

    async def _run_calls(
        self, calls: Sequence[Called], finished: bool = True, *, repeated: bool = False
    ) -> None:
        """Run the calls at the same time; store and send their results in order.

        Calls `repeated` after a crash may have run before, so commands are not run again.
        """
        jobs, group = self._tools.prepare(calls, finished), self._new_group()
        for job in jobs:
            await self._send(ToolCall(job.call.id, job.call.name, job.call.arguments))
            if repeated and self._tools.kind(job.call.name) in _RUNS:
                job.result = failed(INTERRUPTED, "interrupted")
        try:
            await group.run_all(
                [
                    self._tools.run(job, group, number)
                    for number, job in enumerate(jobs)
                    if job.result is None
                ]
            )
        except BaseException:
            self._store_results_sync(jobs)
            raise
        await self._store_results(jobs)
        for job in jobs:
            self._tools.repeats.note(job)
            await self._send(job.response())

    def _store_results_sync(self, jobs: Sequence[PendingCall]) -> None:
        """Store the results; cancelled calls get one too, so that none stays open."""
        done = [job for job in jobs if job.result is not None]
        events = [event for job in done for event in job.writes.events_written]
        results = [(job.call, job.result or failed(CANCELLED, "cancelled")) for job in jobs]
        answers = [result_message(call, result.text, result.error) for call, result in results]
        self.context.commit(answers, events, [job.writes for job in done])

    _store_results = in_thread(_store_results_sync)

    # Code in answers

    async def _run_code(self, blocks: Sequence[code.CodeBlock]) -> None:
        """Run fenced code block by block, and store the results as a message for the model."""
        results: list[ToolResult] = []
        group = self._new_group()

        async def work() -> None:
            for number, block in enumerate(blocks, 1):
                results.append(await self._run_block(block, group.watch(f"code-{number}")))

        await group.run_all([work()])
        text = code.describe_results(blocks, results)
        await self._store_message({"role": "user", "content": text, "goes_on": True})

    @in_thread
    def _run_block(self, block: code.CodeBlock, watch: Watch) -> ToolResult:
        return code.run(self.context.session, block, watch)

    # Forks

    async def _fork(
        self, skill: Skill, job: PendingCall, group: CallGroup, message: str = ""
    ) -> ToolResult:
        """Run the skill in a separate session; pass on permission requests and usage."""
        made = await self._open_fork(skill, message)
        sink = ForkSink(self._sink)
        turn = Turn(made.context, self._equip, sink, answered=self._answered, budget=self._budget)
        with CancelScope() as scope:
            group.on_stop(scope.cancel)
            await turn.run({"role": "user", "content": made.message})
        self._usage = self._usage.plus(sink.usage)
        result, event = fork_result(made, skill, sink.final)
        job.writes.append(self.context.key, [event._replace(agent=self.agent.name)])
        return result

    @in_thread
    def _open_fork(self, skill: Skill, message: str) -> Fork:
        return open_fork(self.context, skill, message)

    async def _run_fork_for_user(self, skill: Skill, message: str) -> tuple[Reason, str]:
        """Fork a skill that the user called; its result is the answer."""
        job = PendingCall(Called("", "fork", {}), self.context.journal.new_writes())
        group = self._new_group()

        async def work() -> None:
            job.result = await self._fork(skill, job, group, message)

        await group.run_all([work()])
        result = job.result or failed(CANCELLED, "cancelled")
        answer: Message = {"role": "assistant", "content": result.text}
        self.context.commit([answer], job.writes.events_written, [job.writes])
        await self._send_answer("" if result.error else result.text)
        return "error" if result.error else "answer", result.error
