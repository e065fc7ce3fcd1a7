"""A loop of your own with the `openai` package: the Responses API. It needs OPENAI_API_KEY.

Start it in a folder with skills: python openai_responses.py [--stream] "How long is this text?"
The lines between the marks are for you to copy.
"""

import os
import sys
from typing import Any
from uuid import uuid4

from openai import OpenAI

from skillbelt import Rule, Runtime, RuntimeSession

MODEL = os.environ.get("MODEL", "gpt-5.4-mini")


# copy from here
def answer(client: OpenAI, session: RuntimeSession, history: list[Any]) -> str:
    tools = session.tools("responses")
    while True:
        request = session.request(history, format="responses", system="You help.", tools=tools)
        response = client.responses.create(
            model=MODEL,
            store=False,  # the history is ours; reasoning comes sealed and goes back as it came
            include=["reasoning.encrypted_content"],
            **request,
        )
        history += response.output
        results = session.answer_calls(response, "responses")
        if not results:
            return str(response.output_text)
        history += results


# copy to here
# copy from here
def answer_streamed(client: OpenAI, session: RuntimeSession, history: list[Any]) -> str:
    tools = session.tools("responses")
    while True:
        request = session.request(history, format="responses", system="You help.", tools=tools)
        with client.responses.stream(
            model=MODEL,
            store=False,
            include=["reasoning.encrypted_content"],
            **request,
        ) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    print(event.delta, end="", flush=True)
            response = stream.get_final_response()
        history += response.output
        results = session.answer_calls(response, "responses")
        if not results:
            return str(response.output_text)
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
