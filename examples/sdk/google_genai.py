"""A loop of your own with the `google-genai` package. It needs GEMINI_API_KEY.

Start it in a folder with skills: python google_genai.py [--stream] "How long is this text?"
The lines between the marks are for you to copy.
"""

import os
import sys
from typing import Any
from uuid import uuid4

from google import genai

from skillbelt import Rule, Runtime, RuntimeSession, join_stream

MODEL = os.environ.get("MODEL", "gemini-3.5-flash")


# copy from here
def answer(client: genai.Client, session: RuntimeSession, history: list[Any]) -> str:
    tools = session.tools("gemini")
    while True:
        request = session.request(history, format="gemini", system="You help.", tools=tools)
        response = client.models.generate_content(model=MODEL, **request)
        history.append(response)
        results = session.answer_calls(response, "gemini")
        if not results:
            return str(response.text)
        history += results


# copy to here
# copy from here
def answer_streamed(client: genai.Client, session: RuntimeSession, history: list[Any]) -> str:
    tools = session.tools("gemini")
    while True:
        request = session.request(history, format="gemini", system="You help.", tools=tools)
        chunks, said = [], ""
        for chunk in client.models.generate_content_stream(model=MODEL, **request):
            chunks.append(chunk)
            for part in chunk.parts or []:
                if part.text and not part.thought:
                    said += part.text
                    print(part.text, end="", flush=True)
        history.append(reply := join_stream(chunks, "gemini"))
        results = session.answer_calls(reply, "gemini")
        if not results:
            return said
        history += results


# copy to here
def main(arguments: list[str]) -> None:
    belt = Runtime(rules=[Rule("run", "python3 scripts/*", "allow")])
    session = belt.session("me", uuid4().hex)
    history: list[Any] = [{"role": "user", "parts": [{"text": arguments[-1]}]}]
    ask = answer_streamed if "--stream" in arguments else answer
    with genai.Client() as client:
        said = ask(client, session, history)
    print("" if "--stream" in arguments else said)


if __name__ == "__main__":
    main(sys.argv[1:])
