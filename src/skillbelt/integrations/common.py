"""What all frameworks share: the tools of one conversation, whose answers hold the text itself.

A framework keeps its own history and sends it as it is. So the text of a skill goes where that
history keeps it: into the answer to the call that loaded it. It stays there byte for byte, whatever
comes after it, so that a prompt cache can serve it and whoever resumes the history has it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from skillbelt.disclosure.overview import GUIDANCE_HEADER
from skillbelt.integrations.following import Tell, followed, followed_sync
from skillbelt.running.following import Watch
from skillbelt.tools.schema import Tool, ToolResult, guidance

if TYPE_CHECKING:
    from skillbelt.runtime.runtime import Runtime, RuntimeSession

# Conversations kept at one time; the least recently used goes first.
MAX_SERVED_SESSIONS = 1_000

# What is in an answer stays there; these would take it away or add to it later.
_NEED_REQUESTS = ("skill_select_docs", "skill_unload")
_NOTHING: Mapping[str, object] = MappingProxyType({})


class Answer(NamedTuple):
    """What a call gave: a text for the model, whether the call failed, facts for programs."""

    text: str
    failed: bool = False
    data: Mapping[str, object] = _NOTHING


class Kit:
    """The tools and the instructions of one conversation, for a framework to offer."""

    def __init__(self, session: RuntimeSession) -> None:
        self.session = session
        self._instructions: str | None = None

    @property
    def names(self) -> dict[str, str]:
        """What each tool that is offered is called, by its kind."""
        known = self.session.runtime.names
        left_out = {*_NEED_REQUESTS, "skill"} if "skill_load" in known else {*_NEED_REQUESTS}
        return {kind: name for kind, name in known.items() if kind not in left_out}

    def tools(self) -> list[Tool]:
        """The tools for what the conversation may see now."""
        names = self.names
        return [tool for tool in self.session.tools() if tool.kind in names]

    def instructions(self) -> str:
        """What the system prompt says of skills: the same for as long as the conversation lasts."""
        if self._instructions is None:
            runtime = self.session.runtime
            runtime.look()
            parts = [runtime.overview_of(self.session.skills()).text]
            if parts[0] and runtime.settings.overview_format != "plain":
                parts.append(f"{GUIDANCE_HEADER}\n{guidance(self.names)}")
            self._instructions = "\n\n".join(filter(None, parts))
        return self._instructions

    async def call(
        self, tool: str, arguments: object, shown: Iterable[str] = (), tell: Tell | None = None
    ) -> Answer:
        """What a call gives; whatever a model did wrong is an answer too.

        `tell` is told what its command prints while it runs. Cancelling the call ends the command.
        """

        def work(watch: Watch) -> Coroutine[Any, Any, ToolResult]:
            return self.session.call(tool, arguments, watch=watch, inline=True, shown=shown)

        return _answer(await followed(work, tell, self.session.runtime.settings.limits))

    def call_sync(
        self, tool: str, arguments: object, shown: Iterable[str] = (), tell: Tell | None = None
    ) -> Answer:
        """The same, where there is no event loop; `tell` is called in another thread."""

        def work(watch: Watch) -> ToolResult:
            return self.session.call_sync(tool, arguments, watch=watch, inline=True, shown=shown)

        return _answer(followed_sync(work, tell))


def _answer(result: ToolResult) -> Answer:
    return Answer(result.text, bool(result.error), result.data)


class Kits:
    """A kit for each conversation of a framework, by its user and its session.

    Those that were not used for longest are let go of when there are too many; all that must last
    is in the store.
    """

    def __init__(self, belt: Runtime, agent: str = "", **options: Any) -> None:
        self._belt, self._agent, self._options = belt, agent, options
        self._kits: dict[tuple[str, str], Kit] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kits)

    def of(self, user: str, session: str) -> Kit:
        """The kit of that conversation; the same one each time."""
        key, kits = (user, session), self._kits
        with self._lock:
            kits[key] = kit = kits.pop(key, None) or self._made(user, session)
            while len(kits) > MAX_SERVED_SESSIONS:
                del kits[next(iter(kits))]
            return kit

    def _made(self, user: str, session: str) -> Kit:
        return Kit(self._belt.session(user, session, agent=self._agent, **self._options))
