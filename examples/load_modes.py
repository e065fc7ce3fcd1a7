"""Show the three load modes without a model and without a key.

A scripted conversation of two turns: the model loads a skill, answers, and is asked again. For each
mode the program prints which requests to the model hold the text of the skill. Run it with

    python examples/load_modes.py
"""

from pathlib import Path

from skillbelt import Runtime
from skillbelt.store.memory import MemoryStore

SKILL = "csv-report"
MARK = "Turn a CSV file into a report"  # stands in the body of the skill, not in its description
HERE = Path(__file__).parent


def main() -> None:
    """Play the conversation in each mode and print where the body was."""
    for mode in ("turn", "once", "session"):
        print(f"load_mode = {mode}")
        for step, loaded in play(mode):
            print(f"  {step:<36} body {'there' if loaded else 'not there'}")


def play(mode: str) -> list[tuple[str, bool]]:
    """Return each request of the conversation, and whether it holds the text of the skill."""
    belt = Runtime(
        HERE, paths=[HERE / "skills"], user_roots=False, store=MemoryStore(), load_mode=mode
    )
    session = belt.session("ada", f"modes-{mode}")
    history: list[dict[str, object]] = [{"role": "user", "content": "Make a report."}]
    seen = []

    def request(step: str) -> None:
        sent = session.request(history)
        seen.append((step, any(MARK in str(one["content"]) for one in sent)))

    request("first turn, before loading")
    call = {"id": "1", "name": "skill_load", "arguments": {"skill": SKILL}}  # the model's
    answer = session.call_sync("skill_load", {"skill": SKILL}, "1").text
    history.append({"role": "assistant", "content": "", "tool_calls": [call]})
    history.append({"role": "tool", "tool_call_id": "1", "content": answer})
    request("first turn, after loading")
    request("first turn, one request later")
    history.append({"role": "assistant", "content": "Here it is."})
    history.append({"role": "user", "content": "Thank you. And now?"})
    request("second turn")
    return seen


if __name__ == "__main__":
    main()
