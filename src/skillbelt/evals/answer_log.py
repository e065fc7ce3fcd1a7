"""Keep each answer of a conversation that is under way, so that an interrupted one resumes.

A conversation may end before its last answer: the process is killed, a budget is spent, a server
fails. The same conversation later gets the answers that were paid for from the log, and asks the
model only for what is missing.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Self

from skillbelt.agent import Usage
from skillbelt.agent.models import (
    Called,
    Model,
    ModelFailure,
    Piece,
    Prompt,
    Reply,
    ask_model,
    make_storable,
)
from skillbelt.evals.budget import Budget, PriceOf
from skillbelt.evals.cache import EvalCache, key_of
from skillbelt.text import tokens

BUDGET_SPENT = "the budget is spent"


class _LoggedAnswer(NamedTuple):
    """An answer, and how many seconds the model took for it."""

    reply: Reply
    seconds: float

    def document(self) -> dict[str, object]:
        reply = {**self.reply._asdict(), "calls": [one._asdict() for one in self.reply.calls]}
        return {**reply, "usage": list(self.reply.usage), "seconds": self.seconds}


def _read_answer(kept: Mapping[str, Any]) -> _LoggedAnswer | None:
    """Return the answer that a log holds; None if the entry is damaged."""
    try:
        calls = tuple(
            Called(str(one["id"]), str(one["name"]), one["arguments"]) for one in kept["calls"]
        )
        reply = Reply(
            text=str(kept["text"]),
            calls=calls,
            usage=Usage(*map(int, kept["usage"])),
            kept=dict(kept["kept"]) if kept["kept"] is not None else None,
            finished=bool(kept["finished"]),
            fault=str(kept["fault"]),
        )
        return _LoggedAnswer(reply, float(kept["seconds"]))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return None


class AnswerLog:
    """The answers of one conversation, by a digest of their requests."""

    def __init__(self, cache: EvalCache, conversation: str) -> None:
        self._cache, self._key = cache, f"{conversation}-answers"
        self._answers: dict[str, Any] = cache.get(self._key) or {}

    def find(self, request: str) -> _LoggedAnswer | None:
        """Return the answer to that request, if there is one."""
        kept = self._answers.get(request)
        return _read_answer(kept) if isinstance(kept, dict) else None

    def add(self, request: str, reply: Reply, seconds: float) -> None:
        """Add an answer, and write the log."""
        self._answers[request] = _LoggedAnswer(reply, round(seconds, 3)).document()
        self._cache.put(self._key, self._answers)

    def remove(self) -> None:
        """Remove the log of a conversation that is complete."""
        if self._answers:
            self._cache.remove(self._key)


class BudgetedModel:
    """A model that charges a budget for each request, and makes none once it is spent.

    Answers in the log cost nothing; their usage has no requests. `logged_seconds` is how long they
    took when they were given.
    """

    def __init__(
        self, model: Model, budget: Budget, price: PriceOf, log: AnswerLog | None = None
    ) -> None:
        self._model, self._budget, self._price, self._log = model, budget, price, log
        self.name, self.window_tokens = model.name, model.window_tokens
        self.refused = False  # whether the budget prevented a request
        self.logged_seconds = 0.0

    async def __aenter__(self) -> Self:
        if isinstance(self._model, AbstractAsyncContextManager):
            await self._model.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        if isinstance(self._model, AbstractAsyncContextManager):
            await self._model.__aexit__(*error)

    async def ask(self, prompt: Prompt) -> AsyncIterator[Piece]:
        """Stream the answer of the log, or else of the model."""
        request = key_of(
            messages=list(prompt.messages),
            tools=[(one.name, one.description, one.schema) for one in prompt.tools],
        )
        if self._log is not None and (logged := self._log.find(request)) is not None:
            self.logged_seconds += logged.seconds
            yield logged.reply._replace(usage=logged.reply.usage._replace(requests=0))
            return
        if self._budget.spent:
            self.refused = True
            raise ModelFailure(BUDGET_SPENT)
        began = time.monotonic()
        async with ask_model(self._model, prompt) as pieces:
            async for piece in pieces:
                if not isinstance(piece, Reply):
                    yield piece
                    continue
                reply = self._count_tokens(make_storable(piece), prompt)
                self._budget.charge(reply.usage, self._price)
                if self._log is not None:
                    self._log.add(request, reply, time.monotonic() - began)
                yield reply

    def _count_tokens(self, reply: Reply, prompt: Prompt) -> Reply:
        """Return the answer with an estimate of its tokens, if the server counted none."""
        if reply.usage.input_tokens or reply.usage.output_tokens:
            return reply
        self._budget.estimated = True
        given = json.dumps(
            [list(prompt.messages), [one.schema for one in prompt.tools]], default=str
        )
        made = reply.text + json.dumps([one._asdict() for one in reply.calls], default=str)
        usage = reply.usage._replace(input_tokens=tokens(given), output_tokens=tokens(made))
        return reply._replace(usage=usage)
