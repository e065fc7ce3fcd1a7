"""An agent as a value: a runtime, a model, instructions, tools and limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from skillbelt.agent.models import OFFLINE, Model
from skillbelt.permission.rules import Rule
from skillbelt.runtime.runtime import Runtime
from skillbelt.runtime.shelf import Visible
from skillbelt.tools.definitions import Schema
from skillbelt.tools.handlers import failed
from skillbelt.tools.schema import Tool, ToolResult
from skillbelt.values import Limits

if TYPE_CHECKING:
    from pydantic_ai.models import Model as ProviderModel

_NO_ARGUMENTS: Schema = {"type": "object", "properties": {}}
_NOTHING: Mapping[str, object] = MappingProxyType({})


class HostTool(NamedTuple):
    """A tool of the host, beside the tools for skills.

    The function is called in a thread with a dict of arguments. The model sees its exceptions as
    failed calls.
    """

    name: str
    description: str
    function: Callable[[dict[str, object]], str]
    schema: Schema = _NO_ARGUMENTS

    def offered(self) -> Tool:
        """Return the tool as a model is offered it."""
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
    fenced code in answers is run. `rules` and `visible` apply to its conversations. The rest
    override the settings of the same name.
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
        """The limits of the runtime with the overrides of the agent."""
        own: dict[str, float | None] = {
            "max_steps": self.max_steps,
            "max_repeats": self.max_repeats,
            "max_retries": self.max_retries,
            "max_fork_depth": self.max_fork_depth,
            "compact_share": self.compact_share,
        }
        overrides: dict[str, Any] = {key: value for key, value in own.items() if value is not None}
        limits = self.runtime.settings.limits
        return limits._replace(**overrides) if overrides else limits


def refuse_direct_call(_call: object) -> ToolResult:
    """Refuse the call: only the runner of an agent can run this tool."""
    return failed("only the runner of an agent can run this tool")
