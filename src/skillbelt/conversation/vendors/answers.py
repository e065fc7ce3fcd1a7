"""The calls of a reply that need an answer, and the answers to them."""

from __future__ import annotations

import os
from inspect import isawaitable, iscoroutine

from skillbelt.conversation.vendors.gemini_contents import OWN_ID
from skillbelt.conversation.vendors.read import read_reply
from skillbelt.conversation.vendors.shapes import (
    CallAnswer,
    HistoryCall,
    MessageFormat,
    need_parts,
    refuse,
)


def find_calls(reply: object, format: MessageFormat) -> list[HistoryCall]:
    """Return the calls of a reply that have no result yet, each with an id."""
    history = read_reply(reply, format)
    done = {result.id for result in history.results()}
    return [
        call if call.id else call._replace(id=f"{OWN_ID}{os.urandom(8).hex()}")
        for call in history.calls()
        if not call.id or call.id not in done
    ]


def read_answer(given: object, call: HistoryCall, format: MessageFormat) -> CallAnswer:
    """Return the answer to a call; that of a host's tool is text, or parts of the vendor."""
    if isinstance(given, CallAnswer):
        return given
    where = f"what others returned for {call.name}"
    if isawaitable(given):
        if iscoroutine(given):
            given.close()
        refuse(where, "text", given, "answer_calls_async awaits it")
    if isinstance(given, str):
        return CallAnswer(call, given)
    if format == "gemini" or not isinstance(given, list):
        refuse(where, "text", given)
    return CallAnswer(call, need_parts(given, where, format))
