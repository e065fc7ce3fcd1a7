"""The stored secrets of a run: those that it asks for, and those that it gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from skillbelt.errors import PermissionDenied, RunRefused
from skillbelt.permission.rules import Request, digest
from skillbelt.running.run import Run
from skillbelt.running.secret_store import SecretStore, StoredSecret, refuse_name
from skillbelt.running.secrets import redacted
from skillbelt.text import exact, one_line, shorten
from skillbelt.values import SkillSettings

_SHOWN = 120


class SecretWish(NamedTuple):
    """A secret that a run asks for by its name, and who names it.

    A run continues without one that the skill declares; without one that the caller names it does
    not start.
    """

    name: str
    by: Literal["caller", "settings", "skill"]
    required: bool = True


def find_secrets(run: Run, store: SecretStore, switches: SkillSettings) -> None:
    """Find the requested secrets among the stored ones, and warn of missing ones.

    The caller, the user's settings for the skill and the skill itself may name one. RunRefused for
    a missing one that the caller names.
    """
    found: dict[str, StoredSecret] = {}
    given = {*run.call.env, *switches.values}
    for wish in _list_wishes(run, switches):
        if wish.name in found or wish.name in given:
            continue
        given.add(wish.name)
        stored = store.find(wish.name, run.skill.name)
        if stored is not None:
            found[wish.name] = stored
        elif wish.by == "caller":
            raise RunRefused(f"{_describe_missing(run, wish)}; nothing was run")
        elif wish.required:
            run.missing_secrets += (_describe_missing(run, wish),)
    run.stored = tuple(found.values())


def _list_wishes(run: Run, switches: SkillSettings) -> Iterator[SecretWish]:
    for name in run.call.secrets:
        fault = refuse_name(name)
        if fault:
            raise RunRefused(f"{one_line(shorten(name, 40))!r} {fault}; nothing was run")
        yield SecretWish(name, "caller")
    yield from (SecretWish(name, "settings") for name in switches.env if not refuse_name(name))
    if run.skill.scope == "builtin":  # code in a model's reply belongs to no skill of a user
        return
    needs = run.requirements
    declared = [SecretWish(name, "skill") for name in needs.env]
    declared += [SecretWish(name, "skill", required=False) for name in needs.optional_env]
    yield from (wish for wish in declared if not refuse_name(wish.name))


def _describe_missing(run: Run, wish: SecretWish) -> str:
    skill, model = run.skill.name, run.who.initiator == "model"
    whose = {
        "caller": "",
        "settings": f", which the settings name for the skill {skill},",
        "skill": f", which the skill {skill} declares,",
    }[wish.by]
    return (
        f"the secret {wish.name}{whose} is not set; {'the user sets' if model else 'set'} it with "
        f"`skillbelt secrets set {wish.name} --skill {skill}`"
    )


def give_secrets(run: Run, store: SecretStore) -> dict[str, str]:
    """Ask for each stored secret of the run, and return the values of the allowed ones.

    PermissionDenied for one that the caller named.
    """
    given: dict[str, str] = {}
    for stored in run.stored:
        decision = run.gate.check(secret_request(run, stored))
        value = store.value(stored) if decision.allowed else None
        if value is not None:
            given[stored.name] = value
            continue
        reason = "it was removed meanwhile" if decision.allowed else decision.reason
        if stored.name in run.call.secrets:
            raise PermissionDenied(run.skill.name, reason)
        run.warnings += (f"the secret {stored.name} was not given to the command: {reason}",)
    return given


def secret_request(run: Run, stored: StoredSecret) -> Request:
    """Return the request to give a secret to this run.

    "Always" covers every call of the same script of the skill with the same variables; for any
    other command it covers that very call.
    """
    call, request, text = run.call, run.request, f"{run.skill.name}/{stored.name}"
    shown = shorten(exact(redacted(call.text, run.redacts)), _SHOWN)
    by_script = bool(run.script) and not call.cwd
    facts = request.metadata.get("call")
    variables = facts.get("env", {}) if isinstance(facts, Mapping) else {}
    covers = [run.script, variables] if by_script else request.exact
    bindable = by_script or bool(request.always)
    return request._replace(
        type="secret",
        patterns=(text,),
        always=(f"{text} for {run.script if by_script else f'`{shown}`'}",) if bindable else (),
        summary=f"give the secret {stored.name} to the skill {run.skill.name} for `{shown}`",
        exact=digest({"secret": stored.name, "id": stored.id, "for": covers}),
        tools=(),
    )
