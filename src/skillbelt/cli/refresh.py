"""`skillbelt refresh`."""

from __future__ import annotations

import argparse

from skillbelt.cli.output import count, print_diagnostics, print_json
from skillbelt.cli.scanning import open_catalog
from skillbelt.discovery.describe import diagnostics_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Add no options: there are only the common ones."""


def run(args: argparse.Namespace) -> int:
    """Scan every folder, read every file and fetch every remote source again."""
    catalog = open_catalog(args, refresh=True)
    read = sum(scan.files_read for scan in catalog.scans)
    changed = sum(scan.files_changed for scan in catalog.scans)
    gone = sum(scan.files_gone for scan in catalog.scans)
    if args.json:
        print_json(
            {
                "skills": len(catalog),
                "files_read": read,
                "files_changed": changed,
                "files_gone": gone,
                "diagnostics": diagnostics_json(catalog.diagnostics),
            }
        )
        return 0
    print_diagnostics(catalog.diagnostics, args)
    found, files = count(len(catalog), "skill"), count(changed, "file")
    print(f"{found}; {files} new or changed, {gone} gone since the last scan")
    return 0
