"""`forebay why`: the decisions about a request with their numbers, and the next step."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from forebay.cli.output import colored, say, say_json, wants_color
from forebay.cli.parser import command, talking
from forebay.cli.session import session

EXAMPLES = """\
  forebay why @last
  forebay why 0a3 --json"""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(commands, "why", run, examples=EXAMPLES)
    talking(parser)
    parser.add_argument("id", help="of a request, its beginning, or @last")


def run(options: argparse.Namespace) -> int:
    """Print the reason, what was decided when, and what to do."""
    with session(options) as client:
        told = client.get(options.id).why()
    if options.json:
        say_json(told)
        return 0
    color = wants_color(options.color, sys.stdout)
    status = told.get("status") or ""
    say(f"{told['id']} {colored(status, status, on=color)}")
    if told.get("reason"):
        say(f"  {told['reason']}")
    for decision in told.get("decisions") or ():
        at = _clock(decision.get("at"))
        say(f"  {colored(at, 'dim', on=color)}  {decision['text']}")
    if told.get("next"):
        say(f"next: {told['next']}")
    return 0


def _clock(moment: str | None) -> str:
    """The local time of day, with milliseconds."""
    if not moment:
        return " " * 12
    from datetime import datetime

    return datetime.fromisoformat(moment).astimezone().strftime("%H:%M:%S.%f")[:12]
