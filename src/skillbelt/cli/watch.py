"""`skillbelt watch`."""

from __future__ import annotations

import argparse
import json
import signal
import threading

from skillbelt.cli.output import count, positive, say
from skillbelt.cli.scanning import open_catalog
from skillbelt.discovery.catalog import Catalog, Changes
from skillbelt.discovery.describe import diagnostics_json
from skillbelt.text import one_line


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of `watch`."""
    parser.add_argument("--count", type=positive, metavar="N", help="stop after N changes")


def run(args: argparse.Namespace) -> int:
    """Print changes until interrupted, one line each."""
    catalog = open_catalog(args)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    say(f"watching {count(len(catalog), 'skill')}; Ctrl-C stops it", args)
    for seen, changes in enumerate(catalog.watch(stop), 1):
        _print(catalog, changes, args)
        if args.count and seen >= args.count:
            break
    return 0


def _print(catalog: Catalog, changes: Changes, args: argparse.Namespace) -> None:
    if args.json:
        document = {**changes._asdict(), "broken": diagnostics_json(changes.broken)}
        print(json.dumps(document), flush=True)
        return
    for one in changes.broken:
        print(f"broken {one_line(str(one))}", flush=True)
    for path in changes.fixed:
        print(f"fixed {one_line(path)}", flush=True)
    named = {"added": changes.added, "changed": changes.changed, "removed": changes.removed}
    for word, names in named.items():
        for name in names:
            about = one_line(catalog[name].description) if name in catalog else ""
            print(f"{word} {name}" + (f": {about}" if about else ""), flush=True)
