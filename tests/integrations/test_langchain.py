"""Skills in a real LangChain agent and a LangGraph checkpointer, with their own fake model."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import Field, SecretStr

from skillbelt import Runtime
from skillbelt.conversation.messages import HEADER
from skillbelt.integrations.common import Kit
from skillbelt.integrations.langchain import SkillMiddleware, skill_tools
from tests.integrations.compacting import (
    BODIES,
    Sent,
    check_conversation,
    open_belt,
    unloads,
)
from tests.openai_server import called, said, serving
from tests.tree import Tree

KEY = SecretStr("key")


class Scripted(GenericFakeChatModel):
    """Their fake model, which records its requests and lets tools be bound."""

    sent: list[list[BaseMessage]] = Field(default_factory=list)

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **_: Any
    ) -> Runnable[Any, AIMessage]:
        return self

    def _generate(self, messages: list[BaseMessage], *given: Any, **named: Any) -> ChatResult:
        self.sent.append(list(messages))
        return super()._generate(messages, *given, **named)


def model(*steps: AIMessage) -> Scripted:
    return Scripted(messages=iter(steps), sent=[])


def call(tool: str, id: str = "c1", **arguments: object) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": tool, "args": arguments, "id": id}])


def thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


def ask(text: str) -> Any:
    return {"messages": [{"role": "user", "content": text}]}


def answers(messages: Sequence[BaseMessage]) -> list[str]:
    return [str(one.content) for one in messages if isinstance(one, ToolMessage)]


LOAD = call("skill_load", skill="greet")


def test_a_skill_is_loaded_and_its_text_is_sent(belt: Runtime) -> None:
    fake = model(LOAD, AIMessage("done"))
    result = create_agent(fake, middleware=[SkillMiddleware(belt)]).invoke(ask("greet me"))
    assert result["messages"][-1].text == "done"
    assert "mellifluous" in answers(fake.sent[1])[0]


def test_the_system_prompt_tells_what_there_is_and_stays(belt: Runtime) -> None:
    fake = model(LOAD, AIMessage("done"))
    made = create_agent(fake, system_prompt="Be kind.", middleware=[SkillMiddleware(belt)])
    made.invoke(ask("greet me"))
    first, second = (sent[0].text for sent in fake.sent)
    assert first == second
    assert first.startswith("Be kind.") and "<name>greet</name>" in first


def test_the_blocks_of_a_system_message_keep_their_marks(belt: Runtime) -> None:
    mine = {"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}
    fake = model(AIMessage("done"))
    prompt = SystemMessage([mine])
    create_agent(fake, system_prompt=prompt, middleware=[SkillMiddleware(belt)]).invoke(ask("hi"))
    blocks: Any = fake.sent[0][0].content
    assert blocks[0] == mine
    assert "<name>greet</name>" in blocks[1]["text"]


def test_the_graphs_own_checkpointer_keeps_it(belt: Runtime) -> None:
    saver = InMemorySaver()
    first = create_agent(
        model(LOAD, AIMessage("one")), middleware=[SkillMiddleware(belt)], checkpointer=saver
    )
    first.invoke(ask("greet me"), thread("a"))
    fake = model(call("skill_load", "c2", skill="greet"), AIMessage("two"))
    second = create_agent(fake, middleware=[SkillMiddleware(belt)], checkpointer=saver)
    second.invoke(ask("again"), thread("a"))
    assert "mellifluous" in answers(fake.sent[0])[0]
    assert "loaded already" in answers(fake.sent[1])[1]


def test_threads_have_workspaces_of_their_own(belt: Runtime) -> None:
    write = call("skill_run", skill="greet", command="echo mine > work/note")
    read = call("skill_run", skill="greet", command="cat work/note")
    fake = model(write, AIMessage("-"), read, AIMessage("-"), read, AIMessage("-"))
    made = create_agent(fake, middleware=[SkillMiddleware(belt)])
    for name in ("a", "a", "b"):
        made.invoke(ask("go"), thread(name))
    assert json.loads(answers(fake.sent[3])[0])["stdout"] == "mine\n"
    assert json.loads(answers(fake.sent[5])[0])["exit_code"] == 1


def test_without_a_thread_no_conversation_has_the_workspace_of_another(belt: Runtime) -> None:
    write = call("skill_run", skill="greet", command="echo mine > work/note")
    look = [call("skill_run", id, skill="greet", command="cat work/note") for id in "abc"]
    ends = [AIMessage("-"), AIMessage("-"), AIMessage("-")]
    fake = model(write, look[0], ends[0], look[1], ends[1], look[2], ends[2])
    made = create_agent(fake, middleware=[SkillMiddleware(belt)])
    first = made.invoke(ask("write, then read"))
    made.invoke(ask("read"))
    made.invoke({"messages": [*first["messages"], *ask("read")["messages"]]})
    assert json.loads(answers(fake.sent[2])[1])["stdout"] == "mine\n"
    assert json.loads(answers(fake.sent[4])[0])["exit_code"] == 1
    assert json.loads(answers(fake.sent[6])[2])["stdout"] == "mine\n"


def test_output_is_in_the_custom_stream_without_a_loop_too(belt: Runtime) -> None:
    fake = model(call("skill_run", skill="greet", command="echo hi"), AIMessage("done"))
    made = create_agent(fake, middleware=[SkillMiddleware(belt)])
    (piece,) = made.stream(ask("go"), stream_mode="custom")
    about = {"type": "skill_output", "tool": "skill_run", "tool_call_id": "c1"}
    assert piece == {**about, "stream": "stdout", "text": "hi\n"}


def test_facts_for_programs_are_beside_the_text(belt: Runtime) -> None:
    fake = model(call("skill_run", skill="greet", command="echo hi"), AIMessage("done"))
    result = create_agent(fake, middleware=[SkillMiddleware(belt)]).invoke(ask("go"))
    (answer,) = [one for one in result["messages"] if isinstance(one, ToolMessage)]
    assert (answer.artifact["stdout"], answer.status) == ("hi\n", "success")
    assert "enforced" in answer.artifact and "enforced" not in answer.text


def test_a_call_that_goes_wrong_is_an_answer(belt: Runtime) -> None:
    fake = model(call("skill_load", skill="nothing"), call("skill_load"), AIMessage("sorry"))
    create_agent(fake, middleware=[SkillMiddleware(belt)]).invoke(ask("greet me"))
    unknown, wrong = [one for one in fake.sent[2] if isinstance(one, ToolMessage)]
    assert (unknown.text, unknown.status) == ("unknown skill: nothing", "error")
    assert "argument 'skill' is missing" in wrong.text


@pytest.mark.parametrize(
    ("tool", "told"),
    [("skill_load", "these are not JSON: Unterminated string"), ("skill_lode", "not a valid tool")],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_arguments_that_break_off_are_answered(
    belt: Runtime, tool: str, told: str, streaming: bool
) -> None:
    broken = called(tool, '{"skill": "greet')
    with serving(broken, said("sorry")) as server:
        chat = ChatOpenAI(model="tiny", base_url=server.url, api_key=KEY, streaming=streaming)
        result = create_agent(chat, middleware=[SkillMiddleware(belt)]).invoke(ask("greet me"))
    answer, last = result["messages"][-2:]
    assert (answer.status, last.text) == ("error", "sorry")
    assert told in answer.text


def test_calls_of_other_tools_are_left_as_they_are(belt: Runtime) -> None:
    def greet(skill: str) -> str:
        """Greets."""
        return f"hello {skill}"

    with serving(called("greet", '{"skill": "ada'), said("done")) as server:
        chat = ChatOpenAI(model="tiny", base_url=server.url, api_key=KEY, streaming=True)
        made = create_agent(chat, tools=[greet], middleware=[SkillMiddleware(belt)])
        result = made.invoke(ask("greet me"))
    assert answers(result["messages"]) == ["hello ada"]


def test_in_a_coroutine_while_it_streams(belt: Runtime) -> None:
    async def main() -> list[str]:
        made = create_agent(model(LOAD, AIMessage("done")), middleware=[SkillMiddleware(belt)])
        stream = made.astream(ask("greet me"), stream_mode="updates")
        return [key async for update in stream for key in update]

    assert anyio.run(main) == ["model", "tools", "model"]


def test_the_tools_in_a_graph_of_ones_own(belt: Runtime) -> None:
    tools = skill_tools(Kit(belt.session("ada", "chat")))
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    result = graph.compile().invoke({"messages": [LOAD]})
    assert "mellifluous" in answers(result["messages"])[0]


# When the history is cut


def test_loaded_skills_survive_ten_summaries(open_tree: Tree) -> None:
    belt = open_belt(open_tree)
    steps: list[AIMessage] = []
    numbers, ids = itertools.count(), itertools.count()
    told = (AIMessage(f"Summary no. {number}") for number in numbers)
    model = Scripted(messages=iter(lambda: steps.pop(0), None), sent=[])
    summarizer = SummarizationMiddleware(
        Scripted(messages=told), trigger=("messages", 7), keep=("messages", 3)
    )
    agent: Any = create_agent(
        model, middleware=[summarizer, SkillMiddleware(belt)], checkpointer=InMemorySaver()
    )

    def say(text: str, loads: Sequence[str]) -> None:
        steps.extend(call("skill_load", f"c{next(ids)}", skill=name) for name in loads)
        steps.append(AIMessage("Done."))
        agent.invoke(ask(text), thread("chat"))
        sent[:] = [
            [
                Sent(
                    str(one.content),
                    tuple(str(c["id"]) for c in getattr(one, "tool_calls", ())),
                    (one.tool_call_id,) if isinstance(one, ToolMessage) else (),
                )
                for one in request
            ]
            for request in model.sent
        ]

    sent: list[list[Sent]] = []
    check_conversation(say, sent, unloads(belt, "", "chat"))


def test_they_survive_without_a_thread(open_tree: Tree) -> None:
    """The first message, by which the conversation is known, is in the summary."""
    belt = open_belt(open_tree)
    told = itertools.repeat(AIMessage("In short."))
    steps = [call("skill_load", "c0", skill="greet")]
    steps += [call("skill_load", f"c{n}", skill="count") for n in range(1, 6)]
    model = Scripted(messages=iter([*steps, AIMessage("Done.")]), sent=[])
    summarizer = SummarizationMiddleware(
        Scripted(messages=told), trigger=("messages", 6), keep=("messages", 2)
    )
    create_agent(model, middleware=[summarizer, SkillMiddleware(belt)]).invoke(ask("Begin."))
    text = "\n".join(str(one.content) for one in model.sent[-1])
    assert "In short." in text and HEADER in text
    assert [text.count(BODIES[name]) for name in ("greet", "count")] == [1, 1]
