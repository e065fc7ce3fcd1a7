"""Settings: files and environment merged into one value.

The only module that reads the environment. Later wins: defaults, the system's config, the user's,
the project's `[tool.skillbelt]`, its `skillbelt.toml`, the environment, arguments in code or on the
command line. Permission rules are in the same files; `permission.rule_files` reads them.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Literal

from skillbelt.errors import ConfigError, closest, log_warning
from skillbelt.files.contain import inside
from skillbelt.files.locks import locked
from skillbelt.files.private import make_folder, replace_file
from skillbelt.records import NamedTuple
from skillbelt.source_rules import SCAN_LEVELS, SIGNATURE_RULES, check_pattern, parse_signer
from skillbelt.text import read_toml, toml_value
from skillbelt.trust import Neighbours
from skillbelt.untrusted_json import BadJson, read_jsonc
from skillbelt.values import SCOPES, USUAL_TIMEOUT_SECONDS, Limits, SkillSettings

ENV_PREFIX = "SKILLBELT_"
PROJECT_FILE = "skillbelt.toml"
# Commands write the last two files: added rules, and which skills are enabled.
SWITCH_FILE = "skills.toml"
_USER_FILES = ("config.toml", PROJECT_FILE, "permissions.toml", SWITCH_FILE)
_OPENCODE_FILES = ("opencode.json", "opencode.jsonc")
_OUR_TABLE = b"[tool.skillbelt"
_MAX_FILE_BYTES = 2**20
_NOTHING: Mapping[str, str] = MappingProxyType({})
_NO_DEMANDS: Mapping[str, tuple[str, ...]] = MappingProxyType({})
FileSource = Literal["system", "user", "project"]
DATABASES = ("postgresql://", "postgres://")


class RuleTables(NamedTuple):
    """The permission tables of a settings file, its text, and the path of our table in it."""

    text: str
    at: tuple[str, ...]
    tables: Mapping[str, object]


_NO_TABLES: Mapping[str, RuleTables] = MappingProxyType({})


class SkillSwitches(NamedTuple):
    """Settings for a skill name or glob, from one file, variable or call, with the places."""

    pattern: str
    by: Literal["system", "user", "project", "call"]
    values: Mapping[str, object]
    places: Mapping[str, str]

    @property
    def exact(self) -> bool:
        """Whether the name is a single skill, not a glob."""
        return not set("*?") & set(self.pattern)

    def covers(self, name: str) -> bool:
        """Whether the name or glob matches the skill; brackets are literal."""
        return name == self.pattern or fnmatchcase(name, self.pattern.replace("[", "[[]"))


class Settings(NamedTuple):
    """Everything that can be set. Each field `x_y` is also `SKILLBELT_X_Y` in the environment."""

    paths: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    mcp_commands: tuple[str, ...] = ()
    private_sources: tuple[str, ...] = ()
    project_roots: bool = True
    user_roots: bool = True
    disabled_clients: tuple[str, ...] = ()
    scope_order: tuple[str, ...] = SCOPES
    follow_symlinks: bool = True
    nested: bool = False
    loose_file_name: bool = False
    # Generated folders, such as dependencies: many files and no skills.
    skip_directories: tuple[str, ...] = (".git", "node_modules", "__pycache__")
    strict: bool = False
    derived_descriptions: Literal["show", "hide"] = "show"
    trust_project: Literal["allow", "ask"] = "allow"
    trust_declared_tools: bool = True
    audit: bool = True
    project_name: str = ""
    sandbox: str = "auto"
    untrusted_sandbox: str = ""
    container_engine: str = ""
    container_image: str = ""
    container_runtime: str = ""
    container_reuse: bool = True
    allowed_commands: tuple[str, ...] = ()
    denied_commands: tuple[str, ...] = ()
    host_roots: tuple[str, ...] = ()
    program_folders: tuple[str, ...] = ()
    require_load: bool = False
    allow_builds: bool = False
    package_hosts: tuple[str, ...] = ()
    fetch_hosts: tuple[str, ...] = ()
    artifacts_url: str = ""
    objects: str = ""
    executor: Literal["local", "ray"] = "local"
    ray_address: str = ""
    secrets_store: Literal["auto", "keyring", "file"] = "auto"
    empty_allowed_tools: Literal["allow", "deny"] = "allow"
    use_index: bool = True
    offline: bool = False
    signatures: Literal["off", "warn", "require"] = "off"
    trusted_signers: tuple[str, ...] = ()
    allowed_sources: tuple[str, ...] = ()
    min_age_days: float = 0.0
    scan_refuses: Literal["block", "ask", "note"] = "block"
    body_overflow: Literal["cut", "refuse"] = "cut"
    overview_format: Literal["xml", "markdown", "plain", "json"] = "xml"
    context_window_tokens: int = 200_000
    load_mode: Literal["turn", "once", "session"] = "turn"
    placement: Literal["tool", "system"] = "tool"
    max_loaded_skills: int = 0
    model: str = "offline"
    tool_names: Literal["skillbelt", "common"] = "skillbelt"
    tool_profile: Literal["default", "simple", "knowledge", "trpc", "claude", "full"] = "default"
    rescan_seconds: float = 0.0
    watch_seconds: float = 2.0
    cache_dir: str = ""
    state_dir: str = ""
    store: str = ""
    limits: Limits = Limits()
    # Facts about the machine; `load_settings` sets them, no file does.
    internal_skills: bool = False
    project: str = ""
    worktree: str = ""
    home: str = ""
    config_home: str = ""
    client_homes: Mapping[str, str] = _NOTHING
    skills_root: str = ""
    sources: Mapping[str, str] = _NOTHING
    # The files that were read, weakest first, and the permission tables of each by path.
    files: tuple[tuple[FileSource, str], ...] = ()
    rule_tables: Mapping[str, RuleTables] = _NO_TABLES
    # What OpenCode's configuration adds to `paths` and `urls`, and which file adds it.
    client_paths: tuple[tuple[FileSource, str], ...] = ()
    client_urls: tuple[tuple[FileSource, str], ...] = ()
    # Folders of other users that are not trusted, and their owners.
    strangers: tuple[tuple[str, str], ...] = ()
    # Settings for single skills, weakest first; `for_skill` merges them.
    skills: tuple[SkillSwitches, ...] = ()
    # The lock file in which `skills` records the user's installs.
    skills_lock: str = ""
    # What the project demands of installed skills, in addition to the user's own demands.
    demands: Mapping[str, tuple[str, ...]] = _NO_DEMANDS

    def __repr__(self) -> str:
        # A URL may hold a password, and a repr gets into logs.
        shown = ((key, hide_password(getattr(self, key))) for key in self._fields)
        return f"Settings({', '.join(f'{key}={value!r}' for key, value in shown)})"

    def for_skill(self, name: str) -> SkillSettings:
        """Return the merged settings for the skill of that name."""
        return _merge_switches(self.skills, name) if self.skills else NO_SWITCHES

    def required_skills(self) -> list[str]:
        """Return the names of the skills that must be usable."""
        named = dict.fromkeys(one.pattern for one in self.skills if one.exact)
        return [name for name in named if self.for_skill(name).required]

    def by_project(self, key: str) -> bool:
        """Whether a file of the project sets the value that counts."""
        return ("project", self.sources.get(key, "")) in self.files

    @property
    def all_paths(self) -> tuple[str, ...]:
        """The folders to search first: the setting `paths`, then those of OpenCode's files."""
        return (*self.paths, *(path for _, path in self.client_paths))

    @property
    def all_urls(self) -> tuple[str, ...]:
        """The remote sources: the setting `urls`, then those of OpenCode's files."""
        return (*self.urls, *(url for _, url in self.client_urls))

    def only_by_project(self, key: Literal["paths", "urls"]) -> set[str]:
        """Return the folders or sources that a file of the project names, and the user does not."""
        added = self.client_paths if key == "paths" else self.client_urls
        theirs = {text for source, text in added if source == "project"}
        mine = {text for source, text in added if source != "project"}
        (theirs if self.by_project(key) else mine).update(getattr(self, key))
        return theirs - mine

    @property
    def index_file(self) -> str:
        """The path of the persistent index."""
        return os.path.join(self.cache_dir, "index.sqlite3")


CHOICES: dict[str, tuple[str, ...]] = {
    "derived_descriptions": ("show", "hide"),
    "trust_project": ("allow", "ask"),
    "empty_allowed_tools": ("allow", "deny"),
    "body_overflow": ("cut", "refuse"),
    "overview_format": ("xml", "markdown", "plain", "json"),
    "load_mode": ("turn", "once", "session"),
    "placement": ("tool", "system"),
    "secrets_store": ("auto", "keyring", "file"),
    "signatures": SIGNATURE_RULES,
    "scan_refuses": SCAN_LEVELS,
    "executor": ("local", "ray"),
    "tool_names": ("skillbelt", "common"),
    "tool_profile": ("default", "full", "knowledge", "trpc", "claude", "simple"),
}
_MACHINE = ("limits", "internal_skills", "project", "worktree", "home", "config_home",
            "client_homes", "skills_root", "sources", "files", "rule_tables", "client_paths",
            "client_urls", "strangers", "skills", "skills_lock", "demands")  # fmt: skip
DEFAULTS: dict[str, object] = {
    **{key: value for key, value in Settings._field_defaults.items() if key not in _MACHINE},
    **Limits._field_defaults,
}
# Lists of folders: relative to the file that names them, separated as a PATH is.
_FOLDER_LISTS = ("paths", "host_roots", "program_folders")
_SKILLS = "skills"
# Tables of a settings file that only group settings.
_GROUPS = ("skills", "limits")
# Tables that hold permission rules, not settings.
_RULES = ("permission", "agent")
# A project's files come with the checkout. They may not switch off the protection against the
# checkout, choose where decisions and downloads are stored (the checkout could contain prepared
# ones), raise what a run or a download may use, choose the model that gets the conversation, or
# raise its cost.
USER_ONLY = frozenset(
    ("allow_builds", "allowed_commands", "artifacts_url", "audit", "cache_dir",
     "container_engine", "container_image", "container_reuse", "container_runtime",
     "denied_commands", "empty_allowed_tools", "executor", "fetch_hosts", "host_roots",
     "max_cpu_seconds",
     "max_memory_bytes", "max_network_bytes", "max_output_file_bytes", "max_packages_bytes",
     "max_processes", "max_steps", "max_stream_bytes", "max_temporary_bytes",
     "max_upload_bytes", "max_wasm_fuel",
     "max_workspace_bytes", "max_workspace_files", "max_written_file_bytes", "mcp_commands",
     "model", "objects", "package_hosts", "permission_timeout_seconds", "private_sources",
     "program_folders", "ray_address", "run_timeout_seconds", "sandbox", "secrets_store",
     "state_dir", "store", "trust_declared_tools", "trust_project", "untrusted_sandbox")
)  # fmt: skip
# A project may switch these on, but not off where the user has them on.
GUARDS: Mapping[str, object] = MappingProxyType(
    {"derived_descriptions": "hide", "follow_symlinks": False, "offline": True,
     "require_load": True, "strict": True}
)  # fmt: skip
# A project may only tighten these: of a word or a number the stricter one counts, lists are added
# to the user's.
TIGHTENED = frozenset(
    ("allowed_sources", "min_age_days", "scan_refuses", "signatures", "trusted_signers")
)
# Settings of the last release that are constants in the code now. They are ignored with a warning,
# like those in REMOVED, which names the replacement of each.
_FIXED = frozenset(
    ("build_timeout_seconds", "cancel_timeout_seconds", "client_order", "compact_kept_share",
     "compile_timeout_seconds", "container_idle_seconds", "derived_description_chars",
     "head_bytes", "install_timeout_seconds", "max_answer_calls", "max_answer_chars",
     "max_archive_files", "max_audit_bytes", "max_audit_files", "max_background_bytes",
     "max_background_runs", "max_checked_bytes", "max_code_blocks", "max_containers",
     "max_download_bytes", "max_entry_depth", "max_enum_skills", "max_extracted_bytes",
     "max_extracted_file_bytes", "max_frontmatter_bytes", "max_indexed_files",
     "max_indexed_scripts", "max_input_bytes", "max_kept_messages", "max_linked_bytes",
     "max_linked_documents", "max_manifest_bytes", "max_manifest_files",
     "max_network_connections", "max_network_header_bytes", "max_open_files",
     "max_parallel_calls", "max_primary_bytes", "max_primary_files", "max_query_chars",
     "max_query_words", "max_redirects", "max_references", "max_remote_index_bytes",
     "max_remote_skills", "max_request_bytes", "max_resource_file_bytes",
     "max_root_entries", "max_run_steps",
     "max_sampled_files", "max_scan_share", "max_search_results", "max_served_sessions",
     "max_session_runs", "max_staged_bytes", "max_stdin_bytes", "max_unread_bytes",
     "max_unread_events", "max_wasm_bytes", "max_wasm_cache_bytes", "max_wasm_elements",
     "max_wasm_instances", "max_wasm_workers", "max_workspaces_bytes", "max_yaml_aliases",
     "max_yaml_depth", "model_idle_seconds", "network_connect_seconds", "network_header_seconds",
     "network_idle_seconds", "request_timeout_seconds", "retry_wait_seconds",
     "scan_timeout_seconds", "search_wait_seconds", "served_idle_seconds", "wasm_idle_seconds",
     "workspace_idle_seconds")
)  # fmt: skip
REMOVED: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(_FIXED, "")
    | {
        "compact_share": "pass it to skillbelt.agent.Agent",
        "exec_timeout_seconds": "give the call a timeout_ms",
        "external_roots": 'set disabled_clients = ["*"]',
        "internal_skills": "set the variable INSTALL_INTERNAL_SKILLS",
        "max_fork_depth": "pass it to skillbelt.agent.Agent",
        "max_output_bytes": "give the call max_total_bytes",
        "max_output_files": "give the call max_files",
        "max_repeats": "pass it to skillbelt.agent.Agent",
        "max_retries": "pass it to skillbelt.agent.Agent",
        "overview_share": "set max_overview_tokens",
        "remote_refresh_seconds": "run `skillbelt refresh` to ask the servers at once",
        "remote_roots": "leave urls empty",
        "source_timeout_seconds": "set http_timeout_seconds",
        "standard_roots": "set project_roots and user_roots",
    }
)
# Environment variables of other tools that list commands; our own setting wins over them.
COMMAND_LISTS = {
    "allowed_commands": "TRPC_AGENT_SKILL_RUN_ALLOWED_COMMANDS",
    "denied_commands": "TRPC_AGENT_SKILL_RUN_DENIED_COMMANDS",
}
# Environment variables of other tools that move a client's own folder, or add one.
CLIENT_HOMES = {
    "claude": "CLAUDE_CONFIG_DIR",
    "codex": "CODEX_HOME",
    "opencode": "OPENCODE_CONFIG_DIR",
}


def load_settings(
    project: str | os.PathLike[str] | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str] | None = None,
    leave_strangers: bool = False,
) -> Settings:
    """Return the settings of a project folder (default: the current one); ConfigError if one is
    wrong.

    `config` replaces the project's own files. `overrides` win over everything. A settings file that
    belongs to another user does not count before it is trusted: it raises ConfigError, or is
    skipped with `leave_strangers`.
    """
    env = os.environ if environ is None else environ
    start = _start(project or ".")
    home = _home(env)
    config_home = _absolute(env.get("XDG_CONFIG_HOME")) or os.path.join(home, ".config")
    files = _files([*_config_dirs(env), config_home], config)
    reads = [(path, _read_file(path)) for _, path in files]
    neighbours = Neighbours(lambda: _state_dir(reads, env, overrides or {}, home), env)
    worktree = find_worktree(start, neighbours.is_own)
    neighbours.is_own(start)
    if config is None:
        theirs = neighbours.without_theirs(_project_files(start, worktree), leave_strangers)
        files += [("project", path) for path in theirs]
        found = [(path, _read_file(path)) for path in theirs]
        _check_project(reads, found)
        reads += found
    _warn_of_removed(reads, env, overrides or {})
    of_project = {path for source, path in files if source == "project"}
    values, sources = _merge(reads, env, overrides or {}, of_project)
    _complete(values, env, home)
    limits = Limits(**{key: values.pop(key) for key in Limits._fields if key in values})  # type: ignore[arg-type]
    folders = upward(start, worktree) if config is None else []
    opencode = _Opencode(env, home, config_home)
    opencode.read(values, folders, neighbours)
    tables = {path: kept for path, read in reads if (kept := _rules(read)).tables}
    return Settings(
        **values,  # type: ignore[arg-type]
        limits=limits,
        project=start,
        worktree=worktree,
        home=home,
        config_home=config_home,
        skills_lock=_skills_lock(env, home),
        client_homes={name: env[key] for name, key in CLIENT_HOMES.items() if env.get(key)},
        skills_root=env.get("SKILLS_ROOT", ""),
        sources=sources,
        files=(*opencode.files, *files),
        rule_tables={**opencode.rule_tables, **tables},
        client_paths=tuple(opencode.paths),
        client_urls=tuple(opencode.urls),
        strangers=tuple(neighbours.found.items()),
        skills=_all_switches(files, reads, env, overrides or {}),
        demands=_project_demands(reads, of_project, env, overrides or {}),
    )


def _start(project: str | os.PathLike[str]) -> str:
    start = os.path.abspath(os.path.expanduser(project))
    if not os.path.isdir(start):
        raise ConfigError(f"{start}: no such folder; give an existing one as the project")
    return start


def _home(env: Mapping[str, str]) -> str:
    home = env.get("HOME") or os.path.expanduser("~")
    if not os.path.isabs(home):
        raise ConfigError(
            f"environment variable HOME: {home!r} is not an absolute path, so your settings and "
            "rules would depend on the current folder; set it to the whole path"
        )
    return home


def _absolute(path: str | None) -> str:
    """Return the path of an XDG variable; a relative one is ignored, as XDG demands."""
    return path if path and os.path.isabs(path) else ""


class _Opencode:
    """The skill settings in OpenCode's configuration files, weakest first.

    `skills.paths`, `skills.urls`, `permission.skill` and `tools.skill` count, the last two also for
    an agent. `{env:X}` and `{file:X}` are not expanded: a project could send their values to its
    own server.
    """

    def __init__(self, env: Mapping[str, str], home: str, config_home: str) -> None:
        own = _opencode_of_user(env, home, config_home)
        self.files: list[tuple[FileSource, str]] = [
            ("user", os.path.abspath(path)) for path in own if _is_file(path)
        ]
        self.paths: list[tuple[FileSource, str]] = []
        self.urls: list[tuple[FileSource, str]] = []
        self.rule_tables: dict[str, RuleTables] = {}

    def _find_in_project(self, folders: Sequence[str], neighbours: Neighbours) -> None:
        """Add the files of the project, nearest folder last: it is the strongest."""
        known = {path for _, path in self.files}
        start, worktree = folders[0], folders[-1]
        folders = folders[::-1]
        paths = [*_in_folders(folders), *_in_folders(f"{one}/.opencode" for one in folders)]
        there = (path for path in paths if path not in known and _is_file(path))
        # The folder `.opencode` may itself be a link.
        stay = [path for path in there if inside(path, worktree) or inside(path, start)]
        self.files += [("project", path) for path in neighbours.without_theirs(stay, True)]

    def read(
        self, settings: Mapping[str, object], folders: Sequence[str], neighbours: Neighbours
    ) -> None:
        """Read the user's files and those in the project's folders, the nearest folder first.

        Nothing if the settings leave out OpenCode; ConfigError if a file is wrong.
        """
        left_out = settings.get("disabled_clients", ())
        if isinstance(left_out, tuple) and {"opencode", "*"} & set(left_out):
            self.files = []
        elif folders:
            self._find_in_project(folders, neighbours)
        for source, path in self.files:
            self._read(source, path)

    def _read(self, source: FileSource, path: str) -> None:
        data = _bytes(path)
        if not data.strip():
            return  # OpenCode treats an empty file as an empty configuration
        try:
            document = read_jsonc(data)
        except BadJson as error:
            raise self._make_error(path, f"not valid JSON: {error}") from error
        document = self._table(path, "the document", document)
        skills = document.get("skills", {})
        if isinstance(skills, list):  # the form of OpenCode's next version
            remote = [one for one in skills if str(one).startswith(("http://", "https://"))]
            skills = {"urls": remote, "paths": [one for one in skills if one not in remote]}
        skills = self._table(path, "skills", skills)
        for key, found in (("paths", self.paths), ("urls", self.urls)):
            items = skills.get(key, [])
            if not isinstance(items, list) or not all(isinstance(one, str) for one in items):
                raise self._make_error(path, f"skills.{key} must be a list of strings")
            found += [(source, item) for item in items]
        rules = self._rules(path, "", document)
        agents = {
            name: {"permission": own_rules}
            for name, agent in self._table(path, "agent", document.get("agent", {})).items()
            if isinstance(agent, dict) and (own_rules := self._rules(path, f"agent.{name}.", agent))
        }
        tables = {"permission": rules} if rules else {}
        if tables or agents:
            text = data.decode("utf-8")
            self.rule_tables[path] = RuleTables(text, (), {**tables, "agent": agents})

    def _rules(self, path: str, before: str, table: Mapping[str, object]) -> dict[str, object]:
        """Return the skill rules of `tools` and `permission`, in the form of our own tables."""
        patterns: dict[str, object] = {}
        for key, on in self._table(path, f"{before}tools", table.get("tools") or {}).items():
            if _means_skills(key):
                patterns = {} if on else {"*": "deny"}
        value, where = table.get("permission") or {}, f"{before}permission"
        rules_of = {"*": value} if isinstance(value, str) else self._table(path, where, value)
        for key, rule in rules_of.items():
            if not _means_skills(key):
                continue
            named = {"*": rule} if isinstance(rule, str) else rule
            for pattern, action in self._table(path, f"{where}.{key}", named).items():
                if action not in ("allow", "ask", "deny"):
                    at = f"{where}.{key}[{pattern!r}]"
                    raise self._make_error(path, f"{at} must be allow, ask or deny, not {action!r}")
                # An allow rule for several tools is about OpenCode's own tools.
                if key == "skill" or action != "allow":
                    patterns.pop(pattern, None)  # the last rule decides: move to the end
                    patterns[pattern] = action
        return {"skill": patterns} if patterns else {}

    def _table(self, path: str, where: str, value: object) -> dict[str, object]:
        if isinstance(value, dict):
            return value
        raise self._make_error(path, f"{where} must be an object")

    def _make_error(self, path: str, what: str) -> ConfigError:
        remedy = 'fix it, or leave out OpenCode with SKILLBELT_DISABLED_CLIENTS="opencode"'
        return ConfigError(f"{path}: {what}; {remedy}")


def _means_skills(key: str) -> bool:
    """Whether OpenCode's name of a tool, with wildcards, matches its tool that loads skills."""
    return fnmatchcase("skill", key.replace("[", "[[]"))  # brackets are literal


def _opencode_of_user(env: Mapping[str, str], home: str, config_home: str) -> list[str]:
    """Return the possible paths of the user's OpenCode configuration, weakest first."""
    folders = [os.path.join(config_home, "opencode"), os.path.join(home, ".opencode")]
    folders += [env["OPENCODE_CONFIG_DIR"]] if env.get("OPENCODE_CONFIG_DIR") else []
    named = [env["OPENCODE_CONFIG"]] if env.get("OPENCODE_CONFIG") else []
    return [*_in_folders(folders[:1]), *named, *_in_folders(folders[1:])]


def _in_folders(folders: Iterable[str]) -> list[str]:
    return [os.path.join(folder, name) for folder in folders for name in _OPENCODE_FILES]


def _state_dir(
    reads: Iterable[tuple[str, RuleTables]],
    env: Mapping[str, str],
    overrides: Mapping[str, object],
    home: str,
) -> str:
    """Return the state folder. Project files do not count."""
    values, _ = _merge(reads, env, overrides)
    _complete(values, env, home)
    return str(values["state_dir"])


def _complete(values: dict[str, object], env: Mapping[str, str], home: str) -> None:
    """Fill in facts about the machine, and other tools' variables where ours are not set."""
    cache = values.get("cache_dir") or env.get("SKILLS_CACHE_DIR")
    cache = cache or _user_folder("cache", env, home)
    values["cache_dir"] = os.path.abspath(_expand(str(cache), home))
    state = values.get("state_dir") or _user_folder("state", env, home)
    values["state_dir"] = os.path.abspath(_expand(str(state), home))
    if _truth(env.get("INSTALL_INTERNAL_SKILLS", "")):
        values["internal_skills"] = True
    for key, name in COMMAND_LISTS.items():
        if env.get(name, "").strip():
            words = env[name].replace(",", " ").split()
            values.setdefault(key, _check_type(key, words, f"environment variable {name}"))


# Settings that a running runtime keeps until it ends; the others are reloaded when a file changes.
NOT_LIVE = frozenset(
    ("artifacts_url", "cache_dir", "container_engine", "container_image", "container_reuse",
     "container_runtime", "executor", "model", "objects", "permission_timeout_seconds",
     "project_name", "ray_address", "sandbox", "state_dir", "store", "strict", "tool_names",
     "tool_profile", "untrusted_sandbox", "use_index")
)  # fmt: skip


def watched_files(settings: Settings) -> tuple[str, ...]:
    """Return every possible settings file, and the file that lists what is trusted."""
    own = os.path.join(settings.config_home, "skillbelt")
    paths = [os.path.join(own, name) for name in _USER_FILES]
    paths += [f"{folder}/skillbelt/config.toml" for folder in _config_dirs(os.environ)]
    paths += _opencode_of_user(os.environ, settings.home, settings.config_home)
    folders = upward(settings.project, settings.worktree)
    paths += [f"{one}/{name}" for one in folders for name in ("pyproject.toml", PROJECT_FILE)]
    paths += _in_folders((*folders, *(f"{one}/.opencode" for one in folders)))
    paths += [path for _, path in settings.files]
    paths.append(os.path.join(settings.state_dir, "trust.json"))
    return tuple(dict.fromkeys(paths))


def file_stamps(paths: Iterable[str]) -> tuple[object, ...]:
    """Return a stamp for each file that changes when the file is changed, created or removed.

    It costs one system call for each file, and opens none.
    """
    return tuple(map(_stamp, paths))


def _stamp(path: str) -> tuple[int, ...] | None:
    # Most files do not exist. Catching an exception for each takes three times as long as `access`.
    if not os.access(path, os.F_OK):
        return None
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def reload_settings(old: Settings, new: Settings) -> tuple[Settings, list[str]]:
    """Return the new settings with the old values of `NOT_LIVE`, and the names of those that
    differ.

    Values that the caller gave in code are the same in both.
    """
    fields = {key: getattr(old, key) for key in NOT_LIVE if key in Settings._fields}
    limits = {key: getattr(old.limits, key) for key in NOT_LIVE if key in Limits._fields}
    kept = new._replace(**fields, limits=new.limits._replace(**limits))
    differ = [key for key in sorted(fields) if getattr(new, key) != fields[key]]
    return kept, differ + [key for key in limits if getattr(new.limits, key) != limits[key]]


def with_sandbox(settings: Settings, name: str) -> Settings:
    """Return the settings with this sandbox for every skill; the user chose it for one command."""
    rest = [
        one._replace(values={key: value for key, value in one.values.items() if key != "sandbox"})
        for one in settings.skills
    ]
    return settings._replace(sandbox=name, skills=tuple(rest))


def read_rules(path: str) -> RuleTables:
    """Return the permission tables of a settings file; ConfigError if it cannot be read."""
    return _rules(_read_file(path))


def _rules(read: RuleTables) -> RuleTables:
    return read._replace(tables={key: read.tables[key] for key in _RULES if key in read.tables})


def process_environment() -> dict[str, str]:
    """The environment of this process, for a program that it starts for the user."""
    return dict(os.environ)


def find_worktree(start: str, takes: Callable[[str], bool] = lambda _: True) -> str:
    """The nearest folder at or above `start` that holds `.git`; `start` itself outside git.

    The search also ends, without a result, at a repository of another user that is not trusted.
    """
    folder = start
    while True:
        if os.path.lexists(os.path.join(folder, ".git")):
            return folder if takes(folder) else start
        parent = os.path.dirname(folder)
        if parent == folder:
            return start
        folder = parent


def upward(start: str, stop: str) -> list[str]:
    """The folders from `start` up to `stop`, both included, nearest first."""
    folders = [start]
    while folders[-1] != stop and os.path.dirname(folders[-1]) != folders[-1]:
        folders.append(os.path.dirname(folders[-1]))
    return folders


def _check_project(
    reads: list[tuple[str, RuleTables]], theirs: list[tuple[str, RuleTables]]
) -> None:
    """Raise ConfigError for a setting in a project's file that only the user may make."""
    own, _ = _merge(reads, {}, {})
    for path, read in theirs:
        for key, value in sorted(_flatten(read.tables).items()):
            fault = _find_violation(key, value, own.get(key, DEFAULTS.get(key)))
            if fault:
                raise ConfigError(
                    f"{path}:{_line(read.text, read.at, key)}: {key} cannot be {fault} by a "
                    f"project; set it in your own config file, or as {ENV_PREFIX}{key.upper()}"
                )


def _find_violation(key: str, value: object, own: object) -> str:
    """Return what a project would do that only the user may; "" when it is allowed."""
    if key in USER_ONLY:
        return "set"
    if key in Limits._fields and isinstance(value, int | float) and isinstance(own, int | float):
        return f"raised from {own} to {value}" if value > own else ""
    if key in GUARDS and own == GUARDS[key] != value:
        return "switched off"
    return ""


def _merge(
    reads: Iterable[tuple[str, RuleTables]],
    env: Mapping[str, str],
    overrides: Mapping[str, object],
    of_project: Collection[str] = (),
) -> tuple[dict[str, object], dict[str, str]]:
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    for path, read in reads:
        for key, value in _settings(path, read).items():
            own = values.get(key, DEFAULTS[key])
            if path in of_project and key in TIGHTENED and not _tightens(key, value, own):
                continue
            values[key], sources[key] = value, path
    for name in sorted(env):
        key = name.removeprefix(ENV_PREFIX).lower()
        if name.startswith(ENV_PREFIX) and key not in REMOVED and key != _SKILLS:
            values[key] = _from_text(key, env[name], f"environment variable {name}")
            sources[key] = name
    for key, value in overrides.items():
        if key in REMOVED or key == _SKILLS:
            continue
        values[key] = _check_type(key, value, f"argument {key}")
        sources[key] = "argument"
    return values, sources


# A project may only set a stricter one of these words.
_RANKED = {"signatures": SIGNATURE_RULES, "scan_refuses": SCAN_LEVELS}


def _tightens(key: str, value: object, own: object) -> bool:
    """Whether a project's value replaces the user's; a list never does."""
    if key in _RANKED:
        return _RANKED[key].index(str(value)) > _RANKED[key].index(str(own))
    return isinstance(value, float) and isinstance(own, float) and value > own


def _project_demands(
    reads: Sequence[tuple[str, RuleTables]],
    of_project: Collection[str],
    env: Mapping[str, str],
    overrides: Mapping[str, object],
) -> Mapping[str, tuple[str, ...]]:
    """Return the project's lists that are added to the user's, each with its file.

    `own_signatures` is the user's setting where the project is stricter.
    """
    found: dict[str, tuple[str, ...]] = {}
    for path, read in reads:
        for key, value in _settings(path, read).items() if path in of_project else ():
            if key in TIGHTENED and isinstance(value, tuple) and value:
                found |= {key: value, f"{key}_file": (path,)}
            elif key == "signatures":
                mine = [one for one in reads if one[0] not in of_project]
                own = _merge(mine, env, overrides)[0].get(key, DEFAULTS[key])
                found["own_signatures"] = (str(own),)
    return found


_MAX_GPUS = 64
# The keys of `[skills.NAME]`, each with its kind of value.
_SWITCHES: Mapping[str, str] = MappingProxyType(
    {"enabled": "true or false", "visible": '"full", "name" or "manual"',
     "required": "true or false", "pin": "true or false", "packages": "a list of requirements",
     "env": 'a list of NAME or NAME=VALUE, or a table of NAME = "VALUE"',
     "hosts": "a list of hosts", "sandbox": "the name of a sandbox",
     "timeout": "a number of seconds above 0", "gpus": f"a whole number from 0 to {_MAX_GPUS}"}
)  # fmt: skip
# A project's file may tighten the other keys only: another skill of the project could have the
# name.
SKILL_USER_ONLY = frozenset(("env", "gpus", "hosts", "packages", "pin", "sandbox"))
NO_SWITCHES = SkillSettings()
_VISIBLE = ("full", "name", "manual")  # the strictest last
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"


def _merge_switches(all_switches: Iterable[SkillSwitches], name: str) -> SkillSettings:
    """Merge the settings for a skill: those of the user, tightened by the project, then the call's.

    Within each of the three, an exact name wins over a glob, and a later place over an earlier one.
    """
    about = sorted((one for one in all_switches if one.covers(name)), key=lambda one: one.exact)
    own = [one for one in about if one.by in ("system", "user")]
    theirs = [one for one in about if one.by == "project"]
    values, sources = _merge_places(own)
    tighter, places = _merge_places(theirs)
    ignored = {key: places[key] for key, value in tighter.items() if _loosens(key, value, values)}
    for key in tighter.keys() - ignored.keys():
        values[key], sources[key] = tighter[key], places[key]
    called, places = _merge_places(one for one in about if one.by == "call")
    values |= called
    sources |= places
    return SkillSettings(**values, sources=sources, ignored=ignored)  # type: ignore[arg-type]


def _merge_places(switches: Iterable[SkillSwitches]) -> tuple[dict[str, object], dict[str, str]]:
    values: dict[str, object] = {}
    places: dict[str, str] = {}
    for one in switches:
        values.update(one.values)
        places.update(one.places)
    return values, places


def _loosens(key: str, value: object, own: Mapping[str, object]) -> bool:
    """Whether the project's value would loosen the user's or the default one."""
    current = own.get(key, getattr(NO_SWITCHES, key))
    if key == "visible":
        return _VISIBLE.index(str(value)) < _VISIBLE.index(str(current))
    if key == "timeout" and isinstance(value, float) and isinstance(current, float):
        return value > (current or USUAL_TIMEOUT_SECONDS)
    return (current, value) == ((False, True) if key == "enabled" else (True, False))


def _all_switches(
    files: Iterable[tuple[FileSource, str]],
    reads: Iterable[tuple[str, RuleTables]],
    env: Mapping[str, str],
    overrides: Mapping[str, object],
) -> tuple[SkillSwitches, ...]:
    """Return the settings for single skills of every place, weakest first."""
    found: list[SkillSwitches] = []
    for (source, _), (path, read) in zip(files, reads, strict=True):
        table = read.tables.get(_SKILLS)
        named = table.items() if isinstance(table, dict) else ()
        for name, keys in named:
            if isinstance(keys, dict):
                found.append(_switches(name, keys, source, _Place(path, read)))
    variable = f"{ENV_PREFIX}{_SKILLS.upper()}"
    calls = [(variable, _table_from_text(env[variable], variable))] if variable in env else []
    calls += [(f"argument {_SKILLS}", overrides[_SKILLS])] if _SKILLS in overrides else []
    for where, tables in calls:
        if not isinstance(tables, Mapping):
            raise ConfigError(f"{where}: must give a table of settings for each name of a skill")
        for name, keys in tables.items():
            found.append(_switches(name, keys, "call", _Place(where)))
    return tuple(found)


class _Place(NamedTuple):
    """A file with its text, or a variable or an argument, as errors name it."""

    path: str
    read: RuleTables | None = None

    def of(self, *keys: str) -> str:
        """Return the line of the last of the keys, or of the nearest table around it."""
        if self.read is None:
            return self.path
        names = tuple(key.replace("-", "_") for key in (*self.read.at, _SKILLS, *keys))
        for length in range(len(names), len(self.read.at), -1):
            if line := _first_line(self.read.text, (names[:length],)):
                return f"{self.path}:{line}"
        return f"{self.path}:1"


_ABOUT_SWITCHES = (
    "# Written by `skillbelt enable` and `skillbelt disable`; write your own settings into "
    "config.toml.\n"
)


def switch_skills(settings: Settings, switches: Mapping[str, bool | None]) -> str:
    """Write which skills are enabled into the user's settings; None removes the entry.

    Return the file. ConfigError, and no change, if it cannot be written.
    """
    path = os.path.join(settings.config_home, "skillbelt", SWITCH_FILE)
    try:
        make_folder(os.path.dirname(path))
        with locked(f"{path}.lock"):
            entries = _read_switches(path) if _is_file(path) else {}
            entries = {name: on for name, on in {**entries, **switches}.items() if on is not None}
            tables = [
                f"\n[skills.{toml_value(name)}]\nenabled = {str(on).lower()}\n"
                for name, on in sorted(entries.items())
            ]
            replace_file(path, "".join((_ABOUT_SWITCHES, *tables)).encode())
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"{path}: cannot be written: {reason}; it is unchanged") from error
    return path


def _read_switches(path: str) -> dict[str, bool]:
    """Return the file's entries; ConfigError if it holds others, which rewriting would lose."""
    tables = dict(_read_file(path).tables)
    named = tables.pop(_SKILLS, {})
    found = {
        name: table["enabled"]
        for name, table in (named.items() if isinstance(named, dict) else ())
        if isinstance(table, dict)
        and table.keys() == {"enabled"}
        and type(table["enabled"]) is bool
    }
    if tables or found.keys() != (named.keys() if isinstance(named, dict) else None):
        raise ConfigError(
            f"{path}: holds more than `skillbelt enable` and `disable` write; move your own "
            "settings to config.toml beside it"
        )
    return found


def split_place(place: str) -> tuple[str, int | None]:
    """Split a place into file and line; a variable or an argument has no line."""
    path, _, line = place.rpartition(":")
    return (path, int(line)) if path and line.isdecimal() else (place, None)


def _table_from_text(text: str, variable: str) -> object:
    try:
        return read_toml(text)
    except (ValueError, RecursionError) as error:
        example = "'pdf.enabled = false'"
        raise ConfigError(
            f"environment variable {variable}: not valid TOML: {error}; write it as {example}"
        ) from error


def _switches(name: object, table: object, by: str, place: _Place) -> SkillSwitches:
    """Return the settings in a skill's table; ConfigError if one is wrong."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise ConfigError(f"{place.path}: {name!r} is not the name of a skill")
    if not isinstance(table, Mapping):
        raise ConfigError(f"{place.of(name)}: skills.{name} must be a table")
    made = SkillSwitches(name, by, {}, {})  # type: ignore[arg-type]
    typed: dict[str, object] = {}
    places: dict[str, str] = {}
    for key, value in table.items():
        where = place.of(name, key)
        if key not in _SWITCHES:
            close = closest(str(key), _SWITCHES, most=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(_SWITCHES)}"
            raise ConfigError(f"{where}: unknown key {key!r} for the skill {name!r}; {hint}")
        if by == "project" and key in SKILL_USER_ONLY:
            raise ConfigError(
                f"{where}: {key} of a skill cannot be set by a project; set it in your own config "
                f"file, or in {ENV_PREFIX}{_SKILLS.upper()}"
            )
        if key == "required" and not made.exact:
            raise ConfigError(f"{where}: required needs the whole name of a skill, not {name!r}")
        fields = _switch(key, value, where)
        typed.update(fields)
        places.update(dict.fromkeys(fields, where))
    return made._replace(values=typed, places=places)


def _switch(key: str, value: object, where: str) -> dict[str, object]:
    """Return the fields that a key sets; ConfigError if its value is of the wrong kind."""
    if key == "env":
        return _variables(value, where)
    if key == "timeout":
        number = not isinstance(value, bool) and isinstance(value, int | float)
        right = number and 0 < float(value) < float("inf")  # type: ignore[arg-type]
        value = float(value) if right else value  # type: ignore[arg-type]
    elif key in ("packages", "hosts"):
        right = isinstance(value, list | tuple) and all(map(_is_word, value))
        value = tuple(value) if right else value  # type: ignore[arg-type]
        if right and key == "hosts":
            _check_hosts(value, where, key)  # type: ignore[arg-type]
    elif key == "gpus":
        right = type(value) is int and 0 <= value <= _MAX_GPUS
    elif key == "visible":
        right = value in _VISIBLE
    elif key == "sandbox":
        right = _is_word(value)
    else:
        right = isinstance(value, bool)
    if not right:
        raise ConfigError(f"{where}: {key} must be {_SWITCHES[key]}, not {value!r}")
    return {key: value}


def _is_word(value: object) -> bool:
    """Whether it is one line of text that no program parses as an option."""
    return isinstance(value, str) and value.isprintable() and value.strip()[:1] not in ("", "-")


def _variables(value: object, where: str) -> dict[str, object]:
    """Return the variables by name alone, and those with their values. Errors show no value."""
    pairs: list[tuple[object, object]] = []
    if isinstance(value, Mapping):
        pairs = list(value.items())
    elif isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        split = [one.partition("=") for one in value]
        pairs = [(name, text if given else None) for name, given, text in split]
    else:
        raise ConfigError(f"{where}: env must be {_SWITCHES['env']}")
    for name, text in pairs:
        if not isinstance(name, str) or not re.fullmatch(_VARIABLE, name):
            raise ConfigError(f"{where}: env: {str(name)[:80]!r} is not the name of a variable")
        if text is not None and (not isinstance(text, str) or "\0" in text):
            raise ConfigError(f"{where}: env: the value of {name} must be text")
    values = {name: text for name, text in pairs if text is not None}
    names = tuple(dict.fromkeys(name for name, text in pairs if text is None))
    return {"env": names, "values": MappingProxyType(values)}


def _warn_of_removed(
    reads: Iterable[tuple[str, RuleTables]],
    env: Mapping[str, str],
    overrides: Mapping[str, object],
) -> None:
    """Log each setting that no longer exists, with the place that sets it."""
    found = [
        (f"{path}:{_line(read.text, read.at, key)}", key)
        for path, read in reads
        for key in _flatten(read.tables)
    ]
    found += [
        (f"environment variable {name}", name.removeprefix(ENV_PREFIX).lower())
        for name in sorted(env)
        if name.startswith(ENV_PREFIX)
    ]
    found += [(f"argument {key}", key) for key in overrides]
    for where, key in found:
        if key in REMOVED:
            advice = f"; {REMOVED[key]} instead" if REMOVED[key] else "; remove it"
            log_warning(f"{where}: the setting {key} no longer has an effect{advice}")


def _files(
    folders: list[str], config: str | os.PathLike[str] | None
) -> list[tuple[FileSource, str]]:
    """The files to read except the project's, weakest first; the last folder is the user's."""
    *system, own = [os.path.join(folder, "skillbelt") for folder in folders]
    found: list[tuple[FileSource, str]] = [
        ("system", os.path.join(name, "config.toml")) for name in system
    ]
    found += [("user", os.path.join(own, name)) for name in _USER_FILES]
    found = [item for item in found if _is_file(item[1])]
    if config is not None:
        path = os.path.abspath(os.path.expanduser(config))
        if not os.path.isfile(path):
            raise ConfigError(f"{path}: no such file; --config takes an existing one")
        # A file named by --config has the user's authority, even inside a checkout.
        found.append(("user", path))
    return found


def _config_dirs(env: Mapping[str, str]) -> list[str]:
    """The folders of the system's settings, weakest first; relative ones are ignored."""
    folders = (env.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)
    return [folder for folder in reversed(folders) if os.path.isabs(folder)]


def _project_files(start: str, worktree: str) -> list[str]:
    for folder in upward(start, worktree):
        pyproject, own = (os.path.join(folder, name) for name in ("pyproject.toml", PROJECT_FILE))
        found: list[str] = []
        # A linked pyproject.toml belongs to another tool; a linked skillbelt.toml is an error.
        if os.path.isfile(pyproject) and _is_inside(pyproject, worktree):
            found += [pyproject] if _OUR_TABLE in _head(pyproject) else []
        if _is_file(own):
            if _is_inside(own, worktree):
                found.append(own)
                return found
            raise ConfigError(
                f"{own}: is a link that leads out of {worktree}, so it is not read; "
                "put the file itself there, or name it with --config"
            )
        if found:
            return found
    return []


def _is_inside(path: str, worktree: str) -> bool:
    """Whether the file, with links resolved, is inside the project."""
    return not os.path.islink(path) or inside(path, worktree)


def _is_file(path: str) -> bool:
    """Whether the file exists; ConfigError unless it is certainly a file or certainly missing.

    A file of rules that cannot be read must not count as an empty one.
    """
    try:
        info = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        if not os.path.islink(path):
            return False
        remedy = "restore what it leads to, or remove the link"
        raise ConfigError(f"{path}: is a link to a missing file; {remedy}") from None
    except OSError as error:
        raise _unreadable(path, error) from error
    if not stat.S_ISREG(info.st_mode):
        kind = "a folder" if stat.S_ISDIR(info.st_mode) else "not a regular file"
        raise ConfigError(f"{path}: is {kind}; put a settings file there, or remove it")
    return True


def _unreadable(path: str, error: OSError) -> ConfigError:
    """Return the error for an unreadable file; it names the folder without permission."""
    if isinstance(error, FileNotFoundError):
        return ConfigError(f"{path}: cannot be read: there is no such file; check the path")
    above = reversed(upward(os.path.dirname(os.path.abspath(path)), os.sep))
    closed = next((folder for folder in above if not os.access(folder, os.X_OK)), path)
    return ConfigError(
        f"{path}: cannot be read: {error.strerror}; without it, rules that it may hold would be "
        f"left out: make {closed} readable for your user"
    )


def _bytes(path: str) -> bytes:
    """Return the whole file; a truncated one could lose the rules at its end."""
    data = _head(path)
    if len(data) > _MAX_FILE_BYTES:
        most = f"{_MAX_FILE_BYTES} bytes"
        raise ConfigError(f"{path}: is larger than {most}; remove what it does not need")
    return data


def _head(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, error) from error


def is_settings_file(name: str, data: bytes) -> bool:
    """Whether a file with that path and content would be read as a project's settings."""
    last = name.rpartition("/")[2].lower()  # some file systems ignore case
    return last in (PROJECT_FILE, *_OPENCODE_FILES) or (
        last == "pyproject.toml" and _OUR_TABLE in data
    )


def _read_file(path: str) -> RuleTables:
    """The text of a file and the part of it that is ours."""
    text, parsed = _parse_file(path)
    at = ("tool", "skillbelt") if path.endswith("pyproject.toml") else ()
    for key in at:
        parsed = parsed.get(key, {}) if isinstance(parsed, dict) else {}
    if not isinstance(parsed, dict):
        raise ConfigError(f"{path}: [{'.'.join(at)}] must be a table")
    return RuleTables(text, at, parsed)


def read_toml_file(path: str) -> dict[str, Any]:
    """Return the tables of a user's file; ConfigError if it is too long, broken or missing."""
    return _parse_file(path)[1]


def _parse_file(path: str) -> tuple[str, dict[str, Any]]:
    data = _bytes(path)
    try:
        text = data.decode("utf-8")
        return text, read_toml(text)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not valid TOML: not UTF-8") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    except RecursionError as error:
        raise ConfigError(
            f"{path}: nested too deeply; put fewer lists inside each other"
        ) from error


def _settings(path: str, read: RuleTables) -> dict[str, object]:
    flat = _flatten({key: value for key, value in read.tables.items() if key not in _RULES})
    return {
        key: _resolve_relative(
            key,
            _check_type(key, value, f"{path}:{_line(read.text, read.at, key)}"),
            os.path.dirname(path),
        )
        for key, value in flat.items()
        if key not in REMOVED
    }


def _flatten(table: Mapping[str, object]) -> dict[str, object]:
    """Flatten `[skills] paths` and `[limits] max_depth` to the settings `paths` and `max_depth`.

    A table in `[skills]` belongs to the skill of that name, and is left out.
    """
    flat: dict[str, object] = {}
    for key, value in table.items():
        if key in _GROUPS and isinstance(value, dict):
            named = key == _SKILLS
            flat.update(
                _flatten({k: v for k, v in value.items() if not (named and isinstance(v, dict))})
            )
        else:
            flat[key.replace("-", "_")] = value
    return flat


def _line(text: str, table: tuple[str, ...], key: str) -> int:
    """Return the line of the key in our table; other tools may have a key of that name."""
    places = {(*table, *group, key) for group in [(), *((name,) for name in _GROUPS)]}
    return _first_line(text, places) or 1


def _first_line(text: str, places: Collection[tuple[str, ...]]) -> int:
    """Return the first line that sets one of these keys or tables; 0 if none does."""
    inside: tuple[str, ...] = ()
    for number, line in enumerate(text.split("\n"), 1):
        name = line.strip()
        if name.startswith("["):
            inside = _split_key(name.lstrip("["))
            found = inside
        else:
            found = (*inside, *_split_key(name))
        if found in places:
            return number
    return 0


# The name of a project. It is neither a path nor anything that expands to a folder of one machine.
_NAME = r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}"
# One part of a dotted key, quoted or bare.
_PART = r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([\w-]+))\s*(\.|.|$)"""


def _split_key(dotted: str) -> tuple[str, ...]:
    """Return the parts of the key that a line begins with."""
    parts: list[str] = []
    at, end = 0, "."
    while end == "." and (found := re.compile(_PART).match(dotted, at)):
        parts.append((found[1] or found[2] or found[3] or "").replace("-", "_"))
        at, end = found.end(), found[4]
    return tuple(parts)


def _resolve_relative(key: str, value: object, folder: str) -> object:
    """Resolve a relative path against the folder of the file that sets it."""
    if key in _FOLDER_LISTS and isinstance(value, tuple):
        return tuple(_join(folder, item) for item in value)
    if key in ("cache_dir", "state_dir") and isinstance(value, str) and value:
        return _join(folder, value)
    return value


def _join(folder: str, path: str) -> str:
    return path if path.startswith("~") or "://" in path else os.path.join(folder, path)


def _check_type(key: str, value: object, where: str) -> object:
    if key not in DEFAULTS:
        raise ConfigError(f"{where}: unknown setting {key!r}{_closest(key)}")
    default = DEFAULTS[key]
    if isinstance(default, tuple):
        return _list(key, value, where)
    if isinstance(default, float) and type(value) is int:
        value = float(value)
    if type(value) is not type(default):
        raise ConfigError(
            f"{where}: {key} must be {_kind(default)}, not {_kind(value)} ({value!r})"
        )
    return _check_value(key, value, where)


def _list(key: str, value: object, where: str) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ConfigError(f"{where}: {key} must be a list of strings, not {value!r}")
    if key == "scope_order" and sorted(items) != sorted(SCOPES):
        raise ConfigError(f"{where}: scope_order must name each of {', '.join(SCOPES)} once")
    if key == "fetch_hosts" and items:
        _check_hosts(items, where, key)
    if key in ("trusted_signers", "allowed_sources"):
        _check_source_rules(items, where, key)
    return program_names(items, where) if key in COMMAND_LISTS else tuple(items)


def _check_hosts(items: Iterable[str], where: str, key: str) -> None:
    from skillbelt.hosts import parse_rule  # cost: 4 ms, few name hosts

    for item in items:
        try:
            parse_rule(item)
        except ValueError as error:
            fault = f"{where}: {key}: {item!r} is not a host ({error})"
            raise ConfigError(f"{fault}; write a name, *.name or an address, with :port") from error


def _check_source_rules(items: Iterable[str], where: str, key: str) -> None:
    for item in items:
        try:
            parse_signer(item) if key == "trusted_signers" else check_pattern(item)
        except ValueError as error:
            raise ConfigError(f"{where}: {key}: {item[:200]!r} {error}") from error


def program_names(words: Iterable[str], where: str) -> tuple[str, ...]:
    """Return the programs of a list; ConfigError unless each is a name or an absolute path."""
    names = tuple(dict.fromkeys(word.strip() for word in words if word.strip()))
    for name in names:
        if ("/" in name and not name.startswith("/")) or set(name) & set(" \t\n\0"):
            raise ConfigError(
                f"{where}: {name!r} is neither the name of a program nor an absolute path;"
                " write `python3` or `/usr/bin/python3`"
            )
    return names


def _check_value(key: str, value: object, where: str) -> object:
    if key in CHOICES and value not in CHOICES[key]:
        raise ConfigError(f"{where}: {key} must be one of {', '.join(CHOICES[key])}, not {value!r}")
    if key == "store" and value and not str(value).startswith(DATABASES):
        # The value may hold a password.
        raise ConfigError(
            f"{where}: store must be postgresql://USER@HOST/DATABASE, or empty for a SQLite file"
        )
    if key == "project_name" and value and not re.fullmatch(_NAME, str(value)):
        raise ConfigError(
            f"{where}: project_name must begin with a letter or digit and hold only letters, "
            f"digits and ._/-, at most 200, such as team/shop, not {str(value)[:80]!r}"
        )
    if isinstance(value, int | float) and not value >= 0:
        raise ConfigError(f"{where}: {key} must be zero or more, not {value!r}")
    return value


def _from_text(key: str, text: str, where: str) -> object:
    """Parse a setting from the text of an environment variable."""
    default = DEFAULTS.get(key)
    try:
        if isinstance(default, tuple):
            separator = os.pathsep if key in _FOLDER_LISTS else ","
            return _check_type(
                key, [part.strip() for part in text.split(separator) if part.strip()], where
            )
        if isinstance(default, bool):
            return _check_type(key, _boolean(text), where)
        if isinstance(default, int | float):
            return _check_type(key, type(default)(text), where)
    except ValueError as error:
        raise ConfigError(f"{where}: {key} must be {_kind(default)}, not {text!r}") from error
    return _check_type(key, text, where)


def _boolean(text: str) -> bool:
    if text.strip().lower() in ("1", "true", "yes", "on"):
        return True
    if text.strip().lower() in ("0", "false", "no", "off", ""):
        return False
    raise ValueError(text)


def _truth(text: str) -> bool:
    try:
        return _boolean(text)
    except ValueError:
        return False


def _kind(value: object) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text",
             tuple: "a list of strings", list: "a list"}  # fmt: skip
    return names.get(type(value), type(value).__name__)


def _closest(key: str) -> str:
    close = closest(key, DEFAULTS, most=1)
    return f"; did you mean {close[0]!r}?" if close else "; `skillbelt config` lists them all"


def _user_folder(kind: Literal["cache", "state"], env: Mapping[str, str], home: str) -> str:
    """Return the folder for our files that XDG or Apple's guide names."""
    usual = {"cache": ".cache", "state": ".local/state"}
    if sys.platform == "darwin":
        usual = {"cache": "Library/Caches", "state": "Library/Application Support"}
    base = _absolute(env.get(f"XDG_{kind.upper()}_HOME")) or os.path.join(home, usual[kind])
    return os.path.join(base, "skillbelt")


def _skills_lock(env: Mapping[str, str], home: str) -> str:
    state = _absolute(env.get("XDG_STATE_HOME"))
    folder = os.path.join(state, "skills") if state else os.path.join(home, ".agents")
    return os.path.join(folder, ".skill-lock.json")


def _expand(path: str, home: str) -> str:
    if path == "~" or path.startswith("~/"):
        return home + path[1:]
    return path


_DATABASE_URL = r"(\w+://)(?:([^:/@?#]*)(:[^/@?#]*)?@)?([^@?#]*)(\?[^@#]*)?"


def hide_password(value: object) -> object:
    """Return the value of a setting for display: a database URL without its password.

    Only the scheme is left if the password has characters that should be escaped.
    """
    if not (isinstance(value, str) and value.startswith(DATABASES)):
        return value
    if not (found := re.fullmatch(_DATABASE_URL, value)):
        return f"{value.partition('://')[0]}://***"
    scheme, user, password, place, query = found.groups("")
    account = f"{user}{password and ':***'}@" if user or password else ""
    shown = re.sub(r"(?i)(password)=[^&]*", r"\1=***", query)
    return f"{scheme}{account}{place}{shown}"


def resolve(path: str, settings: Settings) -> str:
    """Make an explicit path absolute: `~` is the user's home, relative is to the project."""
    return os.path.normpath(os.path.join(settings.project, _expand(path, settings.home)))
