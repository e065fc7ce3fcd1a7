"""Skills in LangChain, with LangGraph's streams. The model is a script, for any other."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from skillbelt import Rule, Runtime
from skillbelt.integrations.langchain import SkillMiddleware

COMMAND = {"skill": "text-stats", "command": "python3 scripts/count.py"}
STDIN = '{"text": "To be or not to be."}'
LOAD = {"name": "skill_load", "args": {"skill": "text-stats"}, "id": "1"}
RUN = {"name": "skill_run", "args": {**COMMAND, "stdin": STDIN}, "id": "2"}


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self


def main() -> None:
    steps = [AIMessage("", tool_calls=[call]) for call in (LOAD, RUN)]
    model = Scripted(messages=iter([*steps, AIMessage("Six words.")]))
    belt = Runtime(rules=[Rule("run", "python3 scripts/count.py", "allow")])
    agent: Any = create_agent(model, middleware=[SkillMiddleware(belt, user="me")])
    asked = {"messages": [("user", "How long is 'To be or not to be.'?")]}
    thread = {"configurable": {"thread_id": "chat-1"}}
    for mode, piece in agent.stream(asked, thread, stream_mode=["custom", "values"]):
        if mode == "custom":
            print("printed:", piece["text"].strip())
    print("answer:", piece["messages"][-1].text)


if __name__ == "__main__":
    main()
