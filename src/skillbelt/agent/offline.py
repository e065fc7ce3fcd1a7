"""The offline model: uses the best matching skill, without a language model.

It needs no key and no network, and every answer says that no language model was used.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

from skillbelt.agent.agents import refuse_direct_call
from skillbelt.agent.events import TextDelta
from skillbelt.agent.files import attach_files
from skillbelt.agent.history import AgentContext
from skillbelt.agent.models import NONE, OFFLINE, Called, Piece, Prompt, Reply
from skillbelt.agent.tool_calls import HostHandler
from skillbelt.conversation.messages import FOOTER, Message
from skillbelt.errors import SkillbeltError
from skillbelt.format.skill import Skill
from skillbelt.running.call import Asker
from skillbelt.running.following import Watch
from skillbelt.running.json_call import Execution, detect, execute
from skillbelt.runtime.runtime import RuntimeSession
from skillbelt.search.protocol import Result
from skillbelt.text import one_line, shorten
from skillbelt.tools.definitions import LOADERS
from skillbelt.tools.handlers import failed
from skillbelt.tools.schema import Tool, ToolResult

HONEST = "No language model was used."
EXECUTE = "execute_skill"
# The beginning of a skill that the user called. Elsewhere in a message it is untrusted text.
_COMMAND = re.compile(r'<skill_content name="([^"]+)">$', re.MULTILINE)
_NO_FILE = "If it works on a file, attach one to the question."
_MAX_OTHERS = 5
_MAX_RANKED = 10
_MAX_DESCRIPTION_CHARS = 100


def rank_skills(session: RuntimeSession, question: str) -> Sequence[Result]:
    """Return the visible skills that fit the question, best first; none if no skill fits."""
    session.runtime.look()
    found = session.runtime._search_in(question, session.skills(), _MAX_RANKED)
    return [one for one in found if one.strength != "noise"]


class Offline:
    """Takes the place of a model: loads the best skill, runs its script, shows the result."""

    name = OFFLINE
    window_tokens = 0

    def __init__(self, context: AgentContext) -> None:
        self._context = context
        tool = Tool(
            name=EXECUTE,
            description="Run a skill's own script.",
            schema={"type": "object"},
            handler=refuse_direct_call,
            kind="",
        )
        self.tools: Mapping[str, tuple[Tool, HostHandler]] = {EXECUTE: (tool, self._execute)}

    async def ask(self, prompt: Prompt) -> AsyncIterator[Piece]:
        """Return a call while there is something to do, then the answer."""
        reply = self._decide(prompt.messages)
        if reply.text:
            yield TextDelta(reply.text)
        yield reply._replace(usage=NONE)

    def _decide(self, messages: Sequence[Message]) -> Reply:
        turn = _current_turn(messages)
        question, last = turn[0], turn[-1]
        content = str(last["content"])
        if last["role"] != "tool":
            command = _COMMAND.match(content)
            if command:
                return self._execute_or_show(command[1], question, content)
            return self._choose(question)
        name = _loaded_skill(turn)
        if name:
            return self._execute_or_show(name, question, _text_of(name, content, messages))
        # The answer of a fork has the notice already.
        return Reply(content if content.startswith(HONEST) else f"{HONEST}\n\n{content}")

    def _choose(self, question: Message) -> Reply:
        """Load the best matching skill; say so when none matches."""
        session = self._context.session
        found = rank_skills(session, str(question.get("said") or question["content"]))
        if not found:
            known = ", ".join(sorted(session.skills())[:_MAX_OTHERS])
            there = f"Some of the skills here: {known}." if known else "There are no skills here."
            return Reply(f"{HONEST}\n\nNo skill matches this question. {there}")
        names = session.runtime.names
        loader = next((kind for kind in LOADERS if kind in names), LOADERS[0])
        key = "name" if loader == "skill" else "skill"
        call = Called("load", names.get(loader, loader), {key: found[0].skill.name})
        return Reply(f"By its words, {found[0].skill.name} matches best.\n\n", (call,))

    def _execute_or_show(self, name: str, question: Message, text: str) -> Reply:
        """Execute the skill; show its text when it has no script."""
        about = name
        try:
            skill = self._context.agent.runtime.get_skill(name)
            about = f"{name}: {shorten(one_line(skill.description), _MAX_DESCRIPTION_CHARS)}"
            script = detect(skill, _build_input(question, self._context)).path
        except SkillbeltError as error:
            why = f"Its instructions are for a model ({one_line(str(error))}):"
            return Reply(f"{HONEST}\n\n{about}\n\n{why}\n\n{text}")
        takes = _takes_files(script, text)
        if takes and not question.get("files"):
            return Reply(f"{HONEST}\n\n{about}\n\nIt needs a file: attach one to the question.")
        arguments = {"skill": name, "takes_files": takes}
        return Reply(calls=(Called("execute", EXECUTE, arguments),))

    def _execute(self, arguments: dict[str, object], watch: Watch) -> ToolResult:
        """Run the script of a skill on the user's input, with the user as initiator."""
        context, session = self._context, self._context.session
        skill = context.agent.runtime.get_skill(str(arguments["skill"]))
        question = context.question()
        files = [str(path) for path in question.get("files") or ()]
        who = Asker(context.key, "user", context.agent.name, session.gate)
        places, given = _place_files(files), _build_input(question, context)
        try:
            done = execute(
                context.agent.runtime.workbench,
                skill,
                given,
                who=who,
                inputs=[{"from": f"host://{path}", "to": to} for path, to in places.items()],
                arguments=list(places.values()) if arguments["takes_files"] else (),
                all_outputs=True,
                watch=watch,
            )
        except SkillbeltError as error:
            result = failed(str(error), error.kind, **error.fields())
            return result._replace(data={**result.data, "refused": error.exit_code})
        return _describe_execution(skill, done, files)


def _current_turn(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages from the last user message on."""
    questions = [index for index, one in enumerate(messages) if one["role"] == "user"]
    return messages[questions[-1] :]


def _loaded_skill(turn: Sequence[Message]) -> str:
    """Return the skill that the last call loaded; "" when it did something else."""
    answer = str(turn[-1]["content"])
    calls = [call for one in turn for call in one.get("tool_calls") or ()]
    asked = [call for call in calls if call["id"] == turn[-1]["tool_call_id"]][-1:]
    if not asked or asked[0]["name"] == EXECUTE or answer.startswith(HONEST):
        return ""
    given = asked[0]["arguments"]
    name = str(next(iter(given.values()), "")) if isinstance(given, dict) else ""
    marks = {f"[Loaded] {name}", f"loaded: {name}", f'<skill_content name="{name}">'}
    return name if marks.intersection(answer.split("\n")) else ""


def _text_of(name: str, answer: str, messages: Sequence[Message]) -> str:
    """Return the text of a loaded skill: from the answer, or from the system message."""
    if f"loaded: {name}" not in answer.split("\n"):
        return answer
    head = f"[Loaded] {name}\n"
    texts = [str(one["content"]) for one in messages if one["role"] == "system"]
    found = next((text.partition(head)[2] for text in texts if head in text), "")
    return (head + found.partition(FOOTER)[0]).rstrip() if found else answer


def _build_input(question: Message, context: AgentContext) -> dict[str, object]:
    """Return the JSON input of a script: the text to work on, and the question."""
    asked = str(question.get("said") or question["content"])
    files = [str(path) for path in question.get("files") or ()]
    texts = [one.text for one in attach_files(files, context.settings.limits)]
    given: dict[str, object] = {"text": texts[0] if any(texts) else asked, "question": asked}
    inside = list(_place_files(files).values())
    return {**given, "path": inside[0], "files": inside} if inside else given


def _place_files(files: Iterable[str]) -> dict[str, str]:
    """Return the path of each attached file inside the run; equal names get a number."""
    found: dict[str, str] = {}
    for path in files:
        place, number = f"inputs/{os.path.basename(path)}", 1
        while place in found.values():
            number += 1
            place = f"inputs/{number}-{os.path.basename(path)}"
        found.setdefault(path, place)
    return found


def _takes_files(script: str, text: str) -> bool:
    """Whether the text of the skill shows the script with a file argument."""
    return re.search(rf"{re.escape(script)}[ \t]+[^\s`|<>&;-]", text) is not None


def _describe_execution(skill: Skill, done: Execution, files: Sequence[str]) -> ToolResult:
    status, output = done.exit_status, done.stdout.strip()
    if done.output is not None:
        output = json.dumps(done.output, indent=2, ensure_ascii=False)
    about = f"{skill.name}: {shorten(one_line(skill.description), _MAX_DESCRIPTION_CHARS)}"
    how = f"(ran in the sandbox {done.sandbox}, exit code {status.code})"
    # Its input is made of the question, and the question alone is often not enough.
    hint = _NO_FILE if status.kind == "failed" and not files else ""
    left = "\n".join(
        f"It left {one_line(one.name)} ({one.mime_type})." for one in done.output_files
    )
    text = "\n\n".join(filter(None, (about, output, done.stderr.strip(), left, hint, how)))
    if status.kind == "success":
        return ToolResult(text, data=done.document())
    error = {"kind": f"run_{status.kind}", "message": text}
    return ToolResult(text, text, {**done.document(), "error": error})
