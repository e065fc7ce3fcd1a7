"""`skillbelt doctor`."""

from __future__ import annotations

import argparse

from skillbelt.catalog import Catalog
from skillbelt.cli.output import count, diagnostics_json, open_catalog, print_json
from skillbelt.scan import Scan
from skillbelt.text import one_line
from skillbelt.values import Diagnostic


def configure(parser: argparse.ArgumentParser) -> None:
    """`doctor` has no options of its own."""


def run(args: argparse.Namespace) -> int:
    """Print the roots in order of precedence, what each gave, and every problem."""
    catalog = open_catalog(args)
    if args.json:
        roots = [_root_json(scan, _lost(scan, catalog)) for scan in catalog.scans]
        problems = diagnostics_json(catalog.diagnostics)
        print_json({"roots": roots, "sandboxes": [], "matrix": [], "diagnostics": problems})
    else:
        _print_roots(catalog, args)
        _print_problems(catalog, args)
    return 1 if any(d.severity == "error" for d in catalog.diagnostics) else 0


def _lost(scan: Scan, catalog: Catalog) -> list[str]:
    """Where the root's skills lie that another one stands before."""
    shadowed = {skill.location for skill in catalog.shadowed}
    return [skill.location for skill in scan.skills if skill.location in shadowed]


def _root_json(scan: Scan, lost: list[str]) -> dict[str, object]:
    root = scan.root
    return {
        "path": root.path,
        "scope": root.scope,
        "client": root.client,
        "origin": str(root.origin),
        "exists": scan.exists,
        "skills": len(scan.skills),
        "shadowed": lost,
        "files_read": scan.files_read,
        "diagnostics": diagnostics_json(scan.diagnostics),
    }


def _print_roots(catalog: Catalog, args: argparse.Namespace) -> None:
    settings = catalog.settings
    print(f"project {one_line(settings.project)}, worktree {one_line(settings.worktree)}")
    print("skills are looked for in these folders, the strongest first:")
    absent = 0
    for scan in catalog.scans:
        if not scan.exists and not args.verbose and not scan.root.required:
            absent += 1
            continue
        print(f"  {_state(scan, catalog):<22} {one_line(scan.root.path)} ({_label(scan)})")
    if absent:
        rest = f"{absent} more are" if absent < len(catalog.scans) else f"all {absent} are"
        print(f"  {rest} absent (--verbose names them)")
    hidden = sum(skill.hidden for skill in catalog.values())
    found = count(len(catalog), "skill")
    print(f"{found}, {len(catalog.shadowed)} shadowed, {hidden} hidden")


def _state(scan: Scan, catalog: Catalog) -> str:
    if scan.stalled:
        return "stalled"
    if not scan.exists:
        return "absent"
    lost = len(_lost(scan, catalog))
    return count(len(scan.skills), "skill") + (f", {lost} shadowed" if lost else "")


def _label(scan: Scan) -> str:
    root = scan.root
    return ", ".join(one_line(p) for p in (root.scope, root.client, root.origin.url) if p)


def _print_problems(catalog: Catalog, args: argparse.Namespace) -> None:
    shown: list[Diagnostic] = [
        d for d in catalog.diagnostics if args.verbose or d.severity != "info"
    ]
    if not shown:
        print("no problems")
        return
    print(f"{count(len(shown), 'problem')}:")
    for diagnostic in shown:
        print(f"  {one_line(str(diagnostic._replace(remedy='')))}")
        if diagnostic.remedy:
            print(f"    {one_line(diagnostic.remedy)}")
