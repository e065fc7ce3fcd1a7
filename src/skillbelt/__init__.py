"""skillbelt: the Agent Skills runtime.

Importing it is cheap and starts nothing: each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillbelt.agent import (
        Agent,
        Called,
        Compaction,
        Final,
        HostTool,
        Model,
        ModelFailure,
        PermissionRequest,
        Prompt,
        Reply,
        Retry,
        Runner,
        RunOutput,
        TextDelta,
        ThinkingDelta,
        ToolCall,
        ToolResponse,
        Usage,
    )
    from skillbelt.artifacts import Artifact, ArtifactStore, open_artifacts
    from skillbelt.check.check import check_all, check_file
    from skillbelt.conversation.state import LoadedSkill, Session
    from skillbelt.disclosure.body import (
        Loaded,
        Report,
        injection_block,
        list_docs,
        load_resource,
        load_skill_body,
        sample_files,
    )
    from skillbelt.disclosure.overflow import Page, Storage
    from skillbelt.disclosure.overview import Overview, overview
    from skillbelt.discovery.catalog import Catalog, Changes, Filters, discover_skills
    from skillbelt.errors import (
        ArchiveRefused,
        ArtifactError,
        ConfigError,
        FileTooLarge,
        FileTypeRefused,
        FileUnreadable,
        InvalidFrontmatter,
        LoadError,
        MissingExtra,
        PathEscape,
        PermissionDenied,
        RunRefused,
        SandboxUnavailable,
        SectionNotFound,
        SkillbeltError,
        SkillNotFound,
        SourceError,
    )
    from skillbelt.events import Event, NewEvent
    from skillbelt.files.manifest import build_manifest
    from skillbelt.format.sections import Section
    from skillbelt.format.skill import Skill
    from skillbelt.permission.audit import AuditEvent, AuditLog
    from skillbelt.permission.gate import Gate
    from skillbelt.permission.rules import Answer, Decision, Request, Rule
    from skillbelt.permission.waiting import Pending
    from skillbelt.running.call import RunCall, RunResult
    from skillbelt.running.json_call import Execution, ExitStatus
    from skillbelt.runtime.runtime import Command, Runtime, RuntimeSession
    from skillbelt.search.protocol import Ranked, Ranker, Result
    from skillbelt.settings import Settings, load_settings
    from skillbelt.store import SessionInfo, SessionKey, Store, open_store
    from skillbelt.tools.schema import Tool, ToolResult
    from skillbelt.trust import Trust
    from skillbelt.values import (
        Capabilities,
        Diagnostic,
        FileEntry,
        Frontmatter,
        Limits,
        Manifest,
        Origin,
        Requirements,
    )

__version__ = "0.1.0"

_HOMES = {
    "agent": "Agent Called Compaction Final HostTool Model ModelFailure PermissionRequest Prompt "
    "Reply Retry RunOutput Runner TextDelta ThinkingDelta ToolCall ToolResponse Usage",
    "artifacts": "Artifact ArtifactStore open_artifacts",
    "running.call": "RunCall RunResult",
    "permission.audit": "AuditEvent AuditLog",
    "permission.waiting": "Pending",
    "running.json_call": "Execution ExitStatus",
    "permission.gate": "Gate",
    "permission.rules": "Answer Decision Request Rule",
    "trust": "Trust",
    "discovery.catalog": "Catalog Changes Filters discover_skills",
    "check.check": "check_all check_file",
    "errors": "ArchiveRefused ArtifactError ConfigError FileTooLarge FileTypeRefused "
    "FileUnreadable InvalidFrontmatter LoadError MissingExtra PathEscape PermissionDenied "
    "RunRefused SandboxUnavailable SectionNotFound SkillbeltError SkillNotFound SourceError",
    "files.manifest": "build_manifest",
    "settings": "Settings load_settings",
    "format.skill": "Skill",
    "disclosure.overview": "Overview overview",
    "events": "Event NewEvent",
    "disclosure.body": "Loaded Report injection_block list_docs load_resource load_skill_body "
    "sample_files",
    "runtime.runtime": "Command Runtime RuntimeSession",
    "search.protocol": "Ranked Ranker Result",
    "format.sections": "Section",
    "conversation.state": "LoadedSkill Session",
    "disclosure.overflow": "Page Storage",
    "store": "SessionInfo SessionKey Store open_store",
    "tools.schema": "Tool ToolResult",
    "values": "Capabilities Diagnostic FileEntry Frontmatter Limits Manifest Origin Requirements",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "Agent",
    "Answer",
    "ArchiveRefused",
    "Artifact",
    "ArtifactError",
    "ArtifactStore",
    "AuditEvent",
    "AuditLog",
    "Called",
    "Capabilities",
    "Catalog",
    "Changes",
    "Command",
    "Compaction",
    "ConfigError",
    "Decision",
    "Diagnostic",
    "Event",
    "Execution",
    "ExitStatus",
    "FileEntry",
    "FileTooLarge",
    "FileTypeRefused",
    "FileUnreadable",
    "Filters",
    "Final",
    "Frontmatter",
    "Gate",
    "HostTool",
    "InvalidFrontmatter",
    "Limits",
    "LoadError",
    "Loaded",
    "LoadedSkill",
    "Manifest",
    "MissingExtra",
    "Model",
    "ModelFailure",
    "NewEvent",
    "Origin",
    "Overview",
    "Page",
    "PathEscape",
    "Pending",
    "PermissionDenied",
    "PermissionRequest",
    "Prompt",
    "Ranked",
    "Ranker",
    "Reply",
    "Report",
    "Request",
    "Requirements",
    "Result",
    "Retry",
    "Rule",
    "RunCall",
    "RunOutput",
    "RunRefused",
    "RunResult",
    "Runner",
    "Runtime",
    "RuntimeSession",
    "SandboxUnavailable",
    "Section",
    "SectionNotFound",
    "Session",
    "SessionInfo",
    "SessionKey",
    "Settings",
    "Skill",
    "SkillNotFound",
    "SkillbeltError",
    "SourceError",
    "Storage",
    "Store",
    "TextDelta",
    "ThinkingDelta",
    "Tool",
    "ToolCall",
    "ToolResponse",
    "ToolResult",
    "Trust",
    "Usage",
    "build_manifest",
    "check_all",
    "check_file",
    "discover_skills",
    "injection_block",
    "list_docs",
    "load_resource",
    "load_settings",
    "load_skill_body",
    "open_artifacts",
    "open_store",
    "overview",
    "sample_files",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'skillbelt' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"skillbelt.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
