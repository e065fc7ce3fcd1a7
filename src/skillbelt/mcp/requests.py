"""Run MCP requests in threads: progress, permission questions, cancellation and a bound.

A client of the older protocol is asked while its request runs. In the newer one a server cannot
ask: it answers the request with the question, and continues when the client repeats the request
with the user's answer.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Generic, NamedTuple, TypeVar

import anyio
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    ElicitRequest,
    ElicitResult,
    InputRequiredResult,
    InputResponseRequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from skillbelt.errors import SkillbeltError
from skillbelt.mcp.elicitation import build_form, can_elicit, read_answer
from skillbelt.permission.gate import ASKER
from skillbelt.permission.rules import Answer
from skillbelt.permission.waiting import NotAnswered, Pending, WaitingRequests
from skillbelt.running.following import Decoder, Follower, Watch
from skillbelt.running.loop_queue import LoopQueue
from skillbelt.sandbox.protocol import Stream

logger = logging.getLogger(__name__)
Context = ServerRequestContext[Any, Any]
T = TypeVar("T")
# The blocking part of a request; `Watch` follows and cancels the command that it runs.
Operation = Callable[[Watch], T]

REQUEST_ID = "mcp_call"  # in the metadata of a permission request
_RESPONSE_KEY = "permission"
_PARKED_EXTRA_SECONDS = 60.0  # how long a parked request outlives its permission question
_SHUTDOWN_SECONDS = 10.0
_SHUTTING_DOWN = "the server is shutting down"
_DISCONNECT_POLL_SECONDS = 0.5
_MAX_OUTPUT_BYTES = 64 * 2**10  # buffered for a client that reads slowly


class Question(NamedTuple):
    """A permission request that the client must answer before the operation continues."""

    pending: Pending
    reply: Future[Answer | None]

    def settle(self, answer: Answer | None) -> None:
        """Give the answer; None means there is none. The first answer counts."""
        with suppress(InvalidStateError):
            self.reply.set_result(answer)


class ProgressOutput(NamedTuple):
    """New output of the command; `total` counts all bytes so far."""

    text: str
    total: int


class RunningRequest(Generic[T]):
    """An operation in its own thread. Only the loop calls `next`; any thread may call the rest."""

    def __init__(
        self,
        operation: Operation[T],
        owner: str,
        *,
        can_ask: bool,
        on_end: Callable[[RunningRequest[T]], None],
    ) -> None:
        """Prepare it: `owner` names the conversation, `can_ask` whether its client can show a form.

        `on_end` is called in the thread, before `next` reports the end.
        """
        self.id, self.owner, self.can_ask = os.urandom(16).hex(), owner, can_ask
        self.result: Future[T] = Future()
        self._events: LoopQueue[ProgressOutput | Question | None] = LoopQueue(_MAX_OUTPUT_BYTES)
        self._follower, self._decoder = Follower(self._on_output), Decoder(self._put_output)
        self._on_end = on_end
        self._lock = threading.Lock()
        self._open: list[Question] = []
        self._total = 0
        # Permission requests made in this context carry the id, so that the right client is asked.
        context = copy_context()
        context.run(ASKER.set, {REQUEST_ID: self.id})
        self._thread = threading.Thread(
            target=context.run, args=(self._run, operation), name="skillbelt-mcp", daemon=True
        )

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for the thread to end."""
        self._thread.join(seconds)

    async def next(self) -> ProgressOutput | Question | None:
        """Wait for new output or a question; None at the end, when there is a result."""
        event = await self._events.next()
        while isinstance(event, ProgressOutput) and isinstance(self._events.peek(), ProgressOutput):
            more = await self._events.next()
            assert isinstance(more, ProgressOutput)
            event = ProgressOutput(event.text + more.text, more.total)
        if isinstance(event, ProgressOutput) and (dropped := self._events.take_dropped()):
            event = ProgressOutput(f"{event.text}[{dropped} bytes left out]\n", self._total)
        return event

    def cancel(self) -> None:
        """Kill the command, now or when it starts, and ask no more questions."""
        self._follower.kill()
        self._dismiss_questions()

    def give_up(self) -> None:
        """Answer without waiting any longer for the thread."""
        with suppress(InvalidStateError):
            self.result.set_exception(MCPError(INTERNAL_ERROR, _SHUTTING_DOWN))
        self._events.put(None)

    def ask(self, pending: Pending, seconds: float) -> Answer | None:
        """Block until the client answers; None if it cannot be asked or the time is up."""
        question = Question(pending, Future())
        with self._lock:
            if self._follower.killed or not self.can_ask:
                return None
            self._open.append(question)
        self._events.put(question)
        try:
            return question.reply.result(seconds)
        except TimeoutError:
            return None

    # In its thread

    def _run(self, operation: Operation[T]) -> None:
        try:
            result = operation(self._follower.watch)
        except BaseException as error:
            with suppress(InvalidStateError):  # the server gave up before
                self.result.set_exception(error)
        else:
            with suppress(InvalidStateError):
                self.result.set_result(result)
        finally:
            self._dismiss_questions()
            self._on_end(self)
            self._events.put(None)

    def _dismiss_questions(self) -> None:
        with self._lock:
            questions, self._open = self._open, []
        for question in questions:
            question.settle(None)

    def _on_output(self, stream: Stream, data: bytes) -> None:
        self._total += len(data)
        self._decoder(stream, data)

    def _put_output(self, _stream: Stream, text: str) -> None:
        self._events.put(ProgressOutput(text, self._total), len(text.encode()))


class _Parked(NamedTuple):
    """A request that waits until its client repeats it with an answer."""

    request: RunningRequest[Any]
    question: Question
    identity: str
    until: float


class RequestRunner:
    """The running requests of one server."""

    def __init__(
        self,
        desk: WaitingRequests,
        owner_of: Callable[[Context], str],
        *,
        ask_seconds: float,
        most: int,
        mark: Callable[[str], str] = str,
    ) -> None:
        """Prepare it: `owner_of` names the conversation of a request; at most `most` run at once.

        `ask_seconds` is the time limit of a permission question. `mark` adds the name of this
        server to an id, so that an answer finds the server that waits for it.
        """
        self._mark = mark
        self._desk, self._owner_of = desk, owner_of
        self._ask_seconds, self._most = ask_seconds, most
        self._lock = threading.Lock()
        self._requests: dict[str, RunningRequest[Any]] = {}
        self._parked: dict[str, _Parked] = {}
        self._closed = False
        self._stop_listening = desk.listen(self._ask_client, elsewhere=False)

    async def run_interactive(
        self, ctx: Context, params: InputResponseRequestParams, operation: Operation[T]
    ) -> T | InputRequiredResult:
        """Run an operation that may ask for permission; MCPError when it fails.

        Returns the question when the client has to repeat the request. Cancelling the request
        kills the command that it runs.
        """
        identity = _identify(ctx)
        if params.request_state is not None:
            request = self._resume(params, identity)
        else:
            request = self._start(ctx, operation, can_ask=_can_ask(ctx))
        try:
            if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                return await self._follow_or_park(ctx, request, identity)
            return await self._follow_and_elicit(ctx, request)
        except BaseException:
            request.cancel()
            raise

    async def run(self, ctx: Context, operation: Operation[T]) -> T:
        """Run an operation that asks no questions; MCPError when it fails."""
        request = self._start(ctx, operation, can_ask=False)
        try:
            while await request.next() is not None:
                pass
            return _result_of(request)
        except BaseException:
            request.cancel()
            raise

    def close(self) -> None:
        """Cancel every request and wait a limited time for the threads to end.

        Each request is answered, also one whose thread does not end in time.
        """
        with self._lock:
            self._closed = True
            requests = list(self._requests.values())
            self._parked.clear()
        self._stop_listening()
        for request in requests:
            request.cancel()
        until = time.monotonic() + _SHUTDOWN_SECONDS
        for request in requests:
            request.join(max(0.0, until - time.monotonic()))
            request.give_up()

    # Start, park, resume

    def _start(self, ctx: Context, operation: Operation[T], *, can_ask: bool) -> RunningRequest[T]:
        request = RunningRequest(
            operation, self._owner_of(ctx), can_ask=can_ask, on_end=self._forget
        )
        with self._lock:
            if self._closed or not self._has_room(request.owner):
                reason = _SHUTTING_DOWN if self._closed else "too many calls at once"
                raise MCPError(INTERNAL_ERROR, f"{reason}; try again later")
            self._requests[request.id] = request
            # Under the lock, so that `close` never joins a thread that has not started.
            request.start()
        return request

    def _has_room(self, owner: str) -> bool:
        """Whether more slots are free than this conversation already uses.

        One conversation alone gets about half of the slots, so the next one finds some free.
        """
        free = self._most - len(self._requests)
        return free > 0 and sum(one.owner == owner for one in self._requests.values()) <= free

    def _forget(self, request: RunningRequest[Any]) -> None:
        with self._lock:
            self._requests.pop(request.id, None)

    def _resume(self, params: InputResponseRequestParams, identity: str) -> RunningRequest[Any]:
        self._drop_expired()
        with self._lock:
            parked = self._parked.get(params.request_state or "")
            if parked is None or parked.identity != identity:
                raise MCPError(INVALID_PARAMS, "requestState matches no request that waits here")
            del self._parked[params.request_state or ""]
        response = (params.input_responses or {}).get(_RESPONSE_KEY)
        result = response if isinstance(response, ElicitResult) else None
        parked.question.settle(read_answer(parked.question.pending.request, result))
        return parked.request

    def _park(
        self, request: RunningRequest[Any], question: Question, identity: str
    ) -> InputRequiredResult:
        self._drop_expired()
        state = self._mark(os.urandom(32).hex())
        until = time.monotonic() + self._ask_seconds + _PARKED_EXTRA_SECONDS
        with self._lock:
            self._parked[state] = _Parked(request, question, identity, until)
        form = ElicitRequest(params=build_form(question.pending.request))
        return InputRequiredResult(input_requests={_RESPONSE_KEY: form}, request_state=state)

    def _drop_expired(self) -> None:
        """Cancel parked requests that expired, and the oldest ones above the limit."""
        now = time.monotonic()
        with self._lock:
            expired = [state for state, one in self._parked.items() if one.until < now]
            excess = list(self._parked)[: max(0, len(self._parked) - self._most)]
            dropped = [self._parked.pop(state) for state in {*expired, *excess}]
        for one in dropped:
            one.request.cancel()

    # Follow

    async def _follow_or_park(
        self, ctx: Context, request: RunningRequest[T], identity: str
    ) -> T | InputRequiredResult:
        """Follow a request of the newer protocol, up to its result or its next question."""
        while (event := await request.next()) is not None:
            if isinstance(event, Question):
                return self._park(request, event, identity)
            await _report_progress(ctx, event)
        return _result_of(request)

    async def _follow_and_elicit(self, ctx: Context, request: RunningRequest[T]) -> T:
        """Follow a request of the older protocol, and show its questions meanwhile."""
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_when_disconnected, ctx, request)
            while (event := await request.next()) is not None:
                if isinstance(event, Question):
                    group.start_soon(_elicit, ctx, event, self._mark(os.urandom(16).hex()))
                else:
                    await _report_progress(ctx, event)
            # Questions that are still open were answered elsewhere.
            group.cancel_scope.cancel()
        return _result_of(request)

    # In a listener thread of the desk

    def _ask_client(self, pending: Pending) -> None:
        request = self._requests.get(str(pending.request.metadata.get(REQUEST_ID)))
        # Longer than the desk waits: the desk reports the timeout.
        seconds = self._ask_seconds + _PARKED_EXTRA_SECONDS
        answer = request.ask(pending, seconds) if request is not None else None
        if answer is None:
            raise NotAnswered("not answered")  # the request does not wait for this listener
        self._desk.answer(pending.id, answer)


async def _elicit(ctx: Context, question: Question, id: str) -> None:
    """Show the form; if it cannot be shown there is no answer, and the desk times out.

    The client answers under the `id`, maybe to another server; no other question has it.
    """
    answer, form = None, build_form(question.pending.request)
    params = form.model_dump(by_alias=True, mode="json", exclude_none=True)
    # Private SDK interface: there is no public way to choose the id of a request.
    channel = ctx.session._request_outbound
    try:
        response = await channel.send_raw_request("elicitation/create", params, {"request_id": id})
        answer = read_answer(question.pending.request, ElicitResult.model_validate(response))
    except ValidationError:
        answer = read_answer(question.pending.request, None)
    except MCPError as error:
        logger.debug("the client did not show the permission form: %s", error)
    question.settle(answer)


async def _cancel_when_disconnected(ctx: Context, request: RunningRequest[Any]) -> None:
    """Cancel the request when its HTTP client disconnects: the answer could not be delivered."""
    while ctx.request is not None:
        if await ctx.request.is_disconnected():
            return request.cancel()
        await anyio.sleep(_DISCONNECT_POLL_SECONDS)


def _can_ask(ctx: Context) -> bool:
    modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    reachable = modern or ctx.session.can_send_request
    return reachable and can_elicit(ctx.session.client_capabilities)


def _result_of(request: RunningRequest[T]) -> T:
    try:
        return request.result.result()
    except MCPError:
        raise
    except SkillbeltError as error:
        raise MCPError(INVALID_PARAMS, str(error)) from error
    except Exception as error:
        # The message may name local paths, so the client does not get it.
        logger.exception("a request failed")
        raise MCPError(INTERNAL_ERROR, "internal error; see the log of the server") from error


async def _report_progress(ctx: Context, output: ProgressOutput) -> None:
    """Send the new output as progress, if the client asked for progress."""
    await ctx.session.report_progress(float(output.total), message=output.text)


def _identify(ctx: Context) -> str:
    """Hash the parts that a repeated request must have in common with the parked one."""
    params = ctx.params or {}
    compared = {key: params[key] for key in ("name", "arguments", "uri") if key in params}
    text = json.dumps([ctx.method, compared], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
