"""`skillbelt permissions`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import get_args

from skillbelt.cli.asking import ask
from skillbelt.cli.keyboard import can_ask
from skillbelt.cli.output import (
    count,
    print_diagnostics,
    print_json,
    print_table,
    say,
    wide_option,
)
from skillbelt.cli.scanning import open_catalog
from skillbelt.cli.words import print_failure
from skillbelt.discovery.catalog import Catalog
from skillbelt.discovery.describe import diagnostics_json
from skillbelt.errors import ConfigError
from skillbelt.permission.command_lines import simple_commands
from skillbelt.permission.gate import Explanation, Gate, rule_json
from skillbelt.permission.normal_forms import host_text, path_texts
from skillbelt.permission.remembered import Remembered
from skillbelt.permission.rule_files import (
    add_rule,
    find_fault,
    remove_rules,
    rulebook_file,
)
from skillbelt.permission.rules import (
    SHELL_TOOLS,
    TYPES,
    Answer,
    AnswerKind,
    Initiator,
    Request,
    Rule,
)
from skillbelt.permission.waiting import Pending
from skillbelt.running.question_facts import facts
from skillbelt.settings import load_settings
from skillbelt.store import open_store
from skillbelt.text import ago, exact, local_time, one_line

_HASH_CHARS = 19  # characters shown of a hash
_COLOURS = {"action": {"allow": "green", "ask": "yellow", "deny": "red"}}
_INITIATORS: tuple[Initiator, ...] = get_args(Initiator)
_ANSWERS: tuple[AnswerKind, ...] = get_args(AnswerKind)
_RULE = "'python3 scripts/*' --type run"
# The example arguments of each action.
_SUBJECTS = {
    "why": "SKILL",
    "allow": _RULE,
    "ask": _RULE,
    "deny": _RULE,
    "revoke": _RULE,
    "answer": "ID once",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `permissions`."""
    actions = ("list", "why", "allow", "ask", "deny", "revoke", "watch", "pending", "answer")
    parser.add_argument(
        "action",
        choices=actions,
        metavar="ACTION",
        nargs="?",
        default="list",
        help=f"one of {', '.join(actions)} (default: list)",
    )
    parser.add_argument(
        "subject",
        metavar="SUBJECT",
        nargs="?",
        help="for why: a skill, command or other text; for allow, ask, deny: a pattern; for "
        "revoke: a pattern, skill or ID; for answer: the ID of a request",
    )
    parser.add_argument(
        "answer",
        metavar="ANSWER",
        nargs="?",
        choices=_ANSWERS,
        help=f"with `answer`: {', '.join(_ANSWERS[:-1])} or {_ANSWERS[-1]}",
    )
    parser.add_argument(
        "--type",
        choices=tuple(TYPES),
        metavar="TYPE",
        default="skill",
        help=f"the type of the permission: {', '.join(TYPES)} (default: skill)",
    )
    parser.add_argument("--agent", metavar="A", default="", help="only for this agent")
    parser.add_argument(
        "--skill", metavar="S", default="", help="only for this skill; not with the type skill"
    )
    parser.add_argument(
        "--initiator", choices=_INITIATORS, help="only for requests of this initiator"
    )
    parser.add_argument(
        "--message", metavar="TEXT", default="", help="with `answer`: a message for the model"
    )
    wide_option(parser)


def run(args: argparse.Namespace) -> int:
    """List or change rules, explain a decision, or answer pending requests."""
    if args.action == "list":
        return _list(_gate(args), args)
    if args.action == "pending":
        return _pending(_gate(args), args)
    if args.action == "watch":
        return _watch(_gate(args), args)
    if args.subject is None:
        wanted = f"permissions {args.action}"
        raise ConfigError(
            f"{wanted} needs a SUBJECT: `skillbelt {wanted} {_SUBJECTS[args.action]}`"
        )
    if args.skill and args.type == "skill":
        raise ConfigError("--skill needs a --type: of the type skill, SUBJECT is the skill itself")
    if args.action == "why":
        return _explain(args)
    if args.action == "revoke":
        return _revoke(_gate(args), args)
    if args.action == "answer":
        return _answer(_gate(args), args)
    return _add(_gate(args), args)


def _gate(args: argparse.Namespace) -> Gate:
    settings = load_settings(args.project, config=args.config)
    return Gate(settings, lambda: open_store(settings))


def _list(gate: Gate, args: argparse.Namespace) -> int:
    rules, remembered = gate.policy.rules, gate.ledger.all()
    if args.json:
        print_json(
            {
                "rules": [rule_json(rule) for rule in rules],
                "remembered": [one._asdict() for one in remembered],
                "diagnostics": diagnostics_json(gate.diagnostics),
            }
        )
        return 0
    rows = [
        (
            rule.action,
            rule.type,
            exact(rule.pattern),
            _describe_condition(rule, gate),
            _location(rule),
        )
        for rule in rules
    ]
    head = ("action", "type", "pattern", "only", "where")
    print_table(head, rows, wrap=True, below=2, colours=_COLOURS)
    if remembered:
        print("remembered answers")
        _print_remembered(remembered, args)
    print_diagnostics(gate.diagnostics, args)
    return 0


def _print_remembered(remembered: Sequence[Remembered], args: argparse.Namespace) -> None:
    """Print the answers; on a terminal the allowed text first, and the ID to revoke it by."""
    if not sys.stdout.isatty():
        head: tuple[str, ...] = ("id", "type", "text", "skill", "version", "since")
        print_table(head, list(map(_row, remembered)))
        return
    now, rows = time.time(), []
    for one in remembered:
        id, type, text, skill, version, _ = _row(one)
        since = local_time(one.time) if args.wide else ago(one.time, now)
        hash = one.hash if args.wide else version
        rows.append((since, id, type, text, skill and f"skill {skill}", hash))
    head = ("since", "id", "type", "text", "skill", "version")
    print_table(head, rows, wrap=True, below=2)


def _row(one: Remembered) -> tuple[str, ...]:
    since = local_time(one.time, "%Y-%m-%d %H:%M")
    return (one.id, one.type, exact(one.pattern), one.skill, one.hash[:_HASH_CHARS], since)


def _describe_condition(rule: Rule, gate: Gate) -> str:
    """Return when the rule counts; an allow of an untrusted project only against its own rules."""
    theirs = ("project", rule.path) in gate.settings.files
    if rule.action == "allow" and theirs and not gate.policy.project_trusted:
        return "against the project's own rules: it is not trusted"
    return _conditions(rule)


def _conditions(rule: Rule) -> str:
    conditions = [
        rule.agent and f"agent {rule.agent}",
        rule.skill and f"skill {one_line(rule.skill)}",
        rule.initiator and f"requests of the {rule.initiator}",
        "" if rule.trusted is None else "trusted origins" if rule.trusted else "untrusted origins",
    ]
    return ", ".join(filter(None, conditions)) or "-"


def _location(rule: Rule) -> str:
    place = f" {rule.path}:{rule.line}" if rule.path else ""
    return "built in" if rule.source == "default" else f"{rule.source}{place}"


def _explain(args: argparse.Namespace) -> int:
    catalog = open_catalog(args)
    gate = Gate(catalog.settings, lambda: open_store(catalog.settings))
    found = {who: gate.explain(_request(gate, catalog, who, args)) for who in _INITIATORS}
    if args.json:
        answers: dict[str, object] = {who: _explanation_json(one) for who, one in found.items()}
        print_json({"name": args.subject, "type": args.type, **answers})
        return 0
    print(f"{args.type} {one_line(args.subject)}")
    rows = [(f"  the {who}", _outcome(one), _describe_decision(one)) for who, one in found.items()]
    print_table(("", " ", ""), rows, wrap=True, colours={" ": _COLOURS["action"]})
    for rule in dict.fromkeys(one.ignored for one in found.values() if one.ignored):
        print(f"  ignored: {_describe(rule)}: {_why_ignored(gate)}")
    return 0


def _why_ignored(gate: Gate) -> str:
    if gate.policy.project_trusted:
        return "a project cannot loosen what you or this machine ask for or deny"
    return "the project is not trusted; `skillbelt trust add` trusts it"


def _request(gate: Gate, catalog: Catalog, who: Initiator, args: argparse.Namespace) -> Request:
    if args.type == "skill":
        return gate.load_request(catalog.find(args.subject), who, args.agent)
    texts: tuple[str, ...] = (args.subject,)
    if args.type == "run":
        texts = simple_commands(args.subject)
    elif args.type == "network":
        texts = (host_text(args.subject),)
    elif args.type == "host_file":
        texts = path_texts(args.subject, gate.settings.home, os.getcwd())
    tools = SHELL_TOOLS if args.type == "run" else ()
    skill = catalog.find(args.skill) if args.skill else None
    return Request(
        type=args.type,
        patterns=texts,
        always=texts,
        initiator=who,
        agent=args.agent,
        skill=skill.name if skill else "",
        trusted=skill.trusted if skill else True,
        tools=tools,
    )


def _explanation_json(one: Explanation) -> dict[str, object]:
    remembered = one.remembered._asdict() if one.remembered else None
    ignored = rule_json(one.ignored) if one.ignored else None
    rule = rule_json(one.rule)
    return {"action": one.action, "rule": rule, "remembered": remembered, "ignored": ignored}


def _outcome(one: Explanation) -> str:
    return "allow" if one.remembered else one.action


def _describe_decision(one: Explanation) -> str:
    only = "" if _conditions(one.rule) == "-" else f" (for {_conditions(one.rule)})"
    remembered = f"; remembered as {one.remembered.id}" if one.remembered else ""
    return f"{_describe(one.rule)}{only}{remembered}"


def _describe(rule: Rule) -> str:
    return f"{rule.type} {one_line(repr(rule.pattern))} {rule.action}, {_location(rule)}"


def _add(gate: Gate, args: argparse.Namespace) -> int:
    path = rulebook_file(gate.settings)
    rule = Rule(
        type=args.type,
        pattern=args.subject,
        action=args.action,
        source="user",
        path=path,
        agent=args.agent,
        initiator=args.initiator or "",
        skill=args.skill,
    )
    fault = find_fault(rule, gate.settings.home)
    if fault:  # in the file, it would be an error for every command
        raise ConfigError(fault)
    add_rule(path, rule)
    [written] = [one for one in _gate(args).policy.rules if _equals_rule(one, rule)][-1:]
    if args.json:
        print_json(rule_json(written))
    else:
        say(f"{args.action} {args.type} {one_line(repr(args.subject))}: {_location(written)}", args)
    if args.type == "skill" and " " in args.subject.strip():
        say("this is a rule about skills; for a command, add --type run", args)
    return 0


def _equals_rule(one: Rule, rule: Rule) -> bool:
    return one._replace(line=0) == rule


def _revoke(gate: Gate, args: argparse.Namespace) -> int:
    taken = _revoke_remembered(gate, args)
    # The rules come last: if they cannot be written, no restriction is lost.
    try:
        path = rulebook_file(gate.settings)
        own = {
            one.pattern for one in gate.policy.rules if (one.path, one.type) == (path, args.type)
        }
        # A rule may also be named by the text that `list` shows of it.
        named = {args.subject, *(text for text in own if exact(text) == args.subject)}
        rules = sum(remove_rules(path, args.type, text, args.skill) for text in sorted(named))
    except ConfigError as error:
        done = f" ({count(len(taken), 'remembered answer')} revoked)" if taken else ""
        raise ConfigError(f"{error}{done}") from error
    if args.json:
        print_json({"rules": rules, "remembered": [one._asdict() for one in taken]})
    elif rules or taken:
        summary = f"{count(rules, 'rule')}, {count(len(taken), 'remembered answer')}"
        say(f"revoked: {summary}", args)
    if not rules and not taken:
        hint = "`skillbelt permissions list` shows all"
        print_failure(f"nothing to revoke for {one_line(args.subject)!r}; {hint}")
    return 0 if rules or taken else 1


def _revoke_remembered(gate: Gate, args: argparse.Namespace) -> list[Remembered]:
    taken = [
        one
        for one in gate.ledger.all()
        if args.subject in _names_of(one) and gate.ledger.revoke(one.id)
    ]
    if args.type == "skill":
        taken += gate.ledger.revoke_skill(args.subject)
    for one in taken:
        request = Request(
            type=one.type,
            patterns=(one.pattern,),
            skill=one.skill,
            hash=one.hash,
            initiator="user",
        )
        gate.record("revoked", request, {"id": one.id, "text": one.pattern})
    return taken


def _names_of(one: Remembered) -> tuple[str, ...]:
    """Return the texts that name this answer; a secret may be named without its skill."""
    named = (one.id, one.pattern, exact(one.pattern), one_line(one.pattern))
    return (*named, one.pattern.partition(" ")[0]) if one.type == "secret" else named


def _watch(gate: Gate, args: argparse.Namespace) -> int:
    """Answer the requests of other processes on a terminal, or print them."""
    on_terminal = not args.json and can_ask()

    def listener(pending: Pending) -> None:
        if not on_terminal:
            print(json.dumps(_pending_json(pending)), flush=True)
        elif answer := ask(pending, gate.desk):
            gate.desk.answer(pending.id, answer)

    stop = gate.desk.listen(listener)
    say("waiting for requests in this project; Ctrl-C stops it", args)
    try:
        threading.Event().wait()
    finally:
        stop()
        gate.close()
    return 0


def _pending_json(pending: Pending) -> dict[str, object]:
    request = pending.request
    carried = {**request._asdict(), "metadata": dict(request.metadata)}
    return {"id": pending.id, "time": pending.time, **carried, "facts": _facts_json(request)}


def _facts_json(request: Request) -> list[dict[str, str]]:
    return [fact._asdict() for fact in facts(request)]


def _pending(gate: Gate, args: argparse.Namespace) -> int:
    waiting = gate.desk.pending()
    if args.json:
        print_json({"pending": list(map(_pending_json, waiting))})
    elif waiting:
        rows = [
            (one.id, one.request.type, one.request.session, one.request.summary) for one in waiting
        ]
        if sys.stdout.isatty():
            moved = [(id, type, what, session) for id, type, session, what in rows]
            print_table(("id", "type", "what", "session"), moved, wrap=True, below=1)
        else:
            print_table(("id", "type", "session", "what"), rows)
    else:
        say("no pending requests", args)
    return 0


def _answer(gate: Gate, args: argparse.Namespace) -> int:
    if args.answer is None:
        raise ConfigError(f"permissions answer needs one of {', '.join(_ANSWERS)} after the ID")
    left = gate.desk.is_abandoned(args.subject)
    done = gate.desk.answer(args.subject, Answer(args.answer, args.message, "command line"))
    if args.json:
        print_json({"id": args.subject, "answered": done})
    elif not done:
        asked = one_line(args.subject)
        why = f"the process that asked for {asked!r} has ended; nothing waits for the answer"
        none = f"no pending request {asked!r}; `skillbelt permissions pending` lists them"
        print_failure(why if left else none)
    return 0 if done else 1
