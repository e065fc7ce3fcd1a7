"""Skills in a real agent of the OpenAI Agents SDK, with its own scripted model and sessions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio
from agents import Agent, RunConfig, Runner, SQLiteSession
from agents.memory import OpenAIResponsesCompactionSession, Session
from agents.run_config import CallModelData, ModelInputData
from agents.testing import ScriptedModel, assistant_message, function_call

from skillbelt import Runtime
from skillbelt.integrations.openai_agents import keep_skills, skill_agent
from tests.integrations.compacting import BODIES, Sent, check_conversation, open_belt, unloads
from tests.tree import Tree

QUIET = RunConfig(tracing_disabled=True)


def load(name: str = "greet", call_id: str = "c1") -> Any:
    return [function_call("skill_load", {"skill": name}, call_id=call_id)]


def say(text: str) -> Any:
    return [assistant_message(text)]


def agent(belt: Runtime, model: ScriptedModel, **options: Any) -> Agent[Any]:
    return skill_agent(belt.session("ada", "chat"), name="helper", model=model, **options)


def run(made: Agent[Any], text: str, session: Session | None = None) -> str:
    async def main() -> str:
        result = await Runner.run(made, text, session=session, run_config=QUIET)
        return str(result.final_output)

    return anyio.run(main)


def outputs(model: ScriptedModel, call: int) -> list[str]:
    """The answers of tools that the model was sent with its nth request."""
    items = model.calls[call].input
    assert isinstance(items, Sequence) and not isinstance(items, str)
    found = [item for item in items if isinstance(item, dict)]
    return [str(one["output"]) for one in found if one.get("type") == "function_call_output"]


def test_a_skill_is_loaded_and_its_text_is_sent(belt: Runtime) -> None:
    model = ScriptedModel([load(), say("done")])
    assert run(agent(belt, model), "greet me") == "done"
    assert "mellifluous" in outputs(model, 1)[0]


def test_the_system_prompt_tells_what_there_is_and_stays(belt: Runtime) -> None:
    model = ScriptedModel([load(), say("done")])
    run(agent(belt, model, instructions="Be kind."), "greet me")
    first, second = (str(call.system_instructions) for call in model.calls)
    assert first == second
    assert first.startswith("Be kind.") and "<name>greet</name>" in first


def test_the_sdks_own_session_keeps_it(belt: Runtime, tmp_path: Path) -> None:
    def session() -> SQLiteSession:
        return SQLiteSession("chat", tmp_path / "sessions.db")

    first = session()
    run(agent(belt, ScriptedModel([load(), say("one")])), "greet me", first)
    first.close()
    second, model = session(), ScriptedModel([load(call_id="c2"), say("two")])
    run(agent(belt, model), "again", second)
    second.close()
    assert "mellifluous" in outputs(model, 0)[0]
    assert "loaded already" in outputs(model, 1)[1]


def test_a_command_of_a_skill(belt: Runtime) -> None:
    call = function_call("skill_run", {"skill": "greet", "command": "echo hi"}, call_id="c1")
    model = ScriptedModel([[call], say("done")])
    run(agent(belt, model), "greet me")
    assert json.loads(outputs(model, 1)[0])["stdout"] == "hi\n"


def test_a_call_that_goes_wrong_is_an_answer(belt: Runtime) -> None:
    model = ScriptedModel([load("nothing"), say("sorry")])
    assert run(agent(belt, model), "greet me") == "sorry"
    assert outputs(model, 1) == ["unknown skill: nothing"]


def test_tools_of_ones_own_stay(belt: Runtime) -> None:
    from agents import function_tool

    @function_tool
    def dice() -> int:
        """Four."""
        return 4

    made = agent(belt, ScriptedModel([]), tools=[dice])
    assert {"dice", "skill_load"} <= {tool.name for tool in made.tools}


def test_while_it_streams(belt: Runtime) -> None:
    async def main() -> list[str]:
        model = ScriptedModel([load(), say("done")])
        stream = Runner.run_streamed(agent(belt, model), "greet me", run_config=QUIET)
        return [event.type async for event in stream.stream_events()]

    assert "run_item_stream_event" in anyio.run(main)


# When the history is cut


class Compactor:
    """Simulates OpenAI's server: it summarises a history in one item."""

    def __init__(self) -> None:
        self.responses, self.numbers = self, itertools.count()

    async def compact(self, **_: Any) -> Any:
        class Made(NamedTuple):
            output: list[Any]
            usage: None = None

        text = f"Summary no. {next(self.numbers)}"
        return Made([{"role": "user", "content": text, "type": "message"}])


def read_item(item: Any) -> Sent:
    id = (str(item.get("call_id")),)
    match item.get("type"):
        case "function_call":
            return Sent(str(item["arguments"]), id)
        case "function_call_output":
            return Sent(str(item["output"]), (), id)
        case _:
            return Sent(str(item["content"]))


def test_loaded_skills_survive_ten_compactions(open_tree: Tree, tmp_path: Path) -> None:
    belt = open_belt(open_tree)
    ids = itertools.count()
    session = belt.session("ada", "chat")
    config = RunConfig(tracing_disabled=True, call_model_input_filter=keep_skills(session))
    kept = OpenAIResponsesCompactionSession(
        "chat",
        SQLiteSession("chat", tmp_path / "sessions.db"),
        client=Compactor(),  # type: ignore[arg-type]
        compaction_mode="input",
        should_trigger_compaction=lambda _: False,
    )
    sent: list[list[Sent]] = []

    def tell(text: str, loads: Sequence[str]) -> None:
        steps = [load(name, f"c{next(ids)}") for name in loads]
        model = ScriptedModel([*steps, say("Done.")])
        agent = skill_agent(session, name="helper", model=model)

        async def main() -> None:
            await Runner.run(agent, text, session=kept, run_config=config)
            await kept.run_compaction({"force": True})

        anyio.run(main)
        sent.extend([read_item(one) for one in call.input] for call in model.calls)

    check_conversation(tell, sent, unloads(belt, "ada", "chat"))


def test_another_filter_is_applied_first(open_tree: Tree) -> None:
    belt = open_belt(open_tree)

    def drop(data: CallModelData[Any]) -> ModelInputData:
        given = data.model_data
        return ModelInputData(input=given.input[:1], instructions=given.instructions)

    session = belt.session("ada", "chat")
    config = RunConfig(
        tracing_disabled=True, call_model_input_filter=keep_skills(session, before=drop)
    )
    model = ScriptedModel([load("greet"), load("greet", "c2"), say("Done.")])
    agent = skill_agent(session, name="helper", model=model)
    anyio.run(lambda: Runner.run(agent, "Begin.", run_config=config))
    last = [read_item(one) for one in model.calls[-1].input]
    assert [one.text.count(BODIES["greet"]) for one in last] == [1, 0]
