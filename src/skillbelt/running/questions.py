"""The questions of a run: each with all its facts, and bound to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from skillbelt.files.tree import secret_files
from skillbelt.format.skill import Skill
from skillbelt.permission.command_lines import Line
from skillbelt.permission.gate import Gate
from skillbelt.permission.rules import Request, digest
from skillbelt.permission.spelling import host_text
from skillbelt.running.call import RunCall, described
from skillbelt.running.call_facts import Ground, asked_for, call_facts, loose_files
from skillbelt.running.inputs import HostInput, Inputs
from skillbelt.running.packages.declared import Needs, describe
from skillbelt.text import one_line, shorten
from skillbelt.values import Limits

_SHOWN = 200
_NAMED = 20  # files in one line


class Wish(NamedTuple):
    """What a run comes to be asked for with, besides the call itself."""

    line: Line
    ground: Ground
    script: str
    inputs: Inputs
    packages: tuple[str, ...]
    hosts: tuple[str, ...]
    sandbox: str
    limits: Limits
    where: str = ""  # what the one who is asked should know of the sandbox
    beside: bool = False  # whether another run can write to the workspace meanwhile


def run_request(skill: Skill, call: RunCall, wish: Wish, like: Request) -> Request:
    """The request to run this very call; it can be remembered if its facts are all that counts.

    `like` says who asks, and for which copy of the skill.
    """
    loose = loose_files(call, wish.line, wish.ground, wish.script)
    changing = wish.beside and bool(loose.files or not wish.script)
    facts = call_facts(
        call,
        script=wish.script,
        inputs=wish.inputs.facts,
        packages=wish.packages,
        hosts=wish.hosts,
        sandbox=wish.sandbox,
        limits=wish.limits,
        files=loose.files,
    )
    if changing:
        facts["beside"] = "another run of this conversation, which can change its files"
    # What is yet to be written to it nobody has seen.
    bound = facts
    secrets = secret_files(wish.ground.home, like.hash) if skill.fence else ()
    if secrets:  # the hash of the skill holds them already
        facts = {**facts, "secrets_in_the_skill": list(secrets)}
    seen = wish.inputs.exact and call.stdin is not None
    exact = loose.certain and seen and not changing
    shown = shorten(one_line(call.text), _SHOWN)
    return like._replace(
        patterns=asked_for(call, wish.line, wish.ground),
        always=(f"{one_line(call.shown)}{described(call)}",) if exact else (),
        summary=f"run `{shown}` with the skill {skill.name}{described(call)}{wish.where}",
        skill=skill.name,
        origin=str(skill.origin) if skill.origin.remote else skill.dir,
        trusted=skill.trusted,
        metadata={"call": facts},
        # No answer to the same words covers it where they are not all that counts.
        exact=digest(bound if exact else {**bound, "exact": False}),
    )


def another(
    request: Request, type: str, texts: tuple[str, ...], summary: str, facts: Mapping[str, object]
) -> Request:
    """Another permission for the same run, bound to facts of its own."""
    return request._replace(
        type=type,
        patterns=texts,
        always=texts,
        summary=summary,
        metadata={**request.metadata, **facts},
        exact=digest(facts),
        tools=(),
    )


def install_request(request: Request, needs: Needs, packages: tuple[str, ...]) -> Request:
    """The request to install what the skill of a run needs: every package that will come."""
    come = ", ".join(text.partition(" ")[0] for text in packages)
    about = f"install {describe(needs)} for the skill {request.skill}; in all {len(packages)}: "
    return another(request, "install", packages, about + come, {"packages": list(packages)})


def network_request(request: Request, host: str) -> Request:
    """The request to let a run reach a host."""
    about = f"let the skill {request.skill} reach {host}"
    return another(request, "network", (host_text(host),), about, {"host": host})


def permitting(gate: Gate, request: Request) -> Callable[[HostInput], None]:
    """What asks for files of the host, where that is needed; it raises PermissionDenied.

    A file that may be taken unasked is asked for all the same if it looks like a secret, or if a
    rule that somebody wrote speaks of it. In a folder each file counts by itself.
    """

    def permit(host: HostInput) -> None:
        own = () if host.free else (host.path, host.written)
        ruled = gate.special(request, (*host.files, host.path, host.written))
        texts = tuple(dict.fromkeys((*own, *host.secret, *ruled)))
        if texts:
            about = f"give {_files(host, texts)} to the skill {request.skill}"
            facts = {"path": host.path, "files": list(host.files), "sha256": host.sha256}
            gate.require(another(request, "host_file", texts, about, facts))

    return permit


def _files(host: HostInput, texts: tuple[str, ...]) -> str:
    """What is given, for whoever is asked: every file by its name, or the first of many."""
    listed = texts if host.free else host.files or (host.path,)
    shown = ", ".join(map(one_line, listed[:_NAMED]))
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return f"the file{'s' if len(listed) > 1 else ''} {shown}{more}"
