"""`skillbelt fleet`."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from skillbelt.cli.output import (
    count,
    positive,
    print_json,
    print_table,
    say,
    show_progress,
    wants_progress,
)
from skillbelt.errors import ConfigError, MissingExtra
from skillbelt.fleet.authentication import require_token
from skillbelt.fleet.facts import NodeFacts, differing, find_facts
from skillbelt.fleet.join import HEAD_PORT, WORKER_PORTS, NodePlan, run_node, start_arguments
from skillbelt.fleet.node_report import report_node
from skillbelt.fleet.reachability import PartState, check_reachable, try_part
from skillbelt.objects.space import Objects
from skillbelt.settings import Settings, load_settings
from skillbelt.store import SessionKey, open_store
from skillbelt.testing.node_attacks import BAD, attack_node
from skillbelt.text import one_line

if TYPE_CHECKING:
    from skillbelt.fleet.cluster import Cluster, NodeAnswer, NodeState

TIMED_OUT = 124
_DRAIN_SECONDS = 600
_LOOK_SECONDS = 0.5
_ID_CHARS = 12
_ACTIONS = ("status", "nodes", "drain", "doctor", "join")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `fleet`."""
    parser.add_argument(
        "action", nargs="?", choices=_ACTIONS, default="status", help="what to do (default: status)"
    )
    parser.add_argument(
        "target",
        metavar="NODE",
        nargs="?",
        help="drain: the node, by its id, the beginning of it, or its host; join: HOST:PORT of "
        "the head",
    )
    parser.add_argument(
        "--address", metavar="HOST:PORT", help="the Ray head (default: the setting ray_address)"
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=positive,
        default=_DRAIN_SECONDS,
        help=f"drain: how many seconds to wait for its runs (default: {_DRAIN_SECONDS})",
    )
    parser.add_argument(
        "--head", action="store_true", help="join: be the head of a new cluster, without runs"
    )
    parser.add_argument(
        "--port",
        metavar="N",
        type=positive,
        default=HEAD_PORT,
        help=f"join --head: the port of the head (default: {HEAD_PORT})",
    )
    parser.add_argument(
        "--no-runs", action="store_true", help="join: take no runs, for the machine of a server"
    )
    parser.add_argument(
        "--processors",
        metavar="N",
        type=positive,
        help="join: how many runs at once (default: as many as there are processors)",
    )
    parser.add_argument(
        "--node-address", metavar="IP", default="", help="join: the address of this node for others"
    )
    parser.add_argument(
        "--folder", metavar="DIR", default="", help="join --head: where Ray keeps its files"
    )
    parser.add_argument(
        "--print",
        action="store_true",
        dest="only_print",
        help="join: print what was found and the command, and start nothing",
    )


def run(args: argparse.Namespace) -> int:
    """Carry out the action; return the exit code."""
    settings = load_settings(args.project, config=args.config)
    if args.action == "join":
        return _join(settings, args)
    if args.words:
        raise ConfigError(f"fleet {args.action} takes no command; `skillbelt fleet join` does")
    if args.target is not None and args.action != "drain":
        raise ConfigError(f"fleet {args.action} takes no NODE; `skillbelt fleet drain NODE` does")
    if args.target is None and args.action == "drain":
        raise ConfigError("fleet drain needs a NODE, as `skillbelt fleet nodes` prints it")
    do = {"status": _status, "nodes": _nodes, "drain": _drain, "doctor": _doctor}[args.action]
    return do(settings, args)


@contextmanager
def _open(settings: Settings, args: argparse.Namespace) -> Iterator[Cluster]:
    address = _address(settings, args)
    check_reachable(address)
    require_token(os.environ)  # before Ray is imported, which takes a second
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "error")  # the error below reports it
    with _import_cluster().open_cluster(address) as cluster:
        yield cluster


def _import_cluster() -> Any:
    """Return the module that imports Ray, which takes a second."""
    try:
        return import_module("skillbelt.fleet.cluster")  # extra: ray
    except ImportError as error:
        raise MissingExtra("ray", "`skillbelt fleet`") from error


def _address(settings: Settings, args: argparse.Namespace) -> str:
    address: str = args.address or settings.ray_address
    if not address:
        raise ConfigError("no fleet is named; set ray_address to HOST:PORT, or give --address")
    return address


# status


def _status(settings: Settings, args: argparse.Namespace) -> int:
    parts = _try_parts(settings)
    with _open(settings, args) as cluster:
        nodes, pending = cluster.nodes(), cluster.pending()
        answers = cluster.ask_workspaces("counts")
    counts = _add_counts(answers)
    up = [one for one in nodes if one.alive]
    findings = _differing_labels(up)
    findings += [
        f"{name} did not say what runs there: {one.problem}"
        for name, one in answers.items()
        if _failed_to_save(one)
    ]
    if not any(one.runs and not one.draining for one in up):
        findings.append("no node takes runs: start one with `skillbelt fleet join HEAD:PORT`")
    document = {
        "address": _address(settings, args),
        "nodes": {
            "up": sum(not one.draining for one in up),
            "draining": sum(one.draining for one in up),
            "down": len(nodes) - len(up),
        },
        "running": counts["running"] if counts else sum(one.used for one in up),
        "queue": pending + counts.get("waiting", 0),
        "parts": [one._asdict() for one in parts],
        "findings": findings,
    }
    broken = bool(findings) or any(one.problem for one in parts)
    if args.json:
        print_json(document)
    else:
        _print_status(document, parts, findings)
    return 1 if broken else 0


def _add_counts(answers: dict[str, NodeAnswer]) -> dict[str, int]:
    """Add up the reported runs of the workspace keepers; nothing if there are none."""
    total: dict[str, int] = {}
    for answer in answers.values():
        if isinstance(answer.value, dict):
            for name, number in answer.value.items():
                total[name] = total.get(name, 0) + int(number)
    return total


def _differing_labels(nodes: Sequence[NodeState]) -> list[str]:
    """Return the differences between nodes by their labels; `fleet nodes` says which settings."""
    found = []
    versions = sorted({one.version or "unknown" for one in nodes})
    if len(versions) > 1:
        found.append(f"the versions of skillbelt differ: {', '.join(versions)}")
    if len({one.settings for one in nodes}) > 1:
        found.append("settings that should agree differ; `skillbelt fleet nodes` says which")
    return found


def _try_parts(settings: Settings) -> list[PartState]:
    """Use the store and the object store once each, to measure the latency of a request."""

    def use_store() -> None:
        with closing(open_store(settings)) as store:
            store.state(SessionKey("skillbelt", "fleet", "status"))

    def use_objects() -> None:
        # A listing without results costs one request.
        for _ in Objects.from_settings(settings).skills.copies("blobs", "0" * 64):
            break

    parts = [try_part("store", use_store)]
    return [*parts, try_part("objects", use_objects)] if settings.objects else parts


def _print_status(
    document: dict[str, Any], parts: Sequence[PartState], findings: Sequence[str]
) -> None:
    nodes = document["nodes"]
    print(
        f"{count(nodes['up'], 'node')} up, {nodes['draining']} draining, {nodes['down']} down; "
        f"{document['running']} running, {document['queue']} waiting"
    )
    for one in parts:
        state = one.problem or f"answers in {one.milliseconds:g} ms"
        print(f"{one.part} {one_line(state)}")
    for finding in findings:
        print(f"problem: {one_line(finding)}")


# nodes


def _nodes(settings: Settings, args: argparse.Namespace) -> int:
    with _open(settings, args) as cluster:
        nodes = cluster.nodes()
        answers = cluster.call_each(report_node, [one for one in nodes if one.alive])
        listed = cluster.ask_workspaces("list")
    conversations = _conversations_by_node(listed)
    reports = {one.id: answers.get(one.id) for one in nodes}
    facts = _facts_of(nodes, answers)
    findings = differing(facts) + _problems(nodes, answers, facts)
    if args.json:
        rows = [_node_json(one, reports[one.id], conversations.get(one.id, [])) for one in nodes]
        print_json({"nodes": rows, "findings": findings})
    else:
        _print_nodes(nodes, reports, conversations)
        for finding in findings:
            print(f"problem: {one_line(finding)}")
    return 1 if findings else 0


def _facts_of(nodes: Sequence[NodeState], answers: dict[str, NodeAnswer]) -> dict[str, NodeFacts]:
    """Return the facts of the nodes that answered, by the node's display name."""
    found = {}
    for node in nodes:
        answer = answers.get(node.id)
        if answer is not None and isinstance(answer.value, dict):
            with suppress(ValueError):  # another version of the product may report other facts
                found[_display_name(node)] = NodeFacts.from_json(answer.value.get("facts") or {})
    return found


def _problems(
    nodes: Sequence[NodeState], answers: dict[str, NodeAnswer], facts: dict[str, NodeFacts]
) -> list[str]:
    """Return which nodes did not answer, or sent a report that is not understood here."""
    found = []
    for node in nodes:
        answer = answers.get(node.id)
        if answer is not None and answer.problem:
            found.append(f"{_display_name(node)} did not answer: {answer.problem}")
        elif answer is not None and _display_name(node) not in facts:
            version = node.version or "an unknown version"
            found.append(f"{_display_name(node)}: its report is not understood; it has {version}")
    return found


def _display_name(node: NodeState) -> str:
    return f"{node.id[:_ID_CHARS]} ({node.host})"


def _conversations_by_node(listed: dict[str, NodeAnswer]) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = {}
    for answer in listed.values():
        for one in answer.value if isinstance(answer.value, list) else ():
            found.setdefault(str(one.get("node", "")), []).append(dict(one))
    return found


def _node_json(
    node: NodeState, answer: NodeAnswer | None, conversations: list[dict[str, object]]
) -> dict[str, object]:
    report = answer.value if answer is not None and isinstance(answer.value, dict) else {}
    return {
        **node._asdict(),
        "can": list(node.can),
        "state": node.state,
        "conversations": conversations,
        "facts": report.get("facts"),
        "workspaces": report.get("workspaces"),
        "environments": report.get("environments"),
        "free_bytes": report.get("free_bytes"),
        "problem": answer.problem if answer is not None else "",
    }


def _print_nodes(
    nodes: Sequence[NodeState],
    reports: dict[str, NodeAnswer | None],
    conversations: dict[str, list[dict[str, object]]],
) -> None:
    rows = []
    for node in nodes:
        shown = _node_json(node, reports[node.id], conversations.get(node.id, []))
        facts: Any = shown["facts"] or {}
        held = [_describe_entries(shown[name], name) for name in ("workspaces", "environments")]
        rows.append(
            (
                node.id[:_ID_CHARS],
                node.host,
                node.state if node.runs or not node.alive else f"{node.state}, no runs",
                facts.get("version", node.version),
                facts.get("auto", ""),
                str(node.used),
                ", ".join(filter(None, held)) or str(shown["problem"]),
            )
        )
    print_table(("node", "host", "state", "version", "sandbox", "in use", "holds"), rows)


def _describe_entries(held: Any, noun: str) -> str:
    if not held or not held["entries"]:
        return ""
    return f"{count(held['entries'], noun.removesuffix('s'))} ({held['bytes'] // 2**20} MiB)"


# drain


def _drain(settings: Settings, args: argparse.Namespace) -> int:
    deadline = time.monotonic() + args.timeout
    with _open(settings, args) as cluster:
        node = cluster.find(args.target)
        if node.head:
            raise ConfigError(
                f"{_display_name(node)} is the head: it takes no runs, and the cluster ends with it"
            )
        cluster.drain(node.id)
        keepers = cluster.actors_on(node.id)
        say(f"{_display_name(node)} takes no new work", args)
        answers = cluster.ask_workspaces("drain", keepers, seconds=args.timeout)
        left = _wait_until_gone(cluster, node, deadline, args)
    problems = [f"{name}: {one.problem}" for name, one in answers.items() if _failed_to_save(one)]
    document = {
        "node": node.id,
        "host": node.host,
        "drained": not left,
        "snapshotted": len(answers) - len(problems),
        "left": left,
        "problems": problems,
        "remedy": "" if left else "`skillbelt fleet join` on that machine puts it back",
    }
    if args.json:
        print_json(document)
    else:
        _print_drained(document, args)
    return TIMED_OUT if left else 1 if problems else 0


def _failed_to_save(answer: NodeAnswer) -> bool:
    """Whether an actor failed to save; if it ended afterwards, that was requested."""
    return bool(answer.problem) and "actor" not in answer.problem.casefold()


def _wait_until_gone(
    cluster: Cluster, node: NodeState, deadline: float, args: argparse.Namespace
) -> int:
    """Wait until the node ended; return how much is still in use there at the deadline."""
    wanted = wants_progress(args)
    while True:
        now = next((one for one in cluster.nodes() if one.id == node.id), None)
        if now is None or not now.alive:
            left = 0
            break
        left = max(1, now.used)
        if time.monotonic() >= deadline:
            break
        if wanted:
            show_progress(f"draining {_display_name(node)}: {left} still in use")
        time.sleep(_LOOK_SECONDS)
    if wanted:
        show_progress("")
    return left


def _print_drained(document: dict[str, Any], args: argparse.Namespace) -> None:
    if document["left"]:
        print(
            f"{document['node'][:_ID_CHARS]} still has {count(document['left'], 'run')} or "
            f"workspaces after {args.timeout} seconds; it takes no new work, and ends when they do"
        )
    else:
        print(f"{document['node'][:_ID_CHARS]} is drained; {document['remedy']}")
    for problem in document["problems"]:
        print(f"problem: not saved: {one_line(problem)}")


# doctor


def _doctor(settings: Settings, args: argparse.Namespace) -> int:
    with _open(settings, args) as cluster:
        nodes = [one for one in cluster.nodes() if one.alive]
        attacked = [one for one in nodes if one.runs]
        if wants_progress(args):
            show_progress(f"asking {count(len(nodes), 'node')}")
        reports = cluster.call_each(report_node, nodes)
        if wants_progress(args):
            show_progress(f"attacking the sandboxes of {count(len(attacked), 'node')}")
        results = cluster.follow_each(attack_node, [(one, one.sandboxes) for one in attacked])
        if wants_progress(args):
            show_progress("")
    facts = _facts_of(nodes, reports)
    findings = differing(facts) + _problems(nodes, reports, facts)
    rows: list[dict[str, Any]] = []
    for node in attacked:
        own = [{"node": node.id, "host": node.host, **one} for one in results[node.id].value]
        findings += _attack_findings(node, own, results[node.id].problem)
        rows += own
    if args.json:
        print_json({"nodes": [one.id for one in nodes], "matrix": rows, "findings": findings})
    else:
        _print_matrix(attacked, rows)
        for finding in findings:
            print(f"problem: {one_line(finding)}")
        if not findings:
            print("no problems")
    return 1 if findings else 0


def _attack_findings(node: NodeState, rows: Sequence[dict[str, Any]], problem: str) -> list[str]:
    """Return the findings of the attacks on a node, and what was not attacked."""
    found = [
        f"{_display_name(node)}: {row['sandbox']} does not stop {row['attack']}: {row['detail']}"
        if row["outcome"] == "succeeded"
        else f"{_display_name(node)}: {row['sandbox']}: it is not clear whether {row['attack']} is "
        f"stopped: {row['detail']}"
        for row in rows
        if row["outcome"] in BAD
    ]
    if problem:
        found.append(f"{_display_name(node)}: the attacks did not end: {problem}")
    tried = {row["sandbox"] for row in rows}
    found += [
        f"{_display_name(node)}: {one} was not attacked"
        for one in node.sandboxes
        if one not in tried
    ]
    return found if node.sandboxes else [f"{_display_name(node)}: there is no sandbox to attack"]


def _print_matrix(nodes: Sequence[NodeState], rows: Sequence[dict[str, Any]]) -> None:
    """Print the number of attacks per outcome, for each node and sandbox."""
    shown = []
    for node in nodes:
        own = [row for row in rows if row["node"] == node.id]
        for sandbox in dict.fromkeys(row["sandbox"] for row in own):
            outcomes = [row["outcome"] for row in own if row["sandbox"] == sandbox]
            counts = [f"{outcomes.count(kind)} {kind}" for kind in dict.fromkeys(outcomes)]
            shown.append((node.id[:_ID_CHARS], node.host, sandbox, ", ".join(counts)))
    if shown:
        print_table(("node", "host", "sandbox", "attacks"), shown)


# join


def _join(settings: Settings, args: argparse.Namespace) -> int:
    address = args.target or args.address or settings.ray_address
    if args.head:
        address = ""
        if args.port > 65535 or args.port in WORKER_PORTS:
            first, last = WORKER_PORTS[0], WORKER_PORTS[-1]
            raise ConfigError(
                f"--port {args.port}: a head has a port below 65536 that is none of {first} to "
                f"{last}, which Ray gives to its workers; {HEAD_PORT} is the usual one"
            )
    elif not address:
        raise ConfigError(
            "fleet join needs the head: `skillbelt fleet join HOST:PORT`, or `skillbelt fleet join "
            "--head` to be it"
        )
    plan = NodePlan(
        address=address,
        port=args.port,
        runs=not (args.no_runs or args.head),
        processors=args.processors,
        folder=args.folder,
        node_address=args.node_address,
        start=os.urandom(8).hex(),
    )
    facts = find_facts(settings)
    if plan.runs and not facts.auto and not args.only_print:
        raise ConfigError(
            "no sandbox works on this machine, so it could take no run; `skillbelt doctor -v` "
            "says what each lacks, and --no-runs joins without runs"
        )
    arguments = start_arguments(plan, facts)
    if args.only_print:
        return _print_plan(arguments, facts, args)
    environ = require_token(os.environ)
    if address:
        check_reachable(address)
    os.environ.update(environ)  # Ray reads its token there
    cluster = _import_cluster()
    if address:
        cluster.check_token(address)
    if args.json:
        print_json({"command": arguments, "facts": facts.to_json()})
        sys.stdout.flush()
    say(f"this machine can: {', '.join(sorted(facts.resources()))}", args)
    head = address or f"{args.node_address or '127.0.0.1'}:{args.port}"
    code = run_node(arguments, environ, args.words, lambda: cluster.look_at_node(head, plan.start))
    if code == 0 and not args.words:
        say("this node was drained; the same command puts it back", args)
    return code


def _print_plan(arguments: Sequence[str], facts: NodeFacts, args: argparse.Namespace) -> int:
    if args.json:
        print_json({"command": list(arguments), "facts": facts.to_json()})
    else:
        print(shlex.join(arguments))
    return 0
