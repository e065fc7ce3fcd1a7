"""Skills as plain functions, for whatever makes tools of functions. Here they are just called."""

import inspect
import json

from skillbelt import Rule, Runtime
from skillbelt.integrations.functions import skill_functions, skill_instructions


def main() -> None:
    belt = Runtime(rules=[Rule("run", "python3 scripts/count.py", "allow")])
    session = belt.session("me", "chat-1")
    print("system prompt:", len(skill_instructions(session)), "characters")
    functions = skill_functions(session, lambda output: print("printed:", output.text.strip()))
    for name, function in functions.items():
        print("function:", f"{name}{inspect.signature(function)}")
    functions["skill_load"](skill="text-stats")
    given = functions["skill_run"](
        skill="text-stats",
        command="python3 scripts/count.py",
        stdin='{"text": "To be or not to be."}',
    )
    print("answer:", json.loads(json.loads(given)["stdout"])["words"], "words.")


if __name__ == "__main__":
    main()
