"""Run an agent around a model, or without one."""

from skillbelt.agent.agents import Agent, HostTool
from skillbelt.agent.events import (
    AgentEvent,
    Compaction,
    Final,
    PermissionRequest,
    Retry,
    RunOutput,
    SkillCalled,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolResponse,
    Usage,
    document,
)
from skillbelt.agent.models import Called, Model, ModelFailure, Prompt, Reply
from skillbelt.agent.runner import Runner

__all__ = [
    "Agent",
    "AgentEvent",
    "Called",
    "Compaction",
    "Final",
    "HostTool",
    "Model",
    "ModelFailure",
    "PermissionRequest",
    "Prompt",
    "Reply",
    "Retry",
    "RunOutput",
    "Runner",
    "SkillCalled",
    "TextDelta",
    "ThinkingDelta",
    "ToolCall",
    "ToolResponse",
    "Usage",
    "document",
]
