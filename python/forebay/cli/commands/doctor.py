"""`forebay doctor`: what works on this machine, and what to change."""

from __future__ import annotations

import argparse
from typing import Any

from forebay.cli.output import note, say, say_json, table
from forebay.cli.parser import command, common

EXAMPLES = """\
  forebay doctor          a line for each thing that was looked at
  forebay doctor --json   an object for each"""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    common(command(commands, "doctor", run, examples=EXAMPLES))


def run(options: argparse.Namespace) -> int:
    """Run every check; 1 if something that is needed is missing."""
    from forebay.cli.doctor_checks import findings
    from forebay.cli.finding import MISSING

    found = findings(options.path)
    missing = [one for one in found if one.state == MISSING]
    if options.json:
        for one in found:
            say_json({"name": one.name, "state": one.state, "value": one.value, "next": one.next})
    else:
        say(table(("", "what", "found"), [(one.state, one.name, one.value) for one in found]))
        for one in found:
            if one.next is not None:
                note(f"{one.name}: {one.next}")
    return 1 if missing else 0
