"""`skillbelt scan --model`: ask a model for a second opinion on each skill."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from skillbelt.agent import Agent, Runner
from skillbelt.agent.models import OFFLINE
from skillbelt.cli.ask import ignore_warnings
from skillbelt.errors import ConfigError
from skillbelt.evals.budget import Budget
from skillbelt.evals.cache import EvalCache, key_of
from skillbelt.evals.conversation import ConversationLimits, ConversationRunner
from skillbelt.format.skill import Skill
from skillbelt.runtime.runtime import Runtime
from skillbelt.scan.second_opinion import (
    INSTRUCTIONS,
    add_opinion,
    opinion_prompt,
    without_opinion,
)
from skillbelt.scan.values import ScannedSkill
from skillbelt.settings import Settings
from skillbelt.store.memory import MemoryStore

# The tokens of one command, in and out, and the seconds of one answer.
MAX_OPINION_TOKENS = 1_000_000
OPINION_SECONDS = 120.0


def ask_opinions(
    skills: Sequence[tuple[Skill, ScannedSkill]],
    model: str,
    settings: Settings,
    told: Callable[[str], None],
) -> list[ScannedSkill]:
    """Return the results with what the model says; an answer is asked for once for each content.

    ConfigError if the model cannot be used.
    """
    if not model.strip() or model.strip() == OFFLINE:
        raise ConfigError(
            "a second opinion needs a model: scan --model MODEL, as `skillbelt ask` takes it"
        )
    cache = EvalCache(os.path.join(settings.cache_dir, "evals"))
    with ignore_warnings(), ExitStack() as stack:
        talker = _open(model, settings, stack)

        async def ask_all() -> list[ScannedSkill]:
            results = []
            for skill, scanned in skills:
                told(f"asking {model} about {skill.name}")
                results.append(await _ask(talker, skill, scanned, cache))
            return results

        return asyncio.run(ask_all())


def _open(model: str, settings: Settings, stack: ExitStack) -> ConversationRunner:
    """Open conversations without skills and tools."""
    bare = Runtime(
        settings=settings, store=MemoryStore(), tools=(), visible=lambda _: False, guidance=""
    )
    stack.enter_context(bare)
    runner = stack.enter_context(Runner(Agent(bare, model, instructions=INSTRUCTIONS)))
    runner.prepare()
    return ConversationRunner(
        runner, ConversationLimits(OPINION_SECONDS, Budget(max_tokens=MAX_OPINION_TOKENS))
    )


async def _ask(
    talker: ConversationRunner, skill: Skill, scanned: ScannedSkill, cache: EvalCache
) -> ScannedSkill:
    model, prompt = str(talker.runner.agent.model), opinion_prompt(skill)
    key = key_of(kind="opinion", model=model, prompt=prompt, instructions=INSTRUCTIONS)
    kept = cache.get(key)
    if kept and isinstance(kept.get("text"), str):
        return add_opinion(scanned, kept["text"], model)
    talk = await talker.talk(prompt)
    if talk.ended == "budget":
        spent = f"was not asked, {MAX_OPINION_TOKENS:,} tokens are spent"
        return without_opinion(scanned, model, spent)
    if talk.ended != "answer":
        return without_opinion(scanned, model, talk.error or talk.ended)
    cache.put(key, {"text": talk.answer})
    return add_opinion(scanned, talk.answer, model)
