"""Skills in a real agent of Google's kit, with its own session service and a scripted model."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import anyio
import pytest
from google.adk.agents import LlmAgent
from google.adk.apps.app import App, EventsCompactionConfig
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.context_filter_plugin import ContextFilterPlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService, Session
from google.genai import types
from pydantic import BaseModel, Field

from skillbelt import Runtime
from skillbelt.integrations.google_adk import LOADED, SkillToolset
from tests.integrations.compacting import BODIES, Sent, check_conversation, open_belt, unloads
from tests.tree import Tree


class Scripted(BaseLlm):
    """Gives these parts one after the other; records the requests."""

    model: str = "scripted"
    parts: list[types.Part] = Field(default_factory=list)
    sent: list[LlmRequest] = Field(default_factory=list)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        # The request is one object that grows; what is in it now is kept.
        self.sent.append(
            LlmRequest(
                contents=[one.model_copy(deep=True) for one in llm_request.contents],
                config=types.GenerateContentConfig(
                    system_instruction=llm_request.config.system_instruction
                ),
            )
        )
        yield LlmResponse(content=types.Content(role="model", parts=[self.parts.pop(0)]))


def scripted(*parts: types.Part) -> Scripted:
    return Scripted(parts=list(parts), sent=[])


def call(tool: str, **arguments: Any) -> types.Part:
    return types.Part.from_function_call(name=tool, args=arguments)


def say(text: str) -> types.Part:
    return types.Part.from_text(text=text)


def answers(request: LlmRequest) -> list[dict[str, Any]]:
    parts = [part for content in request.contents for part in content.parts or []]
    found = [part.function_response for part in parts if part.function_response]
    return [dict(one.response or {}) for one in found]


class Desk:
    """An agent with ADK's own sessions."""

    def __init__(self, belt: Runtime, model: Scripted, **options: Any) -> None:
        self.service = InMemorySessionService()
        skills = SkillToolset(belt)
        agent = LlmAgent(
            name="helper", model=model, instruction="Be kind.", tools=[skills], **options
        )
        self.runner = Runner(app_name="desk", agent=agent, session_service=self.service)

    def say(self, session: str, *texts: str) -> Session:
        async def main() -> Session:
            known = await self.service.get_session(
                app_name="desk", user_id="ada", session_id=session
            )
            if known is None:
                await self.service.create_session(
                    app_name="desk", user_id="ada", session_id=session
                )
            for text in texts:
                message = types.Content(role="user", parts=[say(text)])
                async for _ in self.runner.run_async(
                    user_id="ada", session_id=session, new_message=message
                ):
                    pass
            found = await self.service.get_session(
                app_name="desk", user_id="ada", session_id=session
            )
            assert found is not None
            return found

        return anyio.run(main)


LOAD = call("skill_load", skill="greet")


def test_a_skill_is_loaded_and_its_text_is_sent(belt: Runtime) -> None:
    model = scripted(LOAD, say("done"))
    Desk(belt, model).say("a", "greet me")
    assert "mellifluous" in answers(model.sent[1])[0]["result"]


def test_the_system_instruction_tells_what_there_is_and_stays(belt: Runtime) -> None:
    model = scripted(LOAD, say("done"))
    Desk(belt, model).say("a", "greet me")
    first, second = (str(request.config.system_instruction) for request in model.sent)
    assert first == second
    assert "Be kind." in first and "<name>greet</name>" in first


def test_adks_own_session_keeps_it(belt: Runtime) -> None:
    model = scripted(LOAD, say("one"), LOAD, say("two"))
    session = Desk(belt, model).say("a", "greet me", "again")
    assert "mellifluous" in answers(model.sent[2])[0]["result"]
    assert "loaded already" in answers(model.sent[3])[1]["result"]
    assert session.state[LOADED] == ["greet"]


class Mood(BaseModel):
    """State that an app keeps."""

    mood: str = ""


def test_a_schema_of_the_state_need_not_know_of_skills(belt: Runtime) -> None:
    session = Desk(belt, scripted(LOAD, say("done")), state_schema=Mood).say("a", "greet me")
    assert session.state[LOADED] == ["greet"]


def test_sessions_have_workspaces_of_their_own(belt: Runtime) -> None:
    write = call("skill_run", skill="greet", command="echo mine > work/note")
    read = call("skill_run", skill="greet", command="cat work/note")
    model = scripted(write, say("-"), read, say("-"), read, say("-"))
    desk = Desk(belt, model)
    desk.say("a", "write", "read")
    desk.say("b", "read")
    assert json.loads(answers(model.sent[3])[1]["result"])["stdout"] == "mine\n"
    assert json.loads(answers(model.sent[5])[0]["result"])["exit_code"] == 1


def test_a_call_that_goes_wrong_is_an_answer(belt: Runtime) -> None:
    model = scripted(call("skill_load", skill="nothing"), say("sorry"))
    session = Desk(belt, model).say("a", "greet me")
    assert answers(model.sent[1]) == [
        {"error": "unknown skill: nothing", "kind": "skill_not_found"}
    ]
    assert LOADED not in session.state


# When the history is cut


@pytest.mark.filterwarnings("ignore:.EXPERIMENTAL")
def test_loaded_skills_survive_ten_compactions(open_tree: Tree) -> None:
    belt = open_belt(open_tree)
    numbers = itertools.count()

    class Writer(BaseLlm):
        model: str = "writer"

        async def generate_content_async(
            self, llm_request: LlmRequest, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            part = types.Part.from_text(text=f"Summary no. {next(numbers)}")
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    model = Scripted(parts=[], sent=[])
    agent = LlmAgent(name="helper", model=model, tools=[SkillToolset(belt)])
    config = EventsCompactionConfig(
        summarizer=LlmEventSummarizer(Writer()), compaction_interval=1, overlap_size=0
    )
    app = App(name="desk", root_agent=agent, events_compaction_config=config)
    runner = Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)
    sent: list[list[Sent]] = []

    def read(content: types.Content) -> Sent:
        parts = content.parts or []
        calls = [p.function_call.id or p.function_call.name for p in parts if p.function_call]
        answers = [
            p.function_response.id or p.function_response.name for p in parts if p.function_response
        ]
        results = [
            str((p.function_response.response or {}).get("result"))
            for p in parts
            if p.function_response
        ]
        texts = [p.text or "" for p in parts]
        return Sent("\n".join([*texts, *results]), tuple(map(str, calls)), tuple(map(str, answers)))

    def tell(text: str, loads: Sequence[str]) -> None:
        model.parts.extend(call("skill_load", skill=name) for name in loads)
        model.parts.append(say("Done. " + "And so on. " * 50))
        said = types.Content(role="user", parts=[types.Part.from_text(text=text)])

        async def main() -> None:
            async for _ in runner.run_async(user_id="ada", session_id="chat", new_message=said):
                pass

        anyio.run(main)
        sent[:] = [[read(one) for one in request.contents] for request in model.sent]

    check_conversation(tell, sent, unloads(belt, "ada", "chat"))


def test_they_survive_a_plugin_that_cuts_the_contents_later(open_tree: Tree) -> None:
    skills = SkillToolset(open_belt(open_tree))
    model = scripted(call("skill_load", skill="greet"), say("one"), say("two"), say("three"))
    agent = LlmAgent(
        name="helper", model=model, tools=[skills], before_model_callback=skills.restore
    )
    app = App(name="desk", root_agent=agent, plugins=[ContextFilterPlugin(1)])
    runner = Runner(app=app, session_service=InMemorySessionService(), auto_create_session=True)

    async def main() -> None:
        for text in ("First.", "Second.", "Third."):
            said = types.Content(role="user", parts=[types.Part.from_text(text=text)])
            async for _ in runner.run_async(user_id="ada", session_id="chat", new_message=said):
                pass

    anyio.run(main)
    texts = [part.text or "" for one in model.sent[-1].contents for part in one.parts or []]
    assert [text.count(BODIES["greet"]) for text in texts] == [1, 0]
    assert texts[1] == "Third."
