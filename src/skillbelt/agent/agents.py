"""An agent as a value: a runtime, a model, what it is told, and how far it may go."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

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
    for its conversations. The rest are the settings of that name, where the agent has its own.
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
    max_repeats: int | None = None
    max_retries: int | None = None
    max_fork_depth: int | None = None
    compact_share: float | None = None

    @property
    def limits(self) -> Limits:
        """The limits of the runtime, with those that are the agent's own."""
        own: dict[str, float | None] = {
            "max_steps": self.max_steps,
            "max_repeats": self.max_repeats,
            "max_retries": self.max_retries,
            "max_fork_depth": self.max_fork_depth,
            "compact_share": self.compact_share,
        }
        given: dict[str, Any] = {key: value for key, value in own.items() if value is not None}
        limits = self.runtime.settings.limits
        return limits._replace(**given) if given else limits


def runner_only(_call: object) -> ToolResult:
    """What a tool of the runner's own answers to anybody else."""
    return failed("only the runner of an agent carries out this tool")
