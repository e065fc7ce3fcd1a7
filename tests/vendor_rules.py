"""What vendors refuse in a request with calls: each rule is one that a real server enforces."""

from __future__ import annotations

import json
from typing import Any

Request = dict[str, Any]


def broken_rules(format: str, request: Request) -> list[str]:
    """The rules of a vendor that a request breaks."""
    return {
        "openai": _check_chat,
        "responses": _check_responses,
        "anthropic": _check_anthropic,
        "gemini": _check_gemini,
    }[format](request)


def _check_chat(request: Request) -> list[str]:
    found, open_calls = [], list[str]()
    for message in request["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                found.append("a tool message must follow a message with its call")
            else:
                open_calls.remove(message["tool_call_id"])
            continue
        if open_calls:
            found.append("a message with calls must be followed by all their results")
        open_calls = [call["id"] for call in message.get("tool_calls") or ()]
    if request["messages"][0]["role"] != "system":
        found.append("the system message comes first")
    return found


def _check_responses(request: Request) -> list[str]:
    found, open_calls = [], list[str]()
    previous = ""
    for item in request["input"]:
        kind = item.get("type", "message")
        if kind == "function_call":
            open_calls.append(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in open_calls:
                found.append("no call for an output")
            else:
                open_calls.remove(item["call_id"])
        if previous == "reasoning" and kind not in ("message", "function_call"):
            found.append("reasoning was provided without its required following item")
        if kind != "reasoning" and "encrypted_content" in item:
            found.append("encrypted content belongs to reasoning")
        if {"parsed", "parsed_arguments", "status"} & {k for k, v in item.items() if v is None}:
            found.append("a field of null")
        previous = kind
    return found + (["no output for a call"] if open_calls else [])


def _check_anthropic(request: Request) -> list[str]:
    found, open_calls = [], list[str]()
    for message in request["messages"]:
        content = message["content"]
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        kinds = [block["type"] for block in blocks]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(results) != sorted(open_calls):
            found.append("each tool_use needs a tool_result in the next message")
        if results and kinds[: len(results)] != ["tool_result"] * len(results):
            found.append("results come first")
        open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if message["role"] == "assistant" and {*message} != {"role", "content"}:
            found.append("extra inputs are not permitted")
    marks = json.dumps(request).count('"cache_control"')
    if marks > 4:
        found.append(f"a maximum of 4 blocks with cache_control may be provided, found {marks}")
    if any(message["role"] == "system" for message in request["messages"]):
        found.append("use the top-level system parameter")
    return found


def _check_gemini(request: Request) -> list[str]:
    found, open_calls = [], list[dict[str, Any]]()
    for content in request["contents"]:
        parts = content["parts"]
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        told = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if [one["name"] for one in told] != [one["name"] for one in open_calls]:
            found.append("the number of responses must equal the number of calls")
        if [one.get("id") for one in told] != [one.get("id") for one in open_calls]:
            found.append("a response has the id of its call")
        if calls and not any("thoughtSignature" in part for part in parts):
            found.append("function call is missing a thought_signature")
        if told and content["role"] != "user":
            found.append("valid roles are user and model")
        open_calls = calls
    return found
