"""Measure what a runner adds to a turn: `python -m benchmarks.runner`.

The same turn of the same instant model, a question and its answer, by the runner with skills,
sessions and permission, and by pydantic-ai's own agent with no skills, streamed and not; in turns,
so that drift of the machine meets all alike. Processor time of all threads, over that of the
quicker of the two. Exit code 1 when the bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from skillbelt.agent import Agent, Final, Runner
from skillbelt.runtime.runtime import Runtime
from skillbelt.store import Store
from skillbelt.store.memory import MemoryStore

BAR = 1.5
ROUNDS, WARM_UP = 301, 20
SKILLS = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples/skills"
)
ANSWER = ("It ", "is ", "four.")
PEERS = ("pydantic-ai", "the same, whole")
OURS = ("in memory", "in SQLite")


class Row(NamedTuple):
    """The medians of one way: processor and wall-clock seconds of a turn, and over the peer's."""

    name: str
    cpu: float
    wall: float
    ratio: float


async def instant(_messages: list[Any], _info: AgentInfo) -> AsyncIterator[str]:
    """A model that answers at once, in three pieces."""
    for piece in ANSWER:
        yield piece


async def at_once(_messages: list[Any], _info: AgentInfo) -> ModelResponse:
    """The same model, where nobody wants the pieces."""
    return ModelResponse([TextPart("".join(ANSWER))])


async def whole_turn(agent: PydanticAgent[None, str], _number: int) -> None:
    """The turn as pydantic-ai has it, in one piece."""
    result = await agent.run("What is two and two?")
    assert result.output == "".join(ANSWER)


async def streamed_turn(agent: PydanticAgent[None, str], _number: int) -> None:
    """The turn as pydantic-ai has it, streamed."""
    async with agent.run_stream("What is two and two?") as result:
        pieces = [piece async for piece in result.stream_text(delta=True)]
    assert "".join(pieces) == "".join(ANSWER)


async def our_turn(runner: Runner, number: int) -> None:
    """The turn in a session of its own, as a peer's run has no history either."""
    async for event in runner.run("bench", f"chat-{number}", "What is two and two?"):
        last = event
    assert isinstance(last, Final)
    assert last.text == "".join(ANSWER), last


async def measured(rounds: int, folder: str) -> list[Row]:
    """Every way in turn, so many times."""
    model = FunctionModel(at_once, stream_function=instant)
    runtime = Runtime(
        os.path.join(folder, "project"),
        cache_dir=f"{folder}/cache",
        state_dir=f"{folder}/state",
        rescan_seconds=1e9,  # as a host with many turns sets it; a scan is measured elsewhere
    )
    stores: tuple[Store, ...] = (MemoryStore(), runtime.store)
    pairs = zip(OURS, stores, strict=True)
    runners = {name: Runner(Agent(runtime, model), store) for name, store in pairs}
    peer = PydanticAgent(model)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in (*PEERS, *runners)}
    for number in range(rounds + WARM_UP):
        if number == WARM_UP:
            gc.collect()
        for name, turn in zip(PEERS, (streamed_turn, whole_turn), strict=True):
            taken[name].append(await _timed(turn(peer, number)))
        for name, runner in runners.items():
            taken[name].append(await _timed(our_turn(runner, number)))
    return _rows({name: found[WARM_UP:] for name, found in taken.items()})


async def _timed(turn: Any) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    await turn
    return time.process_time() - cpu, time.perf_counter() - wall


def _rows(taken: dict[str, list[tuple[float, float]]]) -> list[Row]:
    """The ratio of each round is taken in that round."""
    rounds = zip(*(taken[name] for name in PEERS), strict=True)
    peer = [min(cpu for cpu, _ in both) for both in rounds]
    return [
        Row(
            name,
            statistics.median(cpu for cpu, _ in found),
            statistics.median(wall for _, wall in found),
            statistics.median(cpu / theirs for (cpu, _), theirs in zip(found, peer, strict=True)),
        )
        for name, found in taken.items()
    ]


def passed(rows: Sequence[Row]) -> bool:
    return all(row.ratio <= BAR for row in rows if row.name in OURS)


def table(rows: Sequence[Row]) -> str:
    lines = [f"{'a turn':<16}{'processor':>12}{'wall clock':>12}{'over pydantic-ai':>18}"]
    lines += [
        f"{row.name:<16}{row.cpu * 1e3:>9.2f} ms{row.wall * 1e3:>9.2f} ms{row.ratio:>16.2f} x"
        for row in rows
    ]
    verdict = "ok" if passed(rows) else "MISSED"
    return "\n".join([*lines, "", f"at most {BAR} x in processor time ({verdict})"])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.runner", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true", help="every figure, for programs")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(SKILLS, f"{folder}/project/.agents/skills")
        rows = asyncio.run(measured(options.rounds, folder))
    print(json.dumps([row._asdict() for row in rows], indent=2) if options.json else table(rows))
    return 0 if passed(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
