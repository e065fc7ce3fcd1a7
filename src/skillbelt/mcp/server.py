"""The MCP server of one runtime, whatever carries its messages."""

from __future__ import annotations

from typing import Any

from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp_types import NotificationParams, SetLevelRequestParams

from skillbelt import __version__
from skillbelt.integrations.common import MAX_SERVED_SESSIONS
from skillbelt.mcp.changes import Watcher
from skillbelt.mcp.logs import Logs
from skillbelt.mcp.prompts import Prompts
from skillbelt.mcp.published import Offer
from skillbelt.mcp.requests import Carrier
from skillbelt.mcp.resources import Resources, SkillsExtension
from skillbelt.mcp.sessions import Sessions
from skillbelt.mcp.tools import Calls
from skillbelt.runtime.runtime import Runtime
from skillbelt.runtime.threads import MAX_PARALLEL_CALLS

ABOUT = (
    "Agent Skills: instructions and workflows for tasks, with their documents and scripts. The "
    "tools load and run them; the skills are also there as resources and prompts."
)


class _Server(Server[Any]):
    """Says in every handshake that lists may change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        return super().create_initialization_options(
            notification_options or NotificationOptions(True, True, True),
            # The older handshake has no place for extensions.
            experimental_capabilities or dict(self.extensions),
            extensions,
        )


class SkillServer:
    """A runtime's skills, tools and prompts for MCP clients; `server` takes any transport.

    Made in a running loop, where `start` begins to watch the catalogue. `close` ends what runs, and
    is to be called before the runtime is closed.
    """

    def __init__(self, belt: Runtime) -> None:
        limits = belt.settings.limits
        sessions, offer = Sessions(belt), Offer(belt)
        self.carrier = Carrier(
            belt.gate.desk,
            sessions.name,
            ask_seconds=limits.permission_timeout_seconds,
            most=MAX_PARALLEL_CALLS,
        )
        logs = Logs(sessions)
        self.watcher = Watcher(
            belt=belt, offer=offer, sessions=sessions, logs=logs, most=MAX_SERVED_SESSIONS
        )
        kinds = {name: kind for kind, name in belt.names.items()}
        calls = Calls(sessions, self.carrier, logs, kinds)
        resources = Resources(offer, sessions, self.carrier)
        prompts = Prompts(belt, sessions, self.carrier)
        self.server = _Server(
            "skillbelt",
            version=__version__,
            title="skillbelt",
            instructions="\n\n".join(filter(None, (ABOUT, belt.guidance))),
            # The arguments are checked where they are used; nothing of them comes in headers.
            get_tool_input_schema=_no_schema,
            on_list_tools=calls.list_all,
            on_call_tool=calls.call,
            on_list_resources=resources.list_all,
            on_list_resource_templates=resources.templates,
            on_read_resource=resources.read,
            on_subscribe_resource=self.watcher.subscribe,
            on_unsubscribe_resource=self.watcher.unsubscribe,
            on_list_prompts=prompts.list_all,
            on_get_prompt=prompts.get,
            on_subscriptions_listen=self.watcher.listen,
        )
        extension = SkillsExtension(offer, self.carrier)
        self.server.extensions[extension.identifier] = extension.settings()
        for method in extension.methods():
            self.server.add_request_handler(method.method, method.params_type, method.handler)
        # In this way, since its place among the arguments warns of being outdated.
        self.server.add_request_handler("logging/setLevel", SetLevelRequestParams, logs.set_level)
        self.server.add_notification_handler(
            "notifications/initialized", NotificationParams, self.watcher.connected
        )

    def start(self) -> None:
        """Begin to watch the catalogue."""
        self.watcher.start()

    def close(self) -> None:
        """End every call with what it runs, and stop watching."""
        self.watcher.close()
        self.carrier.close()


def _no_schema(_name: str) -> None:
    return None
