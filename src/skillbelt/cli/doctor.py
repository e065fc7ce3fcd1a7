"""`skillbelt doctor`."""

from __future__ import annotations

import argparse

from skillbelt.catalog import Catalog
from skillbelt.cli.output import diagnostics_json, open_catalog, print_json
from skillbelt.scan import Scan
from skillbelt.text import one_line
from skillbelt.values import Diagnostic


def configure(parser: argparse.ArgumentParser) -> None:
    """`doctor` has no options of its own."""


def run(args: argparse.Namespace) -> int:
    """Print the roots in order of precedence, what each gave, and every problem."""
    catalog = open_catalog(args)
    if args.json:
        roots = [_root_json(scan, catalog) for scan in catalog.scans]
        problems = diagnostics_json(catalog.diagnostics)
        print_json({"roots": roots, "sandboxes": [], "matrix": [], "diagnostics": problems})
    else:
        _print_roots(catalog, args)
        _print_problems(catalog, args)
    return 1 if any(d.severity == "error" for d in catalog.diagnostics) else 0


def _root_json(scan: Scan, catalog: Catalog) -> dict[str, object]:
    root = scan.root
    lost = [skill.location for skill in catalog.shadowed if skill in scan.skills]
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
    print("folders that are looked in, the strongest first:")
    absent = 0
    for scan in catalog.scans:
        if not scan.exists and not args.verbose and not scan.root.required:
            absent += 1
            continue
        print(f"  {_state(scan):<14} {one_line(scan.root.path)} ({_label(scan)})")
    if absent:
        print(f"  {absent} more do not exist (--verbose names them)")
    hidden = sum(skill.hidden for skill in catalog.values())
    print(f"{len(catalog)} skills, {len(catalog.shadowed)} shadowed, {hidden} hidden")


def _state(scan: Scan) -> str:
    if scan.stalled:
        return "stalled"
    return f"{len(scan.skills)} skills" if scan.exists else "absent"


def _label(scan: Scan) -> str:
    root = scan.root
    return ", ".join(part for part in (root.scope, root.client, root.origin.url) if part)


def _print_problems(catalog: Catalog, args: argparse.Namespace) -> None:
    shown: list[Diagnostic] = [
        d for d in catalog.diagnostics if args.verbose or d.severity != "info"
    ]
    if not shown:
        print("no problems")
        return
    print(f"{len(shown)} problems:")
    for diagnostic in shown:
        print(f"  {one_line(str(diagnostic._replace(remedy='')))}")
        if diagnostic.remedy:
            print(f"    {one_line(diagnostic.remedy)}")
