"""A stored conversation on a terminal, as it looked at the time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.text import Text

from skillbelt.agent.events import ToolCall
from skillbelt.cli.screen import Screen
from skillbelt.cli.tool_lines import describe_call
from skillbelt.conversation.transcript import Spoken, plain, read_spoken
from skillbelt.events import Event
from skillbelt.text import one_line, shorten

_MAX_RESULT_CHARS = 200


def replay(events: Iterable[Event]) -> Iterator[str]:
    """Yield lines for this terminal: the messages, and each tool call in one line."""
    screen = Screen()
    for message in read_spoken(events):
        yield from _draw(screen, message)


def _draw(screen: Screen, message: Spoken) -> Iterator[str]:
    if message.role == "tool":
        cut = shorten(one_line(message.text), _MAX_RESULT_CHARS)
        yield from screen.render(Text(cut, style="dim"), margin=6)
        return
    if message.text:
        yield from _draw_text(screen, message)
    for name, given in message.calls:
        call = ToolCall(id="", name=name, arguments=given)
        yield from screen.render(Text(f"tool: {describe_call(call, name)}"), margin=4)


def _draw_text(screen: Screen, message: Spoken) -> Iterator[str]:
    """Yield the speaker at the left edge, where no text of a message is, and the message."""
    user = message.role == "user"
    name = "you" if user else one_line(message.role)
    name += f" ({one_line(message.agent)})" if message.agent else ""
    yield ""
    yield screen.style(name, "bold cyan" if user else "bold green")
    yield from (
        screen.render(Text(plain(message.text))) if user else screen.render_markdown(message.text)
    )
