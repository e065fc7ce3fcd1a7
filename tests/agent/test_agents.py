"""Agents as values."""

from __future__ import annotations

from typing import Any

import pytest

from skillbelt import Runtime
from skillbelt.agent import Agent, HostTool
from skillbelt.agent.agents import refuse_direct_call
from tests.tree import Tree


def test_an_agent_uses_no_model_unless_one_is_named(belt: Runtime) -> None:
    assert Agent(belt).model == "offline"


def test_an_agent_is_frozen_and_copied_with_changes(belt: Runtime) -> None:
    agent = Agent(belt)
    with pytest.raises(AttributeError):
        agent.model = "other"  # type: ignore[misc]
    assert agent._replace(max_steps=3).max_steps == 3


OWN = ("max_steps", "max_repeats", "max_retries", "max_fork_depth", "compact_share")


@pytest.mark.parametrize("name", OWN)
def test_a_limit_is_the_setting_unless_the_agent_has_its_own(tree: Tree, name: str) -> None:
    setting: dict[str, Any] = {name: 7}
    none: dict[str, Any] = {name: 0}
    with Runtime(tree.project, **setting) as belt:
        assert getattr(Agent(belt).limits, name) == 7
        assert Agent(belt, **none).limits == belt.settings.limits._replace(**none)


def test_a_tool_of_the_host_is_offered_as_any_other() -> None:
    tool = HostTool("add", "Adds.", lambda _: "3").offered()
    assert (tool.name, tool.description) == ("add", "Adds.")
    assert tool.schema["type"] == "object"


def test_a_tool_of_the_host_is_carried_out_by_the_runner_alone() -> None:
    answer = refuse_direct_call({})
    assert answer.error == "only the runner of an agent can run this tool"
