"""`skillbelt config`."""

from __future__ import annotations

import argparse

from skillbelt.cli.output import print_json, print_table
from skillbelt.settings import DEFAULTS, ENV_PREFIX, Settings, load_settings
from skillbelt.values import Limits


def configure(parser: argparse.ArgumentParser) -> None:
    """`config` has no options of its own."""


def run(args: argparse.Namespace) -> int:
    """Print every setting, its value and its source."""
    settings = load_settings(args.project, config=args.config)
    rows = [(key, _value(settings, key), settings.sources.get(key, "default")) for key in DEFAULTS]
    if args.json:
        print_json({key: {"value": value, "source": source} for key, value, source in rows})
    else:
        print_table(
            ("setting", "value", "from", "environment"),
            [(key, str(value), source, ENV_PREFIX + key.upper()) for key, value, source in rows],
        )
    return 0


def _value(settings: Settings, key: str) -> object:
    return getattr(settings.limits if key in Limits._fields else settings, key)
