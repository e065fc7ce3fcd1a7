"""`skillbelt config`."""

from __future__ import annotations

import argparse
import json

from skillbelt.cli.output import print_json, print_table, say
from skillbelt.discovery.describe import switches_json
from skillbelt.settings import DEFAULTS, ENV_PREFIX, Settings, hide_password, load_settings
from skillbelt.values import Limits


def configure(parser: argparse.ArgumentParser) -> None:
    """Add no options: there are only the common ones."""


def run(args: argparse.Namespace) -> int:
    """Print every setting, its value and its source, and the settings for single skills."""
    settings = load_settings(args.project, config=args.config)
    rows = [
        (key, _value_of(settings, key), settings.sources.get(key, "default")) for key in DEFAULTS
    ]
    skills = {
        one.pattern: switches_json(settings.for_skill(one.pattern)) for one in settings.skills
    }
    if args.json:
        document = {key: {"value": value, "source": source} for key, value, source in rows}
        source = "each key has its own" if skills else "default"
        print_json({**document, "skills": {"value": skills, "source": source}})
    else:
        shown = [(key, json.dumps(value), source) for key, value, source in rows]
        shown += [
            (f"skills.{name}.{key}", json.dumps(one["value"]), str(one["source"]))
            for name, switches in skills.items()
            for key, one in switches.items()
        ]
        print_table(("setting", "value", "from"), shown, wrap=True)
        say(f"each setting is also an environment variable: {ENV_PREFIX}MAX_DEPTH=4", args)
    return 0


def _value_of(settings: Settings, key: str) -> object:
    return hide_password(getattr(settings.limits if key in Limits._fields else settings, key))
