"""The permission requests of a run: each with all its facts, and bound to them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from skillbelt.errors import RunRefused
from skillbelt.files.tree import secret_files
from skillbelt.permission.command_lines import WHOLE, Line
from skillbelt.permission.gate import session_id
from skillbelt.permission.grants import named_hosts
from skillbelt.permission.normal_forms import host_text
from skillbelt.permission.rules import Request, digest
from skillbelt.running.call import RunCall, describe_call
from skillbelt.running.inputs import HostInput
from skillbelt.running.named_files import Ground, loose_files, sha256_of, touched
from skillbelt.running.packages.declared import Needs, describe
from skillbelt.running.run import Run
from skillbelt.running.secrets import secrets_of
from skillbelt.text import exact, one_line, shorten
from skillbelt.values import Limits

_DEFAULTS = Limits()
_BEGINNING_BYTES = 200  # of data for a command, shown to the person who is asked
_SHOWN = 200
_NAMED = 20  # files in one line


def run_request(run: Run, tools: tuple[str, ...] = (), where: str = "") -> Request:
    """Return the request for this very call; it can be remembered if its facts are complete.

    `tools` are the declared tools that the run uses; `where` is the text about the sandbox.
    """
    skill, call, who = run.skill, run.call, run.who
    concurrent = run.workspace.has_others()
    loose = loose_files(call, run.line, run.ground, run.script)
    changing = concurrent and bool(loose.files or not run.script)
    facts = call_facts(run, loose.files)
    if changing:
        facts["beside"] = "another run of this conversation, which can change its files"
    bound = facts
    secrets = secret_files(run.ground.home, run.staged.hash) if skill.fence else ()
    if secrets:  # covered by the hash of the skill already
        facts = {**facts, "secrets_in_the_skill": list(secrets)}
    # An answer cannot cover input that is written later.
    known = run.inputs.exact and call.stdin is not None
    bindable = loose.certain and known and not changing
    # Line ends stay visible: in a command they separate one from the next.
    shown = shorten(exact(call.text), _SHOWN)
    return Request(
        type="run",
        patterns=asked_for(call, run.line, run.ground),
        always=(f"{exact(call.shown)}{describe_call(call)}",) if bindable else (),
        summary=f"run `{shown}` with the skill {skill.name}{describe_call(call)}{where}",
        skill=skill.name,
        origin=str(skill.origin) if skill.origin.remote else skill.dir,
        trusted=skill.trusted,
        metadata={"call": facts},
        # Where more than the words counts, no answer to the same words covers it.
        exact=digest(bound if bindable else {**bound, "exact": False}),
        initiator=who.initiator,
        agent=who.agent,
        session=session_id(who.key),
        hash=run.staged.hash,
        tools=tools,
    )


def asked_for(call: RunCall, line: Line, ground: Ground) -> tuple[str, ...]:
    """Return the texts that rules are matched against: the commands, and what changes them.

    Starting in another folder counts as a `cd` before the command. With its own variables a command
    may run anything, as with an assignment before it.
    """
    if call.env:
        names = " ".join(f"{name}=..." for name in call.env)
        return (f"{WHOLE}{names} {call.text}",)
    if not ground.is_home:
        return (f"cd {shlex.quote(call.cwd)}", *line.commands)
    return line.commands


def call_facts(run: Run, files: Mapping[str, str]) -> dict[str, object]:
    """Return every fact of the call, as JSON. Secrets appear only as hashes.

    Includes everything that changes what runs or what it gets: two calls with the same facts are
    the same call.
    """
    call, secrets = run.call, secrets_of(run.call.env)
    facts: dict[str, object] = {
        "command": call.command if isinstance(call.command, str) else list(call.command),
        "script": run.script,
        "cwd": call.cwd,
        "env": {
            name: sha256_of(value.encode("utf-8", "surrogatepass")) if name in secrets else value
            for name, value in call.env.items()
        },
        "secrets": sorted(secrets),
        "stored_secrets": [stored.name for stored in run.stored],
        "stdin": "comes later" if call.stdin is None else _data(call.stdin),
        "editor_text": {} if call.editor_text is None else _data(call.editor_text, empty=True),
        "inputs": list(run.inputs.facts),
        "files": dict(files),
        "packages": list(run.needs.requirements) if run.needs else [],
        "hosts": list(named_hosts(run.frontmatter.allowed_tools, run.listed_hosts, run.only_hosts)),
        "timeout_seconds": call.timeout_seconds,
        "terminal": call.terminal,
        "limits": _raised_limits(run.limits),
        "sandbox": run.sandbox.name,
    }
    always = ("command", "cwd", "sandbox")
    return {name: value for name, value in facts.items() if value or name in always}


def _data(value: bytes | str, *, empty: bool = False) -> dict[str, object]:
    """Return the size, the hash and the beginning of data for a command."""
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    if not data and not empty:
        return {}
    begins = data[:_BEGINNING_BYTES].decode("utf-8", "replace")
    return {"bytes": len(data), "sha256": sha256_of(data), "begins": begins}


def _raised_limits(limits: Limits) -> dict[str, object]:
    """Return the limits that are higher than their defaults."""
    usual = _DEFAULTS._asdict()
    return {
        name: value
        for name, value in limits._asdict().items()
        if isinstance(value, int | float) and value > usual[name]
    }


def bind_answer(run: Run, answered: str, written: Iterable[str]) -> None:
    """Record which of the files that runs can write the answer is bound to.

    A rule allows the run with any files. Paths in `written` were put there for this run since the
    question, and other facts of the request cover them.
    """
    if answered not in ("once", "conversation", "always", "remembered"):
        return
    facts = run.request.metadata["call"]
    files = facts.get("files", {}) if isinstance(facts, Mapping) else {}
    fresh = touched(files, run.ground, written)
    if fresh:
        now = loose_files(run.call, run.line, run.ground, run.script).files
        files = {**files, **{name: now[name] for name in fresh if name in now}}
    run.bound_files, run.remembered = files, answered == "remembered"


def check_answer(run: Run, *, alone: bool) -> None:
    """Raise RunRefused when the files that the answer is bound to have changed.

    `alone` says that no other run of the conversation is running.
    """
    if run.bound_files is None:
        return
    now = loose_files(run.call, run.line, run.ground, run.script).files
    changed = [name for name, sha256 in run.bound_files.items() if now.get(name) != sha256]
    if changed:
        raise RunRefused(
            f"{', '.join(map(repr, changed[:5]))} in the workspace changed while the run was "
            "asked for; nothing was run; try again, and it is asked for as it is now"
        )
    if run.remembered and not alone and (run.bound_files or not run.script):
        raise RunRefused(
            "another run of this conversation began, which can change what this one uses, and "
            "a remembered answer does not cover that; nothing was run; try again, and it is "
            "asked for"
        )


def another(
    request: Request,
    type: str,
    patterns: tuple[str, ...],
    *,
    summary: str,
    facts: Mapping[str, object],
) -> Request:
    """Return a request for another permission of the same run, bound to its own facts."""
    return request._replace(
        type=type,
        patterns=patterns,
        always=patterns,
        summary=summary,
        metadata={**request.metadata, **facts},
        exact=digest(facts),
        tools=(),
    )


def install_request(
    request: Request,
    needs: Needs,
    packages: tuple[str, ...],
    built: tuple[str, ...] = (),
    size: str = "",
) -> Request:
    """Return the request to install every package that the skill's needs resolve to.

    `built` are those of the packages that are built from source. `size` is the download size; no
    answer is bound to it.
    """
    names = ", ".join(text.partition(" ")[0] for text in packages)
    names += f"; {size}" if size else ""
    about = f"install {describe(needs)} for the skill {request.skill}; in all {len(packages)}: "
    facts: dict[str, object] = {"packages": list(packages)}
    if needs.guessed:
        facts["guessed"] = list(needs.guessed)
    if needs.unknown:
        facts["no_known_package"] = list(needs.unknown)
    if built:
        facts["built_from_source"] = list(built)
        shown = ", ".join(text.partition(" ")[0] for text in built)
        names += f"; {shown} is built from source, in the sandbox: its code runs there, and build "
        names += "tools come from the index too"
    return another(request, "install", packages, summary=about + names, facts=facts)


def network_request(request: Request, host: str) -> Request:
    """Return the request to let a run reach a host."""
    about = f"let the skill {request.skill} reach {host}"
    return another(request, "network", (host_text(host),), summary=about, facts={"host": host})


def require_file(run: Run, host: HostInput) -> None:
    """Ask for files of the host where that is needed; raise PermissionDenied.

    A file below the host roots needs no question, unless it looks like a secret or a rule matches
    it. Each file of a folder counts by itself.
    """
    own = () if host.free else (host.path, host.written)
    ruled = run.gate.special(run.request, (*host.files, host.path, host.written))
    texts = tuple(dict.fromkeys((*own, *host.secret, *ruled)))
    if texts:
        about = f"give {_name_files(host, texts)} to the skill {run.skill.name}"
        facts = {"path": host.path, "files": list(host.files), "sha256": host.sha256}
        run.gate.require(another(run.request, "host_file", texts, summary=about, facts=facts))


def _name_files(host: HostInput, texts: tuple[str, ...]) -> str:
    """Return every file by its name, or the first of many."""
    listed = texts if host.free else host.files or (host.path,)
    shown = ", ".join(map(one_line, listed[:_NAMED]))
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return f"the file{'s' if len(listed) > 1 else ''} {shown}{more}"
