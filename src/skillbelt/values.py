"""The values that rooms pass to each other. All are frozen.

They are named tuples rather than dataclasses: `import dataclasses` alone takes as long as the
interpreter needs to start, and a catalogue builds them by the ten thousand (design/values.md).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "info"]
Scope = Literal["explicit", "project", "user", "remote", "builtin"]
OriginKind = Literal["local", "archive", "index", "well-known", "url", "builtin", "mcp"]

SCOPES: tuple[Scope, ...] = ("explicit", "project", "user", "remote", "builtin")
SKILL_FILE = "SKILL.md"
# Flags of a skill in the index: who may use it, and what kind of skill it is.
USER, MODEL, DERIVED, INTERNAL, SKIPPED = 1, 2, 4, 8, 16


class Diagnostic(NamedTuple):
    """One thing that was skipped, repaired or is wrong, and what to do about it."""

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
    """Where a skill came from. `url` is empty for a skill on this disk."""

    kind: OriginKind = "local"
    url: str = ""

    @property
    def remote(self) -> bool:
        """Whether the text came over a network; its first load then needs an approval."""
        return self.kind not in ("local", "builtin")

    def __str__(self) -> str:
        return f"{self.kind}:{self.url}" if self.url else self.kind


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
    """What a skill says it needs on the machine. Nothing is ever installed because of it."""

    bins: tuple[str, ...] = ()
    any_bins: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    os: tuple[str, ...] = ()


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
    """What a run may do beyond reading the system and writing to its workspace and `/tmp`.

    Paths are absolute and as on the host. A host is a name or an address, with `:port` for another
    port than 443 and 80; none means no network. Without `processes` the program cannot start
    other processes.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    processes: bool = False


class Limits(NamedTuple):
    """Every bound the product keeps, with its unit in its name. Each is a setting of that name."""

    head_bytes: int = 8 * 2**10
    max_frontmatter_bytes: int = 64 * 2**10
    max_yaml_depth: int = 64
    max_yaml_aliases: int = 64
    derived_description_chars: int = 300
    max_depth: int = 8
    max_directories: int = 50_000
    max_root_entries: int = 1_000_000
    scan_timeout_seconds: float = 10.0
    max_manifest_files: int = 10_000
    max_manifest_bytes: int = 256 * 2**20
    max_entry_depth: int = 32
    max_resource_file_bytes: int = 2_000_000
    max_resource_excerpt_chars: int = 12_000
    max_skill_body_lines: int = 500
    max_skill_body_chars: int = 40_000
    max_sampled_files: int = 10
    max_overview_tokens: int = 10_000
    overview_share: float = 0.02
    max_enum_skills: int = 256
    max_query_chars: int = 40_000
    max_query_words: int = 1_000
    max_search_results: int = 1_000
    max_indexed_files: int = 200
    max_indexed_scripts: int = 16
    search_wait_seconds: float = 60.0
    max_checked_bytes: int = 2 * 2**20
    max_linked_bytes: int = 256 * 2**10
    max_linked_documents: int = 100
    max_references: int = 1_000
    max_download_bytes: int = 64 * 2**20
    max_extracted_file_bytes: int = 64 * 2**20
    max_extracted_bytes: int = 256 * 2**20
    max_archive_files: int = 10_000
    max_remote_index_bytes: int = 8 * 2**20
    max_remote_skills: int = 10_000
    max_redirects: int = 5
    http_timeout_seconds: float = 10.0
    source_timeout_seconds: float = 60.0
    remote_refresh_seconds: float = 300.0
    run_timeout_seconds: float = 300.0
    exec_timeout_seconds: float = 30.0
    max_cpu_seconds: float = 600.0
    max_memory_bytes: int = 2 * 2**30
    max_processes: int = 128
    max_open_files: int = 1024
    max_written_file_bytes: int = 512 * 2**20
    max_workspace_bytes: int = 2 * 2**30
    max_workspace_files: int = 100_000
    max_temporary_bytes: int = 256 * 2**20
    max_stream_bytes: int = 16 * 2**10
    max_stdin_bytes: int = 64 * 2**20
    max_input_bytes: int = 2**30
    max_staged_bytes: int = 256 * 2**20
    max_output_files: int = 100
    max_output_file_bytes: int = 4 * 2**20
    max_output_bytes: int = 64 * 2**20
    max_primary_bytes: int = 32 * 2**10
    max_primary_files: int = 20
    max_wasm_bytes: int = 128 * 2**20
    max_wasm_fuel: int = 1_000_000_000_000
    max_wasm_elements: int = 1_000_000
    max_wasm_instances: int = 1_000
    max_wasm_workers: int = 4
    max_wasm_cache_bytes: int = 4 * 2**30
    wasm_idle_seconds: float = 300.0
    compile_timeout_seconds: float = 120.0
    build_timeout_seconds: float = 600.0
    max_containers: int = 8
    container_idle_seconds: float = 600.0
    max_session_runs: int = 8
    max_background_runs: int = 64
    max_background_bytes: int = 256 * 2**10
    workspace_idle_seconds: float = 7 * 24 * 3600.0
    max_workspaces_bytes: int = 10 * 2**30
    install_timeout_seconds: float = 600.0
    max_packages_bytes: int = 10 * 2**30
    max_network_connections: int = 64
    max_network_header_bytes: int = 32 * 2**10
    max_network_bytes: int = 2 * 2**30
    network_header_seconds: float = 10.0
    network_connect_seconds: float = 15.0
    network_idle_seconds: float = 120.0
    permission_timeout_seconds: float = 300.0
    max_parallel_calls: int = 1_000
    max_steps: int = 50
    max_run_steps: int = 200
    max_repeats: int = 3
    max_retries: int = 2
    retry_wait_seconds: float = 0.5
    model_idle_seconds: float = 600.0
    max_fork_depth: int = 3
    max_answer_chars: int = 8_000_000
    max_answer_calls: int = 64
    max_code_blocks: int = 8
    compact_share: float = 0.8
    compact_kept_share: float = 0.25
    max_kept_messages: int = 8
    max_unread_events: int = 256
    max_unread_bytes: int = 2**20
    cancel_timeout_seconds: float = 10.0
    max_request_bytes: int = 4 * 2**20
    request_timeout_seconds: float = 30.0
    max_served_sessions: int = 1_000
    served_idle_seconds: float = 1_800.0
    max_audit_bytes: int = 64 * 2**20
    max_audit_files: int = 4
