"""`forebay config`: every setting, and where it comes from."""

from __future__ import annotations

import argparse
from typing import Any

from forebay.cli.output import note, say, say_json, table
from forebay.cli.parser import command, common

EXAMPLES = """\
  forebay config                    value and origin of everything
  forebay config executor           of one system
  forebay config --changed          only what is not the default
  FOREBAY_EXECUTOR_DRAIN_GRACE=5s forebay config executor.drain_grace"""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(commands, "config", run, examples=EXAMPLES)
    common(parser, path=False)
    parser.add_argument(
        "name", nargs="?", help="of a setting or a system, such as executor.drain_grace"
    )
    parser.add_argument("--changed", action="store_true", help="leave defaults out")


def run(options: argparse.Namespace) -> int:
    """Print the settings; unknown names are reported on stderr."""
    from forebay.cli.exit_codes import NoSuchThingError
    from forebay.configuration import find_configuration

    configuration = find_configuration()
    wanted = options.name
    shown = [
        one
        for one in configuration.settings.values()
        if wanted is None or one.name == wanted or one.name.startswith(f"{wanted}.")
    ]
    if not shown:
        known = list(configuration.settings)
        raise NoSuchThingError(f"no setting is called {wanted!r}{_near(wanted, known)}")
    if options.changed:
        shown = [one for one in shown if one.origin != "default"]
    if options.json:
        for one in shown:
            say_json({"name": one.name, "value": one.shown, "origin": one.origin})
    elif shown:
        rows = [(one.name, "" if one.shown is None else one.shown, one.origin) for one in shown]
        say(table(("name", "value", "origin"), rows))
    for warning in configuration.warnings:
        note(f"forebay: {warning}")
    return 0


def _near(name: str, known: list[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]!r}?" if near else "; see: forebay config"
