"""The values that packages pass to each other. All are frozen.

They are named tuples rather than dataclasses: `import dataclasses` alone takes as long as the
interpreter needs to start, and a catalogue builds tens of thousands of them (design/values.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

from skillbelt.records import NamedTuple

Severity = Literal["error", "warning", "info"]
Scope = Literal["explicit", "project", "user", "remote", "builtin"]
# How an overview shows a skill: name and description, the name, or nothing.
Visibility = Literal["full", "name", "manual"]
OriginKind = Literal["local", "archive", "index", "well-known", "url", "builtin", "mcp"]

SCOPES: tuple[Scope, ...] = ("explicit", "project", "user", "remote", "builtin")
SKILL_FILE = "SKILL.md"
# The default timeout of a run; a call may ask for more, up to the setting `run_timeout_seconds`.
USUAL_TIMEOUT_SECONDS = 300.0
# Flags of a skill in the index: who may use it, and what kind of skill it is.
USER, MODEL, DERIVED, INTERNAL, SKIPPED = 1, 2, 4, 8, 16


class Diagnostic(NamedTuple):
    """Something that was skipped, repaired or is wrong, and its remedy."""

    code: str
    severity: Severity
    path: str
    line: int | None
    message: str
    remedy: str = ""

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else self.path
        remedy = f" ({self.remedy})" if self.remedy else ""
        return f"{where}: {self.severity} {self.code}: {self.message}{remedy}"


class Origin(NamedTuple):
    """The source of a skill. `url` is empty for a skill on this disk."""

    kind: OriginKind = "local"
    url: str = ""

    @property
    def remote(self) -> bool:
        """Whether the text came over a network; its first load then needs an approval."""
        return self.kind not in ("local", "builtin")

    def __str__(self) -> str:
        return f"{self.kind}:{self.url}" if self.url else self.kind


def is_remote(origin: str) -> bool:
    """Whether an origin that was written as text is one over a network."""
    kind = origin.partition(":")[0]
    return any(kind == known and Origin(known).remote for known in get_args(OriginKind))


class Frontmatter(NamedTuple):
    """The known fields of a SKILL.md, each with its type; all others verbatim in `extra`."""

    name: str = ""
    description: str = ""
    license: str = ""
    compatibility: str = ""
    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()
    metadata: Mapping[str, object] = MappingProxyType({})
    when_to_use: str = ""
    argument_hint: str = ""
    arguments: tuple[str, ...] = ()
    disable_model_invocation: bool = False
    user_invocable: bool = True
    model: str = ""
    effort: str = ""
    context: str = ""
    agent: str = ""
    background: bool | None = None
    hooks: Mapping[str, object] = MappingProxyType({})
    paths: tuple[str, ...] = ()
    shell: str = ""
    version: str = ""
    extra: Mapping[str, object] = MappingProxyType({})


class Requirements(NamedTuple):
    """The requirements that a skill states. Nothing is ever installed because of them.

    `env` are the variables it needs, `optional_env` those it can do without.
    """

    bins: tuple[str, ...] = ()
    any_bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    os: tuple[str, ...] = ()
    optional_env: tuple[str, ...] = ()


class FileEntry(NamedTuple):
    """One file of a skill: its path below the skill's folder, size, hash and MIME type."""

    path: str
    size: int
    sha256: str
    kind: str


class Manifest(NamedTuple):
    """Every file of a skill, sorted by path, and one hash over the whole skill."""

    files: tuple[FileEntry, ...]
    hash: str
    diagnostics: tuple[Diagnostic, ...] = ()


class Capabilities(NamedTuple):
    """The permissions of a run beyond reading the system and writing to its workspace and `/tmp`.

    Paths are absolute paths on the host. A host is a name or an address, with `:port` for another
    port than 443 and 80; none means no network. Without `processes` the program cannot start other
    processes.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    processes: bool = False


class SkillSettings(NamedTuple):
    """The settings for one skill. The defaults change nothing.

    `env` names variables that a run gets from the secret store, `values` holds those with literal
    values. `hosts` are the only hosts that a run may ask for, None for those that the skill names.
    An empty `sandbox` and a `timeout` of 0 mean the general setting. `gpus` is the number that a
    node of a cluster must have. `sources` says where each key was set, `ignored` where a project
    tried to loosen one.
    """

    enabled: bool = True
    visible: Visibility = "full"
    required: bool = False
    pin: bool = False
    packages: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    values: Mapping[str, str] = MappingProxyType({})
    hosts: tuple[str, ...] | None = None
    sandbox: str = ""
    timeout: float = 0.0
    gpus: int = 0
    sources: Mapping[str, str] = MappingProxyType({})
    ignored: Mapping[str, str] = MappingProxyType({})


class Limits(NamedTuple):
    """The bounds a user can set, each with its unit in its name. Each is a setting of that name.

    Bounds that need no setting are constants beside their use.
    """

    max_depth: int = 8
    max_directories: int = 50_000
    max_resource_excerpt_chars: int = 12_000
    max_skill_body_lines: int = 500
    max_skill_body_chars: int = 40_000
    max_overview_tokens: int = 10_000
    http_timeout_seconds: float = 10.0
    run_timeout_seconds: float = 3600.0
    max_cpu_seconds: float = 600.0
    max_memory_bytes: int = 2 * 2**30
    max_processes: int = 128
    max_written_file_bytes: int = 512 * 2**20
    max_workspace_bytes: int = 2 * 2**30
    max_workspace_files: int = 100_000
    max_temporary_bytes: int = 256 * 2**20
    max_stream_bytes: int = 16 * 2**10
    max_output_file_bytes: int = 64 * 2**20
    max_wasm_fuel: int = 1_000_000_000_000
    max_packages_bytes: int = 10 * 2**30
    max_network_bytes: int = 2 * 2**30
    max_upload_bytes: int = 10 * 2**30
    permission_timeout_seconds: float = 300.0
    max_steps: int = 50
