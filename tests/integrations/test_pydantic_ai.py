"""Skills in a real Pydantic AI agent, with its own test models."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import anyio
from pydantic_ai import Agent, AgentRunResult, ModelMessagesTypeAdapter
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from skillbelt import Runtime
from skillbelt.conversation.messages import HEADER
from skillbelt.integrations.pydantic_ai import KeepSkills, SkillToolset
from tests.integrations.compacting import Sent, check_conversation, open_belt, unloads
from tests.tree import Tree


def run(agent: Agent, text: str, history: list[ModelMessage] | None = None) -> AgentRunResult[str]:
    async def main() -> AgentRunResult[str]:
        return await agent.run(text, message_history=history)

    return anyio.run(main)


def answers(messages: list[ModelMessage]) -> list[ToolReturnPart]:
    return [p for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]


def script(*steps: ToolCallPart | str) -> tuple[FunctionModel, list[list[ModelMessage]]]:
    """A model that makes these calls and then says this; what it was sent is kept."""
    left, sent = list(steps), list[list[ModelMessage]]()

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        sent.append(list(messages))
        step = left.pop(0)
        return ModelResponse([TextPart(step) if isinstance(step, str) else step])

    return FunctionModel(reply), sent


def load(name: str = "greet") -> ToolCallPart:
    return ToolCallPart("skill_load", {"skill": name})


def instructions(sent: list[list[ModelMessage]]) -> list[str]:
    requests = [batch[-1] for batch in sent]
    return [one.instructions or "" for one in requests if isinstance(one, ModelRequest)]


def test_a_skill_is_loaded_and_its_text_is_in_the_history(belt: Runtime) -> None:
    model, sent = script(load(), "done")
    result = run(Agent(model, toolsets=[SkillToolset(belt)]), "greet me")
    assert result.output == "done"
    (answer,) = answers(result.all_messages())
    assert "mellifluous" in str(answer.content)
    assert answers(sent[1])[0].content == answer.content


def test_the_system_prompt_tells_what_there_is_and_stays(belt: Runtime) -> None:
    model, sent = script(load(), "done")
    run(Agent(model, instructions="Be kind.", toolsets=[SkillToolset(belt)]), "greet me")
    first, second = instructions(sent)
    assert first == second
    assert first.startswith("Be kind.") and "<name>greet</name>" in first


def test_the_next_run_has_what_the_framework_kept(belt: Runtime) -> None:
    """The history goes through JSON, as between two processes."""
    model, sent = script(load(), "one", load(), "two")
    agent = Agent(model, toolsets=[SkillToolset(belt)])
    kept = run(agent, "greet me").all_messages_json()
    history = ModelMessagesTypeAdapter.validate_json(kept)
    run(agent, "again", history)
    assert "mellifluous" in str(answers(sent[2])[0].content)
    assert "loaded already" in str(answers(sent[3])[1].content)


def test_a_conversation_keeps_its_workspace(belt: Runtime) -> None:
    def shell(command: str) -> ToolCallPart:
        return ToolCallPart("skill_run", {"skill": "greet", "command": command})

    model, sent = script(shell("echo kept > work/note"), "one", shell("cat work/note"), "two")
    agent = Agent(model, toolsets=[SkillToolset(belt)])
    first = run(agent, "write")
    run(agent, "read", first.all_messages())
    assert '"stdout": "kept\\n"' in str(answers(sent[3])[1].content)


def test_a_call_that_goes_wrong_is_an_answer(belt: Runtime) -> None:
    bad = ToolCallPart("skill_load", {"name": 3})
    model, _ = script(load("nothing"), bad, "sorry")
    result = run(Agent(model, toolsets=[SkillToolset(belt)]), "greet me")
    unknown, wrong = answers(result.all_messages())
    assert (unknown.content, unknown.outcome) == ("unknown skill: nothing", "failed")
    assert "argument 'skill' is missing" in str(wrong.content)


def test_while_it_streams(belt: Runtime) -> None:
    async def main() -> list[str]:
        agent = Agent(TestModel(call_tools=["skill_load"]), toolsets=[SkillToolset(belt)])
        async with agent.run_stream("what is there?") as stream:
            return [text async for text in stream.stream_text()]

    assert "greet" in anyio.run(main)[-1]


# When the history is cut


def test_loaded_skills_survive_ten_summaries(open_tree: Tree) -> None:
    belt = open_belt(open_tree)
    steps: list[TextPart | ToolCallPart] = []
    numbers, ids = itertools.count(), itertools.count()
    sent: list[list[Sent]] = []

    def read(message: ModelMessage) -> Sent:
        calls = [p.tool_call_id for p in message.parts if isinstance(p, ToolCallPart)]
        answers = [p.tool_call_id for p in message.parts if isinstance(p, ToolReturnPart)]
        texts = [str(getattr(part, "content", "")) for part in message.parts]
        return Sent("\n".join(texts), tuple(calls), tuple(answers))

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        sent.append([read(one) for one in messages])
        return ModelResponse([steps.pop(0)])

    writer = Agent(FunctionModel(lambda *_: ModelResponse([TextPart(f"no. {next(numbers)}")])))

    async def shorten(messages: list[ModelMessage]) -> list[ModelMessage]:
        """Keep the last turn, and a summary of the others."""
        begins = [
            n
            for n, one in enumerate(messages)
            if any(isinstance(p, UserPromptPart) for p in one.parts)
        ]
        if len(messages) < 6 or begins[-1] == 0:
            return messages
        made = await writer.run("Summarize.", message_history=messages[: begins[-1]])
        return [ModelRequest([UserPromptPart(f"Summary {made.output}")]), *messages[begins[-1] :]]

    skills = SkillToolset(belt)
    agent = Agent(
        FunctionModel(reply),
        toolsets=[skills],
        capabilities=[KeepSkills(skills), ProcessHistory(shorten)],
    )
    history: list[ModelMessage] = []

    def say(text: str, loads: Sequence[str]) -> None:
        for name in loads:
            steps.append(ToolCallPart("skill_load", {"skill": name}, f"c{next(ids)}"))
        steps.append(TextPart("Done."))

        async def main() -> None:
            made = await agent.run(text, message_history=history, conversation_id="chat")
            history[:] = made.all_messages()

        anyio.run(main)

    check_conversation(say, sent, unloads(belt, "", "chat"))
    assert not any(HEADER in read(one).text for one in history)
