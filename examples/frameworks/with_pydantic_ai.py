"""Skills in Pydantic AI. The model is a script; the name of a real one takes its place."""

import asyncio

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from skillbelt import Rule, Runtime
from skillbelt.integrations.pydantic_ai import SkillOutputEvent, SkillToolset

COMMAND = {"skill": "text-stats", "command": "python3 scripts/count.py"}
STEPS: list[ToolCallPart | TextPart] = [
    ToolCallPart("skill_load", {"skill": "text-stats"}),
    ToolCallPart("skill_run", {**COMMAND, "stdin": '{"text": "To be or not to be."}'}),
    TextPart("Six words."),
]


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse([STEPS.pop(0)])


async def main() -> None:
    belt = Runtime(rules=[Rule("run", "python3 scripts/count.py", "allow")])
    agent = Agent(FunctionModel(scripted), toolsets=[SkillToolset(belt)])
    async with agent.iter("How long is 'To be or not to be.'?") as run:
        async for node in run:
            if agent.is_call_tools_node(node):
                async with node.stream(run.ctx) as events:
                    async for event in events:
                        if isinstance(event, SkillOutputEvent):
                            print("printed:", event.text.strip())
    assert run.result is not None
    print("answer:", run.result.output)


if __name__ == "__main__":
    asyncio.run(main())
