"""A loop of your own with the `anthropic` package. It needs ANTHROPIC_API_KEY.

Start it in a folder with skills: python anthropic_messages.py [--stream] "How long is this text?"
The lines between the marks are for you to copy.
"""

import os
import sys
from typing import Any
from uuid import uuid4

from anthropic import Anthropic

from skillbelt import Rule, Runtime, RuntimeSession

MODEL = os.environ.get("MODEL", "claude-sonnet-5")


# copy from here
def answer(client: Anthropic, session: RuntimeSession, history: list[Any]) -> str:
    tools = session.tools("anthropic")
    while True:
        request = session.request(history, format="anthropic", system="You help.", tools=tools)
        reply = client.messages.create(model=MODEL, max_tokens=8_000, **request)
        history.append(reply)
        results = session.answer_calls(reply, "anthropic")
        if not results:
            return "".join(block.text for block in reply.content if block.type == "text")
        history += results


# copy to here
# copy from here
def answer_streamed(client: Anthropic, session: RuntimeSession, history: list[Any]) -> str:
    tools = session.tools("anthropic")
    while True:
        request = session.request(history, format="anthropic", system="You help.", tools=tools)
        with client.messages.stream(model=MODEL, max_tokens=8_000, **request) as stream:
            for text in stream.text_stream:
                print(text, end="", flush=True)
            reply = stream.get_final_message()
        history.append(reply)
        results = session.answer_calls(reply, "anthropic")
        if not results:
            return "".join(block.text for block in reply.content if block.type == "text")
        history += results


# copy to here
def main(arguments: list[str]) -> None:
    belt = Runtime(rules=[Rule("run", "python3 scripts/*", "allow")])
    session = belt.session("me", uuid4().hex)
    history: list[Any] = [{"role": "user", "content": arguments[-1]}]
    ask = answer_streamed if "--stream" in arguments else answer
    with Anthropic() as client:
        said = ask(client, session, history)
    print("" if "--stream" in arguments else said)


if __name__ == "__main__":
    main(sys.argv[1:])
