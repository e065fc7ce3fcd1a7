"""The catalogue of a command. Commands that scan for no skill do not import it: it takes 10 ms."""

from __future__ import annotations

import argparse

from skillbelt.cli.output import show_progress, wants_progress
from skillbelt.discovery.catalog import Catalog
from skillbelt.settings import load_settings

_ONE_RUN = 3600.0


def open_catalog(args: argparse.Namespace, *, refresh: bool = False) -> Catalog:
    """Scan and return the catalogue for the common options; show progress on a terminal."""
    wanted = wants_progress(args)
    progress = show_progress if wanted else None
    settings = load_settings(args.project, config=args.config)
    # One scan per command.
    catalog = Catalog(settings=settings._replace(rescan_seconds=_ONE_RUN), progress=progress)
    _ = catalog.refresh() if refresh else catalog.discover()
    if wanted:
        show_progress("")
    return catalog
