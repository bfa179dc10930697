"""`forebay wait`: until requests have ended."""

from __future__ import annotations

import argparse
from typing import Any

from forebay.cli.parser import Parser, command, talking
from forebay.cli.session import session

EXAMPLES = """\
  forebay wait @last              its exit code is the request's own
  forebay wait 0a3 0a4 --timeout 1min
  forebay wait $(forebay submit launch --name job-1)"""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    from forebay.cli.following import following

    parser: Parser = command(
        commands,
        "wait",
        run,
        description="Wait until requests have ended; a line for each says how."
        " The exit code is that of the first that did not succeed.",
        examples=EXAMPLES,
    )
    talking(parser)
    following(parser)
    parser.add_argument("ids", nargs="+", metavar="ID", help="of a request, or @last")


def run(options: argparse.Namespace) -> int:
    """Wait for them, and show their progress."""
    from forebay.cli.ending import end_line
    from forebay.cli.following import watch

    with session(options, waits=True) as client:
        requests = [client.get(one) for one in options.ids]
        return watch(requests, options, logs=False, ended=lambda one: end_line(one, options))
