"""Ask a question, say yes to what it needs, and print everything that happens on the way."""

from skillbelt import Answer, Runtime
from skillbelt.agent import Agent, Final, PermissionRequest, Runner, RunOutput, ToolCall

agent = Agent(Runtime(), "offline")  # or "openai:...", "anthropic:...", "google:...", "ollama:..."
with Runner(agent, interactive=True) as runner:
    for event in runner.run_sync("me", "first-question", "How many words has this sentence?"):
        match event:
            case ToolCall():
                print("call:", event.name, event.arguments)
            case PermissionRequest():
                print("asked:", event.pending.request.summary)
                runner.answer(event.pending.id, Answer("once"))
            case RunOutput():
                print("printed:", event.data.decode().strip())
            case Final():
                print("answer:", event.text)
