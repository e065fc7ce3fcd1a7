"""`skillbelt secrets`."""

from __future__ import annotations

import argparse
import sys
import termios
import time
from collections.abc import Iterable, Mapping

from skillbelt.cli.output import print_json, print_table, say
from skillbelt.cli.scanning import open_catalog
from skillbelt.errors import ConfigError, NotFound, SkillNotFound, UsageError
from skillbelt.format.skill import Skill
from skillbelt.permission.audit import AuditEvent, open_audit, user_name
from skillbelt.permission.gate import Gate
from skillbelt.permission.remembered import Remembered
from skillbelt.running.secret_store import (
    MAX_VALUE_BYTES,
    SecretStore,
    StoredSecret,
    check_name,
    check_value,
    refuse_name,
)
from skillbelt.settings import Settings, load_settings, process_environment
from skillbelt.store import open_store
from skillbelt.text import one_line

_ACTIONS = ("list", "set", "remove")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `secrets`."""
    parser.add_argument(
        "action", choices=_ACTIONS, nargs="?", default="list", help="what to do (default: list)"
    )
    # More than one word is accepted here, and refused without repeating it: it may be the value.
    parser.add_argument(
        "name", metavar="NAME", nargs="*", help="the name of the variable, such as GITHUB_TOKEN"
    )
    parser.add_argument(
        "--skill", metavar="S", default="", help="only for this skill (default: any may ask for it)"
    )
    parser.add_argument(
        "--from-env", metavar="VAR", help="with `set`: take the value from this variable"
    )


def run(args: argparse.Namespace) -> int:
    """List, set or remove secrets; no value is ever printed."""
    if args.from_env is not None and args.action != "set":
        raise UsageError("--from-env is for `skillbelt secrets set NAME --from-env VARIABLE`")
    if args.action == "list":
        return _list(args)
    name = _one_name(args)
    settings = load_settings(args.project, config=args.config)
    return _set(settings, name, args) if args.action == "set" else _remove(settings, name, args)


def _one_name(args: argparse.Namespace) -> str:
    if len(args.name) != 1 or "=" in args.name[0]:
        given = bool(args.name) and args.action == "set"
        error = UsageError(
            f"secrets {args.action} takes one NAME, as GITHUB_TOKEN"
            + (
                " and no value: it is typed at the prompt or read from standard input. What you "
                "typed is in the history of your shell now: use another value"
                if given
                else ""
            )
        )
        error.remedy = f"`skillbelt secrets {args.action} NAME`"
        raise error
    name: str = args.name[0]
    return name


def _set(settings: Settings, name: str, args: argparse.Namespace) -> int:
    store = SecretStore(settings)
    check_name(name)
    _check_skill(args)
    value = _read_value(name, args)
    check_value(value)
    replaced = any((one.name, one.skill) == (name, args.skill) for one in store.entries())
    made = store.set(name, value, args.skill)
    _record("set", made, settings)
    if args.json:
        print_json({**_facts(made, store), "replaced": replaced})
        return 0
    whom = f"the skill {made.skill}" if made.skill else "any skill that you allow"
    done = "replaced" if replaced else "set"
    say(f"{name} is {done} for {whom}; kept in {store.place(made.kept)}", args)
    return 0


def _check_skill(args: argparse.Namespace) -> None:
    """Warn if there is no such skill; it may be installed later."""
    if not args.skill:
        return
    try:
        open_catalog(args).find(args.skill)
    except SkillNotFound as error:
        say(f"skillbelt: {one_line(str(error))}; the secret is kept for that name", args)


def _read_value(name: str, args: argparse.Namespace) -> str:
    if args.from_env is not None:
        found = process_environment().get(args.from_env)
        if found is None:
            raise ConfigError(f"--from-env: there is no variable {one_line(args.from_env)!r}")
        return found
    if sys.stdin is not None and sys.stdin.isatty():
        return _read_hidden(f"Value of {name} (not shown): ")
    data = sys.stdin.buffer.read(MAX_VALUE_BYTES + 3) if sys.stdin is not None else b""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError("standard input is not UTF-8; nothing was kept") from None
    return text.removesuffix("\n").removesuffix("\r")


def _read_hidden(question: str) -> str:
    """Read a line from the terminal without echo."""
    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    hidden = list(before)
    hidden[3] &= ~(termios.ECHO | termios.ECHONL)
    try:
        # Earlier input was echoed, so it is not accepted.
        termios.tcsetattr(handle, termios.TCSAFLUSH, hidden)
        print(question, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
    finally:
        termios.tcsetattr(handle, termios.TCSAFLUSH, before)
        print(file=sys.stderr)
    return line.removesuffix("\n").removesuffix("\r")


def _remove(settings: Settings, name: str, args: argparse.Namespace) -> int:
    store = SecretStore(settings)
    gone = store.remove(name, args.skill)
    if gone is None:
        others = [one.skill for one in store.entries() if one.name == name]
        remedy = "`skillbelt secrets` lists them"
        if others:
            remedy = "it is kept for " + ", ".join(
                f"the skill {skill} (--skill {skill})" if skill else "any skill (without --skill)"
                for skill in others
            )
        shown = name if not refuse_name(name) else "that name"
        whom = f" for the skill {one_line(args.skill)}" if args.skill else ""
        raise NotFound(f"there is no secret {shown}{whom}", remedy)
    _record("remove", gone, settings)
    _forget_answers(gone, settings)
    if args.json:
        print_json(_facts(gone, store))
    else:
        say(f"{gone.name} is removed; no earlier answer counts if it is set again", args)
    return 0


def _record(action: str, secret: StoredSecret, settings: Settings) -> None:
    """Write the change to the audit log, without the value."""
    if settings.audit:
        open_audit(settings).append(
            AuditEvent(
                time=time.time(),
                type="secret",
                project=settings.project,
                user=user_name(),
                initiator="user",
                skill=secret.skill,
                data={"action": action, "name": secret.name, "kept": secret.kept},
            )
        )


def _forget_answers(secret: StoredSecret, settings: Settings) -> None:
    """Remove the answers about it from the list; they name its id and cover nothing now."""
    ledger = Gate(settings, lambda: open_store(settings)).ledger
    for one in ledger.all():
        about = one.type == "secret" and _secret_name_of(one) == secret.name
        if about and secret.skill in ("", one.skill):
            ledger.revoke(one.id)


def _secret_name_of(answer: Remembered) -> str:
    """Return the name of the secret that a remembered answer is about."""
    return answer.pattern.partition(" ")[0].rpartition("/")[2]


def _facts(secret: StoredSecret, store: SecretStore) -> dict[str, object]:
    return {
        "name": secret.name,
        "skill": secret.skill,
        "kept": secret.kept,
        "place": store.place(secret.kept),
        "time": secret.time,
    }


def _list(args: argparse.Namespace) -> int:
    if args.name:
        raise UsageError(
            "secrets list takes no NAME; `skillbelt secrets list --skill SKILL` shows those of a "
            "skill"
        )
    catalog = open_catalog(args)
    store = SecretStore(catalog.settings)
    secrets = [one for one in store.entries() if args.skill in ("", one.skill) or not one.skill]
    asking = _find_declaring(catalog.current().values(), args.skill)
    granted = _find_granted(Gate(catalog.settings, lambda: open_store(catalog.settings)))
    rows = [
        {
            **_facts(one, store),
            "declared_by": _skills_of(one, asking),
            "granted_to": _skills_of(one, granted),
        }
        for one in secrets
    ]
    missing = _list_missing(secrets, asking)
    if args.json:
        print_json({"secrets": rows, "missing": missing})
        return 0
    _print(rows, missing, args)
    return 0


def _skills_of(secret: StoredSecret, skills: Mapping[str, list[str]]) -> list[str]:
    return [skill for skill in skills.get(secret.name, ()) if secret.skill in ("", skill)]


def _find_declaring(skills: Iterable[Skill], only: str) -> dict[str, list[str]]:
    """Return the skills that declare each variable that a secret may set."""
    found: dict[str, list[str]] = {}
    for skill in sorted(skills, key=lambda one: one.name):
        if only in ("", skill.name):
            needs = skill.requirements
            for name in (*needs.env, *needs.optional_env):
                if not refuse_name(name):
                    found.setdefault(name, []).append(skill.name)
    return found


def _list_missing(
    secrets: Iterable[StoredSecret], asking: Mapping[str, list[str]]
) -> list[dict[str, object]]:
    """Return the declared variables of skills that are not set."""
    kept = {(one.name, one.skill) for one in secrets}
    found = {
        name: [skill for skill in skills if not kept.intersection(((name, ""), (name, skill)))]
        for name, skills in asking.items()
    }
    return [{"name": name, "skills": skills} for name, skills in sorted(found.items()) if skills]


def _find_granted(gate: Gate) -> dict[str, list[str]]:
    """Return the skills that answers in this project grant each secret."""
    found: dict[str, list[str]] = {}
    for one in gate.ledger.all():
        if one.type == "secret":
            skills = found.setdefault(_secret_name_of(one), [])
            if one.skill not in skills:
                skills.append(one.skill)
    return found


def _print(
    rows: list[dict[str, object]], missing: list[dict[str, object]], args: argparse.Namespace
) -> None:
    if not rows:
        say("no secret is set; `skillbelt secrets set NAME` sets one", args)
    else:
        table = [
            (
                str(row["name"]),
                str(row["skill"] or "any"),
                _names(row["declared_by"]),
                _names(row["granted_to"]),
                time.strftime("%Y-%m-%d", time.localtime(float(str(row["time"])))),
                str(row["place"]),
            )
            for row in rows
        ]
        head = ("name", "for", "declared by", "granted to", "since", "kept in")
        print_table(head, table, wrap=True)
    for one in missing:
        say(f"not set: {one['name']}, which {_names(one['skills'])} may use", args)


def _names(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) and value else "-"
