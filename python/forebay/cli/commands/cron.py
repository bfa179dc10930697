"""`forebay cron`: requests that a server submits by itself."""

from __future__ import annotations

import argparse
from typing import Any

from forebay._units import duration, since
from forebay.cli.output import say, say_json, table
from forebay.cli.parser import command, talking
from forebay.cli.session import session, tell

EXAMPLES = """\
  forebay cron                  when each was submitted last, and when it is next
  forebay cron pause report     until: forebay cron resume report
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
    parser.add_argument(
        "act", nargs="?", choices=("ls", "pause", "resume"), default="ls", help="list them (ls)"
    )
    parser.add_argument("name", nargs="?", help="of the request that is to rest or to go on")


def run(options: argparse.Namespace) -> int:
    """List the schedules, or pause or resume one."""
    from forebay.cli.parser import UsageError

    if (options.act == "ls") != (options.name is None):
        raise UsageError("write: forebay cron, or forebay cron pause|resume NAME")
    with session(options) as client:
        if options.act == "ls":
            schedules = client.ask("schedules")["schedules"]
        else:
            paused = options.act == "pause"
            schedules = client.ask("set_schedule", options.name, paused)["schedules"]
            schedules = [one for one in schedules if one["name"] == options.name]
    if options.json:
        for one in schedules:
            say_json(one)
    elif schedules:
        say(table(("name", "cron", "submitted", "next"), [_row(one) for one in schedules]))
    else:
        tell(options, "nothing is scheduled; give a request cron=, as in cron='*/5 * * * *'")
    return 0


def _row(one: dict[str, Any]) -> tuple[str, str, str, str]:
    fired, following = since(one.get("fired_at")), since(one.get("next_at"))
    submitted = "never" if fired is None else f"{duration(fired)} ago"
    if one.get("paused"):
        next_time = "paused"
    else:
        next_time = "-" if following is None else f"in {duration(max(0.0, -following))}"
    return one["name"], one["cron"], submitted, next_time
