"""`forebay cancel`: end requests before they end."""

from __future__ import annotations

import argparse
from typing import Any, Final

from forebay.cli.output import say, say_json
from forebay.cli.parser import command, talking
from forebay.cli.session import session

EXAMPLES = """\
  forebay cancel @last
  forebay cancel 0a3 0a4"""

_TOLD: Final = {
    "now": "cancelled before it ran",
    "asked": "is being interrupted",
    "ended": "has ended already",
}


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(
        commands,
        "cancel",
        run,
        description="Cancel requests: what waits never runs; running code gets an exception,"
        " then SIGTERM, then SIGKILL.",
        examples=EXAMPLES,
    )
    talking(parser)
    parser.add_argument("ids", nargs="+", metavar="ID", help="of a request, or @last")


def run(options: argparse.Namespace) -> int:
    """Cancel each."""
    with session(options) as client:
        for one in options.ids:
            request = client.get(one)
            answer = request.cancel()
            if options.json:
                say_json({"id": request.id, "cancel": answer})
            elif not options.quiet:
                say(f"{request.id} {_TOLD.get(answer, answer)}")
    return 0
