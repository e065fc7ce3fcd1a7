"""Any JSON is a vendor's history or a ConfigError, and a history can be written again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillbelt import ConfigError
from skillbelt.conversation.messages import Material, materialize
from skillbelt.conversation.vendors.shapes import MESSAGE_FORMATS, MessageFormat
from skillbelt.conversation.vendors.write import read_outgoing, write_request

pytestmark = pytest.mark.property
TEXTS = st.sampled_from(["", "c1", "pdf", "skill_load", "loaded: pdf", '{"skill": "pdf"}', "x"])
BLOCKS = ["text", "tool_use", "tool_result", "thinking", "input_text"]
ITEMS = ["function_call", "function_call_output", "reasoning", "message"]
KINDS = st.sampled_from([*BLOCKS, *ITEMS])
ROLES = st.sampled_from(["user", "assistant", "model", "tool", "system", "developer", "x"])
KEYS = ["content", "parts", "text", "id", "name", "input", "args", "output", "response"]
KEYS += ["tool_calls", "function", "arguments", "tool_call_id", "tool_use_id", "call_id"]
KEYS += ["functionCall", "function_response", "cache_control", "skill"]


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    known = {"type": KINDS, "role": ROLES, **dict.fromkeys(KEYS, inner)}
    return st.lists(inner, max_size=3) | st.fixed_dictionaries({}, optional=known)


VALUES = st.recursive(st.none() | st.booleans() | st.integers() | TEXTS, objects, max_leaves=12)
MESSAGES = st.fixed_dictionaries(
    {"role": ROLES},
    optional={"type": KINDS, "content": VALUES, "parts": VALUES, "tool_calls": VALUES},
)


@pytest.mark.parametrize("format", MESSAGE_FORMATS)
@given(history=st.lists(VALUES | MESSAGES, max_size=5), system=VALUES)
def test_any_json_is_a_history_or_one_error(
    format: MessageFormat, history: list[Any], system: Any
) -> None:
    before = json.dumps(history)
    try:
        outgoing = read_outgoing(history, format, system)
    except ConfigError as error:
        assert "\n" not in str(error)
        return
    finally:
        assert json.dumps(history) == before
    loaded = [Material("pdf", "Read it.", (("a.md", "A."),))]
    made = materialize(outgoing.messages, loaded, overview="Skills: pdf", landed={"pdf": "c1"})
    request = write_request(outgoing, made)
    assert json.dumps(request).count("Read it.") == 1
    assert "skillbelt:at" not in json.dumps(request)
    assert json.dumps(history) == before
