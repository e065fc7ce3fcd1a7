"""Skills in Google's Agent Development Kit. The model is a script; a name takes its place."""

import asyncio
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

from skillbelt import Rule, Runtime
from skillbelt.integrations.google_adk import SkillToolset

COMMAND = {"skill": "text-stats", "command": "python3 scripts/count.py"}
STDIN = '{"text": "To be or not to be."}'
STEPS = [
    types.Part.from_function_call(name="skill_load", args={"skill": "text-stats"}),
    types.Part.from_function_call(name="skill_run", args={**COMMAND, "stdin": STDIN}),
    types.Part.from_text(text="Six words."),
]


class Scripted(BaseLlm):
    model: str = "scripted"

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        yield LlmResponse(
            content=types.Content(role="model", parts=[STEPS.pop(0)]),
            usage_metadata=types.GenerateContentResponseUsageMetadata(prompt_token_count=1),
        )


async def main() -> None:
    belt = Runtime(rules=[Rule("run", "python3 scripts/count.py", "allow")])
    skills = SkillToolset(belt, on_output=lambda _, output: print("printed:", output.text.strip()))
    runner = InMemoryRunner(LlmAgent(name="helper", model=Scripted(), tools=[skills]))
    events = await runner.run_debug("How long is 'To be or not to be.'?", quiet=True)
    final = [event for event in events if event.is_final_response()][-1]
    assert final.content is not None and final.content.parts is not None
    print("answer:", final.content.parts[0].text)


if __name__ == "__main__":
    asyncio.run(main())
