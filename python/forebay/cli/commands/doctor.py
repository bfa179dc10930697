"""`forebay doctor`: what works on this machine, and what to type where something does not."""

from __future__ import annotations

import argparse
from typing import Any

from forebay.cli.output import say, say_json, table
from forebay.cli.parser import command, common

EXAMPLES = """\
  forebay doctor          a line for each thing; one that is not ok ends with what to type
  forebay doctor --json   an object for each"""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    common(command(commands, "doctor", run, examples=EXAMPLES))


def run(options: argparse.Namespace) -> int:
    """Run every check; 1 if something that is needed is missing."""
    from forebay.cli.doctor.checks import findings
    from forebay.cli.doctor.finding import MISSING

    found = findings(options.path)
    if options.json:
        for one in found:
            say_json(
                {
                    "name": one.name,
                    "state": one.state,
                    "value": one.value,
                    "next": one.next,
                    "to_type": one.to_type,
                }
            )
    else:
        rows = [
            (one.state, one.name, one.value if one.next is None else f"{one.value}; {one.next}")
            for one in found
        ]
        say(table(("", "what", "found"), rows))
    return int(any(one.state == MISSING for one in found))
