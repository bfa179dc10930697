"""`forebay result`: what a request returned."""

from __future__ import annotations

import argparse
from typing import Any

from forebay.cli.parser import command, talking
from forebay.cli.session import session

EXAMPLES = """\
  forebay result @last
  forebay result 0a3 --timeout 10s
  forebay result 0a3 --json"""


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(
        commands,
        "result",
        run,
        description="Print what a request returned; waits for its end."
        " The exit code is the request's own.",
        examples=EXAMPLES,
    )
    talking(parser)
    parser.add_argument("id", help="of a request, its beginning, or @last")


def run(options: argparse.Namespace) -> int:
    """Print it."""
    from forebay.cli.ending import report

    with session(options, waits=True) as client:
        request = client.get(options.id)
        request.exception(options.timeout)
        return report(request, options)
