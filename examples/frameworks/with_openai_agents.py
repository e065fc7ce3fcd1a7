"""Skills in the OpenAI Agents SDK. The model is a script; a name takes its place."""

from agents import RunConfig, Runner, SQLiteSession
from agents.testing import ScriptedModel, assistant_message, function_call

from skillbelt import Rule, Runtime
from skillbelt.integrations.openai_agents import skill_agent

COMMAND = {"skill": "text-stats", "command": "python3 scripts/count.py"}
STDIN = '{"text": "To be or not to be."}'


def main() -> None:
    load = function_call("skill_load", {"skill": "text-stats"}, call_id="1")
    run = function_call("skill_run", {**COMMAND, "stdin": STDIN}, call_id="2")
    model = ScriptedModel([[load], [run], [assistant_message("Six words.")]])
    belt = Runtime(rules=[Rule("run", "python3 scripts/count.py", "allow")])
    agent = skill_agent(
        belt.session("me", "chat-1"),
        name="helper",
        model=model,
        on_stream=lambda output: print("printed:", output.text.strip()),
    )
    result = Runner.run_sync(
        agent,
        "How long is 'To be or not to be.'?",
        session=SQLiteSession("chat-1"),  # with a file as its second argument, it lasts
        run_config=RunConfig(tracing_disabled=True),
    )
    print("answer:", result.final_output)


if __name__ == "__main__":
    main()
