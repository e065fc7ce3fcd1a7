"""An agent as a value: a runtime, a model, instructions, tools and limits."""

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
    """A tool of the host, in addition to the tools for skills.

    The function is called in a thread with a dict of arguments. The model sees its exceptions as
    failed calls.
    """

    name: str
    description: str
    function: Callable[[dict[str, object]], str]
    schema: Schema = _NO_ARGUMENTS

    def offered(self) -> Tool:
        """Return the tool as offered to a model."""
        return Tool(
            name=self.name,
            description=self.description,
            schema=self.schema,
            handler=refuse_direct_call,
            kind="",
        )


class Agent(NamedTuple):
    """An agent for conversations.

    `model` is a name (see `skillbelt.agent.provider.model_by_name`), a model of pydantic-ai, or a
    `Model`. `agents` run the skills that name them. `settings` go to the model. With `run_code`,
    fenced code in answers is run. `rules` and `visible` apply to its conversations.
    `max_steps` overrides the setting of that name.
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


def refuse_direct_call(_call: object) -> ToolResult:
    """Refuse the call: only the runner of an agent can run this tool."""
    return failed("only the runner of an agent can run this tool", "unknown_tool")
