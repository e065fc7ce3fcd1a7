"""Requests carried out beside the loop: followed, asked about, parked and ended.

A client of the older protocol is asked while its request goes on. In the newer one a server can not
ask: the request is answered with the question, and goes on when the client comes back with what the
person said.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

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
from skillbelt.mcp.asking import answer, can_be_asked, form
from skillbelt.mcp.request_thread import MARK, Done, Job, Output, Question, Work, reply_to
from skillbelt.permission.waiting import Desk, Pending

logger = logging.getLogger(__name__)
Context = ServerRequestContext[Any, Any]
T = TypeVar("T")
_KEY = "permission"
_LATE_SECONDS = 60.0  # that a parked request is kept after nobody can be asked for it any more
_END_SECONDS = 10.0
_MIND_SECONDS = 0.5


class _Parked(NamedTuple):
    """A request that waits for its client to come back."""

    work: Work[Any]
    question: Question
    what: str
    until: float


class Carrier:
    """The requests of one server that are at work."""

    def __init__(
        self, desk: Desk, whose: Callable[[Context], str], *, ask_seconds: float, most: int
    ) -> None:
        """`whose` names the conversation of a request; no more than `most` requests go on at once.

        The desk asks nobody longer than `ask_seconds`.
        """
        self._desk, self._whose = desk, whose
        self._ask_seconds, self._most = ask_seconds, most
        self._lock = threading.Lock()
        self._works: dict[str, Work[Any]] = {}
        self._parked: dict[str, _Parked] = {}
        self._closed = False
        self._deaf = desk.listen(self._asked, elsewhere=False)

    async def carry(
        self, ctx: Context, params: InputResponseRequestParams, job: Job[T]
    ) -> T | InputRequiredResult:
        """What the job gives, or what the client must ask first; MCPError says what went wrong.

        Whoever cancels the request ends what it runs.
        """
        what = _identity(ctx)
        if params.request_state is not None:
            work = self._resumed(params, what)
        else:
            work = self._begin(ctx, job, can_ask=_may_ask(ctx))
        try:
            if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
                return await self._follow(ctx, work, what)
            return await self._accompany(ctx, work)
        except BaseException:
            work.cancel()
            raise

    async def plain(self, ctx: Context, job: Job[T]) -> T:
        """What a job gives that asks nobody; MCPError says what went wrong."""
        work = self._begin(ctx, job, can_ask=False)
        try:
            while not isinstance(await work.next(), Done):
                pass
            return _given(work)
        except BaseException:
            work.cancel()
            raise

    def close(self) -> None:
        """End everything, and wait for it a while."""
        with self._lock:
            self._closed = True
            works = list(self._works.values())
            self._parked.clear()
        self._deaf()
        for work in works:
            work.cancel()
        until = time.monotonic() + _END_SECONDS
        for work in works:
            work.thread.join(max(0.0, until - time.monotonic()))

    # Where it begins and goes on

    def _begin(self, ctx: Context, job: Job[T], *, can_ask: bool) -> Work[T]:
        work = Work(job, self._whose(ctx), can_ask=can_ask, ended=self._forget)
        with self._lock:
            if self._closed or not self._has_room(work.owner):
                reason = "the server is being ended" if self._closed else "too many calls at once"
                raise MCPError(INTERNAL_ERROR, f"{reason}; try again later")
            self._works[work.mark] = work
            # Here, so that whoever closes meets either nothing or a thread to wait for.
            work.start()
        return work

    def _has_room(self, owner: str) -> bool:
        """Whether there is a place, and more of them are free than this conversation has taken.

        So one alone gets about half of all places, and whoever comes later finds one.
        """
        free = self._most - len(self._works)
        return free > 0 and sum(one.owner == owner for one in self._works.values()) <= free

    def _forget(self, work: Work[Any]) -> None:
        with self._lock:
            self._works.pop(work.mark, None)

    def _resumed(self, params: InputResponseRequestParams, what: str) -> Work[Any]:
        self._sweep()
        with self._lock:
            parked = self._parked.get(params.request_state or "")
            if parked is None or parked.what != what:
                raise MCPError(INVALID_PARAMS, "requestState is of no request that waits here")
            del self._parked[params.request_state or ""]
        found = (params.input_responses or {}).get(_KEY)
        asked = parked.question.pending.request
        reply_to(parked.question, answer(asked, found if isinstance(found, ElicitResult) else None))
        return parked.work

    def _park(self, work: Work[Any], question: Question, what: str) -> InputRequiredResult:
        self._sweep()
        state = os.urandom(32).hex()
        until = time.monotonic() + self._ask_seconds + _LATE_SECONDS
        with self._lock:
            self._parked[state] = _Parked(work, question, what, until)
        asked = ElicitRequest(params=form(question.pending.request))
        return InputRequiredResult(input_requests={_KEY: asked}, request_state=state)

    def _sweep(self) -> None:
        """Give up what nobody came back for."""
        now = time.monotonic()
        with self._lock:
            late = [state for state, one in self._parked.items() if one.until < now]
            over = list(self._parked)[: max(0, len(self._parked) - self._most)]
            gone = [self._parked.pop(state) for state in {*late, *over}]
        for one in gone:
            one.work.cancel()

    # How it is followed

    async def _follow(self, ctx: Context, work: Work[T], what: str) -> T | InputRequiredResult:
        """For a client that can not be asked while it waits."""
        while True:
            event = await work.next()
            if isinstance(event, Question):
                return self._park(work, event, what)
            if isinstance(event, Done):
                return _given(work)
            await _report(ctx, event)

    async def _accompany(self, ctx: Context, work: Work[T]) -> T:
        """For a client that is asked meanwhile."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._mind, ctx, work)
            while True:
                event = await work.next()
                if isinstance(event, Question):
                    group.start_soon(self._elicit, ctx, event)
                elif isinstance(event, Done):
                    # Whatever is still being asked was settled otherwise; nobody is minded.
                    group.cancel_scope.cancel()
                    break
                else:
                    await _report(ctx, event)
        return _given(work)

    async def _mind(self, ctx: Context, work: Work[Any]) -> None:
        """End what is carried out for a client that has gone: its answer can not be had again."""
        while ctx.request is not None:
            if await ctx.request.is_disconnected():
                return work.cancel()
            await anyio.sleep(_MIND_SECONDS)

    async def _elicit(self, ctx: Context, question: Question) -> None:
        """Show the form. One that can not be shown is not answered; time is up at the desk."""
        said, asked = None, form(question.pending.request)
        try:
            found = await ctx.session.elicit_form(
                asked.message, asked.requested_schema, ctx.request_id
            )
            said = answer(question.pending.request, found)
        except ValidationError:
            said = answer(question.pending.request, None)
        except MCPError:
            pass
        reply_to(question, said)

    # In a thread of the desk

    def _asked(self, pending: Pending) -> None:
        work = self._works.get(str(pending.request.metadata.get(MARK)))
        # Longer than the desk waits, since it is the desk that says that time is up.
        seconds = self._ask_seconds + _LATE_SECONDS
        said = work.ask(pending, seconds) if work is not None else None
        if said is None:
            raise LookupError("not answered")  # so that it is not waited for
        self._desk.answer(pending.id, said)


def _may_ask(ctx: Context) -> bool:
    modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    reachable = modern or ctx.session.can_send_request
    return reachable and can_be_asked(ctx.session.client_capabilities)


def _given(work: Work[T]) -> T:
    try:
        return work.result()
    except MCPError:
        raise
    except SkillbeltError as error:
        raise MCPError(INVALID_PARAMS, str(error)) from error
    except Exception as error:
        # What it is may name things of this machine, so it stays here.
        logger.exception("a request failed")
        raise MCPError(INTERNAL_ERROR, "the server failed at this; see its log") from error


async def _report(ctx: Context, output: Output) -> None:
    """Send the output to the client, if it wants progress."""
    await ctx.session.report_progress(float(output.total), message=output.text)


def _identity(ctx: Context) -> str:
    """What tells whether a request is the one that was asked about."""
    params = ctx.params or {}
    known = {key: params[key] for key in ("name", "arguments", "uri") if key in params}
    plain = json.dumps([ctx.method, known], sort_keys=True, default=str)
    return hashlib.sha256(plain.encode("utf-8", "surrogatepass")).hexdigest()
