"""The functions of the tools.

A failed call returns a result that a model can act on; it never raises. A skill that the agent may
not see is answered like one that does not exist.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from skillbelt.conversation.compaction import lands_anew, record_docs, record_given
from skillbelt.conversation.messages import Material, block
from skillbelt.conversation.state import RecordedText, SelectedDocs
from skillbelt.disclosure.body import (
    list_docs,
    load_resource,
    place_of,
    resource_text,
    sample_files,
)
from skillbelt.disclosure.overflow import TextPiece, read_piece
from skillbelt.errors import (
    ArtifactError,
    ConfigError,
    LoadError,
    PathEscape,
    PermissionDenied,
    RunRefused,
    SandboxUnavailable,
    SkillbeltError,
    closest,
)
from skillbelt.events import NewEvent
from skillbelt.files.handles import BUSY, is_shortage
from skillbelt.format.skill import Skill
from skillbelt.metrics import count
from skillbelt.running.inputs import skill_of, skills_named
from skillbelt.running.outputs import SCHEME
from skillbelt.running.workspace import SKILLS
from skillbelt.text import break_tag, one_line, shorten, xml
from skillbelt.tools.caller import STORED, Call, Caller, GivenDocument, report_of
from skillbelt.tools.definitions import DEFINITIONS, LOADERS, READERS, Schema, name_of
from skillbelt.tools.run_handlers import (
    RUN_FOLDERS,
    execute_script,
    open_run_text,
    poll,
    printed,
    run_command,
)
from skillbelt.tools.schema import Handler, ToolResult, inline_names, offered_arguments
from skillbelt.tracing import is_tracing, skill_attributes, span
from skillbelt.untrusted_json import read_json

# With more skills a schema does not list their names: it is in every request.
MAX_ENUM_SKILLS = 256

MAX_MISSES = 3
NOT_FOUND, NOT_LOADED, WRONG_ARGUMENTS = "skill_not_found", "not_loaded", "wrong_arguments"
UNNAMED = "-"  # a call whose id the host did not give: its answer is found by its content
_PAGE = 50
_FOUND = 10
_LINES = 200  # the default number of lines
_COUNTED_BYTES = 16 * 2**20  # a larger file is read only as far as it is returned
_CLOSEST = 10
_MAX_FAULTS = 5  # wrong arguments that one answer names
_MAX_NAME_CHARS = 128
_BACKGROUND = "background"
# The workspace in most sandboxes; a model that prints its folder uses the absolute path.
INSIDE = "/workspace"
_NAMED_SKILL = re.compile(rf"\b{SKILLS}/([\w.-]+)")


class Refused(SkillbeltError):
    """A call that cannot be served; the message is for the model, the facts are for the host."""

    def __init__(self, message: str, kind: str, **facts: object) -> None:
        self.kind, self._facts = kind, facts
        super().__init__(message)

    def fields(self) -> dict[str, object]:
        """Return the facts for programs, by name."""
        return self._facts


def _list_offered(caller: Caller) -> Mapping[str, str]:
    """Return the names of the offered tools, by kind."""
    names = caller.audience.without_denied(caller.names)
    return inline_names(names) if caller.inline and caller.session else names


def dispatch(name: str, arguments: object, caller: Caller, call_id: str = "") -> ToolResult:
    """Check the arguments and run the tool of that name; a mistake of the model is a result."""
    kind = next((kind for kind, known in caller.names.items() if known == name), "")
    if not kind:
        known = ", ".join(_list_offered(caller).values()) or "none"
        shown = str(name)[:80]
        return failed(f"there is no tool {shown!r}; there are: {known}", "unknown_tool", tool=shown)
    checked = check_arguments(kind, arguments, brief=caller.brief)
    if checked.fault:
        return failed(f"{name}: {checked.fault}", WRONG_ARGUMENTS, tool=name)
    try:
        with span(
            "execute_tool", name, **_span_attributes(name, checked.arguments, caller, call_id)
        ):
            result = HANDLERS[kind](Call(checked.arguments, caller, call_id))
            count("tool_calls", tool=kind, outcome="failed" if result.error else "ok")
            return result
    except (Refused, PathEscape, LoadError, PermissionDenied) as error:
        return _failure(error, caller)
    except (RunRefused, SandboxUnavailable, ArtifactError) as error:
        return _failure(error, caller)
    except (OSError, ConfigError) as error:
        if not is_shortage(error):
            raise
        return failed(BUSY, "busy")


def _span_attributes(
    tool: str, arguments: Mapping[str, object], caller: Caller, call_id: str
) -> dict[str, object]:
    """Return the attributes of a call's tracing span, with the skill that its arguments name."""
    if not is_tracing():
        return {}
    skill = caller.skills.get(str(arguments.get("skill", "")))
    named = skill and skill_attributes(
        skill.name, skill.location, skill.origin.url, skill.description
    )
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": call_id or None,
        **(named or {}),
    }


def failed(message: str, kind: str = "failed", **facts: object) -> ToolResult:
    """Return a result that says what went wrong; the kind and the facts are for the host."""
    return ToolResult(message, message, {"error": {"kind": kind, "message": message, **facts}})


def _failure(error: SkillbeltError, caller: Caller) -> ToolResult:
    """Return the result of a refused call, without paths that a model may not see."""
    match error:
        case PathEscape():
            message = str(error).removesuffix(f" ({error.root})")
        case LoadError():
            message = f"{_hide_folder(error.path)}: {error.reason}"
        case PermissionDenied():
            return failed(error.reason, error.kind, **error.fields())
        case Refused():
            return failed(str(error), error.kind, **error.fields())
        case _:
            message = str(error)
    facts = {name: _presentable(value, caller) for name, value in error.fields().items()}
    return failed(caller.presentable(message), error.kind, **facts)


def _presentable(value: object, caller: Caller) -> object:
    return caller.presentable(_hide_folder(value)) if isinstance(value, str) else value


def _hide_folder(path: str) -> str:
    """Return a path that a model may see: a relative one, or only the file name."""
    return os.path.basename(path) if os.path.isabs(path) else path


# Which skill


def find(caller: Caller, name: object) -> Skill:
    """Return a skill whose files the model may read; raise Refused or PermissionDenied."""
    skill = caller.brought.get(str(name)) or lookup(caller, str(name))
    caller.approve(skill)
    return skill


def lookup(caller: Caller, name: str) -> Skill:
    """Return a skill the agent may see, also one that is newer than the last scan."""
    skill = caller.skills.get(name)
    if skill is None:
        skill = caller.look().get(name)
    if skill is None:
        raise Refused(
            f"unknown skill: {printable(name)}" + count_miss(caller, name),
            NOT_FOUND,
            name=printable(name),
        )
    return skill


def count_miss(caller: Caller, name: str) -> str:
    """Count a wrong name; return the text to add to the answer after too many."""
    misses = caller.session.missed(printable(name)) if caller.session else 0
    if misses < MAX_MISSES:
        return ""
    lister = caller.names.get("skill_search") or caller.names.get("skill_list")
    where = f"call {lister}" if lister else "use a name you were shown"
    # Without their number: repeated calls are detected by equal answers.
    return f"\nToo many names were wrong. Stop guessing names: {where}, or go on without a skill."


def not_found(skills: Mapping[str, Skill], name: str) -> str:
    """Return the text for a wrong name, with the right names.

    The closest ones if there are many.
    """
    listed = ", ".join(sorted(skills)) or "none"
    if len(skills) > MAX_ENUM_SKILLS:
        near = closest(name, skills, most=_CLOSEST, cutoff=0.3)
        listed = ", ".join([*near, f"... ({len(skills)} in all)"])
    return f'Skill "{printable(name)}" not found. Available skills: {listed}'


def printable(name: str) -> str:
    """Return a model's text, safe to repeat."""
    return shorten(one_line(name), _MAX_NAME_CHARS)


# The tools


def content(skill: Skill, text: str, files: list[str], base: str = "") -> str:
    """Return the block with a skill's instructions; `base` replaces its folder if given."""
    # After a closing tag, the rest of the body would look like the host's own words; after an
    # opening one, like another skill.
    safe = break_tag(text.strip(), "skill_content")
    return "\n".join(
        [
            f'<skill_content name="{xml(skill.name)}">',
            f"# Skill: {skill.name}",
            "",
            safe,
            "",
            f"Base directory for this skill: {_path(base or place_of(skill))}",
            "Relative paths in this skill (e.g., scripts/, reference/) are relative to this base "
            "directory.",
            "Note: file list is sampled.",
            "",
            "<skill_files>",
            *(f"<file>{xml(path)}</file>" for path in files),
            "</skill_files>",
            "</skill_content>",
        ]
    )


def _path(path: str) -> str:
    """Return the path unchanged, unless it holds unprintable characters."""
    return path if path.isprintable() else one_line(path)


def answer_repeat(skill: Skill) -> str:
    """Return the answer to a second request for a text that the model already has."""
    return f"Skill {skill.name} is loaded already: its text is in an earlier result, unchanged."


def use(call: Call) -> ToolResult:
    """Return a skill's instructions, its folder and a sample of its files."""
    return _use(call, str(call.arguments["name"]))


def use_in_workspace(call: Call) -> ToolResult:
    """Return a skill's instructions, with its folder in the workspace."""
    arguments = call.arguments.get("args")
    given = arguments if isinstance(arguments, str) else None
    return _use(call, str(call.arguments["skill"]), given, below=f"{SKILLS}/")


def _use(call: Call, name: str, arguments: str | None = None, *, below: str = "") -> ToolResult:
    caller = call.caller
    seen = caller.skills if name in caller.skills else caller.look()
    if name not in seen:
        message = not_found(seen, name) + count_miss(caller, name)
        raise Refused(message, NOT_FOUND, name=printable(name))
    skill = seen[name]
    request = caller.approve(skill, loading=True)
    base = below and f"{below}{skill.name}"
    loaded = caller.body(skill, arguments, folder=base)
    caller.gate.record_load(request, loaded, skill)
    files = sample_files(skill)
    if base:
        files = [f"{base}{path.removeprefix(place_of(skill))}" for path in files]
    text = content(skill, loaded.text, files, base)
    material = Material(skill.name, loaded.text)
    given = record_given(material, text)._replace(arguments=arguments, folder=base)
    _record_shown(call, skill, given)
    data = {"title": f"Loaded skill: {skill.name}", "name": skill.name, "dir": skill.dir}
    if text in caller.shown or block(material) in caller.shown:
        return ToolResult(answer_repeat(skill), data=data)
    return ToolResult(text, data={**data, "report": report_of(loaded)})


def _record_shown(call: Call, skill: Skill, given: RecordedText) -> None:
    caller = call.caller
    session = caller.session
    if session is not None:
        data = {"name": skill.name, "call_id": call.id, "placement": "result"}
        event = NewEvent("skill_loaded", session.agent, data)
        session.give(skill.name, given, event, state=caller.state)


def load(call: Call) -> ToolResult:
    """Mark the skill as loaded; return the text if no later request could carry it."""
    caller = call.caller
    skill = lookup(caller, str(call.arguments["skill"]))
    request = caller.approve(skill, loading=True)
    loaded = caller.body(skill)
    docs, every = _documents(call, skill)
    caller.gate.record_load(request, loaded, skill)
    given = f"loaded: {skill.name}"
    texts = _texts(skill, docs, every, caller)
    material = Material(skill.name, loaded.text, tuple((one.path, one.text) for one in texts))
    if caller.inline:
        given = answer_repeat(skill) if block(material) in caller.shown else block(material)
    report = report_of(loaded, texts)
    if caller.session is None:
        return ToolResult(given, data={"name": skill.name, "report": report})
    recorded = record_given(material, block(material) if caller.inline else "")
    evicted = caller.session.load(
        skill.name,
        docs,
        every,
        call.id or UNNAMED,
        state=caller.state,
        given=recorded,
        anew=lands_anew(skill.name, recorded, caller.session, caller.state),
    )
    data = {"name": skill.name, "evicted": list(evicted), "report": report}
    # An answer that is in a history stays there.
    reported = evicted and not caller.inline
    notes = [f"unloaded, because the limit is reached: {', '.join(evicted)}"] if reported else []
    return ToolResult("\n".join([*notes, given]), data=data)


def _texts(
    skill: Skill, docs: Sequence[str] | None, every: bool, caller: Caller
) -> list[GivenDocument]:
    """Return the chosen documents, each with its text."""
    return caller.documents(skill, list_docs(skill) if every else docs or ())


def _documents(call: Call, skill: Skill) -> tuple[list[str] | None, bool]:
    """Return the documents that the call names, all of which exist, and whether it wants all."""
    given = call.arguments.get("docs")
    every = call.arguments.get("include_all_docs") is True
    if not isinstance(given, list):
        return None, every
    if "*" in given:
        return None, True
    there = list_docs(skill)
    wanted = [path.removeprefix("./") for path in given]
    wrong = [path for path in wanted if path not in there]
    if wrong:
        shown = [printable(path) for path in wrong]
        raise Refused(
            f"{skill.name} has no document {_join_paths(shown)}. "
            f"It has: {_join_paths(there) or 'none'}",
            "document_not_found",
            skill=skill.name,
            docs=shown[:_PAGE],
        )
    return list(dict.fromkeys(wanted)), every


def _join_paths(paths: list[str]) -> str:
    more = [f"... ({len(paths)} in all)"] if len(paths) > _PAGE else []
    return ", ".join([*map(one_line, paths[:_PAGE]), *more])


def select_docs(call: Call) -> ToolResult:
    """Change which documents of a skill are given with it."""
    caller = call.caller
    skill = find(caller, call.arguments["skill"])
    docs, every = _documents(call, skill)
    mode = call.arguments.get("mode", "replace")
    assert mode in ("add", "replace", "clear")
    texts = [] if mode == "clear" else _texts(skill, docs, every, caller)
    given = ""
    if caller.inline:
        given = "\n\n".join(f"[Doc] {one.path}\n\n{one.text}" for one in texts)
    if caller.session is None:
        return ToolResult(given or "no documents", data=_documents_report(texts))
    selected = caller.session.select_docs(
        skill.name,
        docs or (),
        every,
        mode,
        call.id or UNNAMED,
        state=caller.state,
        given=record_docs([(one.path, one.text) for one in texts], given) if texts else None,
    )
    facts: dict[str, object] = selected._asdict()
    if note := _selection_note(caller, selected, docs):
        facts["note"] = note
    text = given or json.dumps(facts, ensure_ascii=False)
    return ToolResult(text, data={**facts, **_documents_report(texts)})


def _documents_report(texts: list[GivenDocument]) -> dict[str, object]:
    reports = [dict(one.report) for one in texts]
    cut = any(one.get("truncated") for one in reports)
    return {"report": {"truncated": cut, "documents": reports}}


def _selection_note(caller: Caller, selected: SelectedDocs, docs: list[str] | None) -> str:
    """Return why a selection may not do what the call wanted; "" if it does."""
    assert caller.session is not None
    if selected.skill not in {loaded.name for loaded in caller.session.loaded(caller.state)}:
        loader = name_of(caller.names, LOADERS)
        how = f"call {loader}: the documents come with it" if loader else "load it first"
        return f"{selected.skill} is not loaded yet; {how}"
    if docs and selected.include_all_docs:
        return "all documents stay selected; mode clear first, then select some"
    return ""


def list_documents(call: Call) -> ToolResult:
    """List the names of a skill's documents."""
    skill = find(call.caller, call.arguments["skill"])
    names = list_docs(skill)
    return ToolResult(json.dumps(names, ensure_ascii=False), data={"docs": names})


def read_resource(call: Call) -> ToolResult:
    """Return one file of a skill, or a part of it."""
    skill = find(call.caller, call.arguments["skill"])
    return _resource(call, skill, str(call.arguments["relative_path"]))


def _resource(call: Call, skill: Skill, path: str) -> ToolResult:
    hint = call.arguments.get("section_hint")
    loaded = load_resource(
        skill,
        path,
        hint if isinstance(hint, str) else None,
        call.caller.limits,
        full=call.arguments.get("full") is True,
        start_line=_whole_number(call, "start_line"),
        lines=_whole_number(call, "num_lines"),
        storage=call.caller.overflow,
    )
    notes = []
    if loaded.report.section_missed:
        notes.append(f"(no heading matches {printable(str(hint))!r}: the head of the file)")
    reference = loaded.report.storage_ref
    reader = name_of(call.caller.names, READERS)
    if loaded.report.truncated and reference and reader:
        notes.append(f"(cut; read on with {reader}: {STORED}{os.path.basename(reference)})")
    elif loaded.report.truncated:
        notes.append("(cut; read on with start_line)")
    text = "\n\n".join([*notes, call.caller.presentable(loaded.text)])
    return ToolResult(text, data={"name": skill.name, "report": report_of(loaded)})


def _whole_number(call: Call, name: str) -> int | None:
    value = call.arguments.get(name)
    return value if isinstance(value, int) else None


def read_file(call: Call) -> ToolResult:
    """Return stored text of this conversation, or a file of a skill, in pieces."""
    name = str(call.arguments["file_name"])
    scheme, separator, rest = name.partition("://")
    if separator and scheme == "skill":
        skill_name, _, path = rest.partition("/")
        skill = find(call.caller, skill_name)
        if not any(name in call.arguments for name in ("start_line", "num_lines", "start_char")):
            return _resource(call, skill, path)
        return _read_part(call, [resource_text(skill, path)])
    if separator and scheme in ("workspace", "artifact"):
        return _read_run_file(call, name)
    if not separator and name.removeprefix("./").split("/")[0] in RUN_FOLDERS:
        return _read_run_file(call, f"{SCHEME}{name}")
    return _read_stored(call, name)


def read_workspace(call: Call) -> ToolResult:
    """Return a file by its path in the workspace, where the skills are below `skills/`."""
    path = str(call.arguments["file_path"]).removeprefix(f"{INSIDE}/").removeprefix("./")
    if path.startswith(f"{SKILLS}/"):
        # The skill itself, not its copy, which exists only after a command ran.
        path = f"skill://{path.removeprefix(f'{SKILLS}/')}"
    renamed = {"offset": "start_line", "limit": "num_lines"}
    given = {renamed[key]: value for key, value in call.arguments.items() if key in renamed}
    return read_file(call._replace(arguments={"file_name": path, **given}))


def _read_run_file(call: Call, name: str) -> ToolResult:
    """Return text that a run left in its workspace or as an artifact."""
    if skill := skill_of(name):
        find(call.caller, skill)  # a copy of a skill needs the same permission as the skill
    with open_run_text(call.caller, name) as found:
        return _read_part(call, found.chunks, count=found.size <= _COUNTED_BYTES)


def _read_part(call: Call, chunks: Iterable[str], *, count: bool = True) -> ToolResult:
    """Return the requested part of a text."""
    piece = read_piece(
        chunks,
        _whole_number(call, "start_line") or 1,
        _whole_number(call, "num_lines") or _LINES,
        call.caller.limits.max_resource_excerpt_chars,
        start_char=_whole_number(call, "start_char") or 1,
        count=count,
    )
    header = f"(line {piece.start_line} on"
    header += f", of {piece.total_lines}" if piece.total_lines else ""
    more = f"; next: {_describe_next(call, piece)}" if piece.next_line else "; this is the end"
    data = {
        "start_line": piece.start_line,
        "next_line": piece.next_line,
        "next_char": piece.next_char,
        "lines": piece.total_lines,
    }
    return ToolResult(f"{header}{more})\n{piece.text}", data=data)


def _describe_next(call: Call, piece: TextPiece) -> str:
    """Return the arguments that continue reading, as the offered tool names them."""
    if "read_file" in call.caller.names:
        return f"start_line {piece.next_line}" + (
            f", start_char {piece.next_char}" if piece.next_char > 1 else ""
        )
    if piece.next_char > 1:  # no argument of this tool starts inside a line
        return f"offset {piece.next_line + 1}; the rest of line {piece.next_line} is left out"
    return f"offset {piece.next_line}"


def _read_stored(call: Call, name: str) -> ToolResult:
    storage = call.caller.storage
    key = name.removeprefix(STORED).removeprefix(os.path.join(storage.folder, ""))
    if os.sep in key or not name.startswith((STORED, storage.folder)):
        ways = "skill://name/path, workspace://path, out/... or artifact://name"
        if "read_file" not in call.caller.names:
            ways = f"{SKILLS}/NAME/..., out/... or work/..."
        raise Refused(
            f"{printable(name)!r} cannot be read: give {STORED}... as a result gave it, {ways}",
            WRONG_ARGUMENTS,
        )
    return _read_part(call, [storage.text(os.path.join(storage.folder, key))])


def unload(call: Call) -> ToolResult:
    """Unload a skill."""
    name, session = str(call.arguments["skill"]), call.caller.session
    loaded = [one.name for one in session.loaded(call.caller.state)] if session else []
    if session is None or name not in loaded:
        known = ", ".join(one for one in loaded if one in call.caller.skills)
        message = f"{printable(name)} is not loaded. Loaded: {known or 'none'}"
        raise Refused(message, NOT_LOADED, skill=printable(name))
    session.unload(name, state=call.caller.state)
    return ToolResult(f"unloaded: {name}", data={"name": name})


def list_skills(call: Call) -> ToolResult:
    """List the skills the agent may see, page by page."""
    skills = call.caller.look()
    offset, limit = call.arguments.get("offset", 0), call.arguments.get("limit", _PAGE)
    assert isinstance(offset, int)
    assert isinstance(limit, int)
    page = sorted(skills)[offset : offset + limit]
    lines = [f"- {name}: {_describe_skill(skills[name])}" for name in page]
    left = len(skills) - offset - len(page)
    if left > 0:
        lines.append(f"({left} more: ask again with offset {offset + len(page)})")
    return ToolResult("\n".join(lines) or "no skills", data={"names": page, "total": len(skills)})


def search_skills(call: Call) -> ToolResult:
    """List the skills that fit a task best: name, description and origin, never their text."""
    limit = call.arguments.get("limit", _FOUND)
    assert isinstance(limit, int)
    ranked = call.caller.search(str(call.arguments["query"]), limit)
    found = [one for one in ranked if one.strength != "noise"]
    lines = [
        f"- {one.skill.name}: {_describe_skill(one.skill)} ({_origin(one.skill)})" for one in found
    ]
    text = "\n".join(lines) or "no skill fits; say it in other words, or go on without a skill"
    return ToolResult(text, data={"names": [one.skill.name for one in found]})


def _origin(skill: Skill) -> str:
    return one_line(str(skill.origin)) if skill.origin.remote else skill.scope


def _describe_skill(skill: Skill) -> str:
    return one_line(" ".join(filter(None, (skill.description, skill.when_to_use))))


def run(call: Call) -> ToolResult:
    """Run a command of a skill."""
    if not str(call.arguments["skill"]).strip():
        raise Refused("skill and command are required", WRONG_ARGUMENTS)
    skill = _require_runnable(call, str(call.arguments["skill"]), ("skill_run", "claude_bash"))
    for name in skills_named(call.arguments.get("inputs")):
        if name != skill.name:  # which was found just now
            find(call.caller, name)
    return run_command(call, skill)


def _require_runnable(call: Call, name: str, kinds: Sequence[str]) -> Skill:
    """Return a skill that the model may run; Refused if the model must load it first."""
    caller = call.caller
    skill = find(caller, name)
    if caller.settings.require_load and skill.name not in _given_to_model(caller, skill):
        loader = name_of(caller.names, LOADERS) or LOADERS[0]
        tool = name_of(caller.names, kinds) or kinds[0]
        message = f'{tool} requires {loader} first for "{skill.name}"'
        raise Refused(message, NOT_LOADED, skill=skill.name)
    return skill


def execute(call: Call) -> ToolResult:
    """Run a skill's script on JSON."""
    kinds = ("execute_skill",)
    return execute_script(call, _require_runnable(call, str(call.arguments["skill"]), kinds))


def run_in_workspace(call: Call) -> ToolResult:
    """Run a command in the workspace, of the skill that it names or that was loaded last."""
    command, timeout = str(call.arguments["command"]), _whole_number(call, "timeout") or 0
    arguments: dict[str, object] = {
        "skill": _skill_of_command(call.caller, command),
        "command": command,
        "cwd": "/",
        "timeout": -(-timeout // 1_000),
    }
    result = run(call._replace(arguments=arguments))
    return result._replace(text=printed(result.data) if "exit_code" in result.data else result.text)


def _skill_of_command(caller: Caller, command: str) -> str:
    """Return the skill whose folder the command names, else the one that was loaded last."""
    for name in _NAMED_SKILL.findall(command):
        if name in caller.skills or name in caller.brought:
            return str(name)
    session = caller.session
    for event in reversed(session.events() if session else []):
        if event.type == "skill_loaded" and session and event.agent == session.agent:
            return str(event.data.get("name"))
    loader = name_of(caller.names, LOADERS)
    how = f"load one with {loader}, or name it" if loader else "name it"
    raise Refused(f"no skill is loaded: {how} in the command ({SKILLS}/NAME/...)", NOT_LOADED)


def _given_to_model(caller: Caller, skill: Skill) -> set[str]:
    """Return the skills whose text the model has; without a session, the requested one."""
    session = caller.session
    if session is None:
        return {skill.name}
    results = [event.data for event in session.events() if event.agent == session.agent]
    used = (str(data.get("name")) for data in results if data.get("placement") == "result")
    return {*caller.brought, *(one.name for one in session.loaded(caller.state)), *used}


HANDLERS: Mapping[str, Handler] = {
    "skill": use,
    "skill_load": load,
    "skill_list_docs": list_documents,
    "skill_select_docs": select_docs,
    "load_resource": read_resource,
    "read_file": read_file,
    "skill_run": run,
    "execute_skill": execute,
    "skill_poll": poll,
    "skill_unload": unload,
    "skill_list": list_skills,
    "skill_search": search_skills,
    "claude_skill": use_in_workspace,
    "claude_read": read_workspace,
    "claude_bash": run_in_workspace,
}


# Arguments


class Checked(NamedTuple):
    """Arguments converted to their types, or the error about them."""

    arguments: dict[str, object]
    fault: str = ""


def check_arguments(kind: str, given: object, *, brief: bool = False) -> Checked:
    """Check a model's arguments against the tool's schema; never raise.

    JSON text is parsed, an optional argument that is null counts as not given, and a whole number
    may be written as 3.0, as some vendors do. Arguments that a `brief` schema leaves out are
    accepted too, except for a background run, which no other tool of that profile could poll.
    """
    given, unread = _decode(given)
    if not isinstance(given, Mapping):
        reason = f"the arguments must be an object{unread}{_describe_arguments(kind, brief)}"
        return Checked({}, reason)
    definition = DEFINITIONS[kind]
    present = {str(key): value for key, value in given.items() if value is not None}
    unknown = [
        key for key in present if key not in definition.properties or (brief and key == _BACKGROUND)
    ]
    faults = [f"unknown argument {key[:80]!r}" for key in unknown]
    faults += [f"argument {key!r} is missing" for key in definition.required if key not in present]
    checked: dict[str, object] = {}
    for key, schema in definition.properties.items():
        if key in present:
            checked[key], fault = _convert(present[key], schema)
            faults += [f"argument {key!r} must be {fault}"] if fault else []
    if not faults:
        return Checked(checked, "")
    reason = f"{'; '.join(faults[:_MAX_FAULTS])}{_describe_arguments(kind, brief)}"
    return Checked(checked, reason)


def _decode(given: object) -> tuple[object, str]:
    """Return the arguments, or why they cannot be parsed."""
    if given is None or given == "":
        return {}, ""
    if not isinstance(given, str):
        return given, ""
    try:
        decoded: object = read_json(given)
    except ValueError as error:
        return given, f", and these are not JSON: {error}"
    return {} if decoded is None else decoded, ""


def _describe_arguments(kind: str, brief: bool) -> str:
    definition = DEFINITIONS[kind]
    offered = offered_arguments(definition, brief=brief)
    shown = [key if key in definition.required else f"{key}?" for key in offered]
    return f". It takes: {', '.join(shown)}"


_TYPES: Mapping[str, tuple[type, str]] = {
    "string": (str, "text"),
    "boolean": (bool, "true or false"),
    "integer": (int, "a whole number"),
    "array": (list, "a list of texts"),
    "object": (dict, "an object"),
}
_ITEMS: Mapping[object, tuple[type, str]] = {
    "string": (str, "a list of texts"),
    "object": (dict, "a list of objects"),
}


def _convert(value: object, schema: Schema) -> tuple[object, str]:
    """Return the value in the type of the schema, or what it must be if it does not fit."""
    kind, wanted = _TYPES[str(schema["type"])]
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return value, wanted
    if isinstance(value, list):
        return value, _items(value, schema)
    if isinstance(value, int) and not isinstance(value, bool):
        return value, _bounds(value, schema)
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        return value, f"one of {', '.join(choices)}"
    return value, ""


def _items(value: list[object], schema: Schema) -> str:
    items = schema.get("items")
    kind, wanted = _ITEMS[items.get("type") if isinstance(items, dict) else "string"]
    return "" if all(isinstance(item, kind) for item in value) else wanted


def _bounds(value: int, schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if isinstance(least, int) and value < least:
        return f"at least {least}"
    if isinstance(most, int) and value > most:
        return f"at most {most}"
    return ""
