"""`forebay cron`: requests that a server submits by itself."""

from __future__ import annotations

import argparse
from typing import Any

from forebay.cli._output import say, say_json, table
from forebay.cli._parser import command, talking
from forebay.cli._session import session, tell
from forebay.cli._units import duration, since

EXAMPLES = """\
  forebay cron            when each was submitted last
  forebay cron --json"""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(
        commands,
        "cron",
        run,
        description="List what the server submits by itself: @app.request(cron='*/5 * * * *').",
        examples=EXAMPLES,
    )
    talking(parser)


def run(options: argparse.Namespace) -> int:
    """List the schedules."""
    with session(options) as client:
        schedules = client.ask("schedules")["schedules"]
    if options.json:
        for one in schedules:
            say_json(one)
    elif schedules:
        rows = [(one["name"], one["cron"], _ago(one.get("fired_at"))) for one in schedules]
        say(table(("name", "cron", "submitted"), rows))
    else:
        tell(options, "nothing is scheduled; give a request cron=, as in cron='*/5 * * * *'")
    return 0


def _ago(moment: str | None) -> str:
    return "never" if moment is None else f"{duration(since(moment))} ago"
