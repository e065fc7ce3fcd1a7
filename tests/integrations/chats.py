"""One conversation in each framework, over HTTP with the model's provider; for tests.

    python -m tests.integrations.chats FRAMEWORK URL STATE PROJECT TEXT

goes on with a conversation in another process, from nothing but what the framework kept.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from skillbelt import Rule, Runtime

Told = Callable[[str], None]
SYSTEM = "Be kind."


def quiet(_text: str) -> None:
    """Ignore the output."""


class Chat:
    """A conversation of ada's, called `chat`. Its state is in `state`, in its own format."""

    def __init__(self, belt: Runtime, url: str, state: Path, told: Told = quiet) -> None:
        self.belt, self.url, self.state, self.told = belt, url, state, told

    async def say(self, text: str) -> str:
        """Return the final answer of the agent, streamed meanwhile."""
        from openai import AsyncOpenAI

        async with AsyncOpenAI(base_url=self.url, api_key="key") as self.client:
            return await self.answer(text)

    async def answer(self, text: str) -> str:
        """The same, with a client that is open."""
        raise NotImplementedError


class PydanticAI(Chat):
    async def answer(self, text: str) -> str:
        from pydantic_ai import Agent, AgentRunResultEvent, ModelMessagesTypeAdapter
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        from skillbelt.integrations.pydantic_ai import SkillOutputEvent, SkillToolset

        model = OpenAIChatModel("tiny", provider=OpenAIProvider(openai_client=self.client))
        skills = SkillToolset(self.belt, user="ada")
        agent = Agent(model, instructions=SYSTEM, toolsets=[skills])
        kept = self.state.read_bytes() if self.state.exists() else b"[]"
        history, output = ModelMessagesTypeAdapter.validate_json(kept), ""
        async with agent.run_stream_events(
            text, message_history=history, conversation_id="chat"
        ) as events:
            async for event in events:
                if isinstance(event, SkillOutputEvent):
                    self.told(event.text)
                elif isinstance(event, AgentRunResultEvent):
                    output = event.result.output
                    self.state.write_bytes(event.result.all_messages_json())
        return output


class LangGraph(Chat):
    async def answer(self, text: str) -> str:
        from langchain_core.messages import AIMessage
        from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

        agent, thread = self.agent(), {"configurable": {"thread_id": "chat"}}
        said = {"messages": [{"role": "user", "content": text}]}
        async for mode, piece in agent.astream(said, thread, stream_mode=["custom", "updates"]):
            if mode == "custom":
                self.told(piece["text"])
        values = agent.get_state(thread).values
        self.state.write_bytes(JsonPlusSerializer().dumps_typed(values)[1])
        last = values["messages"][-1]
        assert isinstance(last, AIMessage)
        return last.text

    def agent(self) -> Any:
        """The graph, with what was kept in its checkpointer."""
        from langchain.agents import create_agent
        from langchain_openai import ChatOpenAI
        from langgraph.checkpoint.memory import InMemorySaver
        from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

        from skillbelt.integrations.langchain import SkillMiddleware

        model = ChatOpenAI(
            model="tiny",
            async_client=self.client.chat.completions,
            client=self.client.chat.completions,
            streaming=True,
        )
        made: Any = create_agent(
            model,
            system_prompt=SYSTEM,
            middleware=[SkillMiddleware(self.belt, user="ada")],
            checkpointer=InMemorySaver(),
        )
        if self.state.exists():
            kept = JsonPlusSerializer().loads_typed(("msgpack", self.state.read_bytes()))
            made.update_state({"configurable": {"thread_id": "chat"}}, kept)
        return made


class OpenAIAgents(Chat):
    async def answer(self, text: str) -> str:
        from agents import RunConfig, Runner, SQLiteSession

        from skillbelt.integrations.openai_agents import skill_agent

        session = self.belt.session("ada", "chat")
        agent = skill_agent(
            session,
            name="helper",
            instructions=SYSTEM,
            model=self.model(),
            on_stream=lambda output: self.told(output.text),
        )
        kept = SQLiteSession("chat", self.state)
        quietly = RunConfig(tracing_disabled=True)
        try:
            stream = Runner.run_streamed(agent, text, session=kept, run_config=quietly)
            async for _ in stream.stream_events():
                pass
        finally:
            kept.close()
        return str(stream.final_output)

    def model(self) -> Any:
        from agents import OpenAIChatCompletionsModel

        return OpenAIChatCompletionsModel("tiny", self.client)


class OpenAIAgentsResponses(OpenAIAgents):
    def model(self) -> Any:
        from agents import OpenAIResponsesModel

        return OpenAIResponsesModel("tiny", self.client)


class GoogleADK(Chat):
    async def say(self, text: str) -> str:
        from google.adk.agents import LlmAgent, run_config
        from google.adk.models.apigee_llm import ApigeeLlm
        from google.adk.runners import Runner
        from google.adk.sessions.sqlite_session_service import SqliteSessionService
        from google.genai import types

        from skillbelt.integrations.google_adk import SkillToolset

        service = SqliteSessionService(str(self.state))
        who: Any = {"app_name": "desk", "user_id": "ada", "session_id": "chat"}
        if await service.get_session(**who) is None:
            await service.create_session(**who)
        # The kit's own client for providers that speak OpenAI's protocol.
        model = ApigeeLlm(model="apigee/openai/tiny", proxy_url=self.url)
        skills = SkillToolset(self.belt, on_output=lambda _context, out: self.told(out.text))
        agent = LlmAgent(name="helper", model=model, instruction=SYSTEM, tools=[skills])
        runner = Runner(app_name="desk", agent=agent, session_service=service)
        said, answer = types.Content(role="user", parts=[types.Part.from_text(text=text)]), ""
        streamed = run_config.RunConfig(streaming_mode=run_config.StreamingMode.SSE)  # type: ignore[attr-defined]
        try:
            async for event in runner.run_async(
                user_id="ada", session_id="chat", new_message=said, run_config=streamed
            ):
                if event.is_final_response() and not event.partial and event.content:
                    answer = "".join(part.text or "" for part in event.content.parts or [])
        finally:
            await model._completions_http_client.aclose()
        return answer


class Functions(Chat):
    """A host's own loop around OpenAI's client."""

    async def say(self, text: str) -> str:
        return await asyncio.to_thread(self._say, text)

    def _say(self, text: str) -> str:
        from openai import OpenAI

        from skillbelt.integrations.functions import skill_functions, skill_instructions

        session = self.belt.session("ada", "chat")
        functions = skill_functions(session, lambda output: self.told(output.text))
        begin = [{"role": "system", "content": f"{SYSTEM}\n\n{skill_instructions(session)}"}]
        history: list[Any] = json.loads(self.state.read_text()) if self.state.exists() else begin
        history.append({"role": "user", "content": text})
        tools: Any = [_declared(function) for function in functions.values()]
        with OpenAI(base_url=self.url, api_key="key") as client:
            while True:
                with client.chat.completions.stream(
                    model="tiny", messages=history, tools=tools
                ) as stream:
                    message = stream.get_final_completion().choices[0].message
                history.append(message.model_dump(include={"role", "content", "tool_calls"}))
                for call in message.tool_calls or []:
                    given = json.loads(call.function.arguments)
                    answer = functions[call.function.name](**given)
                    told = {"role": "tool", "tool_call_id": call.id, "content": answer}
                    history.append(told)
                if not message.tool_calls:
                    self.state.write_text(json.dumps(history))
                    return message.content or ""


def _declared(function: Callable[..., str]) -> dict[str, Any]:
    """Return a tool as OpenAI takes it, from the signature of the function."""
    from pydantic import TypeAdapter

    found = inspect.signature(function).parameters
    properties = {name: TypeAdapter(one.annotation).json_schema() for name, one in found.items()}
    required = [name for name, one in found.items() if one.default is inspect.Parameter.empty]
    schema = {"type": "object", "properties": properties, "required": required}
    about = {"name": function.__name__, "description": function.__doc__, "parameters": schema}
    return {"type": "function", "function": about}


CHATS: dict[str, type[Chat]] = {
    "pydantic-ai": PydanticAI,
    "langgraph": LangGraph,
    "openai-agents": OpenAIAgents,
    "openai-agents-responses": OpenAIAgentsResponses,
    "google-adk": GoogleADK,
    "functions": Functions,
}


def belt_of(project: str | Path, *rules: Rule) -> Runtime:
    """The skills of a project, whose commands may run unless a rule says otherwise."""
    return Runtime(project, rules=[Rule("run", "*", "allow"), *rules])


def main() -> None:
    """Say one thing in a conversation that was begun elsewhere."""
    framework, url, state, project, text = sys.argv[1:]
    chat = CHATS[framework](belt_of(project), url, Path(state))
    print(asyncio.run(chat.say(text)))


if __name__ == "__main__":
    main()
