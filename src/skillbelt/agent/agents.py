"""An agent as a value: a runtime, a model, what it is told, and how far it may go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from skillbelt.agent.models import OFFLINE, Model
from skillbelt.permission.rules import Rule
from skillbelt.runtime.runtime import Runtime
from skillbelt.tools.caller import Visible
from skillbelt.tools.definitions import Schema
from skillbelt.tools.handlers import failed
from skillbelt.tools.schema import Tool, ToolResult
from skillbelt.values import Limits

if TYPE_CHECKING:
    from pydantic_ai.models import Model as ProviderModel

_NO_ARGUMENTS: Schema = {"type": "object", "properties": {}}
_NOTHING: Mapping[str, object] = MappingProxyType({})


class HostTool(NamedTuple):
    """A tool of the host's own, beside those for skills.

    The function is called in a thread of its own, with an object for arguments. What it raises is
    told to the model.
    """

    name: str
    description: str
    function: Callable[[dict[str, object]], str]
    schema: Schema = _NO_ARGUMENTS

    def offered(self) -> Tool:
        """The tool as a model is told of it."""
        return Tool(
            name=self.name,
            description=self.description,
            schema=self.schema,
            handler=runner_only,
            kind="",
        )


class Agent(NamedTuple):
    """Who works on a conversation, and how far.

    `model` is a name (`skillbelt.agent.models.provided` says which), a model of pydantic-ai, or
    anything that can be asked as one. `agents` work on the skills that name one of them. `settings`
    are for the model. With `run_code`, fenced code of an answer is run. `rules` and `visible` hold
    for its conversations. `max_steps` is the setting of that name, unless the agent has its own.
    """

    runtime: Runtime
    model: str | Model | ProviderModel = OFFLINE
    name: str = ""
    instructions: str = ""
    tools: tuple[HostTool, ...] = ()
    agents: Mapping[str, Agent] = MappingProxyType({})
    settings: Mapping[str, object] = _NOTHING
    run_code: bool = False
    rules: Sequence[Rule] = ()
    visible: Visible | None = None
    max_steps: int | None = None
    # Equal calls with equal results before a call is refused, and the run ended.
    max_repeats: int = 3
    # Retries after an incomplete answer.
    max_retries: int = 2
    # Skills with `context: fork` inside each other; deeper ones are loops.
    max_fork_depth: int = 3
    # Share of the model's window; a longer conversation is summarised. 0: only when the provider
    # refuses it.
    compact_share: float = 0.8

    @property
    def limits(self) -> Limits:
        """The limits of the runtime, with the agent's own `max_steps`."""
        limits = self.runtime.settings.limits
        return limits if self.max_steps is None else limits._replace(max_steps=self.max_steps)


def runner_only(_call: object) -> ToolResult:
    """What a tool of the runner's own answers to anybody else."""
    return failed("only the runner of an agent carries out this tool")
