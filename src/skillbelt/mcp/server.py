"""The MCP server of one runtime, for any transport."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp_types import NotificationParams, SetLevelRequestParams

from skillbelt import __version__
from skillbelt.format.skill import Skills
from skillbelt.integrations.common import MAX_SERVED_SESSIONS
from skillbelt.mcp.notifications import ChangeNotifier, ClientLogs
from skillbelt.mcp.prompts import Prompts
from skillbelt.mcp.published import PublishedSkills
from skillbelt.mcp.requests import Context, RequestRunner
from skillbelt.mcp.resources import Resources, SkillsExtension
from skillbelt.mcp.sessions import ServedSessions
from skillbelt.mcp.tools import ToolRequests
from skillbelt.runtime.runtime import Runtime
from skillbelt.runtime.threads import MAX_PARALLEL_CALLS
from skillbelt.tools.definitions import LOADERS
from skillbelt.tools.schema import inline_names

ABOUT = (
    "Agent Skills: instructions and workflows for tasks, with their documents and scripts. The "
    "tools load and run them; the skills are also there as resources and prompts."
)
# Their guidance says more than their descriptions, and every client gets it.
_GUIDED = (*LOADERS, "skill_run", "claude_bash")


class _Server(Server[Any]):
    """Declares in every handshake that lists may change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        return super().create_initialization_options(
            notification_options or NotificationOptions(True, True, True),
            # Where clients looked for it before there was a field for extensions.
            experimental_capabilities or dict(self.extensions),
            extensions,
        )

    async def declare_extensions(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Add the extensions to the handshake: the SDK drops fields that are newer than it."""
        result = await call_next(ctx)
        if ctx.method == "initialize" and isinstance(result, dict):
            capabilities = {**result["capabilities"], "extensions": dict(self.extensions)}
            return {**result, "capabilities": capabilities}
        return result


class SkillServer:
    """A runtime's skills, tools and prompts for MCP clients; `server` takes any transport.

    Create it in a running loop; `start` begins to watch the catalogue. Call `close` before the
    runtime is closed: it ends what runs.
    """

    def __init__(
        self, belt: Runtime, *, secret: bytes = b"", mark: Callable[[str], str] = str
    ) -> None:
        """Create the server; servers with the same `secret` have the same conversations.

        `mark` adds the name of this server to an id, so that an answer finds the server that waits
        for it.
        """
        self.belt = belt
        sessions, published = ServedSessions(belt, secret), PublishedSkills(belt)
        self.runner = RequestRunner(
            belt.gate.desk,
            sessions.name,
            ask_seconds=belt.settings.limits.permission_timeout_seconds,
            most=MAX_PARALLEL_CALLS,
            mark=mark,
        )
        logs = ClientLogs(sessions)
        self.notifier = ChangeNotifier(belt, published, sessions, logs, most=MAX_SERVED_SESSIONS)
        names = inline_names(belt._names_for(Skills({}), crowded=True))
        kinds = {name: kind for kind, name in names.items()}
        tools = ToolRequests(sessions, self.runner, logs, kinds)
        resources = Resources(published, sessions, self.runner)
        prompts = Prompts(belt, sessions, self.runner)
        guidance = belt._guidance_for(Skills({}), _GUIDED)
        self.server = _Server(
            "skillbelt",
            version=__version__,
            title="skillbelt",
            instructions="\n\n".join(filter(None, (ABOUT, guidance))),
            # The tools check their arguments themselves, and none come in headers.
            get_tool_input_schema=lambda _name: None,
            on_list_tools=tools.list_all,
            on_call_tool=tools.call,
            on_list_resources=resources.list_all,
            on_list_resource_templates=resources.templates,
            on_read_resource=resources.read,
            on_subscribe_resource=self.notifier.subscribe,
            on_unsubscribe_resource=self.notifier.unsubscribe,
            on_list_prompts=prompts.list_all,
            on_get_prompt=prompts.get,
            on_subscriptions_listen=self.notifier.listen,
        )
        extension = SkillsExtension(published, self.runner)
        self.server.extensions[extension.identifier] = extension.settings()
        self.server.middleware.append(self.server.declare_extensions)
        for method in extension.methods():
            self.server.add_request_handler(method.method, method.params_type, method.handler)
        # Not as an argument of the server, which raises a deprecation warning.
        self.server.add_request_handler("logging/setLevel", SetLevelRequestParams, logs.set_level)
        self.server.add_notification_handler(
            "notifications/initialized", NotificationParams, self.notifier.connected
        )

    def start(self) -> None:
        """Start to watch the catalogue."""
        self.notifier.start()

    def close(self) -> None:
        """Cancel every call with its command, and stop watching."""
        self.notifier.close()
        self.runner.close()
