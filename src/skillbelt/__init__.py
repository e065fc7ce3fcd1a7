"""skillbelt: the Agent Skills runtime.

Importing it is cheap and starts nothing: each name is loaded when it is first used.

The public names are listed once, in `_HOMES`. Type checkers read `__init__.pyi`, which
`scripts/public_stub.py --write` makes from it: a loader that parsed the stub at run time would cost
more than all other imports of `skillbelt list`.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "agent": "Agent Called Compaction Final HostTool Model ModelFailure PermissionRequest Prompt "
    "Reply Retry RunOutput Runner SkillCalled TextDelta ThinkingDelta ToolCall ToolResponse Usage",
    "artifacts": "Artifact ArtifactStore open_artifacts",
    "running.call": "RunCall RunResult",
    "permission.audit": "AuditEvent AuditLog",
    "permission.waiting": "Pending",
    "running.json_call": "Execution ExitStatus",
    "running.trial.trial": "Reached ScriptTrial Trial",
    "running.trial.verdict": "Lack",
    "permission.gate": "Gate",
    "permission.rules": "Answer Decision Request Rule",
    "trust": "Trust",
    "discovery.catalog": "Catalog Changes Filters discover_skills",
    "check.check": "check_all check_file",
    "errors": "ArchiveRefused ArtifactError ClusterAway ConfigError DiskFull FileTooLarge "
    "FileTypeRefused FileUnreadable InvalidFrontmatter LeaseLost LoadError MissingExtra NotFound "
    "ObjectDamaged ObjectError ObjectMissing ObjectsAway PathEscape PermissionDenied "
    "RequiredSkillUnusable RunLost RunRefused SandboxUnavailable SectionNotFound "
    "SkillbeltError SkillDisabled SkillNotFound SourceError StoreUnavailable UsageError",
    "files.manifest": "build_manifest",
    "settings": "Settings load_settings",
    "format.skill": "Skill",
    "disclosure.overview": "Overview overview",
    "events": "Event NewEvent",
    "disclosure.body": "Loaded Report injection_block list_docs load_resource load_skill_body "
    "sample_files",
    "runtime.runtime": "Command ReadableSkill Runtime RuntimeSession",
    "scan.scanner": "scan_skill",
    "scan.values": "Capability CapabilityStatement Finding ObservedUse ScannedSkill",
    "search.protocol": "Ranked Ranker Result",
    "format.sections": "Section",
    "conversation.state": "LoadRequest LoadedSkill Session",
    "conversation.vendors.streams": "join_stream",
    "disclosure.overflow": "Page Storage",
    "store": "SessionInfo SessionKey Store open_store",
    "tools.schema": "Tool ToolResult",
    "values": "Capabilities Diagnostic FileEntry Frontmatter Limits Manifest Origin Requirements "
    "SkillSettings",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'skillbelt' has no attribute {name!r}")
    value = getattr(import_module(f"skillbelt.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
