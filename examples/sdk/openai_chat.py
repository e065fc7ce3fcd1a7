"""A loop of your own with the `openai` package: chat completions. It needs OPENAI_API_KEY.

Start it in a folder with skills: python openai_chat.py [--stream] "How long is this text?"
The lines between the marks are for you to copy.
"""

import os
import sys
from typing import Any
from uuid import uuid4

from openai import OpenAI

from skillbelt import Rule, Runtime, RuntimeSession, join_stream

MODEL = os.environ.get("MODEL", "gpt-5.4-mini")


# copy from here
def answer(client: OpenAI, session: RuntimeSession, history: list[Any]) -> str:
    tools = session.tools("openai")
    while True:
        request = session.request(history, format="openai", system="You help.", tools=tools)
        response = client.chat.completions.create(model=MODEL, **request)
        history.append(reply := response.choices[0].message)
        results = session.answer_calls(reply, "openai")
        if not results:
            return str(reply.content)
        history += results


# copy to here
# copy from here
def answer_streamed(client: OpenAI, session: RuntimeSession, history: list[Any]) -> str:
    tools = session.tools("openai")
    while True:
        request = session.request(history, format="openai", system="You help.", tools=tools)
        chunks = []
        for chunk in client.chat.completions.create(model=MODEL, stream=True, **request):
            chunks.append(chunk)
            if chunk.choices:
                print(chunk.choices[0].delta.content or "", end="", flush=True)
        history.append(reply := join_stream(chunks, "openai"))
        results = session.answer_calls(reply, "openai")
        if not results:
            return str(reply["content"])
        history += results


# copy to here
def main(arguments: list[str]) -> None:
    belt = Runtime(rules=[Rule("run", "python3 scripts/*", "allow")])
    session = belt.session("me", uuid4().hex)
    history: list[Any] = [{"role": "user", "content": arguments[-1]}]
    ask = answer_streamed if "--stream" in arguments else answer
    with OpenAI() as client:
        said = ask(client, session, history)
    print("" if "--stream" in arguments else said)


if __name__ == "__main__":
    main(sys.argv[1:])
