"""`forebay stop`: end a server."""

from __future__ import annotations

import argparse
from typing import Any

from forebay.cli.output import say_json
from forebay.cli.parser import command, talking
from forebay.cli.session import session, tell

EXAMPLES = """\
  forebay stop                     when what runs has ended; what waits stays on disk
  forebay stop --grace 10s         at most so long; then it is killed
  forebay stop --app tune.py"""

LONGEST_S = 3600.0


def add(commands: Any) -> None:
    """Add the command to the command line."""
    parser = command(commands, "stop", run, examples=EXAMPLES)
    talking(parser)
    parser.add_argument(
        "--grace", metavar="TIME", help="what runs may take so long (executor.drain_grace)"
    )


def run(options: argparse.Namespace) -> int:
    """Tell the server to end, and wait until it has ended."""
    from forebay.config import parse_seconds
    from forebay.errors import BrokenError

    grace = None if options.grace is None else parse_seconds(options.grace)
    with session(options, waits=True) as client:
        info = client.info()
        client.stop(grace)
        tell(options, f"forebay: process {info.get('pid')} ends when what runs has ended")
        gone = client.wait_gone(options.timeout or LONGEST_S)
    if not gone:
        raise BrokenError(
            f"process {info.get('pid')} still drains; it ends by itself, or with: forebay stop"
            " --grace 0s"
        )
    if options.json:
        say_json({"stopped": True, "pid": info.get("pid")})
    return 0
