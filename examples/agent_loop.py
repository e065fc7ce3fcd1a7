"""An agent loop around a model. The model here is a script; any other takes its place."""

from collections.abc import Callable
from typing import Any

from skillbelt import Runtime, RuntimeSession

Message = dict[str, Any]
Model = Callable[[list[Message], list[dict[str, object]]], Message]


def answer(model: Model, session: RuntimeSession, history: list[Message]) -> str:
    """What the model says once it needs no tool any more; the history grows by the way there."""
    while True:
        history.append(reply := model(session.request(history), session.tools("openai")))
        for call in reply.get("tool_calls", []):
            result = session.call_sync(call["name"], call["arguments"], call["id"])
            history.append({"role": "tool", "tool_call_id": call["id"], "content": result.text})
        if not reply.get("tool_calls"):
            return str(reply["content"])


def scripted(messages: list[Message], tools: list[dict[str, object]]) -> Message:
    """A model that loads the skill about logs, and then says how its instructions begin."""
    last = messages[-1]
    if last["role"] == "user":
        call = {"id": "call-1", "name": "skill_load", "arguments": {"skill": "log-triage"}}
        return {"role": "assistant", "content": "", "tool_calls": [call]}
    return {"role": "assistant", "content": f"I was told: {last['content'][:40]}"}


if __name__ == "__main__":
    belt = Runtime()
    said = [{"role": "user", "content": "What is in this log?"}]
    print(answer(scripted, belt.session("me", "first-chat"), said))
