"""An answer while it is made: text as Markdown, tool calls with their outcome, an activity mark."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Self

from skillbelt.agent import events as agent
from skillbelt.agent.events import AgentEvent, ToolCall, ToolResponse
from skillbelt.cli.output import count
from skillbelt.cli.screen import FRAME_SECONDS, MARGIN, MarkdownStream, Screen, fit
from skillbelt.cli.tool_lines import (
    RUNS,
    FileChange,
    WrittenFiles,
    describe_call,
    describe_change,
    describe_outcome,
    diff,
    succeeded,
)
from skillbelt.conversation.transcript import plain
from skillbelt.running.following import Decoder
from skillbelt.text import describe_seconds, one_line, tokens

# How often the activity mark changes.
_TICK_SECONDS = 0.1
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_FRAMES = "-\\|/"
# Lines of a command's output that stay on the screen, and lines that are kept meanwhile.
_SHOWN_LINES = 12
_LIVE_LINES = 4
_MAX_KEPT_CHARS = 20_000
_STYLES = {"+": "green", "-": "red", "@": "dim"}


class _Tool:
    """A call that runs: its line, and the end of its output."""

    def __init__(self, line: str, kind: str) -> None:
        self.line, self.kind = line, kind
        self.output, self.cut = "", 0
        self.take = Decoder(self._add)

    def _add(self, _: object, text: str) -> None:
        self.output += plain(text)
        while len(self.output) > _MAX_KEPT_CHARS:
            gone, _, left = self.output.partition("\n")
            self.output = left or gone[-_MAX_KEPT_CHARS // 2 :]
            self.cut += 1

    def lines(self) -> list[str]:
        """Return the lines of its output that were kept."""
        return self.output.rstrip("\n").split("\n") if self.output.strip() else []


class LiveAnswer:
    """Shows one answer on a terminal. `names` are the kinds of tools by name."""

    def __init__(
        self, screen: Screen, names: dict[str, str], files: WrittenFiles, *, quiet: bool = False
    ) -> None:
        self._screen, self._names, self._files = screen, names, files
        self._quiet = quiet  # no output of commands: it is in the answer
        self._text = MarkdownStream(screen)
        self._doing = "waiting for the model"
        self._tools: dict[str, _Tool] = {}
        self._used = self._written = self._frame = 0
        self._lock = threading.RLock()
        self._ended, self._paused = threading.Event(), False
        self._tools_above = False  # the next text is separated from them
        self._begun, self._drawn = monotonic(), 0.0
        self._clock = threading.Thread(target=self._tick, name="skillbelt-clock", daemon=True)

    def __enter__(self) -> Self:
        self._draw()
        self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._clock.join()
        self._text.end()
        self._screen.print("")

    def _tick(self) -> None:
        while not self._ended.wait(_TICK_SECONDS):
            with self._lock:
                if not self._paused:
                    self._frame += 1
                    self._draw()

    def stop(self) -> None:
        """Say that the step is being stopped.

        Safe in a signal handler, because the clock draws it.
        """
        self._doing = "stopping, Ctrl-C again leaves"

    # The live part

    def _draw(self) -> None:
        running = [line for tool in self._tools.values() for line in self._live_lines(tool)]
        self._text.draw(*running, self._status())
        self._drawn = monotonic()

    def _live_lines(self, tool: _Tool) -> list[str]:
        room = self._screen.columns - 1
        shown = [fit(f"{self._choose_mark('…', '.')} {tool.line}", room)]
        if not self._quiet:
            shown += [self._gutter(line, "dim") for line in tool.lines()[-_LIVE_LINES:]]
        return shown

    def _status(self) -> str:
        frames = self._choose_mark(_FRAMES, _PLAIN_FRAMES)
        used = self._used + self._written
        parts = [self._doing, describe_seconds(monotonic() - self._begun)]
        parts += [f"{used:,} {'token' if used == 1 else 'tokens'}"] if used else []
        text = f"{frames[self._frame % len(frames)]} {', '.join(parts)}"
        return self._screen.style(fit(text, self._screen.columns - 1), "dim")

    @staticmethod
    def _choose_mark(mark: str, plain_mark: str) -> str:
        return mark if "utf" in (sys.stdout.encoding or "").lower() else plain_mark

    def _gutter(self, line: str, style: str) -> str:
        """Return a line of foreign text behind a bar, so that it cannot look like one of ours."""
        bar = self._choose_mark("│", "|")
        room = self._screen.columns - 1 - MARGIN - 2
        text = fit(plain(line).expandtabs(4), room)
        return f"{' ' * MARGIN}{bar} {self._screen.style(text, style)}" if text else f"  {bar}"

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the terminal to a question."""
        with self._lock:
            self._paused = True
            self._text.end()
        try:
            yield
        finally:
            with self._lock:
                self._paused = False
                self._draw()

    # Events

    def show(self, event: AgentEvent) -> None:
        """Show one event."""
        with self._lock:
            self._show(event)
            # Many small pieces are drawn together: the clock draws the last one.
            piece = isinstance(event, agent.TextDelta | agent.ThinkingDelta | agent.RunOutput)
            if not self._paused and (not piece or monotonic() > self._drawn + FRAME_SECONDS):
                self._draw()

    def _show(self, event: AgentEvent) -> None:
        match event:
            case agent.TextDelta():
                if self._tools_above and event.text.strip():
                    self._tools_above = False
                    self._screen.print("")
                self._doing = "writing"
                self._written += tokens(event.text)
                self._text.add(event.text)
            case agent.ThinkingDelta():
                self._doing = "thinking"
                self._written += tokens(event.text)
            case agent.ToolCall():
                self._begin(event)
            case agent.RunOutput() if event.call_id in self._tools:
                self._tools[event.call_id].take(event.stream, event.data)
            case agent.ToolResponse():
                self._end(event)
            case agent.Usage():
                self._used += event.input_tokens + event.output_tokens
                self._written = 0
            case _:
                self._show_note(event)

    def _show_note(self, event: AgentEvent) -> None:
        match event:
            case agent.SkillCalled():
                self._note(f"{self._choose_mark('✓', '+')} load {one_line(event.skill)}", "green")
            case agent.Retry():
                self._text.drop()
                self._doing = "asking again"
                self._note(f"asking again: {one_line(event.reason)}", "yellow")
            case agent.Compaction():
                self._note(f"{count(event.messages, 'message')} summarized", "dim")
            case agent.Final() if event.error:
                # Whole: its end says what to do.
                self._text.end()
                told = f"skillbelt: {one_line(event.error)}"
                self._screen.print(*self._screen.render_own(told, "red"))

    def _note(self, text: str, style: str = "") -> None:
        self._text.end()
        self._screen.print(self._screen.style(text, style) if style else text)

    def _begin(self, call: ToolCall) -> None:
        self._text.end()
        kind = self._names.get(call.name, "")
        tool = self._tools[call.id] = _Tool(describe_call(call, kind), kind)
        self._doing = "running" if tool.kind in RUNS else "working"

    def _end(self, response: ToolResponse) -> None:
        tool = self._tools.pop(response.id, None) or _Tool(one_line(response.name), "")
        good, outcome = succeeded(response), describe_outcome(response)
        mark = self._choose_mark("✓", "+") if good else self._choose_mark("✗", "x")
        tail = f": {outcome}" if outcome and response.error else f", {outcome}" if outcome else ""
        self._text.end()
        styled = self._screen.render_own(f"{mark} {tool.line}{tail}", "green" if good else "red")
        self._screen.print(*styled, *(() if self._quiet else self._output(tool)))
        self._tools_above = True
        self._doing = "waiting for the model"
        if tool.kind in RUNS:
            self._show_changes()

    def _output(self, tool: _Tool) -> Iterator[str]:
        lines = tool.lines()
        hidden = len(lines) - _SHOWN_LINES + tool.cut
        if hidden > 0:
            yield self._gutter(f"({count(hidden, 'earlier line')})", "dim")
        for line in lines[-_SHOWN_LINES:]:
            yield self._gutter(line, "dim")

    def _show_changes(self) -> None:
        for change in self._files.changes():
            self._screen.print(*self._describe_change(change))

    def _describe_change(self, change: FileChange) -> Iterator[str]:
        yield from self._screen.render_own(f"  {describe_change(change)}", "bold")
        for mark, line in diff(change):
            yield self._gutter(f"{mark if mark != '@' else ' '} {line}", _STYLES.get(mark, ""))
