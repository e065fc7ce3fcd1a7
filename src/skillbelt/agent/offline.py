"""An answer without a language model: the skill whose words fit best, and what it says or does.

It is honest about itself. It needs no key and no network, and reads the skill as a model would.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence

from skillbelt.agent.agents import runner_only
from skillbelt.agent.events import TextDelta
from skillbelt.agent.files import attached
from skillbelt.agent.history import Place
from skillbelt.agent.models import NONE, OFFLINE, Called, Piece, Prompt, Reply
from skillbelt.agent.ranking import ranked
from skillbelt.agent.tool_results import Own
from skillbelt.conversation.messages import FOOTER, Message
from skillbelt.errors import SkillbeltError
from skillbelt.format.skill import Skill
from skillbelt.running.following import Watch
from skillbelt.running.json_call import Execution, detect, execute
from skillbelt.running.run import Asker
from skillbelt.text import one_line, shorten
from skillbelt.tools.handlers import failed
from skillbelt.tools.schema import Tool, ToolResult

HONEST = "No language model was used."
EXECUTE = "execute_skill"
# What the user's own call of a skill begins with. Anywhere else it is somebody's text.
_COMMAND = re.compile(r'<skill_content name="([^"]+)">$', re.MULTILINE)
_OTHERS = 5
_SHOWN = 100


class Offline:
    """Stands where a model stands: loads the skill that fits, has it executed, shows what came."""

    name = OFFLINE
    window_tokens = 0

    def __init__(self, place: Place) -> None:
        self._place = place
        tool = Tool(
            name=EXECUTE,
            description="Run a skill's own script.",
            schema={"type": "object"},
            handler=runner_only,
            kind="",
        )
        self.tools: Mapping[str, tuple[Tool, Own]] = {EXECUTE: (tool, self._execute)}

    async def ask(self, prompt: Prompt) -> AsyncIterator[Piece]:
        """What comes next: a call while there is something to do, then the answer."""
        reply = self._next(prompt.messages)
        if reply.text:
            yield TextDelta(reply.text)
        yield reply._replace(usage=NONE)

    def _next(self, messages: Sequence[Message]) -> Reply:
        turn = _turn_of(messages)
        question, last = turn[0], turn[-1]
        content = str(last["content"])
        if last["role"] != "tool":
            command = _COMMAND.match(content)
            return self._acted(command[1], question, content) if command else self._chosen(question)
        name = _loaded(turn)
        if name:
            return self._acted(name, question, _text_of(name, content, messages))
        # What was worked on apart says so itself.
        return Reply(content if content.startswith(HONEST) else f"{HONEST}\n\n{content}")

    def _chosen(self, question: Message) -> Reply:
        """Load the skill that fits best; say so when none does."""
        session = self._place.session
        found = ranked(session, str(question.get("said") or question["content"]))
        if not found:
            known = ", ".join(sorted(session.skills())[:_OTHERS])
            there = f"There are, among others: {known}." if known else "There are none here."
            return Reply(f"{HONEST}\n\nThe words of no skill fit this question. {there}")
        names = session.runtime.names
        loader, key = ("skill_load", "skill") if "skill_load" in names else ("skill", "name")
        call = Called("load", names.get(loader, loader), {key: found[0].skill.name})
        return Reply(f"By its words, {found[0].skill.name} fits best.\n\n", (call,))

    def _acted(self, name: str, question: Message, text: str) -> Reply:
        """Have the skill executed; show its text when there is nothing to execute."""
        about = name
        try:
            skill = self._place.agent.runtime.get_skill(name)
            about = f"{name}: {shorten(one_line(skill.description), _SHOWN)}"
            limits = self._place.settings.limits
            script = detect(skill, _input(question, self._place), limits=limits).path
        except SkillbeltError as error:
            why = f"It is for a model to follow ({one_line(str(error))}):"
            return Reply(f"{HONEST}\n\n{about}\n\n{why}\n\n{text}")
        takes = _takes_files(script, text)
        if takes and not question.get("files"):
            return Reply(f"{HONEST}\n\n{about}\n\nIt works on a file: give one with the question.")
        arguments = {"skill": name, "takes_files": takes}
        return Reply(calls=(Called("execute", EXECUTE, arguments),))

    def _execute(self, arguments: dict[str, object], watch: Watch) -> ToolResult:
        """Run the script of a skill on what the user gave, as the user."""
        place, session = self._place, self._place.session
        skill = place.agent.runtime.get_skill(str(arguments["skill"]))
        question = place.question()
        files = [str(path) for path in question.get("files") or ()]
        who = Asker(place.key, "user", place.agent.name, session.gate)
        given = _input(question, place)
        try:
            done = execute(
                place.agent.runtime.workbench,
                skill,
                given,
                who=who,
                inputs=[{"from": f"host://{path}"} for path in files],
                arguments=[_inside(path) for path in files] if arguments["takes_files"] else (),
                watch=watch,
            )
        except SkillbeltError as error:
            return failed(str(error))._replace(data={"refused": error.exit_code})
        return _told(skill, done)


def _turn_of(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages since the user last spoke, that one first."""
    said = [index for index, one in enumerate(messages) if one["role"] == "user"]
    return messages[said[-1] :]


def _loaded(turn: Sequence[Message]) -> str:
    """The skill that the last call has loaded; "" when it did something else."""
    answer = str(turn[-1]["content"])
    calls = [call for one in turn for call in one.get("tool_calls") or ()]
    asked = [call for call in calls if call["id"] == turn[-1]["tool_call_id"]][-1:]
    if not asked or asked[0]["name"] == EXECUTE or answer.startswith(HONEST):
        return ""
    given = asked[0]["arguments"]
    name = str(next(iter(given.values()), "")) if isinstance(given, dict) else ""
    told = {f"[Loaded] {name}", f"loaded: {name}", f'<skill_content name="{name}">'}
    return name if told.intersection(answer.split("\n")) else ""


def _text_of(name: str, answer: str, messages: Sequence[Message]) -> str:
    """The text of a skill that is loaded: in the answer, or where the settings put it."""
    if f"loaded: {name}" not in answer.split("\n"):
        return answer
    head = f"[Loaded] {name}\n"
    texts = [str(one["content"]) for one in messages if one["role"] == "system"]
    found = next((text.partition(head)[2] for text in texts if head in text), "")
    return (head + found.partition(FOOTER)[0]).rstrip() if found else answer


def _input(question: Message, place: Place) -> dict[str, object]:
    """What a script that reads JSON is given: what to work on, and the question."""
    asked = str(question.get("said") or question["content"])
    files = [str(path) for path in question.get("files") or ()]
    texts = [one.text for one in attached(files, place.settings.limits)]
    given: dict[str, object] = {"text": texts[0] if any(texts) else asked, "question": asked}
    inside = [_inside(path) for path in files]
    return {**given, "path": inside[0], "files": inside} if inside else given


def _inside(path: str) -> str:
    """Where a run finds a file that was given to it."""
    return f"inputs/{os.path.basename(path)}"


def _takes_files(script: str, text: str) -> bool:
    """Whether the skill's text shows the script with a file behind it."""
    return re.search(rf"{re.escape(script)}[ \t]+[^\s`|<>&;-]", text) is not None


def _told(skill: Skill, done: Execution) -> ToolResult:
    status, output = done.exit_status, done.stdout.strip()
    if done.output is not None:
        output = json.dumps(done.output, indent=2, ensure_ascii=False)
    about = f"{skill.name}: {shorten(one_line(skill.description), _SHOWN)}"
    how = f"(ran in the sandbox {done.sandbox}, exit code {status.code})"
    said = "\n\n".join(filter(None, (about, output, done.stderr.strip(), how)))
    return ToolResult(said, "" if status.kind == "success" else said, done.document())
