"""The tool calls of an answer: checked, run at the same time in threads, cancelled together."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence

from skillbelt.agent.events import PermissionRequest, RunOutput, ToolResponse
from skillbelt.agent.forks import skill_to_fork
from skillbelt.agent.history import AgentContext
from skillbelt.agent.models import Called, is_deep
from skillbelt.agent.stream import EventSink, start_task, wait_shielded
from skillbelt.agent.transaction import StepWrites
from skillbelt.errors import SkillbeltError
from skillbelt.format.skill import Skill
from skillbelt.permission.rules import Answer
from skillbelt.permission.waiting import NotAnswered, Pending, WaitingRequests
from skillbelt.running.background import MAX_SESSION_RUNS
from skillbelt.running.following import Follower, Watch
from skillbelt.running.secrets import redacted, secrets_of
from skillbelt.runtime.threads import in_thread
from skillbelt.sandbox.protocol import Stream
from skillbelt.settings import Settings
from skillbelt.text import one_line, shorten
from skillbelt.tools.definitions import Schema
from skillbelt.tools.handlers import WRONG_ARGUMENTS, failed
from skillbelt.tools.handlers import printable as shown
from skillbelt.tools.schema import Tool, ToolResult
from skillbelt.untrusted_json import BadJson, read_json

logger = logging.getLogger(__name__)
# Calls of one answer; the model gets an error for the others.
MAX_ANSWER_CALLS = 64

# Runs a tool of the host: takes its arguments, and a watch for a command that it runs.
HostHandler = Callable[[dict[str, object], Watch], ToolResult]
_POLLING = "skill_poll"  # may repeat the same call
_MAX_ERROR_CHARS = 300
_MAX_FAULTS, _MAX_CHOICES = 5, 20  # shown to the model
_TOO_DEEP = (
    "the arguments are nested too deeply, so nothing was done. Repeat the call with simpler ones"
)


class CallGroup:
    """Calls that run together: their events from any thread, and their cancellation."""

    def __init__(
        self,
        sink: EventSink,
        desk: Callable[[], WaitingRequests],
        session: str,
        answered: bool,
        end_seconds: float,
    ) -> None:
        """Send permission requests of the `session` as events; `answered` if the receiver answers.

        Cancelling waits at most `end_seconds`.
        """
        self._end_seconds = end_seconds
        self._sink, self._desk, self._session, self._answered = sink, desk, session, answered
        self._lock = threading.Lock()
        self._follower = Follower()
        self._asked: list[str] = []
        self._on_stop: list[Callable[[], object]] = []
        self.stopped = False

    def watch(self, call_id: str, env: object = None) -> Watch:
        """Return a watch for the command of a call; secrets of `env` are redacted."""
        given = env.items() if isinstance(env, Mapping) else ()
        secrets = secrets_of({str(name): str(value) for name, value in given})

        def listener(stream: Stream, data: bytes) -> None:
            if secrets:
                data = redacted(data.decode("utf-8", "replace"), secrets).encode()
            self._sink.send_threadsafe(RunOutput(call_id, stream, data))

        return self._follower.watch._replace(listener=listener)

    def on_stop(self, callback: Callable[[], object]) -> None:
        """Register a function to call when the calls are cancelled."""
        self._on_stop.append(callback)

    def _on_request(self, pending: Pending) -> None:
        """Send a permission request; raise NotAnswered when it is not answered here."""
        if pending.request.session != self._session:
            raise NotAnswered("of another conversation")
        with self._lock:
            self._asked.append(pending.id)
        self._sink.send_threadsafe(PermissionRequest(pending))
        if self.stopped:
            self._reject(pending.id)
        elif not self._answered:
            raise NotAnswered("not answered here")

    def _reject(self, id: str) -> None:
        try:
            self._desk().answer(id, Answer("reject", "cancelled", "runner"))
        except Exception:
            logger.exception("cannot reject a permission request of a cancelled run")

    def stop(self) -> None:
        """Kill every command and reject permission requests, now and later."""
        with self._lock:
            self.stopped = True
            asked = list(self._asked)
        for id in asked:
            self._reject(id)
        self._follower.kill()
        for callback in self._on_stop:
            callback()

    async def run_all(self, works: Sequence[Coroutine[object, object, None]]) -> None:
        """Run all at the same time; cancelling this cancels all."""
        stop_listening = self._desk().listen(self._on_request, elsewhere=False)
        tasks = [start_task(work) for work in works]
        try:
            if tasks:
                await asyncio.wait(tasks)
        except BaseException:
            self.stop()
            await wait_shielded(tasks, self._end_seconds)
            for task in tasks:
                task.cancel()
            raise
        finally:
            stop_listening()
        for task in tasks:
            task.result()


class CallArguments:
    """The parsed arguments of a call; `fault` is a message for the model."""

    def __init__(self, call: Called, finished: bool) -> None:
        self.given: dict[str, object] = {}
        self.fault = ""
        given = call.arguments
        if isinstance(given, str) and not given.strip():
            given = None
        if not given and not finished:
            self.fault = "the call broke off before its arguments; repeat it"
        elif isinstance(given, str):
            given, self.fault = _parse(given)
        if not self.fault and not isinstance(given, Mapping | None):
            self.fault = "the arguments must be an object; nothing was done"
        if not self.fault and isinstance(given, Mapping):
            self.given = {str(key): value for key, value in given.items()}

    @property
    def key(self) -> str:
        """A text that is equal for equal arguments."""
        return json.dumps(self.given, sort_keys=True, default=str)


def _parse(text: str) -> tuple[object, str]:
    """Return the arguments of a JSON text, and a fault."""
    try:
        found = read_json(text)
        return ({}, _TOO_DEEP) if is_deep(found) else (found, "")
    except BadJson as error:
        if error.deep:
            return {}, _TOO_DEEP
        whole = "the arguments are not whole JSON, so nothing was done"
        return {}, f"{whole}. Make the call again, with one whole object"


_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def find_faults(given: Mapping[str, object], schema: Schema) -> str:
    """Check arguments against the schema of a host tool; return the faults, "" for none.

    Checks missing and unknown arguments, types and choices; the function checks the rest.
    """
    properties, required = schema.get("properties"), schema.get("required")
    known = properties if isinstance(properties, Mapping) else {}
    names = required if isinstance(required, list | tuple) else ()
    faults = [f"argument {name!r} is missing" for name in names if name not in given]
    if schema.get("additionalProperties") is False:
        faults += [f"unknown argument {name[:80]!r}" for name in given if name not in known]
    for name, wanted in known.items():
        if name in given and isinstance(wanted, Mapping):
            fault = _describe_mismatch(given[name], wanted)
            faults += [f"argument {name!r} must be {fault}"] if fault else []
    return "; ".join(faults[:_MAX_FAULTS])


def _describe_mismatch(value: object, schema: Mapping[str, object]) -> str:
    """Return what the value must be; "" when it is valid."""
    named, choices = schema.get("type"), schema.get("enum")
    types = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    if types and not any(_has_type(value, str(name)) for name in types):
        return " or ".join(map(str, types))
    if isinstance(choices, list) and value not in choices:
        return f"one of {', '.join(map(str, choices[:_MAX_CHOICES]))}"
    return ""


def _has_type(value: object, name: str) -> bool:
    """Whether the value has the JSON Schema type; an unknown type accepts everything."""
    if isinstance(value, bool):
        return name == "boolean" or name not in _KINDS
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _KINDS.get(name, (object,)))


class PendingCall:
    """One call, its result, and its writes."""

    def __init__(self, call: Called, writes: StepWrites, finished: bool = True) -> None:
        self.call, self.writes = call, writes
        self.arguments = CallArguments(call, finished)
        self.result: ToolResult | None = None
        self.repeated = False  # not run: it gave the same result too often

    def response(self) -> ToolResponse:
        """Return the event for the result."""
        given = self.result or failed("cancelled", "cancelled")
        delta = dict(self.writes.delta)
        return ToolResponse(self.call.id, self.call.name, *given, delta)


class Repeats:
    """Counts equal results of equal calls. A model in a loop is warned, then stopped."""

    def __init__(self, most: int) -> None:
        self._most, self._last = most, dict[str, tuple[str, int]]()
        self.refused = 0

    def refusal(self, job: PendingCall) -> str:
        """Return the refusal of a call that was repeated too often; "" to run it."""
        _, times = self._last.get(_key(job), ("", 0))
        if times < self._most:
            return ""
        self.refused += 1
        return (
            f"{shown(job.call.name)} was called with these arguments {times} times and gave "
            "the same result each time, so it was not called again. Do something else, or answer "
            "the user."
        )

    @property
    def endless(self) -> bool:
        """Whether the model was warned as often as allowed."""
        return self.refused >= self._most

    def note(self, job: PendingCall) -> None:
        """Count a result, unless the call was refused as a repetition."""
        if job.result is not None and not job.repeated:
            last, times = self._last.get(_key(job), ("", 0))
            text = job.result.text
            self._last[_key(job)] = (text, times + 1 if text == last else 1)


def _key(job: PendingCall) -> str:
    call = job.call
    text = str(call.arguments) if job.arguments.fault else job.arguments.key
    return json.dumps([call.name, text])


class ToolRunner:
    """Runs calls for one context, at most as many at a time as a session may have runs.

    `fork` runs a skill in a separate session and returns its result.
    """

    def __init__(
        self,
        context: AgentContext,
        own: Mapping[str, tuple[Tool, HostHandler]],
        fork: Callable[[Skill, PendingCall, CallGroup], Awaitable[ToolResult]],
    ) -> None:
        self.context, self._own, self._fork = context, own, fork
        self._kinds = {name: kind for kind, name in context.agent.runtime.names.items()}
        self.repeats = Repeats(max(context.agent.max_repeats, 1))
        self._room = asyncio.Semaphore(max(MAX_SESSION_RUNS, 1))

    @property
    def settings(self) -> Settings:
        """The settings of the runtime."""
        return self.context.settings

    def kind(self, name: str) -> str:
        """Return the kind of the skill tool with that name; "" for another tool."""
        return self._kinds.get(name, "")

    def prepare(self, calls: Sequence[Called], finished: bool) -> list[PendingCall]:
        """Return the calls of one answer, not started."""
        return [PendingCall(call, self.context.journal.new_writes(), finished) for call in calls]

    async def run(self, job: PendingCall, group: CallGroup, number: int = 0) -> None:
        """Run the call and set its result; errors are results too."""
        try:
            polls = self.kind(job.call.name) == _POLLING
            repeated = "" if polls else self.repeats.refusal(job)
            job.repeated = bool(repeated)
            refusal = failed(repeated, "repeated_call") if repeated else self._refuse(job, number)
            async with self._room:
                job.result = refusal or await self._call(job, group)
        except SkillbeltError as error:
            job.result = failed(shorten(one_line(str(error)), _MAX_ERROR_CHARS), error.kind)
        except Exception as error:
            logger.exception("a tool call failed")
            reason = shorten(one_line(str(error)), _MAX_ERROR_CHARS)
            text = f"{shown(job.call.name)} failed: {type(error).__name__}: {reason}"
            job.result = failed(text, "tool_failed", tool=shown(job.call.name))

    def _refuse(self, job: PendingCall, number: int) -> ToolResult | None:
        """Return the result of a call that must not run; None to run it."""
        name = job.call.name
        if number >= MAX_ANSWER_CALLS:
            return failed(
                f"not done: an answer may have {MAX_ANSWER_CALLS} calls; repeat it in the next one",
                "too_many_calls",
            )
        if job.arguments.fault:
            text = f"{shown(name)}: {job.arguments.fault}"
            return failed(text, WRONG_ARGUMENTS, tool=shown(name))
        if name not in self._own and name not in self._kinds:
            there = ", ".join([*self._kinds, *self._own]) or "none"
            text = f"there is no tool {shown(name)!r}; available: {there}"
            return failed(text, "unknown_tool", tool=shown(name))
        fault = (
            find_faults(job.arguments.given, self._own[name][0].schema) if name in self._own else ""
        )
        text = f"{shown(name)}: {fault}; nothing was done"
        return failed(text, WRONG_ARGUMENTS, tool=shown(name)) if fault else None

    async def _call(self, job: PendingCall, group: CallGroup) -> ToolResult:
        call, given = job.call, job.arguments.given
        watch = group.watch(call.id, given.get("env"))
        if call.name in self._own:
            return await self._call_host_tool(self._own[call.name][1], given, watch)
        skill = await self._skill_to_fork(self._kinds[call.name], given)
        if skill is not None:
            return await self._load_and_fork(skill, job, group)
        return await self._call_skill_tool(job, watch)

    async def _load_and_fork(self, skill: Skill, job: PendingCall, group: CallGroup) -> ToolResult:
        # Load it here first, to get a refusal; the writes (step -1) are never stored.
        loaded = await self._call_skill_tool(
            PendingCall(job.call, StepWrites(self.context.journal, -1)), Watch()
        )
        return loaded if loaded.error else await self._fork(skill, job, group)

    @in_thread
    def _skill_to_fork(self, kind: str, given: Mapping[str, object]) -> Skill | None:
        return skill_to_fork(self.context, kind, given)

    @in_thread
    def _call_skill_tool(self, job: PendingCall, watch: Watch) -> ToolResult:
        session = self.context.session_for(job.writes)
        return session.call_sync(job.call.name, job.arguments.given, job.call.id, watch=watch)

    @in_thread
    def _call_host_tool(
        self, tool: HostHandler, given: dict[str, object], watch: Watch
    ) -> ToolResult:
        return tool(given, watch)
