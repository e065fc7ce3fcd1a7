"""`skillbelt doctor`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from skillbelt.cli.output import (
    count,
    print_json,
    print_table,
    rule_problems,
    show_progress,
    wants_progress,
)
from skillbelt.cli.scanning import open_catalog
from skillbelt.cli.words import print_words
from skillbelt.console.doctor_report import (
    Matrix,
    SandboxState,
    examine_document,
    find_over_budget,
    list_not_stopped,
    list_shadowed,
    probe_all,
)
from skillbelt.discovery.catalog import Catalog
from skillbelt.discovery.scan import Scan
from skillbelt.errors import SkillbeltError
from skillbelt.mcp.published import unpublished
from skillbelt.permission.gate import Gate
from skillbelt.runtime.required import diagnose_required
from skillbelt.sandbox import registry
from skillbelt.sandbox.linux import cgroups
from skillbelt.settings import Settings
from skillbelt.store import open_store
from skillbelt.testing.attacks import AttackResult
from skillbelt.testing.node_attacks import attack_sandbox
from skillbelt.testing.probes import PROBES, Probe
from skillbelt.text import one_line
from skillbelt.values import Diagnostic

UNAVAILABLE = 5


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `doctor`."""
    parser.add_argument(
        "--sandbox",
        action="store_true",
        help="attack every sandbox of this machine, and show which attacks it stops",
    )


def run(args: argparse.Namespace) -> int:
    """Print the roots in order of precedence with their skills, the problems and the sandboxes."""
    catalog = open_catalog(args)
    settings = catalog.settings
    everything = args.json or args.verbose or args.sandbox
    states = probe_all(settings) if everything else _probe_until_used(settings)
    unserved = unpublished(catalog.values())
    ruled = rule_problems(settings) + find_over_budget(catalog)
    if settings.required_skills() and not any(one.code == "rules-wrong" for one in ruled):
        gate = Gate(settings, lambda: open_store(settings))
        ruled += diagnose_required(catalog.snapshot, settings, gate)
    if not args.json:
        _print_files(settings)
        _print_roots(catalog, args)
        _print_problems([*catalog.diagnostics, *ruled, *unserved], args)
        if unserved and not args.verbose:
            number = count(len(unserved), "skill")
            print(f"{number} for MCP clients through tools only (--verbose says why)")
        _print_sandboxes(states, settings)
    matrix = _attack(states, args) if args.sandbox else {}
    for state in states:
        state.sandbox.close()
    if args.json:
        print_json(examine_document(catalog, states, matrix, [*ruled, *unserved]))
    elif args.sandbox:
        _print_matrix(matrix, args)
    if args.sandbox and not matrix:
        return UNAVAILABLE
    broken = any(one.severity == "error" for one in (*catalog.diagnostics, *ruled))
    return 1 if broken or any(list_not_stopped(results) for results in matrix.values()) else 0


def _print_files(settings: Settings) -> None:
    if settings.files:
        print("settings files, weakest first:")
    for source, path in settings.files:
        print(f"  {source:<22} {one_line(path)}")


def _print_roots(catalog: Catalog, args: argparse.Namespace) -> None:
    settings = catalog.settings
    print(f"project {one_line(settings.project)}, worktree {one_line(settings.worktree)}")
    print("skill folders, highest precedence first:")
    absent = 0
    for scan in catalog.scans:
        if not scan.exists and not args.verbose and not scan.root.required:
            absent += 1
            continue
        print(f"  {_state(scan, catalog):<22} {one_line(scan.root.path)} ({_label(scan)})")
    if absent:
        rest = f"{absent} more are" if absent < len(catalog.scans) else f"all {absent} are"
        print(f"  {rest} absent (--verbose lists them)")
    hidden = sum(skill.hidden for skill in catalog.values())
    found = count(len(catalog), "skill")
    disabled = catalog.snapshot.disabled
    off = f", {len(disabled)} disabled" if disabled else ""
    print(f"{found}, {len(catalog.shadowed)} shadowed, {hidden} hidden{off}")
    for name, (_, where) in disabled.items():
        print(f"  {one_line(name)} is disabled by {one_line(where)}")


def _state(scan: Scan, catalog: Catalog) -> str:
    if scan.stalled:
        return "stalled"
    if not scan.exists:
        return "absent"
    shadowed = len(list_shadowed(scan, catalog))
    return count(len(scan.skills), "skill") + (f", {shadowed} shadowed" if shadowed else "")


def _label(scan: Scan) -> str:
    root = scan.root
    return ", ".join(one_line(p) for p in (root.scope, root.client, root.origin.url) if p)


def _print_problems(diagnostics: Sequence[Diagnostic], args: argparse.Namespace) -> None:
    shown = [one for one in diagnostics if args.verbose or one.severity != "info"]
    if not shown:
        print("no problems")
        return
    print(f"{count(len(shown), 'problem')}:")
    for diagnostic in shown:
        print_words(f"  {one_line(str(diagnostic._replace(remedy='')))}", "    ")
        if diagnostic.remedy:
            print_words(f"    {one_line(diagnostic.remedy)}", "    ")


def _probe_until_used(settings: Settings) -> list[SandboxState]:
    """Try the sandboxes down to the one that runs commands."""
    if settings.sandbox != registry.AUTO:
        named = [one for one in registry.sandboxes(settings) if one.name == settings.sandbox]
        return [SandboxState(sandbox, sandbox.unavailable()) for sandbox in named]
    found: list[SandboxState] = []
    for sandbox in registry.auto_sandboxes(settings):
        found.append(SandboxState(sandbox, sandbox.unavailable()))
        if found[-1].reason is None:
            break
    return found


def _print_sandboxes(states: Sequence[SandboxState], settings: Settings) -> None:
    try:
        used = registry.choose(settings.sandbox, settings)
    except SkillbeltError as error:
        print(f"commands cannot run: {one_line(str(error))}")
        return
    where = (
        f"in the sandbox {used.name}" if used.level else "without a sandbox, as the settings say"
    )
    print(f"commands run {where}")
    if registry.missing_isolation(used):
        print(f"  it does not enforce: {registry.missing_isolation(used)}")
    _print_groups()
    for state in states:
        name = state.sandbox.name
        if state.reason is not None:
            print(f"  {name} cannot be used: {one_line(state.reason)}")
        elif name != used.name:
            print(f"  {name} works too{'' if state.sandbox.level else ', but it enforces nothing'}")


def _print_groups() -> None:
    """Say whether the kernel limits the memory of a run, and how to enable that."""
    if sys.platform == "linux" and cgroups.hierarchy() is None:
        print(
            "  memory is monitored, not limited by the kernel: there is no delegated cgroup here; "
            f"with systemd, `{cgroups.HOW_TO_HAVE_ONE} skillbelt ...` gets one"
        )


def _attack(states: Sequence[SandboxState], args: argparse.Namespace) -> Matrix:
    wanted = wants_progress(args)
    matrix = {}
    for state in states:
        if state.attackable:
            name = state.sandbox.name
            probes = _show_each(name, PROBES) if wanted else PROBES
            matrix[name] = list(attack_sandbox(state.sandbox, probes))
    if wanted:
        show_progress("")
    return matrix


def _show_each(name: str, probes: Sequence[Probe]) -> Iterator[Probe]:
    """Yield the probes and show the progress of each."""
    for number, probe in enumerate(probes, 1):
        show_progress(f"attacking {name}: {number} of {len(probes)}, {probe.name}")
        yield probe


def _print_matrix(matrix: Matrix, args: argparse.Namespace) -> None:
    if not matrix:
        return
    numbers: dict[str, list[str]] = {}
    outcomes: dict[str, dict[str, str]] = {}
    for name, results in matrix.items():
        for result in results:
            shown = str(result.number)
            if shown not in numbers.setdefault(result.attack, []):
                numbers[result.attack].append(shown)
            outcomes.setdefault(result.attack, {})[name] = result.outcome
    rows = [
        (attack, ", ".join(numbers[attack]), *(found.get(name, "") for name in matrix))
        for attack, found in outcomes.items()
    ]
    print_table(("attack", "number", *matrix), rows)
    for name, results in matrix.items():
        _print_summary(name, results, args)


def _print_summary(name: str, results: Sequence[AttackResult], args: argparse.Namespace) -> None:
    """Print the number of attacks per outcome, and the reason for each that was not stopped."""
    by_attack = {result.attack: result for result in results}
    found = [result.outcome for result in by_attack.values()]
    parts = [f"{found.count(kind)} {kind}" for kind in dict.fromkeys(found)]
    print(f"{name}: {count(len(found), 'attack')}, {', '.join(parts)}")
    for result in by_attack.values():
        if args.verbose or result.outcome != "stopped":
            print(f"  {result.outcome}: {result.attack} ({one_line(result.detail)})")
