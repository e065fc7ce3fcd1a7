"""`skillbelt config`."""

from __future__ import annotations

import argparse
import json

from skillbelt.cli.output import print_json, print_table, say
from skillbelt.settings import DEFAULTS, ENV_PREFIX, Settings, load_settings
from skillbelt.values import Limits


def configure(parser: argparse.ArgumentParser) -> None:
    """Add no options: there are only the common ones."""


def run(args: argparse.Namespace) -> int:
    """Print every setting, its value and its source."""
    settings = load_settings(args.project, config=args.config)
    rows = [
        (key, _value_of(settings, key), settings.sources.get(key, "default")) for key in DEFAULTS
    ]
    if args.json:
        print_json({key: {"value": value, "source": source} for key, value, source in rows})
    else:
        shown = [(key, json.dumps(value), source) for key, value, source in rows]
        print_table(("setting", "value", "from"), shown, wrap=True)
        say(f"each setting is also an environment variable: {ENV_PREFIX}MAX_DEPTH=4", args)
    return 0


def _value_of(settings: Settings, key: str) -> object:
    return getattr(settings.limits if key in Limits._fields else settings, key)
